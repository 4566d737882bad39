"""RMSNorm in PyTorch: values, gradients, the module, transforms, devices, refusals.

Tolerances: in float32 a sum of a row may run in another order than PyTorch's, which moves the
result by a few 1e-7; 16-bit results agree within one step of their dtype, since either side rounds
a float32 value that may lie near the middle between two of them.
"""

from __future__ import annotations

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch")
with contextlib.suppress(ImportError):
    import torch_xla

    # Before any backward pass: autograd knows only the devices that exist when it first runs.
    torch_xla.device()

import torch.nn.functional as F  # noqa: E402

from kernels.rmsnorm.torch_op import RMSNorm, rms_norm  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: {"rtol": 2e-6, "atol": 2e-6},
    torch.float16: {"rtol": 2**-10, "atol": 1e-6},
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-6},
}
GRADIENT = {
    torch.float32: {"rtol": 1e-5, "atol": 2e-5},
    torch.float16: {"rtol": 2**-9, "atol": 2e-2},
    torch.bfloat16: {"rtol": 2**-6, "atol": 2e-1},
}


def inputs(shape=(130, 300), axes=1, dtype=torch.float32, grad=False):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    weight = (1 + 0.5 * torch.randn(shape[-axes:], generator=generator)).to(dtype)
    return x.requires_grad_(grad), weight.requires_grad_(grad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axes"), [((130, 300), 1), ((7,), 1), ((2, 3, 5, 4), 2)])
def test_values(shape, axes, dtype):
    x, weight = inputs(shape, axes, dtype)
    y = rms_norm(x, weight.shape, weight, 1e-5)
    assert y.dtype == dtype
    exact = F.rms_norm(x.double(), weight.shape, weight.double(), 1e-5)
    torch.testing.assert_close(y.double(), exact, **TOLERANCE[dtype])
    torch.testing.assert_close(y, F.rms_norm(x, weight.shape, weight, 1e-5), **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_pytorchs(dtype):
    """No weight is ones; eps is float32's, which shows on small inputs."""
    x = 0.01 * inputs(dtype=dtype)[0]
    torch.testing.assert_close(rms_norm(x, (300,)), F.rms_norm(x, (300,)), **TOLERANCE[dtype])


def test_non_contiguous():
    x, weight = inputs((200, 60))
    for view, scale in ((x.T, torch.ones(200)), (x[::2, 1::3], weight[1::3])):
        expected = F.rms_norm(view, scale.shape, scale, 1e-5)
        torch.testing.assert_close(rms_norm(view, scale.shape, scale, 1e-5), expected)
    expanded = x[:1].expand(200, 60)
    torch.testing.assert_close(rms_norm(expanded, (60,), weight)[7], rms_norm(x[0], (60,), weight))


def gradients(norm, x, weight):
    generator = torch.Generator().manual_seed(1)
    grad_y = torch.randn(x.shape, generator=generator).to(x.dtype)
    y = norm(x, weight.shape, weight, 1e-5)
    return torch.autograd.grad(y, (x, weight), grad_y.to(x.device))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axes"), [((130, 300), 1), ((4, 3, 5, 4), 2)])
def test_gradient_equals_pytorch(shape, axes, dtype):
    x, weight = inputs(shape, axes, dtype, grad=True)
    ours = gradients(rms_norm, x, weight)
    theirs = gradients(F.rms_norm, x, weight)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine, other, **GRADIENT[dtype])


def check_by_differences(norm, **options):
    """gradcheck wants float64, which NKI does not have.

    In float32 a step of 1e-2 leaves an error of about 1e-7 / 1e-2 from rounding and 1e-4 times the
    third derivative from curvature.
    """
    x, weight = inputs((3, 5), grad=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not a double precision.*")
        return torch.autograd.gradcheck(
            lambda x, w: norm(x, w), (x, weight), eps=1e-2, atol=2e-3, rtol=2e-3, **options
        )


def test_gradient_equals_finite_differences():
    assert check_by_differences(lambda x, w: rms_norm(x, (5,), w, 1e-5))


def test_gradcheck_settings_find_a_wrong_gradient():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return rms_norm(x, (5,), weight, 1e-5)

        @staticmethod
        def backward(ctx, grad):
            x, weight = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            with torch.enable_grad():
                y = F.rms_norm(x, (5,), weight, 1e-5)
            grad_x, grad_weight = torch.autograd.grad(y, (x, weight), grad)
            return grad_x, 1.01 * grad_weight

    assert not check_by_differences(Wrong.apply, raise_exception=False)


def test_only_one_input_needs_a_gradient():
    x, weight = inputs((4, 6))
    weight.requires_grad_()
    rms_norm(x, (6,), weight).sum().backward()
    assert x.grad is None
    assert weight.grad.shape == (6,)


def test_no_grad():
    x, weight = inputs((4, 6), grad=True)
    with torch.no_grad():
        assert not rms_norm(x, (6,), weight).requires_grad
    assert rms_norm(x, (6,), weight).requires_grad


CHANGES = [
    lambda y: torch.nn.ReLU(inplace=True)(y),
    lambda y: F.dropout(y, 1.0, inplace=True),
    lambda y: y.add_(torch.arange(24.0).reshape(4, 6)),
    lambda y: y.index_fill_(1, torch.tensor([0]), 0.0),
    lambda y: y.__setitem__((slice(None), 0), 0) or y,
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_result_can_be_changed_in_place(change):
    def gradient(norm):
        x, weight = inputs((4, 6), grad=True)
        return torch.autograd.grad(change(norm(x, (6,), weight, 1e-5)).pow(2).sum(), (x, weight))

    torch.testing.assert_close(gradient(rms_norm), gradient(F.rms_norm), rtol=1e-5, atol=1e-5)


def test_a_result_without_gradient_can_be_changed_in_place():
    x, weight = inputs((4, 6), grad=True)
    with torch.no_grad():
        y = rms_norm(x, (6,), weight)
    y += x
    assert y.requires_grad


def test_gradients_can_be_changed_in_place():
    x, weight = inputs((4, 6), grad=True)
    for grad in torch.autograd.grad(rms_norm(x, (6,), weight).sum(), (x, weight), None, None, True):
        grad.mul_(2)


def test_second_derivative_is_refused():
    x, weight = inputs((4, 6), grad=True)
    (grad,) = torch.autograd.grad(rms_norm(x, (6,), weight).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grad.sum().backward()


def test_second_call_traces_nothing(monkeypatch):
    import nkisim.runtime.kernel as kernel

    x, weight = inputs((9, 11), grad=True)
    gradients(rms_norm, x, weight)
    monkeypatch.setattr(kernel, "Specialization", None)
    ours = gradients(rms_norm, x.detach().flip(0).requires_grad_(), weight)
    theirs = gradients(F.rms_norm, x.detach().flip(0).requires_grad_(), weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


class TestModule:
    def test_is_a_drop_in(self):
        torch.manual_seed(0)
        theirs = torch.nn.RMSNorm(12, eps=1e-4)
        torch.nn.init.normal_(theirs.weight)
        ours = RMSNorm(12, eps=1e-4)
        assert isinstance(ours, torch.nn.RMSNorm)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(3, 5, 12)
        torch.testing.assert_close(ours(x), theirs(x), **TOLERANCE[torch.float32])
        assert repr(ours) == repr(theirs)

    @pytest.mark.parametrize("options", [{}, {"elementwise_affine": False}, {"eps": 0.5}])
    def test_options(self, options):
        x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
        expected = torch.nn.RMSNorm((3, 5), **options)(x)
        torch.testing.assert_close(RMSNorm((3, 5), **options)(x), expected)

    def test_trains_as_pytorchs(self):
        """Two layers, twenty steps: the losses stay together while rounding errors are carried."""

        def train(norm):
            torch.manual_seed(3)
            model = torch.nn.Sequential(
                torch.nn.Linear(8, 33), norm(33), torch.nn.SiLU(), torch.nn.Linear(33, 1)
            )
            x = torch.randn(150, 8)
            target = x[:, :1] * x[:, 1:2]
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            losses = []
            for _ in range(20):
                loss = F.mse_loss(model(x), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses

        ours, theirs = train(RMSNorm), train(torch.nn.RMSNorm)
        assert ours == pytest.approx(theirs, rel=1e-3)
        assert ours[-1] < 0.8 * ours[0]


class TestTransforms:
    @pytest.mark.parametrize("in_dim", [0, 1, 2])
    def test_vmap_over_x(self, in_dim):
        x, _ = inputs((3, 3, 3))
        weight = torch.tensor([1.0, 2.0, 3.0])
        norm = lambda x: rms_norm(x, (3,), weight)  # noqa: E731
        expected = torch.stack([norm(x.select(in_dim, i)) for i in range(3)])
        torch.testing.assert_close(torch.vmap(norm, in_dim)(x), expected)

    def test_vmap_over_the_weight(self):
        x, _ = inputs((4, 6))
        weights = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))
        got = torch.vmap(lambda w: rms_norm(x, (6,), w))(weights)
        torch.testing.assert_close(got, torch.stack([rms_norm(x, (6,), w) for w in weights]))

    @pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)])
    def test_vmap_over_nothing(self, in_dims):
        sizes = zip([(4, 6), (6,)], in_dims, strict=True)
        shapes = [size if dim is None else (0, *size) for size, dim in sizes]
        x, weight = (torch.ones(shape, requires_grad=True) for shape in shapes)
        y = torch.vmap(lambda x, w: rms_norm(x, (6,), w), in_dims)(x, weight)
        assert y.shape == (0, 4, 6)
        y.sum().backward()
        assert torch.equal(x.grad, torch.zeros_like(x))
        assert torch.equal(weight.grad, torch.zeros_like(weight))

    def test_vmap_is_one_launch(self, monkeypatch):
        import kernels.rmsnorm.torch_op as module

        shapes = []
        run = module.nki_rms_norm
        monkeypatch.setattr(
            module, "nki_rms_norm", lambda x, *a: shapes.append(tuple(x.shape)) or run(x, *a)
        )
        torch.vmap(lambda x: rms_norm(x, (6,)))(inputs((7, 4, 6))[0])
        assert shapes == [(7, 4, 6)]

    def test_gradient_of_each_element(self):
        x, weight = inputs((3, 4, 6))

        def loss(norm):
            return lambda x, w: (norm(x, (6,), w, 1e-5) ** 3).sum()

        ours = torch.vmap(torch.func.grad(loss(rms_norm), (0, 1)), (0, None))(x, weight)
        theirs = torch.vmap(torch.func.grad(loss(F.rms_norm), (0, 1)), (0, None))(x, weight)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)

    def test_the_result_can_be_changed_in_place(self):
        x, weight = inputs((3, 4, 6))

        def gradient(norm):
            loss = lambda x: F.relu_(norm(x, (6,), weight, 1e-5)).sum()  # noqa: E731
            return torch.vmap(torch.func.grad(loss))(x)

        torch.testing.assert_close(gradient(rms_norm), gradient(F.rms_norm))

    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    def test_torch_compile(self, backend):
        x, weight = inputs((9, 11), grad=True)
        function = torch.compile(lambda x, w: 2 * rms_norm(x, (11,), w, 1e-5) + x, backend=backend)
        y = function(x, weight)
        torch.testing.assert_close(y, 2 * F.rms_norm(x, (11,), weight, 1e-5) + x)
        y.sum().backward()
        x2, weight2 = inputs((9, 11), grad=True)
        (2 * F.rms_norm(x2, (11,), weight2, 1e-5) + x2).sum().backward()
        torch.testing.assert_close(x.grad, x2.grad, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(weight.grad, weight2.grad, rtol=1e-5, atol=1e-5)


def test_nan_and_infinity_as_pytorch():
    x, weight = inputs((4, 6))
    x[0, 2], x[1, 3], x[2] = float("nan"), float("inf"), 0.0
    expected = F.rms_norm(x, (6,), weight, 1e-5)
    torch.testing.assert_close(rms_norm(x, (6,), weight, 1e-5), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 6), (3, 0, 6), (0, 2, 3)])
@pytest.mark.parametrize("x_needs_it", [True, False])
def test_no_rows_as_pytorch(shape, dtype, x_needs_it):
    x = torch.empty(shape, dtype=dtype, requires_grad=x_needs_it)
    axes = shape[-1:] if 0 in shape[:-1] else shape[1:]
    weight = torch.ones(axes, dtype=dtype, requires_grad=True)
    y = rms_norm(x, axes, weight)
    expected = F.rms_norm(x, axes, weight)
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    y.sum().backward()
    assert torch.equal(weight.grad, torch.zeros(axes, dtype=dtype))
    if x_needs_it:
        assert x.grad.shape == shape


@pytest.mark.parametrize(
    ("x", "shape", "weight", "error", "message"),
    [
        (torch.ones(4, 6), (5,), torch.ones(5), ValueError, r"\(5,\) and x \(4, 6\)"),
        (torch.ones(4, 6), (6,), torch.ones(5), ValueError, r"normalized_shape is \(6,\)"),
        (torch.ones(4, 6), (6,), torch.ones(1, 6), ValueError, "must be equal"),
        (torch.ones(4, 6), (), None, ValueError, "no axis"),
        (torch.ones(4, 6, dtype=torch.int32), (6,), None, TypeError, "x is int32"),
        (torch.ones(4, 6, dtype=torch.float64), (6,), None, TypeError, "x is float64"),
        (torch.ones(4, 6), (6,), torch.ones(6, device="meta"), ValueError, "on cpu, meta"),
    ],
)
def test_refused_inputs(x, shape, weight, error, message):
    with pytest.raises(error, match=message):
        rms_norm(x, shape, weight)


@pytest.mark.parametrize(
    ("x", "weight", "eps", "message"),
    [
        (None, None, None, "input is a NoneType"),
        ([[1.0] * 6], None, None, "input is a list"),
        (torch.ones(4, 6), [1.0] * 6, None, "weight is a list"),
        (torch.ones(4, 6), None, "1e-5", "eps is '1e-5', a str"),
        (torch.ones(0, 6), None, "1e-5", "eps is '1e-5', a str"),
    ],
)
def test_refused_types(x, weight, eps, message):
    for norm, expected in ((F.rms_norm, None), (rms_norm, message)):
        with pytest.raises(TypeError, match=expected):
            norm(x, (6,), weight, eps)


class TestXla:
    """torch_xla tensors on its CPU client."""

    @pytest.fixture
    def device(self):
        return pytest.importorskip("torch_xla").device()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_values_and_gradient(self, device, dtype):
        x, weight = inputs((20, 30), dtype=dtype)
        here = gradients(rms_norm, x.requires_grad_(), weight.requires_grad_())
        there = [t.detach().to(device).requires_grad_() for t in (x, weight)]
        y = rms_norm(there[0], (30,), there[1], 1e-5)
        assert y.device.type == "xla"
        assert torch.equal(y.cpu(), rms_norm(x, (30,), weight, 1e-5))
        for a, b in zip(gradients(rms_norm, *there), here, strict=True):
            assert torch.equal(a.cpu(), b)

    def test_hlo_of_the_training_graph(self, device):
        """One call forward, one backward, and nothing is computed twice."""
        from nkibook.hlo import torch_hlo

        x, weight = inputs((20, 30), grad=True)

        def step(x, weight):
            y = rms_norm(x, (30,), weight, 1e-5)
            return torch.autograd.grad((y * y).sum(), (x, weight))

        calls = torch_hlo(step, x, weight).custom_calls
        names = [call.kernel_name for call in calls]
        assert names == ["nki_rms_norm_kernel", "nki_rms_norm_backward_kernel"]
