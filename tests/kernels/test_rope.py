"""The kernel of the rotary embedding in both dialects: values, gradients, odd shapes, refusals.

Each product and sum is one float32 operation, as in the reference, so that results are equal to the
last bit.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.rope import nki_rope, reference

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# 129 positions need a second tile; 33 heads of 64 a second one, too; 2048 elements fill one.
SHAPES = [(1, 2), (129, 6), (33, 5, 64), (2, 3, 130, 16), (3, 7, 2048)]


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(shape, dtype, dialect):
    x, tables = draw(shape, dtype), reference.rotations(*shape[-2:])
    y, grad = nki_rope(x, *tables), nki_rope(x, *tables, inverse=True)
    for found, expected in (
        (y, reference.rope(x, *tables)),
        (grad, reference.rope_backward(x, *tables)),
    ):
        assert (found.shape, found.dtype) == (x.shape, x.dtype)
        assert found.tobytes() == expected.tobytes()
    if dialect == "nki":
        assert nki_rope(x, *tables, lnc=2).tobytes() == y.tobytes()


def test_the_reference_rotates():
    """Lengths of pairs stay, and a product of two rotated heads depends on their distance."""
    x = draw((50, 8)).astype(np.float64)
    tables = reference.rotations(50, 8)
    y = reference.rope(x, *tables)
    lengths = [np.hypot(*np.split(a, 2, axis=-1)) for a in (x, y)]
    np.testing.assert_allclose(*lengths, rtol=1e-6)
    q, k = (reference.rope(np.broadcast_to(x[i], (50, 8)), *tables) for i in (0, 1))
    scores = q @ k.T
    np.testing.assert_allclose(scores[3:, 3:], scores[:-3, :-3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(reference.rope_backward(y, *tables), x, rtol=1e-6, atol=1e-6)


X, (COS, SIN) = draw((4, 6)), reference.rotations(4, 6)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X[:, :5], COS, SIN), ValueError, "heads of 5 elements"),
        ((draw((2, 4096)), COS, SIN), ValueError, "even number of 2 to 2048"),
        ((X[0], COS, SIN), ValueError, "must be"),
        ((X, COS[:3], SIN), ValueError, r"cos has shape \(3, 3\)"),
        ((X, COS, SIN.astype(np.float16)), TypeError, "sin is float16"),
        ((X, COS, [1.0]), TypeError, "sin is a list"),
        ((X[:0], COS[:0], SIN[:0]), ValueError, "no elements"),
        ((X.astype(np.float64), COS, SIN), TypeError, "x is float64"),
    ],
)
def test_refused_inputs(args, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_rope(*args)


def test_tables_in_frameworks():
    """A batch of tables is one launch an element; tables have no gradient."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from kernels.rope import jax_op, torch_op

    x, cos, sin = draw((3, 4, 6)), *(draw((3, 4, 3), seed=i) for i in (1, 2))
    expected = np.stack([reference.rope(*one) for one in zip(x, cos, sin, strict=True)])
    tensors = [torch.from_numpy(a) for a in (x, cos, sin)]
    np.testing.assert_array_equal(torch.vmap(torch_op.rope)(*tensors), expected)
    np.testing.assert_array_equal(jax.vmap(jax_op.rope)(x, cos, sin), expected)
    np.testing.assert_array_equal(
        jax.vmap(jax_op.rope, (None, 0, 0))(x[0], cos, sin),
        np.stack([reference.rope(x[0], *one) for one in zip(cos, sin, strict=True)]),
    )
    with pytest.raises(ValueError, match="wants a gradient"):
        torch_op.rope(tensors[0], tensors[1][0].requires_grad_(), tensors[2][0])
    grad = jax.grad(lambda cos: jax_op.rope(x, cos, sin[0]).sum())(cos[0])
    assert not grad.any()
