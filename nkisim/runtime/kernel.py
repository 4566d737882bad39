"""Kernels: what `@nki.jit` gives. Specialise, cache, run, or hand over to a framework's bridge."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import logging
import pickle
import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from itertools import repeat
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from nkisim import checking
from nkisim.errors import KernelError, ParameterError
from nkisim.frontends.dialect import Call, Decorated, Dialect
from nkisim.frontends.neuronxcc.kernel import NEURONXCC
from nkisim.ir.forks import unlocked_in_child
from nkisim.ir.grid import SINGLE, Grid, NeuronCores, SpmdDim
from nkisim.machine import Machine
from nkisim.machine.target import Target, target
from nkisim.numerics.arguments import run_in_place
from nkisim.numerics.floating import DefaultEnvironment
from nkisim.numerics.program import Program, TensorSpec
from nkisim.numerics.recent import Recent, memory
from nkisim.runtime import frameworks
from nkisim.runtime.by_data import ProgramByData, changing_outputs
from nkisim.runtime.install import install
from nkisim.trace import debugging, sources
from nkisim.trace.arguments import (
    TENSOR_TYPES,
    holds_tensors,
    is_copied_whole,
    leaves,
    map_arguments,
    map_leaves,
    signature,
)
from nkisim.trace.frames import hide_ours
from nkisim.trace.guards import Guards, NotComparable, Same
from nkisim.trace.tracer import tracing

_log = logging.getLogger("nkisim")

_GRID_ENTRIES = (int, NeuronCores, SpmdDim)
MODES = ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace")
_NUMPY_MODES = frozenset({"baremetal", "benchmark", "simulation"})
_KEPT = max(256 << 20, memory() // 8)  # bytes of the traces that are kept, of all kernels together
_kept = Recent(_KEPT)


@unlocked_in_child
class Kernel(Decorated):
    """An NKI kernel bound to a launch grid. `kernel[grid](*args)` launches it.

    NumPy arrays in, NumPy arrays out; torch and JAX arrays go through the framework's bridge.
    Called inside another kernel it is inlined. Arguments are handed over as they are; of a list, or
    another container, with tensors in it a kernel gets a copy, so that what it changes there stays
    its own.

    Attributes:
        dialect: of NKI, that it is written in.
        mode: as given to `nki.jit`.
        grid: the launch grid.
        target: the NeuronCore generation it is traced for, and what chose that.
        options: names of the nki.compiler decorators that were put on it.
        config: what `nki.jit` was given, of the dialect's own kind; None for nothing.
        signature: the signature of `func`.
    """

    __test__ = False  # a kernel called test_... is no test of pytest's
    # Attributes that say nothing to a kernel that calls this one (see nkisim.trace.guards).
    follows_from_others = frozenset(
        {"_cache", "_launches", "_body", "_machine", "_platform", "_positional"}
        | {"dialect", "signature", "__annotations__"}
    )

    def __init__(
        self,
        func: Callable,
        mode: str = "auto",
        platform: str | None = None,
        dialect: Dialect = NEURONXCC,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"nki.jit mode {mode!r} is not one of {', '.join(MODES)}")
        functools.update_wrapper(self, func)
        if not hasattr(func, "__name__"):  # functools.partial
            self.__name__ = getattr(getattr(func, "func", func), "__name__", type(func).__name__)
        self.dialect = dialect
        self.mode = mode
        self._platform = platform
        self._machine: Machine | None = None  # what `on` was given
        self.options: frozenset[str] = frozenset()
        self.config: Any = None
        self.grid = SINGLE
        self.func = func
        # Shared by the copies of this kernel that are bound to launch grids.
        self._cache = _TraceCache()

    @property
    def func(self) -> Callable:
        """The Python function. Another one may be put in its place."""
        return self._func

    @func.setter
    def func(self, func: Callable) -> None:
        self._func = func
        self.signature = inspect.signature(func)
        if isinstance(func, FunctionType):
            sources.keep_text(func.__code__)
        kinds = [p.kind for p in self.signature.parameters.values()]
        plain = all(k is inspect.Parameter.POSITIONAL_OR_KEYWORD for k in kinds)
        self._positional = len(kinds) if plain else -1
        self._launches: dict[Any, Kernel] = {}
        self._body: tuple[tuple, Callable] | None = None

    def __getitem__(self, grid: object) -> Kernel:
        if frameworks.compiling():
            return frameworks.BoundKernel(self, grid)  # type: ignore[return-value]
        entries = grid if type(grid) is tuple else (grid,)
        if not all(type(e) in _GRID_ENTRIES for e in entries):
            return self._on(self._grid(grid))  # which takes it or explains: 2.0 and True equal ints
        bound = self._launches.get(grid)
        if bound is None:
            bound = self._launches[grid] = self._on(self._grid(grid))
        return bound

    def _grid(self, entries: object) -> Grid:
        return self.dialect.grid(self.__name__, entries)

    def _on(self, grid: Grid) -> Kernel:
        bound = copy.copy(self)
        bound.grid = grid
        bound._launches = {}  # its own, or it would be in a cycle, and its traces with it
        return bound

    @property
    def body(self) -> Callable:
        """The function that is traced: `func`, or a copy compiled from its source."""
        names = "__code__", "__defaults__", "__kwdefaults__"
        parts = tuple([Same(getattr(self.func, name, None)) for name in names])
        if self._body is None or self._body[0] != parts:
            self._body = parts, self.dialect.body(self.func)
        return self._body[1]

    def with_options(self, *names: str) -> Kernel:
        """This kernel with decorators of nki.compiler on it."""
        changed = self._retraced()
        changed.options = self.options | set(names)
        return changed

    def with_config(self, config: Any) -> Kernel:
        """This kernel with a configuration of its dialect."""
        changed = self._retraced()
        changed.config = config
        return changed

    def with_schedule(self, pairs: Sequence[tuple]) -> Kernel:
        """This kernel with (consumer, producers) pairs for the scheduler, which `import nki` has.
        Results do not depend on them; the simulator's times do not either."""
        return self

    def on(self, machine: Machine) -> Kernel:
        """This kernel for a NeuronCore generation, as nkisim.machine has them, whatever the
        environment says."""
        if machine is self._machine:
            return self
        changed = self._retraced()
        changed._machine = machine
        return changed

    @property
    def target(self) -> Target:
        """What the kernel is traced for now: see nkisim.machine.target.

        Raises:
            ParameterError: the environment names no generation.
        """
        if self._machine is not None:
            return Target(self._machine, "")
        return target(self._platform, self.dialect.machine)

    @property
    def machine(self) -> Machine:
        """The NeuronCore generation it is traced for now."""
        return self.target.machine

    def __copy__(self) -> Kernel:
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __reduce__(self) -> tuple:
        """Pickled by name, as functions are; with its grid, options and generation, without traces.

        Raises:
            pickle.PicklingError: its name does not lead to it, as that of a function in a function.
        """
        module, name = getattr(self, "__module__", ""), getattr(self, "__qualname__", "")
        if _function_named(module, name) is not self.func:
            raise pickle.PicklingError(
                f"kernel {self.__name__} cannot be pickled: {module}.{name} is not its function. "
                "Define it at the top level of a module."
            )
        settings = {
            key: self.__dict__[key]
            for key in ("dialect", "mode", "grid", "options", "config", "_platform", "_machine")
        }
        return _unpickled, (type(self), module, name, settings)

    def _retraced(self) -> Kernel:
        """A copy that is traced anew."""
        changed = copy.copy(self)
        changed._cache, changed._launches = _TraceCache(), {}
        return changed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if frameworks.compiling() and frameworks.takes(args, kwargs):
            return frameworks.record(self, args, kwargs)
        if tracing():
            return self._inline(args, kwargs)
        try:
            return frameworks.opaque(Kernel._launch)(self, args, kwargs)
        except KernelError as error:
            hide_ours(error)
            raise

    def numbered(self, grid: object = None) -> tuple[int, tuple[int, ...]]:
        """How a graph of PyTorch names it: its number in this process, and its cores, which are
        those of `grid`, if given."""
        return frameworks.numbered(self._on_cores() if grid is None else self[grid])

    numbered._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def _launch(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        args, kwargs = self.bind(args, kwargs)
        bridge = frameworks.bridge_for(leaves((args, kwargs)))
        if bridge is None:
            return self.run(args, kwargs)
        if self.mode in _NUMPY_MODES:
            frameworks.require_numpy(f"a kernel of mode='{self.mode}'", leaves((args, kwargs)))
        kernel = self._on_cores()
        kernel.dialect.check_in_graph(kernel.__name__, kernel.grid, kernel.machine)
        return bridge.call(kernel, args, kwargs)

    def _on_cores(self) -> Kernel:
        """This kernel on the cores that a launch without brackets is on."""
        cores = self.dialect.cores() if self.grid is SINGLE else None
        return self if cores is None else self[cores]

    def _inline(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The kernel called from another kernel."""
        self.dialect.check_inside(self.__name__, self.grid, self.config)
        return self.body(*args, **kwargs)

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments in the order of the signature. Raises TypeError if they do not fit it."""
        if not kwargs and len(args) == self._positional:
            return tuple(args), {}  # nothing to reorder, and `Signature.bind` is slow
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"kernel {self.__name__}{self.signature}: {error}") from None
        return bound.args, bound.kwargs

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Launch on NumPy arrays. Arguments that the kernel writes are changed in place.

        Arguments may share memory: see nkisim.numerics.arguments.
        """
        if self.dialect.as_stored is not None:
            args, kwargs = map_arguments(self.dialect.as_stored, args, kwargs)
        given = leaves((args, kwargs))
        if any(isinstance(v, TensorSpec) for v in given):
            raise ParameterError(
                f"kernel {self.__name__} is called with a TensorSpec, which has no values",
                rule="a call computes, on arrays",
                fix="pass arrays, or model the kernel: nkisim.profile(kernel, ...)",
            )
        masked = sys.modules.get("numpy.ma")  # where it is not imported, nothing is of it
        if masked is not None and any(isinstance(v, masked.MaskedArray) for v in given):
            raise ParameterError(
                f"kernel {self.__name__} is called with a masked array",
                rule="a kernel takes arrays; it has nowhere to keep a mask",
                fix="fill in what is masked, x.filled(0.0), or pass x.data and the mask as an "
                "array of its own",
            )
        special = self.specialize(args, kwargs)
        # As what they are stored in: an np.matrix has two axes, however it is reshaped.
        arrays = [v for v in given if isinstance(v, np.ndarray)]
        inputs = [v if type(v) is np.ndarray else v.view(np.ndarray) for v in arrays]
        program = special.program
        if not program.aliases:
            return special.rebuild(program.run(inputs))
        return special.rebuild(run_in_place(program, inputs))

    def specialize(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Specialization:
        """The kernel traced for these arguments, from the cache when it was traced before.

        Args:
            args, kwargs: arrays or TensorSpecs for tensors; anything else is a constant. The
                program's inputs are the tensors among them, in the order of `bind`.

        Raises:
            KernelError: the kernel breaks a rule.
            TypeError: the arguments do not fit the function's signature.
        """
        on_cores = self._on_cores()
        if on_cores is not self:
            return on_cores.specialize(args, kwargs)
        args, kwargs = self.bind(args, kwargs)
        cache = self._cache
        key, constants, doubt = self._key(args, kwargs)
        found = cache.traces.get(key)
        if found is not None and found.guards.hold(constants):
            cache.hits += 1
            cache.use(key, found)
            return found
        cache.misses += 1
        cache.tell_if_gone(key, self.__name__)
        try:
            with DefaultEnvironment():  # constants are computed while tracing
                special = Specialization(self, args, kwargs, constants)
        except KernelError as error:
            hide_ours(error)
            raise
        doubt = doubt or special.guards.reason
        if doubt is None and self._key(args, kwargs)[0] != key:
            doubt = "it changes its arguments"
        if doubt is None:
            cache.keep(key, special)
        else:
            _log.info("%s is traced at each call: %s", self.__name__, doubt)
        return special

    def cache_info(self) -> CacheInfo:
        """How often calls found the kernel traced, on any grid; named as in functools.lru_cache.

        A kernel that can reach what is not compared whole (see nkisim.trace.guards), or returns an
        object that its caller may change, is traced at each call; the logger `nkisim` says why, at
        the level INFO.
        """
        return CacheInfo(self._cache.hits, self._cache.misses, len(self._cache.traces))

    def _key(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Hashable, list[Any], str | None]:
        """Identity of a specialisation, the constants among its arguments, part by part, and why
        another call is not known to be the same; None where it is."""
        if debugging.wanted(self.func):
            return None, [], "it is looked into"
        try:
            arguments, constants = signature((tuple(args), kwargs))
        except NotComparable as error:
            return None, [], str(error)
        environment = self.dialect.environment()
        outside = self.grid, self.machine, checking.settings_key(), environment
        return (Same(self.func), outside, arguments), constants, None

    def __repr__(self) -> str:
        return f"<nki kernel {self.__name__}[{self.grid}]>"


def _function_named(module: str, name: str) -> Any:
    """The function behind a name, a kernel's own where that is a kernel; None where there is
    none."""
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found.func if isinstance(found, Kernel) else found


def _unpickled(kind: type[Kernel], module: str, name: str, settings: dict[str, Any]) -> Kernel:
    """The kernel that `Kernel.__reduce__` describes."""
    install()  # what its module imports
    importlib.import_module(module)
    kernel = kind(_function_named(module, name))
    kernel.__dict__.update(settings)
    return kernel


class CacheInfo(NamedTuple):
    """Use of a kernel's traces.

    Attributes:
        hits: calls that used an earlier trace.
        misses: calls that traced.
        currsize: traces that are kept.
    """

    hits: int
    misses: int
    currsize: int


class _TraceCache:
    """Traces of a kernel by what they are specialised to, and how often that helped."""

    def __init__(self) -> None:
        self.traces: dict[Any, Specialization] = {}
        self.hits = self.misses = 0
        self._gone: set[int] = set()  # hashes of keys of traces that others took the place of

    def keep(self, key: Any, special: Specialization) -> None:
        """Keep a trace."""
        self.traces[key] = special
        self.use(key, special)

    def tell_if_gone(self, key: Any, name: str) -> None:
        """Say so where a kernel is traced again because there are too many traces."""
        if hash(key) in self._gone:
            self._gone.clear()
            _log.warning(
                "%s is traced again: the traces of all kernels take more than %d MB, an eighth of "
                "the memory, and its own was used longest ago",
                name,
                _KEPT >> 20,
            )

    def use(self, key: Any, special: Specialization) -> None:
        """Note that a trace is used. Traces of all kernels that were used long ago go, once they
        take too many bytes together."""
        own = weakref.ref(self)

        def let_go() -> None:
            cache = own()
            if cache is not None:
                cache.traces.pop(key, None)
                cache._gone.add(hash(key))

        _kept.use(special, special.program.kept_bytes, let_go)


class Specialization:
    """A kernel traced for one grid and one set of shapes, dtypes and constants.

    Attributes:
        kernel: the kernel, without its traces.
        program: what runs.
        constants: the non-tensor arguments by parameter name, for `backend_config`.
        guards: outside values the trace relies on.

    Args:
        kernel: the kernel.
        args, kwargs: as for `Kernel.specialize`.
        constants: what is not a tensor in them, part by part.
    """

    def __init__(
        self, kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any], constants: list[Any]
    ) -> None:
        # In no cycle with the traces: millions of objects would wait for the garbage collector.
        self.kernel = kernel._retraced()
        bound = kernel.signature.bind(*args, **kwargs)
        self.constants = {
            name: value for name, value in bound.arguments.items() if not holds_tensors(value)
        }
        self.guards = Guards(kernel.func, constants)
        call = Call(
            kernel.func,
            kernel.body,
            kernel.__name__,
            kernel.grid,
            kernel.target,
            kernel.mode,
            kernel.options,
            kernel.config,
            bound,
        )
        self._traced = traced = kernel.dialect.trace(call)
        self.guards.settle(constants)
        trace = traced.trace
        if not is_copied_whole(trace.result, self._is_output):
            self.guards.reason = "it returns what its caller may change, and is not copied"
        kept = {x.buffer.number for x in traced.outputs}
        written = [
            t
            for t in trace.arguments
            if t.buffer.number in trace.written_arguments and t.buffer.number not in kept
        ]
        outputs = [*traced.outputs, *written]
        if traced.by_data and call.data is None:
            pinned = self.kernel.on(trace.machine)

            def on_data(arrays: Sequence[np.ndarray]) -> Specialization:
                values = iter(arrays)
                given = map_leaves(
                    lambda leaf: next(values) if isinstance(leaf, TENSOR_TYPES) else leaf,
                    (tuple(args), dict(kwargs)),
                )
                found = pinned.specialize(*given)
                returns = found._traced.returns
                if returns != traced.returns:
                    raise changing_outputs(pinned.__name__, f"returns {returns}")
                return found

            self.program: Program = ProgramByData(trace, outputs, on_data)
            return
        if traced.by_data and self.guards.reason is None:
            self.guards.reason = "what it does depends on the values of its arguments"
        self.program = Program(trace, outputs)

    def _is_output(self, leaf: Any) -> bool:
        """Whether a caller gets something else for a leaf of the result."""
        return self._traced.returned(leaf, repeat(None)) is not leaf

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """What the kernel returns, with `outputs` (in program order) in place of its tensors."""
        rest = iter(outputs)
        result = self.program.trace.result  # which the trace keeps, and the caller may change
        return map_leaves(lambda leaf: self._traced.returned(leaf, rest), result, fresh=True)


def _never_runs(func: Callable) -> bool:
    """Whether calling a function does not run its body."""
    return any(
        is_one(func)
        for is_one in (
            inspect.iscoroutinefunction,
            inspect.isgeneratorfunction,
            inspect.isasyncgenfunction,
        )
    )


def as_kernel(
    func: Callable | Kernel,
    mode: str = "auto",
    platform: str | None = None,
    dialect: Dialect = NEURONXCC,
) -> Kernel:
    """`func` as a Kernel; a Kernel is returned as it is."""
    if isinstance(func, Kernel):
        return func
    if not callable(func) or isinstance(func, type | BuiltinFunctionType):
        raise ParameterError(
            f"{func!r} is not a kernel",
            rule="a kernel is a Python function",
            fix="pass the function itself, decorated with @nki.jit or not",
        )
    if _never_runs(func):
        raise ParameterError(
            f"{func.__name__} is a generator or a coroutine: calling it runs nothing of it",
            rule="a kernel is a Python function that returns its outputs",
            fix="write def without async, and return without yield",
        )
    return Kernel(func, mode, platform, dialect)
