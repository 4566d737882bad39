"""What the operators' PyTorch functions share: rules for ``torch.func.vmap``, and a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch


def batched(size: int, dims: Sequence[int | None], inputs: Sequence[Any]) -> list[Any]:
    """All tensors with the batch as their first axis; those without one are repeated.

    Args:
        size: elements of the batch.
        dims: which axis of each input is the batch; None for none, and for constants.
        inputs: tensors and constants, which stay as they are.
    """
    return [
        x
        if not isinstance(x, torch.Tensor)
        else x.expand(size, *x.shape)
        if dim is None
        else x.movedim(dim, 0)
        for x, dim in zip(inputs, dims, strict=True)
    ]


def one_by_one(
    function: Callable[..., Any], size: int, dims: Sequence[int | None], inputs: Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Call a function for each element of a batch, and stack what it returns.

    Args:
        function: returns a tensor, or a tuple of them.
        size, dims, inputs: as for :func:`batched`.
    """
    pairs = list(zip(inputs, dims, strict=True))
    elements = [[x if d is None else x.select(d, i) for x, d in pairs] for i in range(size)]
    if size == 0:  # the sum over no elements has the shape and the graph of one
        elements = [[x if d is None else x.sum(d) for x, d in pairs]]
    results = [function(*element) for element in elements]
    results = [r if isinstance(r, tuple) else (r,) for r in results]
    return tuple(torch.stack(parts)[:size] for parts in zip(*results, strict=True))


def no_second_derivative(name: str, instead: str) -> staticmethod:
    """The ``backward`` of a ``torch.autograd.Function`` that computes a gradient.

    Args:
        name: of the operator.
        instead: what can be differentiated twice.

    Returns:
        A method that raises NotImplementedError.
    """

    def backward(ctx: Any, *grads: torch.Tensor) -> NoReturn:
        raise NotImplementedError(
            f"{name} is differentiated twice, and its NKI kernels have no second derivative. Use "
            f"{instead} where you need one."
        )

    return staticmethod(backward)
