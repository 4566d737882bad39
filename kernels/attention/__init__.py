"""Attention that never writes its scores to HBM (flash attention), forward and backward.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them;
``reference`` is the NumPy version; ``torch_op`` and ``jax_op`` are the differentiable operators,
each importing its own framework only.
"""

from kernels.attention.launch import nki_attention, nki_attention_backward
from kernels.installed import dialect_in_force

if dialect_in_force() == "neuronxcc":
    from kernels.attention.neuronxcc import nki_attention_backward_kernel, nki_attention_kernel
else:
    from kernels.attention.nki import nki_attention_backward_kernel, nki_attention_kernel

__all__ = [
    "nki_attention",
    "nki_attention_backward",
    "nki_attention_backward_kernel",
    "nki_attention_kernel",
]
