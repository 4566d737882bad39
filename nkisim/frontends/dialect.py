"""What a dialect decides about its kernels. Each has its `Dialect` in its module `kernel`; a kernel
itself, with its cache and its launches, is `nkisim.runtime.kernel.Kernel`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nkisim.errors import Location
from nkisim.ir.access import AccessPattern
from nkisim.ir.grid import Grid
from nkisim.ir.trace import Trace
from nkisim.machine import GEN2, Machine
from nkisim.machine.target import Target
from nkisim.trace.arguments import TENSOR_TYPES, leaf_names, leaves, map_leaves


class Decorated:
    """A function with `@nki.jit` on it: the base of nkisim.runtime.kernel.Kernel."""

    @property
    def func(self) -> Callable:
        """The function."""
        raise NotImplementedError


@dataclass(frozen=True)
class Call:
    """A call of a kernel that is to be traced.

    Attributes:
        func: the kernel's function.
        body: the function that is traced: `func`, or what the dialect makes of it.
        name: the kernel's name.
        grid: its launch grid.
        target: the NeuronCore generation that it is traced for, and what chose that.
        mode: as given to `nki.jit`.
        options: names of the nki.compiler decorators that were put on it.
        config: what `nki.jit` was given, of the dialect's own kind; None for nothing.
        bound: the arguments, without defaults.
    """

    func: Callable
    body: Callable
    name: str
    grid: Grid
    target: Target
    mode: str
    options: frozenset[str]
    config: Any
    bound: inspect.BoundArguments

    @cached_property
    def data(self) -> list[np.ndarray] | None:
        """The tensors among the arguments, in order; None where one of them has no values."""
        tensors = [v for v in leaves(self.bound.arguments) if isinstance(v, TENSOR_TYPES)]
        arrays = [np.asarray(v) for v in tensors if isinstance(v, np.ndarray)]
        return arrays if len(arrays) == len(tensors) else None

    @property
    def place(self) -> Location | None:
        """The line at which the kernel begins."""
        code = getattr(self.func, "__code__", None)
        return code and Location(code.co_filename, code.co_firstlineno, code.co_name)

    def declared(self, declare: Callable[[str, Any], Any]) -> inspect.BoundArguments:
        """The arguments with what `declare(name, tensor)` gives in the place of each tensor."""
        names = iter(leaf_names(self.bound.arguments))

        def leaf(value: Any) -> Any:
            return declare(next(names), value) if isinstance(value, TENSOR_TYPES) else value

        given = map_leaves(leaf, dict(self.bound.arguments))
        return inspect.BoundArguments(self.bound.signature, given)


@dataclass(frozen=True)
class Traced:
    """A traced call.

    Attributes:
        trace: what it does.
        outputs: the tensors that the kernel returns, in the order of the leaves of its result.
        returned: `f(leaf, values)`, what a caller gets for a leaf of the result; `values` gives
            those of the outputs, one after the other.
        by_data: whether values of arguments decide what the kernel does.
        returns: types and shapes of the outputs, where these depend on data.
    """

    trace: Trace
    outputs: list[AccessPattern]
    returned: Callable[[Any, Iterator[Any]], Any]
    by_data: bool = False
    returns: str = ""


def _itself(func: Callable) -> Callable:
    return func


def _nothing() -> tuple:
    return ()


def _anything(*_: Any) -> None:
    return None


@dataclass(frozen=True)
class Dialect:
    """A dialect of NKI, for its kernels.

    Attributes:
        name: the module that kernels import.
        trace: traces a call. Raises KernelError: the kernel breaks a rule.
        grid: `f(name of the kernel, entries)`, the grid of `kernel[entries]`.
        body: the function that is traced, for a kernel's function.
        machine: the NeuronCore generation where nothing names one.
        cores: what a launch without brackets is on, as entries of a grid; None for no grid.
        check_inside: `f(name, grid, config)` raises where a kernel cannot be called in the one that
            is traced.
        check_in_graph: `f(name, grid, machine)` raises where a kernel cannot be a part of a graph
            of PyTorch or JAX.
        as_stored: an array among the arguments as the instruction stream has it; None for itself.
        environment: what variables of the environment say that a trace follows.
        wide: names of the types with 64 bits that a kernel's arguments may have.
    """

    name: str
    trace: Callable[[Call], Traced]
    grid: Callable[[str, object], Grid]
    body: Callable[[Callable], Callable] = _itself
    machine: Machine = field(default=GEN2)
    cores: Callable[[], object] = _anything
    check_inside: Callable[[str, Grid, Any], None] = _anything
    check_in_graph: Callable[[str, Grid, Machine], None] = _anything
    as_stored: Callable[[Any], Any] | None = None
    environment: Callable[[], Hashable] = _nothing
    wide: tuple[str, ...] = ()
