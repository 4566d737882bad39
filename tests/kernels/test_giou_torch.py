"""The GIOU operator in PyTorch: values, gradients, transforms, devices.

The two functions it is held against are written here, with autograd for their gradients:
torchvision's loss (torchvision is not a dependency) and the article's ``torch_giou``.
"""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
with contextlib.suppress(ImportError):
    import torch_xla

    # Before any backward pass: autograd knows only the devices that exist when it first runs.
    torch_xla.device()

from kernels.giou import nki_giou, nki_giou_backward, reference  # noqa: E402
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("caller", [nki_giou, giou])
def test_values(caller, dtype):
    """torchvision also computes 16-bit boxes in float32."""
    a, b = pairs(dtype=dtype)
    scores = caller(a, b)
    assert scores.dtype == torch.float32
    assert_near(scores, torchvision_giou(a, b))
    clamped = caller(a, b, 1e-5, clamp=True)
    assert_near(clamped, article_giou(a.float(), b.float()))


CORNERS = st.tuples(*[st.integers(0, 6)] * 4).map(
    lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]), max(c[1], c[3]))
)


@settings(max_examples=150, deadline=None)
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_equal_pytorch(dtype):
    a, b = pairs(dtype=dtype)
    for x, y in zip(gradients(giou, a, b), gradients(torchvision_giou, a, b), strict=True):
        assert x.dtype == dtype
        # Float32 sums in another order; a 16-bit result may then round to a neighbour.
        torch.testing.assert_close(
            x, y, rtol=max(1e-4, 2 * torch.finfo(dtype).eps), atol=1e-7 if dtype.itemsize > 2 else 0
        )


def test_gradient_equals_finite_differences():
    """gradcheck wants float64, which NKI does not have.

    Sides are 1 to 9 pixels, the step 1/64 and the curvature of a GIOU about 1, so a central
    difference is off by some 1e-4, and float32 adds 1e-6 / step.
    """
    a, b = pairs((2, 8), image=8.0, seed=4)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not a double precision.*")
        a, b = a.requires_grad_(), b.requires_grad_()
        options = {"eps": 1 / 64, "atol": 1e-3, "rtol": 1e-3}
        assert torch.autograd.gradcheck(giou, (a, b), **options)

        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return nki_giou(a, b)

            @staticmethod
            def backward(ctx, grad):
                first, second = nki_giou_backward(grad.contiguous(), *ctx.saved_tensors)
                return first, 1.05 * second

        assert not torch.autograd.gradcheck(Wrong.apply, (a, b), raise_exception=False, **options)


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


def test_no_grad_and_no_warning():
    a, b = pairs()
    a.requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert giou(a, b).requires_grad
        with torch.no_grad():
            assert not giou(a, b).requires_grad


@pytest.mark.parametrize(
    "change",
    [
        lambda y: torch.nn.ReLU(inplace=True)(y),
        lambda y: torch.nn.functional.dropout(y, 1.0, inplace=True),
        lambda y: y.add_(1),
        lambda y: y.__setitem__((slice(None), 0), 0) or y,
    ],
)
def test_the_result_can_be_changed_in_place(change):
    a, b = pairs()
    ours = gradients(lambda a, b: change(giou(a, b)), a, b)
    theirs = gradients(lambda a, b: change(torchvision_giou(a, b)), a, b)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_gradients_can_be_changed_in_place():
    a, b = (x.requires_grad_() for x in pairs())
    for grad in torch.autograd.grad(giou(a, b).sum(), (a, b), create_graph=True):
        grad.mul_(2)


def test_second_derivative_is_refused():
    a, b = pairs()
    a.requires_grad_()
    (first,) = torch.autograd.grad(giou(a, b).sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first.sum().backward()


@pytest.mark.parametrize("in_dims", [(0, 0), (1, 2), (0, None), (None, 1)])
def test_vmap(in_dims):
    a, b = pairs((3, 3, 3))
    a, b = (
        x[0] if dim is None else x.movedim(0, dim) for x, dim in zip((a, b), in_dims, strict=True)
    )
    expected = torch.stack(
        [
            torchvision_giou(
                *(x if d is None else x.select(d, i) for x, d in zip((a, b), in_dims, strict=True))
            )
            for i in range(3)
        ]
    )
    assert_near(torch.vmap(giou, in_dims)(a, b), expected)


def test_vmap_is_one_launch(monkeypatch):
    import kernels.giou.torch_op as module

    shapes = []
    monkeypatch.setattr(
        module, "nki_giou", lambda a, b, *_, **__: shapes.append(tuple(a.shape)) or nki_giou(a, b)
    )
    torch.vmap(giou)(*pairs((7, 3)))
    assert shapes == [(7, 3, 4)]


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None)])
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_vmap_of_grad(in_dims, argnums):
    a, b = pairs((4, 5))
    b = b if in_dims[1] is not None else b[0]

    def per_sample(a, b):
        return torch.vmap(
            torch.func.grad(lambda a, b: (giou(a, b) ** 2).sum(), argnums=argnums), in_dims
        )(a, b)

    ours = per_sample(a, b)
    ours = ours if isinstance(ours, tuple) else (ours,)
    sides = argnums if isinstance(argnums, tuple) else (argnums,)
    for i in range(4):
        pair = a[i], b[i] if in_dims[1] is not None else b
        theirs = gradients(lambda a, b: torchvision_giou(a, b) ** 2, *pair, torch.ones(5))
        for x, side in zip(ours, sides, strict=True):
            torch.testing.assert_close(x[i], theirs[side], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend):
    """The compiler leaves the kernel alone and compiles what is around it."""
    function = torch.compile(lambda a, b: 1 - giou(a * 2, b * 2), backend=backend)
    a, b = pairs()
    torch.testing.assert_close(function(a, b), 1 - torchvision_giou(a * 2, b * 2))
    a.requires_grad_()
    function(a, b).sum().backward()
    expected = gradients(lambda a, b: -torchvision_giou(a * 2, b * 2), a, b, torch.ones(240))[0]
    torch.testing.assert_close(a.grad, expected, rtol=1e-4, atol=1e-7)


def test_non_contiguous():
    a, b = pairs((6, 6))
    assert_near(giou(a.transpose(0, 1), b[::1]), torchvision_giou(a.transpose(0, 1), b))
    assert_near(giou(a[:1].expand(6, 6, 4), b), torchvision_giou(a[:1].expand(6, 6, 4), b))


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


def test_nan_stays_in_its_pair():
    a, b = pairs((5,))
    a[2, 1] = float("nan")
    expected = torchvision_giou(a, b)
    assert expected.isnan().tolist() == [False, False, True, False, False]
    torch.testing.assert_close(giou(a, b), expected, equal_nan=True, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda b: b[:2], ValueError, "does not broadcast"),
        (lambda b: b[..., :2], ValueError, "4 elements"),
        (lambda b: b.double(), TypeError, "boxes2 is float64"),
        (lambda b: b.to("meta"), ValueError, "on cpu, meta"),
        (lambda b: b.numpy(), TypeError, r"torch\.from_numpy"),
        (lambda b: b.to(torch.complex64), TypeError, "boxes2 is complex64"),
    ],
)
def test_refused_inputs(change, error, message):
    a, b = pairs()
    with pytest.raises(error, match=message):
        giou(a, change(b))


def test_arrays_of_numpy_are_refused():
    with pytest.raises(TypeError, match=r"boxes1 is a ndarray\. Pass PyTorch tensors"):
        giou(*(x.numpy() for x in pairs()))


def test_refused_reduction():
    with pytest.raises(ValueError, match="reduction is 'average'"):
        generalized_box_iou_loss(*pairs(), "average")


def test_gradient_descent_moves_boxes_onto_their_targets():
    """Also boxes that start apart from their targets, where plain IoU has no gradient."""
    targets = torch.tensor([[10.0, 10, 30, 40], [60, 50, 90, 80], [20, 60, 40, 90]])
    boxes = torch.tensor([[15.0, 20, 50, 45], [10, 10, 30, 30], [60, 10, 90, 30]])
    boxes.requires_grad_()
    optimizer = torch.optim.Adam([boxes], lr=1.0)
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 1 - step / 400
        optimizer.zero_grad()
        generalized_box_iou_loss(boxes, targets, "sum").backward()
        optimizer.step()
    torch.testing.assert_close(boxes.detach(), targets, rtol=0, atol=0.5)


class TestXla:
    """torch_xla tensors on its CPU client."""

    @pytest.fixture
    def device(self):
        return pytest.importorskip("torch_xla").device()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_values(self, device, dtype):
        a, b = pairs(dtype=dtype)
        scores = giou(a.to(device), b.to(device))
        assert scores.device.type == "xla"
        assert_near(scores.cpu(), torchvision_giou(a, b))

    def test_gradient(self, device):
        a, b = pairs()
        expected = gradients(torchvision_giou, a, b, torch.ones(240))[0]
        moved = a.to(device).requires_grad_()
        giou(moved, b.to(device)).sum().backward()
        torch.testing.assert_close(moved.grad.cpu(), expected, rtol=1e-4, atol=1e-7)

    def test_hlo_of_the_training_graph(self, device):
        """Forward and backward are one custom call each, whatever the definition takes."""
        from nkibook.hlo import torch_hlo

        def step(a, b):
            loss = generalized_box_iou_loss(a, b, "mean")
            return loss, *torch.autograd.grad(loss, (a,))

        a, b = pairs()
        calls = torch_hlo(step, a.requires_grad_(), b).custom_calls
        assert [call.kernel_name for call in calls] == [
            "nki_giou_kernel",
            "nki_giou_backward_kernel",
        ]
