"""Copies are left out where those who read the copy can do without, and nowhere else."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nkisim
from nkisim.machine import GEN2, GEN3
from nkisim.runtime import profiling as model
from nkisim.runtime.kernel import Kernel

P, N = 128, 512
LEFT_OUT = "copy that changes nothing left out"
ROUNDED = "rounding of a tile left to the instruction that makes it"
bf16, f16 = np.dtype(bfloat16), np.dtype(np.float16)


def around(work):
    """A kernel that loads a tile, does `work` on it and stores the result."""

    def kernel(x):
        result = work(nl.load(x))
        out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return Kernel(kernel)


def profile(work, dtype=np.float32, machine=GEN2):
    shape = nkisim.TensorSpec((P, N), np.dtype(dtype))
    return nkisim.profile(around(work).on(machine), shape)


def steps(timeline):
    """What runs, without the copies' own tiles: labels and times."""
    tasks, s = timeline._core.work.tasks, timeline._core.schedule
    return [
        (t.label, start, end, done)
        for t, start, end, done in zip(tasks, s.start, s.end, s.done, strict=True)
    ]


def count(timeline, what):
    return timeline.choices.get(what, 0)


def square(tile):
    return nisa.activation(np.square, tile)


# -- copies that convert nothing ---------------------------------------------------------------


def used_once(tile):
    return square(nl.copy(tile))


def used_with_its_source(tile):
    return nl.add(nl.copy(tile), nl.exp(tile))


def copied_twice(tile):
    return square(nl.copy(nl.copy(tile)))


def copied_in_the_same_type(tile):
    return square(nl.copy(tile, dtype=tile.dtype))


def of_a_tile_made_in_parts(tile):
    made = nl.ndarray((P, N), dtype=tile.dtype)
    for part in (nl.ds(0, N // 2), nl.ds(N // 2, N // 2)):
        made[:, part] = square(tile[:, part])
    return square(nl.copy(made))


def read_in_parts(tile):
    copy = nl.copy(tile)
    made = nl.ndarray((P, N), dtype=tile.dtype)
    for part in (nl.ds(0, N // 2), nl.ds(N // 2, N // 2)):
        made[:, part] = square(copy[:, part])
    return made


NEEDLESS = [
    used_once,
    used_with_its_source,
    copied_twice,
    copied_in_the_same_type,
    of_a_tile_made_in_parts,
    read_in_parts,
]


def without(work, monkeypatch):
    """The same work, with the tile itself wherever it copies."""
    monkeypatch.setattr(nl, "copy", lambda tile, dtype=None: tile)
    return work


@pytest.mark.parametrize("machine", [GEN2, GEN3])
@pytest.mark.parametrize("dtype", [np.float32, bfloat16, np.int32])
@pytest.mark.parametrize("work", NEEDLESS)
def test_copy_that_changes_nothing_costs_nothing(work, dtype, machine, monkeypatch):
    found = profile(work, dtype, machine)
    assert count(found, LEFT_OUT) == (2 if work is copied_twice else 1)
    written_without = profile(without(work, monkeypatch), dtype, machine)
    assert steps(found) == steps(written_without)


def test_it_costs_nothing_in_each_iteration():
    def kernel(x, copies):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((20, nl.par_dim(P), N), dtype=x.dtype)
        for i in nl.affine_range(20):
            rows = nl.ds(i * P, P)
            tiles[i] = nl.load(x[rows, :])
            nl.store(out[rows, :], square(nl.copy(tiles[i]) if copies else tiles[i]))
        return out

    x = nkisim.TensorSpec((20 * P, N), np.dtype(np.float32))
    found, plain = (nkisim.profile(Kernel(kernel), x, copies) for copies in (True, False))
    assert count(found, LEFT_OUT) == 20
    assert found.latency_us == plain.latency_us


def source_changes(tile):
    made = square(tile)
    copy = nl.copy(made)
    made[...] = nl.add(made, 1.0)
    return nl.add(made, copy)


def copy_changes(tile):
    copy = nl.copy(tile)
    copy[:, 0:1] = nl.add(copy[:, 1:2], 1.0)
    return nl.add(tile, copy)


def asked_for(tile):
    return square(nisa.tensor_copy(tile))


def on_an_engine(tile):
    return square(nisa.tensor_copy(tile, engine=nisa.gpsimd_engine))


def of_a_part(tile):
    return square(nl.copy(tile[:, 0 : N // 2]))


def of_other_elements(tile):
    column = nl.arange(N)[None, :]
    return square(nl.copy(tile[nl.arange(P)[:, None], N - 1 - column]))


def out_of_psum(tile):
    turned = nisa.nc_transpose(tile[:, 0:P], engine=nisa.tensor_engine)
    return square(nl.copy(turned))


def to_a_wider_type(tile):
    return square(nl.copy(tile, dtype=np.float32))


@pytest.mark.parametrize(
    "work",
    [source_changes, copy_changes, asked_for, on_an_engine, of_a_part, of_other_elements,
     out_of_psum, to_a_wider_type],
)  # fmt: skip
def test_copies_that_are_done(work):
    found = profile(work, bf16)
    assert count(found, LEFT_OUT) == count(found, ROUNDED) == 0
    assert any(label == "tensor_copy" for label, *_ in steps(found))


def test_copies_of_placed_tiles_are_done():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, copy = (
            nl.ndarray((nl.par_dim(P), N), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=at))
            for at in (0, 8192)
        )
        tile[...] = nl.load(x)
        copy[...] = nl.copy(tile)
        nl.store(out, copy)
        return out

    found = nkisim.profile(Kernel(kernel), nkisim.TensorSpec((P, N), np.dtype(np.float32)))
    assert count(found, LEFT_OUT) == 0
    assert any(label == "tensor_copy" for label, *_ in steps(found))


# -- copies that round -------------------------------------------------------------------------


def exp_rounded(tile, copy=nl.copy, dtype=bf16):
    return nl.add(copy(nisa.activation(nl.exp, tile), dtype=dtype), 1.0)


def exp_in_half(tile, dtype=bf16):
    return nl.add(nisa.activation(nl.exp, tile, dtype=dtype), 1.0)


def sums_on_the_side(tile, whole=True):
    sums = nl.zeros((P, 1), dtype=nl.float32)
    powers = nisa.activation(
        op=nl.exp,
        data=tile,
        reduce_op=np.add,
        reduce_res=sums,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        dtype=nl.float32 if whole else bf16,
    )
    if whole:
        powers = nisa.tensor_copy(powers, dtype=bf16)
    return nl.multiply(powers, sums)


def through_psum(tile, whole=True):
    product = nisa.nc_matmul(tile[:, 0:P], tile)
    if whole:
        return nl.add(nl.copy(nl.copy(product), dtype=bf16), 1.0)
    return nl.add(nl.copy(product, dtype=bf16), 1.0)


@pytest.mark.parametrize("machine", [GEN2, GEN3])
@pytest.mark.parametrize(
    ("work", "by_hand"),
    [
        (exp_rounded, exp_in_half),
        (lambda t: exp_rounded(t, nisa.tensor_copy), exp_in_half),
        (lambda t: exp_rounded(t, dtype=f16), lambda t: exp_in_half(t, f16)),
        (sums_on_the_side, lambda t: sums_on_the_side(t, whole=False)),
        (through_psum, lambda t: through_psum(t, whole=False)),
    ],
)
def test_rounding_is_part_of_the_instruction_before(work, by_hand, machine):
    found = profile(work, machine=machine)
    assert count(found, ROUNDED) == 1
    assert steps(found) == steps(profile(by_hand, machine=machine))


def test_rounding_of_a_copy_is_part_of_what_makes_the_tile():
    def work(tile):
        return exp_rounded(tile, lambda t, dtype: nl.copy(nl.copy(t), dtype=dtype))

    found = profile(work)
    assert count(found, LEFT_OUT) == count(found, ROUNDED) == 1
    assert steps(found) == steps(profile(exp_in_half))


def the_tile_is_used_too(tile):
    power = nisa.activation(nl.exp, tile)
    return nl.add(nl.copy(power, dtype=bf16), nl.max(power, axis=1, keepdims=True))


def its_copy_is_used_too(tile):
    power = nisa.activation(nl.exp, tile)
    copy = nl.copy(power)
    return nl.add(nl.copy(copy, dtype=bf16), nl.max(copy, axis=1, keepdims=True))


def of_a_loaded_tile(tile):
    return square(nl.copy(tile, dtype=bf16))


def of_a_transposed_tile(tile):
    square = nisa.nc_transpose(tile[0:32, 0:32], engine=nisa.vector_engine)
    return nl.add(nl.copy(square, dtype=bf16), 1.0)


def of_a_tile_in_parts(tile):
    power = nl.ndarray((P, N), dtype=nl.float32)
    for part in (nl.ds(0, N // 2), nl.ds(N // 2, N // 2)):
        power[:, part] = nisa.activation(nl.exp, tile[:, part])
    return nl.add(nl.copy(power, dtype=bf16), 1.0)


def to_integers(tile):
    return exp_rounded(tile, dtype=np.int32)


def by_an_engine(tile):
    return exp_rounded(
        tile, lambda t, dtype: nisa.tensor_copy(t, dtype=dtype, engine=nisa.gpsimd_engine)
    )


@pytest.mark.parametrize(
    "work",
    [the_tile_is_used_too, its_copy_is_used_too, of_a_loaded_tile, of_a_transposed_tile,
     of_a_tile_in_parts, to_integers, by_an_engine],
)  # fmt: skip
def test_roundings_that_are_done(work):
    found = profile(work)
    assert count(found, ROUNDED) == 0
    assert any(label == "tensor_copy" for label, *_ in steps(found))


def test_rounding_of_a_rounded_tile_is_done():
    """Twice rounded is not once rounded."""

    def work(tile):
        half = nisa.activation(nl.exp, tile, dtype=f16)
        return nl.add(nl.copy(half, dtype=bf16), 1.0)

    assert count(profile(work), ROUNDED) == 0


# -- whatever the kernel -----------------------------------------------------------------------

MAKES = ["copy", "round", "ask", "exp", "add", "change"]


@given(st.lists(st.tuples(st.sampled_from(MAKES), st.integers(0, 5)), min_size=1, max_size=8))
def test_every_tile_is_made_before_it_is_read(made):
    """Copies, roundings and what uses or changes their tiles, in any order."""

    def work(tile):
        tiles = [tile]
        for what, at in made:
            source = tiles[at % len(tiles)]
            if what == "copy":
                tiles.append(nl.copy(source))
            elif what == "round":
                tiles.append(nl.copy(source, dtype=bf16))
            elif what == "ask":
                tiles.append(nisa.tensor_copy(source))
            elif what == "exp":
                tiles.append(nisa.activation(nl.exp, source, dtype=nl.float32))
            elif what == "add":
                tiles.append(nl.add(source, tiles[-1]))
            else:
                source[:, 0:1] = nl.add(source[:, 1:2], 1.0)
        total = tiles[0]
        for other in tiles[1:]:
            total = nl.add(total, other)
        return total

    kernel, shape = around(work), nkisim.TensorSpec((P, N), np.dtype(np.float32))
    tasks = model.profile(kernel, shape)._core.work.tasks
    written = {number for number, _ in tasks[0].reads}  # the kernel's argument
    for task in tasks:
        assert {number for number, _ in task.reads} <= written
        written |= {number for number, _ in task.writes}
    asked = sum(what == "ask" for what, _ in made)
    assert sum(task.label == "tensor_copy" for task in tasks) >= asked
