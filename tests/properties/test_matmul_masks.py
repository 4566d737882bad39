"""Masks of matmuls, drawn, against NumPy: a condition cuts the axis that it is written for, or it
is refused, and then the fix that the message names gives what was meant."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from neuronxcc import nki

from nkisim.errors import ParameterError, UninitializedReadError

pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")

EXTENTS = (3, 8, 33, 64)  # few, so that axes often have one extent
FILL = 77.0


@st.composite
def products(draw):
    """A kind of product, the extents of K, M and N, what is left of each, how masks are built."""
    kind = draw(st.sampled_from(["nc_matmul", "matmul", "matmul, x transposed"]))
    extents = {axis: draw(st.sampled_from(EXTENTS)) for axis in "KMN"}
    spans = {}
    for axis, n in extents.items():
        low = draw(st.integers(0, n - 1))
        spans[axis] = draw(st.sampled_from([(0, n), (0, low + 1), (low, n)]))
    return kind, extents, spans, draw(st.booleans())


def conditions(first, last, spans, extents, dense):
    """A mask of an operand whose axes are `first` and `last`; None where it leaves all."""
    n, m = extents[first], extents[last]
    i, j = nl.mgrid[0:n, 0:m] if dense else (nl.arange(n)[:, None], nl.arange(m)[None, :])
    mask = None
    for index, axis in ((i, first), (j, last)):
        low, high = spans[axis]
        parts = [index >= low] * (low > 0) + [index < high] * (high < extents[axis])
        for part in parts:
            mask = part if mask is None else mask & part
    return mask


def masked(tile, mask):
    return tile if mask is None else tile[mask]


def product(kind, x, y, **mask):
    if kind == "nc_matmul":
        return nisa.nc_matmul(x, y, **mask)
    return nl.matmul(x, y, transpose_x=kind != "matmul", **mask)


@given(products())
@example(("matmul", {"K": 64, "M": 64, "N": 33}, {"K": (0, 5), "M": (0, 9), "N": (0, 33)}, False))
@example(("matmul", {"K": 64, "M": 33, "N": 64}, {"K": (0, 5), "M": (0, 9), "N": (0, 33)}, True))
@settings(max_examples=2 * settings.default.max_examples)
def test_a_condition_cuts_what_it_is_written_for(drawn):
    kind, extents, spans, dense = drawn
    turned = kind != "matmul"
    of_x = ("K", "M") if turned else ("M", "K")
    rng = np.random.default_rng(0)
    a = rng.standard_normal([extents[d] for d in of_x]).astype(np.float32)
    b = rng.standard_normal([extents["K"], extents["N"]]).astype(np.float32)

    def kernel_of(by_operand, masks_loads):
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray((extents["M"], extents["N"]), nl.float32, buffer=nl.shared_hbm)
            mine = conditions(*of_x, spans, extents, dense)
            theirs = conditions("K", "N", spans, extents, dense)
            x = nl.load(a, mask=mine if masks_loads else None)
            y = nl.load(b, mask=theirs if masks_loads else None)
            if by_operand:
                result = product(kind, masked(x, mine), masked(y, theirs))
            else:
                both = mine if theirs is None else theirs if mine is None else mine & theirs
                result = product(kind, x, y, mask=both)
            nl.store(out, nl.full((extents["M"], extents["N"]), FILL, nl.float32))
            nl.store(out, result, mask=conditions("M", "N", spans, extents, False))
            return out

        return kernel

    cut = {axis: slice(*spans[axis]) for axis in "KMN"}
    left = a[cut["K"], cut["M"]].T if turned else a[cut["M"], cut["K"]]
    wanted = np.full((extents["M"], extents["N"]), FILL, np.float32)
    wanted[cut["M"], cut["N"]] = left @ b[cut["K"], cut["N"]]
    alike = {"MK": extents["M"] == extents["K"], "KN": extents["K"] == extents["N"]}
    alike["MN"] = extents["M"] == extents["N"]
    for masks_loads in (False, True):
        got = kernel_of(True, masks_loads)(a, b)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        found, refusal = None, None
        try:
            found = kernel_of(False, masks_loads)(a, b)
        except ParameterError as error:
            refusal = error
        if refusal is None:
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        else:
            assert "it is open" in refusal.problem
            assert "a[i, j][i < rows]" in refusal.fix  # which has been followed above
            assert any(alike.values())


@pytest.mark.parametrize("kind", ["nc_matmul", "matmul", "matmul, x transposed"])
def test_the_fix_of_an_unmasked_product_of_masked_loads_works(kind):
    """A tail in M, K and N, as a kernel for any shape has it."""
    m, k, n = 100, 70, 60
    rng = np.random.default_rng(0)
    turned = kind != "matmul"
    a = rng.standard_normal((k, m) if turned else (m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)

    def kernel_of(fixed):
        @nki.jit
        def kernel(a, b):
            out = nl.ndarray((m, n), nl.float32, buffer=nl.shared_hbm)
            i, j = nl.arange(128)[:, None], nl.arange(128)[None, :]
            mask_a, mask_b = (i < a.shape[0]) & (j < a.shape[1]), (i < k) & (j < n)
            x, y = nl.load(a[i, j], mask=mask_a), nl.load(b[i, j], mask=mask_b)
            result = product(kind, x[mask_a], y[mask_b]) if fixed else product(kind, x, y)
            nl.store(out[i, j], result, mask=(i < m) & (j < n))
            return out

        return kernel

    with pytest.raises(UninitializedReadError) as caught:
        kernel_of(False)(a, b)
    assert "a[mask_a], b[mask_b]" in caught.value.fix
    wanted = (a.T if turned else a) @ b
    np.testing.assert_allclose(kernel_of(True)(a, b), wanted, rtol=1e-4, atol=1e-5)
