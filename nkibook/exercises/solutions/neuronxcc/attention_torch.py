"""Answers to the exercises on softmax and attention in PyTorch."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def log_sum_exp(x):
    out = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
    largest, total = None, None
    for at in nl.static_range(0, x.shape[1], 4):
        tile = nl.load(x[:, nl.ds(at, min(4, x.shape[1] - at))])
        now = nl.max(tile, axis=1, keepdims=True)
        if largest is not None:
            now = nl.maximum(now, largest)
        more = nl.sum(nl.exp(nl.subtract(tile, now)), axis=1, keepdims=True)
        if largest is not None:
            factor = nl.exp(nl.subtract(largest, now))
            more = nl.add(more, nl.multiply(total, factor))
        largest, total = now, more
    nl.store(out, value=nl.add(largest, nl.log(total)))
    return out


@nki.jit
def window(scores):
    out = nl.ndarray(scores.shape, scores.dtype, buffer=nl.shared_hbm)
    i = nl.arange(scores.shape[0])[:, None]
    j = nl.arange(scores.shape[1])[None, :]
    tile = nl.load(scores)
    tile = nisa.affine_select(
        pred=(i >= j), on_true_tile=tile[i, j], on_false_value=-1e30)
    tile = nisa.affine_select(
        pred=(j + 2 >= i), on_true_tile=tile[i, j], on_false_value=-1e30)
    nl.store(out, value=nl.softmax(tile, axis=1))
    return out


@nki.jit
def grouped_query(q, k, v):
    o = nl.ndarray(q.shape, q.dtype, buffer=nl.shared_hbm)
    scale = q.shape[2] ** -0.5
    group = q.shape[0] // k.shape[0]
    for g in nl.static_range(k.shape[0]):
        keys, values = nl.load_transpose2d(k[g]), nl.load(v[g])
        for h in range(g * group, (g + 1) * group):
            scores = nisa.nc_matmul(nl.load_transpose2d(q[h]), keys)
            weights = nl.softmax(nl.multiply(scores, scale), axis=1)
            weights_t = nl.copy(nl.transpose(weights))
            nl.store(o[h], value=nl.copy(nisa.nc_matmul(weights_t, values)))
    return o


@nki.jit
def grouped_flash(q, k, v):
    o = nl.ndarray(q.shape, q.dtype, buffer=nl.shared_hbm)
    scale = q.shape[2] ** -0.5
    group = q.shape[0] // k.shape[0]
    for h in range(q.shape[0]):
        q_t = nl.load_transpose2d(q[h])
        largest, total, result = None, None, None
        for at in nl.static_range(0, k.shape[1], 4):
            keys = nl.ds(at, min(4, k.shape[1] - at))
            key_t = nl.load_transpose2d(k[h // group, keys])
            values = nl.load(v[h // group, keys])
            scores = nl.multiply(nisa.nc_matmul(q_t, key_t), scale)
            now = nl.max(scores, axis=1, keepdims=True)
            if largest is not None:
                now = nl.maximum(now, largest)
            weights = nl.exp(nl.subtract(scores, now))
            more = nl.sum(weights, axis=1, keepdims=True)
            weights_t = nl.copy(nl.transpose(weights))
            product = nl.copy(nisa.nc_matmul(weights_t, values))
            if largest is not None:
                factor = nl.exp(nl.subtract(largest, now))
                more = nl.add(more, nl.multiply(total, factor))
                product = nl.add(product, nl.multiply(result, factor))
            largest, total, result = now, more, product
        nl.store(o[h], value=nl.multiply(result, nl.reciprocal(total)))
    return o
