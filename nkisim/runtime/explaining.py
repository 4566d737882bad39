"""`nkisim.explain`: the instructions of a kernel beside the source lines that they come from."""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from nkisim.errors import Location
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction
from nkisim.numerics.program import Program
from nkisim.runtime.by_data import ProgramByData, no_values
from nkisim.runtime.kernel import as_kernel

Row = tuple[str, str, str, str, int]  # engine, instruction, written, read, bytes


@dataclass(frozen=True, repr=False)
class Explanation:
    """A kernel's instruction list. Prints as text; a notebook shows it as a table.

    Attributes:
        name: the kernel and its launch grid.
        lines: for each kernel line, in the order of first use, its instructions: each kind once,
            with how often it runs. A row is (engine, instruction, written, read, bytes).
        count: instructions in all.
    """

    name: str
    lines: tuple[tuple[Location | None, tuple[tuple[Row, int], ...]], ...]
    count: int

    def __str__(self) -> str:
        out = [f"{self.name}: {self.count:,} instructions"]
        for place, rows in self.lines:
            out.append(f"{place.lineno:5}  {place.text}" if place else "    ?")
            for (engine, label, written, read, size), times in rows:
                often = f"{times:,} x " if times > 1 else ""
                arrow = f"{written} <- {read}" if written and read else written or read
                out.append(f"         {often}{engine} {label}: {arrow} ({size:,} bytes)")
        return "\n".join(out)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = ("line", "times", "engine", "instruction", "writes", "reads", "bytes")
        body = []
        for place, rows in self.lines:
            text = f"<code>{html.escape(place.text)}</code>" if place else ""
            number = f'<td data-name="line">{place.lineno if place else ""}</td>'
            body.append(f'<tr>{number}<td colspan="6">{text}</td></tr>')
            for (engine, label, written, read, size), times in rows:
                operands = (_unbroken(written), _unbroken(read))
                cells = (f"{times:,}", engine, label, *operands, f"{size:,}")
                named = zip(head[1:], map(html.escape, cells), strict=True)
                row = "".join(f'<td data-name="{name}">{c}</td>' for name, c in named)
                body.append(f"<tr><td></td>{row}</tr>")
        titles = "".join(f'<th scope="col">{h}</th>' for h in head)
        caption = html.escape(f"{self.name}: {self.count:,} instructions")
        return (
            f'<table class="explain"><caption>{caption}</caption><thead><tr>{titles}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table>"
        )


def _unbroken(operands: str) -> str:
    """Operands whose shapes a narrow column does not break at their commas."""
    return re.sub(r"\[[^]]*]", lambda shape: shape[0].replace(" ", "\u00a0"), operands)


def explain(kernel: Any, *args: Any, **kwargs: Any) -> Explanation:
    """The instructions that `kernel(*args, **kwargs)` runs, beside its source lines.

    The kernel is traced, not run. Shapes of operands are those that the instruction touches; bytes
    are what it writes.

    Args:
        kernel: a function, a kernel, or a kernel bound to a grid.
        *args, **kwargs: its arguments; a TensorSpec may stand for a tensor.

    Raises:
        KernelError: the kernel breaks a rule.
        ParameterError: what the kernel does depends on data, and an argument is a TensorSpec.
    """
    kernel = as_kernel(kernel)
    program = kernel.specialize(args, kwargs).program
    if isinstance(program, ProgramByData):
        raise no_values(kernel.__name__)
    name = kernel.__name__ + (f"[{kernel.grid}]" if kernel.grid.shape else "")
    return explain_program(program, name)


def explain_program(program: Program, name: str) -> Explanation:
    """The instructions that each kernel line of a traced program became, as text.

    Args:
        program: the program.
        name: of the kernel, for the text.
    """
    lines: dict[Location | None, Counter[Row]] = {}
    for instr in program.instructions:
        lines.setdefault(instr.location, Counter())[_row(instr)] += 1
    return Explanation(
        name,
        tuple((place, tuple(rows.items())) for place, rows in lines.items()),
        len(program.instructions),
    )


def _row(instr: Instruction) -> Row:
    size = sum(t.size * t.itemsize for t in instr.outs)
    written = ", ".join(_operand(t) for t in instr.outs)
    return instr.engine.value, instr.label, written, ", ".join(map(_operand, instr.ins)), size


def _operand(x: object) -> str:
    if not isinstance(x, AccessPattern):
        return repr(x)
    name = f" {x.name}" if x.name else ""
    return f"{x.dtype}{list(x.shape)} {x.space.label}{name}"
