"""Neuron custom C++ operators on the CPU: a stand-in for the GpSimd toolchain.

`torch_neuronx.xla_impl.custom_op.load` compiles kernel and shape functions with the machine's C++
compiler, against headers in ``include/`` that follow AWS's "Custom Operators API Reference Guide".
Each GpSimd processor is a thread with a TCM of its own. `record` tells what each of them did.
"""

from nkisim.customop.processors import (
    DOCUMENTED_POOL_BYTES,
    MAX_DIM_SIZE,
    MAX_DIMS,
    PROCESSORS,
    TCM_BYTES,
    ProcessorRun,
    Run,
    record,
)

__all__ = [
    "DOCUMENTED_POOL_BYTES",
    "MAX_DIMS",
    "MAX_DIM_SIZE",
    "PROCESSORS",
    "TCM_BYTES",
    "ProcessorRun",
    "Run",
    "record",
]
