"""The attention kernels on NumPy arrays: values, gradients, odd lengths, dtypes, refusals.

The reference runs in float64. In float32 the kernels' sums run in another order. In 16 bits weights
are rounded before they meet the values, each by half a step of its value, and so is the result:
together at most a step of the largest value. The gradients are made of two such products, of
operands that are rounded too; their errors are measured against the largest terms.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from differences import assert_is_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import (
    nki_attention,
    nki_attention_backward,
    nki_attention_backward_kernel,
    nki_attention_kernel,
    reference,
)

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def operands(queries, keys, head, lead=(), dtype=np.float32, seed=0, size=1.0, group=1):
    """q, k, v and grad_o; `group` query heads, of the last axis of `lead`, share a key head."""
    rng = np.random.default_rng(seed)
    of_keys = (*lead[:-1], lead[-1] // group) if lead else ()
    q_shape, k_shape = (*lead, queries, head), (*of_keys, keys, head)
    shapes = [q_shape, k_shape, k_shape, q_shape]
    q, k, v, grad_o = (rng.standard_normal(s, np.float32) for s in shapes)
    return tuple(x.astype(dtype) for x in (size * q, k, v, grad_o))


def check(q, k, v, grad_o, causal=False, scale=None):
    o, lse = nki_attention(q, k, v, scale, causal)
    assert o.dtype == q.dtype
    assert o.shape == q.shape
    assert lse.dtype == np.float32
    assert lse.shape == q.shape[:-1]
    step = float(ml_dtypes.finfo(q.dtype).eps)
    wide = [x.astype(np.float64) for x in (q, k, v, grad_o)]
    number = q.shape[-1] ** -0.5 if scale is None else scale
    exact, exact_lse = reference.attention(*wide[:3], number, causal)
    most = np.abs(wide[2]).max()
    np.testing.assert_allclose(o.astype(float), exact, rtol=0, atol=(step + 4e-6) * most)
    np.testing.assert_allclose(lse, exact_lse, rtol=4e-6, atol=4e-6 * (1 + np.abs(exact_lse).max()))

    grads = nki_attention_backward(grad_o, q, k, v, o, lse, scale, causal)
    expected = reference.attention_backward(wide[3], *wide[:3], number, causal)
    # dots are sums of grad_o * o, and o is rounded
    slack = step * np.abs(wide[3]).sum(axis=-1).max() * most + 1e-5
    factors = (np.abs(wide[1]).max() * number, np.abs(wide[0]).max() * number, 1)
    for ours, theirs, factor, x in zip(grads, expected, factors, (q, k, v), strict=True):
        assert ours.dtype == x.dtype
        assert ours.shape == x.shape
        largest = np.abs(theirs).max()
        np.testing.assert_allclose(
            ours.astype(float), theirs, rtol=0, atol=3 * step * largest + slack * factor + 1e-5
        )


# Tiles of 128 queries and keys, banks of 512 keys, blocks of 2048: below, at and above each.
LENGTHS = [(1, 1), (128, 128), (129, 127), (130, 513), (5, 2050), (1030, 3), (257, 640)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_any_length(lengths, dtype, causal, dialect):
    check(*operands(*lengths, head=40, dtype=dtype), causal)


# Two cores share even numbers of key heads; of odd ones, queries and keys.
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1, 1), (2, 1, 130, 300, 24), (1, 1, 140, 2100, 40), (4, 2, 5, 600, 8),
     (3, 3, 130, 600, 8)],
)  # fmt: skip
def test_dialects_agree_to_the_last_bit(sizes, dtype, causal, in_dialect):
    def results(**lnc):
        o, lse = nki_attention(q, k, v, None, causal, **lnc)
        return o, lse, *nki_attention_backward(grad_o, q, k, v, o, lse, None, causal, **lnc)

    heads, group, *lengths, head = sizes
    q, k, v, grad_o = operands(*lengths, head, (heads,), dtype, group=group)
    theirs = results()
    in_dialect("nki")
    one, two = results(lnc=1), results(lnc=2)
    assert [a.tobytes() for a in one] == [a.tobytes() for a in theirs]
    # The gradient of q is a sum in another order on two cores.
    for number in (0, 1, 3, 4):
        assert two[number].tobytes() == one[number].tobytes()
    exact = reference.attention_backward(
        *(x.astype(np.float64) for x in (grad_o, q, k, v)), head**-0.5, causal
    )[0]
    bound = (8 * float(ml_dtypes.finfo(dtype).eps) + 1e-4) * max(1.0, np.abs(exact).max())
    np.testing.assert_allclose(two[2].astype(float), exact, rtol=0, atol=bound)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.tuples(st.integers(1, 400), st.integers(1, 700)),
    head=st.integers(1, 128),
    lead=st.lists(st.integers(1, 2), max_size=2).map(tuple),
    group=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    causal=st.booleans(),
    scale=st.sampled_from([None, 1e-6, 0.3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_kernels_equal_the_reference(lengths, head, lead, group, dtype, causal, scale, seed):
    lead = (*lead[:-1], group * lead[-1]) if lead else ()
    check(*operands(*lengths, head, lead, dtype, seed, group=group), causal, scale)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("group", [2, 4, 8])
def test_query_heads_share_keys(group, dtype, causal, dialect):
    """Of 8 query heads; keys that no query sees are among them."""
    check(*operands(131, 520, 24, (8,), dtype, group=group), causal)


def test_shared_keys_are_as_repeated_ones(dialect):
    """To the last bit, and their gradients are the sums of those of the repeated ones."""
    q, k, v, grad_o = operands(130, 600, 24, (6,), group=3)
    repeated = [x.repeat(3, axis=0) for x in (k, v)]
    o, lse = nki_attention(q, k, v)
    whole_o, whole_lse = nki_attention(q, *repeated)
    assert (o.tobytes(), lse.tobytes()) == (whole_o.tobytes(), whole_lse.tobytes())
    grad_q, *grads = nki_attention_backward(grad_o, q, k, v, o, lse)
    whole_grad_q, *whole = nki_attention_backward(grad_o, q, *repeated, o, lse)
    assert grad_q.tobytes() == whole_grad_q.tobytes()
    for ours, parts in zip(grads, whole, strict=True):
        expected = parts.reshape(2, 3, 600, 24).sum(axis=1)
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


def test_shared_keys_are_read_once(dialect):
    """The forward kernel reads q, k and v, and writes o and lse, each once."""
    import nkisim

    kind = np.dtype(ml_dtypes.bfloat16)
    q, k = (nkisim.TensorSpec((heads, 300, 64), kind) for heads in (8, 2))
    timeline = nkisim.profile(nki_attention_kernel, q, k, k, 0.125, True)
    elements = 300 * 64 * (8 + 2 + 2 + 8)
    assert timeline.hbm_bytes == 2 * elements + 4 * 8 * 300


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_operands_that_do_not_stay_in_sbuf(dtype, monkeypatch, dialect):
    """Keys and values, and in the backward kernel queries, are loaded where they are used."""
    monkeypatch.setattr(f"kernels.attention.{dialect}.KEPT_BYTES", 0)
    for causal in (False, True):
        check(*operands(300, 2100, 24, dtype=dtype), causal)
        check(*operands(140, 600, 24, (2,), dtype, group=2), causal)


def test_a_larger_score_in_each_block(dialect):
    """Scores that grow along the keys: what was summed up before is made smaller each time."""
    q, k, v, grad_o = operands(3, 6200, 8)
    k[:, 0] += np.linspace(0, 60, 6200, dtype=np.float32)
    q[:, 0] = 10
    check(q, k, v, grad_o)
    check(q, k[::-1], v, grad_o)  # the largest comes first


def test_large_scores_do_not_overflow(dialect):
    q, k, v, _ = operands(130, 600, 16, size=1e3)
    o, lse = nki_attention(q, k, v)
    assert np.isfinite(o).all()
    assert np.isfinite(lse).all()
    with np.errstate(over="ignore"):
        assert not np.isfinite(np.exp(lse)).all()


def test_causal_is_that_of_the_first_key(dialect):
    """Query 0 sees key 0 alone; keys behind the last query get no gradient."""
    q, k, v, grad_o = operands(5, 700, 8)
    o, lse = nki_attention(q, k, v, None, True)
    np.testing.assert_allclose(o[0], v[0], rtol=1e-6)
    _, grad_k, grad_v = nki_attention_backward(grad_o, q, k, v, o, lse, None, True)
    assert not grad_k[5:].any()
    assert not grad_v[5:].any()
    assert grad_v[:5].all()


def test_reference_gradients_equal_finite_differences():
    one = operands(3, 4, 2)
    shared = operands(3, 4, 2, (4,), group=2)
    for arrays, causal in itertools.product((one, shared), (False, True)):
        *given, grad_o = (x.astype(np.float64) for x in arrays)
        found = reference.attention_backward(grad_o, *given, 0.7, causal)
        loss = lambda *x: (reference.attention(*x, 0.7, causal)[0] * grad_o).sum()  # noqa: B023, E731
        assert_is_gradient(found, loss, given)


@pytest.mark.parametrize("n", [128, 129, 512, 513, 700])
def test_scores_are_masked_only_where_a_query_does_not_see_a_key(n):
    """And not where a block ends with the one key that its one query sees: a select is time."""
    q, k, v, grad_o = operands(n, n, 8, (1,))
    o, lse = nki_attention(q, k, v, None, True)
    hidden = np.arange(n)[None] > np.arange(n)[:, None]  # by query and key
    tiles = [slice(first, min(first + 128, n)) for first in range(0, n, 128)]
    banks = [slice(first, min(first + 512, n)) for first in range(0, n, 512)]
    forward = backward = 0
    for tile in tiles:
        for bank in banks:
            if bank.start < tile.stop:  # else no query of the tile sees a key of the bank
                # Forward reads no key after the tile's last query, backward all of the bank.
                forward += hidden[tile, bank.start : min(bank.stop, tile.stop)].any()
                backward += hidden[tile, bank].any()

    for kernel, args, expected in (
        (nki_attention_kernel, (q, k, v, 1.0, True), forward),
        (
            nki_attention_backward_kernel,
            (grad_o, q, k, v, o, lse[..., None], 1.0, True),
            backward,
        ),
    ):
        instructions = kernel.specialize(args, {}).program.instructions
        assert sum(i.opcode == "affine_select" for i in instructions) == expected


def test_memory_fits_the_chip():
    """The longest sequence, with the least and the most that a head takes."""
    import nkisim

    for head, dtype in ((128, np.float32), (64, ml_dtypes.bfloat16)):
        x = nkisim.TensorSpec((1, 256, head), np.dtype(dtype))
        long = nkisim.TensorSpec((1, 4096, head), np.dtype(dtype))
        lse = nkisim.TensorSpec((1, 4096, 1), np.dtype(np.float32))
        forward = nkisim.profile(nki_attention_kernel, x, long, long, 1.0, False)
        backward = nkisim.profile(
            nki_attention_backward_kernel, long, long, x, x, long, lse, 1.0, False
        )
        for timeline in (forward, backward):
            assert "spill" not in timeline.summary().lower()


Q, K, V, _ = operands(4, 6, 8)
BATCH = np.ones((4, 5, 4, 8), np.float32)


def heads_of(*counts):
    """q, k and v with that many heads."""
    return (BATCH[0, :n] for n in counts)


@pytest.mark.parametrize(
    ("q", "k", "v", "options", "error", "message"),
    [
        (Q, K[:, :7], V, {}, ValueError, r"\(4, 8\), \(6, 7\) and \(6, 8\)"),
        (Q, K, V[:5], {}, ValueError, r"\(..., G, K, D\)"),
        (Q, K, V[:, :7], {}, ValueError, r"\(..., G, K, D\)"),
        (
            *heads_of(5, 2, 2),
            {},
            ValueError,
            r"q has 5 heads and k 2 .* 5 heads of k and v, or a div",
        ),
        (*heads_of(2, 4, 4), {}, ValueError, "q has 2 heads and k 4"),
        (*heads_of(4, 0, 0), {}, ValueError, "q has 4 heads and k 0"),
        (*heads_of(0, 2, 2), {}, ValueError, "q has 0 heads and k 2"),
        (*heads_of(4, 2, 4), {}, ValueError, r"\(4, 4, 8\), \(2, 4, 8\) and \(4, 4, 8\)"),
        (BATCH[:3], *(BATCH[:2],) * 2, {}, ValueError, "the same axes in front of"),
        (Q[None], K, V, {}, ValueError, "the same axes in front"),
        (Q[0], K[0], V[0], {}, ValueError, r"\(..., H, Q, D\)"),
        (Q[:, :0], K[:, :0], V[:, :0], {}, ValueError, "heads of 0"),
        (*(np.ones((2, 129), np.float32),) * 3, {}, ValueError, "heads of 129"),
        (*(np.ones((16385, 1), np.float32),) * 3, {}, ValueError, "a sequence of 16385"),
        (Q[:0], K, V, {}, ValueError, "no elements"),
        (Q, K[:0], V[:0], {}, ValueError, "no elements"),
        (Q, K, V, {"scale": -1.0}, ValueError, "scale is -1.0"),
        (Q, K, V, {"scale": 0.0}, ValueError, "scale is 0.0"),
        (Q, K, V, {"scale": np.nan}, ValueError, "scale is nan"),
        (Q.astype(int), K, V, {}, TypeError, "q is int64"),
        (Q, K.astype(np.float16), V, {}, TypeError, "q is float32 and k float16"),
        (Q, K, [[1.0]], {}, TypeError, "v is a list"),
    ],
)
def test_refused_inputs(q, k, v, options, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_attention(q, k, v, **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grad_o": Q[:3]}, r"grad_o is float32 of shape \(3, 8\)"),
        ({"o": Q.astype(np.float16)}, "o is float16"),
        ({"lse": np.ones((4, 1), np.float32)}, r"float32 of shape \(4,\)"),
    ],
)
def test_refused_gradients(change, message, dialect):
    args = {"grad_o": Q, "q": Q, "k": K, "v": V, "o": Q, "lse": np.ones(4, np.float32)} | change
    with pytest.raises(ValueError, match=message):
        nki_attention_backward(**args)
