"""Matrix product, forward and backward.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.installed import dialect_in_force
from kernels.matmul.launch import nki_matmul, nki_matmul_backward

if dialect_in_force() == "neuronxcc":
    from kernels.matmul.neuronxcc import nki_matmul_kernel
else:
    from kernels.matmul.nki import nki_matmul_kernel

__all__ = ["nki_matmul", "nki_matmul_backward", "nki_matmul_kernel"]
