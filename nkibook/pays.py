"""Whether a kernel would pay for a function: its least time, fused operations, and one at a time.

    python -m nkibook.pays FILE.py FUNCTION 'bfloat16[1024,4096]' 'int32[1024]'
    python -m nkibook.pays --framework torch FILE.py FUNCTION 'bfloat16[1024,4096]'

The function is one of JAX, or of PyTorch. The counts are of the HLO that JAX emits, or of
PyTorch's graph by the same rules (`nkibook.hlo.from_fx`), the rates those of the chip that goes
with the dialect (`nkibook.chip`): published peaks. The least time of one kernel is a bound of
any program that computes its exponentials on the Scalar Engine. The other two are sums over
operations that run one after the other: bounds of a compiler that fuses element-wise operations, or
none, and overlaps no operation with another. One that keeps rows in SBUF, or overlaps DMA with
products, can be faster than they are. All bytes are taken at the rate of loads, which is within 6 %
of that of stores.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING, Any

from nkibook.chip import Chip, chip
from nkibook.hlo import HloModule, Operation, jax_hlo
from nkisim.runtime.importing import NotImportableError, import_file

if TYPE_CHECKING:
    from nkibook.hlo.from_fx import FxModule  # which imports PyTorch

DISPATCH_US = 670.0
"""What a program of its own costs beside its kernel: one dispatch on a trn1.2xlarge, measured and
published by trnsci (trntensor, commit cfad107)."""

WORTH = 1.1
"""The least gain against fused operations that is called one: the model of a kernel's own time is
not better than this."""

COMPILER_PRODUCTS = "84 to 87 % of the peak on trn2 (published, nki-autotune)"


@dataclass(frozen=True)
class Payoff:
    """Three times of one function from published rates, in µs.

    Attributes:
        name: of the function.
        core: the NeuronCore whose rates they are.
        least_bytes: each argument read once and each result written once.
        fused_bytes: what remains when every element-wise operation is fused.
        apart_bytes: one operation at a time.
        least_us: of one kernel: the longest of its bytes, its products and its exponentials.
        fused_us, apart_us: the sum over the operations that remain, each the longer of its bytes
            and its products. They run one after the other, with no overlap between two.
        products_us: of the products alone, at the peak of the Tensor Engine.
        exponentials_us: of the largest array of exponentials or sigmoids alone, one a cycle on each
            lane of the Scalar Engine. Several such arrays may be one to a kernel: it keeps them.
    """

    name: str
    core: str
    least_bytes: int
    fused_bytes: int
    apart_bytes: int
    least_us: float
    fused_us: float
    apart_us: float
    products_us: float
    exponentials_us: float

    @property
    def gain(self) -> float:
        """How many times as fast as the bound of fused operations a kernel could be."""
        return self.fused_us / self.least_us

    @property
    def saves_us(self) -> float:
        """Time that a kernel could save against the bound of fused operations."""
        return self.fused_us - self.least_us

    @property
    def verdict(self) -> str:
        """One sentence: pays or not, against what, and why."""
        if self.gain < WORTH and self.products_us > 0.5 * self.least_us:
            return (
                "does not pay: the products take the time, and the compiler's products reach "
                f"{COMPILER_PRODUCTS}"
            )
        of_exponentials = self.least_us == self.exponentials_us
        if self.gain < WORTH and of_exponentials:
            return (
                "does not pay: the exponentials take the Scalar Engine "
                f"{self.exponentials_us:,.0f} µs, fused or not"
            )
        if self.gain < WORTH:
            return (
                "does not pay: fused, the operations move "
                f"{self.fused_bytes / 1e6:,.1f} MB, and a kernel cannot move less than "
                f"{self.least_bytes / 1e6:,.1f}"
            )
        alone = "also" if self.saves_us > DISPATCH_US else "not"
        limit = (
            f", since its exponentials take the Scalar Engine {self.exponentials_us:,.0f} µs"
            if of_exponentials
            else ""
        )
        return (
            f"can pay, up to {self.gain:.1f} times{limit}: a kernel may save "
            f"{self.saves_us:,.0f} µs inside a compiled program, and {alone} as a program of "
            f"its own, whose dispatch takes {DISPATCH_US:.0f} µs (published, trn1)"
        )

    def __str__(self) -> str:
        rows = (
            ("one operation at a time", self.apart_bytes, self.apart_us),
            ("bound of fused operations", self.fused_bytes, self.fused_us),
            ("least time of one kernel", self.least_bytes, self.least_us),
        )
        lines = [f"{self.name} on one {self.core}, from published rates"]
        lines += [f"  {what:26}{size / 1e6:10,.1f} MB{us:12,.1f} µs" for what, size, us in rows]
        return "\n".join([*lines, indent(fill(self.verdict, 74), "  ")])


def payoff(module: HloModule | FxModule, *, name: str = "", on: Chip | None = None) -> Payoff:
    """Whether one kernel in the place of a whole HLO module would pay.

    Args:
        module: from `nkibook.hlo.jax_hlo`, `torch_hlo` or `nkibook.hlo.from_fx.torch_graph`: of the
            operation alone, with its gradient
            if it is trained.
        name: of the operation, for the report.
        on: whose rates; those of `nkibook.chip.chip()` when None.

    Returns:
        Its bounds and a verdict.
    """
    on = on or chip()
    entry = module.before.entry
    results = sum(leaf.nbytes for leaf in entry.root.shape.leaves())
    least = sum(p.shape.nbytes for p in entry.parameters) + results
    flops = sum(op.flops for op in module.before.operations)
    products = flops / on.tflops / 1e6
    largest = max((op.exponentials for op in module.before.operations), default=0)
    exponentials = largest / on.machine.partitions / on.ghz["Scalar"] / 1e3

    def time(operations: Sequence[Operation]) -> float:
        return sum(
            max(op.moved / on.load_rate * 1e6, op.flops / on.tflops / 1e6) for op in operations
        )

    return Payoff(
        name=name or module.name,
        core=on.name,
        least_bytes=least,
        fused_bytes=sum(op.moved for op in module.fused),
        apart_bytes=sum(op.moved for op in module.before.operations),
        least_us=max(least / on.load_rate * 1e6, products, exponentials),
        fused_us=max(time(module.fused), exponentials),
        apart_us=max(time(module.before.operations), exponentials),
        products_us=products,
        exponentials_us=exponentials,
    )


def of_function(function: Any, *args: Any) -> Payoff:
    """`payoff` of a function for arrays, or shapes and dtypes: `jax.ShapeDtypeStruct`, or tensors
    of PyTorch, on "meta" if they are not to take memory."""
    if any(type(arg).__module__.partition(".")[0] == "torch" for arg in args):
        from nkibook.hlo.from_fx import torch_graph

        return payoff(torch_graph(function, *args), name=getattr(function, "__name__", ""))
    return payoff(jax_hlo(function, *args), name=getattr(function, "__name__", ""))


def _argument(text: str) -> tuple[str, tuple[int, ...]]:
    found = re.fullmatch(r"(\w+)\[([\d,]*)\]", text.replace(" ", ""))
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no shape and dtype: write one as 'bfloat16[1024,4096]'"
        )
    return found[1], tuple(int(size) for size in found[2].split(",") if size)


def _array(framework: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """An array of a framework without values. Raises ValueError for a dtype that it lacks."""
    wrong = f"{framework} has no dtype {dtype!r}: write one as float32, bfloat16 or int32"
    if framework == "torch":
        import torch

        found = getattr(torch, dtype, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(wrong)
        return torch.empty(shape, dtype=found, device="meta")
    import jax

    try:
        return jax.ShapeDtypeStruct(shape, dtype)
    except TypeError as error:
        raise ValueError(wrong) from error


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m nkibook.pays", description=(__doc__ or ""))
    parser.add_argument("file", type=Path, help="a Python file")
    parser.add_argument("function", help="its function of arrays or tensors")
    parser.add_argument("args", nargs="+", type=_argument, help="as 'bfloat16[1024,4096]'")
    parser.add_argument("--framework", choices=("jax", "torch"), default="jax")
    options = parser.parse_args()
    try:
        module = import_file(options.file)
    except NotImportableError as error:
        parser.error(str(error))
    if not callable(getattr(module, options.function, None)):
        parser.error(f"{options.file} has no function {options.function}")
    try:
        args = [_array(options.framework, *arg) for arg in options.args]
    except ValueError as error:
        parser.error(str(error))
    print(of_function(getattr(module, options.function), *args))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
