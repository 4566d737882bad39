"""HLO text made short enough to read line by line, and equal in every run.

Names lose the ids that depend on what the process traced before and are numbered anew; layouts,
metadata, source paths and other boilerplate go; long strings are cut. What is left is HLO that
says what is computed from what.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nkibook.hlo.parse import (
    CALLING_ATTRIBUTES,
    Computation,
    Instruction,
    ParsedModule,
)

# Attributes that say nothing about what is computed. The thread partition that XLA's CPU backend
# writes into the backend_config of ordinary instructions depends on the machine's cores.
_BOILERPLATE = (
    "api_version",
    "channel_id",
    "frontend_attributes",
    "metadata",
    "operand_layout_constraints",
    "origin",
    "use_global_device_ids",
)
_SOURCE_KEYS = (
    "source_file",
    "source_line",
    "source_end_line",
    "stack_frame_id",
    "source_column",
    "source_end_column",
)
_SOURCE = re.compile(rf' ?\b(?:{"|".join(_SOURCE_KEYS)})=(?:"(?:[^"\\]|\\.)*"|\d+)')
_ID = re.compile(r"\.\d+(?=\.|$)")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_REFERENCE = re.compile(r"%?([A-Za-z_][\w.\-]*)")

_LONG_STRING = 24
_KEPT_OF_STRING = 12
_LONG_LITERAL = 48


def shorten(module: ParsedModule, arguments: Sequence[int] = ()) -> ParsedModule:
    """The module with short names and without boilerplate.

    Instruction names are unique within their computation, computation names within the module.
    `arguments` are numbers of the entry's parameters, which become its first, in this order.
    """
    names = _renumber(c.name for c in module.computations)
    computations = tuple(
        _computation(_in_order(c, arguments) if c.is_entry else c, names)
        for c in module.computations
    )
    return ParsedModule(_ID.sub("", module.name), computations)


def lines(
    module: ParsedModule, labels: Mapping[int, str]
) -> Iterator[tuple[str, Instruction | None]]:
    """The lines of a module, each with the instruction on it, or None.

    Computations start with `name (parameters) -> result {`. `labels` gives what the entry's
    parameters are called in the user's function, by number; each becomes a comment.
    """
    yield f"HloModule {module.name}", None
    for computation in module.computations:
        yield "", None
        yield _header(computation), None
        for instruction in computation.instructions:
            number = instruction.parameter_number
            label = labels.get(number) if computation.is_entry and number is not None else None
            yield f"  {instruction}" + (f" /*{label}*/" if label else ""), instruction
        yield "}", None


def shorten_strings(text: str) -> str:
    """Cuts every long quoted string, leaving its first characters and an ellipsis."""

    def cut(match: re.Match[str]) -> str:
        inside = match[1]
        return match[0] if len(inside) <= _LONG_STRING else f'"{inside[:_KEPT_OF_STRING]}…"'

    return _STRING.sub(cut, text)


def without_source(text: str) -> str:
    """Full HLO text without the paths and lines of the Python source."""
    text = re.sub(
        r"\n(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d[^\n]*\n)*", "\n", text
    )
    return _SOURCE.sub("", text).replace(", metadata={}", "").replace("={ ", "={")


def _header(computation: Computation) -> str:
    parameters = ", ".join(f"{p.name}: {p.shape}" for p in computation.parameters)
    entry = "ENTRY " if computation.is_entry else ""
    return f"{entry}{computation.name} ({parameters}) -> {computation.root.shape} {{"


def _computation(computation: Computation, computations: Mapping[str, str]) -> Computation:
    names = _renumber(i.name for i in computation.instructions)
    instructions = tuple(
        dataclasses.replace(
            instruction,
            name=names[instruction.name],
            shape=instruction.shape.without_layout(),
            operands=tuple(names[operand] for operand in instruction.operands),
            attributes=_attributes(instruction, computations),
            literal=_literal(instruction.literal),
        )
        for instruction in computation.instructions
    )
    return Computation(computations[computation.name], instructions, computation.is_entry)


def _in_order(entry: Computation, arguments: Sequence[int]) -> Computation:
    """The entry with its parameters numbered anew, and with the numbers in their names."""
    rest = [n for n in range(len(entry.parameters)) if n not in arguments]
    new = {str(old): str(number) for number, old in enumerate([*arguments, *rest])}
    names = {
        p.name: re.sub(rf"(?<!\d){p.literal}(?=\.|$)", new[p.literal], p.name, count=1)
        for p in entry.parameters
    }
    instructions = tuple(
        dataclasses.replace(
            instruction,
            name=names.get(instruction.name, instruction.name),
            operands=tuple(names.get(operand, operand) for operand in instruction.operands),
            literal=new[instruction.literal] if instruction.name in names else instruction.literal,
        )
        for instruction in entry.instructions
    )
    return Computation(entry.name, instructions, entry.is_entry)


def _renumber(names: Iterable[str]) -> dict[str, str]:
    """A stable short name for each: the part before the id, and a number where that repeats."""
    names = list(names)
    bases = [_ID.sub("", name) for name in names]
    total = {base: bases.count(base) for base in bases}
    seen: dict[str, int] = {}
    renumbered = {}
    for name, base in zip(names, bases, strict=True):
        seen[base] = seen.get(base, 0) + 1
        renumbered[name] = base if total[base] == 1 else f"{base}.{seen[base]}"
    return renumbered


def _attributes(instruction: Instruction, computations: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for key, value in instruction.attributes.items():
        if key in _BOILERPLATE or (key == "backend_config" and instruction.opcode != "custom-call"):
            continue
        if key in CALLING_ATTRIBUTES:
            value = _REFERENCE.sub(lambda m: computations.get(m[1], m[1]), value)
        elif key == "backend_config":
            value = shorten_strings(value)
        kept[key] = value
    return kept


def _literal(literal: str) -> str:
    return literal if len(literal) <= _LONG_LITERAL else "{...}"
