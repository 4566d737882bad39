"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

import kernels
from kernels.avgpool.arguments import check, constants
from kernels.avgpool.geometry import Pooling, pooling
from kernels.avgpool.plan import backward_plan, forward_plan
from kernels.launch import kernel_of


def nki_avg_pool2d(
    x: Any,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    lnc: int | None = None,
) -> Any:
    """Average pooling with :func:`nki_avg_pool2d_kernel`; arguments as ``avg_pool2d`` in PyTorch.

    Args:
        x: (C, H, W) or (N, C, H, W), all at least 1; float32, bfloat16 or float16. A NumPy array,
            a PyTorch tensor (CPU or XLA) or a JAX array.
        kernel_size: height and width of the window; one number for both.
        stride: distance between windows, down and across; the window's size when None.
        padding: zeros around the image, on both sides; at most half the window.
        ceil_mode: whether the last window may reach over the edge.
        count_include_pad: whether padding counts in the divisor.
        divisor_override: a fixed divisor, in place of the count.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        (C, out_H, out_W) or (N, C, out_H, out_W), dtype and framework of `x`.

    Raises:
        TypeError: a dtype that the kernel does not take, or a size that is not an integer.
        ValueError: another rank, no elements, sizes out of range, a window larger than the image.
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return pool(x, settings, lnc=lnc)


def pool(x: Any, settings: Pooling, *, lnc: int | None = None) -> Any:
    """:func:`nki_avg_pool2d` with validated settings."""
    check("x", x)
    size = tuple(x.shape[-2:])
    # A kernel in `import nki` gets its tiles as numbers, one in `neuronxcc.nki` the settings.
    plan = (forward_plan(settings, *size),) if kernels.dialect == "nki" else constants(settings)
    launched = kernel_of("avgpool", "nki_avg_pool2d_kernel", lnc)
    out = launched(x.reshape(-1, *size), *plan)
    return out.reshape(*x.shape[:-2], *settings.out_size(*size))


def unpool(
    grad_out: Any, size: tuple[int, int], settings: Pooling, *, lnc: int | None = None
) -> Any:
    """Gradient of :func:`nki_avg_pool2d` with respect to its input.

    Args:
        grad_out: (C, out_H, out_W) or (N, C, out_H, out_W), gradient with respect to the output.
        size: height and width of the input.
        settings: those of the forward, from :func:`kernels.avgpool.geometry.pooling`.
        lnc: physical cores of the logical core, 1 or 2, as in the forward pass.

    Returns:
        (C, H, W) or (N, C, H, W), dtype and framework of `grad_out`.

    Raises:
        TypeError, ValueError: as :func:`nki_avg_pool2d`; ValueError also when `grad_out` does not
            have the size that the settings give.
    """
    check("grad_out", grad_out)
    given, expected = tuple(grad_out.shape[-2:]), settings.out_size(*size)
    if given != expected:
        raise ValueError(
            f"grad_out has height and width {given}. Pooling {size[0]}x{size[1]} gives {expected}. "
            "Pass the settings of the forward."
        )
    in_nki = kernels.dialect == "nki"
    plan = (backward_plan(settings, *size),) if in_nki else (*size, *constants(settings))
    launched = kernel_of("avgpool", "nki_avg_pool2d_backward_kernel", lnc)
    grad_in = launched(grad_out.reshape(-1, *given), *plan)
    return grad_in.reshape(*grad_out.shape[:-2], *size)
