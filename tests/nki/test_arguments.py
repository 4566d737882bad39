"""Arguments of another kind than a function takes: rule, fix and the kernel's line are told."""

import inspect
import re
import sys
import warnings

import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki.language as older_name
import numpy as np
import pytest

from nkisim.errors import KernelError

X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)

WRONG = {
    "None": lambda t: None,
    "a shape": lambda t: (128, 64),
    "an array": lambda t: X,
    "a handle": lambda t: nisa.memset(t, 0.0),
    "a string": lambda t: "no such",
    "a tile": lambda t: t,
}
FUNCTIONS = {
    f"{short}.{name}": function
    for short, module in (("nisa", nisa), ("nl", nl), ("ncc", ncc))
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if not name.startswith("_")
}


def needed(parameter, tile):
    """An argument that is right for most functions."""
    if parameter.name in ("op", "op0", "op1"):
        return nl.add
    return {"shape": (128, 64), "dtype": nl.float32}.get(parameter.name, tile)


@pytest.mark.parametrize("kind", WRONG)
def test_an_argument_of_another_kind_is_told_at_the_kernels_line(kind, monkeypatch):
    """Each parameter of each function gets one. Calls that happen to be right may run."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    bare = []
    for name, function in FUNCTIONS.items():
        parameters = inspect.signature(function).parameters.values()
        for wrong in parameters:
            if (name, wrong.name) == ("nl.shared_constant", "constant"):
                continue  # a string is a file, whose absence Python tells

            def kernel(x, function=function, parameters=parameters, wrong=wrong):
                tile = nl.load(x)
                given = {p.name: needed(p, tile) for p in parameters if p.default is p.empty}
                function(**given | {wrong.name: WRONG[kind](nl.load(x))})

            try:
                with warnings.catch_warnings(action="ignore"):
                    nki.simulate(kernel)(X)
            except KernelError as error:
                if not (error.rule and error.fix and error.location.filename == __file__):
                    bare.append((name, wrong.name, str(error)))
            except Exception as error:
                bare.append((name, wrong.name, repr(error)))
    assert not bare


def run(body, *more):
    """What `body(tile, out)` leaves in `out`."""

    def kernel(x, *more):
        out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        result = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        body(tile, result, *more)
        nl.store(out, value=result)
        return out

    return nki.simulate(kernel)(X, *more)


# fmt: off
MENDED = {
    "the older memset": (
        lambda t, out: nisa.tensor_copy(out, nisa.memset((128, 64), 0.0, nl.float32)),
        r"nl.ndarray\(\(128, 64\), dtype=nl.float32, buffer=nl.sbuf\)",
        lambda t, out: nisa.memset(out, 0.0), np.zeros_like(X)),
    "a handle for a tile": (
        lambda t, out: nisa.tensor_copy(out, nisa.tensor_tensor(t, t, t, nl.add)), "its dst",
        lambda t, out: (nisa.tensor_tensor(t, t, t, nl.add), nisa.tensor_copy(out, t)), 2 * X),
    "an attribute of a handle": (lambda t, out: nisa.tensor_copy(out, t).shape, "declare dst",
        lambda t, out: nisa.tensor_copy(out, t), X),
    "an array for a tile": (lambda t, out: nisa.tensor_tensor(out, t, X, nl.add),
        r"nl.shared_constant\(array\)",
        lambda t, out: nisa.tensor_tensor(out, t, nl.load(nl.shared_constant(X)), nl.add), 2 * X),
    "a number for a tile": (lambda t, out: nisa.tensor_tensor(out, t, 1.0, nl.add),
        "nisa.tensor_scalar", lambda t, out: nisa.tensor_scalar(out, t, nl.add, 1.0), X + 1),
    "a tile for a bound": (lambda t, out: nl.fori_loop(0, t, lambda i: None),
        r"nisa.scalar_load\(tile\[0:1, 0:1\]\)",
        lambda t, out: (nisa.memset(out, 0.0), loop_over(nl.zeros((1, 1), nl.int32))),
        np.zeros_like(X)),
    "a list for a tuple": (lambda t, out: product(out, t, [0, 0]), "a tuple of integers",
        lambda t, out: product(out, t, (0, 0)), np.pad(X[:, :32].T @ X, ((0, 96), (0, 0)))),
    "partitions reduced": (lambda t, out: nisa.tensor_reduce(out[:, 0:1], nl.add, t, axis=0),
        "tensor_partition_reduce",
        lambda t, out: (nisa.memset(out, 0.0), nisa.tensor_partition_reduce(out[0:1], nl.add, t)),
        np.pad(X.sum(0, keepdims=True), ((0, 127), (0, 0)))),
    "an axis in the middle": (
        lambda t, out: nisa.tensor_reduce(out[:, 0:8], nl.add, t.reshape((128, 8, 8)), axis=1),
        r"data.permute\(\(0, 2, 1\)\) over axis=\(2,\)",
        lambda t, out: (nisa.memset(out, 0.0),
            nisa.tensor_reduce(out[:, 0:8], nl.add, t.reshape((128, 8, 8)).permute((0, 2, 1)),
                axis=(2,))), np.pad(X.reshape(128, 8, 8).sum(1), ((0, 0), (0, 56)))),
}
# fmt: on


def loop_over(tile):
    register = nisa.register_alloc()
    nisa.register_load(register, tile[0:1, 0:1])
    nl.fori_loop(0, register, lambda i: None)


def product(out, tile, position):
    total = nl.ndarray((32, 64), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total, tile[:, 0:32], tile, tile_position=position, tile_size=(128, 32))
    nisa.memset(out, 0.0)
    nisa.tensor_copy(out[0:32], total)


@pytest.mark.parametrize("what", MENDED)
@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
def test_the_fix_is_right(what):
    broken, fix, mended, expected = MENDED[what]
    with pytest.raises(KernelError) as caught:
        run(broken)
    assert caught.value.location.filename == __file__
    np.testing.assert_allclose(run(mended), expected, rtol=1e-5)
    assert caught.match(fix)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda t, out: nisa.memset(out, "1"), "value is '1'"),
        (lambda t, out: nisa.tensor_scalar(out, t, nl.add, "1"), "operand0 is '1'"),
        (lambda t, out: nisa.activation(out, nl.copy, t, scale=b"2"), "scale is b'2'"),
        (lambda t, out: nisa.memset(out, 10**400), "1329 bits"),
        (lambda t, out: nisa.activation(out, nl.copy, t, scale=10**400), "1329 bits"),
        (lambda t, out: nisa.tensor_scalar(out, t, nl.add, 1.0, reverse0="no"), "reverse0='no'"),
        (lambda t, out: nisa.iota(out, [[2**33, 64]]), "8589934592"),
        (lambda t, out: nisa.iota(out, [[1, 64]], offset=-(2**40)), "-1099511627776"),
        (lambda t, out: nl.fori_loop(0, "8", lambda i: None), "upper is '8'"),
        (lambda t, out: list(nl.dynamic_range("8")), "start is '8'"),
        (lambda t, out: list(nl.affine_range(0, 8, 0)), "step=0"),
        (lambda t, out: nisa.tensor_copy(out, t.reshape((128, 64 / 2, 2))), "32.0"),
        (lambda t, out: older_name.affine_range(8, stride=1), "no argument stride"),
        (lambda t, out: nisa.tensor_copy(out, t, dst=out), "multiple values"),
        (lambda t, out: t.reshape(), "tensor.reshape missing"),
        (lambda t, out: t[0:64].ap(shape=(1, 1)), "tensor.ap has no argument shape"),
        (lambda t, out: nl.ndarray((4, 4), nl.float32, address_space=1), "nl.ndarray has no"),
    ],
)
def test_what_python_would_take_or_tell_in_its_own_words(body, told):
    with pytest.raises(KernelError, match=f"(?s){re.escape(told)}.*rule:.*fix:") as caught:
        run(body)
    assert caught.value.location.filename == __file__


def test_a_function_of_the_kernels_own_keeps_pythons_error():
    def softmax(x, axis):
        return x

    with pytest.raises(TypeError, match=r"softmax\(\) got an unexpected") as caught:
        run(lambda t, out: softmax(t, axes=1))
    assert not isinstance(caught.value, KernelError)


def test_errors_of_the_kernels_own_code_stay_what_they_are():
    def kernel(x):
        nl.fori_loop(0, 2, lambda i: {}["no such key"])

    with pytest.raises(KeyError, match="no such key"):
        nki.simulate(kernel)(X)


def test_a_call_that_is_right_is_checked_once_and_nothing_inside_of_it():
    """The settings of a warm instruction are looked at where the kernel calls it, and nowhere
    within: the methods of tensors that instructions use are not wrapped."""
    entered = []

    def note(frame, event, _):
        if event == "call":
            entered.append(frame.f_code.co_name)

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        for turn in range(3):
            if turn == 2:
                sys.setprofile(note)
            nisa.tensor_tensor(tile, tile, tile, nl.add)
            nisa.dma_copy(out, tile)
            sys.setprofile(None)
        return out

    nki.simulate(kernel)(np.ones((128, 4), np.float32))
    assert entered.count("tensor_tensor") == entered.count("dma_copy") == 1
    assert entered.count("with_settings") == 2
