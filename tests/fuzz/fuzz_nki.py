"""A random kernel as the text of a Python module that writes it in `import nki`.

The statements are those of `fuzz_programs`, and mean what `fuzz_reference.run` makes of them. Each
makes a tile and writes to it; rows past the end of the tensor are cut off, not masked.
"""

from __future__ import annotations

from fuzz_programs import Kernel, operand_text

_REDUCE = {"sum": "add", "max": "maximum", "min": "minimum"}


def nki_text(kernel: Kernel) -> str:
    """A module with the kernel, and `CONSTANTS` that it reads."""
    return _Writer(kernel).module()


class _Writer:
    def __init__(self, kernel: Kernel) -> None:
        self.k = kernel
        self.dtypes: dict[str, str] = {}  # of the tiles, whose names are unique
        self.lines: list[str] = []

    def module(self) -> str:
        k = self.k
        begin = f"nl.program_id(0) * {k.tiles}" if k.instances else "0"
        self.lines = [
            "import nki",
            "import nki.isa as nisa",
            "import nki.language as nl",
            "",
            f"CONSTANTS = {k.constants}",
            "",
            "",
            "@nki.jit",
            "def kernel(a, b):",
            f"    out = nl.ndarray(({k.rows}, {k.columns}), nl.{k.dtypes[2]}, "
            "buffer=nl.shared_hbm)",
            "    counted, index = 1, 0",
            f"    for tile in range({k.tiles}):",
            f"        row, index = ({begin} + tile) * {k.partitions}, tile",
            f"        here = min({k.partitions}, {k.rows} - row)",
        ]
        self.block(k.body, "        ", "tile")
        return "\n".join([*self.lines, "    return out", ""])

    def block(self, body: list[tuple], at: str, index: str) -> None:
        for kind, *rest in body:
            self.at, self.index = at, index
            getattr(self, kind.replace(" ", "_") + "_")(*rest)

    def add(self, text: str) -> None:
        self.lines.append(self.at + text)

    def tile(self, name: str, columns: int, dtype: str, rows: int | None = None) -> None:
        self.dtypes[name] = dtype
        shape = f"({rows or self.k.partitions}, {columns})"
        self.add(f"{name} = nl.ndarray({shape}, nl.{dtype}, buffer=nl.sbuf)")

    def part(self, x: tuple) -> str:
        name, first, columns, step = x
        return f"{name}[:, {first}:{first + step * (columns - 1) + 1}:{step}]"

    def as_float32(self, name: str, x: tuple) -> None:
        self.tile(name, x[2], "float32")
        self.add(f"nisa.tensor_copy(dst={name}, src={self.part(x)})")

    def load_(self, name, which, first, columns, masked) -> None:
        self.tile(name, columns, self.k.dtypes["ab".index(which)])
        last = masked or columns
        self.add(f"nisa.memset(dst={name}, value=0.0)")
        self.add("if here > 0:")
        source = f"{which}[row:row + here, {first}:{first + last}]"
        self.add(f"    nisa.dma_copy(dst={name}[0:here, 0:{last}], src={source})")

    def binary_(self, name, op, left, right, dtype) -> None:
        if right[0] in self.dtypes and right[2] == left[2]:
            self.tile(name, left[2], dtype)
            data = f"data1={self.part(left)}, data2={self.part(right)}"
            self.add(f"nisa.tensor_tensor(dst={name}, {data}, op=nl.{op})")
            return
        operand = operand_text(right)
        if right[0] in self.dtypes:
            operand = f"{name}_each"
            self.as_float32(operand, right)
        self.tile(name, left[2], dtype)
        data = f"data={self.part(left)}, op0=nl.{op}, operand0={operand}"
        self.add(f"nisa.tensor_scalar(dst={name}, {data})")

    def reduce_(self, name, op, x) -> None:
        self.tile(name, 1, "float32")
        data = f"op=nl.{_REDUCE[op]}, data={self.part(x)}, axis=1"
        self.add(f"nisa.tensor_reduce(dst={name}, {data})")

    def full_(self, name, columns, value) -> None:
        self.tile(name, columns, "float32")
        self.add(f"nisa.memset(dst={name}, value={value})")

    def write_(self, name, first, x) -> None:
        there = f"{name}[:, {first}:{first + x[2]}]"
        self.add(f"nisa.tensor_copy(dst={there}, src={self.part(x)})")

    def where_(self, name, x, other) -> None:
        self.tile(f"{name}_if", x[2], "uint8")
        self.tile(name, x[2], self.dtypes[x[0]])
        compared = f"data={self.part(x)}, op0=nl.greater, operand0=1.0"
        self.add(f"nisa.tensor_scalar(dst={name}_if, {compared})")
        self.add(f"nisa.memset(dst={name}, value={other})")
        chosen = f"src={self.part(x)}, predicate={name}_if"
        self.add(f"nisa.tensor_copy_predicated(dst={name}, {chosen})")

    def count_(self, factor) -> None:
        self.add(f"counted = counted * {factor} % 7 + 1")

    def if_(self, condition, yes, no) -> None:
        at, index = self.at, self.index
        _, divisor, remainder = condition
        self.add(f"if index % {divisor} == {remainder}:")
        self.block(yes, at + "    ", index)
        self.lines.append(at + "else:")
        self.block(no, at + "    ", index)

    def loop_(self, kind, name, count, body) -> None:
        at, index = self.at, self.index
        self.add(f"for {name} in range({count}):")
        self.add(f"    index = {name}")
        self.block(body, at + "    ", name)
        self.lines.append(f"{at}index = {index}")

    def add_to_(self, total, name) -> None:
        most = f"{name}_most"
        self.tile(most, 1, "float32")
        self.add(f"nisa.tensor_reduce(dst={most}, op=nl.maximum, data={name}, axis=1)")
        data = f"data={total}, op0=nl.add, operand0={most}"
        self.add(f"nisa.tensor_scalar(dst={total}, {data})")

    def matmul_(self, name, left, right, count) -> None:
        self.as_float32(f"{name}_left", left)
        self.as_float32(f"{name}_right", right)
        rows, psum = self.k.partitions, f"{name}_sum"
        self.add(f"{psum} = nl.ndarray(({left[2]}, {right[2]}), nl.float32, buffer=nl.psum)")
        self.add(f"for turn in range({count}):")
        operands = f"stationary={name}_left, moving={name}_right, accumulate=turn > 0"
        self.add(f"    nisa.nc_matmul(dst={psum}, {operands})")
        # Its first row's maximum, on all partitions: a product with ones.
        self.tile(f"{name}_top", 1, "float32", rows=left[2])
        self.add(f"nisa.tensor_reduce(dst={name}_top, op=nl.maximum, data={psum}, axis=1)")
        self.tile(f"{name}_ones", rows, "float32", rows=1)
        self.add(f"nisa.memset(dst={name}_ones, value=1.0)")
        self.add(f"{name}_all = nl.ndarray(({rows}, 1), nl.float32, buffer=nl.psum)")
        operands = f"stationary={name}_ones, moving={name}_top[0:1, 0:1], accumulate=False"
        self.add(f"nisa.nc_matmul(dst={name}_all, {operands})")
        self.tile(name, 1, "float32")
        self.add(f"nisa.tensor_copy(dst={name}, src={name}_all)")

    def store_(self, first, x, masked) -> None:
        name, last = x[0], masked or x[2]
        if self.dtypes[name] != self.k.dtypes[2]:
            self.tile(f"out_{first}", last, self.k.dtypes[2])
            self.add(f"nisa.tensor_copy(dst=out_{first}, src={name}[:, 0:{last}])")
            name = f"out_{first}"
        self.add("if here > 0:")
        there = f"out[row:row + here, {first}:{first + last}]"
        self.add(f"    nisa.dma_copy(dst={there}, src={name}[0:here, 0:{last}])")
