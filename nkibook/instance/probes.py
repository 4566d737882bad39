"""What the book assumes of the Neuron SDK without having seen it.

Each is tried in a process of its own. A probe is a few lines of Python that end in a value or in an
error. The stand-in of `tests/rehearsal` behaves as assumed; a report from an instance says what is
so. Some are about one dialect of NKI, and asked where the SDK compiles that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_START = """
import numpy as np
import kernels
from kernels.add import nki_tensor_add_kernel as add
if kernels.dialect == "nki":
    import nki, nki.language as nl
    from kernels.logical_core import cores
    grid = cores()
else:
    import neuronxcc.nki as nki, neuronxcc.nki.language as nl
    grid = 3, 1
array = np.ones((300, 5), np.float32)
"""
_TORCH = (
    _START
    + "import torch\nfrom kernels.arrays import torch_device\n"
    + "x = torch.ones(300, 5).to(torch_device())\n"
)
_JAX = _START + "import jax, jax.numpy as jnp\nx = jnp.ones((300, 5))\n"


@dataclass(frozen=True)
class Probe:
    """One assumption.

    Attributes:
        name: what is tried.
        code: a script; its last line assigns `result`.
        assumed: "refused", when an error is expected, else the text of `result`.
        words: what the error's text is assumed to have in it; "" for anything.
        framework: whose tensors it takes: "numpy", "torch" or "jax".
        only: the instances for which it holds; all by default.
        dialect: "neuronxcc" or "nki", if it is about one of them.
    """

    name: str
    code: str
    assumed: str
    words: str = ""
    framework: str = "numpy"
    only: tuple[str, ...] = ()
    dialect: str = ""


_TWO_CORES = _START + "result = add[nl.spmd_dim(2, nl.nc(2)), 1](array, array).sum()"
_OLDER = """
import neuronxcc.nki as older, neuronxcc.nki.language as older_nl
@older.jit
def copied(x):
    y = older_nl.ndarray(x.shape, x.dtype, buffer=older_nl.shared_hbm)
    older_nl.store(y, value=older_nl.load(x))
    return y
"""
_HALF = """
@nki.jit
def tall(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.load(x))
    return y
result = tall(array)
"""

PROBES = (
    Probe("a kernel on NumPy arrays", _START + "result = add[grid](array, array).sum()", "3000.0"),
    Probe(
        "a kernel on CPU tensors of PyTorch, before torch_xla is imported",
        _START + "import torch\nx = torch.ones(300, 5)\nresult = add[grid](x, x)",
        "refused",
        "torch_neuronx",
        "torch",
        dialect="neuronxcc",
    ),
    Probe(
        "a kernel on CPU tensors of PyTorch",
        _TORCH + "y = torch.ones(300, 5)\nresult = add[grid](y, y)",
        "refused",
        "XLA tensors",
        "torch",
        dialect="neuronxcc",
    ),
    Probe(
        "a kernel on tensors of PyTorch's device",
        _TORCH + "result = add[grid](x, x).cpu().sum().item()",
        "3000.0",
        framework="torch",
    ),
    Probe(
        "a kernel on tensors of PyTorch's device and a NumPy array",
        _TORCH + "result = add[grid](x, array)",
        "refused",
        framework="torch",
    ),
    Probe(
        "a kernel on JAX arrays, in eager code",
        _JAX + "result = float(add[grid](x, x).sum())",
        "3000.0",
        framework="jax",
    ),
    Probe(
        "a kernel on JAX arrays, under jit",
        _JAX + "result = float(jax.jit(add[grid])(x, x).sum())",
        "3000.0",
        framework="jax",
    ),
    Probe(
        "a kernel on a JAX array and a NumPy array",
        _JAX + "result = add[grid](x, array)",
        "refused",
        framework="jax",
    ),
    Probe(
        "PyTorch, then a kernel on NumPy arrays, in one process",
        _TORCH + "add[grid](x, x).cpu()\nresult = add[grid](array, array)",
        "refused",
        "available",
        "torch",
    ),
    Probe(
        "JAX, then a kernel on NumPy arrays, in one process",
        _JAX + "add[grid](x, x).block_until_ready()\nresult = add[grid](array, array)",
        "refused",
        "available",
        "jax",
    ),
    Probe(
        "two NeuronCores in one launch",
        _TWO_CORES,
        "refused",
        only=("inf2", "trn1"),
        dialect="neuronxcc",
    ),
    Probe(
        "two NeuronCores in one launch, on trn2",
        _TWO_CORES,
        "3000.0",
        only=("trn2",),
        dialect="neuronxcc",
    ),
    Probe(
        "a tile of 300 partitions",
        _START + _HALF,
        "refused",
        "err_num_partition_exceed_arch_limit",
        dialect="neuronxcc",
    ),
    Probe("a tile of 300 partitions, in nki", _START + _HALF, "refused", dialect="nki"),
    Probe(
        "a launch on another number of cores than the runtime joins",
        _START + "result = add[3 - grid](array, array).sum()",
        "refused",
        dialect="nki",
    ),
    Probe(
        "a kernel in neuronxcc.nki, from SDK 2.30 on",
        _START + _OLDER + "result = copied(array[:100]).sum()",
        "refused",
        dialect="nki",
    ),
    Probe(
        "neuronxcc.nki.baremetal, from SDK 2.30 on, leaves zeros",
        _START + _OLDER + "result = older.baremetal(copied)(array[:100]).sum()",
        "0.0",
        dialect="nki",
    ),
    Probe(
        "nki.benchmark, of which NKI 0.6 has none",
        _START + "result = nki.benchmark",
        "refused",
        dialect="nki",
    ),
    Probe("an attribute of the simulator's kernels", _START + "result = add.cache_info", "refused"),
    Probe(
        "torch_neuronx.nki_jit",
        "import torch_neuronx\nresult = torch_neuronx.nki_jit",
        "refused",
        framework="torch",
    ),
    Probe(
        "the HLO of PyTorch has the custom call",
        _TORCH
        + "from nkibook.hlo import torch_hlo\n"
        + "result = [c.target for c in torch_hlo(add[grid], x, x).custom_calls]",
        "['AwsNeuronCustomNativeKernel']",
        framework="torch",
        dialect="neuronxcc",
    ),
    Probe(
        "the graph of PyTorch has the kernel as a node",
        _TORCH
        + "from kernels.add.torch_op import add as operator\n"
        + "from nkibook.fx import graphs\n"
        + "result = [graph.kernels for graph in graphs(operator, x, x)]",
        "[{'nki_tensor_add_kernel': 1}]",
        framework="torch",
        dialect="nki",
    ),
    Probe(
        "the HLO of JAX has the custom call",
        _JAX
        + "from nkibook.hlo import jax_hlo\n"
        + "result = [c.target for c in jax_hlo(add[grid], x, x).custom_calls]",
        "['AwsNeuronCustomNativeKernel']",
        framework="jax",
    ),
    Probe(
        "custom_partitioning on all NeuronCores",
        _JAX
        + """
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from kernels.add.jax_op import add as operator
mesh = Mesh(jax.devices(), ("rows",))
rows = 100 * len(jax.devices())
y = jax.device_put(jnp.ones((rows, 5)), NamedSharding(mesh, PartitionSpec("rows")))
result = float(jax.jit(operator)(y, y).sum()) / rows
""",
        "10.0",
        framework="jax",
    ),
    Probe(
        "a loop with torch_xla.sync() compiles one program",
        _TORCH
        + """
import torch_xla
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


def probes(dialect: str) -> Iterator[tuple[int, Probe]]:
    """(number, probe) of those that are asked where an SDK compiles a dialect."""
    for number, probe in enumerate(PROBES):
        if probe.dialect in ("", dialect):
            yield number, probe


def judge(probe: Probe, outcome: str) -> bool:
    """Whether an outcome, "fine: ..." or "ErrorType: message", is as assumed."""
    kind, _, text = outcome.partition(": ")
    if probe.assumed == "refused":
        return kind not in ("fine", "no answer") and probe.words in outcome
    return kind == "fine" and text == probe.assumed
