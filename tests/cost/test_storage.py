"""Forms by note are those that a look at all operands finds."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.cost.storage import Storage
from nkisim.cost.tasks import Work
from nkisim.runtime.kernel import Kernel

P = 128


def sums_in_parts(x):
    """Products of one note that are added to tiles of two shapes, to parts of a wider one, and left
    alone; loads of two sizes; numbers as operands."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(x.shape[0] // P):
        rows = nl.ds(i * P, P)
        left, right = nl.load(x[rows, 0:P]), nl.load(x[rows, 0:P])
        total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
        wide = nl.zeros((P, 2 * P), nl.float32, buffer=nl.psum)
        for k in nl.static_range(3):
            total += nisa.nc_matmul(left, right)
            wide[:, nl.ds((k % 2) * P, P)] += nisa.nc_matmul(left, right)
        alone = nl.copy(nisa.nc_matmul(left, right), dtype=nl.bfloat16)
        scaled = nl.add(nl.multiply(total, 0.5 + i % 2), alone)
        both = nl.add(wide[:, 0:P], scaled)
        nl.store(out[rows, 0:P], nl.add(both, wide[:, P : 2 * P]))
        nl.store(out[rows, P : 2 * P], nl.load(x[rows, P : 2 * P]))
    return out


def blocks(x):
    """Tiles of tensors with block axes, one at a time, and several by one view."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    count = x.shape[0] // P
    kept = nl.ndarray((count, nl.par_dim(P), x.shape[1]), x.dtype)
    for i in nl.static_range(count):
        kept[i] = nl.load(x[nl.ds(i * P, P), :])
    for i in nl.static_range(count):
        nl.store(out[nl.ds(i * P, P), :], nl.add(kept[i], kept[count - 1 - i]))
    return out


def partition_of(instrs):
    """Which instructions have one form, numbered in the order in which these come up."""
    numbers: dict[int, int] = {}
    steps = Storage(Work([], {})).steps(instrs)
    return [numbers.setdefault(id(step.form), len(numbers)) for step in steps]


@pytest.mark.parametrize("kernel", [sums_in_parts, blocks])
def test_forms_by_note_are_those_by_operand(kernel):
    x = nkisim.TensorSpec((6 * P, 2 * P), np.dtype(np.float32))
    trace = Kernel(kernel).specialize([x], {}).program.trace
    assert sum(i.model is not None for i in trace.instructions) > len(trace.instructions) // 2
    found = partition_of(trace.instructions)
    for i in trace.instructions:
        i.model = None
    assert found == partition_of(trace.instructions)
    assert 1 < len(set(found)) < len(found) // 2
