"""Average pooling as a differentiable PyTorch operator around the NKI kernels.

Pooling is linear, so forward and backward kernel are each other's transpose:
:class:`AvgPool2d` differentiates to :class:`AvgPool2dBackward`, and that one back to the first.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.avgpool import pool, unpool
from kernels.avgpool.arguments import check
from kernels.avgpool.geometry import Pooling, pooling


class AvgPool2d(torch.autograd.Function):
    """Average pooling with the NKI kernel. Call it through :func:`avg_pool2d`."""

    @staticmethod
    def forward(x: torch.Tensor, settings: Pooling) -> torch.Tensor:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place. The caller's reshape makes a view; a detached tensor is none."""
        if 0 in x.shape:  # no images: nothing to launch
            return x.new_empty((*x.shape[:-2], *settings.out_size(*x.shape[-2:])))
        return pool(x, settings).detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep the input's size, which the output's does not tell; no values."""
        x, ctx.settings = inputs
        ctx.size = tuple(x.shape[-2:])

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Spread each gradient over its window."""
        return AvgPool2dBackward.apply(grad_out, ctx.size, ctx.settings), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, None], x: torch.Tensor, settings: Pooling
    ) -> tuple[torch.Tensor, int]:
        """Put the batch in the channels: one kernel launch, whatever the batch size."""
        x = x.movedim(in_dims[0], 0)
        out = AvgPool2d.apply(_merged(x), settings)
        return out.reshape(*x.shape[:-2], *out.shape[-2:]), 0


class AvgPool2dBackward(torch.autograd.Function):
    """Gradient of average pooling with the NKI kernel."""

    @staticmethod
    def forward(grad_out: torch.Tensor, size: tuple[int, int], settings: Pooling) -> torch.Tensor:
        """Run the kernel, and hand out no view, as above."""
        if 0 in grad_out.shape:
            return grad_out.new_empty((*grad_out.shape[:-2], *size))
        return unpool(grad_out, size, settings).detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep the settings only: the gradient does not depend on values."""
        ctx.settings = inputs[2]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The transpose of the transpose: pooling."""
        return AvgPool2d.apply(grad, ctx.settings), None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int, None, None],
        grad_out: torch.Tensor,
        size: tuple[int, int],
        settings: Pooling,
    ) -> tuple[torch.Tensor, int]:
        """Put the batch in the channels."""
        grad_out = grad_out.movedim(in_dims[0], 0)
        grad_in = AvgPool2dBackward.apply(_merged(grad_out), size, settings)
        return grad_in.reshape(*grad_out.shape[:-2], *size), 0


def _merged(x: torch.Tensor) -> torch.Tensor:
    """All leading axes as one."""
    return x.flatten(0, -3)


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
        x: (N, C, H, W) or (C, H, W), float32, bfloat16 or float16, on the CPU or an XLA device.
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
        Supports ``backward``, double backward and ``torch.func`` (``grad``, ``vmap``).

    Pseudocode:
        forward:   out = sum of each window / count
        backward:  grad_x = sum of grad_out / count over the windows that an element lies in
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x is a {type(x).__name__}. Pass a PyTorch tensor.")
    check("x", x, no_images=True)  # here also for vmap, which shows the Function more axes
    return AvgPool2d.apply(x, settings)
