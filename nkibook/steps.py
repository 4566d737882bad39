"""Where the time of a training step goes, from its program: HLO, or a graph of PyTorch.

A kernel has the same name and the same parameters in both dialects. So a program whose kernels are
in one dialect tells what the other one would launch, on its chip. Kernels are modelled; what a
compiler does with the rest is bounded from published rates, as on the page about what pays.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from kernels.operators import operators
from nkibook import own
from nkibook.hlo import HloModule, Operation
from nkisim.machine import GEN2, GEN3, Machine

if TYPE_CHECKING:
    from nkibook.hlo.from_fx import FxModule  # which imports PyTorch


class Call(Protocol):
    """A call of a kernel: `nkibook.hlo.CustomCall`, or `nkibook.fx.KernelCall`."""

    @property
    def kernel_name(self) -> str: ...

    @property
    def config(self) -> Any: ...


class Part(NamedTuple):
    """What one kind of work takes of a step.

    Attributes:
        operator: of kernels, such as "matmul"; else "products" or "element-wise", or the opcode of
            HLO of what is neither.
        calls: of its forward and backward kernels, or passes over memory.
        microseconds: of all of them. Of kernels modelled, without the overhead of a launch; of the
            rest a bound.
        moved: bytes that they read and write; of kernels 0, since the model's time has them.
    """

    operator: str
    calls: int
    microseconds: float
    moved: int = 0


class Cores(NamedTuple):
    """What runs a step.

    Attributes:
        title: what to call it.
        dialect: of its kernels, "neuronxcc" or "nki".
        machine: its generation.
        physical: cores that share each launch.
    """

    title: str
    dialect: str
    machine: Machine
    physical: int

    @property
    def rate(self) -> float:
        """Bytes a second that its DMA engines load from HBM, with the HBM shared."""
        dma = self.machine.timing.shared_by(self.physical).dma
        return self.physical * dma.engines * dma.load_rate * 1e9

    @property
    def tflops(self) -> float:
        """Peak of its Tensor Engines in bfloat16, in 10^12 operations a second."""
        return self.physical * self.machine.timing.tensor.tflops

    def bound(self, operation: Operation) -> float:
        """The least time of an operation in µs: the longer of its bytes and its products."""
        return max(operation.moved / self.rate * 1e6, operation.flops / self.tflops / 1e6)


CHIPS = {
    "inf2": Cores("inf2, one core", "neuronxcc", GEN2, 1),
    "trn2 one core": Cores("trn2, one core", "nki", GEN3, 1),
    "trn2": Cores("trn2, two cores", "nki", GEN3, 2),
}
"""What is modelled. A core of a trn1 is that of an inf2, a NeuronCore-v2. Two NeuronCore-v3 of a
trn2 are a logical core and share each launch."""


def modelled(calls: Iterable[Call], chip: str) -> list[Part]:
    """How long the kernels of a step take, by operator, the longest first.

    Args:
        calls: of kernels of this book, or of `nkibook.own`, in either dialect: the custom calls of
            its HLO, or the `calls` of its graphs.
        chip: one of CHIPS.

    Returns:
        A part for each operator. Kernels of a program run one after the other here, so that times
        add up; what the framework's compiler does between them is not in it: see `step`. A reader's
        kernel that raises at these shapes is left out, as a printed line says, and the book's
        counts.

    Raises:
        ValueError: another chip, or a call to another kernel.
    """
    if chip not in CHIPS:
        raise ValueError(f"chip is {chip!r}. The book has numbers for {' and '.join(CHIPS)}.")
    counted = Counter(_launch(call) for call in calls)
    parts: dict[str, Part] = {}
    for (name, inputs, constants), count in counted.items():
        parameters = tuple(n for n, *_ in inputs)
        mine = own.ours(name, {*parameters, *dict(constants)})
        operator, bound, names = _kernel(name, parameters, mine, chip, book=False)
        try:
            body = min(_body(kernel, names, inputs, constants, chip) for kernel in bound)
        except Exception as error:  # whatever a reader's code does wrong
            if mine is None:
                raise
            own.say_left_out(mine[1], mine[0], (shape for _, shape, _ in inputs), error)
            _, (kernel,), names = _kernel(name, parameters, mine, chip, book=True)
            body = _body(kernel, names, inputs, constants, chip)
        before = parts.get(operator, Part(operator, 0, 0.0))
        parts[operator] = Part(operator, before.calls + count, before.microseconds + count * body)
    return sorted(parts.values(), key=lambda part: -part.microseconds)


def between(module: HloModule | FxModule, chip: str) -> list[Part]:
    """What the framework's compiler does itself, fused as well as it can be, the longest first.

    Args:
        module: of a step.
        chip: one of CHIPS.

    Returns:
        A part for each kind of pass over memory: "products", with what is fused into one,
        "element-wise", or an opcode of HLO.
        Each takes the longer of its bytes and its products, at the published rates of the chip: a
        bound. The bytes of a result that a call reads are among them, and a call's own are not.
    """
    return _bounds((o for o in module.fused if o.opcode != "custom-call"), CHIPS[chip])


def one_by_one(module: HloModule | FxModule, chip: str) -> list[Part]:
    """As `between`, with one operation at a time: each reads its operands and writes its result."""
    return _bounds(module.before.operations, CHIPS[chip])


def step(module: HloModule | FxModule, chip: str) -> float:
    """Microseconds of a step: its kernels as modelled, and the bound of the rest, one after the
    other."""
    kernels = modelled(module.custom_calls, chip) if module.custom_calls else []
    return sum(part.microseconds for part in (*kernels, *between(module, chip)))


def _bounds(found: Iterable[Operation], cores: Cores) -> list[Part]:
    parts: dict[str, Part] = {}
    for operation in found:
        kind = "products" if operation.flops else operation.opcode
        kind = "element-wise" if kind in ("fusion", "map") else kind
        before = parts.get(kind, Part(kind, 0, 0.0))
        parts[kind] = Part(
            kind,
            before.calls + 1,
            before.microseconds + cores.bound(operation),
            before.moved + operation.moved,
        )
    return sorted(parts.values(), key=lambda part: -part.microseconds)


def _launch(call: Call) -> tuple[str, tuple, tuple]:
    """Name, tensors and constants of a call."""
    inputs = tuple((name, tuple(shape), dtype) for name, shape, dtype in call.config["inputs"])
    return call.kernel_name, inputs, tuple(sorted(call.config["constants"].items()))


def _kernel(
    name: str, inputs: tuple[str, ...], mine: tuple[str, Any] | None, chip: str, *, book: bool
) -> tuple[str, list[Any], tuple[str, ...]]:
    """The operator that a kernel belongs to, the kernel in the dialect of a chip on its cores, and
    what that one calls the inputs. A reader's kernel may not share its work between two cores, and
    does it twice there: so it is on one as well, and the faster one counts. With `book` it is the
    book's in the place of a reader's."""
    import kernels

    cores = CHIPS[chip]
    package, found = _of_the_book(mine[0] if mine else name, cores)
    in_nki = cores.dialect == "nki"
    if mine is not None and not book and cores.dialect == kernels.dialect:
        kernel = mine[1].on(cores.machine)
        counts = range(1, cores.physical + 1)
        return package, [kernel[n] for n in counts] if in_nki else [kernel], inputs
    names = tuple(inspect.signature(found).parameters)[: len(inputs)] if mine else inputs
    return package, [found[cores.physical] if in_nki else found], names


def _of_the_book(name: str, cores: Cores) -> tuple[str, Any]:
    for package in dict.fromkeys(operator.package for operator in operators()):
        module = importlib.import_module(f"kernels.{package}.{cores.dialect}")
        if hasattr(module, name):
            return package, getattr(module, name).on(cores.machine)
    raise ValueError(f"{name} is no kernel of this book's operators.")


_known: dict[tuple, float] = {}


def _body(kernel: Any, names: tuple[str, ...], inputs: tuple, constants: tuple, chip: str) -> float:
    """Microseconds of one launch; the model runs once for each kernel, chip and shapes."""
    import nkisim

    key = kernel.func, kernel.grid, chip, inputs, constants
    if key not in _known:
        dtypes = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
        tensors = {
            name: nkisim.TensorSpec(shape, dtypes.get(dtype) or np.dtype(dtype))
            for name, (_, shape, dtype) in zip(names, inputs, strict=True)
        }
        with warnings.catch_warnings():
            # That both cores write what only one should: of kernels that share no work.
            warnings.simplefilter("ignore", nkisim.NkiWarning)
            _known[key] = nkisim.profile(kernel, **tensors, **dict(constants)).body_us
    return _known[key]
