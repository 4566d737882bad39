"""A mask with fewer axes than the tile is on its first or its last axes, whichever fits, and is
refused where both do; and what the refusals say to write works."""

from __future__ import annotations

import re

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronxcc import nki

from nkisim.errors import ShapeError

pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
OFF = -7.0


def run(x, mask):
    """Twice x under a mask, and OFF elsewhere."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        result = nl.full(x.shape, OFF, x.dtype)
        result[...] = nl.multiply(nl.load(x), 2.0, mask=mask())
        nl.store(out, result)
        return out

    return kernel(x)


@given(
    shape=st.lists(st.sampled_from([2, 3, 4]), min_size=2, max_size=4).map(tuple),
    axes=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4).map(tuple),
    data=st.data(),
)
@settings(max_examples=2 * settings.default.max_examples)
def test_masks_of_few_axes(shape, axes, data):
    axes = axes[: len(shape)]
    along = data.draw(st.integers(0, len(axes) - 1))
    n = axes[along]
    least = data.draw(st.integers(0, n))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    key = tuple(slice(None) if d == along else None for d in range(len(axes)))
    condition = np.broadcast_to((np.arange(n) >= least)[key], axes)
    more = len(shape) - len(axes)
    fits = {}
    for name, whole in (("last", (1,) * more + axes), ("first", axes + (1,) * more)):
        if all(m in (1, k) for m, k in zip(whole, shape, strict=True)):
            fits[name] = np.where(condition.reshape(whole), x * 2, OFF)

    def mask():
        index = nl.mgrid[tuple(slice(0, m) for m in axes)]
        return (index if len(axes) > 1 else (nl.arange(n),))[along] >= least

    try:
        got = run(x, mask)
    except ShapeError as error:
        refusal = error
    else:
        assert any(np.array_equal(got, wanted) for wanted in fits.values())
        assert len(fits) == 1 or n == 1 or np.array_equal(*fits.values())
        return
    if len(fits) == 1 and len(axes) > 1:
        raise AssertionError("it fits in one way only, and was refused")
    if len(fits) == 2 and more:
        assert "it is open" in refusal.problem
    # What is said to write instead is a mask of the tile.
    for written in re.findall(r"nl\.arange\(\d+\)\[[^\]]*\]", refusal.fix):
        at = [k.strip() for k in written.split("[")[1].rstrip("]").split(",")].index(":")
        where = (
            np.arange(shape[at])[tuple(slice(None) if d == at else None for d in range(len(shape)))]
            >= 1
        )
        got = run(x, lambda w=written: eval(w, {"nl": nl}) >= 1)
        np.testing.assert_array_equal(got, np.where(np.broadcast_to(where, shape), x * 2, OFF))


def test_a_mask_of_mgrid_on_a_column():
    """The commonest kernel: reduce rows, then use the column under a mask of the rows."""

    def kernel_of(dense):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((100, 1), dtype=x.dtype, buffer=nl.shared_hbm)
            i, j = nl.mgrid[0:128, 0:64]
            total = nl.sum(nl.load(x[i, j], mask=i < 100), axis=1, mask=i < 100)
            rows = i if dense else nl.arange(128)[:, None]
            root = nl.sqrt(total, mask=rows < 100)
            nl.store(out[nl.arange(128)[:, None], nl.arange(1)[None, :]], root, mask=rows < 100)
            return out

        return kernel

    x = np.random.default_rng(0).random((100, 64), np.float32)
    with pytest.raises(ShapeError) as caught:
        kernel_of(True)(x)
    assert "nl.arange(128)[:, None]" in caught.value.fix
    wanted = np.sqrt(x.sum(1, keepdims=True))
    np.testing.assert_allclose(kernel_of(False)(x), wanted, rtol=1e-5)
