"""Provenance against an independent answer: change one input element, and see what changes."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim import checks
from nkisim.errors import KernelError
from nkisim.runtime.provenance import origin, touched

RNG = np.random.default_rng(0)


def changes(kernel, arrays: list[np.ndarray], index: tuple[int, ...]) -> list[np.ndarray]:
    """Which elements of each array output element `index` depends on, found by changing each."""
    before = kernel(*arrays)[index]
    found = []
    for at, array in enumerate(arrays):
        depends = np.zeros(array.shape, bool)
        for where in np.ndindex(array.shape):
            changed = [a.copy() for a in arrays]
            changed[at][where] += 0.5
            depends[where] = kernel(*changed)[index] != before
        found.append(depends)
    return found


def traced(kernel, arrays: list[np.ndarray], index: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return origin(kernel.specialize(arrays, {}).program, 0, index).reads


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def out(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


@nki.jit
def add_row(x, row):
    y = out(x.shape)
    nl.store(y, value=nl.load(x) + nl.broadcast_to(nl.load(row), shape=x.shape))
    return y


@nki.jit
def windows(x):
    y = out((x.shape[0], x.shape[1] - 2))
    tile = nl.load(x)
    i_p, i_f, i_w = nl.mgrid[0 : x.shape[0], 0 : x.shape[1] - 2, 0:3]
    nl.store(y, value=nl.sum(tile[i_p, i_f + i_w], axis=[2]))
    return y


@nki.jit
def two_programs(x):
    y = out(x.shape)
    rows = nl.ds(nl.program_id(0) * 2, 2)
    tile = nl.load(x[rows, :])
    nl.store(y[rows, :], value=tile * nl.sum(tile, axis=[1], keepdims=True))
    return y


@nki.jit
def overwritten(x):
    y = out(x.shape)
    tile = nl.load(x)
    tile[:, 0:2] = nl.copy(tile[:, 2:4])
    nl.store(y, value=tile)
    return y


@nki.jit
def product(a, b):
    y = out((a.shape[1], b.shape[1]))
    nl.store(y, value=nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b))))
    return y


@nki.jit
def turned(x):
    y = out((x.shape[1], x.shape[0]))
    nl.store(y, value=nl.copy(nisa.nc_transpose(nl.load(x))))
    return y


@nki.jit
def masked(x):
    y = out(x.shape)
    i_p, i_f = nl.mgrid[0 : x.shape[0], 0 : x.shape[1]]
    nl.store(y, value=nl.zeros(x.shape, nl.float32))
    nl.store(y[i_p, i_f], value=nl.load(x) * 2, mask=i_f < i_p)
    return y


@nki.jit
def across(x):
    y = out((1, x.shape[1]))
    tile = nl.load(x)
    nl.store(y, value=nisa.tensor_partition_reduce(np.add, tile))
    return y


CASES = {
    "a row for all rows": (add_row, [array(3, 4), array(1, 4)], (2, 1)),
    "windows": (windows, [array(2, 7)], (1, 3)),
    "the second program": (two_programs[2], [array(4, 3)], (3, 1)),
    "an element written twice": (overwritten, [array(2, 5)], (1, 0)),
    "an element written once": (overwritten, [array(2, 5)], (1, 3)),
    "a product": (product, [array(4, 3), array(4, 5)], (1, 2)),
    "a transpose": (turned, [array(3, 4)], (2, 1)),
    "inside a mask": (masked, [array(4, 5)], (2, 1)),
    "outside a mask": (masked, [array(4, 5)], (1, 2)),
    "across partitions": (across, [array(4, 3)], (0, 1)),
}


@pytest.mark.parametrize(("kernel", "arrays", "index"), CASES.values(), ids=CASES)
def test_what_changes_an_element_is_what_it_was_computed_from(kernel, arrays, index) -> None:
    for found, expected in zip(
        traced(kernel, arrays, index), changes(kernel, arrays, index), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_the_writer_is_the_last_one() -> None:
    arrays = [array(4, 3)]
    program = two_programs[2].specialize(arrays, {}).program
    assert origin(program, 0, (3, 0)).writer.program == 1
    assert origin(program, 0, (1, 0)).writer.program == 0
    assert "nl.store(y[rows, :]" in origin(program, 0, (1, 0)).writer.location.text


def test_elements_that_come_from_memory_nobody_wrote() -> None:
    @nki.jit
    def padded(x):
        y = out((x.shape[0], x.shape[1] + 2))
        tile = nl.ndarray(y.shape, dtype=x.dtype, buffer=nl.sbuf)
        tile[:, nl.ds(1, x.shape[1])] = nl.load(x)
        nl.store(y, value=tile)
        return y

    with checks(uninitialized="off", output="off"):
        program = padded.specialize([array(2, 3)], {}).program
    undefined = [origin(program, 0, (1, column)).undefined for column in range(5)]
    assert undefined == [True, False, False, False, True]


def test_touched_is_the_access_pattern() -> None:
    instr = two_programs[2].specialize([array(4, 3)], {}).program.instructions[-1]
    expected = np.zeros((4, 3), bool)
    expected[2:] = True
    np.testing.assert_array_equal(touched(instr, instr.outs[0]), expected)


def test_a_refused_kernel_leaves_its_trace_and_the_instruction() -> None:
    @nki.jit
    def reaches_out(x):
        y = out(x.shape)
        tile = nl.load(x)
        nl.store(y[nl.ds(1, 4), :], value=tile)
        return y

    with pytest.raises(KernelError) as caught:
        reaches_out(array(4, 3))
    assert [i.label for i in caught.value.trace.instructions] == ["load"]
    assert caught.value.instruction.label == "store"
