"""A schedule made from a few rounds of what repeats is that of all tasks, one by one."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.machine import GEN2
from nkisim.machine.timing import V2
from nkisim.schedule import cycles, scheduler, steady
from nkisim.schedule.allocation import Residence
from nkisim.schedule.compute import Cost
from nkisim.schedule.dma import Transfer
from nkisim.schedule.tasks import Kind, Memory, Task, Work
from validation import convolution, layernorm, mamba, matmul, nkibench

NAMES = ("start", "end", "done", "queue_start", "queue_end", "queue_busy")


def spec(*shape, dtype=np.float32):
    return nkisim.TensorSpec(shape, np.dtype(dtype))


@pytest.fixture
def scheduled(monkeypatch):
    """How many tasks were scheduled, for each call of the scheduler."""
    counts = []

    def spied(work, *more):
        counts.append(len(work.tasks))
        return scheduler.simulate(work, *more)

    monkeypatch.setattr(steady, "simulate", spied)
    return counts


@pytest.fixture(params=["long periods", "any period"])
def short_ones(monkeypatch, request):
    """Cycles of few tasks are worth a look, too. Of long periods, or of all, half as many rounds
    are tried first."""
    monkeypatch.setattr(steady, "_FEWEST", 0)
    monkeypatch.setattr(cycles, "_TASKS", 0)
    if request.param == "any period":
        monkeypatch.setattr(steady, "_LONG", 0)


def assert_same(found, whole):
    for name in NAMES:
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), 1e-9, 1e-3, name)
    assert found.span == pytest.approx(whole.span, rel=1e-9)
    assert found.engine == whole.engine
    assert found.queues_of == whole.queues_of


def check(work, machine=GEN2, timing=V2):
    """Schedule in both ways. Returns the one under test."""
    found = steady.schedule(work, machine, timing)
    assert_same(found, scheduler.schedule(work, machine, timing))
    return found


# -- kernels --------------------------------------------------------------------------------------


def two_loops(x, y):
    """Loops of their own over x and y: the loads of the second one wait for nothing."""
    out, more = (nl.ndarray(t.shape, t.dtype, buffer=nl.shared_hbm) for t in (x, y))
    for i in nl.affine_range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(out[i], nl.exp(nisa.tensor_tensor(tile, tile, np.multiply)))
    for i in range(y.shape[0]):
        nl.store(more[i], nisa.tensor_tensor(nl.load(y[i]), nl.load(y[i]), np.add))
    return out, more


def through_hbm(x, y):
    """The second loop reads what the first one wrote."""
    middle = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        nl.store(middle[i], nl.exp(nl.load(x[i])))
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i], nisa.activation(np.tanh, nl.load(middle[i])))
    return out


def handed_on(x, y):
    """Each round reads what the one before made; the last one is stored."""
    out = nl.ndarray((128, x.shape[2]), x.dtype, buffer=nl.shared_hbm)
    weights = nl.load(y[0, :, 0 : x.shape[2]])
    state = nl.zeros((128, x.shape[2]), x.dtype)
    for i in range(x.shape[0]):
        state = nisa.tensor_tensor(state, nl.load(x[i]), np.add)
        state = nisa.tensor_tensor(state, weights, np.multiply)
    nl.store(out, state)
    return out


def kept(x, y):
    """All tiles stay on chip until the second loop."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((x.shape[0], nl.par_dim(128), x.shape[2]), x.dtype)
    for i in nl.affine_range(x.shape[0]):
        tiles[i] = nl.load(x[i])
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i], nisa.activation(np.exp, tiles[i]))
    return out


def few_partitions(x, y):
    """Transfers that use some of the DMA queues."""
    out = nl.ndarray((x.shape[0], 12, x.shape[2]), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        for first, last in (0, 5), (5, 12):
            tile = nl.load(x[i, first:last])
            nl.store(out[i, first:last], nisa.activation(np.exp, tile))
    return out


def small_tiles(x, y):
    """Loads, products and stores of some bytes each."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i], nisa.tensor_tensor(nl.load(x[i]), nl.load(y[i]), np.multiply))
    return out


@pytest.mark.parametrize("columns", [8, 96, 512, 2048])
@pytest.mark.parametrize("kernel", [two_loops, through_hbm, handed_on, kept, few_partitions])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_kernels_take_as_long_as_they_do_task_by_task(kernel, columns, target, short_ones):
    x, y = spec(150, 128, columns), spec(130, 128, 2048)
    with nkisim.checks(sbuf="off"):
        t = nkisim.profile(nki.jit(kernel, platform_target=target), x, y)
    core = t._core
    assert_same(core.schedule, scheduler.schedule(core.work, t.machine, t.timing))


ROW, PLANE = spec(1, 16, 2048), spec(1, 2048, 2048)
BATCH = spec(16, 1024, 64), spec(16, 64, 1024)
CASES = {
    "layernorm": (layernorm.layernorm_v1, (spec(128 * 300, 2048), spec(2048), spec(2048)), 0.3),
    "mamba": (mamba.mamba_v2, (PLANE, PLANE, spec(2048, 16), ROW, ROW), 0.8),
    "AdamW": (nkibench.adamw, (spec(10944, 2048),) * 4, 0.4),
    "softmax, spilled": (nkibench.bmm_softmax, BATCH, 1.0),
    "convolution": (
        convolution.conv2d,
        (spec(1, 128, 64, 60), spec(128, 128, 3, 3), spec(128, 1), 2),
        1.0,
    ),
    "matmul": (matmul.matmul_full, (spec(4096, 2048, dtype=nl.bfloat16),) * 2, 1.0),
    # Its copies out of PSUM take turns on two engines.
    "matmul, hoisted": (matmul.matmul_hoisted, (spec(1024, 8192, dtype=nl.bfloat16),) * 2, 0.2),
}


# Rounds of some thousand tasks, after 20 ms: rounding is more than a millionth of a nanosecond.
LONG = spec(8192, 4096), spec(8192, 8192), 2


def test_rounding_hides_no_repetition(scheduled):
    t = nkisim.profile(nki.jit(matmul.matmul_lists.func, platform_target="trn2"), *LONG)
    assert scheduled[-1] <= 0.8 * len(t._core.work.tasks)
    assert_same(t._core.schedule, scheduler.schedule(t._core.work, t.machine, t.timing))


@pytest.mark.parametrize("name", CASES)
def test_published_kernels_do_too(name, scheduled, short_ones):
    kernel, args, most = CASES[name]
    with nkisim.checks(sbuf="off"):
        t = nkisim.profile(kernel, *args)
    assert scheduled[-1] <= most * len(t._core.work.tasks)
    found = t._core.schedule
    whole = scheduler.schedule(t._core.work, t.machine, t.timing)
    assert_same(found, whole)


def test_of_a_long_loop_a_part_is_scheduled(scheduled):
    x, y = spec(2000, 128, 512), spec(1, 128, 512)
    t = nkisim.profile(nki.jit(handed_on), x, y)
    assert t.instructions > 6000
    (part,) = scheduled
    assert part < 0.2 * t.instructions
    whole = scheduler.schedule(t._core.work, t.machine, t.timing)
    assert_same(t._core.schedule, whole)
    assert t._core.schedule.cause == whole.cause
    assert t._core.schedule.why == whole.why


def test_of_small_tiles_no_more_is_scheduled_than_is_under_way(scheduled):
    """There is room for more tiles than the loop has. It is not all used, which the part shows."""
    t = nkisim.profile(nki.jit(small_tiles), spec(2500, 16, 4), spec(2500, 16, 4))
    work = t._core.work
    assert sum(Residence.of(work).nbytes) < GEN2.sbuf_usable_bytes
    assert scheduled[-1] < 0.4 * len(work.tasks)
    assert_same(t._core.schedule, scheduler.schedule(work, t.machine, t.timing))


@pytest.mark.parametrize(
    ("ahead", "under_way", "holds"), [(100, 29.5, True), (100, 30.5, False), (32, 31.0, True)]
)
def test_periods_under_way(ahead, under_way, holds):
    """Of a cycle of 16 tasks, 32 periods are enough if no more than that, with one to spare, are
    under way; or if there is memory for no more."""
    cut = steady._Cut(cycles.Cycle(0, 16, 500, 15, ahead), 1)
    assert cut.behind == 32
    assert cut.kept < 500
    assert cut.holds(10.0, 10.0 * under_way) == holds


def test_of_a_short_loop_all_is(scheduled):
    t = nkisim.profile(nki.jit(handed_on), spec(40, 128, 512), spec(1, 128, 512))
    assert scheduled == [len(t._core.work.tasks)]


def test_that_no_two_rounds_take_the_same_time_is_seen(scheduled, monkeypatch):
    """One engine falls behind the other in each round, and tiles are so small that the memory
    never holds it back: all tasks are scheduled."""
    slow, fast = (compute(engine, ns) for engine, ns in ((Engine.VECTOR, 90), (Engine.SCALAR, 50)))
    body = [(slow, [], [("new", 0)]), (fast, [], [("new", 1)])]
    work = made([], body, 1500, [])
    check(work)
    assert scheduled[0] < len(work.tasks) == scheduled[-1]


# -- tasks that no kernel has ---------------------------------------------------------------------


def compute(engine, ns):
    return Kind("compute", ((engine, Cost(float(ns), ns + 50.0, float(ns))),))


def moving(engines, ns, latency):
    moved = Transfer(float(ns), engines, float(latency), 64, 64, 64, 8, True)
    return Kind("load", ((Engine.SYNC, Cost(50.0, 50.0, 50.0)),), moved)


SIZES = 32, 4096, 40_000


def made(before, body, count, after):
    """Tasks: some, a body so many times, and others. Each is a kind, and what it reads and writes:
    ("new", size) is a tile of the round, ("last", size) the one of the round before, ("old", n)
    one that there was before."""
    work = Work(memory={0: Memory(Space.PRIVATE_HBM)})
    work.choices = defaultdict(int)
    numbers = {}

    def access(what, n, at):
        if what == "hbm":
            return 0, None
        key = what if what == "old" else at - (what == "last"), n
        number = numbers.setdefault(key, len(numbers) + 1)
        nbytes = SIZES[n % len(SIZES)]
        work.memory.setdefault(number, Memory(Space.PSUM if n % 5 == 4 else Space.SBUF, nbytes))
        return number, None

    lines = defaultdict(object)
    rounds = [before, *[body] * count, after]
    for at, tasks in enumerate(rounds):
        for n, (kind, reads, writes) in enumerate(tasks):
            line = SimpleNamespace(location=lines[min(at, 1) + (at > count), n], opcode="")
            found = ([*{access(*x, at): 0 for x in touched}] for touched in (reads, writes))
            work.tasks.append(Task(line, kind, *found))
    return work


KINDS = st.one_of(
    st.builds(
        compute,
        st.sampled_from([Engine.VECTOR, Engine.SCALAR, Engine.TENSOR, Engine.GPSIMD]),
        st.sampled_from([60, 100, 128, 512]),
    ),
    st.builds(moving, st.sampled_from([1, 5, 8, 16]), st.sampled_from([120, 700]), st.just(600)),
)
TOUCHED = st.lists(
    st.tuples(st.sampled_from(["new", "new", "last", "old", "hbm"]), st.integers(0, 5)),
    max_size=3,
)
TASKS = st.tuples(KINDS, TOUCHED, TOUCHED)


def test_engines_that_no_memory_holds_back_run_on(short_ones, monkeypatch):
    """One of two that share a port to SBUF waits for all tasks of the other."""
    monkeypatch.setattr(steady, "_TASKS", 8)
    engines = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD
    work = made([], [(compute(engine, 60), [], []) for engine in engines], 50, [])
    assert check(work).start[2] >= 50 * 60


def test_what_follows_a_loop_waits_for_memory(short_ones, monkeypatch):
    """There is room for the tiles of some rounds, not for those of all and of one more task."""
    monkeypatch.setattr(steady, "_TASKS", 8)
    vector, scalar = compute(Engine.VECTOR, 60), compute(Engine.SCALAR, 60)
    work = made([], [(vector, [], [("new", 1)])], 150, [(scalar, [], [("new", 0)])])
    assert check(work).start[-1] > 6000


@settings(max_examples=120)
@given(
    st.lists(TASKS, max_size=4),
    st.lists(TASKS, min_size=1, max_size=6),
    st.lists(TASKS, max_size=4),
    st.sampled_from([50, 150]),
    st.sampled_from([8, 64, 512]),
    st.sampled_from([0, 1024]),
)
def test_random_cycles_take_as_long_as_they_do_task_by_task(
    before, body, after, count, short, long
):
    """Also where few of the rounds that there is memory for are thought to be under way, and where
    few rounds are tried first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady, "_FEWEST", 0)
        patch.setattr(steady, "_TASKS", short)
        patch.setattr(steady, "_LONG", long)
        patch.setattr(cycles, "_TASKS", 0)
        check(made(before, body, count, after))
