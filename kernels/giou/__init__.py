"""Generalized IoU (GIOU) of boxes, a loss for training object detectors.

``neuronxcc`` and ``nki`` hold the kernels of each dialect, ``launch`` what launches them,
``forward`` and ``backward`` what those in ``neuronxcc.nki`` do with a tile; all need only NKI.
``reference`` is the NumPy version; ``torch_op`` and ``jax_op`` are the differentiable operators,
each importing its own framework only.
"""

from kernels.giou.launch import nki_giou, nki_giou_backward
from kernels.installed import dialect_in_force

if dialect_in_force() == "neuronxcc":
    from kernels.giou.neuronxcc import (
        nki_giou_backward_kernel,
        nki_giou_kernel,
        nki_giou_kernel_strict,
        nki_giou_strict_into,
    )
else:
    from kernels.giou.nki import nki_giou_backward_kernel, nki_giou_kernel

__all__ = [
    "nki_giou",
    "nki_giou_backward",
    "nki_giou_backward_kernel",
    "nki_giou_kernel",
]
if dialect_in_force() == "neuronxcc":
    __all__ += [
        "nki_giou_kernel_strict",
        "nki_giou_strict_into",
    ]
