"""Tensor addition, the first operator of the book.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.add.launch import nki_tensor_add
from kernels.installed import dialect_in_force

if dialect_in_force() == "neuronxcc":
    from kernels.add.neuronxcc import (
        nki_tensor_add_kernel,
        nki_tensor_add_kernel_strict,
        nki_tensor_add_two_cores,
    )
else:
    from kernels.add.nki import nki_tensor_add_kernel

__all__ = [
    "nki_tensor_add",
    "nki_tensor_add_kernel",
]
if dialect_in_force() == "neuronxcc":
    __all__ += [
        "nki_tensor_add_kernel_strict",
        "nki_tensor_add_two_cores",
    ]
