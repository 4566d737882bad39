"""What the simulator keeps of kernels that are gone, with nobody looking for garbage."""

from __future__ import annotations

import gc
import tracemalloc

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import nki as new_nki
import nki.isa as nisa
import nki.language as new_nl
import numpy as np
import pytest

import nkisim
import nkisim.numerics.program
import nkisim.runtime.kernel
from nkisim.ir.instruction import Instruction
from nkisim.ir.memo import Memo
from nkisim.numerics.program import _INSTRUCTION
from nkisim.numerics.recent import Recent

ROUNDS = 300


def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i], nl.load(x[i]) * 2.0)
    return out


def doubled_by_python(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0]):
        nl.store(out[i], nl.load(x[i]) * 2.0)
    return out


def doubled_on_a_grid(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.load(x[i]) * 2.0)
    return out


@pytest.fixture
def no_collection():
    gc.freeze()  # what is there by now, which takes seconds to count after many tests
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def kept(monkeypatch):
    """What keeps traces: some of up to a thousand instructions together, or the last one."""
    recent = Recent(1000 * _INSTRUCTION)
    monkeypatch.setattr(nkisim.numerics.program, "_TRACE", 0)
    monkeypatch.setattr(nkisim.runtime.kernel, "_kept", recent)
    return recent


def instructions():
    return sum(type(x) is Instruction for x in gc.get_objects())


@pytest.mark.parametrize("func", [doubled, doubled_by_python, doubled_on_a_grid])
def test_profiles_leave_nothing_behind(func, kept, no_collection):
    before = instructions()
    for rows in range(ROUNDS, ROUNDS + 4):
        kernel = nki.jit(func)[rows] if func is doubled_on_a_grid else nki.jit(func)
        timeline = nkisim.profile(kernel, nkisim.TensorSpec((rows, 128, 64), np.dtype("float32")))
        assert timeline.instructions == 3 * rows
    assert 3 * ROUNDS <= instructions() - before < 4 * ROUNDS  # the last one
    del kernel, timeline
    assert instructions() - before < ROUNDS / 10


@pytest.mark.parametrize("func", [doubled, doubled_by_python])
def test_a_kernel_that_is_gone_takes_its_traces_along(func, kept, no_collection):
    before = instructions()
    kernel = nki.jit(func)
    x = np.ones((ROUNDS, 128, 4), np.float32)
    np.testing.assert_array_equal(kernel(x), 2 * x)
    assert instructions() - before >= 3 * ROUNDS
    del kernel
    assert instructions() - before < ROUNDS / 10


def test_traces_that_were_used_long_ago_go(kept, no_collection):
    """Traces of 900, 90 and 60 instructions do not fit in a thousand together."""
    before = instructions()
    kernel = nki.jit(doubled)
    for rows in (300, 30, 20):
        x = np.ones((rows, 128, 4), np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(kernel(x), 2 * x)
    assert kernel.cache_info()[:2] == (3, 3)
    assert kernel.cache_info().currsize == 2
    assert instructions() - before < 3 * ROUNDS
    nkisim.profile(kernel, nkisim.TensorSpec((400, 128, 4), np.dtype("float32")))
    assert kernel.cache_info().currsize == 1  # larger than all that is kept, and used last


def test_a_kernel_that_is_traced_again_for_want_of_memory_says_so(kept, caplog):
    x = np.ones((300, 128, 4), np.float32)
    first, second = nki.jit(doubled), nki.jit(doubled)
    for _ in range(2):
        first(x)
    assert not caplog.messages
    for kernel in (second, first):
        kernel(x)
    assert [m.partition(":")[0] for m in caplog.messages] == ["doubled is traced again"]


@pytest.mark.parametrize("rows", [1, 4, 40])
def test_a_trace_is_counted_as_large_as_it_is(rows, no_collection):
    kernel = nki.jit(doubled)
    # So many that it does not matter if a table of the whole process grows meanwhile.
    xs = [np.ones((rows, 128, 4 + n), np.float32) for n in range(32)]
    kernel(xs.pop())
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for x in xs:
        kernel(x)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = sum(s.program.kept_bytes for s in kernel._cache.traces.values()) * 31 / 32
    assert counted / 2 < after - before < counted * 2


def test_what_was_used_last_is_kept_as_far_as_it_fits():
    class Thing:
        pass

    recent, gone = Recent(10), []
    things = {name: Thing() for name in "abc"}

    def use(name, size):
        recent.use(things[name], size, lambda: gone.append(name))

    for name in "abc":
        use(name, 4)
    assert gone == ["a"]
    use("b", 4)
    use("a", 4)
    assert gone == ["a", "c"]
    use("c", 100)  # alone, if need be
    assert gone == ["a", "c", "b", "a"]
    use("c", 3)
    use("a", 7)
    del things["c"]  # which leaves room
    use("b", 3)
    assert gone == ["a", "c", "b", "a"]


@nki.jit
def with_a_tile(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.exp(nl.load(x))
    nl.store(out, nl.multiply(tile, nl.add(tile, 1.0)))
    return out


def _live():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def few_workspaces(monkeypatch):
    monkeypatch.setattr(nkisim.numerics.program, "_kept", Recent(4 << 20))
    tracemalloc.start()
    yield
    tracemalloc.stop()


def _launch(framework, x):
    if framework == "numpy":
        return with_a_tile(x)
    if framework == "torch":
        torch = pytest.importorskip("torch")
        return with_a_tile(torch.from_numpy(x)).numpy()
    jax = pytest.importorskip("jax")
    return np.asarray(jax.jit(lambda x: with_a_tile(x))(x))


@pytest.mark.usefixtures("few_workspaces")
@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_what_runs_work_in_is_kept_as_far_as_it_fits(framework):
    """Each of twenty shapes works on a megabyte, which no run holds any more."""
    _launch(framework, np.zeros((128, 1999), np.float32))
    before = _live()
    for columns in range(2000, 2020):
        x = np.zeros((128, columns), np.float32)
        np.testing.assert_allclose(_launch(framework, x), np.full(x.shape, 2.0))
    assert _live() - before < 8 << 20
    for columns in (2000, 2019, 2000):  # whose workspaces may be gone
        x = np.ones((128, columns), np.float32)
        wanted = np.exp(x) * (np.exp(x) + 1)
        np.testing.assert_allclose(_launch(framework, x), wanted, rtol=1e-5)


@pytest.mark.usefixtures("few_workspaces")
def test_a_workspace_that_is_larger_than_all_that_is_kept_is_used_again():
    x = np.zeros((128, 12_000), np.float32)
    with_a_tile(x)
    kept = _live()
    with_a_tile(x)
    assert abs(_live() - kept) < 1 << 20
    assert len(with_a_tile.specialize((x,), {}).program._workspaces) == 1


@pytest.mark.parametrize(("rows", "calls"), [(1, 20), (40, 3)])
@pytest.mark.parametrize("dialect", [nki, new_nki])
def test_a_trace_counts_with_what_it_takes(dialect, rows, calls):
    """With the plan that a run makes; at least half of it, and at most twice as much."""
    if dialect is nki:
        kernel = nki.jit(lambda x, s: scaled(x, s))
    else:
        kernel = new_nki.jit(lambda x, s: scaled_in_nki(x, s))
    x = np.ones((rows, 8, 4), np.float32)
    for s in range(5):
        kernel(x, s + 0.5)
    tracemalloc.start()
    counted = nkisim.runtime.kernel._kept._total
    for s in range(calls):
        kernel(x, s + 100.0)
    counted = nkisim.runtime.kernel._kept._total - counted
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.5 < counted / taken < 2.5, (counted, taken)


def scaled(x, s):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0]):
        nl.store(out[i], nl.load(x[i]) * s)
    return out


def scaled_in_nki(x, s):
    out = new_nl.ndarray(x.shape, dtype=x.dtype, buffer=new_nl.shared_hbm)
    for i in range(x.shape[0]):
        t = new_nl.load(x[i])
        nisa.tensor_scalar(t, t, new_nl.multiply, s)
        nisa.dma_copy(out[i], t)
    return out


def test_arrays_that_a_trace_holds_count():
    @nki.jit
    def masked(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(nl.shared_constant(np.ones(x.shape, np.float32))))
        return out

    x = np.zeros((128, 1000), np.float32)
    np.testing.assert_array_equal(masked(x), x + 1)
    assert masked.specialize((x,), {}).program.kept_bytes > x.nbytes


def tripled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(out[i], nl.add(tile, nl.multiply(tile, 2.0)))
    return out


def tripled_nki(x):
    out = new_nl.ndarray(x.shape, dtype=x.dtype, buffer=new_nl.shared_hbm)
    for i in range(x.shape[0]):
        tile = new_nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=new_nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i])
        nisa.tensor_scalar(dst=tile, data=tile, op0=new_nl.multiply, operand0=3.0)
        nisa.dma_copy(dst=out[i], src=tile)
    return out


@pytest.mark.parametrize("kernel", [nki.jit(tripled), new_nki.jit(tripled_nki)])
def test_tables_forget_and_nothing_else_changes(kernel, monkeypatch):
    """What was worked out for other shapes goes, in the middle of a trace and of a model, too."""
    shapes = [(rows, 100, columns) for columns in range(40, 44) for rows in (1, 5)]

    def times():
        specs = [nkisim.TensorSpec(shape, np.dtype("float32")) for shape in shapes]
        return [nkisim.profile(kernel, spec).latency_us for spec in specs]

    wanted = times()
    tables = [x for x in gc.get_objects() if type(x) is Memo]
    assert tables
    for most in (1, 3):
        for table in tables:
            monkeypatch.setattr(table, "_most", most)
            table.clear()
        kernel._cache.traces.clear()
        for shape in shapes * 2:
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            np.testing.assert_array_equal(kernel(x), 3 * x)
        assert times() == wanted
        kernel._cache.traces.clear()
        assert times() == wanted
        assert all(len(table) <= most for table in tables)
