"""What must hold of any kernel's modelled latency, whatever the numbers in the table."""

from __future__ import annotations

import dataclasses

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkibook import bench
from nkibook.validation import layernorm, mamba, matmul, nkibench, vector_add
from nkisim.cost import dma
from nkisim.runtime import profiling as model

pytestmark = pytest.mark.filterwarnings("ignore:a loop over Python's range:nkisim.NkiWarning")

F4 = np.dtype(np.float32)


@nki.jit
def stream(x, columns, buffers):
    """y = exp(2 x) tile by tile, with all tiles declared first, as compilers print kernels."""
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    n = x.shape[1] // columns
    held = (n if buffers is None else buffers, nl.par_dim(128), columns)
    loaded = nl.ndarray(held, x.dtype, buffer=nl.sbuf)
    made = nl.ndarray(held, x.dtype, buffer=nl.sbuf)
    for k in nl.sequential_range(n):
        b = k if buffers is None else k % buffers
        part = nl.ds(k * columns, columns)
        loaded[b] = nl.load(x[:, part])
        made[b] = nisa.activation(np.exp, loaded[b], scale=2.0)
        nl.store(y[:, part], made[b])
    return y


@settings(max_examples=25)
@given(st.integers(1, 24), st.sampled_from([1, 7, 64, 512]), st.sampled_from([1, 2, 3, None]))
def test_latency_is_at_least_what_each_resource_is_busy(tiles, columns, buffers):
    t = nkisim.profile(stream, spec(128, tiles * columns), columns, buffers)
    assert all(use.busy_us <= t.body_us * (1 + 1e-9) for use in t.engines.values())
    assert t.roofline[1] <= t.body_us
    assert t.body_us <= sum(use.busy_us for use in t.engines.values()) + 10 * tiles


@settings(max_examples=15)
@given(st.integers(1, 12), st.integers(1, 6), st.sampled_from([33, 512, 2048]))
def test_latency_grows_with_the_number_of_tiles(tiles, more, columns):
    few = nkisim.profile(stream, spec(128, tiles * columns), columns, None)
    many = nkisim.profile(stream, spec(128, (tiles + more) * columns), columns, None)
    assert many.latency_us > few.latency_us


@pytest.mark.parametrize("columns", [16, 512, 2048])
def test_a_tile_that_is_written_whole_again_is_a_new_one(columns):
    """So it makes no difference how many buffers a kernel takes turns with."""
    times = [
        nkisim.profile(stream, spec(128, 16 * columns), columns, b).latency_us
        for b in (1, 2, 4, None)
    ]
    assert times == pytest.approx([times[-1]] * 4)


def test_tiles_of_a_blocked_tensor_live_one_by_one():
    # 512 KiB a partition in all, of which a few tiles are alive at a time.
    t = nkisim.profile(stream, spec(128, 64 * 2048), 2048, None)
    assert t.spilled_bytes == 0
    assert t.body_us < 2 * t.roofline[1]


def test_a_matmul_takes_at_least_its_passes_through_the_array():
    x = spec(512, 512, dtype=nl.bfloat16), spec(512, 1024, dtype=nl.bfloat16)
    t = nkisim.profile(matmul.matmul_blocked, *x)
    assert t.body_us >= (512 // 128) * (512 // 128) * 1024 / 2.8 / 1e3


def test_a_transposed_store_goes_through_the_tensor_engine_and_takes_no_element_wise_dma():
    @nki.jit
    def kernel(x):
        y = nl.ndarray((x.shape[1], x.shape[0]), x.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:128, 0:512]
        nl.store(y[j, i], nl.load(x))
        return y

    t = nkisim.profile(kernel, spec(128, 512))
    assert t.choices["store transposed by the Tensor Engine"] == 1
    assert t.engines["Tensor"].instructions == 4
    assert t.body_us < 20  # 65,536 elements at 89 ns and 16 queues would be 365 us
    x = np.arange(128 * 512, dtype=F4).reshape(128, 512)
    np.testing.assert_array_equal(kernel(x), x.T)


def test_products_with_a_scalar_are_shared_by_vector_and_scalar_unless_an_engine_is_asked_for():
    @nki.jit
    def kernel(x, engine):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(8):
            tile = nisa.tensor_scalar(tile, np.multiply, 1.5, engine=engine)
        nl.store(y, tile)
        return y

    free = nkisim.profile(kernel, spec(128, 512), nisa.unknown_engine).engines
    asked = nkisim.profile(kernel, spec(128, 512), nisa.vector_engine).engines
    assert free["Scalar"].instructions
    assert free["Vector"].instructions
    assert (asked["Scalar"].instructions, asked["Vector"].instructions) == (0, 8)


def test_each_generation_is_modelled_by_its_own_table():
    special = model.trace_of(stream, spec(128, 1024), 512, 2).program.trace
    v2 = model.timeline(special)
    v3 = model.timeline(dataclasses.replace(special, machine=nkisim.machine.GEN3))
    assert v3.latency_us != v2.latency_us
    for name, t in (("NeuronCore-v2", v2), ("NeuronCore-v3", v3)):
        for text in (str(t), t._repr_html_(), bench.modelled("x", t).caption):
            assert name in text


def two_cycles_at_once(_, trace):
    """The same trace on a machine whose Vector reads both operands at once."""
    timing = dataclasses.replace(trace.machine.timing, two_input_cycles=1)
    return dataclasses.replace(trace, machine=dataclasses.replace(trace.machine, timing=timing))


def longer_runs(monkeypatch, trace):
    """Descriptors cost what they would cost the same bytes in runs of 4 KiB."""
    usual = dma._time

    def time(out, source, size, run, partitions, item, timing, *more):
        part = min(1.0, run * item / 4096)
        timing = dataclasses.replace(
            timing,
            load_descriptor_ns=part * timing.load_descriptor_ns,
            store_descriptor_ns=part * timing.store_descriptor_ns,
            short_write_ns=0,
        )
        return usual(out, source, size, run, partitions, item, timing, *more)

    monkeypatch.setattr(dma, "_time", time)
    return trace


PLANE, ROW = spec(1, 256, 512), spec(1, 16, 512)
CLAIMS = {
    "two-input Vector instructions": (
        two_cycles_at_once,
        {
            "layernorm v1": (layernorm.layernorm_v1, (spec(512, 4096), spec(4096), spec(4096))),
            "layernorm v2": (layernorm.layernorm_v2, (spec(512, 4096), spec(4096), spec(4096))),
            "mamba": (mamba.mamba_v1, (PLANE, PLANE, spec(256, 16), ROW, ROW)),
            "rotary": (nkibench.rope, (spec(128, 5120), spec(64, 5120), spec(64, 5120))),
        },
    ),
    "contiguous runs": (
        longer_runs,
        {
            "matmul": (
                matmul.matmul_hoisted,
                (spec(1024, 512, dtype=nl.bfloat16), spec(1024, 1024, dtype=nl.bfloat16)),
            ),
            "add in columns": (vector_add.add_columns, (spec(12800), spec(12800), 128)),
        },
    ),
}


@pytest.mark.parametrize(
    ("text", "case"), [(text, case) for text, (_, cases) in CLAIMS.items() for case in cases]
)
def test_a_top_finding_is_true_and_its_gain_near_what_the_change_gives(text, case, monkeypatch):
    change, cases = CLAIMS[text]
    kernel, args = cases[case]
    trace = model.trace_of(kernel, *args).program.trace
    t = model.timeline(trace)
    assert any(text in f.text for f in t.findings[1:3])
    claimed = sum(f.gain_us for f in t.findings if text in f.text)
    real = t.latency_us - model.timeline(change(monkeypatch, trace)).latency_us
    assert real == pytest.approx(claimed, rel=0.3)  # those of several lines do not add up
