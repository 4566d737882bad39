"""Every elementwise instruction, through drawn dtypes, shapes, access patterns and masks, against
NumPy in double precision. What the mask or the pattern leaves out keeps its old value."""

from __future__ import annotations

import math
import operator

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from drawn_operands import (
    FLOATS,
    INTEGERS,
    close,
    masks,
    numbers,
    patterns,
    run,
    shapes,
    some,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

UNARY_LANGUAGE = {
    "abs": np.abs,
    "arctan": np.arctan,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "negative": np.negative,
    "reciprocal": np.reciprocal,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sin": np.sin,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
ONLY_POSITIVE = {"log", "reciprocal", "rsqrt", "sqrt"}
ON_THE_SCALAR_ENGINE = sorted(
    set(UNARY_LANGUAGE) - {"ceil", "cos", "floor", "negative", "tan", "trunc"}
)
BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
F32 = np.dtype(np.float32)
forms = st.sampled_from(["arange", "slice"])
coefficient = st.integers(-3, 3)

# A coupled mask reaches odd partitions; that is allowed, with a warning.
pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")


class Operands:
    """What one example computes on: a destination and sources, each with a pattern, and a mask."""

    def __init__(
        self, data, sources: int, dtypes=FLOATS, out=FLOATS, low=-3.0, high=3.0, rank=(2, 3)
    ) -> None:
        self.shape = data.draw(shapes.filter(lambda shape: len(shape) in rank), "shape")
        self.form = data.draw(forms, "form")
        self.mask = data.draw(masks(self.shape), "mask")
        self.to = data.draw(patterns(self.shape), "destination")
        self.destination = numbers(self.to.base, data.draw(st.sampled_from(out), "out"), 99)
        self.patterns = [data.draw(patterns(self.shape), f"source {i}") for i in range(sources)]
        self.arrays = [
            numbers(p.base, data.draw(st.sampled_from(dtypes), f"dtype {i}"), i, low, high)
            for i, p in enumerate(self.patterns)
        ]

    def values(self, wide=np.float64) -> list[np.ndarray]:
        pairs = zip(self.patterns, self.arrays, strict=True)
        return [p.of_array(a).astype(wide) for p, a in pairs]

    def check(self, instruction, wanted: np.ndarray, *more: np.ndarray) -> None:
        """`instruction(*tiles, *more tiles, mask=...)` against `wanted`."""

        def body(tile, *tiles):
            n = len(self.patterns)
            pairs = zip(self.patterns, tiles[:n], strict=True)
            views = [p.of_tile(t, self.form) for p, t in pairs]
            result = instruction(*views, *tiles[n:], mask=self.mask.of_kernel(self.shape))
            index = self.to.of_tile(_Index(), self.form)
            tile[index] = result

        got = run(body, self.destination, *self.arrays, *more)
        close(got, written(self.destination, self.to, self.mask, wanted))


class _Index:
    """Gives back the index it is asked for."""

    def __getitem__(self, index):
        return index


@pytest.mark.parametrize("name", sorted(BINARY))
@given(data=st.data())
@some
def test_tensor_tensor(name, data):
    case = Operands(data, 2)
    case.arrays = [np.round(a.astype(np.float32)).astype(a.dtype) for a in case.arrays]
    wanted = BINARY[name](*case.values())
    op = getattr(data.draw(st.sampled_from([nl, np]), "module of the operator"), name)
    case.check(
        lambda a, b, mask: nisa.tensor_tensor(a, b, op, mask=mask, dtype=case.destination.dtype),
        wanted,
    )


@pytest.mark.parametrize("name", sorted(BITS))
@given(data=st.data(), dtype=st.sampled_from(INTEGERS))
@some
def test_bit_operations(name, data, dtype):
    case = Operands(data, 2, [dtype], [dtype])
    op = getattr(nl, name)
    case.check(
        lambda a, b, mask: nisa.tensor_tensor(a, b, op, mask=mask),
        BITS[name](*case.values(dtype)),
    )


@pytest.mark.parametrize("name", sorted(BINARY))
@given(data=st.data())
@some
def test_language_operators(name, data):
    case = Operands(data, 2)
    case.arrays = [np.round(a.astype(np.float32)).astype(a.dtype) for a in case.arrays]
    wanted = BINARY[name](*case.values())
    op = getattr(nl, name)
    case.check(lambda a, b, mask: op(a, b, mask=mask, dtype=case.destination.dtype), wanted)


@pytest.mark.parametrize("name", sorted(UNARY_LANGUAGE))
@given(data=st.data())
@some
def test_language_functions(name, data):
    low = 0.1 if name in ONLY_POSITIVE else -1.4
    case = Operands(data, 1, low=low, high=1.4)
    wanted = UNARY_LANGUAGE[name](*case.values())
    op = getattr(nl, name)
    case.check(lambda x, mask: op(x, mask=mask, dtype=case.destination.dtype), wanted)


@pytest.mark.parametrize("name", ON_THE_SCALAR_ENGINE)
@given(
    data=st.data(),
    bias=st.sampled_from([None, *FLOATS]),
    scale=st.sampled_from([1.0, 0.75, "tile"]),
)
@some
def test_activation(name, data, bias, scale):
    low = 0.5 if name in ONLY_POSITIVE else -1.4
    case = Operands(data, 1, low=low, high=1.4)
    bias = None if name == "reciprocal" else bias
    column = case.shape[0], 1
    by, plus = numbers(column, np.float32, 7, 0.5, 1), numbers(column, bias or F32, 8, 0, 0.2)
    (x,) = case.values()
    stretch = (...,) + (None,) * (x.ndim - 2)
    factor = by.astype(float)[stretch] if scale == "tile" else scale
    wanted = UNARY_LANGUAGE[name](x * factor + (0 if bias is None else plus.astype(float)[stretch]))
    case.check(
        lambda x, by, plus, mask: nisa.activation(
            getattr(nl, name),
            x,
            scale=by if scale == "tile" else scale,
            bias=None if bias is None else plus,
            mask=mask,
            dtype=case.destination.dtype,
        ),
        wanted,
        by,
        plus,
    )


@given(
    data=st.data(),
    names=st.lists(
        st.sampled_from(["add", "subtract", "multiply", "maximum", "less"]), min_size=1, max_size=2
    ),
    reverse=st.tuples(st.booleans(), st.booleans()),
    vector=st.tuples(st.booleans(), st.booleans()),
)
@some
def test_tensor_scalar(data, names, reverse, vector):
    case = Operands(data, 1)
    column = case.shape[0], 1
    columns = [numbers(column, np.float32, 3 + i) for i in range(2)]
    (wanted,) = case.values()
    stretch = (...,) + (None,) * (wanted.ndim - 2)
    for name, back, tile, v in zip(names, reverse, vector, columns, strict=False):
        other = v.astype(float)[stretch] if tile else 1.5
        wanted = BINARY[name](*((other, wanted) if back else (wanted, other))).astype(float)
    second = {}
    if len(names) == 2:
        second = {"op1": getattr(np, names[1]), "reverse1": reverse[1]}
    case.check(
        lambda x, v0, v1, mask: nisa.tensor_scalar(
            x,
            op0=getattr(nl, names[0]),
            operand0=v0 if vector[0] else 1.5,
            reverse0=reverse[0],
            **(second and second | {"operand1": v1 if vector[1] else 1.5}),
            mask=mask,
            dtype=case.destination.dtype,
        ),
        wanted,
        *columns,
    )


@given(
    data=st.data(),
    names=st.tuples(*[st.sampled_from(["add", "subtract", "multiply", "maximum"])] * 2),
    reverse=st.tuples(st.booleans(), st.booleans()),
    vector=st.booleans(),
)
@some
def test_scalar_tensor_tensor(data, names, reverse, vector):
    case = Operands(data, 2, rank=(2,))
    column = numbers((case.shape[0], 1), np.float32, 5)
    x, y = case.values()
    other = column.astype(float) if vector else -0.5
    first = BINARY[names[0]](*((other, x) if reverse[0] else (x, other)))
    wanted = BINARY[names[1]](*((y, first) if reverse[1] else (first, y)))
    case.check(
        lambda x, y, v, mask: nisa.scalar_tensor_tensor(
            data=x,
            op0=getattr(nl, names[0]),
            operand0=v if vector else -0.5,
            op1=getattr(nl, names[1]),
            operand1=y,
            reverse0=reverse[0],
            reverse1=reverse[1],
            mask=mask,
            dtype=case.destination.dtype,
        ),
        wanted,
        column,
    )


@given(data=st.data(), engine=st.sampled_from(["vector", "scalar", "gpsimd"]))
@some
def test_tensor_copy(data, engine):
    case = Operands(data, 1)
    (wanted,) = case.values()
    where = getattr(nisa, f"{engine}_engine")
    case.check(
        lambda x, mask: nisa.tensor_copy(x, mask=mask, dtype=case.destination.dtype, engine=where),
        wanted,
    )


@given(data=st.data())
@some
def test_reciprocal(data):
    case = Operands(data, 1, low=0.2)
    case.check(
        lambda x, mask: nisa.reciprocal(x, mask=mask, dtype=case.destination.dtype),
        1 / case.values()[0],
    )


@given(data=st.data(), value=st.sampled_from([0.0, -1.5, 3]))
@some
def test_memset(data, value):
    case = Operands(data, 0, out=[*FLOATS, *INTEGERS] if value == 3 else FLOATS)
    case.check(
        lambda mask: nisa.memset(case.shape, value, case.destination.dtype, mask=mask),
        np.full(case.shape, value, float),
    )


@given(data=st.data())
@some
def test_where(data):
    case = Operands(data, 3)
    case.arrays[0] = (case.arrays[0].astype(np.float32) > 0).astype(np.uint8)
    condition, x, y = case.values()
    case.check(
        lambda c, x, y, mask: nl.where(c, x, y, mask=mask, dtype=case.destination.dtype),
        np.where(condition, x, y),
    )


def affine(shape, growth, offset, of_kernel=True):
    """offset + sum(growth[d] * index[d]), of a kernel or as an array."""
    index = nl.mgrid[tuple(slice(0, n) for n in shape)] if of_kernel else np.indices(shape)
    return offset + sum(c * i for c, i in zip(growth, index, strict=False))


@given(
    data=st.data(),
    growth=st.tuples(*3 * [coefficient]),
    bound=st.integers(-5, 30),
    compare=st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq]),
)
@some
def test_affine_select(data, growth, bound, compare):
    case = Operands(data, 1, [F32, np.dtype(np.int16)])
    pred = compare(affine(case.shape, growth, 0, of_kernel=False), bound)
    case.check(
        lambda x, mask: nisa.affine_select(
            compare(affine(case.shape, growth, 0), bound),
            x,
            -7.0,
            mask=mask,
            dtype=case.destination.dtype,
        ),
        np.where(pred, case.values()[0], -7.0),
    )


@given(data=st.data(), growth=st.tuples(*3 * [coefficient]), offset=coefficient)
@some
def test_iota(data, growth, offset):
    case = Operands(data, 0, out=[np.dtype(np.int32), *FLOATS])
    case.check(
        lambda mask: nisa.iota(
            affine(case.shape, growth, offset), dtype=case.destination.dtype, mask=mask
        ),
        affine(case.shape, growth, offset, of_kernel=False),
    )
