"""Attention in `import nki`: values, gradients, lengths, frameworks, cores, and the older dialect.

Errors are bounded as in test_attention, which says where the tolerances come from.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.attention import neuronxcc, nki, reference
from kernels.attention.nki import nki_attention, nki_attention_backward
from nkisim import KernelError

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# Heads, queries, keys, elements: 130 queries need a second tile, 2100 keys a second bank and
# block. Two cores share even numbers of heads; of odd ones, queries and keys.
SIZES = [(1, 1, 1, 1), (2, 130, 300, 24), (1, 140, 2100, 40)]


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def operands(heads, queries, keys, head, dtype=np.float32):
    rng = np.random.default_rng(0)
    shapes = [(heads, n, head) for n in (queries, keys, keys, queries)]
    return [rng.standard_normal(s, np.float32).astype(dtype) for s in shapes]


def both(module, q, k, v, grad_o, causal, **lnc):
    """o, lse and the three gradients."""
    o, lse = module.nki_attention(q, k, v, None, causal, **lnc)
    grads = module.nki_attention_backward(grad_o, q, k, v, o, lse, None, causal, **lnc)
    return o, lse, *grads


def check(results, q, k, v, grad_o, causal):
    """Against NumPy in float64; the bounds of test_attention, which says where they come from."""
    o, lse, *grads = results
    step = float(ml_dtypes.finfo(q.dtype).eps)
    wide = [x.astype(np.float64) for x in (q, k, v, grad_o)]
    scale = q.shape[-1] ** -0.5
    exact, exact_lse = reference.attention(*wide[:3], scale, causal)
    most = np.abs(wide[2]).max()
    np.testing.assert_allclose(o.astype(float), exact, rtol=0, atol=(step + 4e-6) * most)
    np.testing.assert_allclose(lse, exact_lse, rtol=4e-6, atol=4e-6 * (1 + np.abs(exact_lse).max()))
    expected = reference.attention_backward(wide[3], *wide[:3], scale, causal)
    for grad, wanted, like in zip(grads, expected, (q, k, v), strict=True):
        assert (grad.dtype, grad.shape) == (like.dtype, like.shape)
        bound = (8 * step + 1e-4) * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(grad.astype(float), wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_any_length(sizes, dtype, causal):
    """Against the reference; to the last bit against the older dialect, and on two cores."""
    arrays = operands(*sizes, dtype)
    one = both(nki, *arrays, causal)
    check(one, *arrays, causal)
    for ours, theirs in zip(one, both(neuronxcc, *arrays, causal), strict=True):
        assert ours.tobytes() == theirs.tobytes()
    two = both(nki, *arrays, causal, lnc=2)
    check(two, *arrays, causal)
    for number, (ours, theirs) in enumerate(zip(two, one, strict=True)):
        if number != 2:  # the gradient of q is a sum in another order
            assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("causal", [False, True])
def test_operands_that_do_not_stay_in_sbuf(causal, monkeypatch):
    """Keys and values, and in the backward kernel queries, are loaded where they are used."""
    monkeypatch.setattr(nki, "KEPT_BYTES", 0)
    arrays = operands(1, 200, 2100, 24)
    for lnc in (1, 2):
        check(both(nki, *arrays, causal, lnc=lnc), *arrays, causal)


def test_refused_inputs():
    q, k, v, grad_o = operands(1, 4, 6, 8)
    with pytest.raises(ValueError, match="They must be"):
        nki_attention(q, k, v[:, :5])
    with pytest.raises(TypeError, match="q is float32 and v float16"):
        nki_attention(q, k, v.astype(np.float16))
    with pytest.raises(ValueError, match="an axis of no elements"):
        nki_attention(q[:, :0], k, v)
    o, lse = nki_attention(q, k, v)
    with pytest.raises(ValueError, match="lse is float32 of shape"):
        nki_attention_backward(grad_o, q, k, v, o, lse[:, :3])
    with pytest.raises(KernelError, match="1 or 2"):
        nki_attention(q, k, v, lnc=3)
