"""What XLA's CPU backend makes of a module of torch_xla.

torch_xla does not hand out what it compiled. XLA writes it into a folder when `XLA_FLAGS` asks for
that, and reads these flags once in a process, before its first program. So modules are compiled
in a process of their own. `optimized` starts it with the first module, since the import of
torch_xla takes seconds, and it waits for more until this process ends: `serve`.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from nkibook.hlo.parse import parse_module

_TORCH_TYPES = {
    "pred": "bool",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
_TIMEOUT = 240  # seconds: most of it is the import of torch_xla


class NotCompiled(RuntimeError):
    """XLA wrote no optimised module; the message has the last lines of what it said."""


def optimized(proto: bytes, parameters: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[str, list]:
    """The text of a module after XLA's optimisation for the CPU. Nothing is executed.

    Args:
        proto: the module, as `_get_xla_tensors_hlo_proto` gives it.
        parameters: XLA's dtype ("f32") and the shape of each parameter of its entry.

    Returns:
        The text, and for each parameter of the new entry the number of the old one.

    Raises:
        NotCompiled: XLA refused the module, or a parameter has a dtype that torch does not have.
    """
    unknown = sorted({dtype for dtype, _ in parameters} - set(_TORCH_TYPES))
    if unknown:
        raise NotCompiled(f"a parameter has dtype {', '.join(unknown)}, which torch has not.")
    folder, process = _compiler()
    for old in folder.glob("dump/*"):
        old.unlink()
    (folder / "module.pb").write_bytes(proto)
    (folder / "parameters.json").write_text(json.dumps(parameters))
    assert process.stdin
    assert process.stdout
    watch = threading.Timer(_TIMEOUT, process.kill)
    watch.start()
    try:
        print("compile", file=process.stdin, flush=True)
        said = json.loads(process.stdout.readline() or "null")
    except BrokenPipeError:
        said = None
    finally:
        watch.cancel()
    if said is None:
        _compiler.cache_clear()
        process.wait()
        last = (folder / "errors").read_text().strip().splitlines()[-3:]
        raise NotCompiled("\n".join([f"no answer within {_TIMEOUT} s, or it ended.", *last]))
    written = list(folder.glob("dump/*.cpu_after_optimizations.txt"))
    if len(written) != 1:
        raise NotCompiled(said or "XLA wrote no text.")
    (before,) = folder.glob("dump/*.before_optimizations.txt")
    order = _order(before.read_text())
    if sorted(order) != list(range(len(parameters))):
        raise NotCompiled("torch_xla made constants of scalar parameters.")
    return written[0].read_text(), order


@functools.cache
def _compiler() -> tuple[pathlib.Path, subprocess.Popen[str]]:
    """The folder where XLA writes, and the process that compiles; both are gone at exit."""
    temporary = tempfile.TemporaryDirectory()
    folder = pathlib.Path(temporary.name)
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({temporary.name!r})"],
            env=_environment(os.environ, folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def end() -> None:
        process.kill()
        process.wait()
        temporary.cleanup()

    atexit.register(end)
    return folder, process


def _order(before: str) -> list[int]:
    """Of the module that calls ours: the number of ours for each of its parameters."""
    entry = parse_module(before).entry
    numbers = {parameter.name: n for n, parameter in enumerate(entry.parameters)}
    (call,) = (i for i in entry.instructions if i.opcode == "call")
    ours = {numbers[name]: n for n, name in enumerate(call.operands) if name in numbers}
    return [ours[n] for n in sorted(ours)]


def _environment(ours: Mapping[str, str], folder: pathlib.Path) -> dict[str, str]:
    flags = [
        ours.get("XLA_FLAGS", ""),
        f"--xla_dump_to={folder / 'dump'}",
        "--xla_dump_hlo_as_text",
        "--xla_dump_hlo_module_re=SyncTensorsGraph.*",
    ]
    return {
        **ours,
        "PJRT_DEVICE": "CPU",
        "XLA_FLAGS": " ".join(flags).strip(),
    }


def _compile(folder: pathlib.Path) -> None:
    """Compile `module.pb` of the folder, as the function that another program calls."""
    import torch
    import torch_xla

    xla: Any = torch_xla._XLAC
    computation = xla._xla_op_computation_from_module_proto(
        "module", (folder / "module.pb").read_bytes()
    )
    device = torch_xla.device()
    # torch_xla makes constants of scalars that are 0 or 1, and one parameter of equal scalars.
    parameters = [
        torch.full(shape, number + 2, dtype=getattr(torch, _TORCH_TYPES[dtype])).to(device)
        for number, (dtype, shape) in enumerate(
            json.loads((folder / "parameters.json").read_text())
        )
    ]
    results = xla._xla_user_computation("xla::module", parameters, computation)
    # Compiles and does not run. XLA's CPU runtime knows no NKI kernel and says so here, after it
    # has written the dump; without a dump, this error is what the reader is told.
    xla._xla_warm_up_cache(results, [])


def serve(folder_name: str) -> None:
    """Compile the folder's module for each line of standard input; answer with the error, or ""."""
    folder = pathlib.Path(folder_name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for _ in sys.stdin:
        error = ""
        try:
            _compile(folder)
        except Exception as found:
            error = "\n".join(str(found).strip().splitlines()[-3:]) or type(found).__name__
        print(json.dumps(error), file=answers, flush=True)
