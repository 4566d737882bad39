"""RMSNorm as a differentiable PyTorch operator and module around the NKI kernels.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans. :class:`RMSNorm` replaces ``torch.nn.RMSNorm`` in a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward
from kernels.rmsnorm.arguments import leading_shape
from kernels.torch_rules import batched, no_second_derivative, one_by_one, operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Keep what the backward kernel reads: x, the weight, and invvar."""
    x, weight, _ = inputs
    _, invvar = output
    ctx.mark_non_differentiable(invvar)
    ctx.save_for_backward(x, weight, invvar)


def _gradients(ctx: Any, grad_y: torch.Tensor, _: Any) -> tuple[torch.Tensor, torch.Tensor, None]:
    """One launch gives both gradients. That of the weight is rounded to its dtype here."""
    x, weight, invvar = ctx.saved_tensors
    grad_x, grad_weight = _rms_norm_backward(grad_y, x, weight, invvar)
    return grad_x, grad_weight.to(weight.dtype), None


def _mapped(op: Any, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
    """A batch of x is more rows: one launch. A batch of weights is one launch an element."""
    x, weight, eps = inputs
    if in_dims[1] is not None:
        return one_by_one(op, info.batch_size, in_dims, inputs), (0, 0)
    return op(x.movedim(in_dims[0], 0), weight, eps), (0, 0)


def _mapped_backward(op: Any, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
    """One launch: a batch is more rows. Each element has a weight gradient of its own, which the
    kernel would add up with the others', so PyTorch sums it. A weight for each element is one
    launch for each."""
    if in_dims[2] is None:
        grad_y, x, invvar = batched(
            info.batch_size, (*in_dims[:2], in_dims[3]), (*inputs[:2], inputs[3])
        )
        grad_x, _ = op(grad_y, x, inputs[2], invvar)
        normal = x.float() * invvar.reshape(*invvar.shape, *[1] * inputs[2].ndim)
        return (grad_x, (grad_y.float() * normal).sum(tuple(range(1, invvar.ndim)))), (0, 0)
    return one_by_one(op, info.batch_size, in_dims, inputs), (0, 0)


def _empty(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    lead = x.shape[: x.ndim - weight.ndim]
    return x.new_empty(x.shape), x.new_empty(lead, dtype=torch.float32)


@operator("rms_norm", fake=_empty, vmap=_mapped, keep=_keep, backward=_gradients)
def _rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    if 0 in leading_shape(x, weight):  # no rows: nothing to launch
        return _empty(x, weight, eps)
    return nki_rms_norm(x, weight, eps)


@operator(
    "rms_norm_backward",
    fake=lambda grad_y, x, weight, invvar: (
        x.new_empty(x.shape),
        weight.new_empty(weight.shape, dtype=torch.float32),
    ),
    vmap=_mapped_backward,
    backward=no_second_derivative("rms_norm", "torch.nn.functional.rms_norm"),
)
def _rms_norm_backward(
    grad_y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, invvar: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if 0 in invvar.shape:  # a sum over no rows
        return x.new_empty(x.shape), weight.new_zeros(weight.shape, dtype=torch.float32)
    return nki_rms_norm_backward(grad_y, x, weight, invvar)


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """``torch.nn.functional.rms_norm`` with the NKI kernels, differentiable once.

    Dimensions:
        normalized_shape: the axes that are normalised, together of 1 to 16384 elements.

    Args:
        input: (..., *normalized_shape), float32, bfloat16 or float16, on the CPU, a neuron or an
            XLA device.
        normalized_shape: shape of the last axes of ``input``.
        weight: the scales, of shape ``normalized_shape`` and any of these dtypes; ones when None.
        eps: added to the mean square. When None, the eps of float32 (``torch.finfo``) whatever the
            dtype of ``input``: what PyTorch 2.9 does, though it documents that of the input.

    Returns:
        Shape and dtype of ``input``.

    Raises:
        TypeError: not a tensor, an ``eps`` that is no number, or another dtype, such as integers
            (PyTorch raises NotImplementedError) or float64 (which PyTorch takes and a NeuronCore
            does not have).
        ValueError: shapes that do not fit (PyTorch raises RuntimeError), or rows longer than 16384.

    Notes:
        As in PyTorch, NaN and infinity in a row make NaN of it, and no rows give no rows, and a
        gradient of zeros for the weight. Works under ``torch.func`` (``grad``, ``vmap``),
        ``torch.compile`` and ``torch.export``. Under ``torch.autocast`` the dtypes stay, as
        PyTorch's do.

    Pseudocode:
        invvar = rsqrt(mean(input**2) + eps)
        forward:   y = input * invvar * weight
        backward:  g = grad_y * weight
                   grad_input = invvar * (g - y_hat * mean(g * y_hat)), y_hat = input * invvar
                   grad_weight = sum over rows of grad_y * y_hat
    """
    require_tensors(input=input)
    if weight is not None:
        require_tensors(weight=weight)
    if eps is not None and not hasattr(eps, "__float__"):
        raise TypeError(
            f"eps is {eps!r}, a {type(eps).__name__}. It is added to the mean square: pass a "
            "number, or None for that of float32."
        )
    shape = tuple(normalized_shape)
    if weight is None:
        weight = torch.ones(shape, dtype=input.dtype, device=input.device)
    elif tuple(weight.shape) != shape:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} and normalized_shape is {shape}. "
            "They must be equal."
        )
    if eps is None:
        eps = torch.finfo(torch.float32).eps
    leading_shape(input, weight)  # refuses what does not fit
    y, _ = _rms_norm(input, weight, float(eps))
    return y


class RMSNorm(torch.nn.RMSNorm):
    """``torch.nn.RMSNorm`` with the NKI kernels: same arguments, same parameters, same checkpoints.

    Raises:
        TypeError, ValueError: when called, as :func:`rms_norm`.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x of shape (..., *normalized_shape); the result has its shape and dtype."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)
