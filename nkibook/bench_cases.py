"""What ``python -m nkibook.bench`` times: simulated kernels, each beside plain NumPy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kernels.giou.reference import random_boxes
from kernels.operators import operators

# Shapes of the arguments of operators: arrays of up to 64 MB.
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "add": [(4096, 4096)] * 2,
    "avgpool 2": [(128, 112, 112)],
    "giou": [(1024, 256, 4)] * 2,
    "rmsnorm": [(4096, 4096), (4096,)],
    "matmul": [(1024, 1024)] * 2,
    "softmax": [(4096, 4096)],
    "attention": [(1, 4096, 128)] * 3,
    "rope": [(8, 4096, 128)],
    "swiglu": [(4096, 4096)] * 2,
    "cross_entropy": [(4096, 4096)],
}


class Case(NamedTuple):
    """A row of ``python -m nkibook.bench``.

    Attributes:
        names: what the plain code and the kernel are called, with shape and dtype.
        plain: the plain code; returns an array.
        kernel: the kernel on the same data.
    """

    names: tuple[str, str]
    plain: Callable[[], Any]
    kernel: Callable[[], Any]


def cases() -> Iterator[Case]:
    """The cases, one at a time: their data is large."""
    rng = np.random.default_rng(0)
    for operator in operators():
        shapes = SHAPES.get(operator.name, [])
        arrays = [
            random_boxes(rng, shape[:-1]).astype(np.float32)
            if operator.name == "giou"
            else rng.standard_normal(shape, np.float32)
            for shape in shapes
        ]
        if arrays:
            what = f"{operator.name}, {'x'.join(map(str, shapes[0]))} float32"
            plain = partial(operator.reference, *arrays)
            kernel = partial(operator.call("numpy"), *arrays)
            yield Case((f"NumPy {what}", f"NKI kernel of {what}"), plain, kernel)
    yield from _rmsnorm_ffi(rng.standard_normal(SHAPES["rmsnorm"][0], np.float32))


def _rmsnorm_ffi(x: np.ndarray) -> Iterator[Case]:
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

    args = jnp.asarray(x), jnp.asarray(x[0])
    what = f"RMSNorm, {'x'.join(map(str, x.shape))} float32"
    names = f"jax.jit of {what}", f"C++ {what}"
    yield Case(names, partial(plain, *args), partial(jax.jit(rms_norm), *args))
