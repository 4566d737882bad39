"""A trace is used again only while what the kernel read outside its arguments is as it was."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections import deque

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings, strategies

import nkisim
from nkisim.runtime.kernel import Kernel

X = nkisim.TensorSpec((128, 1024), np.dtype(np.float32))


@dataclasses.dataclass
class Settings:
    TILE: int = 64


def _profiled(tile):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for j in nl.affine_range(x.shape[1] // tile()):
            at = nl.ds(j * tile(), tile())
            nl.store(out[:, at], nl.exp(nl.load(x[:, at])))
        return out

    return lambda: nkisim.profile(kernel, X).instructions


@pytest.mark.parametrize("size", [10, 10**4, 10**6])
def test_arrays_are_compared_at_their_full_size(size):
    large = np.zeros(size)
    large[-1] = 64
    instructions = _profiled(lambda: int(large[-1]))
    assert instructions() == instructions() == 16 * 3
    large[-1] = 128
    assert instructions() == 8 * 3


class _Settings:
    def __init__(self, tile):
        self.tile = tile


class _Methods(_Settings):
    def get(self):
        return self.tile


def _passed():
    """What is passed to a kernel that asks it for a size: by name, how, and what changes it."""
    settings, listed, long, deep = _Settings(64), [64], [64] * 1000, {"a": {"b": {"c": [64]}}}
    queue, twice, raw, methods = deque([64]), iter([64, 128]), bytearray([64]), _Methods(64)

    def default(tile=64):
        return tile

    return {
        "an object": (settings, lambda x: x.tile, lambda: setattr(settings, "tile", 128)),
        "a list": (listed, lambda x: x[0], lambda: listed.__setitem__(0, 128)),
        "a queue": (queue, lambda x: x[0], lambda: queue.__setitem__(0, 128)),
        "a long list": (long, lambda x: x[9], lambda: long.__setitem__(9, 128)),
        "deep inside": (
            deep,
            lambda x: x["a"]["b"]["c"][0],
            lambda: deep["a"]["b"]["c"].__setitem__(0, 128),
        ),
        "a method": (methods.get, lambda get: get(), lambda: setattr(methods, "tile", 128)),
        "a method of a list": (
            listed.__getitem__,
            lambda get: get(0),
            lambda: listed.__setitem__(0, 128),
        ),
        "a replaced default": (
            default,
            lambda f: f(),
            lambda: setattr(default, "__defaults__", (128,)),
        ),
        "a bytearray": (raw, lambda x: x[0], lambda: raw.__setitem__(0, 128)),
        "an iterator": (twice, lambda it: next(copy.copy(it)), lambda: next(twice)),
    }


@pytest.mark.parametrize("name", _passed())
def test_what_an_argument_holds_may_change(name):
    held, size, change = _passed()[name]

    def fill(x, given):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for start in range(0, 512, tile := size(given)):
            nl.store(out[:, start : start + tile], nl.zeros((128, tile), x.dtype))
        return out

    kernel, x = Kernel(fill), np.zeros((128, 512), np.float32)

    def instructions():
        return len(kernel.specialize((x, held), {}).program.trace.instructions)

    assert instructions() == instructions() == 8 * 2
    change()
    assert instructions() == 4 * 2


def test_another_object_with_the_same_attributes_is_another():
    one, other = _Settings(1.0), _Settings(1.0)

    def fill(x, given):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + (1.0 if given is one else 2.0))
        return out

    kernel, x = Kernel(fill), np.zeros((1, 1), np.float32)
    assert [kernel(x, given)[0, 0] for given in (one, other, one)] == [1, 2, 1]


def test_a_zero_with_a_sign_is_another_constant():
    def fill(x, value):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.full(x.shape, value, x.dtype))
        return out

    kernel, x = Kernel(fill), np.zeros((1, 1), np.float32)
    signs = [bool(np.signbit(kernel(x, value)[0, 0])) for value in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]


def test_a_trace_that_changes_what_it_reads_is_not_replayed():
    on = [False]

    def fill(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        on[0] = not on[0]
        nl.store(out, nl.load(x))
        return out

    kernel, x = Kernel(fill), np.zeros((1, 1), np.float32)
    for _ in range(2):
        on[0] = False
        kernel(x)
        assert on == [True]


class _Drawing(_Settings):
    def draw(self):
        return strategies.lists(strategies.integers() | strategies.text()).example()


def test_what_knows_a_whole_library_is_watched():
    # To follow what hypothesis does, function by function, took seconds a launch.
    drawing = _Drawing(64)
    drawing.strategy = strategies.integers() | strategies.text()
    instructions = _profiled(lambda: drawing.tile)
    assert instructions() == instructions() == 16 * 3
    drawing.tile = 128
    assert instructions() == 8 * 3


def test_much_that_functions_reach_leaves_room_for_arguments():
    sizes = [250] * 8 + [2**n for n in range(8, -1, -1)] * 4  # use up what is copied, to the last
    tables = [[[i] for i in range(size)] for size in sizes]
    settings = _Settings(64)

    def fill(x, given):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for start in range(tables[0][0][0], 512, given.tile):
            nl.store(out[:, start : start + given.tile], nl.zeros((128, given.tile), x.dtype))
        return out

    kernel, x = Kernel(fill), np.zeros((128, 512), np.float32)

    def instructions():
        return len(kernel.specialize((x, settings), {}).program.trace.instructions)

    assert instructions() == 8 * 2
    settings.tile = 128
    assert instructions() == 4 * 2


# -- a replay gives what a new trace would, whatever changed

ATOMS = (
    strategies.integers(-3, 3)
    | strategies.booleans()
    | strategies.sampled_from(
        [0.0, -0.0, 1.0, float("nan"), "", "a", None, np.float32(1), np.int8(1)]
    )
    | strategies.decimals(0, 2, places=1)
)
VALUES = strategies.recursive(
    ATOMS,
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.tuples(inner, inner)
        | strategies.dictionaries(
            strategies.integers(0, 1) | strategies.booleans(), inner, max_size=2
        )
        | strategies.builds(lambda x: _Settings(x), inner)
        | strategies.builds(lambda x: types.SimpleNamespace(a=x), inner)
        | strategies.builds(lambda n: np.full(n, 1.5), strategies.sampled_from([1, 2000, 30_000]))
    ),
    max_leaves=6,
)


def text_of(value):
    """All that a kernel can tell of a value, in words."""
    if isinstance(value, (_Settings, types.SimpleNamespace)):
        return f"{type(value).__name__}({text_of(value.__dict__)})"
    if isinstance(value, dict):
        return "{" + ", ".join(text_of(k) + ": " + text_of(v) for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(text_of(x) for x in value)})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    return f"{type(value).__name__} {value!r}"


def _change(value, new):
    """Change a part of a value in place, if it has one, to `new`."""
    if isinstance(value, list) and value:
        if not _change(value[-1], new):
            value[-1] = new
    elif isinstance(value, dict) and value:
        key = next(iter(value))
        if not _change(value[key], new):
            value[key] = new
    elif isinstance(value, (_Settings, types.SimpleNamespace)):
        name = next(iter(vars(value)))
        if not _change(getattr(value, name), new):
            setattr(value, name, new)
    elif isinstance(value, np.ndarray):
        value[-1] += 1
    else:
        return False
    return True


HELD = {"value": None}
WAYS = ("argument", "closure", "global", "attribute", "default")


def _given(value):
    return lambda value=value: value


def _reader(way, value):
    """A function that a kernel calls to see a value, and what it is called with."""
    if way == "argument":
        return (lambda given: given()), _given(value)  # which is not searched for tensors
    if way == "closure":
        return (lambda given: value), 0
    if way == "global":
        HELD["value"] = value
        return (lambda given: HELD["value"]), 0
    if way == "attribute":
        holder = _Settings(value)
        return (lambda given: holder.tile), 0
    return (lambda given, value=value: value), 0


@settings(max_examples=150, deadline=None)
@given(VALUES, ATOMS, strategies.sampled_from(WAYS), strategies.booleans())
def test_a_replay_gives_what_a_new_trace_would(value, new, way, change):
    read, given = _reader(way, value)

    def kernel(x, given):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) + float(hash(text_of(read(given))) % 1000))
        return out

    kernel, x = Kernel(kernel), np.zeros((1, 1), np.float32)
    for _ in range(3):
        assert kernel(x, given)[0, 0] == hash(text_of(read(given))) % 1000
        if change:
            _change(value, new)
    # Not so strict that nothing holds. Numbers of the standard library are in C.
    assert change or kernel.cache_info().hits or "Decimal" in text_of(value)


def test_what_is_equal_is_replayed():
    """Arguments that are other objects, and equal."""
    kernel = Kernel(lambda x, given: nl.load(x) if given is None else _stored(x, given))
    x = np.zeros((1, 1), np.float32)
    for make in (lambda: [1, (2.0, "a")], lambda: {"a": b"c"}, lambda: Settings([None])):
        before = kernel.cache_info()
        for _ in range(3):
            kernel(x, make())
        assert kernel.cache_info().misses == before.misses + 1
        assert kernel.cache_info().hits == before.hits + 2


def _stored(x, given):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
