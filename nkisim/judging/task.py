"""What is asked of a kernel: a reference, inputs, cases, tolerance, limits."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.limits import LIMITS
from nkisim.machine.target import PLATFORMS
from nkisim.runtime.importing import NotImportableError, import_file

Sizes = dict[str, Any]
FRAMEWORKS = ("numpy", "torch", "jax")
TOLERANCES = {"float32": (1e-4, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5)}
"""Relative and absolute tolerance by the dtype of a result, where the task has none: of 16-bit
types those of torch.testing.assert_close; of float32 what a piecewise polynomial in the place of a
function needs. Integers are equal."""


@dataclass(frozen=True)
class Limits:
    """What a judged launch may take.

    Attributes:
        seconds: of the processor, of each of its two processes, the one that traces the kernel and
            the one that runs the trace; on the clock they may take ten times as long.
        memory_mb: of each of them, in MB; Linux holds it.
        instructions, iterations: as for `nkisim.limits`.
        embedded_bytes: data in the trace, as of nl.shared_constant; identity matrices are free.
            The default is a tile of float32[128, 512].
    """

    seconds: float = 60.0
    memory_mb: int = 4096
    instructions: int = 1_000_000
    iterations: int = LIMITS["iterations"]
    embedded_bytes: int = 128 * 512 * 4

    def __post_init__(self) -> None:
        for name, most in vars(self).items():
            least = "0 or more" if name == "embedded_bytes" else "above 0"
            known = isinstance(most, int | float)
            if not known or most < 0 or (most == 0 and name != "embedded_bytes"):
                raise _refused(f"the limit {name} is {most!r}", f"a number {least}")

    def as_data(self) -> dict[str, Any]:
        """For a process of `nkisim.judging.isolation`."""
        return {
            "seconds": self.seconds,
            "memory_mb": self.memory_mb,
            "launch": {"instructions": self.instructions, "iterations": self.iterations},
        }


@dataclass(frozen=True)
class Task:
    """What a kernel is judged by.

    Attributes:
        inputs: name to specification, "float32[n, d]", in the order of the kernel's parameters.
            Sizes, and the dtype, may be names that each case gives a value.
        cases: the values of these names; "hidden": True for a case that a student is not shown in
            detail.
        reference: `reference(*arrays)`, what the kernel has to return: an array, or a tuple. None
            to ask for the time alone; then nothing is run on values.
        framework: of the arrays that the reference gets: "numpy", "torch" or "jax".
        draw: `draw(rng, **sizes)`, the inputs as a dictionary or sequence of arrays; None for
            normally distributed floats, and integers from 0 to 9.
        constants: other arguments of the kernel, by name; a value may be the name of a size.
        rtol, atol: tolerance of each element; None for those of TOLERANCES.
        norm: in their place, the tolerance of a whole result: the L2 norm of its error is at most
            so many times that of the reference.
        chips: "trn1", "inf2", "trn2", "trn3": each case is judged for each.
        cores: NeuronCores of a launch: each case is judged for each.
        grid: the launch grid, an expression of the sizes such as "(n + 127) // 128, 2", in which
            `nc(cores)` is the dimension of cores; None for none.
        in_place: names of inputs that the kernel may write. Their contents after the launch are
            compared with what the reference returns after its other results.
        registers: names of inputs that registers may read to tell what to do. Of such a task the
            kernel is traced on values: of these inputs the true ones, of the others any.
        baseline: "FILE:FUNCTION", a kernel that is modelled on the same cases.
        at_most: the time that is allowed, as a multiple of the baseline's.
        budget_us: the time that is allowed, in microseconds of the model.
        strict: whether every check and every warning of the simulator is an error.
        limits: of each launch.
    """

    inputs: Mapping[str, str]
    cases: Sequence[Mapping[str, Any]] = ({},)
    reference: Callable[..., Any] | None = None
    framework: str = "numpy"
    draw: Callable[..., Any] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    norm: float | None = None
    chips: Sequence[str] = ("trn2",)
    cores: Sequence[int] = (1,)
    grid: str | None = None
    in_place: Sequence[str] = ()
    registers: Sequence[str] = ()
    baseline: str | None = None
    at_most: float | None = None
    budget_us: float | None = None
    strict: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name, spec in self.inputs.items():
            if _SPEC.fullmatch(spec.strip()) is None:
                raise _refused(
                    f"the input {name} is {spec!r}", "float32[n, d] or float32[128, 512]"
                )
        for chip in self.chips:
            if chip not in PLATFORMS:
                raise _refused(f"the chip {chip!r}", "one of " + ", ".join(PLATFORMS))
        if self.framework not in FRAMEWORKS:
            raise _refused(f"framework={self.framework!r}", "one of " + ", ".join(FRAMEWORKS))
        for name in (*self.in_place, *self.registers):
            if name not in self.inputs:
                raise _refused(f"the input {name!r}", "one of " + ", ".join(self.inputs))
        if self.at_most is not None and self.baseline is None:
            raise _refused("at_most without a baseline", "baseline='FILE:FUNCTION' beside it")
        for case in self.cases:
            self.arguments(sizes_of(case))

    def arguments(self, sizes: Sizes) -> list[dict[str, Any]]:
        """The kernel's tensors for some sizes: [{name, shape, dtype}].

        Raises:
            ParameterError: a name without a value.
        """
        found = []
        for name, spec in self.inputs.items():
            dtype, shape = _SPEC.fullmatch(spec.strip()).groups()  # type: ignore[union-attr]
            words = [w.strip() for w in shape.split(",") if w.strip()]
            values = [int(w) if w.isdecimal() else _size(w, sizes, name) for w in words]
            kind = sizes.get(dtype, dtype)
            try:
                as_dtype(kind)
            except (TypeError, ValueError):
                raise _refused(
                    f"the input {name} has the dtype {kind!r}", "such as float32"
                ) from None
            found.append({"name": name, "shape": values, "dtype": kind})
        return found

    def settings(self, sizes: Sizes) -> dict[str, Any]:
        """The other arguments of the kernel."""
        return {n: sizes.get(v, v) if isinstance(v, str) else v for n, v in self.constants.items()}

    def grid_of(self, sizes: Sizes, cores: int) -> list[Any] | None:
        """The entries of the launch grid, of which {"cores": n} is one over cores."""
        if self.grid is None:
            return None
        names = {**sizes, "cores": cores, "nc": lambda n: {"cores": n}}
        found = eval(self.grid, {"__builtins__": {}}, names)
        return list(found) if isinstance(found, tuple) else [found]

    def drawn(self, sizes: Sizes, rng: np.random.Generator) -> list[np.ndarray]:
        """Inputs for some sizes.

        Raises:
            ParameterError: `draw` gives other inputs than the task has.
        """
        wanted = self.arguments(sizes)
        kinds = [as_dtype(x["dtype"]) for x in wanted]
        if self.draw is None:
            return [
                _random(rng, tuple(x["shape"]), kind) for x, kind in zip(wanted, kinds, strict=True)
            ]
        given = self.draw(rng, **sizes)
        if isinstance(given, Mapping):
            given = [given[name] for name in self.inputs]
        arrays = [
            np.ascontiguousarray(np.asarray(a).astype(kind, copy=False))
            for a, kind in zip(given, kinds, strict=True)
        ]
        for x, array in zip(wanted, arrays, strict=True):
            if list(array.shape) != x["shape"]:
                raise _refused(f"draw gives {x['name']} the shape {array.shape}", str(x["shape"]))
        return arrays


_SPEC = re.compile(r"(\w+)\s*\[([\w,\s]*)\]")


def sizes_of(case: Mapping[str, Any]) -> Sizes:
    """The sizes of a case, without what else it says."""
    return {name: value for name, value in case.items() if name not in ("hidden", "points")}


def _refused(problem: str, right: str) -> ParameterError:
    return ParameterError(
        problem, rule="a task says what a kernel is judged by", fix=f"write {right}"
    )


def _size(word: str, sizes: Sizes, name: str) -> int:
    if type(sizes.get(word)) is not int or sizes[word] < 1:
        raise _refused(
            f"the input {name} has the size {word!r}, which a case gives the value "
            f"{sizes.get(word)!r}",
            f"{word} = 128, say, in each case",
        )
    return sizes[word]


def _random(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    if kind.kind == "b" or kind.kind in "iu":
        return rng.integers(0, 2 if kind.kind == "b" else 10, shape).astype(kind)
    return rng.standard_normal(shape, np.float32).astype(kind)


def for_framework(framework: str, arrays: Sequence[np.ndarray]) -> list[Any]:
    """NumPy arrays as the arrays of a framework, on the CPU."""
    if framework == "torch":
        from nkisim.runtime.frameworks.torch import to_torch

        return [to_torch(a.copy()) for a in arrays]
    if framework == "jax":
        import jax.numpy as jnp

        return [jnp.asarray(a) for a in arrays]
    return [a.copy() for a in arrays]


# -- tasks in files ----------------------------------------------------------------------------


def function_named(words: str, folder: Path) -> Callable[..., Any]:
    """The function of "FILE:FUNCTION", a path from a folder on.

    Raises:
        ParameterError: there is no such file or function.
    """
    file, _, name = words.rpartition(":")
    path = folder / file
    if not file or not path.is_file():
        raise _refused(f"{words!r}, for which there is no file {path}", "FILE.py:FUNCTION")
    neighbours = os.path.dirname(os.path.abspath(path))
    try:
        module = import_file(path)
    except NotImportableError as error:
        raise _refused(str(error), "FILE.py:FUNCTION") from None
    finally:  # its folder may have others, such as `nki`, whose names are packages elsewhere
        sys.path.remove(neighbours)
    found = getattr(module, name, None)
    if not callable(found):
        raise _refused(f"{words!r}: {path.name} has no function {name!r}", "one that it has")
    return found


def read(path: str | Path) -> tuple[Task, dict[str, Any]]:
    """The task of a TOML file, whose keys are the attributes of `Task`; and what else is in it.

    `reference` and `draw` are "FILE:FUNCTION", from the file's folder on, and so is `baseline`;
    [inputs], [constants] and [limits] are tables, and each case is a table in [[cases]].

    Raises:
        ParameterError: a key that a task does not have, or a value that it cannot have.
    """
    path = Path(path)
    folder = path.parent
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise _refused(f"{path}: {error}", "TOML") from None
    if "inputs" not in given:
        raise _refused(f"{path.name} has no [inputs]", '[inputs] with such as x = "float32[n, d]"')
    known = {f.name for f in dataclasses.fields(Task)}
    others: dict[str, Any] = {
        name: given.pop(name) for name in ("kernel", "name", "score") if name in given
    }
    unknown = sorted(set(given) - known)
    if unknown:
        raise _refused(
            f"{path.name} has the key {unknown[0]!r}", "one of " + ", ".join(sorted(known))
        )
    for name in ("reference", "draw"):
        if name in given:
            given[name] = function_named(given[name], folder)
    if "baseline" in given:
        file, _, name = given["baseline"].rpartition(":")
        given["baseline"] = f"{folder / file}:{name}"
    if "limits" in given:
        try:
            given["limits"] = Limits(**given["limits"])
        except TypeError as error:
            raise _refused(
                f"{path.name}: {error}", "the attributes of nkisim.judging.Limits"
            ) from None
    return Task(**given), others


def value_of(word: str) -> Any:
    """A word of the command line: a Python number or constant, else itself."""
    try:
        return ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word
