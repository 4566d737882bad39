"""The stages of judging, each in a process of its own: `trace` runs the kernel's Python, without
values; `run` gets the trace, and never runs the kernel's Python.

`python -m nkisim.judging.worker` is the clean process from which they are forked.
"""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from nkisim.checking import Checker, checks
from nkisim.checking.settings import CHECKS, Mode
from nkisim.errors import KernelError, LimitError, Location, NkiWarning, ParameterError
from nkisim.frontends.nki.kernel import NKI
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.grid import NeuronCores
from nkisim.ir.instruction import Instruction
from nkisim.ir.limits import set_limits
from nkisim.ir.memory import Role
from nkisim.ir.trace import Trace
from nkisim.judging.isolation import Message, serve
from nkisim.judging.transport import UntrustedTrace, dumps, loads
from nkisim.machine.target import OVERRIDE, PLATFORMS, target
from nkisim.numerics.program import Program, TensorSpec
from nkisim.report import data
from nkisim.runtime.by_data import ProgramByData
from nkisim.runtime.importing import import_file
from nkisim.runtime.install import install
from nkisim.runtime.kernel import Kernel, as_kernel
from nkisim.runtime.profiling import timeline

_PRELOADED = (
    "neuronxcc.nki",
    "neuronxcc.nki.language",
    "neuronxcc.nki.isa",
    "neuronxcc.nki.compiler",
    "neuronxcc.nki.typing",
    "nki",
    "nki.language",
    "nki.isa",
)


def trace(header: dict[str, Any], blobs: list[bytes]) -> Message:
    """Import the kernel's file, trace the kernel on shapes, and give the trace.

    Args:
        header: file and function of the kernel; chip, grid, cores; arguments, [{name, shape,
            dtype}]; constants, by name; strict; limits; values, whether `blobs` has an array for
            each argument: where registers read inputs.
        blobs: see `values`.

    Returns:
        {warnings, replaced} and the trace; or {error, warnings, replaced}.
    """
    os.environ[OVERRIDE] = header["chip"]
    set_limits(**header["limits"]["launch"])
    before = _snapshot()
    modes: dict[str, Mode] = dict.fromkeys(CHECKS, "error") if header["strict"] else {}
    with warnings.catch_warnings(record=True) as caught, checks(**{**modes, "values": "error"}):
        warnings.simplefilter("ignore")
        warnings.simplefilter("error" if header["strict"] else "always", NkiWarning)
        try:
            found: dict[str, Any] = {}
            parts = [_traced(header, blobs)]
        except MemoryError:
            raise
        except BaseException as error:
            found, parts = {"error": _described(error, header["file"])}, []
    said = [str(w.message) for w in caught if issubclass(w.category, NkiWarning)]
    return {**found, "warnings": said[:20], "replaced": _replaced(before)}, parts


def _traced(header: dict[str, Any], blobs: list[bytes]) -> bytes:
    """The kernel's trace as bytes."""
    module = import_file(header["file"])
    wanted = header["function"]
    function = getattr(module, wanted, None)
    if not callable(function):
        known = [n for n, value in vars(module).items() if isinstance(value, Kernel)]
        raise ParameterError(
            f"{os.path.basename(header['file'])} has no kernel {wanted!r}",
            rule="the task names the function that is judged",
            fix=f"name it so; the file's kernels are {', '.join(known) or 'none'}",
        )
    kernel = as_kernel(function)
    kernel = _launched(kernel.on(target(default=kernel.dialect.machine).machine), header)
    specs = [
        TensorSpec(tuple(x["shape"]), as_dtype(x["dtype"]), x["name"]) for x in header["arguments"]
    ]
    arguments: list[Any] = list(specs)
    if header["values"]:
        arguments = [
            np.frombuffer(blob, s.dtype).reshape(s.shape).copy()
            for blob, s in zip(blobs, specs, strict=True)
        ]
    if kernel.dialect.as_stored is not None:
        arguments = [kernel.dialect.as_stored(x) for x in arguments]
    special = kernel.specialize(*_placed(kernel, [s.name for s in specs], arguments, header))
    program = special.program
    if isinstance(program, ProgramByData):
        raise ParameterError(
            f"kernel {kernel.__name__} reads values of its arguments to tell what to do",
            rule="a judged kernel is traced on shapes, before there are values; the task names the "
            "inputs that registers may read",
            fix="name them in the task: registers = [...]; or compute without registers",
        )
    outputs = [AccessPattern(buffer) for buffer in program.output_buffers]
    return dumps(program.trace, outputs)


def _placed(
    kernel: Kernel, names: list[str], arguments: list[Any], header: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments, and those by name: tensors too, where the task calls them as the kernel
    calls its parameters, so that constants may stand between them.

    Raises:
        ParameterError: the task has these names in another order.
    """
    parameters = list(kernel.signature.parameters)
    if not set(names) <= set(parameters):
        return arguments, header["constants"]
    if names != [p for p in parameters if p in names]:
        raise ParameterError(
            f"kernel {kernel.__name__}{kernel.signature} has the task's inputs {', '.join(names)} "
            "in another order",
            rule="a task lists the inputs in the order of the kernel's parameters",
            fix="give the parameters the order of the task",
        )
    return [], {**dict(zip(names, arguments, strict=True)), **header["constants"]}


def _launched(kernel: Kernel, header: dict[str, Any]) -> Kernel:
    grid, cores = header["grid"], header["cores"]
    if grid is not None:
        entries = tuple(NeuronCores(n["cores"]) if isinstance(n, dict) else n for n in grid)
        return kernel[entries]
    if cores == 1:
        return kernel
    if kernel.dialect is NKI:
        return kernel[cores]
    return kernel[(NeuronCores(cores),)]


def _described(error: BaseException, file: str) -> dict[str, Any]:
    """An error as data; of Python's own errors with the line of the kernel's file."""
    said = data.of_error(error)
    if not isinstance(error, KernelError):
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        last = frames[-1] if frames else None
        said["line"] = data.of_location(
            last and Location(last.filename, last.lineno or 0, last.name)
        )
    said["limit"] = isinstance(error, LimitError)
    return said


# -- what is replaced --------------------------------------------------------------------------

Snapshot = dict[tuple[str, str], tuple[Any, Any]]


def _snapshot() -> Snapshot:
    """The functions and classes of the simulator, of NumPy and of Python that a kernel meets."""
    found: Snapshot = {}
    for owner, name, value in _entries():
        found[owner, name] = value, getattr(value, "__code__", None)
    return found


def _entries() -> Iterator[tuple[str, str, Any]]:
    modules = [
        (name, module)
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in ("nkisim", "ml_dtypes") and module is not None
    ]
    modules += [("numpy", np), ("numpy.random", np.random), ("numpy.linalg", np.linalg)]
    modules += [("builtins", builtins), ("time", time), ("ml_dtypes", ml_dtypes)]
    for of, module in modules:
        for name, value in list(vars(module).items()):
            if callable(value) and not name.startswith("__"):
                yield of, name, value
                own = isinstance(value, type) and value.__module__ == of
                if own and of.startswith("nkisim"):
                    for member, function in list(vars(value).items()):
                        if isinstance(function, FunctionType | property):
                            yield of, f"{name}.{member}", function


def _replaced(before: Snapshot) -> list[str]:
    """What has another function or class under its name than before."""
    now = _snapshot()
    gone: tuple[None, None] = None, None
    return [
        f"{owner}.{name}"
        for (owner, name), (value, code) in before.items()
        if (found := now.get((owner, name), gone))[0] is not value or found[1] is not code
    ][:20]


# -- running a trace ---------------------------------------------------------------------------


def run(header: dict[str, Any], blobs: list[bytes]) -> Message:
    """Check a trace again, model it, and run it on arrays.

    Args:
        header: limits; runs, whether there are arrays; registers, whether it was traced on values;
            chip, cores: of the launch.
        blobs: the trace, and the inputs' bytes.

    Returns:
        {embedded, profile, inputs, outputs, aliases, written} and the outputs; or
        {error}. See `_about`.
    """
    set_limits(**header["limits"]["launch"])
    try:
        traced, outputs = loads(blobs[0])
        if len(traced.instructions) > header["limits"]["launch"]["instructions"]:
            raise UntrustedTrace(f"{len(traced.instructions):,} instructions")
        if (traced.machine, traced.grid.cores) != (PLATFORMS[header["chip"]], header["cores"]):
            raise UntrustedTrace(f"{traced.machine.name} on {traced.grid.cores} cores")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NkiWarning)  # told when it was traced
            _checked(traced, outputs, header["registers"])
            program = Program(traced, outputs)
            found = _about(program)
            found["profile"] = data.of_timeline(timeline(traced))
            parts: list[bytes] = []
            if header["runs"]:
                given = zip(blobs[1:], program.inputs, strict=True)
                inputs = [np.frombuffer(b, s.dtype).reshape(s.shape).copy() for b, s in given]
                parts = [x.tobytes() for x in program.run(inputs)]
    except MemoryError:
        raise
    except UntrustedTrace as error:
        return {"error": {"type": "UntrustedTrace", "message": str(error), "line": None}}, []
    except Exception as error:  # what a forged trace may do to what checks or runs it, too
        return {"error": _described(error, "")}, []
    return found, parts


def _checked(traced: Trace, outputs: list[Any], registers: bool) -> None:
    """Run the checks of the simulator over a trace again, as if it were written down now."""
    instructions, traced.instructions = traced.instructions, []
    traced.written_arguments, traced.partly_written = [], set()
    traced.read_undefined = set()
    checker = Checker()
    checker.simulated = True
    if registers:
        checker.modes["input"] = "off"
    checker.begin(traced)
    for instruction in instructions:
        if type(instruction) is not Instruction:
            raise UntrustedTrace(f"an instruction that is a {type(instruction).__name__}")
        checker.on_instruction(instruction)
        traced.instructions.append(instruction)
    checker.finish()
    for tensor in outputs:
        if tensor.buffer.role is Role.LOCAL:
            checker.on_output(tensor)


def _about(program: Program) -> dict[str, Any]:
    """The inputs and the outputs of a program, and what is embedded in it.

    Returns:
        {inputs: [{name, shape, dtype}], outputs: the same, aliases: [[output, input],
        ...], written: [input, ...], embedded: bytes of constants and tables that are no identity
        matrix}.
    """
    traced = program.trace
    constants = [b.data for b in traced.buffers if b.role is Role.CONSTANT and b.data is not None]
    arrays = {id(x): x for i in traced.instructions for x in i.settings.given.values()}
    constants += [x for x in arrays.values() if isinstance(x, np.ndarray)]
    return {
        "inputs": [_spec(s) for s in program.inputs],
        "outputs": [_spec(s) for s in program.outputs],
        "aliases": [[o, i] for o, i in program.aliases.items()],
        "written": [i for i in range(len(program.inputs)) if program.writes_input(i)],
        "embedded": sum(x.nbytes for x in constants if not _is_identity(x)),
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "shape": list(spec.shape), "dtype": str(spec.dtype)}


def _is_identity(x: np.ndarray) -> bool:
    square = x.ndim == 2 and x.shape[0] == x.shape[1]
    return square and np.array_equal(x.astype(np.float32), np.identity(x.shape[0], np.float32))


if __name__ == "__main__":
    install(in_place_of_sdk=True)
    for _name in _PRELOADED:
        importlib.import_module(_name)
    serve({"trace": trace, "run": run})
