"""Reads HLO text into shapes, instructions and computations.

XLA prints the same module in several styles: torch_xla writes the shape of every operand, JAX
leaves them out, optimised modules add a schedule and metadata. This parser takes all of them. It
understands the grammar (names, shapes, operands, attributes) and none of the opcodes, so an
instruction it never saw needs no change here.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

# Bits of one element, by XLA primitive type (xla/xla_data.proto). `pred` takes a whole byte.
DTYPE_BITS = {
    "pred": 8,
    **{f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    "f4e2m1fn": 4,
    **dict.fromkeys(("f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz"), 8),
    **dict.fromkeys(("f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"), 8),
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
    "c128": 128,
    "token": 0,
    "opaque": 0,
}

_NAME = re.compile(r"%?[A-Za-z_][\w.\-]*")
_OPCODE = re.compile(r"[a-z][a-z0-9\-]*")
_DTYPE = re.compile(r"[a-z][a-z0-9]*")
_KEY = re.compile(r"[A-Za-z_][\w.\-]*")
_SPACE = re.compile(r"(?:\s|/\*.*?\*/)*", re.DOTALL)
_METADATA = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s{}]+)')
_ESCAPE = re.compile(r"\\([0-7]{3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
# Index tables that newer XLA versions print between the module line and the first computation.
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_CLOSING = {"(": ")", "[": "]", "{": "}"}

# Attributes whose value is the name of a computation, or a braced list of them.
CALLING_ATTRIBUTES = (
    "calls",
    "to_apply",
    "condition",
    "body",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
    "select",
    "scatter",
)


class HloParseError(ValueError):
    """HLO text that does not follow the grammar; the message has the line and what was expected."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """An array shape such as `bf16[128,512]{1,0}`, or a tuple of shapes.

    `dtype` is XLA's name of the element type ("tuple" for a tuple), `dims` the sizes (for a
    bounded dynamic dimension, its bound), `layout` the text between the layout's braces
    (minor-to-major order, then tiling) or None where XLA printed none.
    """

    dtype: str
    dims: tuple[int, ...] = ()
    layout: str | None = None
    dynamic: tuple[bool, ...] = ()
    elements: tuple[Shape, ...] = ()

    @property
    def is_tuple(self) -> bool:
        return self.dtype == "tuple"

    @property
    def nbytes(self) -> int:
        """Bytes of the data, without padding or tiling; a tuple counts its elements."""
        if self.is_tuple:
            return sum(element.nbytes for element in self.elements)
        if self.dtype not in DTYPE_BITS:
            raise KeyError(f"no element size is known for the HLO type {self.dtype!r}")
        bits = DTYPE_BITS[self.dtype]
        for size in self.dims:
            bits *= size
        return (bits + 7) // 8

    def leaves(self) -> Iterator[Shape]:
        """The array shapes of a possibly nested tuple, in order; the shape itself if an array."""
        if not self.is_tuple:
            yield self
        for element in self.elements:
            yield from element.leaves()

    def without_layout(self) -> Shape:
        elements = tuple(element.without_layout() for element in self.elements)
        return dataclasses.replace(self, layout=None, elements=elements)

    def __str__(self) -> str:
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.elements)) + ")"
        bounds = self.dynamic or (False,) * len(self.dims)
        dims = ",".join(
            f"<={size}" if bound else str(size)
            for size, bound in zip(self.dims, bounds, strict=True)
        )
        layout = "" if self.layout is None else f"{{{self.layout}}}"
        return f"{self.dtype}[{dims}]{layout}"


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One HLO instruction. `operands` are names in the same computation.

    `literal` is what stands between the parentheses of an instruction that has no operands: the
    value of a `constant`, the number of a `parameter`. `attributes` holds everything after the
    closing parenthesis, in XLA's order, each value as XLA wrote it.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...] = ()
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    literal: str = ""
    is_root: bool = False

    @property
    def dtype(self) -> str:
        return self.shape.dtype

    @property
    def layout(self) -> str | None:
        return self.shape.layout

    @property
    def parameter_number(self) -> int | None:
        """Which argument of the computation this `parameter` is; None for other opcodes."""
        return int(self.literal) if self.opcode == "parameter" else None

    @property
    def metadata(self) -> dict[str, str]:
        """The `metadata={...}` attribute, decoded; empty when XLA printed none."""
        pairs = _METADATA.findall(self.attributes.get("metadata", ""))
        return {key: unquote(value) for key, value in pairs}

    @property
    def op_name(self) -> str:
        """The framework operation this came from, for example `jit(f)/mul`; "" if unknown."""
        return self.metadata.get("op_name", "")

    @property
    def called_computations(self) -> tuple[str, ...]:
        """Names of the computations that this instruction calls (a fusion's body, a reducer)."""
        values = (self.attributes[key] for key in CALLING_ATTRIBUTES if key in self.attributes)
        return tuple(name.lstrip("%") for value in values for name in _NAME.findall(value))

    def __str__(self) -> str:
        inside = self.literal or ", ".join(self.operands)
        attributes = "".join(f", {key}={value}" for key, value in self.attributes.items())
        root = "ROOT " if self.is_root else ""
        return f"{root}{self.name} = {self.shape} {self.opcode}({inside}){attributes}"


@dataclasses.dataclass(frozen=True)
class Computation:
    """A named list of instructions, each after the ones it uses; one of them is the root."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False

    @functools.cached_property
    def _by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    def __getitem__(self, name: str) -> Instruction:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def root(self) -> Instruction:
        return next(i for i in self.instructions if i.is_root)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """The `parameter` instructions, by parameter number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: i.parameter_number or 0))

    def operand_shapes(self, instruction: Instruction) -> tuple[Shape, ...]:
        return tuple(self[name].shape for name in instruction.operands)

    def __str__(self) -> str:
        lines = "\n".join(f"  {instruction}" for instruction in self.instructions)
        return f"{'ENTRY ' if self.is_entry else ''}{self.name} {{\n{lines}\n}}"


@dataclasses.dataclass(frozen=True)
class ParsedModule:
    """A whole module: its name, the attributes of its first line, its computations in order."""

    name: str
    computations: tuple[Computation, ...]
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def entry(self) -> Computation:
        return next(c for c in self.computations if c.is_entry)

    def __str__(self) -> str:
        attributes = "".join(f", {key}={value}" for key, value in self.attributes.items())
        bodies = "\n\n".join(map(str, self.computations))
        return f"HloModule {self.name}{attributes}\n\n{bodies}\n"


def unquote(value: str) -> str:
    """The text of a quoted HLO string, escapes resolved; an unquoted value comes back unchanged."""
    if len(value) < 2 or not (value[0] == value[-1] == '"'):
        return value
    simple = {"n": "\n", "t": "\t", "r": "\r"}

    def resolve(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 3:  # octal \ooo or hexadecimal \xhh: one byte of UTF-8
            return chr(int(code, 8) if code[0] != "x" else int(code[1:], 16))
        return simple.get(code, code)

    text = _ESCAPE.sub(resolve, value[1:-1])
    if not _ESCAPE.search(value):
        return text
    try:  # escaped bytes are UTF-8; text that already holds wider characters is left alone
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def parse_module(text: str) -> ParsedModule:
    """Parses the text of one HLO module.

    Raises HloParseError, with the line number and the line, when the text is not HLO, when an
    operand names no instruction of its computation, or when entry or root are missing.
    """
    return _Parser(text).module()


def split_top_level(text: str, separator: str = ",") -> list[str]:
    """Splits at separators that are outside brackets and quotes; empty parts are dropped."""
    parser = _Parser(text)
    parts = []
    while parser.pos < len(text):
        parts.append(parser.until(separator).strip())
        parser.pos += 1
    return [part for part in parts if part]


class _Parser:
    """A cursor over the text, with one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    # Lexing.

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        at = self.pos if at is None else at
        number = self.text.count("\n", 0, at) + 1
        lines = self.text.splitlines() or [""]
        line = lines[min(number, len(lines)) - 1].strip()
        shown = line if len(line) <= 160 else line[:160] + "..."
        raise HloParseError(f"HLO text, line {number}: expected {expected} in: {shown}")

    def skip_space(self) -> None:
        space = _SPACE.match(self.text, self.pos)
        assert space is not None  # it matches nothing as well
        self.pos = space.end()

    def accept(self, token: str) -> bool:
        self.skip_space()
        if not self.text.startswith(token, self.pos):
            return False
        self.pos += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(repr(token))

    def accept_word(self, word: str) -> bool:
        """Accepts `word` when white space follows it, so ROOT is no prefix of a name."""
        self.skip_space()
        after = self.pos + len(word)
        if self.text.startswith(word, self.pos) and self.text[after : after + 1].isspace():
            self.pos = after
            return True
        return False

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        self.skip_space()
        found = pattern.match(self.text, self.pos)
        if not found:
            self.fail(what)
        self.pos = found.end()
        return found[0]

    def name(self, what: str = "a name") -> str:
        return self.match(_NAME, what).lstrip("%")

    def until(self, stops: str) -> str:
        """The text up to the first of `stops` that is outside brackets and quotes."""
        start = self.pos
        depth: list[str] = []
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if not depth and char in stops:
                break
            if char == '"':
                self.quoted()
                continue
            if char in _CLOSING:
                depth.append(_CLOSING[char])
            elif depth and char in ")]}" and char != depth.pop():
                self.fail(f"brackets to match before {char!r}")
            self.pos += 1
        if depth:
            self.fail(f"{depth[-1]!r}", at=start)
        return self.text[start : self.pos]

    def quoted(self) -> None:
        start = self.pos
        self.pos += 1
        while self.pos < len(self.text) and self.text[self.pos] != '"':
            self.pos += 2 if self.text[self.pos] == "\\" else 1
        if self.pos >= len(self.text):
            self.fail("a closing quote", at=start)
        self.pos += 1

    # Grammar.

    def module(self) -> ParsedModule:
        if not self.accept_word("HloModule"):
            self.fail("'HloModule' at the start of the module")
        name = self.name("the module's name")
        attributes = self.attributes()
        self.tables()
        computations = []
        self.skip_space()
        while self.pos < len(self.text):
            computations.append(self.computation())
            self.skip_space()
        if sum(c.is_entry for c in computations) != 1:
            self.fail("exactly one ENTRY computation")
        return ParsedModule(name, tuple(computations), attributes)

    def tables(self) -> None:
        """Skips the tables of source locations."""
        while any(self.accept_word(table) for table in _TABLES):
            self.skip_space()
            while self.text[self.pos : self.pos + 1].isdigit():
                self.until("\n")
                self.skip_space()

    def computation(self) -> Computation:
        start = self.pos
        is_entry = self.accept_word("ENTRY")
        name = self.name("a computation")
        if self.accept("("):
            self.until(")")
            self.expect(")")
            self.expect("->")
            self.shape()
        self.expect("{")
        instructions = []
        while not self.accept("}"):
            instructions.append(self.instruction())
        self.attributes()  # an execution thread may follow the closing brace
        self.check(instructions, name, start)
        return Computation(name, tuple(instructions), is_entry)

    def check(self, instructions: list[Instruction], name: str, start: int) -> None:
        if sum(i.is_root for i in instructions) != 1:
            self.fail(f"exactly one ROOT in computation {name!r}", at=start)
        seen: set[str] = set()
        for instruction in instructions:
            for operand in instruction.operands:
                if operand not in seen:
                    self.fail(f"operand {operand!r} of {instruction.name!r} to be defined", start)
            if instruction.name in seen:
                self.fail(f"the name {instruction.name!r} only once in {name!r}", at=start)
            seen.add(instruction.name)

    def instruction(self) -> Instruction:
        is_root = self.accept_word("ROOT")
        name = self.name("an instruction or '}'")
        self.expect("=")
        shape = self.shape()
        opcode = self.match(_OPCODE, "an opcode")
        self.expect("(")
        start = self.pos
        inside = self.until(")").strip()
        self.expect(")")
        operands: tuple[str, ...] = ()
        if opcode not in ("parameter", "constant"):
            operands, inside = self.operands(inside, start), ""
        elif opcode == "parameter" and not inside.isdigit():
            self.fail("a parameter number", at=start)
        return Instruction(name, opcode, shape, operands, self.attributes(), inside, is_root)

    def operands(self, inside: str, start: int) -> tuple[str, ...]:
        names = []
        for part in split_top_level(inside):
            operand = _Parser(part)
            operand.skip_space()
            found = _NAME.match(part, operand.pos)
            if not found or part[found.end() :].strip():  # the shape comes first: f32[2]{0} %x
                try:
                    operand.shape()
                    found = _NAME.fullmatch(part[operand.pos :].strip())
                except HloParseError:
                    found = None
            if not found:
                self.fail(f"the name of an operand, not {part!r},", at=start)
            names.append(found[0].lstrip("%"))
        return tuple(names)

    def attributes(self) -> dict[str, str]:
        found = {}
        while self.text.startswith(",", self.pos):
            self.pos += 1
            key = self.match(_KEY, "an attribute")
            self.expect("=")
            found[key] = self.until(",\n").strip()
        return found

    def shape(self) -> Shape:
        if self.accept("("):
            elements: list[Shape] = []
            while not self.accept(")"):
                if elements:
                    self.expect(",")
                elements.append(self.shape())
            return Shape("tuple", elements=tuple(elements))
        dtype = self.match(_DTYPE, "a shape")
        self.expect("[")
        dims, dynamic = [], []
        for size in split_top_level(self.until("]")):
            bound = size.removeprefix("<=")
            if not bound.isdigit():
                self.fail(f"a dimension size, not {size!r},")
            dims.append(int(bound))
            dynamic.append(bound != size)
        self.expect("]")
        layout = None
        if self.text.startswith("{", self.pos):  # a space before "{" opens a computation instead
            self.pos += 1
            layout = self.until("}")
            self.expect("}")
        return Shape(dtype, tuple(dims), layout, tuple(dynamic) if any(dynamic) else ())
