"""Classes below `nl.NKIObject`, which a kernel makes objects of."""

from __future__ import annotations

from dataclasses import dataclass, field

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

X = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)


@dataclass
class Sizes(nl.NKIObject):
    rows: int
    factor: float = 3.0
    bias: float  # after one with a default
    left_out: int

    def scaled(self) -> float:
        return self.factor * self.rows


@dataclass(frozen=True)
class Frozen(nl.NKIObject):
    rows: int
    names: tuple = field(default_factory=tuple)


@dataclass
class More(Sizes):
    rows: int
    depth: int


@dataclass
class NoTypes(nl.NKIObject):
    rows = None
    factor = 2.0

    @property
    def doubled(self):
        return 2 * self.rows


class Plain(nl.NKIObject):
    rows: int
    factor: float = 2.0


def kernel(x, make):
    sizes = make(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(sizes.rows))
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Sizes(rows=x.shape[1], bias=1.0),
        lambda x: Sizes(x.shape[1]),
        lambda x: Frozen(rows=x.shape[1]),
        lambda x: More(rows=x.shape[1], depth=2),
        lambda x: NoTypes(rows=x.shape[1]),
        lambda x: Plain(rows=x.shape[1]),
    ],
)
def test_a_kernel_makes_one_without_all_fields(make):
    np.testing.assert_array_equal(nki.simulate(kernel)(X, make), X * X.shape[1])


def test_a_field_that_is_not_given_has_its_default_or_none():
    sizes = Sizes(5)
    assert (sizes.rows, sizes.factor, sizes.bias, sizes.left_out) == (5, 3.0, None, None)
    assert sizes.scaled() == 15
    assert Sizes(rows=5, left_out=1).left_out == 1
    assert (More(5, depth=2).factor, More(5).depth) == (3.0, None)
    assert (Frozen(7).names, Frozen().rows) == ((), None)
    assert (Plain().rows, Plain().factor, Plain(rows=4).rows) == (None, 2.0, 4)


def test_a_field_that_is_none_of_the_class_is_refused():
    with pytest.raises(TypeError, match="depth"):
        Sizes(rows=5, depth=1)


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_a_tensor_is_true_whatever_is_in_it(fill):
    def add(x, bias):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        if bias:
            more = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=more, src=bias)
            nisa.tensor_tensor(dst=tile, data1=tile, data2=more, op=nl.add)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=5.0)
        nisa.dma_copy(dst=out, src=tile)
        return out

    bias = np.full_like(X, fill)
    np.testing.assert_array_equal(nki.simulate(add)(X, bias), X + bias + 5)
    np.testing.assert_array_equal(nki.simulate(add)(X, None), X)


def test_the_truth_of_one_element_is_a_warning():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if x:
            nisa.dma_copy(dst=out, src=x)
        return out

    one = np.zeros((1, 1), np.float32)
    with pytest.warns(match="a tensor is always true"):
        np.testing.assert_array_equal(nki.simulate(kernel)(one), one)
    assert (NoTypes(rows=4).factor, NoTypes(3, factor=1.0).doubled) == (2.0, 6)
    assert NoTypes() == NoTypes(None, 2.0)
