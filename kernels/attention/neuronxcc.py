"""Attention as NKI kernels, forward and backward.

The scores of a sequence, one for each query and key, are too many to keep. Both kernels compute
them in tiles of 128 queries and never write them to HBM: the forward kernel rescales what it has
accumulated when the running maximum grows, and leaves one number a query, from which the backward
kernel computes the weights again. This is flash attention.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.attention.arguments import (
    BANK,
    BLOCK,
    KEPT_BYTES,
    NEVER,
    TILE,
)
from kernels.tiles import pieces


@nki.jit
def nki_attention_kernel(q, k, v, scale, causal):
    """``softmax(scale * q @ k.T) @ v`` of each head.

    Dimensions:
        H, G: heads of queries, and of keys and values, of all sequences of a batch. G divides H:
        query head h reads key head h // (H / G).
        Q, K: queries and keys of a sequence, 1 to 16384.
        D: elements of a query, key or value, 1 to 128. None need be a multiple of anything.

    Args:
        q: (H, Q, D) in HBM; float32, bfloat16 or float16.
        k, v: (G, K, D) in HBM; dtype of ``q``.
        scale: a number, known while compiling.
        causal: whether query i sees keys 0 to i only.

    Returns:
        o: (H, Q, D) in HBM, dtype of ``q``.
        lse: (H, Q, 1) float32 in HBM: ``log(sum(exp(scale * scores)))`` of each query, what the
            backward pass needs.

    Notes:
        Launch without a grid. Scores, maxima, sums and the output's sum are float32. Weights are
        rounded to the dtype of ``v`` before they are multiplied with it, and are divided by their
        sum after that. Keys and values stay in SBUF for all queries that share them, if they take
        no more than 64 KiB a partition. Tiles have the size that is left: nothing is masked but
        causal scores.

    Pseudocode:
        for each key head, for 128 queries at a time of each query head that shares it:
            for 2048 keys at a time:
                scores = q @ k.T
                larger = max(largest, max(scores))
                weights = exp(scale * (scores - larger))
                o = o * exp(scale * (largest - larger)) + weights @ v    # and so the sum
                largest = larger
            o = o / sum
    """
    heads, n_queries, _ = q.shape
    key_heads, n_keys, _ = k.shape
    group = heads // key_heads
    o = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    lse = nl.ndarray((heads, n_queries, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    keep = 2 * n_keys * k.itemsize <= KEPT_BYTES
    blocks = pieces(n_keys, BLOCK)

    for g in nl.affine_range(key_heads):
        if keep:
            kept = [_keys_and_values(k, v, g, *block) for block in blocks]
        for member in nl.static_range(group):
            h = g * group + member
            for first, rows in pieces(n_queries, TILE):
                at = nl.ds(first, rows)
                q_t = nl.load_transpose2d(q[h, at, :])
                state = None
                for number, (start, size) in enumerate(blocks):
                    shift = first - start if causal else None
                    if causal:
                        size = min(size, first + rows - start)
                    if size <= 0:  # no query sees these keys
                        break
                    keys, values = (
                        kept[number] if keep else _keys_and_values(k, v, g, *blocks[number])
                    )
                    state = weigh(state, *scores_of(q_t, keys, size, scale, shift), values)
                _store(o[h, at, :], lse[h, at, :], state)
    return o, lse


def _store(o, lse, state):
    """Divide the weighted sum by the sum of the weights; store it, and the logarithm of the sum."""
    largest, total, result = state
    share = nisa.reciprocal(total)
    nl.store(o, value=nisa.tensor_scalar(result, nl.multiply, share, dtype=o.dtype))
    logarithm = nisa.activation(op=nl.log, data=total)
    nl.store(lse, value=nl.add(largest, logarithm))


@nki.jit
def nki_attention_backward_kernel(grad_o, q, k, v, o, lse, scale, causal):
    """The gradients of :func:`nki_attention_kernel` for q, k and v.

    Dimensions:
        H, G, Q, K, D: as in the forward kernel.

    Args:
        grad_o: (H, Q, D) in HBM, gradient of the loss for ``o``; dtype of ``q``.
        q: (H, Q, D) in HBM; float32, bfloat16 or float16.
        k, v: (G, K, D) in HBM; dtype of ``q``.
        o, lse: what the forward kernel returned.
        scale, causal: as in the forward kernel.

    Returns:
        grad_q: (H, Q, D) in HBM. grad_k, grad_v: (G, K, D). All in the dtype of ``q``.

    Notes:
        Launch without a grid. Weights are computed again, from the scores and ``lse``. Weights and
        gradients of scores are rounded to the dtype of ``q`` before they are multiplied; all sums
        are float32 and rounded once. The gradients of 512 keys are summed up in PSUM over the
        queries of a head, that of the queries in SBUF over all keys. Over the heads that share
        keys, their gradients are summed up in HBM, in float32.

    Pseudocode:
        for each head:
            dots = sum(grad_o * o)                                   # of each query
            for 512 keys at a time, for 128 queries at a time:
                weights = exp(scale * q @ k.T - lse)
                grad_v += weights.T @ grad_o
                grad_scores = weights * (grad_o @ v.T - dots)
                grad_k += scale * grad_scores.T @ q
                grad_q += scale * grad_scores @ k
    """
    heads, n_queries, head = q.shape
    key_heads, n_keys, _ = k.shape
    group = heads // key_heads
    grad_q = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    grad_k = nl.ndarray(k.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    grad_v = nl.ndarray(k.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    tiles = pieces(n_queries, TILE)
    keep = 4 * n_queries * q.itemsize <= KEPT_BYTES
    height = min(n_queries, TILE)
    # Over the heads before that share keys, with axes swapped; none where each has its own.
    before = [
        nl.ndarray((key_heads, head, n_keys), dtype=nl.float32, buffer=nl.private_hbm)
        for _ in range(2 if group > 1 else 0)
    ]

    for g in nl.affine_range(key_heads):
        for member in nl.static_range(group):
            h = g * group + member
            # The sum of the gradient of each query, and two numbers a query.
            sums = nl.zeros((height, len(tiles), head), dtype=nl.float32, buffer=nl.sbuf)
            shifts = nl.ndarray((height, len(tiles)), dtype=nl.float32, buffer=nl.sbuf)
            dots = nl.ndarray((height, len(tiles)), dtype=nl.float32, buffer=nl.sbuf)
            for i, (first, rows) in enumerate(tiles):
                at = nl.ds(first, rows)
                products = nl.multiply(
                    nl.load(grad_o[h, at, :]), nl.load(o[h, at, :]), dtype=nl.float32
                )
                dots[0:rows, nl.ds(i, 1)] = nisa.tensor_reduce(
                    nl.add, products, axis=(1,), keepdims=True
                )
                shifts[0:rows, nl.ds(i, 1)] = nl.multiply(nl.load(lse[h, at, :]), -1.0)
            if keep:
                kept = [_queries(q, grad_o, h, *tile) for tile in tiles]

            for start, size in pieces(n_keys, BANK):
                keys = _keys(k, v, g, start, size)
                seen = [i for i, (at, n) in enumerate(tiles) if not causal or at + n > start]
                totals = None
                if seen:
                    totals = [nl.zeros((head, size), nl.float32, buffer=nl.psum) for _ in range(2)]
                for i in seen:
                    first, rows = tiles[i]
                    queries = kept[i] if keep else _queries(q, grad_o, h, first, rows)
                    column = nl.ds(i, 1)
                    numbers = shifts[0:rows, column], dots[0:rows, column]
                    more = _backward_tile(
                        queries, keys, numbers, totals, scale, first - start if causal else None
                    )
                    sums[0:rows, i, :] = nl.add(sums[0:rows, i, :], more)
                if seen and group > 1:
                    so_far = [x[g, :, nl.ds(start, size)] for x in before]
                    totals = _added_up(totals, so_far, member > 0, member < group - 1)
                if member == group - 1:
                    place = [x[g, nl.ds(start, size), :] for x in (grad_k, grad_v)]
                    _store_of_keys(place, totals, scale)

            for i, (first, rows) in enumerate(tiles):
                result = nisa.tensor_scalar(sums[0:rows, i, :], nl.multiply, scale, dtype=q.dtype)
                nl.store(grad_q[h, nl.ds(first, rows), :], value=result)
    return grad_q, grad_k, grad_v


def _added_up(totals, so_far, add, keep):
    """Sums of the gradients of k and v over the heads so far, in SBUF.

    Args:
        totals: those of a head, (D, keys), float32.
        so_far: those of the heads before, (D, keys) in HBM.
        add: whether there are any.
        keep: whether a head follows that adds to the result, which is stored for it.
    """
    if add:
        totals = [nl.add(x, nl.load(there)) for x, there in zip(totals, so_far, strict=True)]
    else:
        totals = [nl.copy(x) for x in totals]
    if keep:
        for x, there in zip(totals, so_far, strict=True):
            nl.store(there, value=x)
    return totals


def _store_of_keys(place, totals, scale):
    """Store the gradients of up to 512 keys and values, in HBM at `place`. Their sums are `totals`,
    (D, keys); None where no query sees these keys."""
    (size, head), dtype = place[0].shape, place[0].dtype
    if totals is None:
        cuts = len(pieces(size, TILE))
        of_keys = of_values = nl.zeros((min(size, TILE), cuts, head), dtype)
    else:
        of_keys = _turned(nisa.tensor_scalar(totals[0], nl.multiply, scale, dtype=dtype))
        of_values = _turned(nl.copy(totals[1], dtype=dtype))
    for t, (at, n) in enumerate(pieces(size, TILE)):
        nl.store(place[0][nl.ds(at, n), :], value=of_keys[0:n, t, :])
        nl.store(place[1][nl.ds(at, n), :], value=of_values[0:n, t, :])


def _queries(q, grad_o, h, first, rows):
    """128 rows of q and grad_o in SBUF, each also with its axes swapped."""
    at = nl.ds(first, rows)
    return (
        nl.load(q[h, at, :]),
        nl.load_transpose2d(q[h, at, :]),
        nl.load(grad_o[h, at, :]),
        nl.load_transpose2d(grad_o[h, at, :]),
    )


def _keys(k, v, h, start, size):
    """512 rows of k and v in SBUF with axes swapped, and those of k in tiles of 128 rows, too."""
    at = nl.ds(start, size)
    rows = [nl.load(k[h, nl.ds(start + first, n), :]) for first, n in pieces(size, TILE)]
    return nl.load_transpose2d(k[h, at, :]), nl.load_transpose2d(v[h, at, :]), rows


def _backward_tile(queries, keys, numbers, totals, scale, shift):
    """What 128 queries and 512 keys give to the gradients of both.

    Args:
        queries, keys: from :func:`_queries` and :func:`_keys`.
        numbers: -lse, and the sum of grad_o * o, of each query: (rows, 1).
        totals: sums of the gradients of k and v, with axes swapped, (D, keys) in PSUM, which are
            added to. Each fills a bank, which holds one accumulation group.
        scale: of the scores.
        shift: number of the first query less that of the first key, where causal; else None.

    Returns:
        What is to be added to the gradient of q: (rows, D) in PSUM.
    """
    q, q_t, grad_o, grad_o_t = queries
    k_t, v_t, k_rows = keys
    less_lse, dots = numbers
    (rows, head), size = q.shape, k_t.shape[1]

    weights = nisa.activation(
        op=nl.exp, data=nisa.nc_matmul(q_t, k_t), bias=less_lse, scale=scale, dtype=q.dtype
    )
    if shift is not None and size - 1 > shift:
        weights = select_seen(weights, shift, 0.0)
    grad_weights = nisa.nc_matmul(grad_o_t, v_t)
    grad_scores = nisa.scalar_tensor_tensor(
        data=grad_weights,
        op0=nl.subtract,
        operand0=dots,
        op1=nl.multiply,
        operand1=weights,
        dtype=q.dtype,
    )
    turned = _turned(grad_scores)
    more = nl.zeros((rows, head), nl.float32, buffer=nl.psum)
    totals[0] += nisa.nc_matmul(q, grad_scores)
    totals[1] += nisa.nc_matmul(grad_o, weights)
    for t, (_, n) in enumerate(pieces(size, TILE)):
        more += nisa.nc_matmul(turned[0:n, t, :], k_rows[t])
    return more


def _keys_and_values(k, v, h, start, size):
    """Keys with their axes swapped, (D, size), and values in tiles of 128, in SBUF."""
    keys = nl.load_transpose2d(k[h, nl.ds(start, size), :])
    tiles = [nl.load(v[h, nl.ds(start + at, n), :]) for at, n in pieces(size, TILE)]
    return keys, tiles


def scores_of(q_t, keys_t, size, scale, shift):
    """Scores of a tile of queries, in SBUF.

    Vector and Scalar Engine share a port to PSUM. So one instruction takes scores out of it, scales
    them and finds the largest; those that follow read SBUF.

    Args:
        q_t: (D, rows) in SBUF.
        keys_t: (D, at least size) in SBUF.
        size: how many of the keys.
        scale: what scores are multiplied with.
        shift: number of the first query less that of the first key, where causal; else None.

    Returns:
        Tiles of up to 512 keys, (rows, keys), and the negative of the largest score, (rows, 1).
    """
    rows, banks = q_t.shape[1], pieces(size, BANK)
    scores = []
    maxima = nl.ndarray((rows, len(banks)), dtype=nl.float32, buffer=nl.sbuf)
    for number, (at, n) in enumerate(banks):
        part = nisa.nc_matmul(q_t, keys_t[:, nl.ds(at, n)])
        largest = maxima[:, nl.ds(number, 1)]
        if shift is not None and at + n - 1 > shift:
            part = nisa.tensor_scalar(part, nl.multiply, scale)
            part = select_seen(part, shift - at, NEVER)
            maxima[:, nl.ds(number, 1)] = nisa.tensor_reduce(nl.max, part, axis=(1,), keepdims=True)
        else:
            part = nisa.tensor_scalar_reduce(
                data=part, op0=nl.multiply, operand0=scale, reduce_op=nl.max, reduce_res=largest
            )
        scores.append(part)
    return scores, nisa.tensor_reduce(nl.max, maxima, axis=(1,), negate=True, keepdims=True)


def weigh(state, scores, least, values):
    """Take some more keys into account.

    Args:
        state: largest score, sum of the weights, and weighted sum of the values, of each query, for
            the keys so far; None for the first.
        scores, least: from :func:`scores_of`.
        values: tiles of 128 rows, in SBUF.

    Returns:
        The state with these keys.
    """
    rows = least.shape[0]
    if state is not None:
        largest, total, result = state
        least = nisa.scalar_tensor_tensor(
            data=largest, op0=nl.multiply, operand0=-1.0, op1=nl.minimum, operand1=least
        )

    sums = nl.ndarray((rows, len(scores)), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.zeros((rows, values[0].shape[1]), nl.float32, buffer=nl.psum)
    for number, part in enumerate(scores):
        weights = nisa.activation_reduce(
            op=nl.exp,
            data=part,
            bias=least,
            reduce_op=nl.add,
            reduce_res=sums[:, nl.ds(number, 1)],
            dtype=values[0].dtype,
        )
        weights_t = _turned(weights)
        for t, (_, n) in enumerate(pieces(part.shape[1], TILE)):
            value = values[number * (BANK // TILE) + t]
            product += nisa.nc_matmul(weights_t[0:n, t, :], value[0:n, :])
    more = nisa.tensor_reduce(nl.add, sums, axis=(1,), keepdims=True)
    largest_now = nisa.tensor_scalar(least, nl.multiply, -1.0)
    if state is None:
        return largest_now, more, nl.copy(product)
    factor = nisa.activation(op=nl.exp, data=largest, bias=least)
    total = nisa.scalar_tensor_tensor(
        data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=more
    )
    result = nisa.scalar_tensor_tensor(
        data=result, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=product
    )
    return largest_now, total, result


def select_seen(tile, shift, otherwise):
    """Column j of row i of a tile where j <= i + shift, else a number: what query i sees."""
    i, j = nl.arange(tile.shape[0])[:, None], nl.arange(tile.shape[1])[None, :]
    return nisa.affine_select(
        pred=(i + shift >= j), on_true_tile=tile[i, j], on_false_value=otherwise
    )


def _turned(tile):
    """Up to 512 columns of a tile in SBUF as tiles of up to 128 rows: (128, tiles, rows)."""
    rows, size = tile.shape
    cuts = pieces(size, TILE)
    height = min(size, TILE)
    in_psum = nl.ndarray((height, len(cuts), rows), dtype=tile.dtype, buffer=nl.psum)
    turned = nl.ndarray((height, len(cuts), rows), dtype=tile.dtype, buffer=nl.sbuf)
    for t, (at, n) in enumerate(cuts):
        in_psum[0:n, t, :] = nisa.nc_transpose(tile[:, nl.ds(at, n)], engine=nisa.tensor_engine)
    whole = size // height
    turned[:, 0:whole, :] = nl.copy(in_psum[:, 0:whole, :])
    if whole < len(cuts):
        n = cuts[-1][1]
        turned[0:n, whole, :] = nl.copy(in_psum[0:n, whole, :])
    return turned
