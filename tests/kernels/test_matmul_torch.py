"""Matmul in PyTorch: values, gradients, second derivatives, transforms, devices, refusals.

Tolerances: in float32 a sum of K products may run in another order than PyTorch's, which moves the
result by a few 1e-7 of its terms; 16-bit results agree within one step of their dtype, since either
side rounds a float32 value that may lie near the middle between two of them.
"""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch")
with contextlib.suppress(ImportError):
    import torch_xla

    # Before any backward pass: autograd knows only the devices that exist when it first runs.
    torch_xla.device()

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kernels.matmul.torch_op import matmul  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: {"rtol": 2e-6, "atol": 5e-5},
    torch.float16: {"rtol": 2**-9, "atol": 5e-3},
    torch.bfloat16: {"rtol": 2**-6, "atol": 5e-2},
}


def draw(*shape, dtype=torch.float32, grad=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


def gradients(product, a, b):
    c = product(a, b)
    grad_c = draw(*c.shape, dtype=torch.bfloat16, seed=2)  # numbers that every dtype has
    return torch.autograd.grad(c, (a, b), grad_c.to(c.device, c.dtype))


@settings(max_examples=20, deadline=None)
@given(
    lead=st.lists(st.integers(0, 12), max_size=3).map(tuple),
    k=st.integers(0, 150),
    n=st.integers(0, 600),
    dtype=st.sampled_from(DTYPES),
)
def test_values_and_gradients(lead, k, n, dtype):
    """Axes of no elements included."""
    a, b = draw(*lead, k, dtype=dtype, grad=True), draw(k, n, dtype=dtype, grad=True, seed=1)
    ours, theirs = matmul(a, b), torch.matmul(a.double(), b.double())
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), theirs, **TOLERANCE[dtype])
    wide = [x.detach().double().requires_grad_() for x in (a, b)]
    for mine, other in zip(gradients(matmul, a, b), gradients(torch.matmul, *wide), strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), other, **TOLERANCE[dtype])


@pytest.mark.parametrize("dims", [(0, None), (1, None), (None, 0), (0, 2), (1, 1)])
@pytest.mark.parametrize("size", [0])
def test_vmap(dims, size):
    a, b = draw(4, 6), draw(6, 5, seed=1)
    a, b = (
        x if d is None else torch.stack([x + i for i in range(3)], d).narrow(d, 0, size)
        for x, d in zip((a, b), dims, strict=True)
    )
    ours, theirs = (torch.func.vmap(f, dims)(a, b) for f in (matmul, torch.matmul))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (draw(4, 6), draw(5, 6), ValueError, "contraction of 6 with 5"),
        (draw(4, 6), draw(2, 6, 5), ValueError, "vmap"),
        (draw(4, 6), draw(6), ValueError, "b is a matrix"),
        (draw(4, 6).double(), draw(6, 5).double(), TypeError, "float64"),
        (draw(4, 6).half(), draw(6, 5), TypeError, "float16 and b float32"),
        (draw(4, 6).int(), draw(6, 5), TypeError, "int32"),
        ([[1.0]], draw(6, 5), TypeError, "input is a list"),
    ],
)
def test_refused_inputs(a, b, error, message):
    with pytest.raises(error, match=message):
        matmul(a, b)
