"""Answers in `import nki` to the exercises on softmax and attention in PyTorch."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl

SUM = {"reduce_op": nl.add, "reduce_cmd": nisa.reduce_cmd.reset_reduce}


def sbuf(*shape, value=None):
    tile = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    if value is not None:
        nisa.memset(dst=tile, value=value)
    return tile


def psum(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def transposed(tile):
    here = psum(tile.shape[1], tile.shape[0])
    result = sbuf(tile.shape[1], tile.shape[0])
    nisa.nc_transpose(dst=here, data=tile)
    nisa.tensor_copy(dst=result, src=here)
    return result


def keep(tile, row, column, offset):  # row * i + column * j + offset >= 0
    nisa.affine_select(
        dst=tile,
        pattern=[[column, tile.shape[1]]],
        offset=offset,
        channel_multiplier=row,
        on_true_tile=tile,
        on_false_value=-1e30,
        cmp_op=nl.greater_equal,
    )


def softmax(tile):
    least, total = sbuf(tile.shape[0], 1), sbuf(tile.shape[0], 1)
    weights = sbuf(*tile.shape)
    nisa.tensor_reduce(dst=least, data=tile, op=nl.maximum, axis=1,
                       negate=True, keepdims=True)
    nisa.activation(dst=weights, data=tile, op=nl.exp, bias=least,
                    reduce_res=total, **SUM)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=weights, data=weights,
                       op0=nl.multiply, operand0=total)
    return weights


@nki.jit
def log_sum_exp(x):
    n = x.shape[0]
    out = nl.ndarray((n, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    m, s = sbuf(n, 1, value=-3e38), sbuf(n, 1, value=0.0)
    for at in range(0, x.shape[1], 4):
        tile = nl.load(x[:, at : min(at + 4, x.shape[1])])
        now, bias, more, factor = (
            sbuf(n, 1), sbuf(n, 1), sbuf(n, 1), sbuf(n, 1))
        nisa.tensor_reduce(dst=now, data=tile, op=nl.maximum, axis=1,
                           keepdims=True)
        nisa.tensor_tensor(dst=now, data1=now, data2=m, op=nl.maximum)
        nisa.tensor_scalar(dst=bias, data=now,
                           op0=nl.multiply, operand0=-1.0)
        nisa.activation(dst=tile, data=tile, op=nl.exp, bias=bias,
                        reduce_res=more, **SUM)
        nisa.activation(dst=factor, data=m, op=nl.exp, bias=bias)
        nisa.tensor_tensor(dst=s, data1=s, data2=factor, op=nl.multiply)
        nisa.tensor_tensor(dst=s, data1=s, data2=more, op=nl.add)
        nisa.tensor_copy(dst=m, src=now)
    nisa.activation(dst=s, data=s, op=nl.log)
    nisa.tensor_tensor(dst=s, data1=s, data2=m, op=nl.add)
    nisa.dma_copy(dst=out, src=s)
    return out


@nki.jit
def window(scores):
    out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
    tile = nl.load(scores)
    keep(tile, row=1, column=-1, offset=0)
    keep(tile, row=-1, column=1, offset=2)
    nisa.dma_copy(dst=out, src=softmax(tile))
    return out


@nki.jit
def grouped_query(q, k, v):
    o = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    scale = q.shape[2] ** -0.5
    group = q.shape[0] // k.shape[0]
    for g in range(k.shape[0]):
        keys, values = transposed(nl.load(k[g])), nl.load(v[g])
        for h in range(g * group, (g + 1) * group):
            scores, result = psum(q.shape[1], k.shape[1]), psum(*q.shape[1:])
            tile, out = sbuf(*scores.shape), sbuf(*result.shape)
            nisa.nc_matmul(dst=scores, stationary=transposed(nl.load(q[h])),
                           moving=keys)
            nisa.activation(dst=tile, data=scores, op=nl.copy, scale=scale)
            nisa.nc_matmul(dst=result, stationary=transposed(softmax(tile)),
                           moving=values)
            nisa.tensor_copy(dst=out, src=result)
            nisa.dma_copy(dst=o[h], src=out)
    return o


@nki.jit
def grouped_flash(q, k, v):
    o = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    scale = q.shape[2] ** -0.5
    n, group = q.shape[1], q.shape[0] // k.shape[0]
    for h in range(q.shape[0]):
        q_t = transposed(nl.load(q[h]))
        m, s = sbuf(n, 1, value=-3e38), sbuf(n, 1, value=0.0)
        out = sbuf(*q.shape[1:], value=0.0)
        for at in range(0, k.shape[1], 4):
            keys = slice(at, min(at + 4, k.shape[1]))
            scores, result = psum(n, keys.stop - at), psum(*out.shape)
            tile = sbuf(*scores.shape)
            key_t = transposed(nl.load(k[h // group, keys]))
            nisa.nc_matmul(dst=scores, stationary=q_t, moving=key_t)
            nisa.activation(dst=tile, data=scores, op=nl.copy, scale=scale)
            now, bias, more, factor = (
                sbuf(n, 1), sbuf(n, 1), sbuf(n, 1), sbuf(n, 1))
            nisa.tensor_reduce(dst=now, data=tile, op=nl.maximum, axis=1,
                               keepdims=True)
            nisa.tensor_tensor(dst=now, data1=now, data2=m, op=nl.maximum)
            nisa.tensor_scalar(dst=bias, data=now,
                               op0=nl.multiply, operand0=-1.0)
            nisa.activation(dst=tile, data=tile, op=nl.exp, bias=bias,
                            reduce_res=more, **SUM)
            nisa.activation(dst=factor, data=m, op=nl.exp, bias=bias)
            nisa.nc_matmul(dst=result, stationary=transposed(tile),
                           moving=nl.load(v[h // group, keys]))
            for total, part in ((s, more), (out, result)):
                nisa.tensor_scalar(dst=total, data=total,
                                   op0=nl.multiply, operand0=factor)
                nisa.tensor_tensor(dst=total, data1=total, data2=part,
                                   op=nl.add)
            nisa.tensor_copy(dst=m, src=now)
        nisa.reciprocal(dst=s, data=s)
        nisa.tensor_scalar(dst=out, data=out, op0=nl.multiply, operand0=s)
        nisa.dma_copy(dst=o[h], src=out)
    return o
