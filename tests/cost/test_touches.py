"""What all tasks touch, in arrays, against looking at them one by one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from nkisim.cost.tasks import Memory, ScheduledTask, Work
from nkisim.ir.memory import Space
from nkisim.schedule.allocation import Residence
from nkisim.schedule.touches import Touches

PARTS = [None, object(), object()]

SPACES = st.sampled_from([Space.SBUF, Space.PSUM, Space.SHARED_HBM])
MEMORY = st.builds(Memory, SPACES, st.sampled_from([4, 64, 2048]))
TOUCHED = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(PARTS)), max_size=3)
TASKS = st.lists(st.tuples(TOUCHED, TOUCHED), max_size=30)


@st.composite
def works(draw):
    """Tasks of any kind; numbers of memory can be negative, and far apart."""
    memory = {draw(st.integers(-9, 9)) + 100 * n: draw(MEMORY) for n in range(-4, 4)}
    names = list(memory)
    tasks = []
    for reads, writes in draw(TASKS):
        accesses = [[(names[n], part) for n, part in found] for found in (reads, writes)]
        tasks.append(ScheduledTask(SimpleNamespace(location=None), None, *accesses))
    return Work(tasks, memory)


def touched(work):
    """(task, memory, part, whether it writes), in order."""
    for at, task in enumerate(work.tasks):
        for writes, accesses in enumerate((task.reads, task.writes)):
            for number, part in accesses:
                yield at, number, part, bool(writes)


def on_chip(work, number):
    return work.memory[number].space is not Space.SHARED_HBM


def changing(work):
    """What is written when it was touched before; in HBM, what is read and written."""
    seen, found = set(), set()
    read = {n for _, n, _, writes in touched(work) if not writes}
    for _, n, _, writes in touched(work):
        again = n in seen if on_chip(work, n) else n in read
        if writes and again:
            found.add(n)
        seen.add(n)
    return found


@given(works())
def test_touches_are_those_of_the_tasks(work):
    touches, found = Touches.of(work), list(touched(work))
    numbers = touches.numbers.tolist()
    assert numbers == sorted({n for _, n, _, _ in found})
    assert [numbers[k] for k in touches.memory] == [n for _, n, _, _ in found]
    assert touches.task.tolist() == [at for at, _, _, _ in found]
    assert touches.writes.tolist() == [writes for _, _, _, writes in found]
    assert touches.part.tolist() == [id(part) for _, _, part, _ in found]
    assert [touches.kinds[k] for k in touches.kind] == [work.memory[n] for n in numbers]
    assert len(touches.kinds) == len(set(touches.kinds))
    starts = touches.starts.tolist()
    assert [b - a for a, b in itertools.pairwise(starts)] == [
        len(task.reads) + len(task.writes) for task in work.tasks
    ]
    pairs = [(at, n) for at, n, _, _ in found]
    assert touches.again().tolist() == [pair in pairs[:p] for p, pair in enumerate(pairs)]
    for k, n in enumerate(numbers):
        places = [p for p, (_, m, _, _) in enumerate(found) if m == n]
        assert (touches.first[k], touches.last[k]) == (places[0], places[-1])


@given(works())
def test_gaps_reach_the_touches_before_and_after(work):
    before, after = Touches.of(work).gaps()
    found = list(touched(work))
    for place, (at, n, _, _) in enumerate(found):
        earlier = [t for t, m, _, _ in found[:place] if m == n]
        later = [t for t, m, _, _ in found[place + 1 :] if m == n]
        assert before[place] == (at - earlier[-1] if earlier else -1)
        assert after[place] == (later[0] - at if later else -1)


@given(works())
def test_changing_is_what_is_written_again(work):
    touches = Touches.of(work)
    assert set(touches.numbers[touches.changing].tolist()) == changing(work)


@given(works(), st.sampled_from([Space.SBUF, Space.PSUM]))
def test_the_peak_is_where_most_is_alive(work, space):
    lives = {}
    for at, n, _, _ in touched(work):
        if work.memory[n].space is space:
            lives.setdefault(n, [at, at])[1] = at
    level = [
        sum(work.memory[n].nbytes for n, (a, b) in lives.items() if a <= at <= b)
        for at in range(len(work.tasks))
    ]
    assert Touches.of(work).peak(space) == max(level, default=0)


@given(works())
def test_tiles_go_by_the_order_in_which_they_are_needed(work):
    found = Residence.of(work)
    tiles = list(dict.fromkeys(n for _, n, _, _ in touched(work) if on_chip(work, n)))
    assert found.numbers == tiles
    assert found.nbytes == [work.memory[n].nbytes for n in tiles]
    assert found.memory == [int(work.memory[n].space is Space.PSUM) for n in tiles]
    by_task = [
        list(dict.fromkeys(n for n, _ in task.reads + task.writes if on_chip(work, n)))
        for task in work.tasks
    ]
    assert [[tiles[k] for k in touched] for touched in found.touched] == by_task
    for k, n in enumerate(tiles):
        users = [at for at, task in enumerate(by_task) if n in task]
        assert (found.first[k], found.last[k], found.uses[k]) == (users[0], users[-1], len(users))
