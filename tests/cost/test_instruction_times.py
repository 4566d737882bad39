"""Times of single instructions and transfers, against traces and microbenchmarks of hardware."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkibook.validation import dma as validation_dma
from nkisim.cost import compute, dma
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Buffer, Space
from nkisim.machine import GEN2, GEN3
from nkisim.machine.timing import V2
from nkisim.numerics.ops.cycles import OnEngine, TileOperand

F32 = np.dtype(np.float32)


def tasks(kernel, *args):
    timeline = nkisim.profile(kernel, *args)
    return [t for core in timeline.cores for t in core.work.tasks]


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out


# Durations of fp32 tensor_tensor in decoded hardware traces (1000, 2000) and in a figure of the
# NKI performance guide (8192).
@pytest.mark.parametrize(("n", "published_ns"), [(1000, 2016.5), (2000, 3820.0), (8192, 14977.0)])
def test_two_input_vector_instruction_takes_what_traces_show(n, published_ns):
    (task,) = [t for t in tasks(add, spec(128, n), spec(128, n)) if t.label == "tensor_tensor(add)"]
    ((engine, cost),) = task.costs
    assert engine is Engine.VECTOR
    assert cost.done == pytest.approx(published_ns, rel=0.015)


# (columns, whether an operand is in PSUM, cycles): 65,536 and 512 instructions of a depthwise
# convolution (Autocomp blog), and NKIBench's rotary embedding.
@pytest.mark.parametrize(
    ("n", "psum", "published"), [(3, True, 65.6), (384, True, 440), (512, False, 1132)]
)
def test_vector_issues_two_input_instructions_as_profiles_show(n, psum, published):
    tile = TileOperand(n, 128, F32, Space.SBUF, 4)
    other = tile._replace(space=Space.PSUM) if psum else tile
    instr = next(t.instr for t in tasks(add, spec(128, n), spec(128, n)) if "add" in t.label)
    busy = compute.cost(OnEngine(instr, Engine.VECTOR, (tile, other), (tile,), V2)).busy
    assert busy * V2.vector.ghz == pytest.approx(published, rel=0.03)


def test_bf16_and_psum_operands_run_at_one_cycle_an_element():
    n = 512
    tile = TileOperand(n, 128, F32, Space.SBUF, 4)
    half = tile._replace(dtype=np.dtype(nl.bfloat16), stride=2)
    instr = next(t.instr for t in tasks(add, spec(128, n), spec(128, n)) if "add" in t.label)

    def data(*operands, out):
        return compute.cost(OnEngine(instr, Engine.VECTOR, operands, (out,), V2)).data

    both = data(tile, tile, out=tile)
    assert both == pytest.approx(2 * n / 1.12)
    psum = tile._replace(space=Space.PSUM)
    assert data(tile, psum, out=tile) == pytest.approx(both / 2)
    assert data(psum, psum, out=tile) == pytest.approx(both)
    assert data(half, half, out=half) == pytest.approx(both / 2)
    assert data(half, half._replace(stride=4), out=half) == pytest.approx(both)  # not contiguous


def test_wide_strides_halve_the_memory_interface():
    n = 256
    plain = TileOperand(n, 128, F32, Space.SBUF, 4)
    one = compute.copy(Engine.VECTOR, plain, plain, V2)
    wide = compute.copy(Engine.VECTOR, plain._replace(stride=16), plain, V2)
    assert not one.strided
    assert wide.strided
    assert one.data == pytest.approx(n / 1.12)
    assert wide.data == pytest.approx(n / 0.7)  # half of one element a lane at 1.4 GHz


# 80.3 TFLOPS of bf16 and 20.2 of fp32 over 128 x 128 x 512 products (triton-viz, inf2).
@pytest.mark.parametrize(("dtype", "tflops"), [(nl.bfloat16, 80.3), (np.float32, 20.2)])
def test_matmul_sustains_the_measured_rate(dtype, tflops):
    @nki.jit
    def product(a, b):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b))))
        return out

    args = spec(128, 128, dtype=dtype), spec(128, 512, dtype=dtype)
    (task,) = [t for t in tasks(product, *args) if t.label == "nc_matmul"]
    assert task.flops == 2 * 128 * 128 * 512
    assert task.flops / task.costs[0][1].busy / 1e3 == pytest.approx(tflops, rel=0.02)


def busy_of_product(machine, stationary, moving, **settings):
    """Of one product, operands given as shape and dtype: nanoseconds of the Tensor Engine."""

    @nki.jit
    def product(a, b):
        out = nl.ndarray((a.shape[-1], b.shape[-1]), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b), **settings)))
        return out

    args = [nkisim.TensorSpec(shape, np.dtype(dtype)) for shape, dtype in (stationary, moving)]
    (task,) = [t for t in tasks(product.on(machine), *args) if t.label == "nc_matmul"]
    return task.costs[0][1].busy


def test_a_product_with_one_fp32_operand_takes_the_passes_of_fp32():
    half, full = ((128, 128), nl.bfloat16), ((128, 512), nl.float32)
    both = busy_of_product(GEN2, ((128, 128), nl.float32), full)
    assert busy_of_product(GEN2, half, full) == pytest.approx(both)
    moving_half = busy_of_product(GEN2, ((128, 128), nl.float32), ((128, 512), nl.bfloat16))
    assert moving_half == pytest.approx(both)


def test_a_product_of_two_rows_a_partition_takes_as_long_as_of_one():
    """Double row: twice the contraction in the columns of one product (nc_matmul, AWS's docs)."""
    fp8 = nl.float8_e4m3
    one = busy_of_product(GEN3, ((128, 128), fp8), ((128, 512), fp8))
    double = {"perf_mode": "double_row_gen3"}
    two = busy_of_product(GEN3, ((128, 2, 128), fp8), ((128, 2, 512), fp8), **double)
    assert two == pytest.approx(one)


def transposed(x, how):
    """The transpose of x (128, 128): by the Tensor Engine, which a store is left to as well."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, identity = nl.load(x), nl.shared_identity_matrix(128, x.dtype)
    if how == "transpose":
        i, j = nl.mgrid[0:128, 0:128]
        nl.store(out[j, i], tile)
    else:
        result = (
            nisa.nc_transpose(tile, engine=nisa.tensor_engine)
            if how == "nc_transpose"
            else nisa.nc_matmul(tile, nl.load(identity), is_transpose=True)
        )
        nl.store(out, nl.copy(result))
    return out


# [I] gives transposes one cycle a column, in any type; of fp32 they were fitted: see the tables.
@pytest.mark.parametrize(("core", "passes"), [(GEN2, 2), (GEN3, 4)])
@pytest.mark.parametrize("how", ["nc_transpose", "nc_matmul", "transpose"])
def test_a_transpose_of_fp32_takes_its_own_number_of_passes(how, core, passes):
    kernel, busy = nki.jit(transposed).on(core), {}
    for dtype in (np.float32, nl.bfloat16):
        (task,) = [t for t in tasks(kernel, spec(128, 128, dtype=dtype), how) if t.label == how]
        busy[dtype] = task.costs[0][1].busy
    pe = core.timing.tensor
    assert busy[nl.bfloat16] == pytest.approx(128 / pe.ghz + pe.pass_ns)
    assert busy[np.float32] == pytest.approx(passes * busy[nl.bfloat16])


# GB/s of four reads of 128 partitions with one start (triton-viz, inf2).
@pytest.mark.parametrize(
    ("row_bytes", "published"), [(128, 40.8), (2048, 207.5), (4096, 220.0), (32768, 270.8)]
)
def test_four_reads_reach_the_rate_that_the_microbenchmark_shows(row_bytes, published):
    with nkisim.checks(output="off"):
        t = nkisim.profile(validation_dma.reads, spec(4, 128, row_bytes // 4))
    assert t.hbm_bytes == 4 * 128 * row_bytes
    assert t.hbm_bytes / t.body_us / 1e3 == pytest.approx(published, rel=0.1)


def test_a_large_load_runs_at_seventeen_bytes_a_nanosecond_and_engine():
    (load, *_), nbytes = tasks(add, spec(128, 8192), spec(128, 8192)), 128 * 8192 * 4
    assert (load.label, load.transfer.engines) == ("load", 16)
    assert load.transfer.nbytes == load.transfer.hbm_bytes == nbytes
    assert nbytes / load.transfer.engine_ns == pytest.approx(16 * 17.0, rel=0.02)


@pytest.mark.parametrize("rows", [1, 3, 16, 100])
def test_a_transfer_uses_as_many_engines_as_partitions(rows):
    (load, *_) = tasks(add, spec(rows, 512), spec(rows, 512))
    assert load.transfer.engines == min(rows, 16)


def hbm(*shape):
    return Tensor(Buffer(0, shape, F32, Space.SHARED_HBM))


def sbuf(*shape):
    return Tensor(Buffer(1, shape, F32, Space.SBUF))


def counted_runs(out, source):
    """Descriptors by walking the elements: a run goes on while both sides step by one element
    within a partition."""

    def addresses(t):
        index = np.indices(t.shape)
        flat = t.offset + sum(i * s for i, s in zip(index, t.strides, strict=True))
        return flat.ravel()

    a, b = addresses(out), addresses(source)
    partition = np.indices(out.shape)[0].ravel()
    follows = (np.diff(a) == 1) & (np.diff(b) == 1) & (np.diff(partition) == 0)
    return 1 + int((~follows).sum())


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(2, 40),
    step=st.integers(1, 4),
    left_over=st.integers(0, 5),
)
def test_descriptors_are_the_runs_contiguous_on_both_sides(rows, columns, step, left_over):
    source = hbm(rows, columns * step + left_over)[:, 0 : columns * step : step]
    target = sbuf(rows, columns)
    run, partitions = dma.runs(target, source)
    assert partitions == rows
    assert target.size // run == counted_runs(target, source)


def test_element_wise_stores_cost_what_the_microbenchmark_shows():
    """187, 701, 2839 and 5740 us for two stride-2 stores of (128, f) (triton-viz, inf2)."""
    from nkibook.validation.dma import strided_stores

    for f, published in ((128, 187), (512, 701), (2048, 2839), (4096, 5740)):
        modelled = nkisim.profile(strided_stores, spec(128, f)).latency_us
        assert modelled == pytest.approx(published, rel=0.10)


def test_both_generations_have_a_table():
    assert GEN2.timing.dma.engines == GEN3.timing.dma.engines == 16
    # Decoded trn2 traces: 1200 ns for 1000 elements, half of what v2 takes an element.
    add_1000 = OnEngine(
        next(t.instr for t in tasks(add, spec(128, 1000), spec(128, 1000)) if "add" in t.label),
        Engine.VECTOR,
        (TileOperand(1000, 128, F32, Space.SBUF, 4),) * 2,
        (TileOperand(1000, 128, F32, Space.SBUF, 4),),
        GEN3.timing,
    )
    cost = compute.cost(add_1000)
    assert cost.done == pytest.approx(1200, rel=0.01)


def cycles_an_element(make, dtype, machine, n=1024):
    """Of the last instruction on Vector of a kernel whose tile is (128, 2 n) of `dtype`."""

    @nki.jit
    def kernel(x):
        made = make(nl.load(x), n)
        out = nl.ndarray(made.shape, dtype=dtype, buffer=nl.shared_hbm)
        nl.store(out, made)
        return out

    x = nkisim.TensorSpec((128, 2 * n), np.dtype(dtype))
    run = nkisim.profile(kernel.on(machine), x).cores[0].work.tasks
    (cost,) = [c for t in run for e, c in t.costs if e is Engine.VECTOR][-1:]
    return cost.data * machine.timing.vector.ghz / n


def _copied(x, n):
    return nisa.tensor_copy(x[:, nl.ds(0, n)], engine=nisa.vector_engine)


def _copied_apart(x, n):
    p, f = nl.mgrid[0:128, 0:n]
    return nisa.tensor_copy(x[p, 2 * f], engine=nisa.vector_engine)


def _scaled(x, n):
    return nisa.tensor_scalar(x[:, nl.ds(0, n)], np.multiply, 2.0, engine=nisa.vector_engine)


def _scaled_by_column(x, n):
    return nisa.tensor_scalar(x[:, nl.ds(0, n)], np.multiply, x[:, nl.ds(0, 1)],
                              engine=nisa.vector_engine)  # fmt: skip


def _added(x, n):
    return nisa.tensor_tensor(x[:, nl.ds(0, n)], x[:, nl.ds(n, n)], np.add,
                              engine=nisa.vector_engine)  # fmt: skip


def _copied_to_psum(x, n):
    there = nl.ndarray((128, n), dtype=x.dtype, buffer=nl.psum)
    there[...] = nisa.tensor_copy(x[:, nl.ds(0, n)], engine=nisa.vector_engine)
    return nisa.tensor_copy(there, engine=nisa.vector_engine)


@pytest.mark.parametrize(
    ("make", "dtype", "v3"),
    [
        (_copied, nl.bfloat16, 1 / 4),
        (_copied, nl.float16, 1 / 4),
        (_copied, nl.float32, 1),
        (_copied_apart, nl.bfloat16, 1 / 2),
        (_copied_to_psum, nl.bfloat16, 1 / 2),
        (_scaled, nl.bfloat16, 1 / 4),
        (_scaled, nl.float32, 1 / 2),
        (_scaled_by_column, nl.bfloat16, 1 / 4),
        (_scaled_by_column, nl.float32, 1 / 2),
        (_added, nl.bfloat16, 1 / 2),
        (_added, nl.float32, 1),
    ],
)
def test_vector_is_faster_for_16_bits_on_v3(make, dtype, v3):
    """Performance mode: Trainium2 architecture guide; fp32 from profiles on trn2."""
    assert cycles_an_element(make, dtype, GEN3) == pytest.approx(v3)
    on_v2 = 2 if make is _added and dtype is nl.float32 else 1
    assert cycles_an_element(make, dtype, GEN2) == pytest.approx(on_v2)


def _subtracted_and_scaled(x, n):
    left, right = x[:, nl.ds(0, n)], x[:, nl.ds(n, n)]
    return nisa.scalar_tensor_tensor(
        data=left, op0=np.subtract, operand0=2.0, op1=np.multiply, operand1=right
    )


def _summed(x, n):
    return nisa.tensor_reduce(np.add, x[:, nl.ds(0, n)], axis=[1])


def _least(x, n):
    return nisa.tensor_reduce(np.minimum, x[:, nl.ds(0, n)], axis=[1])


def _chosen(x, n):
    out = nl.zeros((128, n), dtype=x.dtype, buffer=nl.sbuf)
    chosen = nisa.tensor_scalar(x[:, nl.ds(n, n)], np.greater, 0.0, dtype=nl.uint8)
    nisa.tensor_copy_predicated(src=x[:, nl.ds(0, n)], dst=out, predicate=chosen)
    return out


def _chosen_from_psum(x, n):
    out = nl.zeros((128, n), dtype=x.dtype, buffer=nl.sbuf)
    chosen = nisa.tensor_scalar(x[:, nl.ds(n, n)], np.greater, 0.0, dtype=nl.uint8)
    source = nl.ndarray((128, n), dtype=x.dtype, buffer=nl.psum)
    source[...] = nl.copy(x[:, nl.ds(0, n)])
    nisa.tensor_copy_predicated(src=source, dst=out, predicate=chosen)
    return out


@pytest.mark.parametrize(
    ("make", "n", "dtype", "cycles"),
    [
        (_subtracted_and_scaled, 1024, nl.bfloat16, 1),
        (_subtracted_and_scaled, 1023, nl.bfloat16, 2),
        (_subtracted_and_scaled, 1024, nl.float32, 2),
        (_summed, 1024, nl.bfloat16, 1 / 2),
        (_summed, 1024, nl.float32, 1),
        (_least, 1024, nl.bfloat16, 1),
        (_chosen, 512, nl.float32, 2),
        (_chosen_from_psum, 512, nl.float32, 1),
    ],
)
def test_vector_takes_the_cycles_of_its_documentation(make, n, dtype, cycles):
    """The costs that the pages of nki.isa.scalar_tensor_tensor, tensor_reduce and
    tensor_copy_predicated give for NeuronCore-v2."""
    assert cycles_an_element(make, dtype, GEN2, n) == pytest.approx(cycles)


@pytest.mark.parametrize("rows", [8, 64, 128])
def test_a_sum_over_partitions_takes_gpsimd_a_cycle_for_eight(rows):
    n = 512

    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, n), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_partition_reduce(np.add, nl.load(x)))
        return out

    (task,) = [t for t in tasks(kernel, spec(rows, n)) if "partition_reduce" in t.label]
    ((engine, cost),) = task.costs
    assert engine is Engine.GPSIMD
    assert cost.data * V2.gpsimd.ghz == pytest.approx(n * rows / 8)


@pytest.mark.parametrize("asked", ["vector", "scalar", "gpsimd", "unknown"])
def test_an_engine_that_the_kernel_asks_for_is_kept(asked):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_copy(nl.load(a), engine=nisa.engine[asked]))
        return out

    (task,) = [t for t in tasks(kernel, spec(128, 64)) if t.label == "tensor_copy"]
    engines = [engine.value.lower() for engine, _ in task.costs]
    assert engines == (["vector", "scalar"] if asked == "unknown" else [asked])


# One instruction each. They differ in one thing from another: type, size, stride, memory, operator,
# value, engine, or which of two is the divisor.
VARIANTS = {
    "product": lambda x, h, p: nl.multiply(x, x),
    "sum": lambda x, h, p: nl.add(x, x),
    "bf16": lambda x, h, p: nl.multiply(h, h),
    "narrow": lambda x, h, p: nl.multiply(x[:, 0:33], x[:, 0:33]),
    "half of the partitions": lambda x, h, p: nl.multiply(x[0:64], x[0:64]),
    "contiguous": lambda x, h, p: nisa.tensor_copy(x[:, 0:64]),
    "strided": lambda x, h, p: nisa.tensor_copy(x[:, 0:512:8]),
    "PSUM": lambda x, h, p: nl.multiply(x, p),
    "Vector": lambda x, h, p: nisa.tensor_tensor(x, x, np.multiply, engine=nisa.vector_engine),
    "GpSimd": lambda x, h, p: nisa.tensor_tensor(x, x, np.multiply, engine=nisa.gpsimd_engine),
    "quotient": lambda x, h, p: nl.divide(x, p),
    "inverted quotient": lambda x, h, p: nl.divide(p, x),
    "exp": lambda x, h, p: nisa.activation(np.exp, x),
    "tanh": lambda x, h, p: nisa.activation(np.tanh, x),
    "bf16 sum": lambda x, h, p: nisa.tensor_reduce(np.add, h, axis=1),
    "bf16 minimum": lambda x, h, p: nisa.tensor_reduce(np.min, h, axis=1),
    "zeros": lambda x, h, p: nl.zeros((128, 64), nl.bfloat16, buffer=nl.sbuf),
    "ones": lambda x, h, p: nl.full((128, 64), 1.0, nl.bfloat16, buffer=nl.sbuf),
}


def made(names):
    """What becomes of variants in one kernel: of each task, what it costs and what it is."""

    def kernel(a):
        x = nl.load(a)
        h, p = nl.copy(x, dtype=nl.bfloat16), nisa.nc_matmul(x[:, 0:128], x)
        outs = []
        for make in (lambda x, h, p: x, *(VARIANTS[name] for name in names)):
            y = make(x, h, p)
            outs.append(nl.ndarray(y.shape, nl.float32, buffer=nl.shared_hbm))
            nl.store(outs[-1], y)
        return tuple(outs)

    def looks(task):
        k = task.kind
        return k.label, k.costs, k.transfer, k.accumulates, k.table, k.flops, k.psum

    return list(map(looks, tasks(kernel, spec(128, 512))))


@pytest.mark.parametrize("names", [[*VARIANTS], [*VARIANTS][::-1], [*VARIANTS, *VARIANTS]])
def test_instructions_on_one_line_cost_what_each_costs_in_a_kernel_of_its_own(names):
    before = made([])
    alone = [made([name])[len(before) :] for name in names]
    assert made(names) == [*before, *(look for looks in alone for look in looks)]
    assert all(len(looks) >= 2 for looks in alone)  # an instruction and a store


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 1e3), st.floats(1, 1e4)), min_size=1),
)
def test_no_reader_waits_when_all_start_together(steps):
    """Instructions in a row, and their readers in a row from when the first are done: each reader
    finds its result, and one of them only just."""
    costs = [compute.Cost(busy, busy + latency, busy) for busy, latency, _ in steps]
    fed = compute.feeding(costs, [reader for *_, reader in steps])
    assert fed.busy == pytest.approx(sum(busy for busy, _, _ in steps))
    spare, begin, read = [], 0.0, fed.done
    for busy, latency, reader in steps:
        spare.append(read - (begin + busy + latency))
        begin, read = begin + busy, read + reader
    assert min(spare) == pytest.approx(0, abs=1e-6)


# 150 + elements / C cycles with C = ((28 + 4 e) / (4 e)) / min(4 / itemsize, e), for e elements at
# an index (nki.isa docstring).
@pytest.mark.parametrize(
    ("indices", "each", "dtype", "cycles"),
    [
        (16, 1, np.float32, 150 + 16 / 8),
        (512, 1, np.float32, 150 + 512 / 8),
        (64, 8, np.float32, 150 + 64 * 8 / ((60 / 32) / 1)),
        (64, 8, nl.bfloat16, 150 + 64 * 8 / ((60 / 32) / 2)),
    ],
)
def test_a_local_gather_goes_over_what_it_picks(indices, each, dtype, cycles):
    @nki.jit
    def kernel(x, at):
        found = nisa.local_gather(
            nl.load(x), nl.load(at), num_elem_per_idx=each, num_valid_indices=indices
        )
        out = nl.ndarray(found.shape, found.dtype, buffer=nl.shared_hbm)
        nl.store(out, found)
        return out

    index = spec(128, indices // 16, dtype=np.uint16)
    made = tasks(kernel, spec(128, 4096, dtype=dtype), index)
    (task,) = [t for t in made if "gather" in t.label]
    ((engine, cost),) = task.costs
    assert engine is Engine.GPSIMD
    assert cost.busy * V2.gpsimd.ghz == pytest.approx(cycles)


@pytest.mark.parametrize(("n", "cycles"), [(8, 600), (2048, 2048)])
def test_a_copy_from_a_dynamic_place_goes_over_what_it_copies(n, cycles):
    @nki.jit
    def kernel(x, at):
        tile, start = nl.load(x), nl.load(at)
        p, f = nl.arange(128)[:, None], nl.arange(n)[None, :]
        out = nl.ndarray((128, n), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_copy_dynamic_src(tile[p, start[0, 0] + f]))
        return out

    made = tasks(kernel, spec(128, 4096), spec(1, 1, dtype=np.int32))
    (task,) = [t for t in made if "dynamic" in t.label]
    ((_, cost),) = task.costs
    assert cost.busy * V2.vector.ghz == pytest.approx(cycles, abs=V2.vector.issue_cycles + 1)


def on_scalar(make, n, core=GEN2):
    """The cost on Scalar of what `make` does to n elements a lane in PSUM."""

    @nki.jit
    def kernel(x, w):
        moving = nl.load(x)
        out = nl.ndarray((128, n), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, make(nisa.nc_matmul(nl.load(w), moving)))
        return out

    arguments = spec(128, n, dtype=nl.bfloat16), spec(128, 128, dtype=nl.bfloat16)
    made = nkisim.profile(kernel.on(core), *arguments)._core.work.tasks
    (task,) = [t for t in made if t.label.startswith(("activation", "tensor_copy"))]
    return dict(task.costs)[Engine.SCALAR]


def _copy(x):
    return nisa.tensor_copy(x, engine=nisa.scalar_engine)


def _exp(x):
    return nisa.activation(nl.exp, x)


@pytest.mark.parametrize(
    ("make", "n", "published"),
    [(_copy, 128, (264, 264)), (_copy, 512, (584, 590)), (_exp, 512, (673, 699))],
)
def test_scalar_of_trn2_is_done_when_profiles_show(make, n, published):
    """From PSUM; see [C] in nkisim.machine.timing."""
    low, high = published
    assert low - 1 <= on_scalar(make, n, GEN3).done <= high + 1


def test_scalar_of_trn2_starts_the_next_function_when_profiles_show():
    assert 569 <= on_scalar(_exp, 512, GEN3).busy <= 585


@pytest.mark.parametrize("core", [GEN2, GEN3])
@pytest.mark.parametrize("n", [128, 512])
def test_a_copy_is_quicker_than_a_function_from_a_table(n, core):
    copied, powers = on_scalar(_copy, n, core), on_scalar(_exp, n, core)
    assert copied.busy < powers.busy
    assert copied.done < powers.done
    squares = on_scalar(lambda x: nisa.activation(nl.square, x), n, core)
    assert squares == copied  # every table has it


@pytest.mark.parametrize(
    ("n", "engine"), [(1, Engine.VECTOR), (63, Engine.VECTOR), (64, Engine.SCALAR)]
)
@pytest.mark.parametrize("reciprocal", [nl.reciprocal, nisa.reciprocal])
def test_the_compiler_computes_short_reciprocals_on_vector(reciprocal, n, engine):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, reciprocal(nl.load(x)))
        return out

    (task,) = [t for t in tasks(kernel, spec(128, n)) if "reciprocal" in t.label]
    ((chosen, cost),) = task.costs
    assert chosen is engine
    if engine is Engine.VECTOR:
        assert not task.table
        least = max(8 * n, 64) / V2.vector.ghz
        assert least <= cost.busy <= least + V2.vector.issue_cycles / V2.vector.ghz


@pytest.mark.parametrize("n", [1, 8, 64, 513])
def test_reciprocals_stay_on_vector_on_trn2(n):
    """8 cycles an element, and 135 ns: profiles of trainium-kernel-fusion (167-179 ns of 4
    elements, 202 ns of 8)."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.reciprocal(nl.load(x)))
        return out

    (task,) = [t for t in tasks(nki.jit(kernel).on(GEN3), spec(128, n)) if "recip" in t.label]
    ((chosen, cost),) = task.costs
    assert chosen is Engine.VECTOR
    assert cost.data == pytest.approx(8 * n / 0.96)


def test_reciprocals_that_leave_the_engine_open_come_from_a_table_on_trn2(monkeypatch):
    import nki
    import nki.isa as nisa
    import nki.language as nl

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.activation(dst=tile, op=nl.reciprocal, data=tile)
        tile = nl.reciprocal(tile)
        nisa.reciprocal(dst=tile, data=tile)
        nisa.dma_copy(dst=out, src=tile)
        return out

    chosen = [t.costs[0][0] for t in tasks(kernel, spec(128, 64)) if "recip" in t.label]
    assert chosen == [Engine.SCALAR, Engine.SCALAR, Engine.VECTOR]


def test_a_reciprocal_that_the_kernel_wants_from_a_table_is_one():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.activation(nl.reciprocal, nl.load(x)))
        return out

    (task,) = [t for t in tasks(kernel, spec(128, 1)) if "reciprocal" in t.label]
    assert [engine for engine, _ in task.costs] == [Engine.SCALAR]
    assert task.table == "reciprocal"
