"""`t[...] = op(t, ...)`: the instruction writes over what it reads, without a tile in between."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

ROWS, COLUMNS = 128, 64


@nki.jit
def in_place(x, what):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    t, total = nl.load(x), nl.zeros((ROWS, 1), dtype=nl.float32)
    p, f = nl.mgrid[0:ROWS, 0:COLUMNS]
    if what == "activation_reduce":
        t[...] = nisa.activation_reduce(nl.exp, t, reduce_op=nl.add, reduce_res=total)
    elif what == "tensor_scalar_reduce":
        t[...] = nisa.tensor_scalar_reduce(
            data=t, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=total
        )
    elif what == "tensor_tensor_scan":
        t[...] = nisa.tensor_tensor_scan(t, t, 0.0, op0=nl.multiply, op1=nl.add)
    elif what == "affine_select":
        t[...] = nisa.affine_select(pred=(f <= p), on_true_tile=t, on_false_value=-1.0)
    elif what == "nc_match_replace8":
        largest = nisa.max8(src=t)
        t[...] = nisa.nc_match_replace8(data=t, vals=largest, imm=-1.0)
    elif what == "part":  # it reads more than it writes over
        t[:, 1:] = nisa.activation_reduce(nl.exp, t[:, :-1], reduce_op=nl.add, reduce_res=total)
    nl.store(out, t)
    nl.store(sums, total)
    return out, sums


def _scan(x):
    found, state = np.empty_like(x), np.zeros(ROWS, np.float32)
    for column in range(COLUMNS):
        state = found[:, column] = x[:, column] * state + x[:, column]
    return found


def _without_largest(x):
    found = x.copy()
    np.put_along_axis(found, np.argsort(-x, axis=1)[:, :8], -1, axis=1)
    return found


def _shifted(x):
    return np.concatenate([x[:, :1], np.exp(x[:, :-1])], axis=1)


WANTED = {
    "activation_reduce": (np.exp, lambda x: np.exp(x).sum(1)),
    "tensor_scalar_reduce": (lambda x: 2 * x, lambda x: 2 * x.sum(1)),
    "tensor_tensor_scan": (_scan, None),
    "affine_select": (lambda x: np.where(np.tri(ROWS, COLUMNS, dtype=bool), x, -1), None),
    "nc_match_replace8": (_without_largest, None),
    "part": (_shifted, lambda x: np.exp(x[:, :-1]).sum(1)),
}


@pytest.mark.parametrize("what", WANTED)
def test_values(what):
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    values, sums = WANTED[what]
    got, total = in_place(x, what)
    np.testing.assert_allclose(got, values(x), rtol=1e-5, atol=1e-5)
    if sums is not None:
        np.testing.assert_allclose(total[:, 0], sums(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("what", WANTED)
def test_only_what_overlaps_is_copied(what):
    x = np.zeros((ROWS, COLUMNS), np.float32)
    program = in_place.specialize((x, what), {}).program
    copies = [i for i in program.instructions if i.label.startswith("tensor_copy")]
    assert bool(copies) == (what == "part")
