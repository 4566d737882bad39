"""Average pooling in PyTorch: values, gradients, transforms and devices, against PyTorch's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch_devices  # noqa: E402, F401
from hypothesis import assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from kernels.avgpool.torch_op import avg_pool2d  # noqa: E402

theirs = torch.nn.functional.avg_pool2d


# PyTorch adds in float32 as well, in another order, and rounds once: see test_avgpool.py.
def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=2e-6, atol=5e-6)


def image(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@st.composite
def arguments(draw):
    kernel = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    stride = draw(st.none() | st.tuples(st.integers(1, 8), st.integers(1, 8)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    divisor = draw(st.none() | st.sampled_from([1, 3, -2]))
    return kernel, stride, padding, draw(st.booleans()), draw(st.booleans()), divisor


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 17), st.integers(1, 17)),
    window=arguments(),
)
def test_equals_pytorch(shape, window):
    """Values and gradients, and the shapes that are refused."""
    x, y = (image(*shape).requires_grad_() for _ in "xy")
    try:
        expected = theirs(x, *window)
    except RuntimeError:
        with pytest.raises(ValueError, match="no window fits"):
            avg_pool2d(y, *window)
        assume(False)
    out = avg_pool2d(y, *window)
    close(out, expected)
    grad = image(*out.shape)
    out.backward(grad)
    expected.backward(grad)
    close(y.grad, x.grad)


def test_no_images():
    for window in (2,), (3, 1, 1), (3, 2, 0, True):
        x = torch.zeros(0, 3, 4, 5, requires_grad=True)
        out = avg_pool2d(x, *window)
        assert out.shape == theirs(x, *window).shape
        (grad,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
        assert grad.shape == x.shape
        grad.sum().backward()


def test_no_images_are_checked_as_images():
    for dtype in (torch.float64, torch.int64):
        with pytest.raises(TypeError, match=f"x is {str(dtype)[6:]}"):
            avg_pool2d(torch.zeros(0, 3, 4, 4, dtype=dtype), 2)
    with pytest.raises(ValueError, match="no window fits"):
        avg_pool2d(torch.zeros(0, 3, 4, 4), 5)
    for shape in (0, 4, 4), (0, 0, 4, 4), (0, 3, 0, 4):
        with pytest.raises(RuntimeError):
            theirs(torch.zeros(shape), 2)
        with pytest.raises(ValueError, match="no elements"):
            avg_pool2d(torch.zeros(shape), 2)


@pytest.mark.parametrize("shape", [(3, 6, 5), (2, 2, 2, 3, 6, 5)])
def test_rank_under_vmap(shape):
    """The kernel pools any number of planes: the rank is checked before axes become planes."""
    with pytest.raises(ValueError, match=f"{len(shape) - 1} dimensions"):
        torch.vmap(lambda x: avg_pool2d(x, 2))(torch.zeros(shape))


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ((0,), "kernel_size is 0"),
        ((2, 0), "stride is 0"),
        ((2, 1, 2), "at most half"),
        ((9,), "no window fits"),
        (((1, 2, 3),), "3 numbers"),
        ((2, 2, 0, False, True, 0), "divisor_override is 0"),
    ],
)
def test_refused_where_pytorch_refuses(window, message):
    x = image(1, 4, 4)
    with pytest.raises(RuntimeError):
        theirs(x, *window)
    with pytest.raises(ValueError, match=message):
        avg_pool2d(x, *window)
