"""Iterations of short loops become one instruction where that does the same work, and nowhere
else."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkisim.machine import GEN2, GEN3
from nkisim.runtime.kernel import Kernel

P = 128
RANGES = {
    "affine": nl.affine_range,
    "sequential": nl.sequential_range,
    "static": nl.static_range,
    "range": range,
}


def scale(out, x, y, column, part):
    out[:, part] = nisa.tensor_scalar(x[:, part], np.multiply, 2.0)


def scale_rows(out, x, y, column, part):
    out[:, part] = nisa.tensor_scalar(x[:, part], np.multiply, column)


def add(out, x, y, column, part):
    out[:, part] = nisa.tensor_tensor(x[:, part], y[:, part], np.add)


def exp(out, x, y, column, part):
    out[:, part] = nisa.activation(nl.exp, x[:, part], bias=column)


def copy(out, x, y, column, part):
    out[:, part] = nisa.tensor_copy(x[:, part], engine=nisa.vector_engine)


def two_steps(out, x, y, column, part):
    power = nisa.activation(nl.exp, x[:, part])
    out[:, part] = nisa.tensor_tensor(power, y[:, part], np.multiply)


WORKS = [scale, scale_rows, add, exp, copy, two_steps]


def in_parts(work, parts, loop="affine"):
    """A kernel that does `work` on as many parts of a tile, one after the other."""

    def kernel(x, y):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        x, y = nl.load(x), nl.load(y)
        column = nl.copy(y[:, 0:1])
        result = nl.ndarray(x.shape, dtype=x.dtype)
        n = x.shape[1] // parts
        for i in RANGES[loop](parts):
            work(result, x, y, column, nl.ds(i * n, n))
        nl.store(out, result)
        return out

    return Kernel(kernel)


def profile(kernel, *args, machine=GEN2):
    kernel = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    return nkisim.profile(kernel.on(machine), *args)


def joined(timeline):
    return {what: n for what, n in timeline.choices.items() if what.endswith("joined")}


@pytest.mark.parametrize("machine", [GEN2, GEN3], ids=["v2", "v3"])
@pytest.mark.parametrize("work", WORKS)
def test_a_short_loop_takes_what_one_instruction_does(work, machine):
    args = (spec(P, 512), spec(P, 512))
    one = profile(in_parts(work, 1), *args, machine=machine)
    parts = profile(in_parts(work, 16), *args, machine=machine)
    assert joined(parts)
    assert parts.latency_us == pytest.approx(one.latency_us, rel=1e-9)
    assert parts.engines["Vector"] == one.engines["Vector"]
    assert not joined(one)


@given(
    work=st.sampled_from(WORKS),
    parts=st.integers(2, 40),
    columns=st.integers(1, 300),
)
def test_all_of_a_loop_is_joined_if_it_is_short_enough(work, parts, columns):
    kernel = in_parts(work, parts)
    found = profile(kernel, *[spec(P, parts * columns)] * 2)
    assert bool(joined(found)) == (parts * columns <= 512)
    assert all(f" {parts} iterations" in what for what in joined(found))


@pytest.mark.parametrize("loop", ["sequential", "static", "range"])
def test_only_parallel_loops_are_joined(loop):
    found = profile(in_parts(add, 16, loop), spec(P, 512), spec(P, 512))
    assert not joined(found)
    assert sum(row.count for row in found.lines if row.label == "tensor_tensor(add)") == 16


def steps_of_its_own(result, x, i):
    """Each row of iterations has another number to multiply with: no one instruction does that."""
    result[:, nl.ds(i * 8, 8)] = nisa.tensor_scalar(
        x[:, nl.ds(i * 8, 8)], np.multiply, x[:, nl.ds(i, 1)]
    )


def overlapping(result, x, i):
    """Iterations write to the same elements: the last one decides."""
    result[:, nl.ds(i * 4, 8)] = nisa.tensor_copy(x[:, nl.ds(i * 8, 8)])


def running_sum(result, x, i):
    result[:, 0:8] = nisa.tensor_tensor(result[:, 0:8], x[:, nl.ds(i * 8, 8)], np.add)


def one_buffer(result, x, i):
    """A tile that all iterations share: the second statement would only see the last."""
    buffer = result[:, 504:512]
    buffer[...] = nisa.tensor_scalar(x[:, nl.ds(i * 8, 8)], np.add, 1.0)
    result[:, nl.ds(i * 8, 8)] = nisa.tensor_scalar(buffer, np.multiply, 2.0)


def other_partitions(result, x, i):
    result[nl.ds(i * 32, 32), 0:8] = nisa.tensor_copy(x[nl.ds(i * 32, 32), 8:16])


def uneven(result, x, i):
    """The parts are not evenly spaced."""
    part = nl.ds(i * i * 8, 8)
    result[:, part] = nisa.tensor_copy(x[:, part])


def summed_on_the_side(result, x, i):
    """An engine has one accumulator a partition."""
    nisa.activation_reduce(
        nl.exp, x[:, nl.ds(i * 8, 8)], reduce_op=np.add, reduce_res=result[:, nl.ds(i, 1)]
    )


def transferred(result, x, i):
    result[:, nl.ds(i * 8, 8)] = nl.load(x[:, nl.ds(i * 8, 8)])
    result[:, nl.ds(i * 8, 8)] = nisa.tensor_scalar(result[:, nl.ds(i * 8, 8)], np.add, 1.0)


@pytest.mark.parametrize(
    "body",
    [
        steps_of_its_own,
        overlapping,
        running_sum,
        one_buffer,
        other_partitions,
        uneven,
        summed_on_the_side,
        transferred,
    ],
)
def test_what_no_one_instruction_does_is_not_joined(body):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if body is not transferred:
            x = nl.load(x)
        result = nl.zeros((P, 512), dtype=nl.float32)
        for i in nl.affine_range(4):
            body(result, x, i)
        nl.store(out, result)
        return out

    with nkisim.checks(loop="off"):  # which rejects some of these
        assert not joined(profile(kernel, spec(P, 512)))


def test_tiles_placed_by_hand_are_not_joined():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray(
            (8, nl.par_dim(P), 16),
            dtype=x.dtype,
            buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(8,)),
        )
        x = nl.load(x)
        for i in nl.affine_range(8):
            tiles[i] = nisa.tensor_copy(x[:, nl.ds(i * 16, 16)])
        for i in nl.affine_range(8):
            nl.store(out[:, nl.ds(i * 16, 16)], tiles[i])
        return out

    with nkisim.checks(placement="off"):  # others are placed by the compiler
        assert not joined(profile(kernel, spec(P, 128)))


def test_what_is_hoisted_or_filled_stands_in_no_ones_way():
    def kernel(x):
        out = nl.ndarray((P, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        x = nl.load(x)
        sums = nl.zeros((P, 16), dtype=nl.float32)
        for i in nl.affine_range(16):
            least = nl.negative(x[:, 0:1])
            power = nisa.activation(nl.exp, x[:, nl.ds(i * 16, 16)], bias=least)
            sums[:, nl.ds(i, 1)] = nisa.tensor_reduce(np.add, power, axis=(1,))
        nl.store(out, sums)
        return out

    found = joined(profile(kernel, spec(P, 256)))
    assert found == {
        "activation(exp) of 16 iterations joined": 1,
        "tensor_reduce(add) of 16 iterations joined": 1,
    }


def windows(columns, block=None):
    """The sum of each three neighbours, in a loop, or in loops of `block` iterations."""

    def kernel(x):
        out = nl.ndarray((P, columns), dtype=x.dtype, buffer=nl.shared_hbm)
        x = nl.load(x)
        result = nl.ndarray((P, columns), dtype=x.dtype)

        def one(at):
            product = nisa.tensor_tensor(x[:, nl.ds(at, 3)], x[:, 0:3], np.multiply)
            result[:, nl.ds(at, 1)] = nisa.tensor_reduce(np.add, product, axis=(1,))

        if block is None:
            for i in nl.affine_range(columns):
                one(i)
        else:
            for b in nl.affine_range(columns // block):
                for i in nl.affine_range(block):
                    one(b * block + i)
        nl.store(out, result)
        return out

    return profile(kernel, spec(P, columns + 2))


@pytest.mark.parametrize(
    ("columns", "block", "products", "sums"),
    [
        (2048, None, 2048, 512),  # as published, and so are blocks of 32 and 64
        (2048, 32, 16, 16),
        (2048, 64, 16, 16),
        (2048, 128, 16, 16),
        (2048, 256, 2048, 512),
        (2046, None, 2046, 2046),  # four do not divide them
        (160, None, 1, 1),
        (300, 60, 5, 5),  # five blocks cannot go by twos
    ],
)
def test_a_convolution_has_the_published_number_of_instructions(columns, block, products, sums):
    """Published: 65,536 iterations are as many products and 16,384 sums, and 512 of each when the
    loop is in blocks of 32 or 64."""
    found = windows(columns, block)
    lines = {row.label: row.count for row in found.lines}
    assert lines["tensor_tensor(multiply)"] == products
    assert lines["tensor_reduce(add)"] == sums
    assert joined(found) == {
        f"{what} of {columns // n} iterations joined": n
        for what, n in lines.items()
        if what.startswith("tensor") and n < columns
    }


def test_long_sums_of_a_long_loop_are_not_joined():
    def kernel(x):
        out = nl.ndarray((P, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        x = nl.load(x)
        most = nl.ndarray((P, 32), dtype=x.dtype)
        for i in nl.affine_range(32):
            most[:, nl.ds(i, 1)] = nisa.tensor_reduce(np.max, x[:, nl.ds(i * 32, 32)], axis=(1,))
        nl.store(out, most)
        return out

    assert not joined(profile(kernel, spec(P, 1024)))


def test_results_of_matmuls_are_in_banks_of_their_own():
    """A copy takes one bank, though four of 128 columns would be short enough."""

    def kernel(x, y):
        out = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(x), nl.load(y)
        result = nl.ndarray((P, 512), dtype=nl.float32)
        for i in nl.affine_range(4):
            product = nisa.nc_matmul(x, y[:, nl.ds(i * P, P)])
            result[:, nl.ds(i * P, P)] = nisa.tensor_copy(product)
        nl.store(out, result)
        return out

    assert not joined(profile(kernel, spec(P, P), spec(P, 512)))


def test_findings_of_what_was_joined():
    """They do not say that starts take most of the time."""
    assert not any(f.text.startswith("starting ") for f in windows(2048, 64).findings)
    assert any(f.text.startswith("starting ") for f in windows(2048).findings)
