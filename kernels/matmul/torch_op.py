"""Matrix product as a differentiable PyTorch operator around the NKI kernel.

A raw NKI kernel is opaque to PyTorch. Registered as an operator it has a gradient, which is made
of matrix products again, so that it can be differentiated any number of times, a batching rule for
``torch.func.vmap``, and shapes without values, by which ``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.matmul import nki_matmul
from kernels.matmul.arguments import result_shape
from kernels.torch_rules import autocast, one_by_one, operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep both operands: each is a factor in the gradient of the other."""
    a, b, ctx.transpose_a, ctx.transpose_b = inputs
    ctx.save_for_backward(a, b)


def _gradients(ctx: Any, grad_c: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """A product for each operand that needs a gradient."""
    a, b = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        if ctx.transpose_a:  # c = a.T @ b
            grad_a = _matmul(b, grad_c, False, True)
        else:
            grad_a = _matmul(grad_c, b, False, not ctx.transpose_b)
    if ctx.needs_input_grad[1]:
        if ctx.transpose_a:
            grad_b = _matmul(a, grad_c, False, False)
        elif ctx.transpose_b:  # c = a @ b.T
            grad_b = _matmul(grad_c, a, True, False)
        else:
            grad_b = _matmul(a, grad_c, True, False)
    return grad_a, grad_b, None, None


def _mapped(
    op: Any, info: Any, in_dims: tuple[int | None, ...], *inputs: Any
) -> tuple[torch.Tensor, int]:
    """A batch of a is more rows: one launch. A batch of matrices b, or of sums over rows, is one
    launch an element."""
    a, b, transpose_a, transpose_b = inputs
    if in_dims[1] is None and not transpose_a:
        return op(a.movedim(in_dims[0], 0), b, False, transpose_b), 0
    (product,) = one_by_one(op, info.batch_size, in_dims, inputs)
    return product, 0


def _empty(a: torch.Tensor, b: torch.Tensor, *transposes: bool) -> torch.Tensor:
    return a.new_empty(result_shape(a, b, *transposes))


@operator("matmul", fake=_empty, vmap=_mapped, keep=_keep, backward=_gradients)
def _matmul(a: torch.Tensor, b: torch.Tensor, transpose_a: bool, transpose_b: bool) -> torch.Tensor:
    if 0 in (*a.shape, *b.shape):  # nothing is to be multiplied
        return a.new_zeros(result_shape(a, b, transpose_a, transpose_b))
    return nki_matmul(a, b, transpose_a, transpose_b)


def matmul(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``torch.matmul`` with a matrix on the right, with the NKI kernel; differentiable.

    Dimensions:
        K: the contraction. N: columns of the result. "...": rows, any number of axes.

    Args:
        input: (..., K), float32, bfloat16 or float16, on the CPU, a neuron or an XLA device.
        other: (K, N), dtype and device of ``input``.

    Returns:
        (..., N), dtype of ``input``. Products are summed in float32 and rounded once.

    Raises:
        TypeError: not a tensor, two dtypes (PyTorch raises RuntimeError), or another dtype, such as
            integers or float64 (which PyTorch takes and a NeuronCore does not multiply).
        ValueError: shapes that do not fit (PyTorch raises RuntimeError), or an ``other`` that is no
            matrix (map it with ``torch.func.vmap``).

    Notes:
        Not as ``torch.matmul``: ``other`` is a matrix, and there is no ``out``. Axes of no elements
        give an empty result, or zeros, as in PyTorch. Under ``torch.autocast`` both operands are
        cast to its dtype, as PyTorch's are. Works under ``torch.func`` (``grad``, ``vmap``: a batch
        of ``other``, and its gradient for each element of a batch, are one launch an element),
        ``torch.compile`` and ``torch.export``. Differentiable any number of times.

    Pseudocode:
        forward:   c = input @ other
        backward:  grad_input = grad_c @ other.T
                   grad_other = input.T @ grad_c      # over all rows
    """
    require_tensors(input=input, other=other)
    input, other = autocast(None, input, other)
    result_shape(input, other)  # refuses what does not fit
    return _matmul(input, other, False, False)
