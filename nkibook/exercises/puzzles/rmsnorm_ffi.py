"""Exercises of the page on RMSNorm in C++: an answer is a function of a handler in C++."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kernels.rmsnorm import reference
from nkibook.exercises import exercise

# What surrounds an answer: NormRow and NormColumn are the answers' names.
_HEAD = """
#include <cmath>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
"""
_RESIDUAL = """
using Array = ffi::Buffer<ffi::F32>;
static ffi::Error Run(Array x, Array residual, Array weight, ffi::Result<Array> y) {
  const int64_t cols = x.dimensions()[1];
  for (int64_t r = 0; r < x.dimensions()[0]; ++r) {
    NormRow(x.typed_data() + r * cols, residual.typed_data() + r * cols, weight.typed_data(),
            1e-5f, y->typed_data() + r * cols, cols);
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Answer, Run, ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Arg<Array>().Ret<Array>());
"""
# Room behind x, so that a wrong stride reads zeros, and not what is not there.
_COLUMNS = """
#include <algorithm>
#include <vector>
using Array = ffi::Buffer<ffi::F32>;
static ffi::Error Run(Array x, ffi::Result<Array> y) {
  const int64_t rows = x.dimensions()[0], cols = x.dimensions()[1];
  const int64_t side = std::max(rows, cols) + 1;
  std::vector<float> from(side * side), to(side * side);
  std::copy(x.typed_data(), x.typed_data() + rows * cols, from.begin());
  for (int64_t c = 0; c < cols; ++c) NormColumn(from.data(), 1e-5f, to.data(), c, rows, cols);
  std::copy(to.begin(), to.begin() + rows * cols, y->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Answer, Run, ffi::Ffi::Bind().Arg<Array>().Ret<Array>());
"""
_numbers = itertools.count()


@functools.cache
def _target(source: str) -> str:
    """Compile a handler `Answer`, and register it under a new name: XLA keeps names for good."""
    import ctypes

    import jax

    from kernels.rmsnorm.ffi import building

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answer.cpp"
        path.write_text(source)
        library = ctypes.CDLL(str(building.build_cpu(path)))
    name = f"rmsnorm_ffi_answer_{next(_numbers)}"
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library.Answer), platform="cpu")
    return name


def _with(rest: str) -> Callable[..., Any]:
    """A run that compiles the answer with what surrounds it, and calls it on arrays."""

    def run(answer: Callable[[], str], x: Any, *more: Any) -> Any:
        import jax

        target = _target(_HEAD + answer() + rest)
        return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x, *more)

    return run


def _call(answer: Callable[..., Any], *arrays: Any) -> Any:
    """Call an answer that calls the package's handler by its name."""
    from kernels.rmsnorm.ffi import handlers

    handlers.load()
    return answer(*arrays)


def _half(rng, rows, columns):
    return tuple(rng.standard_normal(s).astype(np.float16) for s in ((rows, columns), columns))


@exercise(
    ((4, 8), (4, 8), (8,)),
    ((3, 5), (3, 5), (5,)),
    lines=2,
    framework="jax",
    rtol=1e-5,
    atol=1e-5,
    run=_with(_RESIDUAL),
)
def fused_residual(x, residual, weight):
    return reference.rms_norm(x + residual, weight, 1e-5)[0]


@exercise((4, 8), (3, 5), lines=2, data=_half, framework="jax", rtol=2e-3, atol=2e-3, run=_call)
def call_of_the_handler(x, weight):
    return reference.rms_norm(x, weight, 1e-5)[0]


@exercise(((4, 4),), ((6, 3),), ((2, 5),), lines=2, framework="jax", rtol=1e-5, atol=1e-5,
          run=_with(_COLUMNS))  # fmt: skip
def columns(x):
    return reference.rms_norm(x.T, np.ones_like(x[:, 0]), 1e-5)[0].T
