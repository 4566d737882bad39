"""A kernel that JAX calls directly, under `custom_vjp`, `custom_vmap` and `custom_partitioning`,
and in `shard_map`: values against NumPy in float64, and the collectives of the program."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import neuronxcc.nki as neuronxcc  # noqa: E402
import neuronxcc.nki.isa as neuronxcc_isa  # noqa: E402
import neuronxcc.nki.language as neuronxcc_nl  # noqa: E402
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
from jax.custom_batching import custom_vmap  # noqa: E402
from jax.experimental.custom_partitioning import custom_partitioning  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from nkibook.hlo import jax_hlo  # noqa: E402

P = PartitionSpec
ROWS, COLUMNS = 56, 37  # seven rows on each of eight devices


@neuronxcc.jit
def scale_neuronxcc(x, w):
    y = neuronxcc_nl.ndarray(x.shape, dtype=x.dtype, buffer=neuronxcc_nl.shared_hbm)
    row = neuronxcc_nl.broadcast_to(neuronxcc_nl.load(w), shape=x.shape)
    neuronxcc_nl.store(y, value=neuronxcc_nl.multiply(neuronxcc_nl.load(x), row))
    return y


@neuronxcc.jit
def weights_neuronxcc(g, x):
    f32 = neuronxcc_nl.float32
    dw = neuronxcc_nl.ndarray((1, x.shape[1]), dtype=f32, buffer=neuronxcc_nl.shared_hbm)
    g, x = neuronxcc_nl.load(g), neuronxcc_nl.load(x)
    ones = neuronxcc_nl.ones((x.shape[0], 1), dtype=f32)
    total = neuronxcc_isa.nc_matmul(ones, neuronxcc_nl.multiply(g, x, dtype=f32))
    neuronxcc_nl.store(dw, value=neuronxcc_nl.copy(total))
    return dw


@nki.jit
def scale_nki(x, w):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, row = nl.load(x), nl.ndarray(x.shape, dtype=w.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=w.ap([[0, x.shape[0]], [1, x.shape[1]]]))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=row, op=nl.multiply)
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def weights_nki(g, x):
    one, f32 = (1, x.shape[1]), nl.float32
    dw = nl.ndarray(one, dtype=f32, buffer=nl.shared_hbm)
    terms, ones = (
        nl.ndarray(shape, dtype=f32, buffer=nl.sbuf) for shape in (x.shape, (x.shape[0], 1))
    )
    total = nl.ndarray(one, dtype=f32, buffer=nl.psum)
    result = nl.ndarray(one, dtype=f32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=terms, data1=nl.load(g), data2=nl.load(x), op=nl.multiply)
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=total, stationary=ones, moving=terms)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=dw, src=result)
    return dw


KERNELS = pytest.mark.parametrize(
    ("rows", "sums"),
    [(scale_neuronxcc, weights_neuronxcc), (scale_nki, weights_nki)],
    ids=["neuronxcc", "nki"],
)


@pytest.fixture(name="mesh")
def _mesh():
    return Mesh(jax.devices(), ("d",))


def exactly(array):
    return np.asarray(array, np.float64)


def operands(mesh):
    rng = np.random.default_rng(4)
    x, w = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((ROWS, COLUMNS), (1, COLUMNS))
    )
    placed = (
        jax.device_put(x, NamedSharding(mesh, P("d"))),
        jax.device_put(w, NamedSharding(mesh, P())),
    )
    y = x * w
    dw = (exactly(y) * exactly(x)).sum(0, keepdims=True)
    return placed, exactly(y), exactly(y * w), exactly(dw.astype(ml_dtypes.bfloat16))


def gradients(operator):
    def loss(x, w):
        return (operator(x, w).astype(jnp.float32) ** 2).sum() / 2

    return jax.jit(jax.grad(loss, argnums=(0, 1)))


def with_gradient(rows, backward):
    @jax.custom_vjp
    def operator(x, w):
        return rows(x, w)

    operator.defvjp(lambda x, w: (rows(x, w), (x, w)), backward)
    return operator


def layered(rows, sums, mesh):
    """The three layers, as notebooks/primitives_jax.md has them."""

    def place(axis):
        return NamedSharding(mesh, P(axis, None)), NamedSharding(mesh, P())

    split_rows = custom_partitioning(lambda x, w: rows(x, w))
    split_sum = custom_partitioning(lambda g, x: sums(g, x))

    def partition_rows(_, args, result):
        lead, whole = place((*result.sharding.spec, None)[0])
        return mesh, rows, lead, (lead, whole)

    def partition_sum(_, args, result):
        axis = (*args[1].sharding.spec, None)[0]
        lead, whole = place(axis)

        def on_each_device(g, x):
            return jax.lax.psum(sums(g, x), axis) if axis else sums(g, x)

        return mesh, on_each_device, whole, (lead, lead)

    split_rows.def_partition(partition_rows, sharding_rule="r c, o c -> r c")
    split_sum.def_partition(partition_sum, sharding_rule="r c, r c -> o c")
    scaled, summed = custom_vmap(split_rows), custom_vmap(split_sum)

    @scaled.def_vmap
    def more_rows(size, batched, x, w):
        assert batched == [True, False]
        return scaled(x.reshape(-1, x.shape[-1]), w).reshape(x.shape), True

    @summed.def_vmap
    def each(size, batched, *arrays):
        return jax.lax.map(lambda pair: summed(*pair), arrays), True

    def backward(kept, g):
        x, w = kept
        return scaled(g, w), summed(g, x).astype(w.dtype)

    return with_gradient(scaled, backward)


@KERNELS
def test_three_layers_shard_batch_and_differentiate(mesh, rows, sums):
    (x, w), y, dx, dw = operands(mesh)
    operator = layered(rows, sums, mesh)
    np.testing.assert_array_equal(exactly(jax.jit(operator)(x, w)), y)
    found = gradients(operator)(x, w)
    for got, want in zip(found, (dx, dw), strict=True):
        np.testing.assert_array_equal(exactly(got), want)
    sent = jax_hlo(gradients(operator), x, w).after.collectives
    assert [(c.opcode, c.result_shapes[0].dtype) for c in sent] == [("all-reduce", "f32")]


@KERNELS
def test_a_batch_of_rows_is_one_call_and_of_weights_a_sum_each(mesh, rows, sums):
    (x, w), y, dx, _ = operands(mesh)
    operator, batch = layered(rows, sums, mesh), np.asarray(x).reshape(4, -1, COLUMNS)
    mapped = jax.vmap(operator, (0, None))
    np.testing.assert_array_equal(exactly(mapped(batch, w)).reshape(ROWS, COLUMNS), y)
    assert len(jax_hlo(mapped, batch, w).custom_calls) == 1
    dx_each, dw_each = jax.vmap(gradients(operator), (0, None))(batch, w)
    np.testing.assert_array_equal(exactly(dx_each).reshape(ROWS, COLUMNS), dx)
    want = (y * exactly(x)).reshape(4, -1, COLUMNS).sum(1, keepdims=True)
    np.testing.assert_allclose(exactly(dw_each), want, rtol=2**-8)


@KERNELS
def test_in_shard_map_the_sum_over_devices_is_missing_until_it_is_said(mesh, rows, sums):
    (x, w), _, dx, dw = operands(mesh)

    def own(kept, g):
        return rows(g, kept[1]), sums(g, kept[0]).astype(kept[1].dtype)

    def every(kept, g):
        total = jax.lax.psum(sums(g, kept[0]), "d")
        return rows(g, kept[1]), total.astype(kept[1].dtype)

    def on_shards(operator):
        return gradients(
            jax.shard_map(operator, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
        )

    alone = with_gradient(rows, own)
    with pytest.raises(ValueError, match="could not infer replication"):
        on_shards(alone)(x, w)

    def marked(x, w):
        return alone(x, jax.lax.pvary(w, "d"))

    for operator, dtype in ((with_gradient(rows, every), "f32"), (marked, "bf16")):
        found = on_shards(operator)(x, w)
        np.testing.assert_array_equal(exactly(found[0]), dx)
        (sent,) = jax_hlo(on_shards(operator), x, w).collectives
        assert sent.result_shapes[0].dtype == dtype
        if dtype == "f32":  # added, and then rounded
            np.testing.assert_array_equal(exactly(found[1]), dw)
        else:
            np.testing.assert_allclose(exactly(found[1]), dw, rtol=2**-5, atol=2**-6)
            assert (exactly(found[1]) != dw).any()
