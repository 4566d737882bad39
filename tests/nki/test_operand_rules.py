"""Operands of instructions: types and kinds that AWS's pages, or its compiler, do not take, and the
broadcasting of functions on tiles."""

import warnings

import ml_dtypes
import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import KernelError
from nkisim.errors import NkiWarning

X = np.random.default_rng(2).uniform(1, 3, (32, 6, 8)).astype(np.float32)
SHAPES = {
    "a column": ((32, 8), (32, 1)),
    "a column first": ((32, 1), (32, 8)),
    "a column of three axes": ((32, 6, 8), (32, 1)),
    "a row of each": ((32, 6, 8), (32, 1, 8)),
    "an inner column": ((32, 6, 8), (32, 6, 1)),
    "crossed": ((32, 6, 1), (32, 1, 8)),
}
FUNCTIONS = {
    **{n: getattr(np, n) for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
    **{n: getattr(np, n) for n in ("power", "mod", "fmod", "less", "greater_equal", "not_equal")},
}


def operands(shapes, dtype):
    return [np.resize(X[::-1] if n else X, s).astype(dtype) for n, s in enumerate(shapes)]


def wanted(fn, a, b):
    """In three axes, if one has them."""
    a, b = (v.astype(np.float32) for v in (a, b))
    if a.ndim != b.ndim:
        b = b[..., None]
    return fn(a, b).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shapes", SHAPES)
def test_every_function_of_two_tiles_broadcasts_along_free_axes(shapes, dtype):
    a, b = operands(SHAPES[shapes], dtype)

    def kernel(x, y):
        outs = []
        for name in FUNCTIONS:
            tile = getattr(nl, name)(nl.load(x), nl.load(y), dtype=nl.float32)
            out = nl.ndarray(tile.shape, nl.float32, buffer=nl.shared_hbm)
            nl.store(out, tile)
            outs.append(out)
        return tuple(outs)

    for found, (name, fn) in zip(nki.simulate(kernel)(a, b), FUNCTIONS.items(), strict=True):
        np.testing.assert_allclose(found, wanted(fn, a, b), rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("shapes", [s for s in SHAPES if s != "a column of three axes"])
def test_so_does_the_older_dialect(shapes):
    a, b = operands(SHAPES[shapes], np.float32)

    @old.jit
    def kernel(x, y):
        outs = []
        for name in FUNCTIONS:
            tile = getattr(old_nl, name)(old_nl.load(x), old_nl.load(y), dtype=old_nl.float32)
            out = old_nl.ndarray(tile.shape, old_nl.float32, buffer=old_nl.shared_hbm)
            old_nl.store(out, tile)
            outs.append(out)
        return tuple(outs)

    for found, (name, fn) in zip(kernel(a, b), FUNCTIONS.items(), strict=True):
        np.testing.assert_allclose(found, wanted(fn, a, b), rtol=1e-4, atol=1e-4, err_msg=name)


def test_broadcasting_is_told_of():
    """AWS's known issues of NKI 0.3 to 0.6 have it that it does not run on a device."""

    def kernel(x):
        tile = nl.load(x)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(tile, nl.max(tile, axis=1, keepdims=True)))
        return out

    with pytest.warns(UserWarning, match=r"nl\.multiply of .* broadcasts"):
        nki.simulate(kernel)(X[:, 0])


@pytest.mark.parametrize("shape", [(16, 8), (32, 3), (1, 8)])
def test_other_shapes_are_refused(shape):
    def kernel(x, y):
        nl.divide(nl.load(x), nl.load(y))

    with pytest.raises(KernelError, match="extent"):
        nki.simulate(kernel)(X[:, 0], np.ones(shape, np.float32))


def run(body, target, *arrays):
    """What `body` leaves in a tile, and what is told."""

    def kernel(*tensors):
        result = nl.ndarray((32, 8), nl.float32)
        body(result, *map(nl.load, tensors))
        out = nl.ndarray((32, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        return nki.simulate(kernel)(*arrays), "\n".join(str(w.message) for w in caught)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("call", ["activation", "activation_reduce"])
@pytest.mark.parametrize("op", ["copy", "exp", "reciprocal"])
@pytest.mark.parametrize("bias", ["number", "tile"])
def test_which_bias_the_scalar_engine_takes(target, call, op, bias):
    """On NeuronCore-v2: a number with nl.copy, a tile with others, none with nl.reciprocal."""
    x, b = X[:, 0], np.full((32, 1), 2.0, np.float32)

    def body(result, data, column):
        given = 2.0 if bias == "number" else column
        if call == "activation":
            nisa.activation(result, getattr(nl, op), data, bias=given)
        else:
            total = nl.ndarray((32, 1), nl.float32)
            nisa.activation_reduce(result, getattr(nl, op), data, nl.add, total, bias=given)

    if target == "trn1" and (op, bias) not in {("copy", "number"), ("exp", "tile")}:
        with pytest.raises(KernelError, match=f"nl.{op} on NeuronCore-v2"):
            run(body, target, x, b)
        return
    found, _ = run(body, target, x, b)
    fn = {"copy": np.positive, "exp": np.exp, "reciprocal": np.reciprocal}[op]
    np.testing.assert_allclose(found, fn(x + 2), rtol=1e-5)


def test_a_bias_of_copy_is_told_of_in_the_older_dialect(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")

    @old.jit
    def kernel(x, b):
        out = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, old_isa.activation(np.copy, old_nl.load(x), bias=old_nl.load(b)))
        return out

    with pytest.warns(UserWarning, match="copy with a bias tile"):
        found = kernel(X[:, 0], np.ones((32, 1), np.float32))
    np.testing.assert_array_equal(found, X[:, 0] + 1)


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
@pytest.mark.parametrize("of", ["data", "reduce_res", "neither"])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_tensor_scalar_reduce_is_of_floats(dialect, of, dtype):
    data = dtype if of == "data" else "float32"
    result = dtype if of == "reduce_res" else "float32"
    x = (np.arange(256).reshape(32, 8) % 5).astype(data)

    def today(x):
        tile, total = nl.ndarray((32, 8), nl.float32), nl.ndarray((32, 1), result)
        nisa.tensor_scalar_reduce(tile, nl.load(x), nl.equal, 1.0, nl.add, total)
        out = nl.ndarray((32, 1), result, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    def older(x):
        total = old_nl.ndarray((32, 1), result, buffer=old_nl.sbuf)
        old_isa.tensor_scalar_reduce(
            data=old_nl.load(x), op0=np.equal, operand0=1.0, reduce_op=np.add, reduce_res=total
        )
        out = old_nl.ndarray((32, 1), result, buffer=old_nl.shared_hbm)
        old_nl.store(out, total)
        return out

    kernel = nki.simulate(today) if dialect == "nki" else old.jit(older)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = kernel(x)
    np.testing.assert_array_equal(found[:, 0], (x == 1).sum(1))
    told = [w for w in caught if f"{of} is" in str(w.message)]
    assert len(told) == (of != "neither")


def column(dtype="float32"):
    return nl.zeros((32, 1), dtype)


WRONG = {
    "range_select": lambda t, i: nisa.range_select(t, i, nl.greater, nl.less, column(), column()),
    "select_reduce": lambda t, i: nisa.select_reduce(
        t, nl.zeros((32, 8), nl.uint8), t, 0.0, column("int32"), nisa.reduce_cmd.reset_reduce
    ),
    "tensor_scalar_cumulative": lambda t, i: nisa.tensor_scalar_cumulative(
        t, i, nl.add, nl.add, 0.0
    ),
    "exponential": lambda t, i: nisa.exponential(nl.zeros((32, 8), nl.uint32), t),
    "exponential_sum": lambda t, i: nisa.exponential(
        t, t, 0.0, column("int32"), nisa.reduce_cmd.reset_reduce
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_types_that_the_page_of_an_instruction_does_not_list(name):
    def body(result, data):
        nisa.memset(result, 0.0)
        WRONG[name](result, nl.zeros((32, 8), nl.int32))

    with pytest.raises(KernelError, match=r"float type|32-bit integers"):
        run(body, "trn3", X[:, 0])


HALVES = X.reshape(32, 48).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", [nl.float32, nl.float16, nl.bfloat16])
def test_a_transpose_converts_where_it_is_asked_to(dtype):
    @nki.jit
    def turned(x):
        out = nl.ndarray((48, 32), dtype=dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((48, 32), dtype=dtype, buffer=nl.sbuf)
        p = nl.transpose(nl.load(x), dtype=dtype)
        assert p.dtype == t.dtype
        nisa.tensor_copy(t, p)
        nisa.dma_copy(out, t)
        return out

    want = HALVES.T.astype(dtype)
    np.testing.assert_array_equal(turned(HALVES), want)


@pytest.mark.parametrize(("chip", "taken"), [("trn1", True), ("trn2", False), ("trn3", False)])
def test_a_transpose_on_the_tensor_engine_of_trn1_is_a_product(monkeypatch, chip, taken):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", chip)

    @nki.jit
    def turned(x):
        out = nl.ndarray((48, 32), dtype=nl.float32, buffer=nl.shared_hbm)
        p = nl.ndarray((48, 32), dtype=nl.float32, buffer=nl.psum)
        t = nl.ndarray((48, 32), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_transpose(p, nl.load(x))
        nisa.tensor_copy(t, p)
        nisa.dma_copy(out, t)
        return out

    if not taken:
        with pytest.raises(KernelError, match="a transpose does not convert"):
            turned(HALVES)
        return
    with pytest.warns(NkiWarning, match="a transpose does not convert"):
        found = turned(HALVES)
    np.testing.assert_array_equal(found, HALVES.T.astype(np.float32))


@pytest.mark.parametrize(
    ("chip", "dtype", "result"),
    [
        ("trn1", nl.float32, "float32"),
        ("trn1", nl.bfloat16, None),
        ("trn2", nl.bfloat16, None),
        ("trn2", nl.float16, None),
        ("trn3", nl.bfloat16, "bfloat16"),
    ],
)
def test_the_type_of_a_product_is_that_of_its_operands(monkeypatch, chip, dtype, result):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", chip)

    @nki.jit
    def product(x):
        t = nl.load(x)
        p = nl.matmul(t, t, transpose_x=True)
        assert p.dtype == result
        s = nl.ndarray((48, 48), dtype=p.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(s, p)
        out = nl.ndarray((48, 48), dtype=p.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, s)
        return out

    x = np.resize([1, 0, 2, 0, 0], (32, 48)).astype(dtype)
    if result is None:
        with pytest.raises(KernelError, match=r"nl\.matmul of .* on NeuronCore"):
            product(x)
    else:
        wide = x.astype(np.float32)
        np.testing.assert_array_equal(product(x).astype(np.float32), wide.T @ wide)


@pytest.mark.parametrize(("chip", "warned"), [("trn1", True), ("trn2", True), ("trn3", False)])
@pytest.mark.parametrize("given", [True, False])
def test_the_wider_fp8_type_is_of_trn3(monkeypatch, chip, warned, given):
    """As an argument, or as a tile of the kernel's own."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", chip)

    @nki.jit
    def widen(x):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        a = nl.ndarray(x.shape, dtype=x.dtype if given else nl.float8_e4m3fn, buffer=nl.sbuf)
        b = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(a, x)
        nisa.tensor_copy(b, a)
        nisa.dma_copy(out, b)
        return out

    x = np.full((8, 4), 2, ml_dtypes.float8_e4m3fn if given else np.float32)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(widen(x), np.full((8, 4), 2, np.float32))
    assert ["F8E4M3FN" in str(w.message) for w in shown] == [True] * warned


NUMBERS = [-1, -1.0, 1, 1.0, True, np.int32(1), np.float32(1), 0, 0.0, -0.0, False]


@pytest.mark.parametrize(
    "call",
    [
        lambda t, v: nisa.tensor_scalar(t, t, op0=nl.bitwise_and, operand0=v),
        lambda t, v: nisa.tensor_scalar(t, t, op0=nl.add, operand0=v),
        lambda t, v: nisa.tensor_scalar(t, t, nl.bitwise_or, 2, op1=nl.bitwise_and, operand1=v),
        lambda t, v: nisa.memset(t, value=v),
    ],
)
def test_what_is_refused_does_not_depend_on_what_ran_before(call):
    def kernel(x, v):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(t, x)
        call(t, v)
        nisa.dma_copy(out, t)
        return out

    def found(v):
        try:
            return nki.jit(kernel)(np.full((4, 4), 3, np.int32), v)[0, 0]
        except KernelError as error:
            return type(error)

    first = [found(v) for v in NUMBERS]
    assert [found(v) for v in reversed(NUMBERS)] == first[::-1]
