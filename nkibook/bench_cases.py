"""What ``python -m nkibook.bench`` times: simulated kernels, each beside plain NumPy.

An operator adds a function that yields its cases.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A row of ``python -m nkibook.bench``: a simulated kernel beside plain NumPy.

    Attributes:
        what: shape and dtype, for the labels.
        names: what the NumPy code and the kernel are called.
        plain: the NumPy code; returns an array or a tuple of them, whose first is compared.
        kernel: the kernel on the same data.
        target: the ratio of the medians, kernel to NumPy, that is aimed at; None when the row is
            there for comparison only.
        rtol, atol: allowed differences of the results.
    """

    what: str
    names: tuple[str, str]
    plain: Callable[[], Any]
    kernel: Callable[[], Any]
    target: float | None
    rtol: float = 0.0
    atol: float = 0.0


def cases() -> Iterator[Case]:
    """The cases, one at a time: their data is large."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    yield from _add_cases(normal)
    yield from _avgpool_cases(normal)
    yield from _rmsnorm_cases(normal)
    yield from _rmsnorm_ffi_cases(normal)
    yield from _giou_cases(rng)
    yield from _matmul_cases(normal)
    yield from _softmax_cases(normal)
    yield from _attention_cases(normal)


def _add_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    from kernels.add import nki_tensor_add

    for rows, cols, target in ((4096, 4096, 2.0), (256, 1024, 4.0)):
        a, b = normal(rows, cols), normal(rows, cols)
        yield Case(
            f"{rows}x{cols} float32",
            ("NumPy a + b", "nki_tensor_add"),
            partial(np.add, a, b),
            partial(nki_tensor_add, a, b),
            target,
        )


def _avgpool_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    """Beside both ways to write it in NumPy: the tutorial's, and the faster one."""
    from kernels.avgpool import nki_avg_pool2d, reference

    x = normal(128, 112, 112)
    for name, plain, target in (
        ("NumPy reshape and mean", reference.mean_of_blocks, 1.0),
        ("NumPy sum of strided slices", reference.mean_of_slices, None),
    ):
        yield Case(
            "128x112x112 float32, window 2",
            (name, f"nki_avg_pool2d beside {name}"),
            partial(plain, x, 2),
            partial(nki_avg_pool2d, x, 2),
            target,
            rtol=2e-6,
            atol=2e-6,
        )


def _rmsnorm_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    from kernels.rmsnorm import nki_rms_norm, reference

    for rows, cols, target in ((4096, 4096, 1.2), (4096, 512, 1.2)):
        x, weight = normal(rows, cols), normal(cols)
        yield Case(
            f"{rows}x{cols} float32",
            ("NumPy RMSNorm", "nki_rms_norm"),
            partial(reference.rms_norm, x, weight, 1e-5),
            partial(nki_rms_norm, x, weight, 1e-5),
            target,
            rtol=2e-6,
            atol=2e-6,
        )


def _rmsnorm_ffi_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    """No kernel of NKI: the C++ handler beside what JAX makes of the plain expression."""
    if importlib.util.find_spec("jax") is None:
        return
    import jax
    import jax.numpy as jnp

    from kernels.rmsnorm.ffi import building
    from kernels.rmsnorm.ffi.jax_op import rms_norm

    if building.cpp_compiler() is None:
        print("RMSNorm in C++ is not timed: there is no C++ compiler.\n")
        return

    @jax.jit
    def plain(x: Any, weight: Any) -> Any:
        mean = jnp.mean(x * x, axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(mean + 1e-5) * weight

    x, weight = jnp.asarray(normal(4096, 4096)), jnp.asarray(normal(4096))
    handler = jax.jit(rms_norm)
    yield Case(
        "4096x4096 float32",
        ("jax.jit of RMSNorm", "rms_norm in C++"),
        lambda: plain(x, weight),
        lambda: handler(x, weight),
        1.2,
        rtol=1e-5,
        atol=1e-5,
    )


def _giou_cases(rng: np.random.Generator) -> Iterator[Case]:
    from kernels.giou import nki_giou, reference

    boxes1, boxes2 = (reference.random_boxes(rng, (1024, 256)) for _ in range(2))
    yield Case(
        "1024x256x4 float32",
        ("NumPy GIOU", "nki_giou"),
        lambda: reference.giou(boxes1, boxes2),
        lambda: nki_giou(boxes1, boxes2),
        1.5,
        atol=1e-6,
    )


def _matmul_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    from kernels.matmul import nki_matmul

    a, b = normal(1024, 1024), normal(1024, 1024)
    yield Case(
        "1024x1024x1024 float32",
        ("NumPy a @ b", "nki_matmul"),
        lambda: a @ b,
        lambda: nki_matmul(a, b),
        1.5,
        rtol=1e-4,
        atol=1e-3,
    )


def _softmax_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    from kernels.softmax import nki_softmax

    x = normal(4096, 4096)
    yield Case(
        "4096x4096 float32",
        ("NumPy softmax", "nki_softmax"),
        lambda: _softmax(x),
        lambda: nki_softmax(x),
        1.0,
        rtol=1e-5,
        atol=1e-8,
    )


def _attention_cases(normal: Callable[..., np.ndarray]) -> Iterator[Case]:
    from kernels.attention import nki_attention

    q, k, v = (normal(4096, 128) for _ in range(3))
    scale = np.float32(128**-0.5)
    yield Case(
        "4096x128 float32",
        ("NumPy attention", "nki_attention"),
        lambda: _softmax(q @ k.T * scale) @ v,
        lambda: nki_attention(q, k, v),
        1.5,
        rtol=1e-4,
        atol=1e-5,
    )


def _softmax(x: np.ndarray) -> np.ndarray:
    """Stable: the largest of a row is subtracted first."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
