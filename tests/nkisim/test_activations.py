"""The activation functions against their definitions, in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nkisim.numerics import activations, alu

X = np.linspace(-6, 6, 4001).astype(np.float32)
RANGES = {"sin": X * (3.14 / 6), "arctan": X * (1.57 / 6)}  # of the Scalar Engine
POSITIVE = np.linspace(0.01, 9, 1001).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def softplus(x):
    return math.log1p(math.exp(x))


DEFINITIONS = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * cdf(x),
    "gelu_dx": lambda x: cdf(x) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu_apprx_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "tanh": math.tanh,
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "exp": math.exp,
    "sin": math.sin,
    "arctan": math.atan,
    "sign": lambda x: float(np.sign(x)),
    "abs": abs,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}


def test_every_documented_function_is_defined():
    assert set(DEFINITIONS) == alu.ACTIVATIONS


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_definition(name, compute):
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

    x = POSITIVE if name in ("log", "sqrt", "rsqrt", "reciprocal") else RANGES.get(name, X)
    wanted = np.array([DEFINITIONS[name](float(v)) for v in x])
    by_isa = compute(lambda t: nisa.activation(getattr(nl, name), t), x[None])
    by_language = compute(lambda t: getattr(nl, name)(t), x[None])
    # 1 + erf and the like lose digits where they cancel: an absolute error of a few float32 units.
    np.testing.assert_allclose(by_isa[0], wanted, rtol=3e-6, atol=2e-6)
    np.testing.assert_array_equal(by_isa, by_language)


def test_erf_is_accurate_to_float32():
    x = np.concatenate([X, np.logspace(-30, 0, 2000).astype(np.float32), -POSITIVE])
    wanted = np.array([math.erf(v) for v in x.astype(float)])
    error = np.abs(activations.erf(x) - wanted)
    assert (error <= 2.5e-7 * np.abs(wanted)).all()


def test_erf_at_the_ends():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 4.0, 1e30], np.float32)
    got = activations.erf(x)
    np.testing.assert_array_equal(got[:4], [0, 0, 1, -1])
    assert np.signbit(got[1])
    assert np.isnan(got[4])
    np.testing.assert_array_equal(got[5:], [1, 1])
