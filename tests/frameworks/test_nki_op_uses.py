"""Programs of the shape that public ones have which call kernels by `nki_op`, on the simulator.

AWS's quickstart "Run an NKI kernel from torch-neuronx"; weights in FP8 that a compiled graph passes
on as bytes; a key-value cache that a compiled module changes in place; a pair of kernels, forward
and backward, for training; operators with optional arguments, padding and outputs as arguments.
Each is compared with PyTorch or NumPy on the CPU, eager and compiled.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nkisim  # noqa: E402

nkisim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
import torch_neuronx  # noqa: E402
from torch_neuronx import nki_op, wrap_nki  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*other operators run on the CPU")
F = torch.nn.functional


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def new_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function):
    return torch.compile(function, backend="neuron", fullgraph=True)


# -- AWS's quickstart: a kernel, an operator, a model; eager, compiled, differentiated


@nki.jit
def added(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], nl.tile_size.pmax):
        rows = slice(start, min(start + nl.tile_size.pmax, a.shape[0]))
        x = nl.load(a[rows, :])
        y = nl.load(b[rows, :])
        nl.store(out[rows, :], value=nl.add(x, y))
    return out


@nki_op("uses::add", mutates_args={})
def add_op(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return added(a, b)


add_op.register_autograd(lambda ctx, grad: (grad, grad))


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(33, 33)

    def forward(self, x):
        return add_op(torch.relu(self.linear(x)), x)


def test_the_quickstart():
    torch.manual_seed(0)
    model, x = Residual(), numbers(150, 33)
    wanted = torch.relu(model.linear(x)) + x
    wanted.square().mean().backward()
    gradient = model.linear.weight.grad
    model.to("neuron").zero_grad()
    x = x.to("neuron")
    for run in (model, compiled(model)):
        found = run(x)
        torch.testing.assert_close(found.detach().cpu(), wanted.detach())
        found.square().mean().backward()
        torch.testing.assert_close(model.linear.weight.grad.cpu(), gradient)
        model.zero_grad()


# -- Weights in FP8: their bytes are int8 for PyTorch, and FP8 for the kernel


@nki.jit
def times_fp8(x, weight, scale):
    """x (B, K) in bfloat16, weight (K, N) in bytes, scale (N, 1): (B, N) in bfloat16."""
    batch, k = x.shape
    n = weight.shape[1]
    out = nl.ndarray((batch, n), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    product = nl.zeros((n, batch), dtype=nl.float32, buffer=nl.psum)
    for start in range(0, k, 128):
        rows = slice(start, min(start + 128, k))
        moving = nl.load_transpose2d(x[:, rows])
        stationary = nl.load(weight.view(nl.float8_e4m3)[rows, :])
        nisa.nc_matmul(dst=product, stationary=stationary, moving=moving)
    scaled = nl.ndarray((n, batch), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scaled, data=product, op0=nl.multiply, operand0=nl.load(scale))
    nl.store(out, value=transposed(scaled))
    return out


def transposed(tile):
    rows, columns = tile.shape
    turned = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=tile)
    result = nl.ndarray((columns, rows), dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=turned)
    return result


@nki_op("uses::fp8_matmul", mutates_args={})
def fp8_matmul(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return times_fp8(x, weight, scale)


def test_a_matmul_of_fp8_weights_is_a_node_of_the_graph():
    from nkibook.fx import graphs

    x, weight = numbers(5, 200).bfloat16(), numbers(200, 24, seed=1).numpy()
    scale = (np.abs(weight).max(0) / 240)[:, None].astype(np.float32)
    small = (weight / scale.T).astype(ml_dtypes.float8_e4m3)
    wanted = x.float().numpy() @ (small.astype(np.float32) * scale.T)
    there = [
        t.to("neuron") for t in (x, torch.from_numpy(small.view(np.int8)), torch.tensor(scale))
    ]
    for run in (fp8_matmul, compiled(lambda x, w, s: fp8_matmul(x * 1, w, s) + 0)):
        found = run(*there)
        assert found.dtype is torch.bfloat16
        np.testing.assert_allclose(found.float().cpu(), wanted, rtol=2e-2, atol=2e-2)
    (graph,) = graphs(lambda *args: fp8_matmul(*args), *there)
    assert sum(graph.kernels.values()) == 1
    assert not any("convert" in name or "_to_copy" in name for name in graph.counts)


# -- A cache that a compiled module keeps and changes, at a place that a tensor names


@nki.jit
def put_rows(cache, rows, position):
    """Row i of rows goes to row position of batch i of cache. Returns a one."""
    batch, width = rows.shape
    place = nl.load(position)
    values = nl.load(rows)
    for i in range(batch):
        row = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        first = i * (cache.shape[0] // batch)
        nisa.tensor_scalar(dst=row, data=place, op0=nl.add, operand0=first)
        target = cache.ap([[width, 1], [1, width]], scalar_offset=row)
        nisa.dma_copy(dst=target, src=values[i : i + 1, :])
    done = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(done, value=nl.ones((1, 1), dtype=nl.float32))
    return done


@nki_op("uses::put_rows", mutates_args={"cache"})
def put_rows_op(cache: torch.Tensor, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    return put_rows(cache, rows, position)


class Cached(torch.nn.Module):
    def __init__(self, batch, length, width):
        super().__init__()
        self.sizes = batch, length, width
        empty = torch.zeros(batch * length, width, dtype=torch.bfloat16)
        self.register_buffer("cache", empty, persistent=False)

    def forward(self, rows, position):
        done = put_rows_op(self.cache, rows, position)
        return self.cache.reshape(self.sizes)[:, 0], done


def test_a_cache_is_changed_in_place_by_a_compiled_module():
    model = Cached(3, 7, 20).to(torch.neuron.current_device())
    step = torch.compile(model, backend="neuron", fullgraph=True, dynamic=False)
    wanted = torch.zeros(3, 7, 20, dtype=torch.bfloat16)
    for place in (0, 4, 1):
        rows = numbers(3, 20, seed=place).bfloat16()
        wanted[:, place] = rows
        position = torch.tensor([[place]], dtype=torch.int32, device="neuron")
        first, done = step(rows.to("neuron"), position)
        torch.neuron.synchronize()
        assert torch.equal(first.cpu(), wanted[:, 0])
        assert done.item() == 1
        assert torch.equal(model.cache.cpu().view(wanted.shape), wanted)


# -- A forward kernel that keeps something, and a backward kernel, in an autograd.Function


@wrap_nki
@nki.jit
def squared_norms(x, gain, eps):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    squares = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=squares, op=nl.square, data=tile)
    nisa.tensor_reduce(dst=total, op=nl.add, data=squares, axis=1)
    nisa.tensor_scalar(
        dst=total, data=total, op0=nl.multiply, operand0=1.0 / columns, op1=nl.add, operand1=eps
    )
    nisa.activation(dst=total, op=nl.rsqrt, data=total)
    nisa.tensor_scalar(dst=squares, data=tile, op0=nl.multiply, operand0=total)
    gains = nl.broadcast_to(nl.load(gain), (rows, columns))
    nisa.tensor_tensor(dst=squares, data1=squares, data2=gains, op=nl.multiply)
    nl.store(out, value=squares)
    nl.store(kept, value=total)
    return out, kept


@nki_op("uses::norm", mutates_args={})
def norm(x: torch.Tensor, gain: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    return squared_norms(x, gain, eps)


@nki_op("uses::norm_backward", mutates_args={})
def norm_backward(
    grad: torch.Tensor, x: torch.Tensor, gain: torch.Tensor, kept: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    normed = x * kept
    inner = added(grad * gain, -normed * (grad * gain * normed).mean(1, keepdim=True))
    return inner * kept, (grad * normed).sum(0)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, eps):
        flat = x.reshape(-1, x.shape[-1])
        out, kept = norm(flat, gain.reshape(1, -1), eps)
        ctx.save_for_backward(flat, gain, kept)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        flat, gain, kept = ctx.saved_tensors
        dx, dgain = norm_backward(grad.reshape(flat.shape), flat, gain.reshape(1, -1), kept)
        return dx.view(grad.shape), dgain, None


# PyTorch warns of what Dynamo does with a Function.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
def test_a_pair_of_kernels_trains():
    x, gain = numbers(2, 30, 17), numbers(17, seed=1)
    here = [t.clone().requires_grad_() for t in (x, gain)]
    (F.rms_norm(here[0], (17,), here[1], 1e-5) ** 2).sum().backward()

    def loss(x, gain):
        return (Norm.apply(x, gain, 1e-5) ** 2).sum()

    for run in (loss, compiled(loss)):
        there = [t.to("neuron").requires_grad_() for t in (x, gain)]
        run(*there).backward()
        torch_neuronx.synchronize()
        for one, other in zip(there, here, strict=True):
            torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-4)


# -- Optional arguments, padding, outputs as arguments, cores in a tuple


@nki.jit
def product(a, b):
    """a (K, M) and b (K, N), K and M at most 128: (M, N)."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    found = nl.zeros((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=found, stationary=nl.load(a), moving=nl.load(b))
    nl.store(out, value=nl.copy(found, dtype=a.dtype))
    return out


@nki_op("uses::linear", mutates_args={})
def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, act: str | None = None
) -> torch.Tensor:
    rows = x.shape[0]
    padded = torch.cat([x, torch.zeros(-rows % 32, x.shape[1], dtype=x.dtype, device=x.device)])
    out = wrap_nki(product)[(1,)](padded.t().contiguous(), weight.t().contiguous())[:rows]
    out = out if bias is None else out + bias
    return torch.relu(out) if act == "relu" else out.clone()


def test_optional_arguments_and_a_padded_batch():
    x, weight, bias = numbers(45, 20), numbers(7, 20, seed=1), numbers(7, seed=2)
    there = [t.to("neuron") for t in (x, weight, bias)]
    for run in (linear, compiled(lambda *args: linear(*args))):
        torch.testing.assert_close(run(*there[:2]).cpu(), F.linear(x, weight))
        torch.testing.assert_close(run(*there).cpu(), F.linear(x, weight, bias))
        found = run(there[0], there[1], None, "relu")
        torch.testing.assert_close(found.cpu(), F.linear(x, weight).relu())


@nki.jit
def added_into(a, b, out):
    nl.store(out, value=nl.add(nl.load(a), nl.load(b)))
    return out


@nki_op("uses::add_into", mutates_args={"out"})
def add_into(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    wrap_nki(added_into)(a, b, out)


@nki_op("uses::returning", mutates_args={"out"})
def returning(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return wrap_nki(added_into)(a, b, out)


def test_an_output_that_is_an_argument():
    """A kernel may return it; PyTorch refuses an operator that does."""
    a, b = numbers(1, 2), numbers(1, 2, seed=1)
    for run in (add_into, compiled(lambda *args: add_into(*args))):
        out = torch.zeros(1, 2, device="neuron")
        run(a.to("neuron"), b.to("neuron"), out)
        torch.testing.assert_close(out.cpu(), a + b)
    with pytest.raises(RuntimeError, match="must not also be an input"):
        returning(a.to("neuron"), b.to("neuron"), torch.zeros(1, 2, device="neuron"))
