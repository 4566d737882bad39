"""Properties that every schedule has, whatever the kernel."""

from __future__ import annotations

import itertools
from collections import defaultdict

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkibook.validation import convolution, layernorm, mamba, matmul, vector_add
from nkisim.cost.compute import Cost
from nkisim.cost.tasks import Kind, Memory, ScheduledTask, Work
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Buffer, Space
from nkisim.ir.parts import Patterns
from nkisim.machine.timing import V2
from nkisim.schedule.dependences import Dependences
from nkisim.schedule.engines import ENGINES
from nkisim.schedule.regions import Regions

pytestmark = pytest.mark.filterwarnings("ignore:a loop over Python's range:nkisim.NkiWarning")

F32 = np.dtype(np.float32)
ROUNDING = 1e-6  # nanoseconds


def _mamba(channels, length):
    row, plane = spec(1, 16, length), spec(1, channels, length)
    return plane, plane, spec(channels, 16), row, row


CASES = {
    "add": (vector_add.add_tiles, (spec(128 * 300 * 5), spec(128 * 300 * 5), 300)),
    "mamba v1": (mamba.mamba_v1, _mamba(256, 512)),
    "mamba v3": (mamba.mamba_v3, _mamba(128, 1024)),
    "mamba that spills": (mamba.mamba_v2, _mamba(128, 8192)),
    "layernorm": (layernorm.layernorm_v2, (spec(300, 2048), spec(2048), spec(2048))),
    "matmul": (
        matmul.matmul_blocked,
        (spec(512, 256, dtype=nl.bfloat16), spec(512, 2048, dtype=nl.bfloat16)),
    ),
    "convolution": (
        convolution.conv2d,
        (spec(1, 128, 8, 60), spec(128, 128, 3, 3), spec(128, 1), 2),
    ),
}


@pytest.fixture(params=CASES, scope="module")
def core(request):
    kernel, args = CASES[request.param]
    with nkisim.checks(sbuf="off"):
        return nkisim.profile(kernel, *args)._core


def test_an_engine_does_one_thing_at_a_time(core):
    s = core.schedule
    for e in range(len(ENGINES)):
        spans = sorted((s.start[i], s.end[i]) for i, at in enumerate(s.engine) if at == e)
        assert all(b[0] >= a[1] - ROUNDING for a, b in itertools.pairwise(spans))


def test_an_engine_starts_loads_in_the_order_of_the_program(core):
    memory, start = core.work.memory, core.schedule.start
    loads = [
        at
        for at, task in enumerate(core.work.tasks)
        if task.transfer is not None
        and not task.kind.again
        and all(memory[number].space.on_chip for number, _ in task.writes)
    ]
    assert len(loads) > 1
    for before, at in itertools.pairwise(loads):
        assert start[before] <= start[at]


def test_weights_do_not_overtake_a_load_that_waits_for_a_sum(monkeypatch):
    """A row that DMA sums and loads moves before the 8 MiB that are loaded behind it: the matrices
    take 24 us, and the row would come after them."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    @nki.jit
    def kernel(a, b, weights):
        total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(total, (a, b), reduce_op=nl.add)
        row = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=total)
        tiles = nl.ndarray((128, 4, 4096), dtype=a.dtype, buffer=nl.sbuf)
        for i in range(4):
            nisa.dma_copy(dst=tiles[:, i, :], src=weights[i])
        for i in range(4):
            nisa.tensor_tensor(dst=row, data1=row, data2=tiles[:, i, :64], op=nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=row)
        return out

    x = spec(128, 64)
    found = nkisim.profile(kernel, x, x, spec(4, 128, 4096))._core
    row, *tiles = [
        at
        for at, task in enumerate(found.work.tasks)
        if task.label == "load" and task.transfer is not None
    ]
    assert len(tiles) == 4
    ends = found.schedule.queue_end
    assert ends[row] < 5_000 < 20_000 < ends[tiles[-1]]


def test_a_dma_queue_does_one_thing_at_a_time(core):
    """Busy times of a queue add up to no more than the time it is in use."""
    s = core.schedule
    for q, busy in enumerate(s.queue_busy):
        mine = [i for i, queues in enumerate(s.queues_of) if q in queues]
        if mine:
            first = min(s.queue_start[i] for i in mine)
            assert busy <= max(s.queue_end[i] for i in mine) - first + ROUNDING


def test_nothing_is_read_before_it_is_made(core):
    """Checked on elements: the last tasks in program order that wrote one have finished."""
    s, tasks, memory = core.schedule, core.work.tasks, core.work.memory
    written: dict[int, list] = defaultdict(list)
    for at, task in enumerate(tasks):
        for number, t in task.reads:
            for before, other in written[number][-40:]:
                if t is None or other is None or _meet(t, other):
                    ready = s.end[before] if _accumulating(task, tasks[before]) else s.done[before]
                    assert s.start[at] >= ready - ROUNDING
        for number, t in task.writes:
            if memory[number].space.on_chip:
                written[number].append((at, t))


def _accumulating(task, before):
    return task.accumulates and before.instr.opcode == "nc_matmul"


def _elements(t):
    grid = np.zeros(t.shape, np.int64)
    for d, (n, stride) in enumerate(zip(t.shape, t.strides, strict=True)):
        grid += (np.arange(n) * stride).reshape([-1 if k == d else 1 for k in range(t.ndim)])
    return grid + t.offset


def _meet(a, b):
    if a.same_elements(b):
        return True
    if a.buffer.size > 1 << 14:
        return False  # too large to enumerate here
    mark = np.zeros(a.buffer.size, bool)
    mark[_elements(a)] = True
    return bool(mark[_elements(b)].any())


def test_tiles_never_take_more_memory_than_there_is(core):
    work, s = core.work, core.schedule
    for space, capacity in ((Space.SBUF, 176 * 1024), (Space.PSUM, 16 * 1024)):
        changes = []
        spans: dict[int, list[float]] = defaultdict(list)
        for at, task in enumerate(work.tasks):
            end = max(s.done[at], s.queue_end[at])
            for n in {n for n, _ in (*task.reads, *task.writes)}:
                if work.memory[n].space is space:
                    spans[n] += [s.start[at], end]
        for n, times in spans.items():
            nbytes = work.memory[n].nbytes
            changes += [(min(times), 1, nbytes), (max(times), 0, -nbytes)]
        level = 0
        for _, _, change in sorted(changes):
            level += change
            assert level <= capacity


def test_vector_and_gpsimd_do_not_use_sbuf_at_once(core):
    s, tasks = core.schedule, core.work.tasks
    spans = []
    for i, task in enumerate(tasks):
        engine = ENGINES[s.engine[i]].value
        if engine in ("Vector", "GpSimd") and task.transfer is None:
            data = dict(task.costs)[ENGINES[s.engine[i]]].data
            spans.append((s.start[i], s.start[i] + data, engine))
    spans.sort()
    for a, b in itertools.pairwise(spans):
        assert a[2] == b[2] or b[0] >= a[1] - ROUNDING


def test_causes_reach_back_to_the_start(core):
    s = core.schedule
    at = max(range(len(s.done)), key=s.done.__getitem__)
    seen = set()
    while at >= 0:
        assert at not in seen
        seen.add(at)
        assert s.cause[at] < 0 or s.start[s.cause[at]] <= s.start[at]
        at = s.cause[at]


def test_the_model_is_deterministic():
    kernel, args = CASES["mamba v3"]
    a, b = (nkisim.profile(kernel, *args)._core.schedule for _ in range(2))
    assert (a.start, a.done, a.engine) == (b.start, b.done, b.engine)


# -- dependences against brute force

BOX = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 9), st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), BOX), min_size=2, max_size=14))
def test_conflicting_accesses_are_ordered_and_others_are_not(accesses):
    """Reads and writes of boxes with steps in three tiles, against the elements they touch."""
    whole = Tensor(Buffer(0, (8, 40), F32, Space.SBUF))
    kind = Kind("anything", ((Engine.VECTOR, Cost(1.0, 1.0, 1.0)),))
    parts: dict = {}
    work = Work(memory=dict.fromkeys(range(3), Memory(Space.SBUF, 160, 8)))
    elements = []
    for number, writes, (row, rows, column, step) in accesses:
        t = whole[row : min(row + rows, 8), column : column + 9 * step + 1 : step]
        t = parts.setdefault((t.offsets, t.shape, t.coefs), t)  # the same part, the same view
        touched = [(number, t)]
        work.tasks.append(ScheduledTask(None, kind, *(([], touched) if writes else (touched, []))))
        elements.append(set(_elements(t).ravel().tolist()))
    found = Dependences.of(work, 4)
    users, others, waits_for = found.users, found.others, found.waits

    before: list[set[int]] = [set() for _ in accesses]
    for earlier, later in enumerate(users):
        for at in [*later, *(at for at, _ in others.get(earlier, ()))]:
            assert accesses[earlier][0] == accesses[at][0], "tiles are apart"
            assert accesses[earlier][1] or accesses[at][1], "two reads need no order"
            before[at].add(earlier)
    assert waits_for == [len(waits) for waits in before]
    for at, waits in enumerate(before):
        reached = waits.union(*(before[w] for w in waits))
        before[at] = reached
        for other in range(at):
            same, write = accesses[other][0] == accesses[at][0], accesses[other][1]
            if same and (write or accesses[at][1]) and elements[other] & elements[at]:
                assert other in reached


def test_interleaved_accesses_do_not_wait_for_each_other():
    whole = Tensor(Buffer(0, (128, 64), F32, Space.SBUF))
    regions = Regions(Patterns())
    waits: dict[int, int] = {}
    regions.write(whole[:, 0:64:2], 0, waits)
    regions.write(whole[:, 1:64:2], 1, waits)
    assert waits == {}
    regions.read(whole, 2, waits)
    assert set(waits) == {0, 1}


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 32), st.integers(0, 30), st.integers(1, 32)),
        max_size=30,
    ),
    st.booleans(),
)
def test_parts_in_bins_meet_what_they_meet_without(boxes, rows_first):
    """Many parts of one tensor, after large ones that make the first bins coarse."""
    whole = Tensor(Buffer(0, (64, 64), F32, Space.SHARED_HBM))
    parts = [whole[0:8], whole[8:16]] if rows_first else []
    parts += [whole[r : r + h, c : c + w] for r, h, c, w in boxes]
    parts = list({(t.offsets, t.shape): t for t in parts}.values())
    binned, patterns = Regions(Patterns()), Patterns()
    for at, part in enumerate(parts):
        waits: dict[int, int] = {}
        binned.read(part, at, waits)
        mine = {other for other, _ in binned._known[part].meets}
        assert mine == {k for k in range(at) if patterns.overlap(part, parts[k]) is not None}


def test_tiles_of_a_row_get_bins_of_their_own():
    """The first two parts are whole rows; tiles of them are not all compared with each other."""
    whole = Tensor(Buffer(0, (32, 128, 4096), F32, Space.SHARED_HBM))
    regions, waits = Regions(Patterns()), {}
    for i in range(32):
        regions.write(whole[i], i, waits)
    for i in range(32):
        for j in range(32):
            regions.read(whole[i, :, 128 * j : 128 * j + 128], 32 + 32 * i + j, waits)
    assert max(map(len, regions._bins.values())) <= 2


def test_windows_of_a_tile_that_was_filled_get_bins_of_their_own():
    """Each window meets its neighbours, and what filled the tile, which spans all bins."""
    whole = Tensor(Buffer(0, (128, 2050), F32, Space.SBUF))
    regions, waits = Regions(Patterns()), {}
    regions.write(whole, 0, waits)
    regions.write(whole[:, 1:2049], 1, waits)
    for i in range(2048):
        regions.read(whole[:, i : i + 3], 2 + i, waits)
    assert max(map(len, regions._bins.values())) <= 8
    assert len(regions._wide) == 2


def test_a_part_does_not_wait_again_for_those_that_read_the_whole_long_ago():
    """Each round writes all columns of a tile, one by one, and reads the tile twice."""
    whole = Tensor(Buffer(0, (128, 8), F32, Space.SBUF))
    columns = [whole[:, c : c + 1] for c in range(8)]
    regions, at = Regions(Patterns()), itertools.count()
    for _ in range(100):
        for column in columns:
            waits: dict[int, int] = {}
            regions.write(column, next(at), waits)
            assert len(waits) <= 3  # the last writer, and those that have read since
        for _ in range(2):
            waits = {}
            regions.read(whole, next(at), waits)
            assert len(waits) == 8


# -- what the model compiler does


@nki.jit
def repeated(x, y, count):
    out = nl.ndarray((128, count), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    for i in nl.affine_range(count):
        product = nl.multiply(a, b)
        nl.store(out[:, i : i + 1], nl.add(product[:, i : i + 1], 1.0))
    return out


def test_work_that_a_loop_repeats_is_hoisted():
    timeline = nkisim.profile(repeated, spec(128, 512), spec(128, 512), 7)
    assert timeline.choices["tensor_tensor(multiply) hoisted out of a loop"] == 6
    labels = [t.label for t in timeline._core.work.tasks]
    assert labels.count("tensor_tensor(multiply)") == 1


@nki.jit
def in_two_types(x):
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i, dtype in zip(nl.static_range(2), (nl.float32, nl.bfloat16), strict=True):
        nl.store(out[i], nl.exp(tile, dtype=dtype))
    return out


def test_a_result_of_another_type_is_other_work():
    timeline = nkisim.profile(in_two_types, spec(128, 512))
    assert not any("hoisted" in choice for choice in timeline.choices)


@nki.jit
def scaled(x, row, count):
    out = nl.ndarray((count, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, row = nl.load(x), nl.load(row)
    for i in nl.affine_range(count):
        nl.store(out[i], nl.multiply(nl.add(tile, float(i)), row))
    return out


@pytest.mark.parametrize(
    ("columns", "count", "memory"),
    [(512, 1, "PSUM"), (513, 1, "SBUF"), (512, 2, "SBUF")],  # a bank; when read in one iteration
)
def test_a_row_that_an_operator_spreads_is_read_where_it_was_made(columns, count, memory):
    (core,) = nkisim.profile(scaled, spec(128, columns), spec(1, columns), count).cores
    product = next(t for t in core.work.tasks if t.label == "tensor_tensor(multiply)")
    spaces = [core.work.memory[n].space for n, _ in product.reads]
    assert spaces == [Space.SBUF, Space.PSUM if memory == "PSUM" else Space.SBUF]


@nki.jit
def scaled_once(x, row):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), nl.load(row)))
    return out


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16])
@pytest.mark.parametrize("columns", [513, 2048, 8000])
def test_a_long_row_is_spread_a_bank_at_a_time(columns, dtype):
    """As many instructions as banks, in one stretch of time on each engine: the copies run along
    with the products, one bank behind."""
    args = spec(128, columns, dtype=dtype), spec(1, columns, dtype=dtype)
    timeline = nkisim.profile(scaled_once, *args)
    (core,) = timeline.cores
    banks = -(-columns // 512)
    assert timeline.engines["Tensor"].instructions == banks
    counts = {line.label: line.count for line in timeline.lines}
    assert counts["partition_broadcast"] == counts["tensor_copy"] == banks
    labels = [t.label for t in core.work.tasks]
    product, copy = labels.index("partition_broadcast"), labels.index("tensor_copy")
    s, pe = core.schedule, V2.tensor
    passes = pe.fp32_passes if dtype is np.float32 else 1

    def product_ns(n):
        return passes * (n / pe.ghz + pe.pass_ns)

    last = columns - 512 * (banks - 1)
    made = product_ns(512) * (banks - 1) + product_ns(last)
    assert s.end[product] - s.start[product] == pytest.approx(made)
    # A copy can end when its product has, and when the copies before have.
    rate = {Engine.SCALAR: V2.scalar, Engine.VECTOR: V2.vector}[ENGINES[s.engine[copy]]]
    begin, copied = s.start[product] + pe.latency_ns + V2.semaphore_ns, 0.0
    for bank in range(banks):
        n = 512 if bank < banks - 1 else last
        begin += product_ns(n)
        copied = max(begin, copied) + max(n + rate.issue_cycles, V2.least_cycles) / rate.ghz
    assert s.end[copy] == pytest.approx(copied)


@nki.jit
def changing(x, count):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.load(x)
    for _ in nl.sequential_range(count):
        a[...] = nl.exp(nl.multiply(a, a))
    nl.store(out, a)
    return out


def test_work_on_changed_inputs_is_not_hoisted():
    timeline = nkisim.profile(changing, spec(128, 512), 5)
    labels = [t.label for t in timeline._core.work.tasks]
    assert labels.count("tensor_tensor(multiply)") == 5


def test_a_kernel_that_does_not_fit_is_spilled_and_slower():
    fits = nkisim.profile(mamba.mamba_v2, *_mamba(128, 6144))
    with nkisim.checks(sbuf="off"):
        spills = nkisim.profile(mamba.mamba_v2, *_mamba(128, 8192))
    assert fits.spilled_bytes == 0 < spills.spilled_bytes
    assert spills.latency_us / fits.latency_us > 1.2 * 8192 / 6144
    assert any("SBUF overflows" in f.text for f in spills.findings)


def _placed_add(depth):
    """a + b with tiles that rotate over `depth` places each."""

    @nki.jit
    def kernel(a, b):
        tiles, columns = a.shape[0] // (128 * 1000), 1000
        shape = (tiles, 128, columns)
        out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
        a, b = a.reshape(shape), b.reshape(shape)
        x, y, z = (
            nl.ndarray(
                (tiles, nl.par_dim(128), columns),
                dtype=a.dtype,
                buffer=ncc.sbuf.mod_alloc(
                    base_addr=k * depth * 4 * columns, num_free_tiles=(depth,)
                ),
            )
            for k in range(3)
        )
        for i in nl.affine_range(tiles):
            x[i] = nl.load(a[i])
            y[i] = nl.load(b[i])
            z[i] = nl.add(x[i], y[i])
            nl.store(out[i], z[i])
        return out

    return kernel


def test_tiles_placed_by_hand_are_reused_when_they_are_free():
    n = spec(128 * 1000 * 12)
    one, two, four = (nkisim.profile(_placed_add(d), n, n) for d in (1, 2, 4))
    assert one.body_us > 1.25 * two.body_us  # one buffer: transfers wait for the addition
    assert two.body_us == pytest.approx(four.body_us, rel=0.05)
    automatic = nkisim.profile(vector_add.add_tiles, n, n, 1000)
    assert four.body_us == pytest.approx(automatic.body_us, rel=0.05)


@nki.jit
def reversed_tiles(x, count):
    """All tiles are loaded, then used from the last to the first."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((count, nl.par_dim(128), x.shape[2]), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(count):
        tiles[i] = nl.load(x[i])
    for i in nl.affine_range(count):
        nl.store(out[count - 1 - i], tiles[count - 1 - i])
    return out


def test_tiles_of_a_blocked_tensor_are_spilled_one_by_one():
    with nkisim.checks(sbuf="off"):
        timeline = nkisim.profile(reversed_tiles, spec(24, 128, 4096), 24)
    reloaded = sum(t.label == "reload" for t in timeline._core.work.tasks)
    assert reloaded == 24 - 10  # there is room for ten, and for a load on its way
    assert timeline.spilled_bytes == reloaded * 128 * 4096 * 4  # tiles that HBM holds too
    assert any("the largest tile takes 16,384 bytes" in f.text for f in timeline.findings)


def test_the_same_place_in_sbuf_and_in_psum_is_not_the_same_memory():
    """Tiles placed by hand at byte 0 of both: nothing waits, as if one of them was elsewhere."""

    def kernel(x, address):
        out = nl.ndarray((128, 512), F32, buffer=nl.shared_hbm)
        near = ncc.sbuf.alloc(lambda index, rows, size: (0, address))
        bank = ncc.psum.alloc(lambda index, rows, size: (0, 0, 0))
        a = nl.ndarray((nl.par_dim(128), 512), F32, buffer=near)
        total = nl.ndarray((nl.par_dim(128), 512), F32, buffer=bank)
        b = nl.ndarray(
            (nl.par_dim(128), 512), F32, buffer=ncc.sbuf.alloc(lambda index, rows, size: (0, 32768))
        )
        a[...] = nl.load(x)
        total[...] = nl.copy(a)
        b[...] = nl.add(total, a)
        nl.store(out, b)
        return out

    same, apart = (nkisim.profile(kernel, spec(128, 512), address) for address in (0, 8192))
    assert same.latency_us == apart.latency_us


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_table_of_a_function_is_loaded_while_its_data_are_on_their_way(target):
    def one(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.exp(nl.load(x)))
        return out

    def and_another(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        more = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.exp(nl.load(x)))
        nl.store(more, nl.exp(nl.zeros((128, 64), dtype=nl.float32)))
        return out, more

    x = nkisim.TensorSpec((128, 512), np.dtype(np.float32))
    alone, both = (
        nkisim.profile(nki.jit(kernel, platform_target=target), x) for kernel in (one, and_another)
    )
    assert alone.latency_us <= both.latency_us
    (exp,) = [i for i in alone.intervals if i.track == "Scalar"]
    load = alone.timing.table_load_ns / 1e3
    assert exp.start_us > load  # it waited for the data for longer than the load takes
    assert exp.end_us - exp.start_us < 512 / alone.timing.scalar.ghz / 1e3 + load
