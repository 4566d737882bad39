"""A kernel of the dialect that the operators are in, ready to be called.

Importing this needs no NKI: a kernel's module is imported when the kernel is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import kernels
from kernels.logical_core import cores


class Launch(NamedTuple):
    """A launch that was recorded.

    Attributes:
        kernel: that was launched.
        inputs: names of parameters, and their arrays.
        constants: the other arguments, by name.
    """

    kernel: Any
    inputs: list[tuple[str, Any]]
    constants: dict[str, Any]


instead: dict[str, tuple[Any, int]] = {}
"""Kernels that are launched in the place of the book's, by the name of that one, each with the
number of its parameters: :mod:`nkibook.own` puts a reader's here."""

left_out: Callable[[Any, tuple[Any, ...], Exception], None] | None = None
"""Called with a kernel of ``instead`` that raised, its arguments and the error, before the book's
is launched. None for the error itself."""

_seen: list[Launch] | None = None


def kernel_of(operator: str, name: str, lnc: int | None = None) -> Any:
    """A kernel of an operator, in the dialect of ``kernels.dialect``.

    Args:
        operator: the name of a package in ``kernels``, for example "rmsnorm".
        name: the kernel's name in the package's modules ``neuronxcc`` and ``nki``.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on, with ``import nki``.
            By default as many as the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        The kernel of ``neuronxcc.nki``, which runs on one core; or that of ``import nki``, with its
        number of cores. Where there is one ``instead``, what launches that one.

    Raises:
        ValueError: several cores for a kernel of ``neuronxcc.nki``.
    """
    found = getattr(importlib.import_module(f"kernels.{operator}.{kernels.dialect}"), name)
    if kernels.dialect == "nki":
        found = found[cores(lnc)]
    elif lnc not in (None, 1):
        raise ValueError(
            f"lnc is {lnc}, and {name} is in neuronxcc.nki, whose kernels of this book run on one "
            "NeuronCore. Leave lnc out, or take the kernels in `import nki`: NKI_DIALECT=nki."
        )
    if name in instead or _seen is not None:
        return functools.partial(_launch, found, *instead.get(name, (found, None)))
    return found


def _launch(book: Any, kernel: Any, takes: int | None, *args: Any) -> Any:
    """Launch a kernel, or the book's for an argument that the kernel has no parameter for."""
    if takes is not None and any(args[takes:]):
        kernel = book
    try:
        return _called(kernel, args if kernel is book else args[:takes])
    except Exception as error:  # whatever the code of a kernel of `instead` does wrong
        if left_out is None or kernel is book:
            raise
        left_out(kernel, args, error)
    if _seen is not None:
        _seen.pop()
    return _called(book, args)


def _called(kernel: Any, args: tuple[Any, ...]) -> Any:
    if _seen is not None:
        bound = inspect.signature(kernel).bind(*args)
        bound.apply_defaults()
        named = bound.arguments.items()
        inputs = [(name, value) for name, value in named if hasattr(value, "shape")]
        constants = {name: value for name, value in named if not hasattr(value, "shape")}
        _seen.append(Launch(kernel, inputs, constants))
    return kernel(*args)


@contextlib.contextmanager
def recorded() -> Iterator[list[Launch]]:
    """A context that lists the launches of the book's operators in it, in their order."""
    global _seen
    before, _seen = _seen, []
    try:
        yield _seen
    finally:
        _seen = before
