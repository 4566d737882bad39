"""Answers that are nearly right, which a check must refuse."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import kernels
from nkibook.exercises.puzzles import giou_jax, giou_optimisation, rmsnorm_optimisation

jax = pytest.importorskip("jax")
jnp = jax.numpy

modelled_time = pytest.mark.skipif(kernels.backend != "nkisim", reason="there is no modelled time")


def _losses(p, t):
    from kernels.giou.jax_op import giou

    return 1 - giou(p, t)


def _real_losses(p, t):
    return jnp.where(t.any(-1), _losses(p, t), 0)


MASKED_LOSSES = {
    "the first half": lambda p, t: _losses(p, t)[:, : p.shape[1] // 2].mean(),
    "divided by half": lambda p, t: _real_losses(p, t).sum() * 2 / t[..., 0].size,
    "divided by all": lambda p, t: _real_losses(p, t).mean(),
    "a mean of means": lambda p, t: (_real_losses(p, t).sum(-1) / t.any(-1).sum(-1)).mean(),
    "x1 is the mask": lambda p, t: _losses(p, t).mean(where=t[..., 0] > 0),
    "y1 is the mask": lambda p, t: _losses(p, t).mean(where=t[..., 1] > 0),
    "all coordinates": lambda p, t: _losses(p, t).mean(where=t.all(-1)),
}

SHAPES_FROM_DATA = {
    "a boolean index": lambda p, t: _losses(p, t)[t.any(-1)].mean(),
    "nonzero": lambda p, t: _losses(p, t)[jnp.nonzero(t.any(-1))].mean(),
    "NumPy": lambda p, t: _losses(p, t)[np.asarray(t).any(-1)].mean(),
}


@pytest.mark.parametrize("answer", MASKED_LOSSES.values(), ids=MASKED_LOSSES)
def test_masked_loss_is_a_mean_over_the_real_boxes_of_all_samples(answer):
    verdict = giou_jax.masked_loss.check(answer)
    assert not verdict
    assert "and should be" in verdict.message


@pytest.mark.parametrize("answer", SHAPES_FROM_DATA.values(), ids=SHAPES_FROM_DATA)
def test_masked_loss_has_no_shape_that_depends_on_data(answer):
    verdict = giou_jax.masked_loss.check(answer)
    assert not verdict
    assert "no shape can depend on a value. JAX says: " in verdict.message


def test_masked_loss_may_be_written_in_other_ways():
    check = giou_jax.masked_loss.check
    assert check(lambda p, t: _losses(p, t).mean(where=t.any(-1)))
    assert check(lambda p, t: jnp.average(_losses(p, t), weights=t.any(-1)))


def _sum_over_rows(total):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            rows = slice(i * 128, (i + 1) * 128)
            nl.store(out[rows], value=total(nl.load(x[rows])))
        return out

    return kernel


@modelled_time
@pytest.mark.parametrize("square", [nl.square, lambda t: nisa.activation(nl.square, t)])
def test_squares_that_are_stored_are_too_slow(square):
    kernel = _sum_over_rows(lambda tile: nl.sum(square(tile), axis=1, keepdims=True))
    verdict = rmsnorm_optimisation.sum_of_squares.check(kernel)
    assert not verdict
    assert "the numbers are right" in verdict.message


def _two_factors(squares_in, more_in, less_in):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            rows = slice(i * 128, (i + 1) * 128)
            tile = nl.load(x[rows])
            squares = nl.ndarray(tile.shape, nl.float32, buffer=squares_in)
            more = nl.ndarray(tile.shape, nl.float32, buffer=more_in)
            less = nl.ndarray(tile.shape, nl.float32, buffer=less_in)
            squares[...] = nisa.activation(nl.square, tile)
            more[...] = nisa.tensor_tensor(squares, tile, op=nl.add)
            less[...] = nisa.tensor_tensor(squares, tile, op=nl.subtract)
            nl.store(out[rows], value=nisa.tensor_tensor(more, less, op=nl.multiply))
        return out

    return kernel


@modelled_time
@pytest.mark.parametrize("psum", [(), (0,), (1,), (2,)])
def test_one_value_in_psum_is_too_slow(psum):
    where = (nl.psum if i in psum else nl.sbuf for i in range(3))
    verdict = giou_optimisation.two_factors.check(_two_factors(*where))
    assert not verdict
    assert "the numbers are right" in verdict.message


@modelled_time
def test_either_factor_may_be_the_one_in_psum():
    assert giou_optimisation.two_factors.check(_two_factors(nl.psum, nl.psum, nl.sbuf))
    assert giou_optimisation.two_factors.check(_two_factors(nl.psum, nl.sbuf, nl.psum))
