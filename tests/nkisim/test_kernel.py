"""What `nki.jit` gives: caching, guards, arguments, modes and errors."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

import nkisim
from nkisim import TensorSpec
from nkisim.errors import (
    KernelError,
    ParameterError,
    ShapeError,
    TraceContextError,
)
from nkisim.frontends.neuronxcc import nki
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel
from nkisim.trace.tracer import tracing

FACTOR = 2
TABLE = {"factor": 2}


def numbers(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def scaled(x, factor):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * factor)
    return out


class Traces:
    """As many as a kernel was traced times."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __len__(self):
        return self.kernel.cache_info().misses


def counting(func):
    """A kernel and its traces."""
    kernel = Kernel(func)
    return kernel, Traces(kernel)


# -- caching


def test_new_data_does_not_trace_again():
    kernel, traces = counting(scaled)
    for k in range(3):
        np.testing.assert_array_equal(kernel(numbers(2, 3) + k, 3), (numbers(2, 3) + k) * 3)
    assert len(traces) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x, f: (x.astype(np.float16), f),
        lambda x, f: (x[:1], f),
        lambda x, f: (x, 4),
        lambda x, f: (x, 3.0),  # equal to 3, but promotes to another type
        lambda x, f: (x, np.float32(3)),
    ],
    ids=["dtype", "shape", "constant", "type of constant", "numpy constant"],
)
def test_other_shapes_types_and_constants_trace_again(change):
    kernel, traces = counting(scaled)
    x = numbers(2, 3)
    kernel(x, 3)
    other, factor = change(x, 3)
    want = other * np.asarray(factor).astype(other.dtype)
    np.testing.assert_array_equal(kernel(other, factor).astype(np.float32), want)
    assert len(traces) == 2
    kernel(x, 3)
    assert len(traces) == 2  # both are kept


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (True, 1), (1, 1.0), (0, False)])
def test_constants_that_are_equal_but_not_the_same(first, second):
    kernel, traces = counting(scaled)
    x = numbers(2, 3) + 1
    kernel(x, first)
    got = kernel(x, second)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x * np.float32(second)))
    assert len(traces) == 2


def test_cache_info_counts_hits_and_misses():
    kernel, traces = counting(scaled)
    x = np.ones((3, 4), np.float32)
    assert kernel.cache_info() == (0, 0, 0)
    kernel(x, 2.0)
    kernel(x, 2.0)
    kernel[1](x, 3.0)
    kernel[1](x, 3.0)
    assert kernel.cache_info() == kernel[1].cache_info() == (2, 2, 2)
    assert len(traces) == 2


def test_grids_and_checks_trace_again():
    kernel, traces = counting(scaled)
    x = numbers(2, 3)
    kernel(x, 3)
    with nkisim.checks(race="off"):
        kernel(x, 3)
        kernel[2](x, 3)
    assert len(traces) == 3
    kernel(x, 3)
    assert len(traces) == 3


def test_a_bound_kernel_shares_the_cache():
    kernel, traces = counting(scaled)
    kernel[1](numbers(2, 3), 3)
    kernel[1](numbers(2, 3), 3)
    assert len(traces) == 1


def test_constants_that_cannot_be_compared_are_traced_every_time():
    kernel, traces = counting(lambda x, options: scaled(x, max(options)))
    for _ in range(2):
        np.testing.assert_array_equal(kernel(numbers(2, 3), iter((1, 2))), numbers(2, 3) * 2)
    assert len(traces) == 2
    for _ in range(2):
        np.testing.assert_array_equal(kernel(numbers(2, 3), {1, 2}), numbers(2, 3) * 2)
    assert len(traces) == 3


def test_positions_and_keywords_are_one_specialisation():
    kernel, traces = counting(scaled)
    x = numbers(2, 3)
    kernel(x, 3)
    kernel(x, factor=3)
    kernel(factor=3, x=x)
    assert len(traces) == 1


# -- guards: what the trace read outside of its arguments


def test_a_changed_global_traces_again(monkeypatch):
    @Kernel
    def kernel(x):
        return scaled(x, FACTOR)

    x = numbers(2, 3)
    np.testing.assert_array_equal(kernel(x), x * 2)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    np.testing.assert_array_equal(kernel(x), x * 5)
    monkeypatch.undo()
    np.testing.assert_array_equal(kernel(x), x * 2)


def test_a_changed_closure_variable_traces_again():
    factor = 2

    @Kernel
    def kernel(x):
        return scaled(x, factor)

    x = numbers(2, 3)
    np.testing.assert_array_equal(kernel(x), x * 2)
    factor = 5
    np.testing.assert_array_equal(kernel(x), x * 5)


def helper(x):
    return scaled(x, FACTOR)


def other_helper(x):
    return scaled(x, 7)


def test_a_global_that_a_helper_reads_traces_again(monkeypatch):
    @Kernel
    def kernel(x):
        return helper(x)

    x = numbers(2, 3)
    kernel(x)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    np.testing.assert_array_equal(kernel(x), x * 5)


def test_a_changed_helper_traces_again(monkeypatch):
    @Kernel
    def kernel(x):
        return helper(x)

    x = numbers(2, 3)
    kernel(x)
    monkeypatch.setitem(globals(), "helper", other_helper)
    np.testing.assert_array_equal(kernel(x), x * 7)


def test_a_changed_sub_kernel_traces_again(monkeypatch):
    monkeypatch.setitem(globals(), "helper", Kernel(helper))

    @Kernel
    def kernel(x):
        return helper(x)

    x = numbers(2, 3)
    np.testing.assert_array_equal(kernel(x), x * 2)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    np.testing.assert_array_equal(kernel(x), x * 5)


def test_a_table_that_is_changed_in_place_traces_again(monkeypatch):
    @Kernel
    def kernel(x):
        return scaled(x, TABLE["factor"])

    x = numbers(2, 3)
    np.testing.assert_array_equal(kernel(x), x * 2)
    monkeypatch.setitem(TABLE, "factor", 5)
    np.testing.assert_array_equal(kernel(x), x * 5)


def test_a_constant_of_another_module_traces_again(monkeypatch):
    module = ModuleType("settings_of_a_kernel")
    exec("FACTOR = 2\ndef scale(x, by):\n    return by(x, FACTOR)\n", vars(module))
    monkeypatch.setitem(globals(), "settings", module)

    @Kernel
    def reads(x):
        return scaled(x, settings.FACTOR)  # noqa: F821

    @Kernel
    def calls(x):
        return settings.scale(x, scaled)  # noqa: F821

    x = numbers(2, 3)
    for kernel in (reads, calls):
        module.FACTOR = 2
        np.testing.assert_array_equal(kernel(x), x * 2)
        module.FACTOR = 5
        np.testing.assert_array_equal(kernel(x), x * 5)


def test_guards_do_not_trace_again_for_nothing(monkeypatch):
    kernel, traces = counting(lambda x: scaled(x, TABLE["factor"] * FACTOR))
    x = numbers(2, 3)
    kernel(x)
    monkeypatch.setitem(TABLE, "factor", int("2"))
    monkeypatch.setitem(globals(), "UNUSED", 3)
    kernel(x)
    assert len(traces) == 1


# -- arguments


class Pair(NamedTuple):
    first: object
    second: object


@dataclass
class Config:
    x: object
    factor: float
    rest: object = None


def test_nested_arguments_and_results():
    @Kernel
    def kernel(items, table, config, nothing, pair):
        assert nothing is None
        return {
            "list": [scaled(x, 2) for x in items],
            "dict": {name: scaled(x, 3) for name, x in table.items()},
            "config": (scaled(config.x, config.factor), config.rest, "text", 4),
            "pair": Pair(scaled(pair.first, 5), None),
        }

    a, b, c, d, e = (numbers(2, 3) + k for k in range(5))
    got = kernel([a, b], {"c": c}, Config(d, 4.0), None, Pair(e, 1))
    np.testing.assert_array_equal(got["list"], [a * 2, b * 2])
    np.testing.assert_array_equal(got["dict"]["c"], c * 3)
    np.testing.assert_array_equal(got["config"][0], d * 4)
    assert got["config"][1:] == (None, "text", 4)
    assert isinstance(got["pair"], Pair)
    np.testing.assert_array_equal(got["pair"].first, e * 5)


def test_tensors_are_named_after_their_parameters():
    @Kernel
    def kernel(x, items, *rest, factor=1, **named):
        return [scaled(t, factor) for t in (x, *items, *rest, *named.values())]

    x = numbers(2, 3)
    program = kernel.specialize((x, [x, x], x), {"extra": x, "factor": 2}).program
    names = [spec.name for spec in program.inputs]
    assert names == ["x", "items[0]", "items[1]", "rest", "named"]
    for got in kernel(x, [x, x], x, extra=x, factor=2):
        np.testing.assert_array_equal(got, x * 2)


def test_defaults_and_keyword_only_arguments():
    @Kernel
    def kernel(x, factor=3, *, offset=1):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * factor + offset)
        return out

    x = numbers(2, 3)
    np.testing.assert_array_equal(kernel(x), x * 3 + 1)
    np.testing.assert_array_equal(kernel(x, offset=2), x * 3 + 2)
    np.testing.assert_array_equal(kernel(x, 2, offset=2), x * 2 + 2)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"z": 2})])
def test_arguments_that_do_not_fit_the_signature(args, kwargs):
    with pytest.raises(TypeError, match=r"argument"):
        Kernel(scaled)(*args, **kwargs)


def test_specialising_needs_no_data():
    # Too large to be read without being felt: 16 GiB.
    spec = TensorSpec((128, 2**25), np.dtype(np.float32))

    @Kernel
    def corner(x):
        out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[:, nl.ds(2**25 - 512, 512)]))
        return out

    program = corner.specialize((spec,), {}).program
    assert program.outputs[0].shape == (128, 512)


def test_constants_are_kept_for_the_custom_call():
    special = Kernel(scaled).specialize((numbers(2, 3),), {"factor": 3})
    assert special.constants == {"factor": 3}


def test_an_output_is_a_reshape_of_what_was_stored():
    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out.reshape((3, 2))

    np.testing.assert_array_equal(kernel(numbers(2, 3)), numbers(3, 2))


# -- decorators


@pytest.mark.parametrize(
    "decorate",
    [
        nki.jit,
        nki.jit(),
        nki.jit(mode="simulation"),
        nki.jit(mode="auto", debug=True),
        nki.trace,
        nki.baremetal,
        lambda f: functools.partial(nki.simulate_kernel, f),
    ],
    ids=["jit", "jit()", "mode", "options", "trace", "baremetal", "simulate_kernel"],
)
def test_decorators(decorate):
    kernel = decorate(scaled)
    np.testing.assert_array_equal(kernel(numbers(2, 3), 2), numbers(2, 3) * 2)


@pytest.mark.parametrize("mode", ["auto", "jax", "torchxla", "baremetal", "simulation", "trace"])
def test_documented_modes(mode):
    kernel = nki.jit(scaled, mode=mode)
    assert kernel.mode == mode
    np.testing.assert_array_equal(kernel(numbers(2, 3), 2), numbers(2, 3) * 2)


def test_other_modes_are_refused():
    with pytest.raises(ValueError, match="'fast' is not one of auto"):
        nki.jit(scaled, mode="fast")


def test_a_kernel_looks_like_its_function():
    kernel = nki.jit(scaled)
    assert kernel.__name__ == "scaled"
    assert kernel.__wrapped__ is scaled
    assert repr(kernel[2, 3]) == "<nki kernel scaled[2x3]>"


def test_a_partial_function_is_a_kernel():
    kernel = nki.jit(functools.partial(scaled, factor=3))
    np.testing.assert_array_equal(kernel(numbers(2, 3)), numbers(2, 3) * 3)


@pytest.mark.parametrize("wrong", [3, "scaled", None])
def test_what_is_no_function_is_no_kernel(wrong):
    with pytest.raises(ParameterError, match="is not a kernel"):
        nki.simulate_kernel(wrong, numbers(2, 3))


def test_simulate_kernel_takes_a_grid():
    @nki.jit
    def rows(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        p = nl.program_id(0)
        nl.store(out[p : p + 1], nl.load(x[p : p + 1]) * 2)
        return out

    np.testing.assert_array_equal(nki.simulate_kernel(rows[3], numbers(3, 4)), numbers(3, 4) * 2)


# -- kernels in kernels


def test_a_kernel_called_in_a_kernel_is_inlined():
    inner = nki.jit(scaled)

    @nki.jit
    def outer(x):
        return inner(x, 2), inner(x, 3)

    a, b = outer(numbers(2, 3))
    np.testing.assert_array_equal(a, numbers(2, 3) * 2)
    np.testing.assert_array_equal(b, numbers(2, 3) * 3)
    program = outer.specialize((numbers(2, 3),), {}).program
    assert len(program.instructions) == 6


# -- errors


BROKEN = {"now": True}


def test_an_exception_leaves_nothing_behind(monkeypatch):
    @Kernel
    def kernel(x):
        for _ in nl.affine_range(2):
            if BROKEN["now"]:
                raise RuntimeError("in the kernel")
        return scaled(x, 2)

    with pytest.raises(RuntimeError, match="in the kernel"):
        kernel(numbers(2, 3))
    assert not tracing()
    assert kernel.cache_info().currsize == 0
    monkeypatch.setitem(BROKEN, "now", False)
    np.testing.assert_array_equal(kernel(numbers(2, 3)), numbers(2, 3) * 2)


def test_a_diagnosed_error_is_reported_at_every_call():
    kernel = Kernel(scaled)
    for _ in range(2):
        with pytest.raises(KernelError, match="partition axis of 200"):
            kernel(numbers(200, 3), 2)
    assert kernel.cache_info().currsize == 0
    assert not tracing()


def test_the_traceback_ends_at_the_kernel_line(run_python):
    with pytest.raises(KernelError) as caught:
        Kernel(scaled)(numbers(200, 3), 2)
    names = [entry.name for entry in caught.traceback]
    assert names == [names[0], "scaled"]
    code = """
        import sys, traceback, kernels, numpy as np
        import neuronxcc.nki as nki, neuronxcc.nki.language as nl
        try:
            nki.jit(lambda x: nl.exp(x))(np.zeros((4, 4), np.float32))
        except Exception as error:
            print(len(traceback.extract_tb(error.__traceback__)))
    """
    assert run_python(code).stdout == "2\n"
    assert int(run_python(code, env={"PYTHONDEVMODE": "1"}).stdout) > 5  # with the simulator's


@pytest.mark.parametrize(
    "use",
    [
        lambda: nl.ndarray((2, 2), nl.float32),
        lambda: nl.zeros((2, 2), nl.float32),
        lambda: nl.program_id(0),
        lambda: nl.num_programs(0),
        lambda: nl.program_ndim(),
        lambda: nl.device_print("x", None),
    ],
    ids=["ndarray", "zeros", "program_id", "num_programs", "program_ndim", "device_print"],
)
def test_operations_outside_of_a_kernel(use):
    with pytest.raises((TraceContextError, ParameterError)) as caught:
        use()
    assert caught.value.location.filename == __file__


def test_loops_outside_of_a_kernel_just_count():
    # Helper functions that a kernel shares with NumPy code may loop.
    assert list(nl.affine_range(3)) == [0, 1, 2]


@pytest.mark.parametrize("shape", [(2, -1), (2.5, 2), ("a", 2), (None,), -3])
def test_shapes_are_tuples_of_known_integers(shape):
    @Kernel
    def kernel():
        nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)

    with pytest.raises(ShapeError, match="shape"):
        kernel()


def test_arrays_are_not_captured():
    captured = numbers(2, 3)

    @Kernel
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + captured)
        return out

    with pytest.raises(TypeError):
        kernel(numbers(2, 3))


@pytest.mark.parametrize("masked", [np.ma.ones((4, 4)), np.ma.array(numbers(4, 4), mask=False)])
def test_a_masked_array_is_refused(masked):
    with pytest.raises(ParameterError, match="a masked array") as caught:
        nki.jit(scaled)(masked.astype(np.float32), 2)
    assert "x.filled(0.0)" in caught.value.fix
    filled = masked.astype(np.float32).filled(0.0)
    np.testing.assert_array_equal(nki.jit(scaled)(filled, 2), filled * 2)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_is_the_array_that_it_is_stored_in():
    x = np.asmatrix(numbers(4, 4))
    found = nki.jit(scaled)(x, 2)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, numbers(4, 4) * 2)
