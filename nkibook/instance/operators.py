"""The book's operators in each framework, with data and the NumPy results they must give.

The tests for a device and the report of an instance run these.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

import kernels
from kernels.logical_core import cores
from nkibook.exercises.comparing import to_numpy
from nkibook.exercises.running import converted

Framework = Literal["numpy", "torch", "jax"]
FRAMEWORKS: tuple[Framework, ...] = ("numpy", "torch", "jax")
DTYPES = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Operator:
    """An operator of the book.

    Attributes:
        name: of its package, with the setting if it has several.
        data: the arguments, of small odd shapes: `data(rng)`, float32.
        call: the operator of a framework: `call(framework)` is a function of its arrays. For NumPy
            it launches the kernel.
        reference: the result, by NumPy.
        gradients: with the gradient of the result first, the arguments' gradients, by NumPy.
        backward: launches the backward kernel on NumPy arrays, as `gradients`; None without one.
    """

    name: str
    data: Callable[[np.random.Generator], Arrays]
    call: Callable[[Framework], Callable[..., Any]]
    reference: Callable[..., np.ndarray]
    gradients: Callable[..., Arrays]
    backward: Callable[..., Any] | None

    def arrays(self, dtype: str) -> Arrays:
        """The arguments in a dtype, the same every time."""
        return tuple(x.astype(DTYPES[dtype]) for x in self.data(np.random.default_rng(0)))


def _module(package: str, framework: Framework) -> Any:
    """The module with a package's operator for PyTorch or JAX, which it imports."""
    return importlib.import_module(f"kernels.{package}.{framework}_op")


def _add() -> Operator:
    from kernels.add import nki_tensor_add, reference

    def call(framework: Framework) -> Callable[..., Any]:
        return nki_tensor_add if framework == "numpy" else _module("add", framework).add

    def data(rng: np.random.Generator) -> Arrays:
        return tuple(rng.standard_normal((2, 300, 257), np.float32))

    return Operator("add", data, call, reference.add, lambda g, a, b: (g, g), None)


def _avgpool(*window: Any) -> Operator:
    from kernels.avgpool import nki_avg_pool2d, nki_avg_pool2d_backward_kernel, reference

    def call(framework: Framework) -> Callable[..., Any]:
        numpy = framework == "numpy"
        pool = nki_avg_pool2d if numpy else _module("avgpool", framework).avg_pool2d
        return lambda x: pool(x, *window)

    def gradients(g: np.ndarray, x: np.ndarray) -> Arrays:
        return (reference.avg_pool2d_backward(g, x.shape[-2:], *window),)

    kernel = nki_avg_pool2d_backward_kernel
    if kernels.dialect == "nki":
        kernel = kernel[cores()]

    def backward(g: np.ndarray, x: np.ndarray) -> Any:
        return kernel(g, *x.shape[-2:], *window)

    return Operator(
        f"avgpool {', '.join(map(str, window))}",
        lambda rng: (rng.standard_normal((130, 9, 11), np.float32),),
        call,
        lambda x: reference.avg_pool2d(x, *window),
        gradients,
        backward,
    )


def _giou() -> Operator:
    from kernels.giou import nki_giou, nki_giou_backward, reference

    def call(framework: Framework) -> Callable[..., Any]:
        return nki_giou if framework == "numpy" else _module("giou", framework).giou

    def data(rng: np.random.Generator) -> Arrays:
        # Corners that every dtype has, and no two alike on an axis: a tie has several gradients.
        corners = np.sort(rng.permuted(np.tile(np.arange(16.0), (2, 211, 1)), axis=2)[..., :8], 2)
        x1, u1, y1, v1, x2, u2, y2, v2 = np.moveaxis(rng.permuted(corners, axis=0), 2, 0)
        boxes = np.stack([x1, y1, x2, y2], -1)[0], np.stack([u1, v1, u2, v2], -1)[0]
        return tuple(b.astype(np.float32) for b in boxes)

    def gradients(g: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
        return tuple(x.astype(a.dtype) for x in reference.giou_backward(g, a, b))

    return Operator("giou", data, call, reference.giou, gradients, nki_giou_backward)


def _rmsnorm() -> Operator:
    from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward, reference

    def call(framework: Framework) -> Callable[..., Any]:
        if framework == "numpy":
            return lambda x, w: nki_rms_norm(x, w, 1e-5)[0]
        norm = _module("rmsnorm", framework).rms_norm
        if framework == "torch":
            return lambda x, w: norm(x, tuple(w.shape), w, 1e-5)
        return lambda x, w: norm(x, w, 1e-5)

    def data(rng: np.random.Generator) -> Arrays:
        return rng.standard_normal((131, 300), np.float32), rng.standard_normal(300, np.float32)

    def gradients(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> Arrays:
        grad_x, grad_w = reference.rms_norm_backward(g, x, w, reference.rms_norm(x, w, 1e-5)[1])
        return grad_x, grad_w.astype(w.dtype)

    def backward(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        grad_x, grad_w = nki_rms_norm_backward(g, x, w, reference.rms_norm(x, w, 1e-5)[1])
        return grad_x, grad_w.astype(w.dtype)

    return Operator(
        "rmsnorm", data, call, lambda x, w: reference.rms_norm(x, w, 1e-5)[0], gradients, backward
    )


def _matmul() -> Operator:
    from kernels.matmul import nki_matmul, nki_matmul_backward, reference

    def call(framework: Framework) -> Callable[..., Any]:
        return nki_matmul if framework == "numpy" else _module("matmul", framework).matmul

    def data(rng: np.random.Generator) -> Arrays:
        return rng.standard_normal((131, 200), np.float32), rng.standard_normal(
            (200, 97), np.float32
        )

    return Operator(
        "matmul", data, call, reference.matmul, reference.matmul_backward, nki_matmul_backward
    )


def _softmax() -> Operator:
    from kernels.softmax import nki_softmax, nki_softmax_backward, reference

    def call(framework: Framework) -> Callable[..., Any]:
        return nki_softmax if framework == "numpy" else _module("softmax", framework).softmax

    return Operator(
        "softmax",
        lambda rng: (rng.standard_normal((131, 300), np.float32),),
        call,
        reference.softmax,
        lambda g, x: (reference.softmax_backward(g, reference.softmax(x)),),
        lambda g, x: nki_softmax_backward(g, reference.softmax(x)),
    )


def _attention() -> Operator:
    from kernels.attention import nki_attention, nki_attention_backward, reference

    scale = 0.25

    def call(framework: Framework) -> Callable[..., Any]:
        if framework == "numpy":
            return lambda q, k, v: nki_attention(q, k, v, scale)[0]
        attention = _module("attention", framework).attention
        return lambda q, k, v: attention(q, k, v, scale=scale)

    def data(rng: np.random.Generator) -> Arrays:
        return tuple(rng.standard_normal((2, rows, 33), np.float32) for rows in (70, 131, 131))

    def backward(g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
        o, lse = reference.attention(q, k, v, scale)
        return nki_attention_backward(g, q, k, v, o, lse, scale)

    return Operator(
        "attention",
        data,
        call,
        lambda q, k, v: reference.attention(q, k, v, scale)[0],
        lambda g, q, k, v: reference.attention_backward(g, q, k, v, scale),
        backward,
    )


def operators() -> list[Operator]:
    """All operators of the book."""
    return [
        _add(),
        _avgpool(2),
        _avgpool(3, 2, 1),
        _giou(),
        _rmsnorm(),
        _matmul(),
        _softmax(),
        _attention(),
    ]


def forward(operator: Operator, framework: Framework, arrays: Arrays) -> np.ndarray:
    """The operator's result on a framework's arrays, as a NumPy array.

    Tensors of PyTorch are on the XLA device where the Neuron SDK runs the kernels.
    """
    given = [converted(a, framework) for a in arrays]
    return to_numpy(operator.call(framework)(*given))


def backward(operator: Operator, framework: Framework, arrays: Arrays, grad: np.ndarray) -> Arrays:
    """The gradients of all arguments, by the framework's differentiation; for NumPy, by the
    backward kernel.

    Args:
        grad: the gradient of the result, of its shape and dtype.
    """
    op = operator.call(framework)
    given: Sequence[Any] = [converted(a, framework) for a in arrays]
    if framework == "numpy":
        found = (grad, grad) if operator.backward is None else operator.backward(grad, *given)
    elif framework == "torch":
        import torch

        leaves = [x.requires_grad_() for x in given]
        found = torch.autograd.grad(op(*leaves), leaves, converted(grad, framework))
    else:
        import jax

        _, pullback = jax.vjp(jax.jit(op), *given)
        found = pullback(converted(grad, framework))
    several = isinstance(found, tuple | list)
    return tuple(to_numpy(x) for x in (found if several else (found,)))


def error_in_ulp(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, in units of the last place of the largest expected value."""
    wide = expected.astype(np.float64)
    largest = float(np.abs(wide).max(initial=0.0)) or 1.0
    eps = float(ml_dtypes.finfo(expected.dtype).eps)
    unit = 2.0 ** np.floor(np.log2(largest)) * eps
    return float(np.abs(got.astype(np.float64) - wide).max(initial=0.0) / unit)
