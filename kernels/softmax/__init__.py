"""Softmax of rows, forward and backward.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.installed import dialect_in_force
from kernels.softmax.launch import nki_softmax, nki_softmax_backward

if dialect_in_force() == "neuronxcc":
    from kernels.softmax.neuronxcc import nki_softmax_backward_kernel, nki_softmax_kernel
else:
    from kernels.softmax.nki import nki_softmax_backward_kernel, nki_softmax_kernel

__all__ = [
    "nki_softmax",
    "nki_softmax_backward",
    "nki_softmax_backward_kernel",
    "nki_softmax_kernel",
]
