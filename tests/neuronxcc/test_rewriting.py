"""Masks that a kernel joins with `and`, which Python would evaluate to the second of them, or asks
whether they are there."""

from __future__ import annotations

import numpy as np
import pytest

from nkisim.errors import ControlFlowError, NkiWarning
from nkisim.frontends.neuronxcc import nki
from nkisim.frontends.neuronxcc.nki import language as nl

SHAPE = (7, 11)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def corner(x, rows, columns):
    """What every kernel below computes: 2 x in a corner, x elsewhere."""
    expected = x.copy()
    expected[:rows, 2:columns] *= 2
    return expected


@pytest.mark.parametrize("mode", ["auto", "simulation", "baremetal"])
def test_masks_joined_with_and(mode):
    bound = 5  # a name of the closure

    @nki.jit(mode=mode)
    def kernel(x, columns):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:7, 0:11]
        tile = nl.load(x)
        inside = i < bound and j >= 2 and j < columns
        tile[i, j] = nl.multiply(tile[i, j], 2, mask=inside)
        nl.store(out, tile)
        return out

    x = numbers(*SHAPE)
    for columns in (4, 9):
        with pytest.warns(NkiWarning, match="masks are joined with `and`") as caught:
            doubled = kernel(x, columns)
        np.testing.assert_array_equal(doubled, corner(x, 5, columns))
        assert all(w.filename == __file__ for w in caught)


@nki.jit
def guarded(x, rows=None):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:7, 0:11]
    tile = nl.load(x)
    for column in nl.static_range(2, 9):
        # An `and` of plain values stops at the first that is false, and gives that value.
        if (rows and rows[column]) is not None:
            tile[i, j] = nl.multiply(tile, 2, mask=(j == column and i < rows[column]))
    nl.store(out, tile)
    return out


def test_and_of_plain_values_is_what_it_was():
    x = numbers(*SHAPE)
    np.testing.assert_array_equal(guarded(x), x)
    with pytest.warns(NkiWarning, match="and"):
        np.testing.assert_array_equal(guarded(x, [5] * 11), corner(x, 5, 9))


def test_an_assignment_inside_and_keeps_its_meaning():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        size = x.shape[0] > 3 and (rows := x.shape[0])
        nl.store(out, nl.load(x) * size + rows)
        return out

    x = numbers(*SHAPE)
    np.testing.assert_allclose(kernel(x), x * 7 + 7, rtol=1e-6)


def test_a_mask_decides_no_branch():
    @nki.jit
    def kernel(x):
        i, j = nl.mgrid[0:7, 0:11]
        if i < 5 and j < 3:
            return x
        return x

    with pytest.raises(ControlFlowError, match="join conditions with &") as caught:
        kernel(numbers(*SHAPE))
    assert caught.value.location.text == "if i < 5 and j < 3:"


def both(a, b):
    return a and b


def test_functions_that_a_kernel_calls_join_masks_with_the_operator_only():
    @nki.jit
    def kernel(x):
        i, j = nl.mgrid[0:7, 0:11]
        return nl.load(x[i, j], mask=both(i < 5, j < 3))

    with pytest.raises(ControlFlowError, match="join conditions with &"):
        kernel(numbers(*SHAPE))


@pytest.mark.parametrize("causal", [True, False])
def test_whether_there_is_a_mask_is_not_what_it_says(causal):
    """As kernels of AWS write it: where the condition on loop indices does not hold, nothing is
    done, and not what the other mask says."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 128, 8), x.dtype, buffer=nl.shared_hbm)
        row, column = nl.mgrid[0:128, 0:8]
        total = nl.zeros((2, nl.par_dim(128), 8), nl.float32)
        for i in nl.sequential_range(4):
            for k in nl.sequential_range(2):
                mask = i >= 2 * k if causal else None
                rows = row < 100
                here = total[k, row, column]
                total[k, row, column] = nl.add(
                    here, nl.load(x[i, row, column]), mask=(mask & rows if mask else rows)
                )
        for k in nl.affine_range(2):
            nl.store(out[k], total[k])
        return out

    x = np.ones((4, 128, 8), np.float32)
    wanted = np.zeros((2, 128, 8))
    wanted[0, :100], wanted[1, :100] = 4, 2 if causal else 4
    np.testing.assert_array_equal(kernel(x), wanted)


BOOLS = {
    "of a shape": "None if x.shape[0] == 3 else (x.shape[0] > 128)",
    "the other way round": "(x.shape[0] > 128) if x.shape else None",
    "of an argument": "None if flag is None else (flag > 1)",
    "of a string": "('a' == 'b') if x.shape else None",
    "of numbers of Python": "None if x is None else (float(x.shape[0]) < 1.0)",
    "of NumPy": "None if x is None else (np.float32(x.shape[0]) < 1)",
    "membership": "None if x is None else (flag in (5, 6))",
    "of a loop that is unrolled": "None if x is None else (i > 0)",
    "of several": "None if x is None else (x.shape[0] > 1) & (x.shape[0] > 128)",
}


@pytest.mark.parametrize("made", BOOLS)
@pytest.mark.parametrize(
    "used",
    [
        "(big & True) if big else 3.0",
        "3.0 if not big else big & True",
        "(True & big) if big else 3.0",
    ],
)
def test_a_bool_that_is_no_mask_is_what_python_says(made, used, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        f"""
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x, flag):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):  # another loop's index of that name
        pass
    for i in nl.static_range(1):
        big = {BOOLS[made]}
        nl.store(y, nl.load(x) * float({used}))
    return y
"""
    )
    names = {"__name__": "module"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    x = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(names["kernel"](x, 1), 3 * x)


# -- all else is what Python imported

PARTS = {
    "nothing": "",
    "an annotation": "z: tensor[4, 4] = nl.load(x)",
    "an and": "z = x is not None and bool(x.shape)",
    "a mask or none": "m = x.shape[0] < 9 if x is None else None; z = (m & m) if m else m",
}
WAYS = {
    "text": ('layout = """\n    .x\n    """', 'float(layout.splitlines()[1].index("x"))', 5.0),
    "private": ("", "self.__scale", 2.0),
    "super": ("", "super().twice(1.5)", 3.0),
    "locals": ("here = 7.0", "locals()['here']", 7.0),
    "closure": ("", "outer", 11.0),
    "default": ("", "given", 13.0),
    "class": ("class Inside:\n                    value = 17.0", "Inside.value", 17.0),
    "global": ("", "GLOBAL", 19.0),
    "walrus": ("y = (n := 21.0) and n", "n", 21.0),
    "falsy": ("y = 0 and 1", "y", 0.0),
    "chain": ("y = 1 and 2 and 23.0 and 23.0", "y", 23.0),
    "comprehension": ("y = [a and b for a in (1,) for b in (25.0,)]", "y[0]", 25.0),
    "kwonly": ("", "named", 27.0),
}
TEXT = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
from neuronxcc.nki.typing import tensor

GLOBAL = 19.0


class Base:
    def twice(self, by):
        return 2 * by


def make():
    outer = 11.0

    class Holder(Base):
        def __init__(self):
            self.__scale = 2.0

        @nki.jit
        def kernel(self, x, given=13.0, *, named=27.0):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            for _ in range(1):
                {part}
                {line}
                nl.store(out, nl.load(x) * {value})
            return out

    return Holder


Holder = make()
"""


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_does_what_python_imported(way, part, edited, tmp_path):
    """Whatever of a kernel is rewritten, and though its file was saved again since."""
    line, value, wanted = WAYS[way]
    text = TEXT.format(part=PARTS[part] or "pass", line=line or "pass", value=value)
    path = tmp_path / "module.py"
    path.write_text(text)
    names = {"__name__": "module"}
    exec(compile(text, str(path), "exec"), names)
    if edited:
        path.write_text(text.replace("nl.load(x)", "nl.load(x) * 999.0"))
    holder = names["Holder"]
    x = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(holder.kernel(holder(), x), wanted * x)
