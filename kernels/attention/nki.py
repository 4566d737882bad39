"""Attention in ``import nki``, forward and backward.

The algorithm, flash attention, is that of ``neuronxcc``, whose text explains it. What differs:
each instruction names its destination; ``accumulate`` says which product is added to those before
it; a causal mask is a pattern of steps in place of a predicate over indices; the cores of a logical
core share heads, queries or keys. On one core the results are those of `neuronxcc.nki`, to the
last bit; two cores that share the keys of a head add up the gradient of its queries in another
order.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.attention.arguments import (
    BANK,
    BLOCK,
    KEPT_BYTES,
    NEVER,
    TILE,
)
from kernels.tiles import ITEM_BYTES, pieces


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
        Launch as ``kernel[1]`` or ``kernel[2]``: two cores share the key heads where they are even
        in number, else the queries of each. Scores, maxima, sums and the output's sum are float32.
        Weights are rounded to the dtype of ``v`` before they are multiplied with it, and are
        divided by their sum after that. Keys and values stay in SBUF for all queries that share
        them, if they take no more than 64 KiB a partition. Tiles have the size that is left:
        nothing is masked but causal scores.

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
    heads, n_queries, head = q.shape
    key_heads, n_keys = k.shape[0], k.shape[1]
    group = heads // key_heads
    o = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    lse = nl.ndarray((heads, n_queries, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    keep = 2 * n_keys * ITEM_BYTES[k.dtype] <= KEPT_BYTES
    blocks = pieces(n_keys, BLOCK)
    tiles = [(i, *tile) for i in range(group) for tile in pieces(n_queries, TILE)]
    by_head = key_heads % nl.num_programs(0) == 0

    for g in _turns(key_heads, by_head):
        if keep:
            kept = [_keys_and_values(k, v, g, start, size) for start, size in blocks]
        for tile in _turns(len(tiles), not by_head):
            member, first, rows = tiles[tile]
            h = g * group + member
            q_t = _transposed(q[h, first : first + rows, 0:head])
            state = None
            for number in range(len(blocks)):
                start, size = blocks[number]
                shift = first - start if causal else None
                if causal:
                    size = min(size, first + rows - start)
                if size <= 0:  # no query sees these keys
                    break
                if keep:
                    keys, values = kept[number]
                else:
                    keys, values = _keys_and_values(k, v, g, start, blocks[number][1])
                scores, least = scores_of(q_t, keys, size, scale, shift)
                state = weigh(state, scores, least, values)
            _store(o[h, first : first + rows, 0:head], lse[h, first : first + rows, 0:1], state)
    return o, lse


def _store(o, lse, state):
    """Divide the weighted sum by the sum of the weights; store it, and the logarithm of the sum."""
    largest, total, result = state
    share, logarithm, both = _number(total), _number(total), _number(total)
    output = nl.ndarray(result.shape, dtype=o.dtype, buffer=nl.sbuf)
    nisa.reciprocal(dst=share, data=total)
    nisa.tensor_scalar(dst=output, data=result, op0=nl.multiply, operand0=share)
    nisa.dma_copy(dst=o, src=output)
    nisa.activation(dst=logarithm, op=nl.log, data=total)
    nisa.tensor_tensor(dst=both, data1=largest, data2=logarithm, op=nl.add)
    nisa.dma_copy(dst=lse, src=both)


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
        Launch as ``kernel[1]`` or ``kernel[2]``: two cores share the key heads where they are even
        in number, else the keys of each, and then add up their parts of grad_q. Weights are
        computed again, from the scores and ``lse``. Weights and gradients of scores are rounded to
        the dtype of ``q`` before they are multiplied; all sums are float32 and rounded once. The
        gradients of 512 keys are summed up in PSUM over the queries of a head, that of the queries
        in SBUF over all keys. Over the heads that share keys, their gradients are summed up in HBM,
        in float32.

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
    key_heads, n_keys = k.shape[0], k.shape[1]
    group = heads // key_heads
    grad_q = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    grad_k = nl.ndarray(k.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    grad_v = nl.ndarray(k.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    tiles = pieces(n_queries, TILE)
    banks = pieces(n_keys, BANK)
    keep = 4 * n_queries * ITEM_BYTES[q.dtype] <= KEPT_BYTES
    height = min(n_queries, TILE)
    by_head = key_heads % nl.num_programs(0) == 0
    # Over the heads before that share keys, with axes swapped; none where each has its own.
    shape = (key_heads, head, n_keys)
    copies = range(2 if group > 1 else 0)
    before = [nl.ndarray(shape, dtype=nl.float32, buffer=nl.private_hbm) for _ in copies]

    for g in _turns(key_heads, by_head):
        for member in range(group):
            h = g * group + member
            # The sum of the gradient of each query, and two numbers a query.
            sums = nl.ndarray((height, len(tiles), head), dtype=nl.float32, buffer=nl.sbuf)
            shifts = nl.ndarray((height, len(tiles)), dtype=nl.float32, buffer=nl.sbuf)
            dots = nl.ndarray((height, len(tiles)), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=sums, value=0.0)
            for i in range(len(tiles)):
                first, rows = tiles[i]
                last = first + rows
                products = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.sbuf)
                grads = _loaded(grad_o[h, first:last, 0:head])
                outputs = _loaded(o[h, first:last, 0:head])
                less = _loaded(lse[h, first:last, 0:1])
                nisa.tensor_tensor(dst=products, data1=grads, data2=outputs, op=nl.multiply)
                nisa.tensor_reduce(
                    dst=dots[0:rows, i : i + 1], op=nl.add, data=products, axis=1, keepdims=True
                )
                nisa.tensor_scalar(
                    dst=shifts[0:rows, i : i + 1], data=less, op0=nl.multiply, operand0=-1.0
                )
            if keep:
                kept = [_queries(q, grad_o, h, first, rows) for first, rows in tiles]

            for bank in _turns(len(banks), not by_head):
                start, size = banks[bank]
                stop = start + size
                keys = _keys(k, v, g, start, size)
                seen = [i for i in range(len(tiles)) if not causal or sum(tiles[i]) > start]
                totals = None
                if seen:
                    shape = (head, size)
                    totals = [nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum) for _ in range(2)]
                for i in seen:
                    first, rows = tiles[i]
                    queries = kept[i] if keep else _queries(q, grad_o, h, first, rows)
                    numbers = shifts[0:rows, i : i + 1], dots[0:rows, i : i + 1]
                    shift = first - start if causal else None
                    more = _backward_tile(queries, keys, numbers, totals, i > seen[0], scale, shift)
                    part = sums[0:rows, i, 0:head]
                    nisa.tensor_tensor(dst=part, data1=part, data2=more, op=nl.add)
                if seen and group > 1:
                    so_far = [x[g, 0:head, start:stop] for x in before]
                    totals = _added_up(totals, so_far, member > 0, member < group - 1)
                if member == group - 1:
                    place = [x[g, start:stop, 0:head] for x in (grad_k, grad_v)]
                    _store_of_keys(place, totals, scale)

            if not by_head:
                # Each core has a part of the gradient of all queries, and
                # stores half of the sum.
                other = 1 - nl.program_id(0)
                from_other = nl.ndarray(sums.shape, dtype=nl.float32, buffer=nl.sbuf)
                nisa.sendrecv(
                    src=sums,
                    dst=from_other,
                    send_to_rank=other,
                    recv_from_rank=other,
                    pipe_id=0,
                )
                nisa.tensor_tensor(dst=sums, data1=sums, data2=from_other, op=nl.add)
            for i in _turns(len(tiles), not by_head):
                first, rows = tiles[i]
                result = nl.ndarray((rows, head), dtype=q.dtype, buffer=nl.sbuf)
                nisa.tensor_scalar(
                    dst=result, data=sums[0:rows, i, 0:head], op0=nl.multiply, operand0=scale
                )
                nisa.dma_copy(dst=grad_q[h, first : first + rows, 0:head], src=result)
    return grad_q, grad_k, grad_v


def _added_up(totals, so_far, add, keep):
    """Sums of the gradients of k and v over the heads so far, in SBUF.

    Args:
        totals: those of a head, (D, keys), float32.
        so_far: those of the heads before, (D, keys) in HBM.
        add: whether there are any.
        keep: whether a head follows that adds to the result, which is stored for it.
    """
    results = []
    for i in range(2):
        result = nl.ndarray(totals[i].shape, dtype=nl.float32, buffer=nl.sbuf)
        if add:
            nisa.tensor_tensor(dst=result, data1=totals[i], data2=_loaded(so_far[i]), op=nl.add)
        else:
            nisa.tensor_copy(dst=result, src=totals[i])
        if keep:
            nisa.dma_copy(dst=so_far[i], src=result)
        results.append(result)
    return results


def _store_of_keys(place, totals, scale):
    """Store the gradients of up to 512 keys and values, in HBM at `place`. Their sums are `totals`,
    (D, keys); None where no query sees these keys."""
    size, head = place[0].shape
    dtype = place[0].dtype
    if totals == None:
        cuts = len(pieces(size, TILE))
        of_keys = nl.ndarray((min(size, TILE), cuts, head), dtype=dtype, buffer=nl.sbuf)
        nisa.memset(dst=of_keys, value=0.0)
        of_values = of_keys
    else:
        sides = [nl.ndarray((head, size), dtype=dtype, buffer=nl.sbuf) for _ in range(2)]
        nisa.tensor_scalar(dst=sides[0], data=totals[0], op0=nl.multiply, operand0=scale)
        nisa.tensor_copy(dst=sides[1], src=totals[1])
        of_keys = _turned(sides[0], nisa.engine.unknown)
        of_values = _turned(sides[1], nisa.engine.unknown)
    for at, n in pieces(size, TILE):
        t = at // TILE
        nisa.dma_copy(dst=place[0][at : at + n, 0:head], src=of_keys[0:n, t, 0:head])
        nisa.dma_copy(dst=place[1][at : at + n, 0:head], src=of_values[0:n, t, 0:head])


def _turns(count, shared):
    """Numbers from 0 to count - 1: every second one, with two cores that share them, else all."""
    if shared:
        return range(nl.program_id(0), count, nl.num_programs(0))
    return range(count)


def _number(like):
    """A float32 number for each partition of a tile."""
    return nl.ndarray((like.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)


def _loaded(part):
    """A part of an HBM tensor in SBUF."""
    tile = nl.ndarray(part.shape, dtype=part.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=part)
    return tile


def _transposed(part):
    """A part of an HBM tensor in SBUF, with its axes swapped."""
    tile = nl.ndarray((part.shape[1], part.shape[0]), dtype=part.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(dst=tile, src=part)
    return tile


def _queries(q, grad_o, h, first, rows):
    """128 rows of q and grad_o in SBUF, each also with its axes swapped."""
    head = q.shape[2]
    ours, theirs = q[h, first : first + rows, 0:head], grad_o[h, first : first + rows, 0:head]
    return _loaded(ours), _transposed(ours), _loaded(theirs), _transposed(theirs)


def _keys(k, v, h, start, size):
    """512 rows of k and v in SBUF with axes swapped, and those of k in tiles of 128 rows, too."""
    head, stop = k.shape[2], start + size
    rows = [_loaded(k[h, start + at : start + at + n, 0:head]) for at, n in pieces(size, TILE)]
    return _transposed(k[h, start:stop, 0:head]), _transposed(v[h, start:stop, 0:head]), rows


def _keys_and_values(k, v, h, start, size):
    """Keys with their axes swapped, (D, size), and values in tiles of 128, in SBUF."""
    head = k.shape[2]
    tiles = [_loaded(v[h, start + at : start + at + n, 0:head]) for at, n in pieces(size, TILE)]
    return _transposed(k[h, start : start + size, 0:head]), tiles


def _backward_tile(queries, keys, numbers, totals, add, scale, shift):
    """What 128 queries and 512 keys give to the gradients of both.

    Args:
        queries, keys: from :func:`_queries` and :func:`_keys`.
        numbers: -lse, and the sum of grad_o * o, of each query: (rows, 1).
        totals: sums of the gradients of k and v, with axes swapped, (D, keys) in PSUM. Each fills a
            bank, which holds one accumulation group.
        add: whether to add to the totals; else they begin here.
        scale: of the scores.
        shift: number of the first query less that of the first key, where causal; else None.

    Returns:
        What is to be added to the gradient of q: (rows, D) in PSUM.
    """
    q, q_t, grad_o, grad_o_t = queries
    k_t, v_t, k_rows = keys
    less_lse, dots = numbers
    (rows, head), size = q.shape, k_t.shape[1]

    scores = nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.psum)
    weights = nl.ndarray((rows, size), dtype=q.dtype, buffer=nl.sbuf)
    nisa.nc_matmul(dst=scores, stationary=q_t, moving=k_t, accumulate=False)
    nisa.activation(dst=weights, op=nl.exp, data=scores, bias=less_lse, scale=scale)
    if shift != None and size - 1 > shift:
        weights = select_seen(weights, shift, 0.0)
    grad_weights = nl.ndarray((rows, size), dtype=nl.float32, buffer=nl.psum)
    grad_scores = nl.ndarray((rows, size), dtype=q.dtype, buffer=nl.sbuf)
    nisa.nc_matmul(dst=grad_weights, stationary=grad_o_t, moving=v_t, accumulate=False)
    nisa.scalar_tensor_tensor(
        dst=grad_scores,
        data=grad_weights,
        op0=nl.subtract,
        operand0=dots,
        op1=nl.multiply,
        operand1=weights,
    )
    turned = _turned(grad_scores, nisa.engine.unknown)
    more = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=totals[0], stationary=q, moving=grad_scores, accumulate=add)
    nisa.nc_matmul(dst=totals[1], stationary=grad_o, moving=weights, accumulate=add)
    for at, n in pieces(size, TILE):
        t = at // TILE
        nisa.nc_matmul(
            dst=more, stationary=turned[0:n, t, 0:rows], moving=k_rows[t], accumulate=t > 0
        )
    return more


def scores_of(q_t, keys_t, size, scale, shift):
    """Scores of a tile of queries, in SBUF.

    Args:
        q_t: (D, rows) in SBUF.
        keys_t: (D, at least size) in SBUF.
        size: how many of the keys.
        scale: what scores are multiplied with.
        shift: number of the first query less that of the first key, where causal; else None.

    Returns:
        Tiles of up to 512 keys, (rows, keys), and the negative of the largest score, (rows, 1).
    """
    depth, rows = q_t.shape
    banks = pieces(size, BANK)
    scores = []
    maxima = nl.ndarray((rows, len(banks)), dtype=nl.float32, buffer=nl.sbuf)
    for number in range(len(banks)):
        at, n = banks[number]
        product = nl.ndarray((rows, n), dtype=nl.float32, buffer=nl.psum)
        part = nl.ndarray((rows, n), dtype=nl.float32, buffer=nl.sbuf)
        largest = maxima[0:rows, number : number + 1]
        nisa.nc_matmul(
            dst=product, stationary=q_t, moving=keys_t[0:depth, at : at + n], accumulate=False
        )
        if shift != None and at + n - 1 > shift:
            nisa.tensor_scalar(dst=part, data=product, op0=nl.multiply, operand0=scale)
            part = select_seen(part, shift - at, NEVER)
            nisa.tensor_reduce(dst=largest, op=nl.maximum, data=part, axis=1, keepdims=True)
        else:
            nisa.tensor_scalar_reduce(
                dst=part,
                data=product,
                op0=nl.multiply,
                operand0=scale,
                reduce_op=nl.maximum,
                reduce_res=largest,
            )
        scores.append(part)
    least = _number(maxima)
    nisa.tensor_reduce(dst=least, op=nl.maximum, data=maxima, axis=1, negate=True, keepdims=True)
    return scores, least


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
    rows, head = least.shape[0], values[0].shape[1]
    if state != None:
        largest, total, result = state
        smaller = _number(least)
        nisa.scalar_tensor_tensor(
            dst=smaller,
            data=largest,
            op0=nl.multiply,
            operand0=-1.0,
            op1=nl.minimum,
            operand1=least,
        )
        least = smaller

    sums = nl.ndarray((rows, len(scores)), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.psum)
    for number in range(len(scores)):
        part = scores[number]
        size = part.shape[1]
        weights = nl.ndarray((rows, size), dtype=values[0].dtype, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=weights,
            op=nl.exp,
            data=part,
            bias=least,
            reduce_op=nl.add,
            reduce_res=sums[0:rows, number : number + 1],
        )
        # Powers and logarithms keep the Scalar Engine busy, so the Vector Engine copies.
        weights_t = _turned(weights, nisa.engine.vector)
        for at, n in pieces(size, TILE):
            t = at // TILE
            nisa.nc_matmul(
                dst=product,
                stationary=weights_t[0:n, t, 0:rows],
                moving=values[number * (BANK // TILE) + t][0:n, 0:head],
                accumulate=number + t > 0,
            )
    more, largest_now = _number(least), _number(least)
    nisa.tensor_reduce(dst=more, op=nl.add, data=sums, axis=1, keepdims=True)
    nisa.tensor_scalar(dst=largest_now, data=least, op0=nl.multiply, operand0=-1.0)
    result_now = nl.ndarray((rows, head), dtype=nl.float32, buffer=nl.sbuf)
    if state == None:
        nisa.tensor_copy(dst=result_now, src=product)
        return largest_now, more, result_now
    factor, total_now = _number(least), _number(least)
    nisa.activation(dst=factor, op=nl.exp, data=largest, bias=least)
    for dst, before, here in ((total_now, total, more), (result_now, result, product)):
        nisa.scalar_tensor_tensor(
            dst=dst, data=before, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=here
        )
    return largest_now, total_now, result_now


def select_seen(tile, shift, otherwise):
    """Column j of row i of a tile where j <= i + shift, else a number: what query i sees."""
    chosen = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.affine_select(
        dst=chosen,
        pattern=[[-1, tile.shape[1]]],
        channel_multiplier=1,
        offset=shift,
        on_true_tile=tile,
        on_false_value=otherwise,
        cmp_op=nl.greater_equal,
    )
    return chosen


def _turned(tile, engine):
    """Up to 512 columns of a tile in SBUF as tiles of up to 128 rows: (128, tiles, rows).

    The Tensor Engine transposes into PSUM; `engine` copies from there.
    """
    rows, size = tile.shape
    cuts = pieces(size, TILE)
    height = min(size, TILE)
    in_psum = nl.ndarray((height, len(cuts), rows), dtype=tile.dtype, buffer=nl.psum)
    turned = nl.ndarray((height, len(cuts), rows), dtype=tile.dtype, buffer=nl.sbuf)
    for at, n in cuts:
        nisa.nc_transpose(dst=in_psum[0:n, at // TILE, 0:rows], data=tile[0:rows, at : at + n])
    whole = size // height
    nisa.tensor_copy(
        dst=turned[0:height, 0:whole, 0:rows],
        src=in_psum[0:height, 0:whole, 0:rows],
        engine=engine,
    )
    if whole < len(cuts):
        n = cuts[-1][1]
        nisa.tensor_copy(
            dst=turned[0:n, whole, 0:rows], src=in_psum[0:n, whole, 0:rows], engine=engine
        )
    return turned
