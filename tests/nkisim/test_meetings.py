"""Instances that wait for each other, built by hand as a front end would."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.errors import ParameterError, RaceError, UninitializedReadError
from nkisim.trace.tracer import current

SHAPE = (4, 8)


def swap(tile, other, name="swap"):
    """Send a tile to another instance and get one of its own back."""
    tracer = current()
    me = tracer.program
    meeting = tracer.meeting(name, (me, other))
    mine, theirs = (tracer.exchange((meeting, p), tile.shape, tile.dtype) for p in (me, other))
    tracer.emit("dma_copy", (mine,), (tile,))
    tracer.meet(meeting)
    got = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    tracer.emit("dma_copy", (got,), (theirs,))
    return got


@nki.jit
def swaps(x, times):
    """Pairs of instances hand their tiles to and fro, and change what they have sent at once."""
    me = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[me])
    for _ in nl.static_range(times):
        got = swap(tile, me ^ 1)
        tile[...] = nl.multiply(got, me + 2.0)
    nl.store(out[me], tile)
    return out


@pytest.mark.parametrize("times", [0, 1, 2, 5])
@pytest.mark.parametrize("instances", [2, 6])
def test_pairs_of_instances_swap_tiles(instances, times):
    x = np.random.default_rng(0).standard_normal((instances, *SHAPE)).astype(np.float32)
    want = x.copy()
    scale = np.arange(instances, dtype=np.float32)[:, None, None] + 2
    for _ in range(times):
        want = want[np.arange(instances) ^ 1] * scale
    np.testing.assert_array_equal(swaps[instances](x, times), want)


def shared_then_read(fence):
    @nki.jit
    def kernel(x):
        me = nl.program_id(0)
        scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(scratch[me], nl.load(x[me]))
        tracer = current()
        tracer.meet(tracer.meeting("core_barrier"), fence=fence)
        nl.store(out[me], nl.load(scratch[1 - me]))
        return out

    return kernel


def test_a_fence_orders_what_instances_share():
    x = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.float32)
    np.testing.assert_array_equal(shared_then_read(True)[2](x), x[::-1])
    with pytest.raises(UninitializedReadError, match="that nothing wrote"):
        shared_then_read(False)[2](x)


def test_a_fence_of_two_orders_these_two():
    """Of four instances, a meeting of two orders what these do, also by way of a third."""

    def kernel_of(meetings):
        @nki.jit
        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            me, tracer = nl.program_id(0), current()
            if me == 0:
                nl.store(out[0], nl.load(x[0]))
            for parties in meetings:
                if me in parties:
                    tracer.meet(tracer.meeting("core_barrier", parties), fence=True)
            if me == 3:
                nl.store(out[0], nl.load(x[3]))
            if me:
                nl.store(out[me], nl.load(x[me]))
            return out

        return kernel[4]

    x = np.random.default_rng(0).standard_normal((4, *SHAPE)).astype(np.float32)
    wanted = x[[3, 1, 2, 3]]
    for meetings in ([(0, 3)], [(0, 1), (1, 3)], [(1, 2), (0, 2), (2, 3)]):
        np.testing.assert_array_equal(kernel_of(meetings)(x), wanted)
    for meetings in ([(0, 1)], [(1, 3), (0, 1)], [(0, 2), (1, 3)]):
        with pytest.raises(RaceError, match=r"writes .* that instance \(0,\) writes at test_m"):
            kernel_of(meetings)(x)


def test_what_nobody_writes_is_undefined_behind_a_fence_too():
    @nki.jit
    def kernel(x):
        me = nl.program_id(0)
        scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(scratch[me, 1:], nl.load(x[me, 1:]))
        tracer = current()
        tracer.meet(tracer.meeting("core_barrier"), fence=True)
        nl.store(out[me], nl.load(scratch[1 - me]))
        return out

    with pytest.raises(
        UninitializedReadError, match=r"8 of 32 elements .* the first at \[1, 0, 0\]"
    ):
        kernel[2](np.zeros((2, *SHAPE), np.float32))


def meets(*calls):
    """A kernel in which instance k meets the others under the names calls[k]."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        me = nl.program_id(0)
        tile = nl.load(x[me])
        tracer = current()
        for name, parties in calls[me]:
            tracer.meet(tracer.meeting(name, parties))
        nl.store(out[me], tile)
        return out

    return kernel[len(calls)]


ALL, PAIR = None, (0, 1)


@pytest.mark.parametrize("calls", [
    ([("a", ALL)], []),
    ([("a", ALL)], [("b", ALL)]),
    ([("a", ALL), ("b", ALL)], [("b", ALL), ("a", ALL)]),
    ([("a", ALL)] * 3, [("a", ALL)] * 2),
    ([("a", (0, 1))], [("a", (1, 2))], [("a", (0, 2))]),
])  # fmt: skip
def test_an_instance_that_never_comes_is_a_deadlock(calls):
    x = np.zeros((len(calls), *SHAPE), np.float32)
    with pytest.raises(ParameterError) as caught:
        meets(*calls)(x)
    message = str(caught.value)
    assert "deadlock: instance (0,) waits at test_meetings.py" in message
    assert message.splitlines()[0].count("test_meetings.py") == 2  # both of the lines


def test_meetings_of_some_do_not_hold_others_up():
    x = np.ones((3, *SHAPE), np.float32)
    calls = [("a", PAIR), ("c", ALL)], [("a", PAIR), ("b", (1, 2)), ("c", ALL)], [
        ("b", (1, 2)), ("c", ALL),
    ]  # fmt: skip
    np.testing.assert_array_equal(meets(*calls)(x), x)


def test_what_is_exchanged_has_one_shape():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        me = nl.program_id(0)
        tile = nl.load(x[me])
        current().exchange("slot", (4, 8 + me), tile.dtype)
        nl.store(out[me], nisa.tensor_copy(tile))
        return out

    with pytest.raises(RaceError, match="declares exchange 0"):
        kernel[2](np.zeros((2, *SHAPE), np.float32))
