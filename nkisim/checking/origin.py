"""All operands of an instruction were made in the same trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import ScopeError
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Buffer

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def check_origin(instr: Instruction, tiles: tuple[AccessPattern, ...], trace: Trace) -> None:
    """Check that all operands were made in this trace: a kernel that keeps a tile outside of itself
    finds it there in the next one. Raises ScopeError."""
    for tensor in tiles:
        buffer = tensor.buffer
        if is_foreign(buffer, trace.buffers):
            made = f", made at {buffer.location}" if buffer.location else ""
            raise ScopeError(
                f"{instr.label} uses {buffer!r} of an earlier trace{made}",
                rule="each trace of a kernel makes its own tensors, and a kernel is traced for "
                "each set of shapes, and to be profiled",
                fix="keep tensors in local variables of the kernel, not in a global, an "
                "attribute or a container from outside",
                code="err_local_variable_used_out_of_scope",
                location=instr.location,
            )


def is_foreign(buffer: Buffer, buffers: list[Buffer]) -> bool:
    """Whether a tensor is none of a trace's."""
    return buffer.number >= len(buffers) or buffers[buffer.number] is not buffer
