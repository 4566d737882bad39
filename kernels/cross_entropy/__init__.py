"""Softmax cross-entropy of rows of logits, forward and backward, without an array of probabilities.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.cross_entropy.launch import nki_cross_entropy, nki_cross_entropy_backward
from kernels.installed import dialect_in_force

if dialect_in_force() == "neuronxcc":
    from kernels.cross_entropy.neuronxcc import (
        nki_cross_entropy_backward_kernel,
        nki_cross_entropy_kernel,
    )
else:
    from kernels.cross_entropy.nki import (
        nki_cross_entropy_backward_kernel,
        nki_cross_entropy_kernel,
    )

__all__ = [
    "nki_cross_entropy",
    "nki_cross_entropy_backward",
    "nki_cross_entropy_backward_kernel",
    "nki_cross_entropy_kernel",
]
