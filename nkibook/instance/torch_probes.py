"""What the book assumes of PyTorch in an SDK: with PyTorch/XLA, and with its `neuron` device."""

from __future__ import annotations

from nkibook.instance.probe import START, Probe

_XLA = START + "import torch, torch_xla\nx = torch.ones(300, 5).to(torch_xla.device())\n"

XLA = (
    Probe(
        "a kernel on CPU tensors of PyTorch, before torch_xla is imported",
        START + "import torch\nx = torch.ones(300, 5)\nresult = add[grid](x, x)",
        "refused",
        "torch_neuronx",
        "torch",
        dialect="neuronxcc",
    ),
    Probe(
        "a kernel on CPU tensors of PyTorch",
        _XLA + "y = torch.ones(300, 5)\nresult = add[grid](y, y)",
        "refused",
        "XLA tensors",
        "torch",
        dialect="neuronxcc",
    ),
    Probe(
        "a kernel on XLA tensors",
        _XLA + "result = add[grid](x, x).cpu().sum().item()",
        "3000.0",
        framework="torch",
        dialect="neuronxcc",
    ),
    Probe(
        "a kernel on XLA tensors and a NumPy array",
        _XLA + "result = add[grid](x, array)",
        "refused",
        framework="torch",
        dialect="neuronxcc",
    ),
    Probe(
        "PyTorch, then a kernel on NumPy arrays, in one process",
        _XLA + "add[grid](x, x).cpu()\nresult = add[grid](array, array)",
        "refused",
        "available",
        "torch",
        dialect="neuronxcc",
    ),
    Probe(
        "torch_neuronx.nki_jit",
        "import torch_neuronx\nresult = torch_neuronx.nki_jit",
        "refused",
        framework="torch",
        dialect="neuronxcc",
    ),
    Probe(
        "the HLO of PyTorch has the custom call",
        _XLA
        + "from nkibook.hlo import torch_hlo\n"
        + "result = [c.target for c in torch_hlo(add[grid], x, x).custom_calls]",
        "['AwsNeuronCustomNativeKernel']",
        framework="torch",
        dialect="neuronxcc",
    ),
    Probe(
        "a loop with torch_xla.sync() compiles one program",
        _XLA
        + """
from torch_xla.debug import metrics
torch_xla.sync()
before = (metrics.metric_data("CompileTime") or [0])[0]
for step in range(5):
    x = add[grid](x, x) * 0.5
    torch_xla.sync()
result = metrics.metric_data("CompileTime")[0] - before
""",
        "1",
        framework="torch",
        dialect="neuronxcc",
    ),
)
"""Those of `neuronxcc.nki`, for SDK 2.28.1."""

_NEURON = (
    START
    + """
import torch, torch_neuronx
from torch_neuronx import nki_op, wrap_nki
x = torch.ones(300, 5).to("neuron")
"""
)
_OPERATOR = (
    _NEURON
    + """
@nki_op("nki_probe::twice", mutates_args={})
def twice(x: torch.Tensor) -> torch.Tensor:
    return add[grid](x, x)

def keep(ctx, inputs, output):
    pass

twice.register_autograd(lambda ctx, grad: 2 * grad, setup_context=keep)
"""
)
_COMPILED = (
    'compiled = torch.compile(lambda x: twice(x + 1).sum(), backend="neuron", fullgraph=True)\n'
)


def _of_neuron(name: str, code: str, assumed: str, words: str = "") -> Probe:
    return Probe(name, code, assumed, words, "torch", dialect="nki")


NEURON = (
    _of_neuron(
        "torch_neuronx has nki_op, wrap_nki and synchronize",
        "import torch_neuronx as t\n"
        "result = [n for n in ('nki_op', 'synchronize', 'wrap_nki') if hasattr(t, n)]",
        "['nki_op', 'synchronize', 'wrap_nki']",
    ),
    _of_neuron(
        "torch_xla is not beside PyTorch's neuron device",
        "import torch_xla\nresult = torch_xla.__version__",
        "refused",
        "torch_xla",
    ),
    _of_neuron(
        "torch.neuron: availability, and one device a process",
        _NEURON
        + "result = torch.neuron.is_available(), torch.neuron.device_count(), str(x.device)",
        "(True, 1, 'neuron:0')",
    ),
    _of_neuron(
        "torch.neuron.synchronize",
        _NEURON + "y = x @ x.T\ntorch.neuron.synchronize()\nresult = y.sum().item()",
        "450000.0",
    ),
    _of_neuron(
        "a kernel on neuron tensors", _NEURON + "result = add[grid](x, x).sum().item()", "3000.0"
    ),
    _of_neuron(
        "a kernel on neuron tensors, wrapped",
        _NEURON + "result = wrap_nki(add)[grid](x, x).sum().item()",
        "3000.0",
    ),
    _of_neuron(
        "wrap_nki on a kernel that is bound to its cores",
        _NEURON + "result = wrap_nki(add[2])(x, x).sum().item()",
        "refused",
    ),
    _of_neuron(
        "a kernel on CPU tensors, with the neuron device",
        _NEURON + "result = add[grid](x.cpu(), x.cpu())",
        "refused",
        "NKI kernel execution failed",
    ),
    _of_neuron(
        "a kernel on a neuron tensor and a CPU tensor",
        _NEURON + "result = add[grid](x, x.cpu())",
        "refused",
    ),
    _of_neuron(
        "a kernel on a neuron tensor and a NumPy array",
        _NEURON + "result = add[grid](x, array)",
        "refused",
    ),
    _of_neuron(
        "a kernel on neuron tensors of int64",
        _NEURON
        + "y = torch.ones(300, 5, dtype=torch.int64).to('neuron')\nresult = add[grid](y, y)",
        "refused",
    ),
    _of_neuron(
        "the dtype of an int64 tensor on the neuron device",
        _NEURON + "result = (torch.arange(3).to('neuron') + 1).dtype",
        "torch.int64",
    ),
    _of_neuron(
        "a kernel that moves a neuron tensor of int64",
        _NEURON
        + """
import nki.isa as nisa

@nki.jit
def moved(source):
    out = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=source)
    return out

y = torch.tensor([[1 << 40]]).to("neuron")
result = moved[grid](y).dtype, moved[grid](y).item()
""",
        f"(torch.int64, {1 << 40})",
    ),
    _of_neuron(
        "a kernel's result on tensors that require a gradient does not",
        _NEURON + "result = add[grid](x.requires_grad_(), x).requires_grad",
        "False",
    ),
    _of_neuron("an nki_op in eager code", _OPERATOR + "result = twice(x).sum().item()", "3000.0"),
    _of_neuron(
        "an nki_op on CPU tensors",
        _OPERATOR + "result = twice(x.cpu())",
        "refused",
        "NKI kernel execution failed",
    ),
    _of_neuron(
        "an nki_op around the kernel itself",
        _NEURON + "result = nki_op('nki_probe::bare', add)",
        "refused",
    ),
    _of_neuron(
        "the gradient of an nki_op, by register_autograd",
        _OPERATOR
        + "leaf = x.detach().requires_grad_()\n(3 * twice(leaf)).sum().backward()\n"
        + "result = leaf.grad.sum().item()",
        "9000.0",
    ),
    _of_neuron(
        "an nki_op under torch.compile(backend='neuron'), and its gradient",
        _OPERATOR
        + _COMPILED
        + "leaf = x.detach().requires_grad_()\nloss = compiled(leaf)\nloss.backward()\n"
        + "result = loss.item(), leaf.grad.sum().item()",
        "(6000.0, 3000.0)",
    ),
    _of_neuron(
        "the graph of torch.compile has the kernel as one node",
        _OPERATOR
        + "from nkibook.fx import graphs\n"
        + "result = sum(graphs(lambda x: twice(x) * 2, x)[0].kernels.values())",
        "1",
    ),
    _of_neuron(
        "a kernel called in compiled code, without an operator",
        _NEURON
        + "step = torch.compile(lambda x: add[grid](x, x) + 1, backend='neuron', fullgraph=True)\n"
        + "result = step(x).sum().item()",
        "4500.0",
    ),
    _of_neuron(
        "torch.compile(backend='neuron', dynamic=True)",
        _OPERATOR + "result = torch.compile(twice, backend='neuron', dynamic=True)(x)",
        "refused",
    ),
    _of_neuron(
        "an nki_op that changes its argument in place, compiled",
        _NEURON
        + """
import nki.isa as nisa

@nki.jit
def copied(target, source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    nisa.dma_copy(dst=target, src=tile)
    return target

@nki_op("nki_probe::store", mutates_args={"target"})
def store(target: torch.Tensor, source: torch.Tensor) -> None:
    copied[grid](target, source)

def step(target, source):
    store(target, source)
    return target + 1

target = torch.zeros(100, 5).to("neuron")
found = torch.compile(step, backend="neuron", fullgraph=True)(target, x[:100])
result = target.sum().item(), found.sum().item()
""",
        "(500.0, 1000.0)",
    ),
    _of_neuron(
        "an operator of the book under torch.compile(backend='neuron')",
        _NEURON
        + "from kernels.softmax.torch_op import softmax\n"
        + "step = torch.compile(lambda x: softmax(x).sum(), backend='neuron', fullgraph=True)\n"
        + "result = round(step(x).item())",
        "300",
    ),
    _of_neuron(
        "PyTorch's neuron device, then a kernel on NumPy arrays, in one process",
        _NEURON + "add[grid](x, x).cpu()\nresult = add[grid](array, array)",
        "refused",
        "available",
    ),
)
"""Those of `import nki`, for SDK 2.33."""
