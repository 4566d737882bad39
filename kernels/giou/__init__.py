"""Generalized IoU (GIOU) of boxes, a loss for training object detectors.

``nki_kernels`` holds the kernels and needs only NKI; ``reference`` the NumPy version; ``torch_op``
and ``jax_op`` the differentiable operators, each importing its own framework only; ``figures`` the
pictures of its pages.
"""

from kernels.giou.nki_kernels import (
    nki_giou,
    nki_giou_backward,
    nki_giou_backward_kernel,
    nki_giou_kernel,
    nki_giou_kernel_strict,
    nki_giou_strict_into,
)

__all__ = [
    "nki_giou",
    "nki_giou_backward",
    "nki_giou_backward_kernel",
    "nki_giou_kernel",
    "nki_giou_kernel_strict",
    "nki_giou_strict_into",
]
