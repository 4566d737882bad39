"""Tracing: run the Python kernel once on tensors without data and write down its instructions.

A kernel is specialised to its grid, shapes, dtypes and constants. Each SPMD instance is traced in
turn; loop indices and program ids are plain integers, so loops come out unrolled, with a record of
the iteration each instruction belongs to. Checks see every instruction as it is written down, so
an error carries the traceback of the kernel line that caused it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from nkisim.checking import Checker
from nkisim.compiler.folding import fold_assignments
from nkisim.errors import (
    KernelError,
    Location,
    ParameterError,
    RaceError,
    ScopeError,
    TileSizeError,
    TraceContextError,
    locate,
)
from nkisim.ir.access import AccessPattern, intern
from nkisim.ir.barriers import Meeting, interleave
from nkisim.ir.grid import Grid
from nkisim.ir.instruction import OPCODES, Engine, Instruction, Operand
from nkisim.ir.loops import Declarations, Loop, Path
from nkisim.ir.memo import Memo
from nkisim.ir.memory import Buffer, Role, Space
from nkisim.ir.restriction import boxes
from nkisim.ir.rules import Rules
from nkisim.ir.settings import Settings
from nkisim.ir.trace import Trace
from nkisim.machine import Machine
from nkisim.machine.target import target


@functools.lru_cache(maxsize=16)
def _lowered_calls(machine: Machine, checks: object) -> Memo:
    """How calls lower, for calls that are like others (`lowering.op_cache`): one memo for all
    traces for one machine with the same checks."""
    return Memo(4096)


class Tracer:
    """Records one kernel. `nl.*` and `nisa.*` functions find it through `current()`.

    Args:
        name: the kernel's name.
        grid: its launch grid.
        checker: what looks at the instructions.
        machine: the generation traced for.
        rules: of the dialect that the kernel is written in.
    """

    def __init__(
        self,
        name: str,
        grid: Grid,
        checker: Checker,
        machine: Machine,
        rules: Rules,
    ) -> None:
        self.trace = Trace(name, grid, machine=machine, rules=rules)
        self.checker = checker
        self.program = 0
        self.loops: Path = ()
        self.running: tuple[int, ...] = ()  # the indices of these loops
        self._shared: list[AccessPattern] = []
        self._shared_seen = 0
        self._identities: dict[tuple[int, np.dtype], AccessPattern] = {}
        self.data: list[np.ndarray] | None = None  # the arguments, when they have values
        self.values_read = False  # whether the kernel has read values (see trace.debugging)
        self.values_seen = False  # whether anybody has, as who prints a tile
        self.direct = True  # whether tiles go where the kernel places them
        self._declarations = Declarations()
        self._places: dict[tuple, Callable] = {}  # of tiles, in the first iteration of their loops
        self._hidden: dict[tuple[int, str], AccessPattern] = {}
        # What wrote results that were absorbed, by the number of the result: its position, the
        # instruction, and what that was: operands, loops and kernel line; and settings.
        self._absorbed: dict[int, tuple[int, Instruction, tuple, dict]] = {}
        self._exchanges: dict[Hashable, AccessPattern] = {}
        self._in_hbm = 0  # bytes
        self._met: Counter[tuple[str, tuple[int, ...]]] = Counter()  # meetings of this instance
        # Results that no instruction has made yet: buffer number -> what writes them where they
        # are assigned.
        self.unassigned: dict[int, Callable[[AccessPattern], None]] = {}
        checker.begin(self.trace)
        self.lowered_calls = _lowered_calls(machine, checker.kind)

    # -- memory ---------------------------------------------------------------------------------

    def argument(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> AccessPattern:
        """Declare a tensor argument: HBM that the caller has filled."""
        tensor = self._allocate(
            shape, dtype, Space.SHARED_HBM, name=name, role=Role.ARGUMENT, shared=True
        )
        self.trace.arguments.append(tensor)
        return tensor

    def constant(self, values: np.ndarray, name: str = "") -> AccessPattern:
        """HBM that holds data known when the kernel is compiled."""
        flat = np.ascontiguousarray(values)
        if self.values_read and name != "identity":
            self.checker.report("values", _embeds_values(flat))
        return self._allocate(
            flat.shape, flat.dtype, Space.SHARED_HBM, name=name, role=Role.CONSTANT, data=flat
        )

    def identity(self, n: int, dtype: np.dtype) -> AccessPattern:
        """The (n, n) identity matrix of `dtype`, one in a program."""
        found = self._identities.get((n, dtype))
        if found is None:
            found = self._identities[n, dtype] = self.constant(
                np.identity(n, np.uint8).astype(dtype), "identity"
            )
        return found

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        space: Space,
        *,
        name: str = "",
        par_axis: int = 0,
        place: Callable | None = None,
    ) -> AccessPattern:
        """A new tensor. Shared HBM is one tensor for all SPMD instances: the n-th request of each
        instance gets the n-th tensor."""
        self.checker.on_allocate(
            shape, dtype, space, par_axis, name, place is not None and self.direct
        )
        if space is not Space.SHARED_HBM:
            location = locate()
            declaration = self.program, self._declarations.name(location)
            if place is not None and self.direct:
                place = self._places.setdefault(declaration, place)
            tile = self._allocate(
                shape,
                dtype,
                space,
                location=location,
                name=name,
                par_axis=par_axis,
                place=place if self.direct else None,
            )
            if self._declarations.repeat and space.on_chip:
                self.checker.on_declare(declaration, tile.buffer)
            return tile
        if self.loops:
            self.checker.report("scope", _shared_in_a_loop(shape, dtype))
        at = self._shared_seen
        self._shared_seen += 1
        if at == len(self._shared):
            self._shared.append(self._allocate(shape, dtype, space, name=name, shared=True))
        return self._agreed(f"shared HBM tensor {at}", self._shared[at], shape, dtype)

    def make_again(
        self, like: AccessPattern, name: str, location: Location | None
    ) -> AccessPattern:
        """A new on-chip tile like another one, which was checked."""
        buffers = self.trace.buffers
        buffer = like.buffer.again(len(buffers), self.program, self.loops)
        buffer.name, buffer.location = name, location
        buffers.append(buffer)
        if self._declarations.repeat:
            declaration = self.program, self._declarations.name(location)
            self.checker.on_declare(declaration, buffer)
        return like.moved(buffer, like.offsets)

    def meeting(self, name: str, parties: Iterable[int] | None = None) -> Meeting:
        """The next meeting of this instance with others, under a name; `meet` waits there.

        Args:
            name: what the kernel calls, e.g. "nl.all_reduce".
            parties: numbers of the instances that take part, this one among them; None for all.
        """
        found = tuple(range(self.trace.grid.size) if parties is None else sorted(set(parties)))
        number = self._met[name, found]
        self._met[name, found] += 1
        return Meeting(name, found, number)

    def meet(self, meeting: Meeting, *, fence: bool = False) -> None:
        """Wait until all parties of a meeting have come.

        Args:
            meeting: of `meeting`.
            fence: whether what each party did in shared HBM before is done for all of them after.
                Else the meeting orders only what goes through exchange buffers.
        """
        self.emit("barrier", (), meeting=meeting, fence=fence)

    def exchange(self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype) -> AccessPattern:
        """Memory through which instances hand each other data around a meeting: written before
        `meet`, read after it.

        Args:
            key: the same for all instances that share the buffer, e.g. the meeting, or the meeting
                and the number of the instance that sends.
            shape, dtype: of the buffer.

        Raises:
            RaceError: another instance has asked for another shape or type under this key.
        """
        found = self._exchanges.get(key)
        if found is None:
            found = self._exchanges[key] = self._allocate(
                shape,
                dtype,
                Space.SHARED_HBM,
                name=f"exchange {len(self._exchanges)}",
                role=Role.EXCHANGE,
                shared=True,
            )
        return self._agreed(found.buffer.name, found, shape, dtype)

    def _agreed(
        self, what: str, found: AccessPattern, shape: tuple[int, ...], dtype: np.dtype
    ) -> AccessPattern:
        """`found`. Raises RaceError when another instance has declared it differently."""
        if found.shape != shape or found.dtype != dtype:
            raise RaceError(
                f"instance {self.program} declares {what} as {dtype}{list(shape)}, "
                f"another instance as {found.dtype}{list(found.shape)}",
                rule="shared_hbm tensors are common to all instances of the launch grid",
                fix="give it a shape and dtype that do not depend on nl.program_id",
            )
        return found

    def _allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        space: Space,
        shared: bool = False,
        location: Location | None = None,
        **more: Any,
    ) -> AccessPattern:
        buffer = Buffer(
            len(self.trace.buffers),
            intern(shape),
            dtype,
            space,
            program=None if shared else self.program,
            loops=self.loops,
            location=location or locate(),
            **more,
        )
        self.trace.buffers.append(buffer)
        if not space.on_chip:
            self._check_hbm(buffer)
        if buffer.place is not None:
            self.checker.on_place(buffer)
        return self.trace.rules.tensor(buffer)

    def _check_hbm(self, buffer: Buffer) -> None:
        """Raises TileSizeError when the tensors in HBM do not fit the chip."""
        self._in_hbm += buffer.size * buffer.dtype.itemsize
        machine = self.trace.machine
        if self._in_hbm > machine.hbm_bytes:
            raise TileSizeError(
                f"{buffer.dtype}{list(buffer.shape)} takes the kernel's tensors in HBM to "
                f"{self._in_hbm / 2**30:,.0f} GiB",
                rule=f"a chip with {machine.name} has {machine.hbm_bytes >> 30} GiB of HBM, for "
                "all of its cores",
                fix="pass smaller tensors, or launch the kernel on parts of them",
                location=buffer.location,
            )

    def hidden(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> AccessPattern:
        """State of this instance's hardware that no kernel declares, such as accumulators."""
        key = (self.program, name)
        if key not in self._hidden:
            tensor = self._hidden[key] = self._allocate(shape, dtype, Space.SBUF, name=name)
            tensor.buffer.declared = True
            tensor.buffer.loops = ()  # it outlives the loop that first uses it
            self.trace.hidden.add(tensor.buffer.number)
        return self._hidden[key]

    def has_hidden(self, name: str) -> bool:
        """Whether this instance has used the hidden state `name`."""
        return (self.program, name) in self._hidden

    # -- instructions ---------------------------------------------------------------------------

    def assign(self, target: Any, value: object) -> None:
        """Write down `target[...] = value`, of a tensor of a dialect that leaves it to this.

        Raises:
            TraceContextError: the kernel that is traced is of another one.
        """
        raise TraceContextError(
            f"{target.describe()} is assigned to in {self.trace.name}, a kernel of "
            f"`{self.trace.rules.dialect}`",
            rule="a kernel is written in one dialect, and its tensors are of that dialect",
            fix="make the tensor in this kernel",
        )

    def emit(
        self,
        opcode: str,
        outs: tuple[AccessPattern, ...],
        ins: tuple[Operand, ...] = (),
        *,
        mask: Any = None,
        where: np.ndarray | None = None,
        where_out: np.ndarray | None = None,
        engine: Engine | None = None,
        default: Engine | None = None,
        **settings: Any,
    ) -> None:
        """Write down one instruction.

        With `mask`, all tile operands span the same iteration domain. Instructions whose operands
        have other axes cut them down themselves (`restriction`) and pass `where`.

        `engine` is what the kernel asked for. When it asked for none, the instruction runs on
        `default`, or on the engine that the opcode has in the table.
        """
        if mask is not None:
            domain = (outs + tuple(x for x in ins if isinstance(x, AccessPattern)))[0].shape
            left = self.trace.rules.restriction(mask, domain)
            if left.empty:
                self.checker.on_masked_off(outs)
                return
            outs = tuple(t.restrict(left.box) for t in outs)
            ins = tuple(x.restrict(left.box) if isinstance(x, AccessPattern) else x for x in ins)
            where = left.dense
            if where is not None and any(
                t.escape() is not None for t in (*outs, *ins) if isinstance(t, AccessPattern)
            ):
                self._emit_boxes(opcode, outs, ins, where, (engine, default), settings)
                return
        if self._absorbed:
            self.restore([x for x in ins if isinstance(x, AccessPattern)])
        spec = OPCODES[opcode]
        instr = Instruction(
            opcode,
            engine or default or spec.engine,
            outs,
            ins,
            spec.settings.of(settings),
            where,
            where_out,
            self.program,
            self.loops,
            locate(),
            engine is not None,
        )
        self._write(instr)

    def _write(self, instr: Instruction, changed: tuple[AccessPattern, ...] | None = None) -> None:
        """Write down an instruction, once it is checked (see Checker.on_instruction)."""
        try:
            self.checker.on_instruction(instr, changed)
        except KernelError as error:
            error.instruction = instr
            raise
        self.trace.instructions.append(instr)

    def repeat(self, outs: Iterable[AccessPattern]) -> None:
        """Write down the last instruction, which reads no tensor, once more for each of `outs`."""
        last = self.trace.instructions[-1]
        for out in outs:
            instr = last.again((out,), last.ins, (), self.program, self.loops, last.location)
            self._write(instr)

    def _emit_boxes(
        self,
        opcode: str,
        outs: tuple[AccessPattern, ...],
        ins: tuple[Operand, ...],
        where: np.ndarray,
        engines: tuple[Engine | None, Engine | None],
        settings: dict,
    ) -> None:
        """An instruction a box of what the mask leaves: where it is false, operands reach outside
        of their tensors, and an access pattern has to stop short of that."""
        for box in boxes(where):
            self.emit(
                opcode,
                tuple(t.restrict(box) for t in outs),
                tuple(x.restrict(box) if isinstance(x, AccessPattern) else x for x in ins),
                engine=engines[0],
                default=engines[1],
                **settings,
            )

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Ask that what this instance writes down meanwhile runs in that order."""
        first = len(self.trace.instructions)
        yield
        block = [i for i in self.trace.instructions[first:] if i.program == self.program]
        self.trace.orders += pairwise(block)

    def absorb(
        self,
        value: AccessPattern,
        target: AccessPattern,
        settings: Settings,
        reads: bool,
        location: Location | None,
    ) -> None:
        """Let the last instruction, which wrote `value`, work on `target` instead. Should `value`
        be read later, the instruction that made it comes back in its place.

        Args:
            value: the result that is used for nothing else.
            target: what is written in its place.
            settings: those of the instruction from now on.
            reads: whether it reads `target` first.
            location: the kernel line that does so.
        """
        instructions = self.trace.instructions
        instr = instructions.pop()
        ins, tiles_in = instr.ins, instr.tiles_in
        own = instr.outs, ins, tiles_in, instr.loops, instr.location
        self._absorbed[value.buffer.number] = len(instructions), instr, own, instr.settings
        instr.outs = (target,)
        if reads:
            instr.tiles_in = (*tiles_in, target)
            instr.ins = instr.tiles_in if ins is tiles_in else (*ins, target)
        instr.settings, instr.loops, instr.location = settings, self.loops, location
        self._write(instr, (target,))

    @property
    def surprises(self) -> tuple[int, int, int]:
        """Changes when an operation does more than write down instructions."""
        return KernelError.made, self.checker.skips, len(self._absorbed)

    def restore(self, read: Iterable[AccessPattern]) -> None:
        """Write down again the instructions that were absorbed and made what is read now."""
        if self._absorbed:
            for x in read:
                if x.buffer.number in self._absorbed:
                    self._restore(x.buffer.number)

    def _restore(self, number: int) -> None:
        """Write down again, in its old place, an instruction that was absorbed."""
        at, instr, (*operands, loops, location), settings = self._absorbed.pop(number)
        restored = instr.again(*operands, instr.program, loops, location)
        restored.settings = settings
        self.trace.instructions.insert(at, restored)
        self._absorbed = {
            n: (place + (place >= at), *other) for n, (place, *other) in self._absorbed.items()
        }

    # -- structure ------------------------------------------------------------------------------

    def loop(self, indices: range, kind: str) -> Iterator[int]:
        """Iterate, recording which iteration each instruction belongs to.

        Args:
            indices: of the loop.
            kind: what the kernel calls, such as "affine_range".
        """
        number = len(self.trace.loops)
        location = locate()
        loop = Loop(kind, location)
        self.trace.loops.append(loop)
        outside, declared, around = self.loops, self._declarations, self.running
        is_unrolled = loop.is_unrolled
        inside = declared.body(location, is_unrolled)
        watch_loop = None if is_unrolled else self.trace.rules.watch_loop
        watch = None if watch_loop is None else watch_loop(sys._getframe(1), loop)
        try:
            for at, i in enumerate(indices):
                if watch is not None and (error := watch.take_back()):
                    self.checker.report("counter", error)
                self.loops = (*outside, (number, at))
                self._declarations = inside
                inside.begin(at if is_unrolled else None)
                self.running = (*around, i)
                yield i
        finally:
            self.loops, self._declarations, self.running = outside, declared, around

    def run(self, body: Callable[[], Any]) -> Trace:
        """Trace `body` once for each SPMD instance."""
        _stack().append(self)
        try:
            for program in range(self.trace.grid.size):
                result = self.instance(program, body)
                if program == 0:
                    self.trace.result = result
            fold_assignments(self.trace)
            self.checker.finish()
            interleave(self.trace)
        except KernelError as error:
            error.trace = self.trace
            raise
        except Exception as error:
            explain = self.trace.rules.explain
            told = None if explain is None else explain(error)
            if told is None:
                raise
            told.trace = self.trace
            raise told.with_traceback(error.__traceback__) from None
        finally:
            self.close()
            _stack().pop()
            self.checker.show_warnings()
        return self.trace

    def instance(self, program: int, body: Callable[[], Any]) -> Any:
        """Trace `body` for one SPMD instance; what it returns."""
        self.program = program
        self.loops = self.running = ()
        self._declarations = Declarations()
        self._shared_seen = 0
        self._met = Counter()
        return body()

    def close(self) -> None:
        """The kernel has been traced, or there was an error."""

    @contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Calls of this thread are recorded here."""
        _stack().append(self)
        try:
            yield
        finally:
            _stack().pop()


def _embeds_values(data: np.ndarray) -> ParameterError:
    return ParameterError(
        f"a constant of {data.nbytes:,} bytes is embedded after nkisim.values was called",
        rule="a compiler specialises a kernel before there are values: what follows from them "
        "cannot be in it",
        fix="compute it with instructions; call nkisim.values for debugging only",
    )


def _shared_in_a_loop(shape: tuple[int, ...], dtype: np.dtype) -> ScopeError:
    return ScopeError(
        f"a {dtype}{list(shape)} tensor in shared HBM is made in a loop",
        rule="shared_hbm tensors are made at the top level of the kernel",
        fix="make it before the loop; scratch tensors go to nl.private_hbm",
        code="err_shared_hbm_must_in_kernel_level",
    )


_local = threading.local()


def _stack() -> list[Tracer]:
    try:
        return _local.stack
    except AttributeError:
        _local.stack = []
        return _local.stack


def tracing() -> bool:
    """Whether a kernel is being traced in this thread."""
    return current_if_any() is not None


def machine_now() -> Machine:
    """The NeuronCore generation of the kernel that is traced; outside of one, of the next."""
    tracer = current_if_any()
    return target().machine if tracer is None else tracer.trace.machine


def current_if_any() -> Tracer | None:
    """The kernel being traced; None outside of one."""
    stack = getattr(_local, "stack", None)
    return stack[-1] if stack else None


def current() -> Tracer:
    """The kernel being traced. Raises TraceContextError outside a kernel."""
    stack = _stack()
    if not stack:
        raise TraceContextError(
            "an NKI operation is called outside a kernel",
            rule="nl.* and nisa.* describe instructions of a kernel that is being traced",
            fix="put the code in a function decorated with @nki.jit and call that function",
            code="err_nki_api_outside_of_nki_kernel",
        )
    return stack[-1]
