"""The GIOU operator in PyTorch: definitions, gradients, the loss.

The two functions it is held against are written here, with autograd for their gradients:
torchvision's loss (torchvision is not a dependency) and the article's ``torch_giou``.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import torch_devices  # noqa: E402, F401

from kernels.giou import nki_giou_backward, reference  # noqa: E402
from kernels.giou.torch_op import generalized_box_iou_loss, giou  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def torchvision_giou(boxes1, boxes2, eps=1e-7):
    """One minus torchvision.ops.generalized_box_iou_loss, by its definition.

    Boxes that are no float32 or float64 become float32; the overlap is where both sides are
    positive, and zero with zero gradient elsewhere; eps is added to both denominators.
    """
    wide = torch.float32, torch.float64
    boxes1, boxes2 = (b if b.dtype in wide else b.float() for b in (boxes1, boxes2))
    (x1, y1, x2, y2), (u1, v1, u2, v2) = boxes1.unbind(-1), boxes2.unbind(-1)
    width = torch.min(x2, u2) - torch.max(x1, u1)
    height = torch.min(y2, v2) - torch.max(y1, v1)
    overlapping = (width > 0) & (height > 0)
    inter = torch.zeros_like(width)
    inter[overlapping] = (width * height)[overlapping]
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - inter
    hull = (torch.max(x2, u2) - torch.min(x1, u1)) * (torch.max(y2, v2) - torch.min(y1, v1))
    return inter / (union + eps) - (hull - union) / (hull + eps)


def article_giou(boxes1, boxes2, eps=1e-5):
    """What ``torch_giou`` of the article computes: clamps, and the clamped area subtracts too."""
    low1, high1, low2, high2 = boxes1[..., :2], boxes1[..., 2:], boxes2[..., :2], boxes2[..., 2:]
    inter = (torch.min(high1, high2) - torch.max(low1, low2)).clamp(min=0).prod(-1)
    union = (high1 - low1).prod(-1) + (high2 - low2).prod(-1) - inter
    sides = (torch.max(high1, high2) - torch.min(low1, low2)).clamp(min=0)
    hull = sides.prod(-1).clamp(min=eps)
    return inter / union.clamp(min=eps) - (hull - union) / hull


def pairs(shape=(6, 40), dtype=torch.float32, seed=0, image=256.0):
    rng = np.random.default_rng(seed)
    return tuple(
        torch.from_numpy(np.asarray(reference.random_boxes(rng, shape, image))).to(dtype)
        for _ in "ab"
    )


def gradients(function, a, b, weights=None):
    a, b = (x.detach().clone().requires_grad_() for x in (a, b))
    scores = function(a, b)
    if weights is None:
        weights = torch.linspace(-1, 2, max(scores.numel(), 1))[: scores.numel()]
    loss = (scores * weights.reshape(scores.shape)).sum()
    return torch.autograd.grad(loss, (a, b))


def assert_near(scores, expected):
    """Equal but for float32 rounding: the kernel has fewer operations, in another order."""
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-6)


CORNERS = st.tuples(*[st.integers(0, 6)] * 4).map(
    lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]), max(c[1], c[3]))
)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    st.lists(st.tuples(CORNERS, CORNERS), min_size=1, max_size=6),
    st.sampled_from([(torchvision_giou, False), (article_giou, True)]),
)
def test_gradients_where_coordinates_are_equal(boxes, definition):
    """Touching, equal and empty boxes: the subgradient is PyTorch's, in values and gradients.

    In float64 for PyTorch, in float32 for us. Boxes without area, where the two divide by eps
    alone, would need relative comparisons of numbers like 1e10, hence the large eps.
    """
    theirs, clamp = definition
    eps = 0.125
    a, b = (torch.tensor([pair[side] for pair in boxes], dtype=torch.float32) for side in (0, 1))
    torch.testing.assert_close(giou(a, b, eps, clamp=clamp), theirs(a, b, eps))
    ours = gradients(lambda a, b: giou(a, b, eps, clamp=clamp), a, b)
    wide = gradients(lambda a, b: theirs(a, b, eps), a.double(), b.double())
    for x, y in zip(ours, wide, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", [0, 1])
def test_only_one_side_needs_a_gradient(side, monkeypatch):
    import kernels.giou.torch_op as module

    asked = []

    def record(*args, both, **kwargs):
        asked.append(both)
        return nki_giou_backward(*args, both=both, **kwargs)

    monkeypatch.setattr(module, "nki_giou_backward", record)
    boxes = list(pairs())
    expected = gradients(torchvision_giou, *boxes, torch.ones(240))[side]
    boxes[side].requires_grad_()
    giou(*boxes).sum().backward()
    torch.testing.assert_close(boxes[side].grad, expected, rtol=1e-4, atol=1e-7)
    assert boxes[1 - side].grad is None
    assert asked == [False]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integer_boxes_become_float32_as_in_torchvision(dtype):
    a, b = (x.round().clamp(max=255).to(dtype) for x in pairs())
    assert_near(giou(a, b), torchvision_giou(a, b))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_loss(reduction):
    a, b = pairs()
    theirs = 1 - torchvision_giou(a, b)
    expected = {"none": theirs, "mean": theirs.mean(), "sum": theirs.sum()}[reduction]
    torch.testing.assert_close(generalized_box_iou_loss(a, b, reduction), expected)


def test_loss_of_no_boxes():
    a = torch.empty(0, 4, requires_grad=True)
    assert generalized_box_iou_loss(a, a.detach()).shape == (0,)
    loss = generalized_box_iou_loss(a, a.detach(), "mean")
    loss.backward()
    assert loss == 0
    assert a.grad.shape == (0, 4)


def test_refused_inputs():
    boxes = pairs()
    with pytest.raises(TypeError, match="boxes2 is complex64"):
        giou(boxes[0], boxes[1].to(torch.complex64))
    with pytest.raises(ValueError, match="reduction is 'average'"):
        generalized_box_iou_loss(*boxes, "average")
