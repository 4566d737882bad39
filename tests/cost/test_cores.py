"""Cores of a launch run in one time: what one waits for on another one costs what it takes."""

import itertools

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import nki as today
import nki.isa as nki_isa
import nki.language as nki_nl
import numpy as np
import pytest

import nkisim
from nkisim.machine import GEN2, GEN3
from nkisim.trace.tracer import current

pytestmark = pytest.mark.filterwarnings("ignore:a loop over Python's range:nkisim.NkiWarning")

P, COLUMNS = 128, 2048
X = nkisim.TensorSpec((2, P, COLUMNS), np.dtype(np.float32))


def steps(tile, n):
    for _ in range(n):
        tile = nl.exp(tile)
    return tile


def launched(body):
    """The profile of body(x, out, core) on two cores."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        body(x, out, nl.program_id(0))
        return out

    return nkisim.profile(kernel.on(GEN3)[nl.nc(2)], X)


def spans(t):
    return [core.schedule.span / 1e3 for core in t.cores]


def alone(first, second):
    def body(x, out, core):
        nl.store(out[core], steps(nl.load(x[core]), second if core else first))

    return launched(body)


def in_turn(first, second, fence=True):
    """Core 0 stores what it computes; core 1 goes on from there, and stores that."""

    def body(x, out, core):
        tracer = current()
        if core == 0:
            nl.store(out[0], steps(nl.load(x[0]), first))
        if fence:
            tracer.meet(tracer.meeting("core_barrier"), fence=True)
        if core == 1:
            nl.store(out[1], steps(nl.load(out[0] if fence else x[1]), second))

    return launched(body)


def test_cores_that_share_nothing_run_side_by_side():
    both = spans(alone(4, 9))
    assert both == pytest.approx([spans(alone(4, 4))[0], spans(alone(9, 9))[1]])
    assert not any(s.why == "core" for s in alone(4, 9).critical_path)


def test_two_cores_share_the_rate_of_their_hbm():
    """Together they move no more than the published rate of the bank; one alone, or with HBM to
    spare, moves what its DMA engines do."""
    for machine in (GEN2, GEN3):
        dma = machine.timing.dma
        for cores in (1, 2, 4):
            part = machine.timing.shared_by(cores).dma
            assert cores * part.engines * part.load_rate <= dma.hbm_rate + 1e-9
            assert part.load_rate == min(dma.load_rate, dma.hbm_rate / cores / dma.engines)
    t = alone(1, 1)
    assert t.timing.dma.load_rate < GEN3.timing.dma.load_rate
    assert "HBM moves 725 GB/s for both" in str(t)


def test_the_report_says_of_which_calls_no_latency_is_published():
    @today.jit
    def kernel(x):
        out = nki_nl.ndarray(x.shape, dtype=x.dtype, buffer=nki_nl.shared_hbm)
        me = nki_nl.program_id(0)
        mine, theirs = (
            nki_nl.ndarray((P, COLUMNS), dtype=x.dtype, buffer=nki_nl.sbuf) for _ in range(2)
        )
        nki_isa.dma_copy(mine, x[me])
        nki_isa.sendrecv(mine, theirs, 1 - me, 1 - me, pipe_id=0)
        nki_isa.dma_copy(out[me], theirs)
        return out

    text = str(nkisim.profile(kernel.on(GEN3)[2], X))
    assert "no latency of sendrecv is published" in text
    assert "core_barrier" not in text
    assert "is published" not in str(alone(1, 1))


def test_who_reads_what_another_core_wrote_waits_for_it():
    short, long = spans(in_turn(1, 4)), spans(in_turn(16, 4))
    apart = spans(in_turn(16, 4, fence=False))
    assert long[1] > long[0] > apart[1]
    # All that core 0 does comes before what core 1 does.
    assert long[1] == pytest.approx(apart[0] + apart[1], rel=0.1)
    assert long[1] - short[1] == pytest.approx(long[0] - short[0], rel=0.05)
    path = in_turn(16, 4).critical_path
    assert path[0].start_us == 0.0
    assert path[0].why == "start"
    assert [step.core for step in path] == sorted(step.core for step in path)
    (first,) = [step for step in path if step.why == "core" and step.core == 1][:1]
    assert first.start_us == pytest.approx(long[0], rel=0.1)
    assert all(a.end_us == b.start_us for a, b in itertools.pairwise(path))


def test_a_fence_holds_up_both():
    """Each core stores before the fence, and loads what the other one stored behind it."""

    def body(x, out, core):
        tracer = current()
        scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(scratch[core], steps(nl.load(x[core]), 2 if core else 16))
        tracer.meet(tracer.meeting("core_barrier"), fence=True)
        nl.store(out[core], steps(nl.load(scratch[1 - core]), 1))

    slow, quick = spans(launched(body))
    assert slow == pytest.approx(quick, rel=0.1)
    assert quick > spans(alone(16, 2))[0]


@pytest.mark.parametrize("n", [1, 3, 8])
def test_tiles_handed_to_and_fro_take_their_turns(n):
    """An exchange waits for the other core's tile, whichever is slower in that turn."""

    def body(x, out, core):
        tracer = current()
        tile = nl.load(x[core])
        for turn in range(n):
            tile = steps(tile, 8 if turn % 2 == core else 1)
            meeting = tracer.meeting("swap")
            mine, theirs = (
                tracer.exchange((meeting, c), tile.shape, tile.dtype) for c in (core, 1 - core)
            )
            tracer.emit("dma_copy", (mine,), (tile,))
            tracer.meet(meeting)
            tile = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
            tracer.emit("dma_copy", (tile,), (theirs,))
        nl.store(out[core], tile)

    found = launched(body)
    exps = 1e3 * found.engines["Scalar"].busy_us / found.engines["Scalar"].instructions / 1e3
    assert max(spans(found)) > 8 * n * exps  # one of them is the slow one in each turn
    assert spans(found)[0] == pytest.approx(spans(found)[1], rel=0.35)


def test_a_tile_sent_to_another_core_is_one_transfer():
    def swap(how):
        def body(x, out, core):
            tracer = current()
            tile = nl.load(x[core])
            meeting = tracer.meeting("swap")
            mine, theirs = (
                tracer.exchange((meeting, c), tile.shape, tile.dtype) for c in (core, 1 - core)
            )
            tracer.emit("dma_copy", (mine,), (tile,), **({"sends": True} if how else {}))
            tracer.meet(meeting)
            got = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
            tracer.emit("dma_copy", (got,), (theirs,), **({"sends": False} if how else {}))
            nl.store(out[core], got)

        return launched(body)

    one, two = swap(True), swap(False)
    nbytes = P * COLUMNS * 4
    assert (one.hbm_bytes, two.hbm_bytes) == (2 * nbytes, 4 * nbytes)
    assert one.engines["DMA queues"].instructions == 3
    assert two.engines["DMA queues"].instructions == 4
    assert one.body_us < 0.8 * two.body_us
    assert {"send", "receive"} <= {line.label.removeprefix("start of ") for line in one.lines}


def test_gains_of_cores_that_wait_are_of_their_own_work():
    t = in_turn(16, 4)
    assert all(f.gain_us <= t.body_us for f in t.findings)
    assert t.summary() == in_turn(16, 4).summary()


def test_each_core_can_be_shown():
    t = in_turn(16, 4)
    for number, span in enumerate(spans(t)):
        core = t.on_core(number)
        assert core.body_us == pytest.approx(span)
        assert f"on core {number}" in core.plot().axes[0].get_title(loc="left")
    assert max(spans(t)) == t.body_us
    for number in (2, -1, 0.0):
        with pytest.raises(nkisim.errors.ParameterError, match="fix:  0 to 1"):
            t.on_core(number)
