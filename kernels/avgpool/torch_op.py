"""Average pooling as a differentiable PyTorch operator around the NKI kernels.

Pooling is linear, so forward and backward kernel are each other's transpose:
each is the other's gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.avgpool import pool, unpool
from kernels.avgpool.arguments import check, constants
from kernels.avgpool.geometry import pooling
from kernels.torch_rules import operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep the input's size, which the output's does not tell; no values."""
    x, *ctx.settings = inputs
    ctx.size = list(x.shape[-2:])


def _gradient(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Spread each gradient over its window."""
    return _unpool(grad_out, ctx.size, *ctx.settings), *[None] * 6


def _keep_settings(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep the settings only: the gradient does not depend on values."""
    _, _, *ctx.settings = inputs


def _gradient_of_gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The transpose of the transpose: pooling."""
    return _pool(grad, *ctx.settings), *[None] * 7


def _empty(x: torch.Tensor, *settings: Any) -> torch.Tensor:
    return x.new_empty((*x.shape[:-2], *pooling(*settings).out_size(*x.shape[-2:])))


def _empty_gradient(grad_out: torch.Tensor, size: list[int], *settings: Any) -> torch.Tensor:
    return grad_out.new_empty((*grad_out.shape[:-2], *size))


def _more_channels(
    op: Any, info: Any, in_dims: tuple[Any, ...], x: torch.Tensor, *settings: Any
) -> tuple[torch.Tensor, int]:
    """A batch goes to the channels: one launch, whatever its size."""
    x = x.movedim(in_dims[0], 0)
    out = op(x.flatten(0, -3), *settings)
    return out.reshape(*x.shape[:-2], *out.shape[-2:]), 0


@operator(
    "avg_pool2d",
    fake=_empty,
    vmap=_more_channels,
    keep=_keep,
    backward=_gradient,
)
def _pool(
    x: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    settings: Any = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if 0 in x.shape:  # no images: nothing to launch
        return _empty(x, *settings)
    return pool(x, pooling(*settings))


@operator(
    "avg_pool2d_backward",
    fake=_empty_gradient,
    vmap=_more_channels,
    keep=_keep_settings,
    backward=_gradient_of_gradient,
)
def _unpool(
    grad_out: torch.Tensor,
    size: list[int],
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    if 0 in grad_out.shape:
        return _empty_gradient(grad_out, size)
    settings: Any = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return unpool(grad_out, (size[0], size[1]), pooling(*settings))


def avg_pool2d(
    x: torch.Tensor,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Average pooling with the NKI kernels, differentiably; drop-in for
    ``torch.nn.functional.avg_pool2d``.

    Dimensions:
        N: images, any number. C: channels. H, W: height and width. At least 1.

    Args:
        x: (N, C, H, W) or (C, H, W), float32, bfloat16 or float16, on the CPU, a neuron or an XLA
            device.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: as in PyTorch.

    Returns:
        (N, C, out_H, out_W) or (C, out_H, out_W), same dtype and device. No images give no images.

    Raises:
        TypeError: not a tensor, a dtype that the kernels do not take (also integers and float64,
            which PyTorch pools on a CPU and a NeuronCore's engines do not), or a size that is not
            an integer.
        ValueError: where PyTorch raises RuntimeError: another rank, sizes out of range, a window
            larger than the image.

    Notes:
        Differentiable any number of times. Works under ``torch.func`` (``grad``, ``vmap``),
        ``torch.compile`` and ``torch.export``. Under ``torch.autocast`` the dtype stays, as
        PyTorch's does.

    Pseudocode:
        forward:   out = sum of each window / count
        backward:  grad_x = sum of grad_out / count over the windows that an element lies in
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    require_tensors(x=x)
    check("x", x, no_images=True)  # here too: for vmap the operator takes more axes
    return _pool(x, *constants(settings))
