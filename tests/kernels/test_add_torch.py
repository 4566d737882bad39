"""The add operator in PyTorch: values, gradients, transforms, devices."""

from __future__ import annotations

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch")
with contextlib.suppress(ImportError):
    import torch_xla

    # Before any backward pass: autograd knows only the devices that exist when it first runs.
    torch_xla.device()

from kernels.add import nki_tensor_add  # noqa: E402
from kernels.add.nki_kernels import nki_tensor_add_two_cores  # noqa: E402
from kernels.add.torch_op import add  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def pair(shape=(129, 513), dtype=torch.float32, **options):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(shape, generator=generator).to(dtype).requires_grad_(**options)
        if options
        else torch.randn(shape, generator=generator).to(dtype)
        for _ in "ab"
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("caller", [nki_tensor_add, nki_tensor_add_two_cores, add])
def test_values(caller, dtype):
    a, b = pair(dtype=dtype)
    c = caller(a, b)
    assert c.dtype == dtype
    assert torch.equal(c, a + b)


def test_non_contiguous():
    a, b = pair((200, 600))
    assert torch.equal(add(a.T, b.T), a.T + b.T)
    assert torch.equal(add(a[::2, 1::3], b[::2, 1::3]), (a + b)[::2, 1::3])
    assert torch.equal(add(a[:1].expand(200, 600), b), a[:1] + b)


def test_gradient_equals_pytorch():
    """Of the book's expression, whose gradient is not constant."""
    ours, theirs = pair(requires_grad=True), pair(requires_grad=True)
    for (a, b), plus in ((ours, add), (theirs, torch.add)):
        (a * b * plus(a, b)).sum().backward()
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_gradient_equals_finite_differences():
    """gradcheck wants float64, which NKI does not have.

    Addition is linear, so a float32 difference quotient is exact as long as no sum rounds: inputs
    are multiples of 1/64 below 4 and the step is 1/8, and gradcheck can be as strict as it likes.
    """
    a, b = (x.mul(64).round().div(64).clamp(-4, 4) for x in pair((3, 5)))
    a.requires_grad_()
    b.requires_grad_()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not a double precision.*")
        options = {"eps": 0.125, "atol": 1e-6, "rtol": 0, "nondet_tol": 0}
        assert torch.autograd.gradcheck(add, (a, b), **options)
        assert torch.autograd.gradgradcheck(add, (a, b), **options)


def test_gradcheck_settings_find_a_wrong_gradient():
    """The check above would fail for a backward pass that is off."""

    class WrongAdd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return nki_tensor_add(a, b)

        @staticmethod
        def backward(ctx, grad):
            return grad, 1.001 * grad

    a, b = (x.mul(64).round().div(64).requires_grad_() for x in pair((3, 5)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not a double precision.*")
        assert not torch.autograd.gradcheck(
            WrongAdd.apply, (a, b), eps=0.125, atol=1e-6, rtol=0, raise_exception=False
        )


def test_only_one_input_needs_a_gradient():
    a, b = pair((4, 4))
    a.requires_grad_()
    add(a, b).sum().backward()
    assert torch.equal(a.grad, torch.ones_like(a))
    assert b.grad is None


def test_no_warning_inside_the_operator():
    a, b = pair((4, 4), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert add(a, b).requires_grad


@pytest.mark.parametrize("in_dims", [(0, 0), (1, 2), (0, None), (None, 1)])
def test_vmap(in_dims):
    a, b = (x[0] if dim is None else x for x, dim in zip(pair((3, 3, 3)), in_dims, strict=True))
    assert torch.equal(torch.vmap(add, in_dims)(a, b), torch.vmap(torch.add, in_dims)(a, b))


def test_vmap_is_one_launch(monkeypatch):
    import kernels.add.torch_op as module

    shapes = []
    monkeypatch.setattr(
        module, "nki_tensor_add", lambda a, b: shapes.append(tuple(a.shape)) or nki_tensor_add(a, b)
    )
    a, b = pair((7, 3, 5))
    torch.vmap(add)(a, b)
    assert shapes == [(21, 5)]


def test_vmap_of_grad():
    a, b = pair((4, 3, 5))

    def loss(plus):
        return lambda a, b: (a * b * plus(a, b)).sum()

    ours = torch.vmap(torch.func.grad(loss(add)))(a, b)
    torch.testing.assert_close(ours, torch.vmap(torch.func.grad(loss(torch.add)))(a, b))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend):
    """The compiler leaves the kernel alone and compiles what is around it."""
    function = torch.compile(lambda a, b: a * b * add(a, b), backend=backend)
    a, b = pair()
    assert torch.equal(function(a, b), a * b * (a + b))
    a.requires_grad_()
    function(a, b).sum().backward()
    torch.testing.assert_close(a.grad, 2 * a.detach() * b + b * b)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda b: b[:2], ValueError, r"\(4, 4\) and b_input \(2, 4\)"),
        (lambda b: b.half(), TypeError, "float32 and b_input float16"),
        (lambda b: b.to("meta"), ValueError, "on cpu, meta"),
        (lambda b: b.numpy(), TypeError, r"torch\.from_numpy"),
    ],
)
def test_refused_inputs(change, error, message):
    a, b = pair((4, 4))
    with pytest.raises(error, match=message):
        nki_tensor_add(a, change(b))


def test_refused_dtype():
    a, b = pair((4, 4), torch.float64)
    with pytest.raises(TypeError, match="is float64"):
        add(a, b)


class TestXla:
    """torch_xla tensors on its CPU client."""

    @pytest.fixture
    def device(self):
        return pytest.importorskip("torch_xla").device()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_values(self, device, dtype):
        a, b = pair(dtype=dtype)
        c = add(a.to(device), b.to(device))
        assert c.device.type == "xla"
        assert torch.equal(c.cpu(), a + b)

    def test_gradient(self, device):
        a, b = (x.to(device).requires_grad_() for x in pair((4, 4)))
        (a * b * add(a, b)).sum().backward()
        expected = 2 * a * b + b * b
        torch.testing.assert_close(a.grad.cpu(), expected.detach().cpu())

    def test_hlo_of_the_training_graph(self, device):
        from nkisim.runtime.frameworks.torch import lowering

        a, b = (x.to(device).requires_grad_() for x in pair((256, 1024)))
        with lowering():
            (a * b * add(a, b)).sum().backward()
        hlo = torch_xla._XLAC._get_xla_tensors_hlo([a.grad])
        assert hlo.count('custom_call_target="AwsNeuronCustomNativeKernel"') == 1

    def test_tensors_on_two_devices(self, device):
        a, b = pair((4, 4))
        with pytest.raises(ValueError, match="on cpu, xla:0"):
            nki_tensor_add(a, b.to(device))
