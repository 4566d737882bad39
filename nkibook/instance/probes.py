"""What the book assumes of the Neuron SDK without having seen it.

Each is tried in a process of its own. A probe is a few lines of Python that end in a value or in an
error. The stand-in of `tests/rehearsal` behaves as assumed; a report from an instance says what is
so. Some are about one dialect of NKI, and asked where the SDK compiles that one.
"""

from __future__ import annotations

from collections.abc import Iterator

from nkibook.instance import torch_probes
from nkibook.instance.probe import START, Probe

_JAX = START + "import jax, jax.numpy as jnp\nx = jnp.ones((300, 5))\n"


_TWO_CORES = START + "result = add[nl.spmd_dim(2, nl.nc(2)), 1](array, array).sum()"
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

_COMMON = (
    Probe("a kernel on NumPy arrays", START + "result = add[grid](array, array).sum()", "3000.0"),
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
        START + _HALF,
        "refused",
        "err_num_partition_exceed_arch_limit",
        dialect="neuronxcc",
    ),
    Probe("a tile of 300 partitions, in nki", START + _HALF, "refused", dialect="nki"),
    Probe(
        "a launch on another number of cores than the runtime joins",
        START + "result = add[3 - grid](array, array).sum()",
        "refused",
        dialect="nki",
    ),
    Probe(
        "a kernel in neuronxcc.nki, from SDK 2.30 on",
        START + _OLDER + "result = copied(array[:100]).sum()",
        "refused",
        dialect="nki",
    ),
    Probe(
        "neuronxcc.nki.baremetal, from SDK 2.30 on, leaves zeros",
        START + _OLDER + "result = older.baremetal(copied)(array[:100]).sum()",
        "0.0",
        dialect="nki",
    ),
    Probe(
        "nki.benchmark, which `import nki` has not",
        START + "result = nki.benchmark",
        "refused",
        dialect="nki",
    ),
    Probe("an attribute of the simulator's kernels", START + "result = add.cache_info", "refused"),
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
)

PROBES = (*_COMMON, *torch_probes.XLA, *torch_probes.NEURON)


def probes(dialect: str) -> Iterator[tuple[int, Probe]]:
    """(number, probe) of those that are asked where an SDK compiles a dialect."""
    for number, probe in enumerate(PROBES):
        if probe.dialect in ("", dialect):
            yield number, probe
