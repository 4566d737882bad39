"""Kernels of `import nki`: launches on the cores of a logical core, specialisation, outputs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nkisim import checking
from nkisim.errors import Location, OutputError, ParameterError, warn
from nkisim.frontends.nki.dtypes import PACKED, packed_numpy, type_of
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.frontends.nki.session import RULES, Session
from nkisim.frontends.nki.surface.typing import tensor as shape_of
from nkisim.frontends.nki.target import target
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.ir.access import AccessPattern
from nkisim.ir.grid import MAX_CORES, Grid, NeuronCores
from nkisim.ir.memory import Role
from nkisim.machine.target import Target
from nkisim.numerics.emulated import keep_fp32
from nkisim.numerics.program import Program, TensorSpec
from nkisim.runtime.by_data import ProgramByData, changing_outputs
from nkisim.runtime.kernel import (
    TENSOR_TYPES,
    Kernel,
    Specialization,
    besides_tensors,
    holds_tensors,
    leaf_names,
    leaves,
    map_leaves,
)
from nkisim.runtime.python_subset import warn_of_python
from nkisim.trace.guards import Guards
from nkisim.trace.tracer import tracing


class NkiKernel(Kernel):
    """A kernel of `import nki`. `kernel[lnc](*args)` runs it on 1 or 2 cores."""

    @classmethod
    def of(cls, func: Any) -> NkiKernel:
        """`func` as a kernel; a kernel is returned as it is."""
        if isinstance(func, NkiKernel):
            return func
        if isinstance(func, Kernel):
            raise ParameterError(
                f"{func!r} is a kernel of neuronxcc.nki",
                rule="nki.jit takes functions that use nki.language and nki.isa",
                fix="call it with neuronxcc.nki, or translate it",
            )
        if not callable(func) or isinstance(func, type):
            raise ParameterError(
                f"{func!r} is not a kernel",
                rule="a kernel is a Python function",
                fix="pass the function itself",
            )
        return cls(func)

    @property
    def lnc(self) -> int:
        """Cores of the logical core that it is launched on."""
        return self.grid.size

    @property
    def body(self) -> Callable:
        """The function that is traced."""
        return self.func

    def __getitem__(self, grid: object) -> NkiKernel:
        lnc = grid[0] if isinstance(grid, tuple) and len(grid) == 1 else grid
        if (
            isinstance(lnc, bool)
            or not isinstance(lnc, (int, np.integer))
            or not (1 <= lnc <= MAX_CORES)
        ):
            raise ParameterError(
                f"kernel {self.__name__}[{grid!r}]",
                rule="a kernel is launched on the cores of one logical core: 1 or 2",
                fix="use kernel[1] or kernel[2], and loop over tiles in the kernel",
            )
        lnc = int(lnc)
        bound = self._launches.get(lnc)
        if bound is None:
            bound = self._launches[lnc] = self._on(Grid.of((NeuronCores(lnc),)))
        assert isinstance(bound, NkiKernel)  # a copy of this one
        return bound

    def with_schedule(self, pairs: Sequence[tuple]) -> NkiKernel:
        """This kernel with (consumer, producers) pairs for the scheduler. Results do not depend on
        them; the simulator's times do not either."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return self.func(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def target(self) -> Target:
        """What the kernel is traced for now: see nkisim.machine.target."""
        return target() if self._machine is None else Target(self._machine, "")

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Launch on NumPy arrays. Arguments that the kernel writes are changed in place."""
        plain = map_leaves(_unpacked, (tuple(args), dict(kwargs)))
        return super().run(*plain)

    def _key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        key = super()._key(args, kwargs)
        return None if key is None else (key, _environment())

    def _specialization(self, args: Sequence[Any], kwargs: dict[str, Any]) -> NkiSpecialization:
        return NkiSpecialization(self, args, kwargs)


class Packed(np.ndarray):
    """An array of integers that are packed elements of a type.

    Attributes:
        nki_type: its name.
    """

    nki_type: str = ""

    def __array_finalize__(self, other: Any) -> None:
        self.nki_type = getattr(other, "nki_type", "")


def _unpacked(leaf: Any) -> Any:
    """An array in the form that the instruction stream has it in."""
    if isinstance(leaf, np.ndarray) and type(leaf) is not Packed:
        kind = type_of(leaf.dtype, "an argument's dtype")
        if kind.stored != leaf.dtype:
            packed = leaf.view(kind.stored).view(Packed)  # as wide: the same memory, in any layout
            packed.nki_type = kind.name
            return packed
    return leaf


class NkiSpecialization(Specialization):
    """A kernel of `import nki` traced for one set of shapes, dtypes and constants."""

    def __init__(self, kernel: NkiKernel, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.kernel = kernel._retraced()
        bound = kernel.signature.bind(*args, **kwargs)
        self.constants = {
            name: value for name, value in bound.arguments.items() if not holds_tensors(value)
        }
        self.guards = Guards(kernel.func, besides_tensors(bound.arguments))
        _check_cores(kernel)
        _warn_of_cores(kernel)
        warn_of_python(kernel, bound.arguments, _place(kernel))
        names = leaf_names(bound.arguments)
        machine, source = kernel.target
        checker = checking.Checker()
        checker.simulated = True  # cores that all do the same write the same: a warning
        session = Session(kernel.__name__, kernel.grid, checker, machine, RULES)
        session.trace.target = source
        tensors = [v for v in leaves((args, kwargs)) if isinstance(v, TENSOR_TYPES)]
        if all(isinstance(v, np.ndarray) for v in tensors):
            session.data = [np.asarray(v) for v in tensors]
        count = 0

        def declare(leaf: Any) -> Any:
            nonlocal count
            if not isinstance(leaf, TENSOR_TYPES):
                return leaf
            name = names[count] if count < len(names) else f"argument {count}"
            count += 1
            kind = getattr(leaf, "nki_type", "") or leaf.dtype
            return session.parameter(name, tuple(leaf.shape), kind)

        given = inspect.BoundArguments(kernel.signature, bound.arguments)
        given.arguments = map_leaves(declare, bound.arguments)
        given.apply_defaults()
        _check_annotations(kernel, given.arguments)

        def body() -> Any:
            return kernel.func(*given.args, **given.kwargs)

        trace = session.run(body)
        has_data, session.data = session.data is not None, None
        if _environment()[1] == "0":
            keep_fp32(trace)
        self.guards.settle()
        if session.depends_on_data and has_data and self.guards.reason is None:
            self.guards.reason = "what it does depends on the values of its arguments"
        returned = [x for x in leaves(trace.result) if isinstance(x, NkiTensor)]
        self._views = [(x._layout, x.offset) for x in returned]
        outputs = [AccessPattern(x._buffer) for x in returned]
        _check_outputs(kernel, returned, session)
        kept = {x.buffer.number for x in outputs}
        written = [
            t
            for t in trace.arguments
            if t.buffer.number in trace.written_arguments and t.buffer.number not in kept
        ]
        if session.depends_on_data and not has_data:
            _check_registers(kernel, trace.result)
            pinned = self.kernel.on(machine)

            def on_data(arrays: Sequence[np.ndarray]) -> NkiSpecialization:
                values = iter(arrays)
                given = map_leaves(
                    lambda leaf: next(values) if isinstance(leaf, TENSOR_TYPES) else leaf,
                    (tuple(args), dict(kwargs)),
                )
                found = pinned.specialize(*given)
                assert isinstance(found, NkiSpecialization)
                if found.returns != self.returns:
                    raise changing_outputs(kernel.__name__, f"returns {found.returns}")
                return found

            self.program = ProgramByData(trace, [*outputs, *written], on_data)
        else:
            self.program = Program(trace, [*outputs, *written])

    @property
    def returns(self) -> str:
        """Types and shapes of the tensors that the kernel returns."""
        return ", ".join(f"{own.type.name}{list(own.shape)}" for own, _ in self._views) or "nothing"

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """What the kernel returns, with `outputs` (in program order) in place of its tensors."""
        rest = iter(zip(outputs, self._views, strict=False))

        def put(leaf: Any) -> Any:
            if isinstance(leaf, VirtualRegister):
                return leaf.state
            if not isinstance(leaf, NkiTensor):
                return leaf
            return _as_returned(*next(rest))

        return map_leaves(put, self.program.trace.result)


def _as_returned(value: Any, view: tuple) -> Any:
    """An output as the view of it that the kernel returned."""
    layout, offset = view
    if not isinstance(value, np.ndarray):
        shape = getattr(value, "shape", None)
        if shape is None or tuple(shape) == layout.shape:
            return value
        return value.reshape(layout.shape)
    kind = layout.type
    if value.shape != layout.shape or value.dtype != kind.stored:
        flat = value.reshape(-1).view(kind.stored)
        strides = tuple(s * flat.itemsize for s in layout.strides)
        value = np.ndarray(layout.shape, flat.dtype, flat, offset * flat.itemsize, strides)
    if kind.name in PACKED:
        return np.asarray(value).view(packed_numpy(kind.name))
    return value


def _check_registers(kernel: NkiKernel, result: Any) -> None:
    """A register that is returned becomes a number, which needs data."""
    if any(isinstance(x, VirtualRegister) for x in leaves(result)):
        raise OutputError(
            f"kernel {kernel.__name__} returns a register, and is traced without data",
            rule="under jax.jit and torch_xla a kernel returns tensors",
            fix="store it with nisa.register_store into a tensor in nl.shared_hbm, and return that",
            location=_place(kernel),
        )


def _check_cores(kernel: NkiKernel) -> None:
    if kernel.lnc > kernel.machine.abilities.cores:
        raise ParameterError(
            f"kernel {kernel.__name__}[{kernel.lnc}] on {kernel.machine.name}",
            rule="two cores make a logical core on NeuronCore-v3 (trn2) and later",
            fix="launch kernel[1], or set NEURON_PLATFORM_TARGET_OVERRIDE=trn2",
        )


def _place(kernel: NkiKernel) -> Location | None:
    code = getattr(kernel.func, "__code__", None)
    return code and Location(code.co_filename, code.co_firstlineno, code.co_name)


def _environment() -> tuple[str, str]:
    """Variables of the SDK that a specialisation follows."""
    return os.environ.get("NEURON_LOGICAL_NC_CONFIG", ""), os.environ.get("NKI_PRECISE_FP", "1")


def _warn_of_cores(kernel: NkiKernel) -> None:
    """Warns where the environment names another number of cores for a logical core."""
    cores, _ = _environment()
    if cores and cores != str(kernel.lnc):
        warn(
            ParameterError(
                f"kernel {kernel.__name__}[{kernel.lnc}] with NEURON_LOGICAL_NC_CONFIG={cores}",
                rule="on a device a kernel is launched on as many cores as the runtime joins in a "
                "logical core",
                fix=f"launch {kernel.__name__}[{cores}], or set NEURON_LOGICAL_NC_CONFIG="
                f"{kernel.lnc}",
                location=_place(kernel),
            )
        )


def _check_annotations(kernel: NkiKernel, arguments: dict[str, Any]) -> None:
    """Parameters that are annotated with nki.typing.tensor have that shape."""
    hints = getattr(kernel.func, "__annotations__", {})
    for name, hint in hints.items():
        value = arguments.get(name)
        if not isinstance(hint, shape_of) or not isinstance(value, NkiTensor):
            continue
        fits = len(hint.shape) == value.ndim and all(
            not isinstance(n, int) or n == m for n, m in zip(hint.shape, value.shape, strict=True)
        )
        if not fits:
            raise ParameterError(
                f"argument '{name}' of {kernel.__name__} has the shape {list(value.shape)}",
                rule=f"its annotation is {hint!r}",
                fix="pass a tensor of that shape",
            )


def _check_outputs(kernel: NkiKernel, returned: list[NkiTensor], session: Session) -> None:
    trace = session.trace
    for t in returned:
        if t.buffer is not MemoryRegion.shared_hbm:
            raise OutputError(
                f"kernel {kernel.__name__} returns {t.describe()}",
                rule="outputs are in shared HBM",
                fix="declare it with buffer=nl.shared_hbm; copy tiles into such a tensor",
                location=_place(kernel),
            )
        if t._buffer.role is Role.LOCAL:
            session.checker.on_output(AccessPattern(t._buffer))
    if not returned and not trace.written_arguments and all(i.outs for i in trace.instructions):
        session.checker.report(
            "output",
            OutputError(
                f"kernel {kernel.__name__} leaves no result: it returns no tensor and writes none "
                "of its arguments",
                rule="what a kernel computes is gone when it ends, but for HBM that it returns",
                fix="return a tensor in nl.shared_hbm",
            ),
            mild=True,
        )


__all__ = ["NkiKernel", "NkiSpecialization", "TensorSpec"]
