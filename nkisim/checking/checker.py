"""Runs the checks over a trace as it grows, and over all of it at the end."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from nkisim.checking.accumulation import check_accumulation
from nkisim.checking.capacity import (
    check_capacity,
    check_operands,
    lifetimes,
    may_overflow,
)
from nkisim.checking.inputs import check_inputs
from nkisim.checking.memory_state import MemoryState
from nkisim.checking.origin import check_origin
from nkisim.checking.overlap import check_overlaps
from nkisim.checking.patterns import (
    check_allocation,
    check_bounds,
    check_memory,
    check_start_partition,
    check_tiles,
    flawless,
)
from nkisim.checking.placement import check_placement, place_tiles
from nkisim.checking.psum_groups import check_groups
from nkisim.checking.races import check_races
from nkisim.checking.settings import current_modes, is_simulated
from nkisim.errors import KernelError, OutputError, warn
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction
from nkisim.ir.limits import exceeded, limit
from nkisim.ir.memory import Buffer, Role, Space
from nkisim.ir.restriction import Restriction

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


class Checker:
    """All checks, over one trace.

    Args:
        as_sdk: go on with a warning where the SDK's simulator does: see
        nkisim.frontends.neuronxcc.rules.compatibility.
        as_written: warn, too, of loops that only their order makes right.
    """

    def __init__(self, as_sdk: bool = False, as_written: bool = False) -> None:
        self.modes = current_modes()
        self.as_sdk = as_sdk
        self._as_written = as_written
        self.simulated = is_simulated()
        self._warnings: dict[tuple, tuple[KernelError, int]] = {}  # the first, and how many
        self._gathers = True
        self.skips = 0  # instructions of which masks left nothing

    @property
    def kind(self) -> tuple:
        """Key of the settings that change what is found."""
        return self.as_sdk, self._as_written, self.simulated, *sorted(self.modes.items())

    def begin(self, trace: Trace) -> None:
        """Start on an empty trace."""
        self.trace = trace
        self._most = limit("instructions")
        self._memory_state = MemoryState(self, trace)
        rules = trace.rules
        self._declared = rules.declared(trace) if rules.declared is not None else None
        stages = {
            "bounds": check_bounds,
            "memory": check_memory,
            "tile": check_tiles,
            "partition": check_start_partition,
            **rules.checks,
        }
        self._stages = [
            (name, check) for name, check in stages.items() if self.modes[name] != "off"
        ]
        # What is left to look at of operands that are right by themselves.
        self._of_whole = [(n, check) for n, check in self._stages if n in ("memory", "scope")]
        self._check_scope = rules.checks.get("scope") if self.modes["scope"] != "off" else None
        self._fitting: set[tuple] = set()  # shapes, types and memories of tiles
        self._flawless: dict[tuple, bool] = {}  # of on-chip views: few, used again and again
        # Those that reach an odd partition: a DMA that writes there itself
        # (nkisim.compiler.folding) may.
        self._assignments: list[tuple[Instruction, KernelError]] = []

    def _is_flawless(self, t: AccessPattern) -> bool:
        """Whether an operand by itself is right, whatever the instruction."""
        buffer = t.buffer
        if not buffer.space.on_chip:
            return t.escape() is None
        key = (t.form, t.offsets, buffer.par_axis)
        found = self._flawless.get(key)
        if found is None:
            found = self._flawless[key] = flawless(t, self.trace)
        return found

    def on_instruction(
        self,
        instr: Instruction,
        changed: tuple[AccessPattern, ...] | None = None,
        is_result: bool = False,
    ) -> None:
        """Check an instruction that is about to be written down.

        Args:
            instr: the instruction.
            changed: of one that is like another that was right, on operands of the same forms,
                types and memories: those operands that may lie elsewhere, and were not made for it.
                None to look at all of it.
            is_result: whether it makes new tiles, whole, and writes nothing else.

        Raises:
            KernelError: what a check finds whose mode is to raise; or there are too many.
        """
        if len(self.trace.instructions) >= self._most:
            raise exceeded(
                "instructions",
                f"the kernel has {self._most:,} instructions, and goes on",
                rule="a trace has all instructions of all iterations; their number is limited",
            )
        if changed is None:
            self._run_checks(instr)
            return
        known, now, buffers = self._flawless, instr.loops, self.trace.buffers
        whole, knows = self._memory_state.written.whole, self._memory_state.written.knows
        elsewhere = False  # whether one was made in other loops
        # Whether all that it reads is known to be written: `changed`, and what the call has made.
        written = is_result and (changed is instr.tiles_in or all(map(knows, instr.tiles_in)))
        for t in changed:
            buffer = t.buffer
            number = buffer.number
            if number >= len(buffers) or buffers[number] is not buffer:  # as `is_foreign`
                right = False
            elif not buffer.space.on_chip:  # as `_is_flawless`, and then `check_scope`, look at it
                right = t.escape() is None
            else:
                right = known.get((t.form, t.offsets, buffer.par_axis)) or self._is_flawless(t)
            if not right:
                self._run_checks(instr)
                return
            if buffer.loops is not now and buffer.loops:
                elsewhere = True
            if written and number not in whole and buffer.role is Role.LOCAL:
                written = knows(t)
        if elsewhere and self._check_scope is not None:
            error = self._check_scope(instr, changed, self.trace)
            if error is not None:
                self.report("scope", error)
        if written:
            for t in instr.outs:
                whole.add(t.buffer.number)
        else:
            self._memory_state.on_instruction(instr)

    def _run_checks(self, instr: Instruction) -> None:
        tiles = instr.outs + instr.tiles_in
        check_origin(instr, tiles, self.trace)
        stages = self._of_whole if all(map(self._is_flawless, tiles)) else self._stages
        for name, check in stages:
            error = check(instr, tiles, self.trace)
            if error is None:
                continue
            if name == "partition" and instr.settings.assign:
                self._assignments.append((instr, error))
            else:
                self.report(name, error)
        self._memory_state.on_instruction(instr)

    def on_masked_off(self, outs: tuple[AccessPattern, ...]) -> None:
        """A mask leaves nothing of an instruction that would have written `outs`."""
        self.skips += 1
        self._memory_state.masked_off.update(t.buffer.number for t in outs)

    def is_known(self, tensor: AccessPattern) -> bool:
        """Whether all of a part of memory was surely written, told without looking at flags."""
        return self._memory_state.is_known(tensor)

    def left_out(self, tensor: AccessPattern) -> bool:
        """Whether a tile holds nothing, because a mask left nothing of what was to write it."""
        return self._memory_state.left_out(tensor)

    def on_allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        space: Space,
        par_axis: int,
        name: str,
        placed: bool = False,
    ) -> None:
        """A tensor is declared; `placed` tells whether the kernel places its tiles."""
        key = (shape, dtype, space, par_axis)
        if self.modes["tile"] == "off" or key in self._fitting:
            return
        found = check_allocation(*key, name, placed, self.trace)
        if found is None:
            self._fitting.add(key)
        else:
            error, taken = found
            self.report("tile", error, mild=taken)

    def untouched(self, tensor: AccessPattern) -> bool:
        """Whether nothing wrote any element of a tile."""
        return self._memory_state.untouched(tensor)

    def defined_part(self, tensor: AccessPattern) -> Restriction | None:
        """The part of a tile that something wrote; None when it is all, or nothing."""
        return self._memory_state.defined_part(tensor)

    def partly_written(self) -> set[int]:
        """Numbers of the tensors that hold elements nothing wrote, so far."""
        return self._memory_state.partly_written()

    def on_output(self, tensor: AccessPattern) -> None:
        """An HBM tensor that the kernel returns has been written."""
        missing, size = self._memory_state.missing_part(tensor.buffer)
        if not missing or not size:
            return
        place = tensor.buffer.location
        if missing == size:
            self.report(
                "output",
                OutputError(
                    f"the kernel returns {tensor.describe()}, which nothing writes",
                    rule="an output is HBM that the kernel fills with nl.store or a DMA",
                    fix="store the result into it before returning",
                    code="err_tensor_output_not_written_to",
                    location=place,
                ),
            )
        elif self.modes["output"] != "off":
            self.warn(
                OutputError(
                    f"{missing:,} of {size:,} elements of the output {tensor.describe()} are never "
                    "written and hold garbage on hardware",
                    rule="an output should be written everywhere",
                    fix=self.trace.rules.words.everywhere,
                    location=place,
                )
            )

    def on_place(self, buffer: Buffer) -> None:
        """A tensor whose tiles the kernel places."""
        buffer.placed = place_tiles(
            buffer, self.trace.machine, lambda e: self.report("placement", e, mild=self.simulated)
        )

    def on_declare(self, declaration: tuple, buffer: Buffer) -> None:
        """A tile made in a loop. Of one declaration are those of all iterations."""
        if self._declared is None:
            return
        error = self._declared.compare(declaration, buffer)
        if error is not None:
            self.report("shape", error)

    def finish(self) -> None:
        """All instances are traced: check what only the whole stream shows."""
        self._memory_state.finish()
        self._memory_state.follow_exchanges(self)
        if self._assignments:
            writers = {id(t): i for i in self.trace.instructions for t in i.outs}
            for instr, error in self._assignments:
                writer = writers.get(id(instr.outs[0]))
                if writer is None or writer.spec.on_chip:
                    self.report("partition", error)
        if self.modes["race"] != "off":
            strict = self.modes["race"] == "error"
            for error, mild in check_races(self.trace, self.simulated, strict):
                self.report("race", error, mild)
        for name, find in self.trace.rules.checks_at_end.items():
            if self.modes[name] != "off":
                for error, in_order in find(self.trace):
                    mild = self._as_written or (in_order and self.simulated)
                    self.report(name, error, mild)
        if self.modes["input"] != "off":
            for error in check_inputs(self.trace):
                self.report("input", error)
        if self.modes["tile"] != "off":
            for error in check_operands(self.trace):
                self.report("tile", error)
        if self.modes["accumulation"] != "off":
            for error in check_groups(self.trace):
                self.report("accumulation", error, mild=True)
        held = [s for s in (Space.SBUF, Space.PSUM) if self._may_overflow(s)]
        lives = lifetimes(self.trace, held) if held else None
        whole = {
            "accumulation": check_accumulation,
            "overlap": check_overlaps,
            "placement": check_placement,
        }
        for space in held:
            whole[space.value] = functools.partial(check_capacity, space=space, lives=lives)
        for name, check in whole.items():
            if self.modes[name] != "off":
                for error in check(self.trace):
                    self.report(name, error)

    def _may_overflow(self, space: Space) -> bool:
        """Whether to look closer at how much of a memory is used at a time."""
        if self.modes[space.value] == "off":
            return False
        # Elsewhere a tile may be used after the iteration that made it.
        return self.modes["scope"] != "error" or may_overflow(self.trace, space)

    def report(self, name: str, error: KernelError, mild: bool = False) -> None:
        """Raise, warn (see `warn`) or drop, as the mode of check `name` says.

        Args:
            name: of the check.
            error: what it found.
            mild: warn where the mode is to raise.
        """
        mode = self.modes[name]
        if mild and mode == "error":
            mode = "warn"
        if mode == "error":
            raise error
        if mode == "warn":
            self.warn(error)

    def warn(self, error: KernelError) -> None:
        """Show a warning: while a kernel is traced, when it is done, and then one a rule and kernel
        line, with their number."""
        if not self._gathers:
            warn(error)
            return
        key = type(error), error.rule, error.location
        first, times = self._warnings.get(key, (error, 0))
        self._warnings[key] = first, times + 1

    def stop(self) -> None:
        """Check nothing more, and forget the warnings: what is written down from here on is not
        what will run."""
        self.modes = dict.fromkeys(self.modes, "off")
        self._warnings.clear()
        self.begin(self.trace)

    def show_warnings(self) -> None:
        """Show what `warn` has gathered: the trace is done."""
        self._gathers = False
        found, self._warnings = list(self._warnings.values()), {}
        for error, times in found:
            warn(error, times)
