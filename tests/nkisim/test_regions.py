"""Run-time loops, built by hand as a front end would: instructions, results, times."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.ir.memory import Space
from nkisim.ir.regions import BEGIN, END, Region, ends
from nkisim.trace.tracer import current

INT = np.dtype(np.int32)


def register(value=None):
    """A one-element view, filled with the first element of an HBM tensor or with a number."""
    found = current().allocate((1, 1), INT, Space.SBUF)
    if isinstance(value, int):
        current().emit("memset", (found,), (), value=value)
    elif value is not None:
        nisa.dma_copy(dst=found, src=value)
    return found


@nki.jit
def sums(x, bounds):
    """x times the number of iterations, and the sum of the loop's values."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    seen = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    lower, upper, index = register(bounds[0:1, 0:1]), register(bounds[0:1, 1:2]), register()
    tile = nl.load(x)
    total = nl.zeros(x.shape, x.dtype, buffer=nl.sbuf)
    indices = nl.zeros((1, 1), nl.int32, buffer=nl.sbuf)
    with current().region("dynamic_range", lower=lower, upper=upper, index=index, step=3):
        scratch = nl.add(total, tile)
        total[...] = nl.copy(scratch)
        indices[...] = nl.add(indices, index)
    nl.store(out, total)
    nl.store(seen, indices)
    return out, seen


@pytest.mark.parametrize("bounds", [(0, 0), (0, 1), (2, 12), (5, 3), (-4, 4)])
def test_a_counted_loop_runs_as_often_as_its_registers_say(bounds):
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    out, seen = sums(x, np.array([bounds], np.int32))
    values = range(*bounds, 3)
    want = np.zeros_like(x)
    for _ in values:
        want = want + x
    np.testing.assert_array_equal(out, want)
    assert seen.item() == sum(values)


@nki.jit
def halvings(start):
    """How often a number can be halved before it is zero; loops in loops."""
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    left = register(start)
    count = nl.zeros((1, 1), nl.int32, buffer=nl.sbuf)
    with current().region("while", condition=left):
        with current().region("for", lower=0, upper=2, index=register()):
            count[...] = nl.add(count, 1)
        left[...] = nisa.tensor_scalar(left, nl.right_shift, 1)
    nl.store(out, count)
    return out


@pytest.mark.parametrize("start", [0, 1, 2, 1000])
def test_a_while_loop_ends_when_its_register_is_zero(start):
    assert halvings(np.array([[start]], np.int32)).item() == 2 * start.bit_length()


def test_the_instructions_of_a_region_are_bracketed():
    trace = nkisim.runtime.profiling.trace_of(
        halvings, nkisim.TensorSpec((1, 1), INT)
    ).program.trace
    found = ends(trace.instructions)
    opcodes = [i.opcode for i in trace.instructions]
    assert len(found) == opcodes.count(BEGIN) == opcodes.count(END) == 2
    (outer, outer_end), (inner, inner_end) = sorted(found.items())
    assert outer < inner < inner_end < outer_end
    kinds = [
        trace.loops[trace.instructions[at].settings.region.number].kind for at in sorted(found)
    ]
    assert kinds == ["while", "for"]
    with pytest.raises(ValueError, match="has no loop_end"):
        ends(trace.instructions[:outer_end])
    assert isinstance(trace.instructions[outer].settings.region, Region)


def profiled(times, expected=1):
    @nki.jit
    def kernel(x, bounds):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        upper = times if isinstance(times, int) else register(bounds[0:1, 0:1])
        tile = nl.load(x)
        with current().region("for", upper=upper, index=register(), expected=expected):
            tile[...] = nl.exp(tile)
        nl.store(out, tile)
        return out

    return nkisim.profile(
        kernel, nkisim.TensorSpec((128, 512), np.dtype(np.float32)), nkisim.TensorSpec((1, 1), INT)
    )


def test_times_are_those_of_the_iterations():
    spans = [profiled(n).body_us for n in (0, 10, 20)]
    one = (spans[2] - spans[1]) / 10
    assert 0.4 < one < 1.0  # an exp of 512 elements a partition takes Scalar 0.45 us
    assert spans[1] - spans[0] == pytest.approx(10 * one, rel=0.1)


def test_times_by_an_expected_count_say_so():
    known, assumed = profiled(20), profiled(None, expected=20)
    assert assumed.body_us == pytest.approx(known.body_us, rel=0.2)
    assert "iterations of a run-time loop assumed" not in known.choices
    assert assumed.choices["iterations of a run-time loop assumed"] == 20
