"""Attention that never writes its scores to HBM (flash attention), forward and backward.

``nki_kernels`` holds the kernels and needs only NKI, ``launch`` calls them with arrays of any
framework; ``reference`` is the NumPy version; ``torch_op`` and ``jax_op`` are the differentiable
operators, each importing its own framework only.
"""

from kernels.attention.launch import nki_attention, nki_attention_backward
from kernels.attention.nki_kernels import nki_attention_backward_kernel, nki_attention_kernel

__all__ = [
    "nki_attention",
    "nki_attention_backward",
    "nki_attention_backward_kernel",
    "nki_attention_kernel",
]
