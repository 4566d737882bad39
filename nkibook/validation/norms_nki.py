"""RMSNorm of a few tokens in `import nki`, the hidden axis over the partitions, on one core or two:
the work of nki-library's kernel for token generation."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P = 128
_SPLIT = 18  # more tokens than that are shared between two cores
_MOST = 512  # tokens whose sums fit one PSUM bank


@nki.jit
def rmsnorm_columns(x, gamma, divisor=None, eps=1e-6):
    """Tokens (T, H) over the root of their mean square, times gamma (1, H), as (128, T, H / 128).

    Args:
        x: the tokens.
        gamma: the scale.
        divisor: what the sum of squares is divided by; H if None.
        eps: added to the mean square.
    """
    tokens, hidden = x.shape
    cores, core = nl.num_programs(0), nl.program_id(0)
    splits = cores == 2 and tokens > _SPLIT and tokens % 2 == 0
    count = tokens // 2 if splits else tokens
    first = count * core if splits else 0
    width = hidden // P
    run = width // cores  # contiguous in HBM: each half of a token is spread over all partitions

    out = nl.ndarray((P, tokens, width), x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((P, count, cores, run), x.dtype, buffer=nl.sbuf)
    pattern = [[run, P], [hidden, count], [run * P, cores], [1, run]]
    static = nisa.dge_mode.none
    nisa.dma_copy(rows, x.ap(pattern, offset=first * hidden), dge_mode=static)
    scale = nl.ndarray((P, cores, run), gamma.dtype, buffer=nl.sbuf)
    nisa.dma_copy(scale, gamma.ap([[run, P], [run * P, cores], [1, run]]), dge_mode=static)
    small = nl.ndarray((P, 1), nl.float32, buffer=nl.sbuf)
    nisa.memset(small, eps)
    ones = nl.ndarray((P, P), nl.float32, buffer=nl.sbuf)
    nisa.memset(ones, 1.0)

    rows = rows.reshape((P, count, width))
    scale = scale.reshape((P, width))
    for start in range(0, count, _MOST):
        n = min(_MOST, count - start)
        part = rows[:, start : start + n, :]
        squares = nl.ndarray((P, n, width), nl.float32, buffer=nl.sbuf)
        nisa.activation(squares, nl.square, part)
        sums = nl.ndarray((P, n), nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(sums, nl.add, squares, axis=2)
        scaled = nl.ndarray((P, n, width), nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(scaled, part, scale.ap([[width, P], [0, n], [1, width]]), nl.multiply)
        total = nl.ndarray((P, n), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=ones, moving=sums)
        root = nl.ndarray((P, n), nl.float32, buffer=nl.sbuf)
        nisa.activation(root, nl.rsqrt, total, scale=1.0 / (divisor or hidden), bias=small)
        nisa.tensor_tensor(part, scaled, root.ap([[n, P], [1, n], [0, width]]), nl.multiply)
    if splits or core == 0:
        nisa.dma_copy(out[:, first : first + count, :], rows)
    return out
