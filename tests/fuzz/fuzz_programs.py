"""Random kernels: as data, and as the text of a Python module that writes them in NKI.

A kernel goes over its rows in tiles, in nested loops of all kinds, by several instances. Statements
are tuples, and say the same to `neuronxcc_text` and to `fuzz_reference.run`. All numbers are small
multiples of powers of two, so that sums are exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

BINARY = ("add", "subtract", "maximum", "minimum", "multiply")
LOOPS = ("affine_range", "sequential_range", "static_range", "range")
DTYPES = ("float32", "bfloat16")


@dataclass
class Kernel:
    """A kernel.

    Attributes:
        rows, columns: of its two inputs and of its output.
        partitions: rows of a tile; the last tile may be cut off.
        instances: of the launch grid; 0 for none.
        dtypes: of the inputs and of the output.
        constants: of the module, which the kernel reads.
        body: its statements, for one tile of rows.
        loop: the kind of the loop over tiles.
    """

    rows: int
    columns: int
    partitions: int
    instances: int
    dtypes: tuple[str, str, str]
    constants: list[float]
    loop: str
    body: list[tuple] = field(default_factory=list)

    @property
    def tiles(self) -> int:
        """Tiles of rows for each instance."""
        return -(-self.rows // (self.partitions * max(1, self.instances)))


class Generator:
    """Draws kernels.

    Args:
        seed: of the kernel.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def kernel(self) -> Kernel:
        partitions = self.one_of(4, 8, 32)
        instances = self.one_of(0, 0, 1, 2, 3)
        tiles = int(self.rng.integers(1, 4)) * max(1, instances)
        rows = partitions * tiles - self.one_of(0, 0, 1, 3)
        kernel = Kernel(
            rows,
            int(self.rng.integers(2, 9)),
            partitions,
            instances,
            tuple(self.one_of(*DTYPES) for _ in range(3)),
            [float(self.one_of(-2, -1, 0.5, 1, 2, 3)) for _ in range(3)],
            self.one_of(*LOOPS),
        )
        self.k = kernel
        tiles: dict[str, int] = {}
        kernel.body = self.block(tiles, kernel.loop in ("static_range", "range"), 0)
        kernel.body += self.stores(tiles)
        return kernel

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def new(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def block(self, tiles: dict[str, int], counts: bool, depth: int) -> list[tuple]:
        """Statements. Adds the tiles that they make to `tiles`: name -> columns.

        Args:
            tiles: those that may be used.
            counts: whether Python may count here: all loops around are unrolled.
            depth: of loops around.
        """
        made = [self.load(tiles)]
        for _ in range(int(self.rng.integers(1, 6 - depth))):
            kind = self.rng.random()
            if kind < 0.15:
                made.append(self.load(tiles))
            elif kind < 0.5:
                made.append(self.binary(tiles, counts))
            elif kind < 0.6:
                x = self.one_of(*tiles)
                name = self.new()
                made.append(("reduce", name, self.one_of("sum", "max", "min"), self.part(x, tiles)))
                tiles[name] = 1
            elif kind < 0.7:
                made += self.write_part(tiles)
            elif kind < 0.75:
                made.append(self.where(tiles))
            elif kind < 0.82 and counts:
                made.append(("count", self.one_of(1, 2, 3)))
            elif kind < 0.9 and depth < 2:
                made += self.inner_loop(tiles, counts, depth)
            elif kind < 0.95 and depth < 2:
                condition = ("index", self.one_of(2, 3), self.one_of(0, 1))
                yes, no = dict(tiles), dict(tiles)
                made.append(
                    ("if", condition, self.block(yes, counts, 2), self.block(no, counts, 2))
                )
            else:
                made.append(self.matmul(tiles))
        return made

    def load(self, tiles: dict[str, int]) -> tuple:
        name, which = self.new(), self.one_of("a", "b")
        first = int(self.rng.integers(0, self.k.columns))
        columns = int(self.rng.integers(1, self.k.columns - first + 1))
        masked = int(self.rng.integers(1, columns + 1)) if self.chance(0.3) else None
        tiles[name] = columns
        return ("load", name, which, first, columns, masked)

    def part(self, name: str, tiles: dict[str, int]) -> tuple:
        """A part of a tile: (name, first column, columns, step)."""
        columns = tiles[name]
        if self.chance(0.6):
            return (name, 0, columns, 1)
        first = int(self.rng.integers(0, columns))
        step = self.one_of(1, 1, 2)
        most = -(-(columns - first) // step)
        return (name, first, int(self.rng.integers(1, most + 1)), step)

    def binary(self, tiles: dict[str, int], counts: bool) -> tuple:
        left = self.part(self.one_of(*tiles), tiles)
        alike = [n for n, columns in tiles.items() if columns in (left[2], 1)]
        kind = self.rng.random()
        if alike and kind < 0.5:
            name = self.one_of(*alike)
            right: Any = (name, 0, tiles[name], 1)
        elif kind < 0.7:
            right = ("constant", int(self.rng.integers(3)))
        elif kind < 0.8 and counts:
            right = ("counted",)
        elif kind < 0.9:
            right = ("loop index",)
        else:
            right = ("number", float(self.one_of(-1, 0.5, 2, 4)))
        name, op = self.new(), self.one_of(*BINARY)
        tiles[name] = left[2]
        return ("binary", name, op, left, right, self.one_of(*DTYPES))

    def write_part(self, tiles: dict[str, int]) -> list[tuple]:
        """A tile that is declared, filled, and written in part."""
        source = self.part(self.one_of(*tiles), tiles)
        name = self.new()
        columns = source[2] + int(self.rng.integers(0, 3))
        first = int(self.rng.integers(0, columns - source[2] + 1))
        tiles[name] = columns
        value = float(self.one_of(0, 1))
        return [("full", name, columns, value), ("write", name, first, source)]

    def where(self, tiles: dict[str, int]) -> tuple:
        left = self.part(self.one_of(*tiles), tiles)
        name = self.new()
        tiles[name] = left[2]
        return ("where", name, left, float(self.one_of(-1, 0, 2)))

    def inner_loop(self, tiles: dict[str, int], counts: bool, depth: int) -> list[tuple]:
        """A loop that adds up what its iterations make, in a tile from outside."""
        kind, total = self.one_of(*LOOPS[1:]), self.new()
        columns = int(self.rng.integers(1, 5))
        inside = dict(tiles)
        counts = counts and kind in ("static_range", "range")
        body = self.block(inside, counts, depth + 1)
        body.append(("add to", total, self.one_of(*[n for n in inside if n not in tiles])))
        loop = ("loop", kind, self.new("i"), int(self.rng.integers(1, 4)), body)
        tiles[total] = columns
        return [("full", total, columns, 0.0), loop]

    def matmul(self, tiles: dict[str, int]) -> tuple:
        left, right = (self.part(self.one_of(*tiles), tiles) for _ in range(2))
        name = self.new()
        tiles[name] = 1
        return ("matmul", name, left, right, int(self.rng.integers(1, 4)))

    def stores(self, tiles: dict[str, int]) -> list[tuple]:
        """Parts of the output, side by side, some of them left out."""
        made, first = [], 0
        while first < self.k.columns:
            name = self.one_of(*tiles)
            columns = min(tiles[name], self.k.columns - first)
            if not made or self.chance(0.9):
                masked = int(self.rng.integers(1, columns + 1)) if self.chance(0.2) else None
                made.append(("store", first, (name, 0, columns, 1), masked))
            first += columns
        return made


# -- as text


def neuronxcc_text(kernel: Kernel) -> str:
    """A module with the kernel, `CONSTANTS` that it reads, and `GRID`."""
    k = kernel
    lines = [
        "import neuronxcc.nki as nki",
        "import neuronxcc.nki.isa as nisa",
        "import neuronxcc.nki.language as nl",
        "",
        f"CONSTANTS = {k.constants}",
        "",
        "",
        "@nki.jit",
        "def kernel(a, b):",
        f"    out = nl.ndarray(({k.rows}, {k.columns}), nl.{k.dtypes[2]}, buffer=nl.shared_hbm)",
        f"    p = nl.arange({k.partitions})[:, None]",
        "    counted, index = 1, 0",
    ]
    begin = f"nl.program_id(0) * {k.tiles}" if k.instances else "0"
    name = k.loop if k.loop == "range" else f"nl.{k.loop}"
    lines.append(f"    for tile in {name}({k.tiles}):")
    lines.append(f"        row, index = ({begin} + tile) * {k.partitions}, tile")
    _write(k, k.body, "        ", lines)
    return "\n".join([*lines, "    return out", ""])


def _part(x: tuple) -> str:
    name, first, columns, step = x
    if step == 1:
        return f"{name}[:, {first}:{first + columns}]"
    return f"{name}[p, {first} + {step} * nl.arange({columns})[None, :]]"


def operand_text(x: tuple) -> str:
    """An operand: a number, a name that Python counts, or a part of a tile."""
    words = {"constant": "CONSTANTS[{}]", "counted": "counted", "loop index": "float(index)"}
    if x[0] == "number":
        return repr(x[1])
    return words[x[0]].format(*x[1:]) if x[0] in words else _part(x)


def _write(k: Kernel, body: list[tuple], at: str, lines: list[str], index: str = "tile") -> None:
    """The lines of statements, in a loop with this index."""

    def add(text: str) -> None:
        lines.append(at + text)

    rows = k.partitions
    for statement in body:
        kind, *rest = statement
        if kind == "load":
            name, which, first, columns, masked = rest
            add(f"f = nl.arange({columns})[None, :]")
            add(f"{name} = nl.zeros(({rows}, {columns}), nl.{k.dtypes['ab'.index(which)]})")
            mask = f"(row + p < {k.rows})" + (f" & (f < {masked})" if masked else "")
            add(f"{name}[p, f] = nl.load({which}[row + p, {first} + f], mask={mask})")
        elif kind == "binary":
            name, op, left, right, dtype = rest
            add(f"{name} = nl.{op}({_part(left)}, {operand_text(right)}, dtype=nl.{dtype})")
        elif kind == "reduce":
            name, op, x = rest
            add(f"{name} = nl.{op}({_part(x)}, axis=1, keepdims=True, dtype=nl.float32)")
        elif kind == "full":
            name, columns, value = rest
            add(f"{name} = nl.full(({rows}, {columns}), {value}, nl.float32)")
        elif kind == "write":
            name, first, x = rest
            add(f"{name}[:, {first}:{first + x[2]}] = nl.copy({_part(x)}, dtype=nl.float32)")
        elif kind == "where":
            name, x, other = rest
            add(f"{name} = nl.where(nl.greater({_part(x)}, 1.0), {_part(x)}, {other})")
        elif kind == "count":
            add(f"counted = counted * {rest[0]} % 7 + 1")
        elif kind == "if":
            (_, divisor, remainder), yes, no = rest
            add(f"if index % {divisor} == {remainder}:")
            _write(k, yes, at + "    ", lines, index)
            add("else:")
            _write(k, no, at + "    ", lines, index)
        elif kind == "loop":
            loop, name, count, inner = rest
            add(f"for {name} in {loop if loop == 'range' else 'nl.' + loop}({count}):")
            add(f"    index = {name}")
            _write(k, inner, at + "    ", lines, name)
            add(f"index = {index}")
        elif kind == "add to":
            total, name = rest
            add(f"{total}[...] = nl.add({total}, nl.max({name}, axis=1, keepdims=True))")
        elif kind == "matmul":
            name, left, right, count = rest
            psum = f"{name}_sum"
            add(f"{psum} = nl.zeros(({left[2]}, {right[2]}), nl.float32, buffer=nl.psum)")
            add(f"for _ in nl.affine_range({count}):")
            add(f"    {psum} += nisa.nc_matmul({_whole(left)}, {_whole(right)})")
            add(f"{name}_top = nl.max({psum}, axis=1, keepdims=True, dtype=nl.float32)[0:1, :]")
            add(f"{name} = nl.add(nl.zeros(({rows}, 1), nl.float32), {name}_top)")
        elif kind == "store":
            first, x, masked = rest
            add(f"f = nl.arange({x[2]})[None, :]")
            mask = f"(row + p < {k.rows})" + (f" & (f < {masked})" if masked else "")
            add(f"nl.store(out[row + p, {first} + f], {x[0]}[p, f], mask={mask})")


def _whole(x: tuple) -> str:
    return f"nl.copy({_part(x)}, dtype=nl.float32)"
