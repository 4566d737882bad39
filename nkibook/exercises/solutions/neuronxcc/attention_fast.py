"""Answers to the exercises on fast attention."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def one_reading(q_t, k_t):  # (D, Q), (D, K): Q in tiles of 128, K up to 512
    tiles = q_t.shape[1] // 128
    sums = nl.ndarray((128, tiles), nl.float32, buffer=nl.shared_hbm)
    queries, keys = nl.load(q_t), nl.load(k_t)
    total = nl.ndarray((128, tiles), nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(tiles):
        scores = nisa.nc_matmul(queries[:, nl.ds(i * 128, 128)], keys)
        largest = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        scores = nisa.tensor_scalar_reduce(
            data=scores, op0=nl.multiply, operand0=1.0,
            reduce_op=nl.max, reduce_res=largest)
        least = nl.multiply(largest, -1.0)
        nisa.activation_reduce(
            op=nl.exp, data=scores, bias=least,
            reduce_op=nl.add, reduce_res=total[:, nl.ds(i, 1)])
    nl.store(sums, value=total)
    return sums


@nki.jit
def last_piece(x):
    sums = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((x.shape[0], 1), nl.float32, buffer=nl.sbuf)
    before = None
    for at in nl.static_range(0, x.shape[1], 4):
        now = nl.load(x[:, nl.ds(at, min(4, x.shape[1] - at))])
        if before is not None:
            part = nl.sum(nl.exp(before), axis=1, keepdims=True)
            total = nl.add(total, part)
        before = now
    total = nl.add(total, nl.sum(nl.exp(before), axis=1, keepdims=True))
    nl.store(sums, value=total)
    return sums
