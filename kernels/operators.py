"""The registry of the book's operators: data, NumPy's results, and the operator of each framework.

``python -m kernels``, the tests, and the report of an instance run what is here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from kernels.arrays import Framework, from_numpy, to_numpy

DTYPES = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}
"""What every operator takes."""

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Operator:
    """An operator of the book, with the settings of one example.

    Attributes:
        name: of its package, with the settings if there are several examples.
        data: the arguments, of small odd shapes: `data(rng)`, float32.
        call: the operator of a framework: `call(framework)` is a function of its arrays, and
            imports the framework. For NumPy it launches the kernel.
        reference: the result, by NumPy.
        gradients: with the gradient of the result first, the arguments' gradients, by NumPy.
        backward: launches the backward kernel on NumPy arrays, as `gradients`, with what the
            forward kernel keeps for it.
        batches: which arguments a batch may be on, so that ``vmap`` stays one launch.
        orders: how many times the operator can be differentiated; None for any number.
    """

    name: str
    data: Callable[[np.random.Generator], Arrays]
    call: Callable[[Framework], Callable[..., Any]]
    reference: Callable[..., np.ndarray]
    gradients: Callable[..., Arrays]
    backward: Callable[..., Any]
    batches: tuple[bool, ...]
    orders: int | None

    @property
    def package(self) -> str:
        """The name of its folder in `kernels`."""
        return self.name.split()[0]

    def arrays(self, dtype: str) -> Arrays:
        """The arguments in a dtype, the same every time."""
        return tuple(x.astype(DTYPES[dtype]) for x in self.data(np.random.default_rng(0)))


def _by_framework(package: str, name: str, launch: Any) -> Callable[[Framework], Any]:
    """A function of the framework: `launch` for NumPy, else the package's operator of that name."""

    def call(framework: Framework) -> Any:
        if framework == "numpy":
            return launch
        return getattr(importlib.import_module(f"kernels.{package}.{framework}_op"), name)

    return call


def _add() -> Operator:
    from kernels.add import nki_tensor_add, reference

    return Operator(
        "add",
        lambda rng: tuple(rng.standard_normal((2, 300, 257), np.float32)),
        _by_framework("add", "add", nki_tensor_add),
        reference.add,
        lambda g, a, b: (g, g),
        lambda g, a, b: (g, g),  # no kernel: both gradients are the incoming one
        batches=(True, True),
        orders=None,
    )


def _avgpool(*window: Any) -> Operator:
    from kernels.avgpool import nki_avg_pool2d, reference, unpool
    from kernels.avgpool.geometry import pooling

    pools = _by_framework("avgpool", "avg_pool2d", nki_avg_pool2d)

    def call(framework: Framework) -> Callable[..., Any]:
        pool = pools(framework)
        return lambda x: pool(x, *window)

    return Operator(
        f"avgpool {', '.join(map(str, window))}",
        lambda rng: (rng.standard_normal((130, 9, 11), np.float32),),
        call,
        lambda x: reference.avg_pool2d(x, *window),
        lambda g, x: (reference.avg_pool2d_backward(g, x.shape[-2:], *window),),
        lambda g, x: unpool(g, x.shape[-2:], pooling(*window)),
        batches=(True,),
        orders=None,
    )


def _giou() -> Operator:
    from kernels.giou import nki_giou, nki_giou_backward, reference

    def data(rng: np.random.Generator) -> Arrays:
        # Corners that every dtype has, and no two alike on an axis: a tie has several gradients.
        corners = np.sort(rng.permuted(np.tile(np.arange(16.0), (2, 211, 1)), axis=2)[..., :8], 2)
        x1, u1, y1, v1, x2, u2, y2, v2 = np.moveaxis(rng.permuted(corners, axis=0), 2, 0)
        boxes = np.stack([x1, y1, x2, y2], -1)[0], np.stack([u1, v1, u2, v2], -1)[0]
        return tuple(b.astype(np.float32) for b in boxes)

    def gradients(g: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
        return tuple(x.astype(a.dtype) for x in reference.giou_backward(g, a, b))

    return Operator(
        "giou",
        data,
        _by_framework("giou", "giou", nki_giou),
        reference.giou,
        gradients,
        nki_giou_backward,
        batches=(True, True),
        orders=1,
    )


def _rmsnorm() -> Operator:
    from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward, reference

    norms = _by_framework("rmsnorm", "rms_norm", lambda x, w, eps: nki_rms_norm(x, w, eps)[0])

    def call(framework: Framework) -> Callable[..., Any]:
        norm = norms(framework)
        if framework == "torch":  # whose own takes the normalised shape, too
            return lambda x, w: norm(x, tuple(w.shape), w, 1e-5)
        return lambda x, w: norm(x, w, 1e-5)

    def data(rng: np.random.Generator) -> Arrays:
        # Their mean square is 10 times eps, so that a result without it is wrong.
        x = np.float32(0.01) * rng.standard_normal((131, 300), np.float32)
        return x, rng.standard_normal(300, np.float32)

    def gradients(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> Arrays:
        grad_x, grad_w = reference.rms_norm_backward(g, x, w, reference.rms_norm(x, w, 1e-5)[1])
        return grad_x, grad_w.astype(w.dtype)

    def backward(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        grad_x, grad_w = nki_rms_norm_backward(g, x, w, nki_rms_norm(x, w, 1e-5)[1])
        return grad_x, grad_w.astype(w.dtype)

    return Operator(
        "rmsnorm",
        data,
        call,
        lambda x, w: reference.rms_norm(x, w, 1e-5)[0],
        gradients,
        backward,
        batches=(True, False),
        orders=1,
    )


def _matmul() -> Operator:
    from kernels.matmul import nki_matmul, nki_matmul_backward, reference

    def data(rng: np.random.Generator) -> Arrays:
        return tuple(rng.standard_normal(shape, np.float32) for shape in ((131, 200), (200, 97)))

    return Operator(
        "matmul",
        data,
        _by_framework("matmul", "matmul", nki_matmul),
        reference.matmul,
        reference.matmul_backward,
        nki_matmul_backward,
        batches=(True, False),
        orders=None,
    )


def _softmax() -> Operator:
    from kernels.softmax import nki_softmax, nki_softmax_backward, reference

    return Operator(
        "softmax",
        lambda rng: (rng.standard_normal((131, 300), np.float32),),
        _by_framework("softmax", "softmax", nki_softmax),
        reference.softmax,
        lambda g, x: (reference.softmax_backward(g, reference.softmax(x)),),
        lambda g, x: nki_softmax_backward(g, nki_softmax(x)),
        batches=(True,),
        orders=1,
    )


def _attention() -> Operator:
    from kernels.attention import nki_attention, nki_attention_backward, reference

    scale = 0.25

    attentions = _by_framework(
        "attention", "attention", lambda q, k, v, scale: nki_attention(q, k, v, scale)[0]
    )

    def call(framework: Framework) -> Callable[..., Any]:
        attention = attentions(framework)
        return lambda q, k, v: attention(q, k, v, scale=scale)

    def backward(g: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
        o, lse = nki_attention(q, k, v, scale)
        return nki_attention_backward(g, q, k, v, o, lse, scale)

    return Operator(
        "attention",
        lambda rng: tuple(rng.standard_normal((2, n, 33), np.float32) for n in (70, 131, 131)),
        call,
        lambda q, k, v: reference.attention(q, k, v, scale)[0],
        lambda g, q, k, v: reference.attention_backward(g, q, k, v, scale),
        backward,
        batches=(True, True, True),
        orders=1,
    )


def _rope() -> Operator:
    from kernels.rope import nki_rope, reference

    ropes = _by_framework("rope", "rope", nki_rope)

    def tables(x: Any) -> tuple[np.ndarray, np.ndarray]:
        return reference.rotations(*(1, 1, *np.shape(x))[-2:])

    def call(framework: Framework) -> Callable[..., Any]:
        rope = ropes(framework)

        def rotated(x: Any) -> Any:
            if framework == "torch":
                import torch

                device = getattr(x, "device", "cpu")
                return rope(x, *(torch.from_numpy(t).to(device) for t in tables(x)))
            return rope(x, *(from_numpy(t, framework) for t in tables(x)))

        return rotated

    return Operator(
        "rope",
        lambda rng: (rng.standard_normal((3, 131, 66), np.float32),),
        call,
        lambda x: reference.rope(x, *tables(x)),
        lambda g, x: (reference.rope_backward(g, *tables(x)),),
        lambda g, x: nki_rope(g, *tables(x), inverse=True),
        batches=(True,),
        orders=None,
    )


def _swiglu() -> Operator:
    from kernels.swiglu import nki_swiglu, nki_swiglu_backward, reference

    return Operator(
        "swiglu",
        lambda rng: tuple(rng.standard_normal((2, 131, 300), np.float32)),
        _by_framework("swiglu", "swiglu", nki_swiglu),
        reference.swiglu,
        reference.swiglu_backward,
        nki_swiglu_backward,
        batches=(True, True),
        orders=1,
    )


def _cross_entropy() -> Operator:
    from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward, reference

    losses = _by_framework(
        "cross_entropy", "cross_entropy", lambda x, targets: nki_cross_entropy(x, targets)[0]
    )

    def targets_of(x: Any) -> np.ndarray:
        *rows, classes = np.shape(x)
        return (7 * np.arange(math.prod(rows), dtype=np.int32) % max(classes, 1)).reshape(rows)

    def call(framework: Framework) -> Callable[..., Any]:
        cross_entropy = losses(framework)

        def loss(x: Any) -> Any:
            if framework == "torch":
                import torch

                targets = torch.from_numpy(targets_of(x)).to(getattr(x, "device", "cpu"))
            else:
                targets = from_numpy(targets_of(x), framework)
            return cross_entropy(x, targets)

        return loss

    def backward(g: np.ndarray, x: np.ndarray) -> Any:
        targets = targets_of(x)
        return nki_cross_entropy_backward(g, x, targets, nki_cross_entropy(x, targets)[1])

    return Operator(
        "cross_entropy",
        lambda rng: (rng.standard_normal((131, 300), np.float32),),
        call,
        lambda x: reference.cross_entropy(x, targets_of(x))[0],
        lambda g, x: (reference.cross_entropy_backward(g, x, targets_of(x)),),
        backward,
        batches=(True,),
        orders=1,
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
        _rope(),
        _swiglu(),
        _cross_entropy(),
    ]


def forward(operator: Operator, framework: Framework, arrays: Arrays) -> np.ndarray:
    """The operator's result on a framework's arrays, as a NumPy array.

    Tensors of PyTorch are on its device where the Neuron SDK runs the kernels.
    """
    given = [from_numpy(a, framework) for a in arrays]
    return to_numpy(operator.call(framework)(*given))


def backward(operator: Operator, framework: Framework, arrays: Arrays, grad: np.ndarray) -> Arrays:
    """The gradients of all arguments, by the framework's differentiation; for NumPy, by the
    backward kernel.

    Args:
        grad: the gradient of the result, of its shape and dtype.
    """
    op = operator.call(framework)
    given = [from_numpy(a, framework) for a in arrays]
    if framework == "numpy":
        found = operator.backward(grad, *given)
    elif framework == "torch":
        import torch

        leaves = [x.requires_grad_() for x in given]
        found = torch.autograd.grad(op(*leaves), leaves, from_numpy(grad, framework))
    else:
        import jax

        _, pullback = jax.vjp(jax.jit(op), *given)
        found = pullback(from_numpy(grad, framework))
    several = isinstance(found, tuple | list)
    return tuple(to_numpy(x) for x in (found if several else (found,)))
