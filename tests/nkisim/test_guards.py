"""A trace is used again only while what the kernel read outside its arguments is as it was."""

from __future__ import annotations

import argparse
import dataclasses
import os
import types

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim

X = nkisim.TensorSpec((128, 1024), np.dtype(np.float32))


class Base:
    TILE = 64


class Derived(Base):
    pass


class Slotted:
    __slots__ = ("TILE",)

    def __init__(self):
        self.TILE = 64


@dataclasses.dataclass
class Settings:
    TILE: int = 64


class Computed:
    def __init__(self):
        self.half = 32

    @property
    def TILE(self):
        return 2 * self.half


FACTOR = 1


class Reader:
    def tile(self):
        return 64 * FACTOR


class Nested:
    def __init__(self):
        self.settings = Settings()


def _profiled(tile):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for j in nl.affine_range(x.shape[1] // tile()):
            at = nl.ds(j * tile(), tile())
            nl.store(out[:, at], nl.exp(nl.load(x[:, at])))
        return out

    return lambda: nkisim.profile(kernel, X).instructions


def _cases(monkeypatch):
    def attribute(holder, name="TILE", value=128):
        return lambda: monkeypatch.setattr(holder, name, value)

    plain, spaced, parsed = Settings(), types.SimpleNamespace(TILE=64), argparse.Namespace(TILE=64)
    slotted, computed, nested, array = Slotted(), Computed(), Nested(), np.array([64])
    monkeypatch.setenv("NKISIM_TEST_TILE", "64")
    return {
        "class": (lambda: Base.TILE, attribute(Base)),
        "inherited": (lambda: Derived.TILE, attribute(Base)),
        "dataclass": (lambda: plain.TILE, attribute(plain)),
        "SimpleNamespace": (lambda: spaced.TILE, attribute(spaced)),
        "argparse": (lambda: parsed.TILE, attribute(parsed)),
        "slots": (lambda: slotted.TILE, attribute(slotted)),
        "property": (lambda: computed.TILE, attribute(computed, "half", 64)),
        "global of a method": (Reader().tile, lambda: monkeypatch.setitem(globals(), "FACTOR", 2)),
        "nested": (lambda: nested.settings.TILE, attribute(nested.settings)),
        "array": (lambda: int(array[0]), lambda: array.fill(128)),
        "environ": (
            lambda: int(os.environ["NKISIM_TEST_TILE"]),
            lambda: monkeypatch.setenv("NKISIM_TEST_TILE", "128"),
        ),
        "getenv": (
            lambda: int(os.getenv("NKISIM_TEST_TILE")),
            lambda: monkeypatch.setenv("NKISIM_TEST_TILE", "128"),
        ),
    }


NAMES = (
    *("class", "inherited", "dataclass", "SimpleNamespace", "argparse", "slots", "property"),
    *("global of a method", "nested", "array", "environ", "getenv"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_that_changes_is_seen(name, monkeypatch):
    tile, change = _cases(monkeypatch)[name]
    instructions = _profiled(tile)
    assert instructions() == instructions() == 16 * 3
    change()
    assert instructions() == 8 * 3


def test_what_a_trace_counts_itself_does_not_trace_it_again():
    class Counter:
        calls = 0

    def tile():
        Counter.calls += 1
        return 64

    instructions = _profiled(tile)
    instructions()
    calls = Counter.calls
    instructions()
    assert Counter.calls == calls


def test_large_arrays_are_not_compared_by_value():
    large = np.zeros(10**6)  # comparing it in each call would cost more than the call
    large[0] = 64
    instructions = _profiled(lambda: int(large[0]))
    instructions()
    large[0] = 128
    assert instructions() == 16 * 3
