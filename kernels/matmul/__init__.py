"""Matrix product, forward and backward.

``neuronxcc`` holds the kernel and needs only NKI; ``reference`` the NumPy version; ``torch_op``
and ``jax_op`` the differentiable operators, each importing its own framework only.
"""

from kernels.installed import dialect_in_force

if dialect_in_force() == "neuronxcc":
    from kernels.matmul.neuronxcc import nki_matmul, nki_matmul_backward, nki_matmul_kernel
else:
    from kernels.matmul.nki import nki_matmul, nki_matmul_backward, nki_matmul_kernel

__all__ = ["nki_matmul", "nki_matmul_backward", "nki_matmul_kernel"]
