"""Tasks taken together are what they are one by one; what is known of a stretch holds for all
changes to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from traces import spec

import nkisim
from kernels.giou import nki_giou_kernel_strict
from nkibook.validation import attention, layernorm, mamba, nkibench
from nkisim.cost.tasks import ScheduledTask, Work
from nkisim.report import whatif
from nkisim.report.groups import sort_of
from nkisim.report.whatif import Stretch, recosted
from nkisim.schedule.engines import ENGINES
from nkisim.schedule.scheduler import schedule

pytestmark = pytest.mark.filterwarnings("ignore:a loop over Python's range:nkisim.NkiWarning")


@nki.jit
def rows(x, w):
    """Each tile of x times a row of w of its own: one row is broadcast over partitions for each."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        at = nl.ds(i * 128, 128)
        row = nl.load(w[nl.ds(i, 1), :])
        nl.store(out[at], nl.multiply(nl.load(x[at]), row.broadcast_to((128, x.shape[1]))))
    return out


@nki.jit
def overfull(x):
    """More than SBUF holds is kept for a second pass."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.load(x[i]) for i in range(x.shape[0])]
    halves = [nisa.activation(np.exp, tile, scale=0.5) for tile in tiles]
    for i, half in enumerate(halves):
        nl.store(out[i], nl.divide(half, nl.sum(half, axis=1, keepdims=True)))
    return out


LINE = spec(256, 64)
PLANE, COLUMN = spec(1, 256, 1024), spec(1, 4, 1024)
CASES = {
    "GIOU": (nki_giou_kernel_strict, 2 * (spec(512, 1024),)),
    "LayerNorm": (layernorm.layernorm_v1, (spec(512, 2048), spec(2048), spec(2048))),
    "Mamba": (mamba.mamba_v3, (PLANE, PLANE, spec(256, 4), COLUMN, COLUMN)),
    "attention": (attention.through_hbm, 3 * (spec(128, 512),)),
    "batched matmul": (nkibench.bmm_softmax, (spec(2, 1024, 64), spec(2, 64, 1024))),
    "rows": (rows, (spec(1024, 1024), spec(8, 1024))),
    "overfull": (overfull, (spec(20, 128, 4096),)),
}


@pytest.fixture(params=CASES)
def timeline(request):
    kernel, args = CASES[request.param]
    with nkisim.checks(sbuf="off"):
        return nkisim.profile(kernel, *args)


def test_figures_are_those_of_the_tasks_one_by_one(timeline):
    work, s = timeline._core.work, timeline._core.schedule
    engines, lines, moved = defaultdict(float), defaultdict(float), 0
    for task, e, start, end in zip(work.tasks, s.engine, s.start, s.end, strict=True):
        engines[ENGINES[e].value] += (end - start) / 1e3
        label = task.label if task.transfer is None else f"start of {task.label}"
        lines[task.instr.location, ENGINES[e].value, label] += (end - start) / 1e3
        if task.transfer is not None:
            moved += task.transfer.hbm_bytes
    for name, busy in engines.items():
        assert timeline.engines[name].busy_us == pytest.approx(busy)
    assert timeline.hbm_bytes == moved
    assert timeline.flops == sum(task.flops for task in work.tasks)
    told = {(r.location, r.resource, r.label): r.busy_us for r in timeline.lines}
    assert lines.items() <= {k: pytest.approx(v) for k, v in told.items()}.items()
    used = [n for n, _ in enumerate(s.queue_busy) for used in s.queues_of if n in used]
    assert sum(q.instructions for q in timeline.queues) == len(used)


def test_tasks_together_are_alike(timeline):
    work, s = timeline._core.work, timeline._core.schedule
    seen = []
    for group in timeline.groups:
        first = group.task
        for at in group.positions:
            task = work.tasks[at]
            assert task.kind is first.kind
            assert (ENGINES[s.engine[at]], group.cost) in task.costs
            assert task.instr.location == first.instr.location
            assert task.instr.opcode == first.instr.opcode
            if task.label == task.instr.label:  # not the compiler's, for some instruction
                shapes = [(x.shape, x.dtype) for x in (*first.instr.outs, *first.instr.tiles_in)]
                i = task.instr
                assert [(x.shape, x.dtype) for x in (*i.outs, *i.tiles_in)] == shapes
                assert i.settings is first.instr.settings
        seen += group.positions
    assert sorted(seen) == list(range(len(work.tasks)))


def _slower(task, ns):
    return recosted(task.kind, lambda _, c: c._replace(busy=c.busy + ns, done=c.done + ns))


def _moved_quicker(task, ns):
    if task.transfer is None:
        return _slower(task, ns)
    return replace(task.kind, transfer=task.transfer._replace(engine_ns=ns))


def _left_out(task, ns):
    return replace(task.kind, transfer=None)


@pytest.mark.parametrize("change", [_slower, _moved_quicker, _left_out])
@pytest.mark.parametrize("part", [1.0, 0.4])
def test_what_is_known_of_a_stretch_gives_what_looking_anew_gives(timeline, change, part):
    core, n = timeline._core, len(timeline._core.work.tasks)
    first = 0 if part == 1 else n // 3
    last = first + int(part * n)
    stretch = Stretch(core, first, last, timeline.machine, timeline.timing)
    stakes = {at: 50.0 for at in range(0, n, 3)}
    tasks = core.work.tasks[first:last]
    kinds = {}  # those that are alike take turns on engines, so they must stay alike
    for at in stakes:
        if first <= at < last:
            task = tasks[at - first]
            kind = kinds.setdefault(sort_of(task), change(task, 50.0))
            tasks[at - first] = ScheduledTask(task.instr, kind, task.reads, task.writes)
    anew = Work(tasks, core.work.memory)
    want = schedule(anew, timeline.machine, timeline.timing).span
    assert stretch.changed(stakes, change, timeline.machine, timeline.timing) == want
    before = schedule(Work(core.work.tasks[first:last], core.work.memory), timeline.machine,
                      timeline.timing).span  # fmt: skip
    assert stretch.span == before


def test_questions_about_one_loop_have_one_stretch(monkeypatch):
    monkeypatch.setattr(whatif, "WINDOW", 200)
    t = nkisim.profile(rows, spec(128 * 200, 128), spec(200, 128))
    n = len(t._core.work.tasks)
    assert n > 600
    asked = [dict.fromkeys(range(start, n, 4), 1.0) for start in range(4)]
    assert len({id(whatif.stretch_of(t, stakes)) for stakes in asked}) == 1
