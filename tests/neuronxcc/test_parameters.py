"""What kernels take and give: annotated shapes, mutable and nested arguments, sub-kernels."""

from __future__ import annotations

from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from neuronxcc.nki.typing import mutable_tensor, tensor

from nkisim.errors import ParameterError, ShapeError

X = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
WIDTH = 6


@nki.jit
def annotated(x: tensor[8, 6]):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile: tensor[8, WIDTH] = nl.load(x)
    nl.store(out, tile)
    return out


def test_annotated_parameters():
    np.testing.assert_array_equal(annotated(X), X)
    with pytest.raises(ShapeError, match=r"argument 'x' is float32\[8, 3\]") as caught:
        annotated(X[:, :3].copy())
    assert caught.value.code == "err_annotation_shape_mismatch"


def test_annotations_may_name_the_dtype():
    @nki.jit
    def kernel(x: nt.tensor[[8, 6], nl.float32]):
        return x

    kernel(X)
    with pytest.raises(ShapeError, match="of float32"):
        kernel(X.astype(np.float16))


def test_annotated_variables_of_a_function_inside_a_kernel():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

        def moved(columns):
            tile: tensor[8, 6] = nl.load(x[:, 0:columns])
            nl.store(out[:, 0:columns], tile)

        moved(6)
        moved(x.shape[1])
        return out

    np.testing.assert_array_equal(kernel(X), X)
    with pytest.raises(ShapeError, match="variable 'tile'"):
        kernel(np.zeros((8, 7), np.float32))


def test_annotated_variables():
    unused = "a closure variable that only an annotation names"

    @nki.jit
    def kernel(x, columns, scale=2.0):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        whole: nt.tensor[8, unused] = nl.load(x)
        part: nt.tensor[8, columns] = nl.multiply(whole[:, 0:3], scale)
        nl.store(out, whole)
        nl.store(out[:, 0:3], part)
        return out

    want = X.copy()
    want[:, :3] *= 2
    np.testing.assert_array_equal(kernel(X, 3), want)
    line = kernel.func.__code__.co_firstlineno + 4
    with pytest.raises(ShapeError, match=r"variable 'part' is float32\[8, 3\]") as caught:
        kernel(X, 4)
    assert caught.value.location.lineno == line


def test_mutable_parameters_are_returned():
    @nki.jit
    def updates(x: mutable_tensor):
        nl.store(x, nl.multiply(nl.load(x), 2.0))
        return x

    @nki.jit
    def forgets(x: nt.mutable_tensor):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, tile)
        nl.store(x, tile)
        return out

    given = X.copy()
    np.testing.assert_array_equal(updates(given), 2 * X)
    np.testing.assert_array_equal(given, 2 * X)  # in place
    with pytest.raises(ParameterError) as caught:
        forgets(X.copy())
    assert caught.value.code == "err_mutable_parameter_not_returned"


def test_parameters_are_immutable_in_a_kernel_that_returns():
    @nki.jit
    def kernel(x):
        nl.store(x, nl.load(x))
        return x

    with pytest.raises(ParameterError) as caught:
        kernel(X.copy())
    assert caught.value.code == "err_cannot_update_immutable_parameter"


def test_output_arguments_of_the_old_style_are_filled():
    @nki.trace
    def kernel(x, total, doubled):
        tile = nl.load(x)
        nl.store(total, nl.add(tile, tile))
        nl.store(doubled, nl.multiply(tile, 2.0))

    total, doubled = np.zeros_like(X), np.zeros_like(X)
    assert nki.simulate_kernel(kernel, X, total, doubled) is None
    np.testing.assert_array_equal(total, 2 * X)
    np.testing.assert_array_equal(doubled, 2 * X)


@dataclass(frozen=True)
class Weights:
    scale: np.ndarray
    shift: np.ndarray | None = None
    power: int = 1


@nki.jit
def nested(x, weights, extras, options):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    count = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.multiply(nl.load(x), nl.load(weights.scale))
    if weights.shift is not None:
        tile = nl.add(tile, nl.load(weights.shift))
    for extra in extras:
        tile = nl.add(tile, nl.load(extra))
    for _ in nl.static_range(weights.power - 1):
        tile = nl.multiply(tile, tile)
    if options["negate"]:
        tile = nl.negative(tile)
    nl.store(out, tile)
    nl.store(count, float(len(extras)))
    return {"result": out, "more": [count]}


def test_lists_dicts_dataclasses_and_none():
    got = nested(X, Weights(X, None), [], {"negate": True})
    np.testing.assert_array_equal(got["result"], -X * X)
    assert got["more"][0].max() == 0
    got = nested(X, Weights(X, X + 1, power=2), [X, X], {"negate": False})
    np.testing.assert_allclose(got["result"], (X * X + X + 1 + 2 * X) ** 2, rtol=1e-5)
    assert (got["more"][0] == 2).all()


@nki.jit(mode="trace")
def doubled_tile(tile):
    result: nt.tensor[8, 6] = nl.multiply(tile, 2.0)
    return result


def test_kernels_call_kernels_and_functions():
    def shifted(tile):
        return nl.add(tile, 1.0)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, shifted(doubled_tile(nl.load(x))))
        return out

    np.testing.assert_array_equal(kernel(X), X * 2 + 1)


def test_a_nested_kernel_has_no_grid():
    @nki.jit
    def kernel(x):
        doubled_tile[2](nl.load(x))

    with pytest.raises(ParameterError) as caught:
        kernel(X)
    assert caught.value.code == "err_nested_kernel_with_spmd_grid"


def test_platforms():
    @nki.jit(platform_target="trn2")
    def kernel(x):
        return x

    assert kernel.machine.name == "NeuronCore-v3"
    with pytest.raises(ParameterError, match="trn9"):
        nki.jit(kernel.func, platform_target="trn9")
