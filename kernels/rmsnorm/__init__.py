"""RMSNorm, forward and backward.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.installed import dialect_in_force
from kernels.rmsnorm.launch import nki_rms_norm, nki_rms_norm_backward

if dialect_in_force() == "neuronxcc":
    from kernels.rmsnorm.neuronxcc import nki_rms_norm_backward_kernel, nki_rms_norm_kernel
else:
    from kernels.rmsnorm.nki import nki_rms_norm_backward_kernel, nki_rms_norm_kernel

__all__ = [
    "nki_rms_norm",
    "nki_rms_norm_backward",
    "nki_rms_norm_backward_kernel",
    "nki_rms_norm_kernel",
]
