"""PyTorch's `neuron` device: its tensors, kernels on them, nki_op and torch.compile.

What is compared is the CPU's tensors, or NumPy.
"""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import runpy
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nkisim  # noqa: E402

nkisim.install()

# Before any backward pass: autograd knows only the devices that exist when it first runs.
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
import torch_neuronx  # noqa: E402
from torch_neuronx import nki_op, wrap_nki  # noqa: E402

from nkisim.runtime.torch_neuron import device, guard  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*other operators run on the CPU")
F = torch.nn.functional


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# -- Tensors


def in_place(x, y):
    z = x * 1
    z[1:3].mul_(y[1:3])
    z[:, 2:] += y[:, 2:]
    z.t()[1] -= 1
    return z


OPERATORS = {
    "add": lambda x, y: x + 2 * y,
    "in place, on views": in_place,
    "as_strided": lambda x, y: x[1:].as_strided((2, 2), (2, 1), 3) * y[0, 0],
    "matmul": lambda x, y: x @ y.T,
    "einsum": lambda x, y: torch.einsum("ij,kj->ki", x, y),
    "softmax": lambda x, y: torch.softmax(x, -1) * y,
    "layer_norm": lambda x, y: F.layer_norm(x, (5,), y[0], y[1]),
    "cat": lambda x, y: torch.cat([x, y[1:]], 0)[::2],
    "where": lambda x, y: torch.where(x > 0, x, y * y),
    "sort": lambda x, y: torch.sort(x, -1).values * torch.topk(y, 5).values,
    "gather": lambda x, y: x.gather(1, y.argsort(1)) + y[:, [0, 0, 1, 3, 2]],
    "index_put": lambda x, y: x.clone().index_put_((torch.tensor([0, 2]),), y[:2]),
    "cumsum": lambda x, y: x.cumsum(0).var(1) + y.std(1),
    "chunk": lambda x, y: x.chunk(2, 1)[1] * y.unbind(1)[2][:, None],
    "expand": lambda x, y: x[:, None].expand(4, 3, 5).reshape(-1, 5) + y[:1],
    "complex": lambda x, y: torch.view_as_real(torch.fft.rfft(x)).sum(-1) + y[:, :3],
    "conv2d": lambda x, y: F.conv2d(x.view(1, 1, 4, 5), y[:3, :3].reshape(1, 1, 3, 3), padding=1),
    "conv_transpose1d": lambda x, y: F.conv_transpose1d(x.view(1, 4, 5), y.view(4, 5, 1), stride=2),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    "checkpoint": lambda x, y: torch.utils.checkpoint.checkpoint(
        lambda a: torch.tanh(a * y), x, use_reentrant=False
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients_are_those_of_the_cpu(name):
    both = []
    for where in ("cpu", "neuron"):
        leaves = [numbers(4, 5, seed=s).to(where).requires_grad_() for s in (1, 2)]
        result = OPERATORS[name](*leaves)
        assert result.device.type == where
        grads = torch.autograd.grad((result**2).sum(), leaves, allow_unused=True)
        both.append([result.detach(), *grads])
    for here, there in zip(*both, strict=True):
        assert (here is None) == (there is None)
        if here is not None:
            torch.testing.assert_close(there.cpu(), here)


def test_tensors_are_made_and_moved():
    x = numbers(3, 4)
    there = x.to("neuron")
    assert (there.device, there.is_neuron, there.stride()) == (
        torch.device("neuron", 0),
        True,
        (4, 1),
    )
    assert torch.equal(there.cpu(), x)
    view = there.T[1:]
    assert view.storage_offset() == 1
    assert view.untyped_storage().data_ptr() == there.untyped_storage().data_ptr()
    for made in (
        torch.zeros(2, device="neuron"),
        torch.arange(3, device="neuron"),
        torch.tensor([1.0], device="neuron"),
        torch.empty(0, device="neuron:0"),
        torch.nn.Linear(2, 3, device="neuron").weight,
    ):
        assert made.device.type == "neuron"
    torch.manual_seed(0)
    random = torch.randn(5, device="neuron")
    torch.manual_seed(0)
    assert torch.equal(random.cpu(), torch.randn(5))
    out = torch.empty(0, device="neuron")
    assert torch.add(there, 1, out=out) is out
    assert out.shape == (3, 4)
    for dtype in (torch.bfloat16, torch.float8_e5m2, torch.int8, torch.bool):
        assert torch.equal(there.to(dtype).cpu().float(), x.to(dtype).float())


def test_devices_are_not_mixed():
    x, there = numbers(3), numbers(3).to("neuron")
    assert (there * torch.tensor(2.0)).device.type == "neuron"  # a number may be
    with pytest.raises(RuntimeError, match=r"on the same device.*neuron:0 and cpu"):
        there + x
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
        there.numpy()
    with pytest.raises(RuntimeError, match=r"neuron:1 .*one device"):
        x.to("neuron:1")
    with pytest.raises(NotImplementedError, match="matmul, sigmoid"):
        torch.nn.LSTM(3, 2).to("neuron")(there.view(1, 1, 3))


def test_what_torch_neuron_has():
    module = torch.neuron
    assert module.is_available()
    assert module.device_count() == 1
    assert module.current_device() == 0
    assert "nkisim" in module.get_device_name()
    module.synchronize()
    torch.accelerator.synchronize()
    assert torch.accelerator.current_accelerator().type == "neuron"
    with torch.device("neuron"):
        assert torch.ones(2).device.type == "neuron"


def test_training_is_that_of_the_cpu():
    torch.manual_seed(0)
    here = torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
    )
    there = copy.deepcopy(here).to("neuron")
    x, targets = numbers(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    for model, where in ((here, "cpu"), (there, "neuron")):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(where)), targets.to(where)).backward()
            optimizer.step()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        assert isinstance(one, torch.nn.Parameter)
        assert one.device.type == "neuron"
        torch.testing.assert_close(one.detach().cpu(), other.detach())


def test_copies_and_checkpoints():
    model = torch.nn.Linear(3, 2).to("neuron")
    second = copy.deepcopy(model)
    with torch.no_grad():
        second.weight.zero_()
    assert model.weight.abs().sum() > 0
    assert second.weight.device.type == "neuron"
    leaf = torch.ones(2, device="neuron", requires_grad=True)
    (3 * leaf).sum().backward()
    assert torch.equal(copy.deepcopy(leaf).grad.cpu(), torch.tensor([3.0, 3.0]))
    for saved, where in itertools.product((model, copy.deepcopy(model).cpu()), ("neuron", "cpu")):
        file = io.BytesIO()
        torch.save(saved.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["weight"].device.type == where
        assert torch.equal(loaded["weight"].cpu(), model.weight.detach().cpu())
    again = pickle.loads(pickle.dumps(model))
    assert again.weight.device.type == "neuron"
    assert again.weight.requires_grad


def test_autocast_casts_what_it_casts_on_the_cpu():
    x = numbers(4, 4)
    for function in (
        lambda x: x @ x,
        lambda x: F.linear(x, x),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: x + x,
        lambda x: F.mse_loss(x.bfloat16(), x.bfloat16()),
    ):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            here = function(x)
        with torch.autocast("neuron", dtype=torch.bfloat16):
            there = function(x.to("neuron"))
        assert there.dtype == here.dtype
        torch.testing.assert_close(there.cpu(), here)


# -- Kernels


@nki.jit
def scaled(x, gains, factor=1.0):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        n = min(128, rows - start)
        tile = nl.ndarray((n, columns), dtype=nl.float32, buffer=nl.sbuf)
        gain = nl.ndarray((n, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start : start + n, :])
        nisa.dma_copy(dst=gain, src=gains.ap([[0, n], [1, columns]]))
        nisa.tensor_tensor(dst=tile, data1=tile, data2=gain, op=nl.multiply)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[start : start + n, :], src=tile)
    return out


@nki.jit
def accumulate(cache, x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    more = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=cache)
    nisa.dma_copy(dst=more, src=x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=more, op=nl.add)
    nisa.dma_copy(dst=cache, src=tile)
    return cache


@nki_op("nkisim_test::scaled", mutates_args={})
def scaled_op(x: torch.Tensor, gains: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    return scaled(x, gains, factor)


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.factor = inputs[2]


def gradient(ctx, grad):
    x, gains = ctx.saved_tensors
    return scaled_op(grad, gains, ctx.factor), ctx.factor * (grad * x).sum(0), None


scaled_op.register_autograd(gradient, setup_context=keep)


@nki_op("nkisim_test::accumulate", mutates_args={"cache"})
def accumulate_op(cache: torch.Tensor, x: torch.Tensor) -> None:
    accumulate(cache, x)


@nki_op("nkisim_test::moded", mutates_args=())
def moded(
    x: torch.Tensor, gains: torch.Tensor | None, mode: str = "scale"
) -> tuple[torch.Tensor, torch.Tensor]:
    if gains is None or mode != "scale":
        return x.clone(), x * 2
    return scaled(x, gains), x * 2


X, GAINS = numbers(130, 7), numbers(7, seed=3)
WANTED = X * GAINS


def there(*tensors, grad=False):
    return [t.to("neuron").requires_grad_(grad) for t in tensors]


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that the backend gets from AOTAutograd, as text."""
    from torch._functorch import aot_autograd

    found, boxed = [], aot_autograd.make_boxed_func

    def kept(forward):
        found.append(forward.__self__.print_readable(print_output=False))
        return boxed(forward)

    monkeypatch.setattr(aot_autograd, "make_boxed_func", kept)
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


def test_a_kernel_takes_tensors_of_the_device():
    x, gains = there(X, GAINS)
    result = scaled(x, gains, factor=0.5)
    assert result.device.type == "neuron"
    assert np.array_equal(result.cpu().numpy(), X.numpy() * GAINS.numpy() * np.float32(0.5))
    assert torch.equal(scaled(x.T.contiguous().T, gains).cpu(), WANTED)
    assert torch.equal(scaled(x[1:, ::2], gains[::2]).cpu(), WANTED[1:, ::2])
    (cache,) = there(torch.ones(5, 7))
    version = cache._version
    assert accumulate(cache, x[:5]) is cache
    assert torch.equal(cache.cpu(), X[:5] + 1)
    assert cache._version > version
    with pytest.raises(ValueError, match="on cpu, neuron:0"):
        scaled(x, GAINS)
    with pytest.raises(TypeError, match=r"float64.*x\.to\(torch\.float32\)"):
        scaled(x.double(), gains)
    with pytest.warns(UserWarning, match="does not require grad"):
        scaled(x.requires_grad_(), gains)


@nki.jit
def chosen_row(x, place):
    out = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    row = nisa.scalar_load(place)
    pattern = [[x.shape[1], 1], [1, x.shape[1]]]
    nisa.dma_copy(dst=out, src=x.ap(pattern, scalar_offset=row, indirect_dim=0))
    return out


@pytest.mark.parametrize("where", ["cpu", "neuron"])
def test_a_kernel_takes_the_integers_that_pytorch_makes(where, graphs):
    """int64, from which `import nki` loads scalars, in HBM."""
    x, place = X.to(where), torch.tensor([[2]]).to(where)
    assert torch.equal(chosen_row(x, place).cpu(), X[2:3])
    wide = torch.arange(10, device=where).view(5, 2) << 40
    copied = chosen_row(wide, place)
    assert copied.dtype is torch.int64
    assert torch.equal(copied.cpu(), wide[2:3].cpu())
    if where == "neuron":
        run = torch.compile(chosen_row, backend="neuron", fullgraph=True)
        assert torch.equal(run(x, place).cpu(), X[2:3])


def test_a_kernel_does_not_read_the_memory_of_another_neuron_device(monkeypatch):
    from nkisim.runtime import frameworks

    x, gains = there(X, GAINS)
    monkeypatch.setattr(frameworks, "takes", frameworks._no_device)
    with pytest.raises(ValueError, match=r"the SDK's neuron device.*AUTOLOAD=0"):
        scaled(x, gains)


def test_a_kernel_gives_shapes_of_tensors_without_values():
    from torch._subclasses.fake_tensor import FakeTensorMode

    result = scaled(torch.empty(9, 4, device="meta"), torch.empty(4, device="meta"))
    assert (result.device.type, result.shape) == ("meta", (9, 4))
    with FakeTensorMode():
        result = scaled(torch.empty(9, 4, device="neuron").bfloat16(), torch.ones(4).to("neuron"))
    assert (result.device.type, result.shape, result.dtype) == ("neuron", (9, 4), torch.bfloat16)


def test_an_operator_is_differentiated():
    x, gains = there(X, GAINS, grad=True)
    here = [X.clone().requires_grad_(), GAINS.clone().requires_grad_()]
    result = scaled_op(x, gains, 0.5)
    assert torch.equal(result.detach().cpu(), WANTED * 0.5)
    (result**2).sum().backward()
    ((here[0] * here[1] * 0.5) ** 2).sum().backward()
    for one, other in zip((x, gains), here, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)


def test_an_operator_passes_opcheck():
    """All but the test of autograd, which PyTorch has for its own devices only."""
    which = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(scaled_op, tuple(there(X, GAINS, grad=True)), test_utils=which)
    cache, x = there(torch.ones(5, 7), X[:5])
    torch.library.opcheck(accumulate_op, (cache, x), test_utils=which)


def test_an_operator_refuses_what_the_sdk_refuses():
    with pytest.raises(ValueError, match=r"on cpu.*x\.to\('neuron'\)"):
        scaled_op(X, GAINS)
    with pytest.raises(nkisim.KernelError, match=r"return scaled\(x\)"):
        nki_op("nkisim_test::kernel", scaled)
    with pytest.raises(ValueError, match=r"annotat"):
        nki_op("nkisim_test::bare", lambda x: scaled(x, x))
    with pytest.raises(nkisim.KernelError, match=r"wrap_nki\(scaled\)\[2\]"):
        wrap_nki(scaled[2])


def test_a_compiled_function_has_kernels_as_nodes(graphs):
    def loss(x, gains):
        return (torch.relu(scaled_op(x * 2, gains)) + x).square().sum()

    here = [X.clone().requires_grad_(), GAINS.clone().requires_grad_()]
    (torch.relu(here[0] * 2 * here[1]) + here[0]).square().sum().backward()
    x, gains = there(X, GAINS, grad=True)
    torch.compile(loss, backend="neuron", fullgraph=True)(x, gains).backward()
    for one, other in zip((x, gains), here, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-4)
    forward, backward = graphs
    for graph in (forward, backward):
        assert graph.count("scaled_proxy")
        assert graph.count("nki_kernel_wrapper(") == 1


bound, wrapped = scaled[1], wrap_nki(scaled)[1]


@pytest.mark.parametrize(
    "launch",
    [
        lambda *args: bound(*args, factor=2.0),
        lambda *args: wrapped(*args, factor=2.0),
        lambda *args: scaled[1](*args, factor=2.0),
        lambda *args: wrap_nki(scaled)[1](*args, factor=2.0),
    ],
    ids=["bound", "wrapped", "bound inside", "wrapped inside"],
)
def test_a_kernel_is_a_node(graphs, launch):
    def function(x, gains):
        return launch(x + 1, gains) - 1

    found = torch.compile(function, backend="neuron", fullgraph=True)(*there(X, GAINS))
    torch.testing.assert_close(found.cpu(), (X + 1) * GAINS * 2 - 1)
    (graph,) = graphs
    assert "nki_kernel_wrapper(" in graph
    assert "grid = [1]" in graph
    assert "'factor': 2.0" in graph


@pytest.mark.filterwarnings("ignore:instance")  # both cores write the same
def test_the_cores_of_a_compiled_launch(graphs, monkeypatch):
    """Those in brackets; without brackets, those that the environment joins."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    for function, cores, grid in (
        (lambda x, y: scaled[2](x, y), 2, [2]),
        (lambda x, y: scaled(x, y), 1, []),
        (lambda x, y: scaled(x, y) * 1, 2, [2]),
    ):
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", str(cores))
        found = torch.compile(function, backend="neuron", fullgraph=True)(*there(X, GAINS))
        assert torch.equal(found.cpu(), WANTED)
        assert f"grid = {grid}" in graphs[-1]


@pytest.mark.parametrize("change", [accumulate, accumulate_op])
def test_changes_in_place_are_seen_in_compiled_code(graphs, change):
    def function(cache, x):
        change(cache, x)
        return cache * 2

    cache, x = there(torch.ones(5, 7), X[:5])
    for _ in range(2):
        found = torch.compile(function, backend="neuron", fullgraph=True)(cache, x)
    torch.testing.assert_close(cache.cpu(), 1 + 2 * X[:5])
    torch.testing.assert_close(found.cpu(), 2 + 4 * X[:5])


def test_optional_arguments_and_several_results(graphs):
    compiled = torch.compile(moded, backend="neuron", fullgraph=True)
    x, gains = there(X, GAINS)
    for arguments, first in (((x, gains), WANTED), ((x, None), X), ((x, gains, "copy"), X)):
        for function in (moded, compiled):
            results = function(*arguments)
            assert torch.equal(results[0].cpu(), first)
            assert torch.equal(results[1].cpu(), 2 * X)


def test_each_shape_is_compiled(graphs):
    compiled = torch.compile(scaled_op, backend="neuron", fullgraph=True)
    x, gains = there(X, GAINS)
    for rows in (130, 20, 60, 20):
        assert torch.equal(compiled(x[:rows].clone(), gains).cpu(), WANTED[:rows])
    assert len(graphs) == 3
    with pytest.raises(Exception, match="fixed shapes"):
        torch.compile(scaled_op, backend="neuron", dynamic=True)(x, gains)
    with pytest.warns(UserWarning, match=r"ignores options\['level'\]"):
        torch.compile(scaled_op, backend="neuron", options={"level": 3})(x[:9].clone(), gains)


def test_a_model_is_trained_compiled(graphs):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(7, 7)
            self.gains = torch.nn.Parameter(torch.ones(7))

        def forward(self, x):
            return self.linear(scaled_op(F.gelu(x), self.gains))

    torch.manual_seed(0)
    model = Model().to("neuron")
    twin = copy.deepcopy(model)
    (x,) = there(X)
    for one in (torch.compile(model, backend="neuron"), twin):
        optimizer = torch.optim.SGD(one.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            one(x).square().mean().backward()
            optimizer.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach().cpu())


def test_an_autograd_function_may_break_the_graph(graphs):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gains):
            ctx.save_for_backward(x, gains)
            return scaled(x, gains)

        @staticmethod
        def backward(ctx, grad):
            x, gains = ctx.saved_tensors
            return scaled(grad, gains), (grad * x).sum(0)

    x, gains = there(X, GAINS, grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled = torch.compile(lambda x, g: Scaled.apply(x, g) * 2, backend="neuron")
        compiled(x, gains).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * GAINS.expand_as(X))


# -- One device a process


def test_another_device_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "other")
    with pytest.raises(RuntimeError, match=r"'other'.*process of its own"):
        device.set_up.__wrapped__()


def test_without_a_compiler_there_is_a_way(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(guard.NoCompilerError, match=r"torch>=2\.13"):
        guard.load()
    stand_in = vars(torch_neuronx)["_real"]
    monkeypatch.setattr(stand_in, "_no_device", guard.NoCompilerError("why"))
    with pytest.raises(guard.NoCompilerError, match="why"):
        from torch_neuronx import nki_hop  # noqa: F401
    assert torch_neuronx.nki_jit


def test_an_import_without_a_device_says_why(monkeypatch):
    """Unless there is PyTorch/XLA, which has one."""

    def none():
        raise guard.NoCompilerError("why")

    monkeypatch.setattr("nkisim.runtime.torch_neuron.set_up", none)
    file = vars(torch_neuronx)["_real"].__file__
    monkeypatch.delitem(sys.modules, "torch_xla", raising=False)
    with pytest.warns(UserWarning, match=r"no torch\.device\('neuron'\): why"):
        runpy.run_path(file)
    monkeypatch.setitem(sys.modules, "torch_xla", torch)
    runpy.run_path(file)
