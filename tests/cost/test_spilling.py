"""What is stored and loaded to make a kernel fit SBUF: random tasks, looked at one by one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from nkisim.cost.tasks import Kind, Memory, ScheduledTask, Work
from nkisim.ir.memory import Space
from nkisim.machine import GEN2, GEN3
from nkisim.schedule.allocation import spill
from nkisim.schedule.touches import Touches

ROOM = 64 * 1024  # bytes a partition
LAST = [200, 201, 202, 203, 204]  # tiles
LOAD, COMPUTE = Kind("load", (), transfer=object()), Kind("compute", ())


@st.composite
def works(draw):
    """Tasks that load or compute some of twelve tiles, most of which do not fit side by side; then
    others with tiles of their own that do."""
    sizes = draw(st.lists(st.sampled_from([128, 4096, 12288, 16384]), min_size=12, max_size=12))
    memory = {n: Memory(Space.SBUF, size) for n, size in enumerate(sizes)}
    memory |= {100: Memory(Space.SHARED_HBM), 101: Memory(Space.PSUM, 2048)}
    tiles = st.sampled_from([n for n in memory if n != 100])
    tasks = []
    for _ in range(draw(st.integers(8, 60))):
        written = [(draw(tiles), None)]
        if draw(st.booleans()):
            tasks.append(ScheduledTask(SimpleNamespace(), LOAD, [(100, None)], written))
        else:
            read = [(n, None) for n in draw(st.lists(tiles, max_size=2))]
            tasks.append(ScheduledTask(SimpleNamespace(), COMPUTE, read, written))
    for n in LAST * 3:
        memory[n] = Memory(Space.SBUF, ROOM // 8)
        tasks.append(ScheduledTask(SimpleNamespace(), COMPUTE, [(n, None)], [(n, None)]))
    return Work(tasks, memory)


@pytest.mark.parametrize("machine", [GEN2, GEN3], ids=["v2", "v3"])
@settings(max_examples=2 * settings.default.max_examples)
@given(work=works())
def test_each_tile_is_loaded_back_as_it_was_last_written(work, machine):
    machine = replace(machine, sbuf_bytes=machine.sbuf_reserved_bytes + ROOM)
    before = [(task, list(task.reads), list(task.writes)) for task in work.tasks]
    fits = Touches.of(work).peak(Space.SBUF) <= ROOM
    moved, touches = spill(work, Touches.of(work), machine, machine.timing)
    for name, found in vars(Touches.of(work)).items():
        assert np.array_equal(getattr(touches, name), found), name
    event(f"spilled: {bool(moved)}")
    if fits:
        assert not moved
    assert [task for task in work.tasks if task.label not in ("spill", "reload")] == [
        task for task, _, _ in before
    ]
    assert Touches.of(work).peak(Space.SBUF) <= ROOM
    assert {n for task in work.tasks[-len(LAST) * 3 :] for n, _ in task.writes} == {*LAST}
    _run(work, before)


def _run(work, before):
    """Run the tasks: whether each finds what it should in the memory that it touches."""
    names = {n: n for n in work.memory}  # of each tile, its number by now
    of = dict(names)  # by number: the tile
    written = dict.fromkeys(work.memory, 0)  # how often each tile was
    holds = dict(written)  # by number: which of these it holds
    stored: dict[int, int] = {}  # the same of HBM, by tile
    gone: set[int] = set()  # numbers
    computed = {n for task, _, writes in before if task.kind is COMPUTE for n, _ in writes}
    originals = iter(before)
    loaded = []
    for task in work.tasks:
        if task.label == "spill":
            ((number, _),) = task.reads
            stored[of[number]] = holds[number]
            gone.add(number)
            continue
        if task.label == "reload":
            loaded.append(task.writes[0][0])
            continue
        _, reads, writes = next(originals)
        for (n, _), (number, _) in zip(reads + writes, task.reads + task.writes, strict=True):
            if number in loaded:
                loaded.remove(number)
                gone.add(names[n])
                names[n], of[number] = number, n
                # What no task has computed is in HBM anyway.
                holds[number] = stored[n] if n in computed else written[n]
            assert number == names[n]
            assert number not in gone
            assert holds[number] == written[n]  # also where it is written: maybe in part
        for n, _ in writes:
            written[n] += 1
            holds[names[n]] = written[n]
    assert not loaded
