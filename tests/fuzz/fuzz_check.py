"""One random kernel: run, run again, and profiled, against the reference."""

from __future__ import annotations

import dataclasses
import linecache
import os
import warnings
from typing import Any
from unittest import mock

import fuzz_reference as reference
import numpy as np
from fuzz_nki import nki_text
from fuzz_programs import Generator, Kernel, neuronxcc_text

import nkisim
from nkisim.runtime.profiling import trace_of


def check_nki(seed: int) -> None:
    """The same in `import nki`, for trn2, on one core or on both of a logical core."""
    drawn = Generator(seed).kernel()
    drawn = dataclasses.replace(drawn, instances=min(drawn.instances, 2))
    with mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn2"):
        _check_text(seed, drawn, nki_text(drawn))


def check_neuronxcc(seed: int) -> None:
    """Raises AssertionError, with the kernel's text, if anything is not as the reference has it.

    The kernel runs on two data sets, of which the second replays; then a constant that it reads is
    changed. Its profile is of the same instructions.
    """
    drawn = Generator(seed).kernel()
    _check_text(seed, drawn, neuronxcc_text(drawn))


def _check_text(seed: int, drawn: Kernel, text: str) -> None:
    filename = f"<kernel {seed}>"
    linecache.cache[filename] = len(text), None, text.splitlines(True), filename
    names: dict = {"__name__": "fuzzed"}
    exec(compile(text, filename, "exec"), names)
    kernel = names["kernel"][drawn.instances] if drawn.instances else names["kernel"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nkisim.NkiWarning)
            _check(drawn, kernel, names["CONSTANTS"], np.random.default_rng(seed + 1))
    except Exception as error:
        error.add_note(f"seed {seed}\n{text}")
        raise
    finally:
        del linecache.cache[filename]


def _check(drawn: Kernel, kernel: Any, constants: list[float], rng: np.random.Generator) -> None:
    def arrays() -> list[np.ndarray]:
        shape = drawn.rows, drawn.columns
        return [rng.integers(-4, 5, shape).astype(reference._TYPES[d]) for d in drawn.dtypes[:2]]

    for change in (None, None, 1):
        if change is not None:
            constants[change] += 1.0
        given = arrays()
        got, wanted = kernel(*given), reference.run(drawn, *given, constants)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))
    traced = kernel.specialize(tuple(given), {}).program
    specs = [nkisim.TensorSpec(x.shape, x.dtype) for x in given]
    assert trace_of(kernel, *specs).program.digest == traced.digest
    timeline = nkisim.profile(kernel, *specs)
    assert timeline.instructions == len(traced.instructions)
    assert timeline.latency_us > 0
