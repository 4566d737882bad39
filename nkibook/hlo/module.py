"""The HLO module as an object: its text, what is in it, and how it shows in a notebook."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nkibook.hlo import calls, html, shorten
from nkibook.hlo.calls import Collective, CustomCall
from nkibook.hlo.fusion import fused_operations
from nkibook.hlo.graph import Drawing, draw
from nkibook.hlo.html import Diff
from nkibook.hlo.parse import Computation, Instruction, ParsedModule, Shape, parse_module
from nkibook.hlo.traffic import Operation, operations

_NUMBER = re.compile(r"(?<=[A-Za-z_-])\.\d+\b")


class HloUnavailable(RuntimeError):
    """This form of the module cannot be had here; the message says why."""


class HloModule:
    """An HLO module as XLA printed it.

    `str()` and `print()` give XLA's text, unchanged. In a notebook the module shows in short,
    custom calls highlighted, with the rest folded away.

    Attributes:
        stage: "before" or "after" XLA's optimisation.
        origin: who made it, with version, for example "JAX 0.7.0".
    """

    def __init__(
        self,
        text: str,
        *,
        origin: str,
        stage: str = "before",
        stablehlo: str | None = None,
        labels: Mapping[int, str] | None = None,
        before: HloModule | None = None,
        after: Callable[[], tuple[str, str, Mapping[int, str] | None]] | None = None,
    ) -> None:
        """Wraps a module's text; `torch_hlo` and `jax_hlo` call this.

        `labels` names the entry's parameters by number (by default, from the metadata), in the
        order of the function's arguments.
        `before` is the module this one was optimised from. `after` compiles, and returns the
        optimised text, the name of the XLA backend, and `labels` for it.
        """
        self.stage = stage
        self.origin = origin
        self._text = text
        self._stablehlo = stablehlo
        self._labels = labels
        self._before = before
        self._compile = after

    # Text.

    def __str__(self) -> str:
        return self._text

    def text(self, *, short: bool = False) -> str:
        """The module's text: XLA's own, or with `short=True` one to read line by line.

        The short text is the same in every run. It has no metadata, source paths or layouts,
        names are numbered anew, and long strings are cut. The parameters of the entry computation
        are in the order of the function's arguments, with a comment that names the argument.
        """
        if not short:
            return self._text
        return "\n".join(line for line, _ in self.short_lines()) + "\n"

    def short_lines(self) -> list[tuple[str, Instruction | None]]:
        """The lines of the short text, each with its (shortened) instruction, or None."""
        return list(shorten.lines(self._short, self._short_labels))

    @property
    def stablehlo(self) -> str:
        """The StableHLO (MLIR) text this module was converted from.

        Raises HloUnavailable for modules that do not come from JAX's lowering.
        """
        if self._stablehlo is None:
            raise HloUnavailable(
                f"{self.origin} gives no StableHLO for a module {self.stage} optimisation: "
                "jax_hlo(...).stablehlo has it."
            )
        return self._stablehlo

    # Before and after XLA's optimisation.

    @property
    def before(self) -> HloModule:
        """The module before XLA's optimisation (itself, if it is that one)."""
        return self if self._before is None else self._before

    @functools.cached_property
    def after(self) -> HloModule:
        """The module after XLA's optimisation: fusions, schedule, collectives. Compiles it.

        Of torch_xla it is what XLA's CPU backend makes, in a process of its own: a few seconds.

        Raises HloUnavailable where XLA cannot compile it.
        """
        if self.stage == "after":
            return self
        if self._compile is None:
            raise HloUnavailable(
                f"{self.origin} does not give out the module after optimisation: "
                "torch_hlo(...).after and jax_hlo(...).after have it."
            )
        text, backend, labels = self._compile()
        origin = f"{self.origin}, XLA backend {backend}"
        return HloModule(text, origin=origin, stage="after", labels=labels, before=self)

    # What is in it.

    @functools.cached_property
    def parsed(self) -> ParsedModule:
        """The parsed module. Raises HloParseError if the text is in an unknown dialect."""
        return parse_module(self._text)

    @functools.cached_property
    def _short(self) -> ParsedModule:
        return shorten.shorten(self.parsed, list(self.labels))

    @property
    def _short_labels(self) -> dict[int, str]:
        """What the parameters are called, by their numbers in the short module."""
        return dict(enumerate(self.labels.values()))

    @functools.cached_property
    def _short_names(self) -> dict[tuple[str, str], str]:
        """Short names of instructions, by computation and name in the full text."""
        return {
            (c.name, full.name): short.name
            for c, s in zip(self.computations, self._short.computations, strict=True)
            for full, short in zip(c.instructions, s.instructions, strict=True)
        }

    @property
    def name(self) -> str:
        return self.parsed.name

    @property
    def computations(self) -> tuple[Computation, ...]:
        """All computations, as printed: reducers, fusion and loop bodies, and the entry."""
        return self.parsed.computations

    @property
    def entry(self) -> Computation:
        """The computation that runs; its parameters are the module's inputs."""
        return self.parsed.entry

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of the entry computation, each after its operands."""
        return self.entry.instructions

    @property
    def labels(self) -> dict[int, str]:
        """What the entry's parameters are called in the function, by parameter number."""
        if self._labels is not None:
            return dict(self._labels)
        found = {n: p.op_name for n, p in enumerate(self.entry.parameters)}
        return {number: name for number, name in found.items() if name}

    @functools.cached_property
    def custom_calls(self) -> tuple[CustomCall, ...]:
        """Every custom call in the module. An NKI kernel's target is `nkibook.hlo.NKI_TARGET`."""
        return calls.find_custom_calls(self.parsed)

    @functools.cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """Every collective in the module. They appear after partitioning, so ask `.after`."""
        return calls.find_collectives(self.parsed)

    @property
    def computed(self) -> tuple[Shape, ...]:
        """The arrays that the operations compute, in their order.

        After XLA's optimisation these are what it writes to memory; before, what it would write
        with an operation at a time.
        """
        return tuple(shape for op in self.operations for shape in op.shape.leaves())

    @functools.cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation that computes, in order, with the bytes it reads and writes when each is
        executed alone: see `nkibook.hlo.traffic.operations`."""
        return tuple(operations(self.parsed))

    @functools.cached_property
    def fused(self) -> tuple[Operation, ...]:
        """The operations that a compiler cannot fuse away, with the bytes of those that it can: see
        `nkibook.hlo.fusion.fused_operations`. Of the module before optimisation."""
        return tuple(fused_operations(self.before.parsed))

    def count(self, opcode: str) -> int:
        """How many instructions have this opcode, in all computations."""
        return sum(i.opcode == opcode for c in self.computations for i in c.instructions)

    # Pictures.

    def graph(self, computation: str | None = None, *, max_nodes: int = 60) -> Drawing:
        """Draws the dataflow of a computation: instructions, and who uses whose result.

        Args:
            computation: name of the computation, as in the full text; the entry by default.
            max_nodes: the most instructions to draw.

        Raises:
            KeyError: there is no such computation.
            ValueError: it has more instructions than `max_nodes`.
        """
        names = [c.name for c in self.computations]
        name = self.entry.name if computation is None else computation.lstrip("%")
        if name not in names:
            raise KeyError(f"no computation {name!r} in module {self.name!r}; it has {names}")
        index = names.index(name)
        full, short = self.computations[index], self._short.computations[index]
        labels = self._short_labels if full.is_entry else {}
        kernels = {
            self._short_names[c.computation, c.name]: c.kernel_name
            for c in self.custom_calls
            if c.computation == name
        }
        return draw(self._short, short, labels, kernels, max_nodes)

    def diff(
        self, other: HloModule, *, captions: tuple[str, str], focus: Sequence[str] = ()
    ) -> Diff:
        """Shows what changes from this module to `other`: both as one listing, lines marked.

        Args:
            other: the second module.
            captions: what each of the two is, for example `("with +", "with the kernel")`.
            focus: opcodes whose lines stay open where a long listing is folded, as are custom
                calls: what the text names.
        """
        return Diff(self, other, captions, tuple(focus))

    @property
    def is_portable(self) -> bool:
        """Whether its text is the same on every machine: not what XLA's CPU backend makes."""
        return self.stage == "before"

    def changes(self, other: HloModule) -> str:
        """What changes from this module to `other`, in numbers: instructions, and the arrays that
        they compute."""
        arrays = [module.computed for module in (self, other)]
        sizes = [sum(shape.nbytes for shape in shapes) for shapes in arrays]
        instructions = [len(module.instructions) for module in (self, other)]
        return (
            f"Instructions: {html.change(instructions)}. Arrays that they compute: "
            f"{html.change([len(shapes) for shapes in arrays])}, "
            f"{html.change(map(html.in_units, sizes))}."
        )

    def plain(self, line: str) -> str:
        """A line of the short text without the numbers of names."""
        return _NUMBER.sub("", line)

    def numbered(self, name: str, number: int) -> str:
        """A name with this number in the place of its own."""
        return f"{self.plain(name)}.{number}"

    def stands_out(self, operation: Instruction, focus: Sequence[str]) -> bool:
        """Whether an instruction stays open in a folded listing: a custom call, or of `focus`."""
        return operation.opcode in {*focus, "custom-call"}

    # Notebook display.

    def summary(self) -> str:
        """One line a fact: parameters, custom calls, collectives. The same in every run."""
        heading = f"HLO module {self._short.name}, {self.stage} optimisation"
        calls: list[Any] = [*self.custom_calls, *self.collectives]
        facts = [
            str(dataclasses.replace(call, name=self._short_names[call.computation, call.name]))
            for call in calls
        ]
        return "\n  ".join([heading, *facts])

    def __repr__(self) -> str:
        return self.summary()

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        # XLA's CPU backend splits work by the machine's cores, so the optimised text is not the
        # same everywhere. Before optimisation it is, and says more than a summary.
        short = self.stage == "before" and len(self.instructions) <= 40
        printer.text(self.text(short=True).rstrip() if short else self.summary())

    def _repr_html_(self) -> str:
        return html.module_html(self)
