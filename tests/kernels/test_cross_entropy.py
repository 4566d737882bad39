"""The cross-entropy kernels in both dialects: values, gradients, odd shapes, dtypes, refusals.

The reference runs in float64, on the logits as they were rounded to their dtype. Losses are
float32; gradients are rounded once to the dtype of the logits.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from differences import assert_is_gradient

from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward, reference

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def draw(shape, dtype=np.float32, scale=3.0):
    """Logits, targets among which are the first and the last class, and a gradient."""
    rng = np.random.default_rng(0)
    logits = (scale * rng.standard_normal(shape, np.float32)).astype(dtype)
    targets = rng.integers(0, shape[-1], shape[:-1], np.int32)
    if targets.size > 1:
        targets.flat[0], targets.flat[-1] = shape[-1] - 1, 0
    return logits, targets, rng.standard_normal(shape[:-1], np.float32)


# 129 rows need a second tile; 2049 classes a second piece, 5000 a third.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7,), (129, 300), (3, 2049), (2, 131, 40), (130, 5000)])
def test_any_shape(shape, dtype, dialect):
    logits, targets, grad = draw(shape, dtype)
    loss, lse = nki_cross_entropy(logits, targets)
    wide = logits.astype(np.float64)
    for found, expected in zip((loss, lse), reference.cross_entropy(wide, targets), strict=True):
        assert (found.shape, found.dtype) == (targets.shape, np.float32)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    found = nki_cross_entropy_backward(grad, logits, targets, lse)
    assert (found.shape, found.dtype) == (logits.shape, logits.dtype)
    expected = reference.cross_entropy_backward(grad.astype(np.float64), wide, targets)
    np.testing.assert_allclose(
        found.astype(np.float64),
        expected,
        rtol=float(ml_dtypes.finfo(dtype).eps) / 2 + 1e-5,
        atol=1e-6,
    )
    if dialect == "nki":
        again = nki_cross_entropy(logits, targets, lnc=2)
        assert [x.tobytes() for x in again] == [x.tobytes() for x in (loss, lse)]
        again = nki_cross_entropy_backward(grad, logits, targets, lse, lnc=2)
        assert again.tobytes() == found.tobytes()


def test_large_and_special_logits(dialect):
    """Nothing overflows; a class that is masked with -inf has no share; NaN spreads over a row."""
    logits, targets, grad = draw((6, 3000))
    logits[0] *= 1e4
    logits[1, 1000:] = -np.inf
    logits[2, targets[2]] = -np.inf
    logits[3, 2500] = np.nan
    logits[4] += 1e6
    targets[1] = 5
    loss, lse = nki_cross_entropy(logits, targets)
    found = nki_cross_entropy_backward(grad, logits, targets, lse)
    good = [0, 1, 4, 5]
    wide = logits[good].astype(np.float64)
    np.testing.assert_allclose(
        loss[good], reference.cross_entropy(wide, targets[good])[0], rtol=1e-4, atol=0.2
    )
    assert np.isfinite(found[good]).all()
    assert not found[1, 1000:].any()
    assert loss[2] == np.inf
    assert np.isnan(loss[3])
    assert np.isnan(found[3]).all()


def test_reference_gradient_equals_finite_differences():
    logits, targets, grad = draw((3, 5), np.float64)
    found = reference.cross_entropy_backward(grad, logits, targets)
    loss = lambda x: (reference.cross_entropy(x, targets)[0] * grad).sum()  # noqa: E731
    assert_is_gradient([found], loss, [logits])


X, T, G = draw((4, 6))


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X, T[:3]), ValueError, "must be"),
        ((X[:0], T[:0]), ValueError, "no elements"),
        ((X[:, :0], T), ValueError, "1 to 16777216 classes"),
        ((np.broadcast_to(X[0, 0], (2**8, 2**23)), np.zeros(2**8, int)), ValueError, "fewer than"),
        ((X, T.astype(float)), TypeError, "targets is float64"),
        ((X, T.astype(np.int64)), TypeError, "The kernels take int32"),
        ((X.astype(np.float64), T), TypeError, "logits is float64"),
        ((X, [1]), TypeError, "targets is a list"),
    ],
)
def test_refused_inputs(args, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_cross_entropy(*args)
    with pytest.raises(ValueError, match="lse is float32 of shape"):
        nki_cross_entropy_backward(G, X, T, G[:3])


def test_targets_of_frameworks():
    """int64, the default of PyTorch, and a batch of targets for the same logits."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from kernels.cross_entropy import jax_op, torch_op

    several = np.stack([T, T[::-1]])
    expected = np.stack([reference.cross_entropy(X, t)[0] for t in several])
    batch = torch.vmap(torch_op.cross_entropy, (None, 0))
    found = batch(torch.from_numpy(X), torch.from_numpy(several).long())
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = jax.vmap(jax_op.cross_entropy, (None, 0))(X, several)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(TypeError, match="targets is float32"):
        torch_op.cross_entropy(torch.from_numpy(X), torch.from_numpy(G))


def padded(dtype=np.float32):
    logits, targets, grad = draw((37, 35), dtype)
    targets[[0, 3, 36]] = -100
    return logits, targets, grad


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_rows_that_do_not_count_in_torch(reduction):
    torch = pytest.importorskip("torch")
    from kernels.cross_entropy.torch_op import cross_entropy

    logits, targets, grad = map(torch.from_numpy, padded())
    for index in (-100, 7):
        both = []
        for function in (cross_entropy, torch.nn.functional.cross_entropy):
            leaf = logits.clone().requires_grad_()
            marked = torch.where(targets == -100, index, targets).long()
            loss = function(leaf, marked, ignore_index=index, reduction=reduction)
            (loss * grad).sum().backward()
            both.append((loss.detach(), leaf.grad))
        for ours, theirs in zip(*both, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    small = torch.zeros(3, 300).requires_grad_()
    assert cross_entropy(small, torch.tensor([156, 1, 2], dtype=torch.uint8)).min() > 5


def test_rows_that_do_not_count_in_jax():
    jax = pytest.importorskip("jax")
    from kernels.cross_entropy.jax_op import cross_entropy

    logits, targets, _ = padded()
    wanted, _ = reference.cross_entropy(logits, np.where(targets < 0, 0, targets))
    wanted[targets < 0] = 0
    sevens = np.where(targets < 0, 7, targets)
    assert np.array_equal(np.asarray(cross_entropy(logits, sevens, 7)) == 0, sevens == 7)
    for function in (cross_entropy, jax.jit(cross_entropy), jax.vmap(cross_entropy)):
        np.testing.assert_allclose(function(logits, targets), wanted, rtol=1e-5, atol=1e-5)
    found = jax.jit(jax.grad(lambda x: cross_entropy(x, targets).sum()))(logits)
    assert not np.asarray(found)[targets < 0].any()
    assert np.asarray(found)[1].any()


@pytest.mark.parametrize("wrong", [35, -1, 2**31 - 1])
def test_a_target_that_is_no_class(wrong):
    """An error where values can be read, and NaN where they cannot."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from kernels.cross_entropy.jax_op import cross_entropy as in_jax
    from kernels.cross_entropy.torch_op import cross_entropy as in_torch

    logits, targets, _ = padded()
    targets[5] = wrong
    message = rf"targets\[5\] is {wrong}, and logits has 35 classes: a target is 0 to 34"
    tensors = torch.from_numpy(logits), torch.from_numpy(targets)
    for function, arguments in ((in_torch, tensors), (in_jax, (logits, targets))):
        with pytest.raises(IndexError, match=message + ", or ignore_index, which is -100"):
            function(*arguments)
    with pytest.raises(IndexError, match=r"targets\[0\] is -100"):
        nki_cross_entropy(logits, targets)
    compiled = torch.compile(in_torch, backend="aot_eager", fullgraph=True)(*tensors)
    for found in (compiled.numpy(), np.asarray(jax.jit(in_jax)(logits, targets))):
        assert np.isnan(found[5])
        assert np.isfinite(np.delete(found, 5)).all()
    torch._dynamo.reset()


@pytest.mark.parametrize("wrong", [2**32 + 3, 2**32 - 100, -(2**32)])
def test_a_target_of_64_bits_is_not_cut_to_32(wrong):
    """Its low half is a class, or the index of rows that do not count."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from kernels.cross_entropy.jax_op import cross_entropy as in_jax
    from kernels.cross_entropy.torch_op import cross_entropy as in_torch

    logits, targets, _ = padded()
    targets = targets.astype(np.int64)
    targets[5] = wrong
    tensors = torch.from_numpy(logits), torch.from_numpy(targets)
    for function, arguments in ((in_torch, tensors), (in_jax, (logits, targets))):
        with pytest.raises(IndexError, match=rf"targets\[5\] is {wrong}"):
            function(*arguments)
    compiled = torch.compile(in_torch, backend="aot_eager", fullgraph=True, dynamic=True)
    torch._dynamo.reset()
    for found in (compiled(*tensors).numpy(), torch.vmap(in_torch)(*tensors).numpy()):
        assert np.isnan(found).nonzero()[0].tolist() == [5]
    torch._dynamo.reset()
    unsigned = np.array([2**32 - 100, 1, 2], np.uint32)
    assert np.isnan(jax.jit(in_jax)(logits[:3], unsigned)).tolist() == [True, False, False]


def test_the_index_of_rows_that_do_not_count():
    """Any integer in PyTorch, none that no target of 32 bits could be in JAX, and no other type."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    from kernels.cross_entropy.jax_op import cross_entropy as in_jax
    from kernels.cross_entropy.torch_op import cross_entropy as in_torch

    targets = np.array([0, 2**40, 5, 1])  # of which the low half of the second is 0
    found = in_torch(torch.from_numpy(X), torch.from_numpy(targets), ignore_index=2**40)
    expected, _ = reference.cross_entropy(X, np.where(targets > 5, 0, targets))
    np.testing.assert_allclose(found, np.where(targets > 5, 0, expected), rtol=1e-5)
    with pytest.raises(ValueError, match="ignore_index is 1099511627776"):
        in_jax(X, T, 2**40)
    for index in (None, 0.5, "3"):
        with pytest.raises(TypeError, match="ignore_index is"):
            in_jax(X, T, index)
        with pytest.raises(TypeError, match="ignore_index is"):
            in_torch(torch.from_numpy(X), torch.from_numpy(T), index)


def test_targets_from_outside_of_a_transform():
    """As a loss of parameters has them: torch.func lets nobody read what it has not wrapped."""
    torch = pytest.importorskip("torch")
    from kernels.cross_entropy.torch_op import cross_entropy

    logits, targets, _ = map(torch.from_numpy, padded())
    found = []
    for function in (cross_entropy, torch.nn.functional.cross_entropy):
        loss = lambda x, f=function: f(x, targets.long(), reduction="mean")  # noqa: E731
        found.append(torch.func.grad(loss)(logits))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
