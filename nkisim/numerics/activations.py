"""Activation functions that NumPy does not have, on float32 arrays.

Each takes a float32 array and gives a new one. Formulas are those of the frameworks (PyTorch's
GELU, SiLU, Mish and Softplus), which the NKI documentation names as the meaning of its functions.
"""

from __future__ import annotations

import functools
import math

import numpy as np

__all__ = [
    "copy",
    "erf",
    "erf_dx",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "mish",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "silu_dx",
    "softplus",
]

_ONE = np.float32(1)
_HALF = np.float32(0.5)
_SQRT_HALF = np.float32(math.sqrt(0.5))


def copy(x: np.ndarray) -> np.ndarray:
    """x."""
    return x


def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)."""
    return np.maximum(x, 0)


def rsqrt(x: np.ndarray) -> np.ndarray:
    """1 / sqrt(x)."""
    y = np.sqrt(x)
    return np.reciprocal(y, out=y if isinstance(y, np.ndarray) else None)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.reciprocal(_ONE + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)), without overflow."""
    return np.logaddexp(x, np.float32(0))


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def silu_dx(x: np.ndarray) -> np.ndarray:
    """Derivative of silu."""
    s = sigmoid(x)
    return s * (_ONE + x * (_ONE - s))


def mish(x: np.ndarray) -> np.ndarray:
    """x * tanh(softplus(x))."""
    return x * np.tanh(softplus(x))


# erf by a second-order Taylor step from the nearest node of a table. With nodes 2**-10 apart the
# third-order term is below 4e-11, so that what remains is float32 rounding. Beyond 4, erf is 1 to
# within half a unit in the last place.
_NODES = 1 << 10
_EDGE = 4


@functools.cache
def _erf_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """erf, its derivative, and half its second derivative at the nodes."""
    x = np.arange(_EDGE * _NODES + 1) / _NODES
    slope = 2 / math.sqrt(math.pi) * np.exp(-x * x)
    values = np.array([math.erf(v) for v in x])
    return values.astype(np.float32), slope.astype(np.float32), (-x * slope).astype(np.float32)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, to float32 accuracy."""
    values, slope, curve = _erf_table()
    size = np.minimum(np.abs(x), np.float32(_EDGE))
    node = np.rint(np.nan_to_num(size) * np.float32(_NODES)).astype(np.intp)
    step = size - node.astype(np.float32) * np.float32(1 / _NODES)
    return np.copysign(values[node] + step * (slope[node] + step * curve[node]), x)


def erf_dx(x: np.ndarray) -> np.ndarray:
    """Derivative of erf: 2 / sqrt(pi) * exp(-x * x)."""
    return np.float32(2 / math.sqrt(math.pi)) * np.exp(-x * x)


def _normal_cdf(x: np.ndarray) -> np.ndarray:
    return _HALF * (_ONE + erf(x * _SQRT_HALF))


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution function of x."""
    return x * _normal_cdf(x)


def gelu_dx(x: np.ndarray) -> np.ndarray:
    """Derivative of gelu."""
    density = np.float32(1 / math.sqrt(2 * math.pi)) * np.exp(-_HALF * x * x)
    return _normal_cdf(x) + x * density


def gelu_apprx_tanh(x: np.ndarray) -> np.ndarray:
    """gelu with tanh in place of erf (Hendrycks and Gimpel, 2016)."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return _HALF * x * (_ONE + np.tanh(inner))


def gelu_apprx_sigmoid(x: np.ndarray) -> np.ndarray:
    """gelu as x * sigmoid(1.702 x) (Hendrycks and Gimpel, 2016)."""
    return x * sigmoid(np.float32(1.702) * x)


def gelu_apprx_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    """Derivative of gelu_apprx_sigmoid."""
    slope = np.float32(1.702)
    s = sigmoid(slope * x)
    return s + slope * x * s * (_ONE - s)
