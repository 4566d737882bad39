"""Collectives among ranks in one process, against NumPy."""

import _thread
import threading
import time
from functools import partial

import ml_dtypes
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import KernelError
from nkisim.frontends.nki import ranks as ranks_of_jax

BF16 = np.dtype(ml_dtypes.bfloat16)


def run(kernel, *of_ranks, lnc=1):
    return nkisim.run_ranks(nki.simulate(kernel)[lnc], list(of_ranks))


def inputs(ranks, *shape, dtype=np.float32):
    random = np.random.default_rng(ranks)
    return [random.standard_normal(shape).astype(dtype) for _ in range(ranks)]


def hbm(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("op", ["add", "minimum", "maximum"])
@pytest.mark.parametrize("groups", [[[0, 1, 2, 3]], [[0, 2], [3, 1]]])
def test_all_reduce_in_hbm(dtype, op, groups):
    def kernel(x):
        mine, out = nl.ndarray(x.shape, x.dtype, nl.private_hbm), hbm(x.shape, x.dtype)
        tile = nl.load(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nisa.dma_copy(mine, tile)
        ncc.all_reduce([mine], [out], ncc.ReplicaGroup(groups), getattr(nl, op))
        return out

    xs = inputs(4, 32, 5, dtype=dtype)
    found = run(kernel, *[(x,) for x in xs])
    for group in groups:
        wanted = getattr(np, op).reduce([2 * xs[r].astype(np.float32) for r in group])
        for rank in group:
            np.testing.assert_allclose(
                found[rank].astype(np.float32),
                wanted,
                rtol=1e-6 if dtype is np.float32 else 2e-2,
                atol=1e-6 if dtype is np.float32 else 2e-2,
            )


@pytest.mark.parametrize("dim", [0, 1])
def test_all_gather_in_sbuf(dim):
    def kernel(x):
        shape = [*x.shape]
        shape[dim] *= 2
        whole = nl.ndarray(tuple(shape), x.dtype, nl.sbuf)
        ncc.all_gather([nl.load(x)], [whole], ncc.ReplicaGroup([[0, 1]]), dim)
        out = hbm(tuple(shape), x.dtype)
        nisa.dma_copy(out, whole)
        return out

    xs = inputs(2, 32, 6)
    for found in run(kernel, *[(x,) for x in xs]):
        np.testing.assert_array_equal(found, np.concatenate(xs, dim))


def test_reduce_scatter_and_gathering_again_is_all_reduce():
    def kernel(x):
        part, out = nl.ndarray((3, 8), x.dtype, nl.private_hbm), hbm(x.shape, x.dtype)
        group = ncc.ReplicaGroup([[2, 0, 1]])
        ncc.reduce_scatter([x], [part], group, 0, nl.add)
        ncc.all_gather([part], [out], group, 0)
        return out

    xs = inputs(3, 9, 8)
    for found in run(kernel, *[(x,) for x in xs]):
        np.testing.assert_allclose(found, sum(xs), rtol=1e-5, atol=1e-6)


def test_all_to_all_is_a_transpose_of_parts():
    def kernel(x, y):
        outs = hbm(x.shape, x.dtype), hbm(y.shape, y.dtype)
        ncc.all_to_all([x, y], list(outs), ncc.ReplicaGroup([[0, 1]]), 0)
        return outs

    xs, ys = inputs(2, 4, 3), [np.arange(2, dtype=np.int32) + 10 * r for r in range(2)]
    for rank, (x, y) in enumerate(run(kernel, *zip(xs, ys, strict=True))):
        np.testing.assert_array_equal(x, np.concatenate([v.reshape(2, 2, 3)[rank] for v in xs]))
        np.testing.assert_array_equal(y, [rank, 10 + rank])


def test_permute_moves_along_the_pairs_and_leaves_the_rest():
    def kernel(x):
        out = hbm(x.shape, x.dtype)
        nisa.dma_copy(out, x)
        ncc.collective_permute([x], [out], [(0, 2), (2, 0)])
        return out

    xs = inputs(3, 2, 2)
    found = run(kernel, *[(x,) for x in xs])
    for rank, source in enumerate([2, 1, 0]):
        np.testing.assert_array_equal(found[rank], xs[source])


def test_a_ring_brings_the_data_of_the_rank_that_it_names():
    """Each rank copies what arrives to the rows of its owner: in the end an all-gather."""

    def kernel(x):
        out, ring = hbm((4, 8), x.dtype), ncc.ReplicaGroup([[0, 1, 2, 3]])
        here = x
        for step in range(4):
            owner = ncc.collective_permute_implicit_current_processing_rank_id(step, ring)
            nisa.dma_copy(out.ap([[8, 1], [1, 8]], scalar_offset=owner, indirect_dim=0), here)
            if step < 3:
                then = nl.ndarray(x.shape, x.dtype, nl.private_hbm)
                ncc.collective_permute_implicit([[here]], [[then]], ring)
                here = then
        return out

    xs = inputs(4, 1, 8)
    for found in run(kernel, *[(x,) for x in xs]):
        np.testing.assert_array_equal(found, np.concatenate(xs))


def test_a_ring_that_reduces():
    def kernel(x, y):
        out, ring = hbm(x.shape, x.dtype), ncc.ReplicaGroup([[0, 1, 2]])
        ncc.collective_permute_implicit_reduce([[x]], [[y]], [[out]], ring, nl.maximum)
        return out

    xs, ys = inputs(3, 4, 4), inputs(3, 4, 4)[::-1]
    found = run(kernel, *zip(xs, ys, strict=True))
    for rank in range(3):
        np.testing.assert_array_equal(found[rank], np.maximum(xs[rank - 1], ys[rank - 1]))


def test_rank_id_tells_ranks_apart_and_traces_are_not_shared():
    def kernel(x):
        out = hbm((1, 4), x.dtype)
        nisa.dma_copy(out, x.ap([[4, 1], [1, 4]], scalar_offset=ncc.rank_id(), indirect_dim=0))
        return out

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    jitted = nki.jit(kernel)
    for _ in range(2):
        found = nkisim.run_ranks(jitted, [(x,)] * 3)
        np.testing.assert_array_equal(np.concatenate(found), x)


def test_both_cores_of_a_rank_meet_their_like():
    def kernel(x):
        out = hbm(x.shape, x.dtype)
        half = nl.ds(nl.program_id(0) * 16, 16)
        tile, total = nl.load(x[half, :]), nl.ndarray((16, 4), x.dtype, nl.sbuf)
        ncc.all_reduce([tile], [total], ncc.ReplicaGroup([[0, 1]]), nl.add)
        nisa.dma_copy(out[half, :], total)
        return out

    xs = inputs(2, 32, 4)
    for found in run(kernel, *[(x,) for x in xs], lnc=2):
        np.testing.assert_allclose(found, sum(xs), rtol=1e-6)


@pytest.mark.parametrize("call", ["rank_id", "all_reduce"])
def test_a_core_that_is_traced_early_is_of_its_rank(call):
    """Core 0 loads what core 1 has written, and so core 1 is traced before its turn."""

    def kernel(x):
        core = nl.program_id(0)
        out, both = hbm((2, 1), nl.int32), nl.ndarray((1, 2), nl.int32, nl.shared_hbm, name="both")
        mine = nl.load(x)
        if call == "rank_id":
            nisa.register_store(mine, ncc.rank_id())
        else:
            total = nl.ndarray((1, 1), nl.int32, nl.sbuf)
            ncc.all_reduce([mine], [total], group(0, 1), nl.add)
            mine = total
        nisa.dma_copy(both[:, nl.ds(core, 1)], mine)
        nisa.core_barrier(both, (0, 1))
        theirs = nisa.register_alloc()
        nisa.register_load(theirs, both[:, nl.ds(1 - core, 1)])
        count = nl.zeros((1, 1), nl.int32, buffer=nl.sbuf)

        def body(i):
            nisa.tensor_scalar(count, count, nl.add, 1)

        nl.fori_loop(0, theirs, body)
        nisa.dma_copy(out[nl.ds(core, 1)], count)
        return out

    xs = [(np.array([[n]], np.int32),) for n in (2, 5)]
    first, second = run(kernel, *xs, lnc=2)
    expected = {"rank_id": (0, 1), "all_reduce": (7, 7)}[call]
    np.testing.assert_array_equal(first, np.full((2, 1), expected[0]))
    np.testing.assert_array_equal(second, np.full((2, 1), expected[1]))


def group(*ranks):
    return ncc.ReplicaGroup([list(ranks)])


# fmt: off
REFUSED = {
    "no list": (lambda x, out, t: ncc.all_reduce(x, [out], group(0, 1), nl.add), r"pass srcs=\["),
    "a tile and HBM": (lambda x, out, t: ncc.all_reduce([x], [t], group(0, 1), nl.add),
        "all tensors are in HBM"),
    "two tiles": (lambda x, out, t: ncc.all_reduce([t, t], [t, t], group(0, 1), nl.add),
        "several tensors in one call are in HBM"),
    "all_to_all in SBUF": (lambda x, out, t: ncc.all_to_all([t], [t], group(0, 1), 0),
        "all tensors are in HBM$|all tensors are in HBM\n"),
    "a product": (lambda x, out, t: ncc.all_reduce([x], [out], group(0, 1), nl.multiply),
        "nl.multiply"),
    "axis 1 of HBM": (lambda x, out, t: ncc.all_gather([x], [out], group(0, 1), 1), "it is 0 for"),
    "a short destination": (lambda x, out, t: ncc.all_gather([x], [out], group(0, 1), 0),
        r"declare dst with shape \(64, 4\)"),
    "a rank too many": (lambda x, out, t: ncc.all_reduce([x], [out], group(0, 1, 2), nl.add),
        "nkisim.run_ranks"),
    "a rank in no group": (lambda x, out, t: ncc.all_reduce([x], [out], group(0), nl.add),
        "each rank is in one group"),
    "a target twice": (lambda x, out, t: ncc.collective_permute([x], [out], [(0, 1), (1, 1)]),
        "a target once"),
    "five channels": (lambda x, out, t: ncc.collective_permute_implicit([[x]] * 5, [[out]] * 5,
            group(0, 1), channel_ids=[0, 1, 2, 3, 4]), "at most 4"),
    "a priority on trn2": (
        lambda x, out, t: ncc.all_reduce([x], [out], group(0, 1), nl.add, priority=1),
        "NeuronCore-v4"),
}
# fmt: on


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    call, message = REFUSED[what]

    def kernel(x):
        out = hbm(x.shape, x.dtype)
        tile = nl.load(x)
        nisa.dma_copy(out, tile)
        call(x, out, tile)
        return out

    with pytest.raises(KernelError, match=message):
        run(kernel, *[(x,) for x in inputs(2, 32, 4)])


def uneven(call, groups, slot=16, in_sbuf=False, **settings):
    """A kernel for a collective whose sizes are data. It returns dst, which was -1, and sizes."""

    def kernel(x, sizes):
        rows, ranks = sizes.shape
        out, told = hbm((slot * ranks,), x.dtype), hbm(sizes.shape, nl.uint32)
        if nl.program_id(0) == 0:
            row = nl.ndarray((1, slot * ranks), x.dtype, nl.sbuf)
            nisa.memset(row, -1.0)
            nisa.dma_copy(out.reshape((1, slot * ranks)), row)
            if in_sbuf:
                mine = nl.ndarray((1, rows, ranks), nl.uint32, nl.sbuf)
            else:
                mine = nl.ndarray((rows, ranks), nl.uint32, nl.private_hbm)
            nisa.dma_copy(mine.reshape((1, rows * ranks)), sizes.reshape((1, rows * ranks)))
            call([x], [out], ncc.ReplicaGroup(groups), mine, **settings)
            nisa.dma_copy(told.reshape((1, rows * ranks)), mine.reshape((1, rows * ranks)))
        return out, told

    return kernel


@pytest.mark.parametrize("in_sbuf", [False, True])
def test_all_gather_of_parts_of_their_own_sizes(in_sbuf):
    xs = inputs(8, 6, 5)
    groups = [[0, 1, 2, 3], [7, 5, 6, 4]]
    counts, starts = [0, 16, 3, 7, 1, 2, 3, 4], [0, 14, 27, 1, 2, 3, 4, 5]
    sizes = [
        np.array([[n] * 4, [at] * 4, [99] * 4], np.uint32)
        for n, at in zip(counts, starts, strict=True)
    ]
    found = run(
        uneven(ncc.all_gather_v, groups, in_sbuf=in_sbuf), *zip(xs, sizes, strict=True), lnc=2
    )
    for ranks in groups:
        expected = np.full((4, 16), -1, np.float32)
        for row, r in zip(expected, ranks, strict=True):
            row[: counts[r]] = xs[r].reshape(-1)[starts[r] :][: counts[r]]
        for r in ranks:
            np.testing.assert_array_equal(found[r][0], expected.reshape(-1))
            np.testing.assert_array_equal(found[r][1][2], [counts[n] for n in ranks])


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("placed", [False, True])
def test_all_to_all_of_parts_of_their_own_sizes(placed, known, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    random = np.random.default_rng(0)
    xs, n = inputs(8, 60), 8
    counts = random.integers(0, 8, (n, n))  # from, to
    starts = random.integers(0, 50, (n, n))
    places = np.arange(n) * 16
    if placed:
        places = places[::-1].copy()
    sizes = [
        np.array([counts[r], starts[r], [99] * n, places][: 3 + placed], np.uint32)
        for r in range(n)
    ]
    kernel = uneven(ncc.all_to_all_v, [range(n)], recv_counts_known=known, has_rdispls=placed)
    for r, (out, told) in enumerate(run(kernel, *zip(xs, sizes, strict=True), lnc=2)):
        expected = np.full(16 * n, -1, np.float32)
        for s in range(n):
            part = xs[s][starts[s, r] :][: counts[s, r]]
            expected[places[s] :][: len(part)] = part
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(told[2], [99] * n if known else counts[:, r])


def test_uneven_parts_stay_in_their_tensors():
    xs = inputs(4, 6, 5)
    for row, value, message in ((0, 17, "there is room for 16"), (1, 29, "src has 30 elements")):
        sizes = np.array([[2] * 4, [1] * 4, [0] * 4], np.uint32)
        sizes[row] = value
        with pytest.raises(KernelError, match=message):
            run(uneven(ncc.all_gather_v, [range(4)]), *[(x, sizes) for x in xs], lnc=2)


def branching(x, flag, other):
    out = hbm(x.shape, x.dtype)
    nisa.dma_copy(out, x)
    if flag:
        ncc.all_reduce([x], [out], group(0, 1), nl.add)
    elif other:
        ncc.all_reduce([x], [out], group(0, 1), nl.maximum)
    return out


def test_a_rank_that_never_comes_is_a_deadlock_with_the_line():
    x, y = inputs(2, 4, 4)
    with pytest.raises(KernelError, match=r"rank 0 waits at ncc.all_reduce.*for ranks \[1\]"):
        run(branching, (x, True, False), (y, False, False))
    with pytest.raises(KernelError, match=r"rank 1 calls .*maximum.*rank 0 .*add"):
        run(branching, (x, True, False), (y, False, True))


def test_ranks_that_wait_for_each_other_in_a_ring_are_a_deadlock():
    def kernel(x, first, second):
        out = hbm(x.shape, x.dtype)
        for each in (first, second):
            ncc.all_reduce([x], [out], ncc.ReplicaGroup(each), nl.add)
        return out

    xs = inputs(4, 4, 4)
    one, two = ((0, 1), (2, 3)), ((1, 2), (3, 0))
    with pytest.raises(KernelError, match=r"deadlock: rank \d waits at ncc.all_reduce"):
        run(kernel, *[(x, *(one, two)[:: 1 if rank % 2 else -1]) for rank, x in enumerate(xs)])
    run(kernel, *[(x, one, two) for x in xs])


@pytest.mark.parametrize("threads", [False, True])
def test_ranks_of_a_rank(threads):
    """A rank that runs a job of its own, in its thread or in another one that it waits for."""

    def kernel(x):
        out = hbm(x.shape, x.dtype)
        ncc.all_reduce([x], [out], group(0, 1), nl.add)
        return out

    def rank(x):
        pairs = []
        inner = threading.Thread(target=lambda: pairs.append(run(kernel, (x,), (x,))))
        getattr(inner, "start" if threads else "run")()
        if threads:
            inner.join()
        return nki.simulate(kernel)[1](pairs[0][0])

    xs = inputs(2, 4, 4)
    for found in nkisim.run_ranks(rank, [(x,) for x in xs]):
        np.testing.assert_array_equal(found, 2 * xs[0] + 2 * xs[1])


def test_an_error_on_one_rank_ends_the_others():
    def kernel(x, n):
        out = hbm(x.shape, x.dtype)
        nisa.dma_copy(out, x[0:n, :])
        ncc.all_reduce([x], [out], group(0, 1), nl.add)
        return out

    x, y = inputs(2, 4, 4)
    with pytest.raises(KernelError, match="dma_copy"):
        run(kernel, (x, 4), (y, 3))


def test_one_rank_alone():
    def kernel(x):
        out = hbm(x.shape, x.dtype)
        ncc.all_reduce([x], [out], group(0), nl.add)
        return out

    (x,) = inputs(1, 4, 4)
    np.testing.assert_array_equal(nki.simulate(kernel)(x), x)
    with pytest.raises(KernelError, match="one tuple of arguments for each rank"):
        nkisim.run_ranks(kernel, [])


def test_the_devices_of_jax_are_ranks(monkeypatch):
    """Under jax.jit and jax.shard_map; against JAX's own collectives."""
    jax = pytest.importorskip("jax")
    rows = jax.P("d")

    def exchange(call, groups, grown=1):
        @nki.jit
        def kernel(x):
            mine = nl.ndarray(x.shape, x.dtype, nl.private_hbm)
            out = hbm((x.shape[0] * grown, x.shape[1]), x.dtype)
            tile = nl.load(x)
            nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
            nisa.dma_copy(mine, tile)
            call([mine], [out], ncc.ReplicaGroup(groups))
            return out

        return kernel

    def sharded(function, devices=8):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("d",))
        return jax.jit(
            jax.shard_map(function, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)
        )

    add = partial(ncc.all_reduce, op=nl.add)
    everyone = [list(range(8))]
    total = exchange(add, everyone)
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((16, 3), np.float32))
    for _ in range(3):
        found = sharded(total)(x)
        np.testing.assert_allclose(found, sharded(lambda x: jax.lax.psum(2 * x, "d"))(x), 1e-5)
    found = sharded(lambda x: total(total(x) + 1))(x)
    twice = sharded(lambda x: jax.lax.psum(2 * (jax.lax.psum(2 * x, "d") + 1), "d"))(x)
    np.testing.assert_allclose(found, twice, 1e-4)
    pairs = [[0, 1], [2, 3]]
    found = sharded(exchange(add, pairs), 4)(x)
    by_pairs = 2 * np.asarray(x).reshape(2, 2, 4, 3).sum(1, keepdims=True).repeat(2, 1)
    np.testing.assert_allclose(found, by_pairs.reshape(16, 3), 1e-5)
    gather = partial(ncc.all_gather, collective_dim=0)
    found = sharded(exchange(gather, everyone, grown=8))(x)
    np.testing.assert_array_equal(found, np.tile(2 * np.asarray(x), (8, 1)))

    @nki.jit
    def numbered(x):
        out = hbm((1, 1), nl.int32)
        nisa.register_store(out, ncc.rank_id())
        return out

    np.testing.assert_array_equal(sharded(numbered)(x).reshape(-1), range(8))

    with pytest.raises(Exception, match="of JAX"):
        jax.block_until_ready(sharded(exchange(add, [[0, 1, 2, 3]]))(x))
    monkeypatch.setattr(ranks_of_jax, "_LOOKS", 4)
    monkeypatch.setattr(ranks_of_jax, "_BETWEEN", 0.02)
    # A thread that waits and is none of XLA's, started as pytest-xdist starts one.
    never_ends = _thread.allocate_lock()
    never_ends.acquire()
    _thread.start_new_thread(lambda: never_ends.acquire(), ())
    with pytest.raises(Exception, match="no device of the mesh"):
        jax.block_until_ready(sharded(total, 4)(x))

    # One device is asleep, long after a thread at work would have been found; one never comes.
    def is_last():
        return jax.lax.axis_index("d") == 7

    def wait(x):
        time.sleep(0.5)
        return x

    def asked(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def late(x):
        return total(jax.lax.cond(is_last(), asked, lambda x: x + 0, x))

    def never(x):
        return jax.lax.cond(is_last(), lambda x: x + 0, total, x)

    np.testing.assert_allclose(sharded(late)(x), sharded(total)(x))
    with pytest.raises(Exception, match=r"deadlock|another rank failed"):
        jax.block_until_ready(sharded(never)(x))
    never_ends.release()
    with pytest.raises(TypeError, match=r"jax\.shard_map"):
        nkisim.run_ranks(exchange(add, [[0, 1]]), [(x,), (x,)])


SPLIT = {
    ncc.all_gather_v: (ncc.all_gather_v_prepare, ncc.all_gather_v_trigger),
    ncc.all_to_all_v: (ncc.all_to_all_v_prepare, ncc.all_to_all_v_trigger),
}


def halves(call, fill):
    """A collective in two halves; between them, `fill` writes what is sent."""
    prepare, trigger = SPLIT[call]

    def both(srcs, dsts, group, metadata, **settings):
        (src,) = srcs
        sent = nl.ndarray(src.shape, src.dtype, nl.private_hbm)
        handle = prepare([sent], dsts, group, metadata, **settings)
        nisa.dma_copy(metadata, nl.shared_constant(np.zeros(metadata.shape, np.uint32)))
        fill(sent, src)
        done = trigger(handle)
        assert isinstance(done, nisa.NkiInstruction)

    return both


@pytest.mark.parametrize("call", SPLIT)
def test_a_collective_in_two_halves_is_the_whole_one(call):
    """Counts are those before the first half, and data that before the second."""
    n = 4
    xs = inputs(n, 6, 5)
    sizes = np.array([[3, 1, 0, 2], [0, 4, 9, 20], [99] * 4], np.uint32)
    given = [(x, sizes) for x in xs]
    whole = run(uneven(call, [range(n)]), *given, lnc=2)
    split = run(uneven(halves(call, nisa.dma_copy), [range(n)]), *given, lnc=2)
    for (out, told), (other, other_told) in zip(whole, split, strict=True):
        np.testing.assert_array_equal(other, out)
        np.testing.assert_array_equal(other_told[2], told[2])


def twice(prepare, trigger):
    def both(*given):
        prepare(*given)
        trigger(prepare(*given))

    return both


def never(prepare, trigger):
    return prepare


def of_another(prepare, trigger):
    def both(*given):
        prepare(*given)
        trigger(nisa.core_barrier(given[1][0], (0, 1)))

    return both


def alone(prepare, trigger):
    return lambda *given: trigger(nisa.NkiInstruction())


def crossed(prepare, trigger):
    other = ncc.all_gather_v_trigger if trigger is ncc.all_to_all_v_trigger else None
    return lambda *given: (other or ncc.all_to_all_v_trigger)(prepare(*given))


@pytest.mark.parametrize("call", SPLIT)
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (twice, "waits for its trigger"),
        (never, "the kernel ends, and"),
        (of_another, "of another handle"),
        (alone, "nothing prepared"),
        (crossed, "is followed by one trigger"),
    ],
)
def test_each_half_has_one_other(call, wrong, says):
    sizes = np.ones((3, 4), np.uint32)
    with pytest.raises(KernelError, match=says):
        run(uneven(wrong(*SPLIT[call]), [range(4)]), *[(x, sizes) for x in inputs(4, 6, 5)], lnc=2)


def test_groups_by_a_formula():
    made = ncc.ReplicaGroup.from_partition_op
    op = ncc.rg_partition_op
    assert made(8, op.bitwise_and, 0) == ncc.ReplicaGroup([[0, 1, 2, 3, 4, 5, 6, 7]])
    assert made(8, op.div, 4) == ncc.ReplicaGroup([[0, 1, 2, 3], [4, 5, 6, 7]])
    assert made(8, op.mod, 4) == ncc.ReplicaGroup([[0, 4], [1, 5], [2, 6], [3, 7]])
    assert made(6, op.bitwise_and, 1) == ncc.ReplicaGroup([[0, 2, 4], [1, 3, 5]])
    assert made(5, op.div, 3) == ncc.ReplicaGroup([[0, 1, 2], [3, 4]])
    for given, says in (((8, "mod", 4), "bitwise_and, div, mod"), ((8, op.mod, 0), "at least 1")):
        with pytest.raises(KernelError, match=says):
            made(*given)


def test_collectives_return_their_instruction():
    def kernel(x):
        out = hbm(x.shape, x.dtype)
        done = ncc.all_reduce([x], [out], group(0, 1), nl.add)
        assert isinstance(done, nisa.NkiInstruction)
        return out

    first, second = run(kernel, *[(x,) for x in inputs(2, 3, 4)])
    np.testing.assert_array_equal(first, second)
