"""What XLA's CPU backend makes of a module of torch_xla.

torch_xla does not hand out what it compiled. XLA writes it into a folder when `XLA_FLAGS` asks for
that, and reads these flags once in a process, before its first program. So the module is compiled
in a process of its own: `optimized` starts it, and this file is what it runs.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
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
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "module.pb").write_bytes(proto)
        (folder / "parameters.json").write_text(json.dumps(parameters))
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__, name],
                env=_environment(os.environ, folder),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
            )
        except subprocess.TimeoutExpired as error:
            raise NotCompiled(f"it took more than {_TIMEOUT} s.") from error
        written = list(folder.glob("dump/*.cpu_after_optimizations.txt"))
        if len(written) != 1:
            raise NotCompiled("\n".join(done.stderr.strip().splitlines()[-3:]) or "no text.")
        (before,) = folder.glob("dump/*.before_optimizations.txt")
        order = _order(before.read_text())
        if sorted(order) != list(range(len(parameters))):
            raise NotCompiled("torch_xla made constants of scalar parameters.")
        return written[0].read_text(), order


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


if __name__ == "__main__":
    _compile(pathlib.Path(sys.argv[1]))
