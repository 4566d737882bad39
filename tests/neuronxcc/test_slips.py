"""Slips of who comes from NumPy or PyTorch, and what is said of them."""

from __future__ import annotations

import copy
import re

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.errors import (
    ControlFlowError,
    DTypeError,
    IndexingError,
    KernelError,
    MemorySpaceError,
    ParameterError,
    ReadOnlyError,
    ShapeError,
    TileSizeError,
    UnknownNameError,
)
from nkisim.frontends.neuronxcc import names
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor

X = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)


def run(body):
    """What `body(tile, i, j)` of the tile of X, and the indices of its axes, gives."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.arange(x.shape[0])[:, None], nl.arange(x.shape[1])[None, :]
        nl.store(out, body(nl.load(x), i, j))
        return out

    return nki.simulate_kernel(nki.jit(kernel), X)


def refused(body, error, line="test_slips.py") -> str:
    """What is said of `body`: at its line, in the file `line`, with a rule and a fix."""
    with pytest.raises(error) as caught:
        run(body)
    assert isinstance(caught.value, KernelError)
    message = str(caught.value)
    _, at, *text, rule, fix = message.splitlines()  # one line each: no values of a tile
    assert at.startswith(f"  at:   {line}:")
    assert len(text) == (line != "<string>")
    assert rule.startswith("  rule: ")
    assert fix.startswith("  fix:  ")
    return message


# -- masks

MASKED = {
    "exp": lambda t, m: nl.exp(t, mask=m),
    "sum": lambda t, m: nl.sum(t, axis=1, mask=m),
    "mean": lambda t, m: nl.mean(t, axis=1, mask=m),
    "softmax": lambda t, m: nl.softmax(t, axis=1, mask=m),
    "where": lambda t, m: nl.where(t, t, 0.0, mask=m),
    "matmul": lambda t, m: nl.matmul(t, t, transpose_x=True, mask=m),
    "nc_matmul": lambda t, m: nisa.nc_matmul(t, t, mask=m),
    "nc_transpose": lambda t, m: nisa.nc_transpose(t, mask=m),
    "tensor_scalar": lambda t, m: nisa.tensor_scalar(t, nl.add, 1.0, mask=m),
    "activation": lambda t, m: nisa.activation(nl.exp, t, mask=m),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_tile_is_no_mask(name):
    message = refused(lambda t, i, j: MASKED[name](t, t > 0), ShapeError)
    assert message.startswith("mask=tile #3 (bool[32, 48] in SBUF), which is not a mask")
    assert "comparisons of nl.arange / nl.mgrid expressions" in message
    assert "nl.where(condition, x, y)" in message


def test_what_is_said_to_use_instead_of_a_tile_as_mask_does_that():
    found = run(lambda t, i, j: nl.where(t > 0, nl.exp(t), t))
    np.testing.assert_allclose(found, np.where(X > 0, np.exp(X), X), rtol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        lambda t, i, j: nl.exp(t, mask=(t > 0) & (j < 3)),
        lambda t, i, j: nl.exp(t, mask=(j < 3) & (t > 0)),
        lambda t, i, j: t * (i < j),
        lambda t, i, j: (i < j) * t,
        lambda t, i, j: t.__iadd__(i < j),
    ],
)
def test_a_mask_is_no_data(body):
    message = refused(body, IndexingError)
    assert message.startswith("a mask and ")
    assert "nl.where(mask, x, y)" in message


def test_functions_take_no_mask_for_data():
    message = refused(lambda t, i, j: nl.multiply(t, j < 3), DTypeError)
    assert message.startswith("a mask is used as data")


def test_what_is_said_to_use_instead_of_a_mask_as_data_does_that():
    found = run(lambda t, i, j: nl.where(i >= j, t, 0.0))
    np.testing.assert_array_equal(found, np.tril(X))


def test_a_tile_of_truth_values_is_no_index():
    message = refused(lambda t, i, j: t[t > 0], DTypeError)
    assert "nl.where(condition, x, y)" in message


# -- tiles where a number, a shape or a type is wanted

MISPLACED = {
    "axis": (lambda t: nl.sum(t, axis=t), ParameterError),
    "shape": (lambda t: nl.zeros((32, t), nl.float32), ShapeError),
    "trips": (lambda t: list(nl.affine_range(t)), ParameterError),
    "memory": (lambda t: nl.zeros((32, 2), nl.float32, buffer=t), KernelError),
    "type": (lambda t: nl.zeros((32, 2), t), DTypeError),
    "operator": (lambda t: nisa.tensor_tensor(t, t, t), ParameterError),
    "fill": (lambda t: nl.full((32, 2), t[0:1, 0:1], nl.float32), DTypeError),
    "memset": (lambda t: nisa.memset((32, 2), t[0:1, 0:1], nl.float32), ParameterError),
    "extent": (lambda t: t.reshape((32, t)), ShapeError),
    "range": (lambda t: nl.arange(t), IndexingError),
    "slice": (lambda t: t[:, t:t], IndexingError),
    "elements": (lambda t: nl.rms_norm(t, t, 1, n=t), ParameterError),
    "predicate": (lambda t: nisa.affine_select(t > 0, t, 0.0), ParameterError),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_tile_in_a_message_is_described_and_not_computed(name):
    body, error = MISPLACED[name]
    refused(lambda t, i, j: body(t), error)


def test_printing_a_tile_still_shows_what_it_holds():
    seen = []

    def body(t, i, j):
        seen.extend([repr(t), f"{t}", str([t])])
        return t

    run(body)
    assert all(f"{X[0, 0]:.4f}"[:6] in text for text in seen)


def test_no_type_is_told_as_such():
    assert "dtype None" in refused(lambda t, i, j: nl.zeros((32, 2), None), DTypeError)


# -- names that there are not

UNKNOWN = {
    "nl.sofmax": "write nl.softmax, if that is meant",
    "nl.Float32": "write nl.float32, if that is meant",
    "nl.nc_matmul": "write nisa.nc_matmul",
    "nisa.load": "write nl.load",
    "nisa.activate": "write nisa.activation, if that is meant",
    "nl.concatenate": "an nl.ndarray of the whole",
    "nl.reduce_max": "write nl.max, if that is meant",
    "nl.gelu_tanh": "write nl.gelu_apprx_tanh, if that is meant",
    "nl.int64": "write nl.int32",
    "nl.xyzzy": "look for the operation in dir(nl) and dir(nisa)",
    "nki.simulate": "write nki.simulate_kernel, if that is meant",
    "ncc.enable_stack_alocator": "write ncc.enable_stack_allocator, if that is meant",
}
PUBLIC = {"nl": nl, "nisa": nisa, "nki": nki, "ncc": ncc}


@pytest.mark.parametrize("path", UNKNOWN)
def test_a_name_that_there_is_not_is_told_with_the_nearest_one(path):
    message = refused(lambda t, i, j: eval(path, PUBLIC), UnknownNameError, line="<string>")
    assert message.startswith(f"there is no {path}\n")
    assert UNKNOWN[path] in message


@pytest.mark.parametrize("module", PUBLIC.values(), ids=PUBLIC)
def test_whether_there_is_a_name_can_be_asked(module):
    assert not hasattr(module, "sofmax")
    assert getattr(module, "sofmax", 3) == 3
    assert not hasattr(module, "__sofmax__")
    with pytest.raises(AttributeError):
        module.sofmax  # noqa: B018
    with pytest.raises(ImportError):
        exec(f"from {module.__name__} import sofmax")


def test_what_is_written_elsewhere_is_there():
    """No name that is translated exists, and what stands for it does."""
    for name, instead in names._ELSEWHERE.items():
        assert not hasattr(nl, name), name
        for path in re.findall(r"\b(?:nl|nisa)\.\w+", instead):
            eval(path, PUBLIC)
    for name, instead in names._OF_A_TILE.items():
        assert name not in dir(Tensor), name
        for path in re.findall(r"\b(?:nl|nisa)\.\w+", instead):
            eval(path, PUBLIC)
    assert set(names._TILE) <= set(dir(Tensor))


OF_A_TILE = {
    "exp()": "write nl.exp(t)",
    "sum(axis=1)": "write nl.sum(t, axis=1)",
    "maximum(3)": "write nl.maximum(t, y)",
    "T": "write nl.transpose(t)",
    "to(nl.bfloat16)": "write t.astype(dtype)",
    "flatten()": "write t.reshape((t.shape[0], -1))",
    "numpy()": "print(t) shows them where the kernel is called with NumPy arrays",
    "shpae": "write t.shape, if that is meant",
    "xyzzy": "write a function of nki.language, or of nki.isa",
}


@pytest.mark.parametrize("asked", OF_A_TILE)
def test_what_a_tile_does_not_have_is_told_with_what_does_it(asked, tmp_path):
    body = _written(tmp_path, f"t.{asked}")
    message = refused(body, UnknownNameError, line="slip.py")
    assert message.startswith(f"'x_tile' (float32[32, 48] in SBUF) has no .{asked.split('(')[0]}\n")
    assert message.endswith(OF_A_TILE[asked]) or OF_A_TILE[asked] in message


L = nl  # a name of the kernel's own


@pytest.mark.parametrize(("body", "problem", "fix"), [
    (lambda t, i, j: range(t), "integer", "an argument of the kernel"),
    (lambda t, i, j: [1, 2][t], "list indices", "an argument of the kernel"),
    (lambda t, i, j: nl.exp(), r"nl\.exp missing .*'x'", r"nl\.exp\(x=x\)"),
    (lambda t, i, j: L.exp(t, t), r"nl\.exp takes 1", r"nl\.exp\(x=x\)"),
    (lambda t, i, j: nl.ndarray((4, 4)), r"nl\.ndarray missing", r"dtype=dtype"),
    (lambda t, i, j: nisa.tensor_copy(t, src=t), "multiple values for argument 'src'", "src=src"),
    (lambda t, i, j: t.astype(), r"tile\.astype missing", "dtype=dtype"),
    (lambda t, i, j: t.reshape(), r"reshape", ""),
])  # fmt: skip
def test_a_call_that_does_not_fit_its_function(body, problem, fix):
    with pytest.raises(KernelError, match=problem) as caught:
        run(body)
    assert re.search(fix, caught.value.fix)
    assert caught.value.location.filename == __file__


def _written(folder, expression):
    """A function of a tile `t` and its indices that has a file of its own."""
    path = folder / "slip.py"
    path.write_text(f"def body(t, i, j):\n    return {expression}\n")
    space = {"nl": nl, "nisa": nisa}
    exec(compile(path.read_text(), path, "exec"), space)
    return space["body"]


def test_what_is_said_to_write_instead_of_a_method_does_that(tmp_path):
    found = run(_written(tmp_path, "nl.exp(t)"))
    np.testing.assert_allclose(found, np.exp(X), rtol=1e-5)


def test_the_name_of_the_tile_is_taken_from_the_line(tmp_path):
    path = tmp_path / "slip.py"
    path.write_text("def body(scores, i, j):\n    return scores.exp()\n")
    space = {}
    exec(compile(path.read_text(), path, "exec"), space)
    message = refused(space["body"], UnknownNameError, line="slip.py")
    assert "write nl.exp(scores)" in message
    assert "        return scores.exp()" in message


@pytest.mark.parametrize(
    ("path", "near"),
    [("nisa.engine.vectr", "write engine.vector"), ("nl.tile_size.pmx", "write tile_size.pmax")],
)
def test_members_of_names_are_told_as_well(path, near, tmp_path):
    message = refused(_written(tmp_path, path), UnknownNameError, line="slip.py")
    assert near in message


def test_whether_a_tile_has_something_can_be_asked():
    seen = []

    def body(t, i, j):
        seen.extend([hasattr(t, "exp"), getattr(t, "exp", None), hasattr(t, "shape")])
        try:
            t.exp()
        except AttributeError as error:
            seen.append(type(error))
        return t

    np.testing.assert_array_equal(run(body), X)
    assert seen == [False, None, True, AttributeError]


def test_what_is_asked_of_other_objects_is_pythons_own_error():
    with pytest.raises(AttributeError, match="'list' object has no attribute 'exp'") as caught:
        run(lambda t, i, j: [].exp())
    assert not isinstance(caught.value, KernelError)


OPERATORS = {
    "@": (lambda t: t @ t, "nl.matmul(x, y)"),
    "@ of a list": (lambda t: [1.0] @ t, "nl.matmul(x, y)"),
    "//": (lambda t: t // 2, "nl.floor(nl.divide(x, y))"),
    "// of a number": (lambda t: 2 // t, "nl.floor(nl.divide(x, y))"),
    "divmod": (lambda t: divmod(t, 2), "nl.floor(nl.divide(x, y))"),
    "round": (lambda t: round(t), "nl.floor(x + 0.5)"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_tiles_do_not_have_are_told_with_what_does_it(name):
    body, instead = OPERATORS[name]
    assert f"write {instead}" in refused(lambda t, i, j: body(t), ParameterError)


def test_what_is_said_to_write_instead_of_the_floor_of_a_quotient_does_that():
    found = run(lambda t, i, j: nl.floor(nl.divide(t, 0.5)))
    np.testing.assert_array_equal(found, X // 0.5)


def test_values_of_a_tile_are_not_formatted():
    message = refused(lambda t, i, j: f"{t:.3f}", ControlFlowError)
    assert "formatted with '.3f'" in message


@pytest.mark.parametrize(
    "body", [np.asarray, np.array, lambda t: np.concatenate([t, t]), lambda t: np.stack([t])]
)
def test_no_array_is_made_of_a_tile(body):
    """NumPy used to take it element by element, as 1,536 tiles."""
    assert "t[:, 0:n] = a" in refused(lambda t, i, j: body(t), ParameterError)


def test_a_tile_without_par_dim_that_is_too_large_is_told_of_it():
    def body(t, i, j):
        return nl.ndarray((4, 128, 512), nl.float32)

    assert refused(body, TileSizeError).endswith("as in (4, nl.par_dim(128), 512)")
    for shape in ((4, nl.par_dim(128), 60_000), (128, 60_000), (4, 512, 512)):
        message = refused(lambda t, i, j, shape=shape: nl.ndarray(shape, nl.float32), TileSizeError)
        assert "par_dim" not in message


# -- floats, arrays and numbers where something else is wanted

WANTED = {
    "trips": (lambda t: list(nl.affine_range(512 / 128)), ParameterError, "divide with //"),
    "range": (lambda t: nl.arange(512 / 128), IndexingError, "divide with //"),
    "slice": (lambda t: t[:, 4 / 2 :], IndexingError, "divide with //"),
    "shape": (lambda t: nl.zeros((32, 4 / 2), nl.float32), ShapeError, "divide with //"),
    "extents": (lambda t: t.reshape((32, 95 / 2)), ShapeError, "divide with //"),
    "axis": (lambda t: nl.max(t, 0.0), ParameterError, "nl.maximum(x, y)"),
    "tensor": (lambda t: nl.load(X), ParameterError, "nl.shared_constant(array)"),
    "where": (lambda t: nl.where(t > 0, 0.0, t), ParameterError, "nl.where(t <= 0, y, x)"),
    "where of indices": (
        lambda t: nl.where(nl.arange(48)[None, :] > 3, 0.0, t),
        ParameterError,
        "turn the condition around",
    ),
    "output": (lambda t: nl.store(t, t), MemorySpaceError, "buffer=nl.shared_hbm"),
}


@pytest.mark.parametrize("name", WANTED)
def test_what_is_wanted_instead_is_said(name):
    body, error, wanted = WANTED[name]
    assert wanted in refused(lambda t, i, j: body(t), error)


def test_what_is_said_to_write_instead_of_a_number_where_the_condition_holds_does_that():
    found = run(lambda t, i, j: nl.where(t <= 0, t, 0.0))
    np.testing.assert_array_equal(found, np.where(X > 0, 0.0, X))


# -- attributes of a tile


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("shape", (64, 24), "t = t.reshape(shape)"),
        ("dtype", nl.bfloat16, "t = t.astype(dtype)"),
        ("buffer", nl.psum, "nl.ndarray(..., buffer=...)"),
        ("data", 0.0, "t[...] = value"),
        ("ndim", 3, "a variable of Python"),
        ("note", "x", "a variable of Python"),
    ],
)
def test_attributes_of_a_tile_are_not_assigned_to(name, value, instead):
    for make in (lambda t: t, lambda t: t[0:8], lambda t: nl.exp(t), lambda t: t[:, 0:4][0:2]):
        message = refused(lambda t, i, j, make=make: setattr(make(t), name, value), ReadOnlyError)
        assert message.split(" of ")[0] == f".{name}"
        assert instead in message
    refused(lambda t, i, j: delattr(t, name), ReadOnlyError)


def test_arguments_and_masked_tiles_are_not_assigned_to_either():
    def kernel(x):
        x.shape = (48, 32)

    with pytest.raises(ReadOnlyError, match=r"\.shape of 'x' \(float32\[32, 48\] in HBM\)"):
        nki.simulate_kernel(nki.jit(kernel), X)
    refused(lambda t, i, j: setattr(t[i, j][j < 3], "shape", (2, 3)), ReadOnlyError)


def test_a_tile_is_copied_and_stored_as_it_is():
    def body(t, i, j):
        for tile in (t, t[3:9, ::2], t[i, j][j < 5]):
            twin = copy.copy(tile)
            assert type(twin) is type(tile)
            assert twin.same_elements(tile)
        return t

    np.testing.assert_array_equal(run(body), X)
