"""Average pooling, the second operator of the book.

``geometry`` says where windows lie and cuts images into tiles; ``neuronxcc`` and ``nki`` hold
the kernels of each dialect, ``launch`` what launches them; ``reference`` the NumPy version;
``torch_op`` and ``jax_op`` the differentiable operators, each importing its own framework only.
"""

from kernels.avgpool.launch import nki_avg_pool2d, pool, unpool
from kernels.installed import dialect_in_force

if dialect_in_force() == "neuronxcc":
    from kernels.avgpool.neuronxcc import (
        nki_avg_pool2d_backward_kernel,
        nki_avg_pool2d_kernel,
        nki_avg_pool2d_kernel_strict,
    )
else:
    from kernels.avgpool.nki import nki_avg_pool2d_backward_kernel, nki_avg_pool2d_kernel

__all__ = [
    "nki_avg_pool2d",
    "nki_avg_pool2d_backward_kernel",
    "nki_avg_pool2d_kernel",
    "pool",
    "unpool",
]
if dialect_in_force() == "neuronxcc":
    __all__ += [
        "nki_avg_pool2d_kernel_strict",
    ]
