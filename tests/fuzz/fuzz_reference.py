"""What a random kernel computes, statement by statement, in plain NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from fuzz_programs import Kernel

_TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
_BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
}
_REDUCE = {"sum": np.sum, "max": np.max, "min": np.min}


def run(kernel: Kernel, a: np.ndarray, b: np.ndarray, constants: list[float]) -> np.ndarray:
    """The output, NaN where nothing is stored."""
    out = np.full((kernel.rows, kernel.columns), np.nan, _TYPES[kernel.dtypes[2]])
    for instance in range(max(1, kernel.instances)):
        state = {"counted": 1}
        for tile in range(kernel.tiles):
            row = (instance * kernel.tiles + tile) * kernel.partitions
            run_ = _Run(kernel, {"a": a, "b": b}, out, constants, row, tile, state)
            run_.block(kernel.body, {}, tile)
    return out


class _Run:
    """One tile of rows.

    Args:
        kernel: the kernel.
        inputs: its arrays.
        out: what is stored to.
        constants: of the module.
        row: the first row of the tile.
        tile: the index of the loop over tiles.
        state: what Python counts, over all tiles of an instance.
    """

    def __init__(self, kernel, inputs, out, constants, row, tile, state) -> None:
        self.k, self.inputs, self.out, self.constants = kernel, inputs, out, constants
        self.row, self.tile, self.state = row, tile, state

    def part(self, x: tuple, tiles: dict[str, np.ndarray]) -> np.ndarray:
        name, first, columns, step = x
        return tiles[name][:, first : first + step * (columns - 1) + 1 : step].astype(np.float32)

    def operand(self, x: tuple, tiles: dict[str, np.ndarray], index: int) -> object:
        kinds = {
            "number": lambda: np.float32(x[1]),
            "constant": lambda: np.float32(self.constants[x[1]]),
            "counted": lambda: np.float32(self.state["counted"]),
            "loop index": lambda: np.float32(index),
        }
        return kinds[x[0]]() if x[0] in kinds else self.part(x, tiles)

    def block(self, body: list[tuple], tiles: dict[str, np.ndarray], index: int) -> None:
        for kind, *rest in body:
            getattr(self, kind.replace(" ", "_") + "_")(tiles, index, *rest)

    def load_(self, tiles, index, name, which, first, columns, masked) -> None:
        source = self.inputs[which]
        tiles[name] = np.zeros((self.k.partitions, columns), source.dtype)
        here = source[self.row : self.row + self.k.partitions, first : first + columns]
        shown = slice(0, masked)
        tiles[name][: len(here), shown] = here[:, shown]

    def binary_(self, tiles, index, name, op, left, right, dtype) -> None:
        x, y = self.part(left, tiles), self.operand(right, tiles, index)
        tiles[name] = _BINARY[op](x, y).astype(_TYPES[dtype])

    def reduce_(self, tiles, index, name, op, x) -> None:
        tiles[name] = _REDUCE[op](self.part(x, tiles), axis=1, keepdims=True)

    def full_(self, tiles, index, name, columns, value) -> None:
        tiles[name] = np.full((self.k.partitions, columns), value, np.float32)

    def write_(self, tiles, index, name, first, x) -> None:
        tiles[name][:, first : first + x[2]] = self.part(x, tiles)

    def where_(self, tiles, index, name, x, other) -> None:
        values = self.part(x, tiles)
        tiles[name] = np.where(values > 1, values, np.float32(other)).astype(tiles[x[0]].dtype)

    def count_(self, tiles, index, factor) -> None:
        self.state["counted"] = self.state["counted"] * factor % 7 + 1

    def if_(self, tiles, index, condition, yes, no) -> None:
        _, divisor, remainder = condition
        self.block(yes if index % divisor == remainder else no, dict(tiles), index)

    def loop_(self, tiles, index, kind, name, count, body) -> None:
        for i in range(count):
            self.block(body, dict(tiles), i)

    def add_to_(self, tiles, index, total, name) -> None:
        tiles[total] += tiles[name].astype(np.float32).max(axis=1, keepdims=True)

    def matmul_(self, tiles, index, name, left, right, count) -> None:
        product = self.part(left, tiles).T @ self.part(right, tiles)
        top = (count * product).max(axis=1, keepdims=True)[0:1]
        tiles[name] = np.zeros((self.k.partitions, 1), np.float32) + top

    def store_(self, tiles, index, first, x, masked) -> None:
        values = self.part(x, tiles)[:, slice(0, masked)]
        here = self.out[self.row : self.row + self.k.partitions, first : first + values.shape[1]]
        here[...] = values[: len(here)]
