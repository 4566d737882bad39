"""Kernels of `import nki`: how a call is traced, and what becomes of its outputs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from nkisim.checking import Checker
from nkisim.errors import DTypeError, OutputError, ParameterError, warn
from nkisim.frontends.dialect import Call, Dialect, Traced
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.calls import explain
from nkisim.frontends.nki.configuration import Config
from nkisim.frontends.nki.dtypes import PACKED, WIDE, packed_numpy, type_of
from nkisim.frontends.nki.python_subset import warn_of_python
from nkisim.frontends.nki.registers import RunTimeInteger
from nkisim.frontends.nki.session import Session
from nkisim.frontends.nki.surface.isa.dma import assign
from nkisim.frontends.nki.surface.typing import tensor as shape_of
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.ir.access import AccessPattern
from nkisim.ir.grid import MAX_CORES, SINGLE, Grid, NeuronCores
from nkisim.ir.memory import Role
from nkisim.ir.rules import Rules, Words
from nkisim.machine import Machine
from nkisim.machine.target import DEFAULTS
from nkisim.numerics.emulated import keep_fp32
from nkisim.trace.arguments import leaves
from nkisim.trace.tracer import current_if_any

CORES = "NEURON_LOGICAL_NC_CONFIG"

RULES = Rules(
    dialect="nki",
    alike_is_harmless=True,
    results_decide=True,
    destinations=True,
    explain=explain,
    words=Words(between="nisa.core_barrier(tensor, (0, 1))"),
)


def _trace(call: Call) -> Traced:
    _check_cores(call)
    _warn_of_cores(call)
    if not releases.tracing():
        warn_of_python(call)
    machine, source = call.target
    checker = Checker()
    checker.simulated = True  # cores that all do the same write the same: a warning
    session = Session(call.name, call.grid, checker, machine, RULES)
    session.assign = assign
    session.trace.target = source
    session.data = call.data
    session.config = call.config or Config()

    def declare(name: str, leaf: Any) -> NkiTensor:
        kind = getattr(leaf, "nki_type", "") or leaf.dtype
        return session.parameter(name, tuple(leaf.shape), kind)

    given = call.declared(declare)
    given.apply_defaults()
    _check_annotations(call, given.arguments)

    def body() -> Any:
        return call.body(*given.args, **given.kwargs)

    trace = session.run(body)
    session.data = None
    _warn_of_types(call, session)
    if _environment()[1] == "0":
        keep_fp32(trace)
    returned = [x for x in leaves(trace.result) if isinstance(x, NkiTensor)]
    _check_outputs(call, returned, session)
    if session.depends_on_data and call.data is None:
        _check_registers(call, trace.result)
    told = ", ".join(f"{x.dtype}{list(x.shape)}" for x in returned)
    return Traced(
        trace,
        [AccessPattern(x._buffer) for x in returned],
        _returned,
        session.depends_on_data or session.values_seen,
        told or "nothing",
    )


def _warn_of_types(call: Call, session: Session) -> None:
    """Warns of the fp8 type with values up to 448, which the compiler refuses before trn3: a user
    of a trn2 reports its words."""
    machine = session.trace.machine
    if machine.abilities.e4m3fn_products:
        return
    for buffer in session.trace.buffers:
        if buffer.dtype == ml_dtypes.float8_e4m3fn:
            warn(
                DTypeError(
                    f"{buffer.name or 'a tensor'} of kernel {call.name} is {buffer.dtype}"
                    f"{list(buffer.shape)} on {machine.name}",
                    rule="Data type F8E4M3FN is not supported on TRN1/TRN2 [NCC_EVRF051]",
                    fix="use float8_e4m3, whose largest value is 240, or float8_e5m2",
                    location=buffer.location or call.place,
                )
            )
            return


def _returned(leaf: Any, values: Iterator[Any]) -> Any:
    if isinstance(leaf, RunTimeInteger):
        return leaf.number()
    return _as_returned(next(values), leaf) if isinstance(leaf, NkiTensor) else leaf


def _grid(name: str, entries: object) -> Grid:
    lnc = entries[0] if isinstance(entries, tuple) and len(entries) == 1 else entries
    if (
        isinstance(lnc, bool)
        or not isinstance(lnc, (int, np.integer))
        or not (1 <= lnc <= MAX_CORES)
    ):
        raise ParameterError(
            f"kernel {name}[{entries!r}]",
            rule="a kernel is launched on the cores of one logical core: 1 or 2",
            fix="use kernel[1] or kernel[2], and loop over tiles in the kernel",
        )
    return Grid.of((NeuronCores(int(lnc)),))


class Packed(np.ndarray):
    """An array of integers that are packed elements of a type.

    Attributes:
        nki_type: its name.
    """

    nki_type: str = ""

    def __array_finalize__(self, other: Any) -> None:
        self.nki_type = getattr(other, "nki_type", "")


def _as_stored(leaf: Any) -> Any:
    """An array in the form that the instruction stream has it in."""
    if isinstance(leaf, np.ndarray) and type(leaf) is not Packed:
        kind = type_of(leaf.dtype, "an argument's dtype")
        if kind.stored != leaf.dtype:
            packed = leaf.view(kind.stored).view(Packed)  # as wide: the same memory, in any layout
            packed.nki_type = kind.name
            return packed
    return leaf


def _as_returned(value: Any, view: NkiTensor) -> Any:
    """An output as the view of it that the kernel returned."""
    layout, offset = view._layout, view.offset
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


def _check_registers(call: Call, result: Any) -> None:
    """A register or a scalar that is returned becomes a number, which needs data."""
    if any(isinstance(x, RunTimeInteger) for x in leaves(result)):
        raise OutputError(
            f"kernel {call.name} returns a register or a scalar, and is traced without data",
            rule="under jax.jit and torch_xla a kernel returns tensors",
            fix="store it with nisa.register_store or scalar_store into a tensor in nl.shared_hbm, "
            "and return that",
            location=call.place,
        )


def _check_cores(call: Call) -> None:
    if call.grid.size > call.target.machine.abilities.cores:
        raise ParameterError(
            f"kernel {call.name}[{call.grid.size}] on {call.target.machine.name}",
            rule="two cores make a logical core on NeuronCore-v3 (trn2) and later",
            fix="launch kernel[1], or set NEURON_PLATFORM_TARGET_OVERRIDE=trn2",
        )


def _environment() -> tuple[str, str, str, bool]:
    """Variables that a specialisation follows."""
    said = os.environ.get
    release = releases.release()
    return said(CORES, ""), said("NKI_PRECISE_FP", "1"), release, releases.tracing(release)


def _cores() -> int | None:
    """How many cores a launch without brackets is on; None for one, without a grid.

    Raises:
        ParameterError: the environment names another number than 1 and 2.
    """
    said = os.environ.get(CORES, "")
    if releases.release() == "0.6" or said in ("", "1"):
        return None
    if said != "2":
        raise ParameterError(
            f"NKI only supports LNC 1 or 2, but got {said}",
            rule=f"{CORES} is how many physical cores make a logical core",
            fix=f"set {CORES}=1 or {CORES}=2",
        )
    return 2


def _check_inside(name: str, grid: Grid, config: Config | None) -> None:
    """A kernel in a kernel has the configuration and the cores of the outer one."""
    outer = current_if_any()
    if releases.release() == "0.6" or not isinstance(outer, Session):
        return
    top = outer.config
    differs = []
    cores = outer.trace.grid.size
    if grid is not SINGLE and grid.size != cores:
        differs.append(f"is for {grid.size} core{'s' * (grid.size > 1)}, and the outer one {cores}")
    if config is not None and config.compile not in (None, top.compile):
        differs.append(f"has {config.compile}, and the outer one {top.compile or 'none'}")
    if not differs:
        return
    error = ParameterError(
        f"kernel {name}, called in kernel {outer.trace.name}, {' and '.join(differs)}",
        rule="a kernel in a kernel becomes a part of it, under one configuration, the outer one's",
        fix=f"leave it out of {name}, or give {outer.trace.name} specialization_config="
        "SpecializationConfig(allow_nested_config_override=True)",
    )
    if getattr(top.specialization, "allow_nested_config_override", False):
        warn(error)
    else:
        raise error


def _check_in_graph(name: str, grid: Grid, machine: Machine) -> None:
    """The compiler of the graph, as the environment configures it, is for as many cores."""
    if machine.abilities.cores < 2 or releases.release() == "0.6":
        return
    flag = re.search(r"--lnc[= ]\s*(\d+)", os.environ.get("NEURON_CC_FLAGS", ""))
    said = flag[1] if flag else os.environ.get(CORES, "")
    if said and said != str(grid.size):
        raise ParameterError(
            f"NKI kernel '{name}' is configured with LNC={grid.size}, but neuronx-cc is using "
            f"LNC={said}",
            rule="a kernel and the graph that it is a part of are compiled for one number of cores"
            + (": that of --lnc in NEURON_CC_FLAGS" if flag else f": {CORES}"),
            fix=f"set {CORES}={grid.size}"
            + (" and take --lnc out of NEURON_CC_FLAGS" if flag else "")
            + f", or call {name}(...) without brackets, which takes the variable",
            code="NCC_EVRF066",
        )


def _warn_of_cores(call: Call) -> None:
    """Warns where the environment names another number of cores for a logical core."""
    cores = os.environ.get(CORES, "")
    if cores and cores != str(call.grid.size):
        warn(
            ParameterError(
                f"kernel {call.name}[{call.grid.size}] with {CORES}={cores}",
                rule="on a device a kernel is launched on as many cores as the runtime joins in a "
                "logical core",
                fix=f"launch {call.name}[{cores}], or set {CORES}={call.grid.size}",
                location=call.place,
            )
        )


def _check_annotations(call: Call, arguments: dict[str, Any]) -> None:
    """Parameters that are annotated with nki.typing.tensor have that shape."""
    hints = getattr(call.func, "__annotations__", {})
    for name, hint in hints.items():
        value = arguments.get(name)
        if not isinstance(hint, shape_of) or not isinstance(value, NkiTensor):
            continue
        fits = len(hint.shape) == value.ndim and all(
            not isinstance(n, int) or n == m for n, m in zip(hint.shape, value.shape, strict=True)
        )
        if not fits:
            raise ParameterError(
                f"argument '{name}' of {call.name} has the shape {list(value.shape)}",
                rule=f"its annotation is {hint!r}",
                fix="pass a tensor of that shape",
            )


def _check_outputs(call: Call, returned: list[NkiTensor], session: Session) -> None:
    trace = session.trace
    for t in returned:
        if t.buffer is not MemoryRegion.shared_hbm:
            raise OutputError(
                f"kernel {call.name} returns {t.describe()}",
                rule="outputs are in shared HBM",
                fix="declare it with buffer=nl.shared_hbm; copy tiles into such a tensor",
                location=call.place,
            )
        if t._buffer.role is Role.LOCAL:
            session.checker.on_output(AccessPattern(t._buffer))
    if not returned and not trace.written_arguments and all(i.outs for i in trace.instructions):
        session.checker.report(
            "output",
            OutputError(
                f"kernel {call.name} leaves no result: it returns no tensor and writes none "
                "of its arguments",
                rule="what a kernel computes is gone when it ends, but for HBM that it returns",
                fix="return a tensor in nl.shared_hbm",
            ),
            mild=True,
        )


NKI = Dialect(
    "nki",
    _trace,
    _grid,
    machine=DEFAULTS["nki"],
    cores=_cores,
    check_inside=_check_inside,
    check_in_graph=_check_in_graph,
    as_stored=_as_stored,
    environment=_environment,
    wide=WIDE,
)
