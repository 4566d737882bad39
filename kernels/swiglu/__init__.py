"""SwiGLU, the gate of a transformer's MLP: ``silu(gate) * up``, forward and backward.

The matrix products around it are :mod:`kernels.matmul`'s. In inference one kernel for the whole MLP
would keep gate, up and their product in SBUF. In training the backward pass reads gate and up from
HBM, and the gradient of the last weight reads the product: the forward pass writes all three in any
case. So a larger kernel would save little here, and this one is for the element-wise part.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``reference`` the NumPy version; ``torch_op`` and ``jax_op`` the differentiable operators, each
importing its own framework only.
"""

from kernels.installed import dialect_in_force
from kernels.swiglu.launch import nki_swiglu, nki_swiglu_backward

if dialect_in_force() == "neuronxcc":
    from kernels.swiglu.neuronxcc import nki_swiglu_backward_kernel, nki_swiglu_kernel
else:
    from kernels.swiglu.nki import nki_swiglu_backward_kernel, nki_swiglu_kernel

__all__ = [
    "nki_swiglu",
    "nki_swiglu_backward",
    "nki_swiglu_backward_kernel",
    "nki_swiglu_kernel",
]
