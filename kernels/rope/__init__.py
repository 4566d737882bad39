"""Rotary position embedding of queries and keys (RoPE), forward and backward.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.installed import dialect_in_force
from kernels.rope.launch import nki_rope

if dialect_in_force() == "neuronxcc":
    from kernels.rope.neuronxcc import nki_rope_kernel
else:
    from kernels.rope.nki import nki_rope_kernel

__all__ = ["nki_rope", "nki_rope_kernel"]
