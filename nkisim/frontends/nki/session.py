"""The recording of a kernel of `import nki`, and the memo from calls to instructions.

What a call lowers to follows from the layouts of its tensors and from its settings. It is worked
out once (`Recipe`), with every check of these; later calls of the kind only fill in where their
tensors are. What depends on the place in the kernel, such as whether an operand was written, is
checked each time.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nkisim.checking.written import WrittenElements
from nkisim.errors import (
    ControlFlowError,
    KernelError,
    Location,
    OutOfBoundsError,
    ParameterError,
    ScopeError,
    ShapeError,
    TraceContextError,
    UnsupportedError,
    locate,
)
from nkisim.frontends.nki import matmuls
from nkisim.frontends.nki.dtypes import WIDE, Type, type_of
from nkisim.frontends.nki.memory import Contents
from nkisim.frontends.nki.registers import Assumed, RunTimeInteger
from nkisim.frontends.nki.releases import BY_NAME
from nkisim.frontends.nki.tensors.layout import Ints
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.frontends.nki.tensors.views import Indirect
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.barriers import Meeting
from nkisim.ir.instruction import OPCODES, Engine, Instruction
from nkisim.ir.limits import limit, too_many_iterations
from nkisim.ir.memo import Memo
from nkisim.ir.memory import Buffer, Placed, Space
from nkisim.ir.settings import Settings
from nkisim.machine import Machine
from nkisim.trace.coroutine import Coroutine
from nkisim.trace.tracer import Tracer, current_if_any

_MOVES = ("dma_copy", "device_print")  # what moves types of 64 bits

Walk = tuple[Ints, Ints]  # shape and strides of an operand
Way = tuple[Location | None, int]  # what a run-time loop did: its line, and how many rounds

# What a session holds of the core that is being traced.
_OF_CORE = (
    *("program", "loops", "running", "_declarations", "_shared_seen", "_met"),
    *("ordered", "named", "rounds", "passed", "limit"),
)


@functools.lru_cache(maxsize=16)
def _recipes(machine: Machine, checks: object) -> Memo[tuple, Recipe]:
    """The recipes of all traces for one machine with the same checks."""
    return Memo(4096)


class Recipe:
    """The lowering of one kind of call: its opcode, engine, access patterns and settings.

    Args:
        opcode: of the instruction.
        engine: that runs it.
        outs, ins: how each tensor is walked, in the order of the call's tensors.
        operands: the inputs in order, None for each tensor; None when all of them are tensors.
        settings: of the opcode's class; None for the defaults.
        asked: whether the kernel asked for the engine.
    """

    __slots__ = ("forms", "model", "operands", "outs", "walks")

    def __init__(
        self,
        opcode: str,
        engine: Engine | None,
        outs: list[Walk],
        ins: list[Walk],
        operands: tuple | None = None,
        settings: Settings | None = None,
        asked: bool = False,
    ) -> None:
        spec = OPCODES[opcode]
        if type(settings) is not spec.settings:
            if settings is not None:
                raise TypeError(f"settings of {opcode} are a {spec.settings.__name__}")
            settings = spec.settings()
        self.model = Instruction(
            opcode, engine or spec.engine, (), (), settings.shared(), engine_asked=asked
        )
        self.outs = len(outs)
        self.walks = [*outs, *ins]
        self.operands = operands
        self.forms: list[Form | None] = [None] * len(self.walks)


class Session(Tracer):
    """Records one kernel of this dialect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recipes = _recipes(self.trace.machine, self.checker.kind)
        # Writes down `tensor[...] = value`, given both: instructions are above this module.
        self.assign: Callable[[NkiTensor, object], None]
        self.config: Any = None  # what nki.jit was given: nkisim.frontends.nki.configuration.Config
        # What is looked at when a core has come to the end of the kernel.
        self.at_end: set[Callable[[Session], None]] = set()
        self.state: dict = {}  # what the families of instructions remember, by name and program
        self.types: dict[int, Type] = {}  # of the elements, by the number of the buffer
        # Shared HBM that was declared with a name, and how many of that name there were before.
        self.by_name: dict[tuple[str, int], NkiTensor] = {}
        self.named: Counter[str] = Counter()  # how many of a name this core has declared
        self.psum = WrittenElements()  # by matmuls (nkisim.frontends.nki.matmuls)
        self.ordered = 0  # how many no_reorder blocks are open
        self.memory: Contents | None = None  # what buffers hold; from the first value asked for
        self.depends_on_data = False  # whether what it does follows from values of its arguments
        self.rounds: set = set()  # `while register:` loops that are in the one round assumed
        # What the first core's run-time loops did, with their lines, and how far a later one is.
        self.path: list[Way] = []
        self.passed = 0
        self.left: dict[int, Location | None] = {}  # buffers that bodies of loops have declared
        # Cores whose tracing has begun before their turn (`_let_come`), what _OF_CORE is for them,
        # and at how many meetings the one that is being traced stops; None for none.
        self.early: dict[int, Coroutine] = {}
        self.states: dict[int, dict[str, Any]] = {}
        self.limit: int | None = None
        self.iterations = 0  # of run-time loops, which come out unrolled

    # -- cores ----------------------------------------------------------------------------------

    def instance(self, program: int, body: Callable[[], Any]) -> Any:
        """Trace one core, or what is left of it."""
        self.body = body
        if program in self.early:
            self._go_on(program, None)
            vars(self).update(self.states[program])
            result = self.early[program].result
        else:
            result = self._from_start(program)
        self.finish_program()
        return result

    def _from_start(self, program: int) -> Any:
        self.ordered, self.named, self.rounds, self.passed = 0, Counter(), set(), 0
        return super().instance(program, self.body)

    def finish_program(self) -> None:
        """One core has been traced. Cores that do the same, to the instruction, write the same."""
        for check in self.at_end:
            check(self)
        if self.program and self.passed < len(self.path):
            raise _apart(self.program, None, self.path[self.passed])
        trace = self.trace
        if self.program == trace.grid.size - 1:
            if self.early:
                trace.instructions.sort(key=lambda i: i.program)
            trace.tells_apart = trace.tells_apart and not _alike(
                trace.instructions, trace.grid.size
            )

    def _go_on(self, program: int, limit: int | None) -> None:
        """Trace another core, until it has met others so many times; None for to its end."""
        kept = {name: getattr(self, name) for name in _OF_CORE}
        vars(self).update(self.states.get(program, {}))
        self.limit = limit
        try:
            self.early[program].resume()
        finally:
            self.states[program] = {name: getattr(self, name) for name in _OF_CORE}
            vars(self).update(kept)

    def _let_come(self, program: int, meetings: int) -> None:
        """Trace a core whose turn is later, until it has met others so many times."""

        def from_start() -> None:
            with self.in_this_thread():
                self._from_start(program)

        if program not in self.early:
            self.early[program] = Coroutine(from_start)
        elif self.states[program]["_met"].total() >= meetings:
            return
        self._go_on(program, meetings)

    def meet(self, meeting: Meeting, *, fence: bool = False) -> None:
        super().meet(meeting, fence=fence)
        if self.limit is not None and self._met.total() >= self.limit:
            self.early[self.program].pause()

    def _let_others_come(self) -> None:
        """After a meeting this core may read what others wrote before it: trace them up to it."""
        meetings = self._met.total()
        if meetings:
            for other in range(self.program + 1, self.trace.grid.size):
                self._let_come(other, meetings)

    def close(self) -> None:
        for core in self.early.values():
            core.cancel()

    # -- memory ---------------------------------------------------------------------------------

    def tensor(
        self,
        shape: Ints,
        kind: Type,
        space: Space,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        """A tensor that the kernel declares."""
        declared = shape
        if space.on_chip:
            row = 1
            for n in shape[1:]:
                row *= n
            shape = (shape[0], row)
        shared = space is Space.SHARED_HBM and name
        if shared:
            which = name, self.named[name]
            self.named[name] += 1
            found = self.by_name.get(which)
            if found is not None:
                self._shared_seen += 1
                return found
        buffer = self.allocate(shape, kind.stored, space, name=name).buffer
        buffer.declared = True
        if address is not None:
            self._place(buffer, address)
        made = self.of_buffer(buffer, kind, declared)
        if shared:
            self.by_name[which] = made
        return made

    def _place(self, buffer: Buffer, address: tuple[int, int]) -> None:
        start, at = address
        buffer.place = lambda *_: address
        buffer.placed = (Placed(start, buffer.shape[0], at, buffer.partition_bytes),)

    def of_buffer(self, buffer: Buffer, kind: Type, declared: Ints) -> NkiTensor:
        """The tensor that is all of a buffer."""
        self.types[buffer.number] = kind
        new = NkiTensor(declared, kind.name, buffer, buffer.space.value)
        return new

    def parameter(self, name: str, shape: Ints, dtype: object) -> NkiTensor:
        """A tensor argument: HBM that the caller has filled."""
        kind = type_of(dtype, f"{name}.dtype")
        if not shape:
            raise ShapeError(
                f"argument {name} is an array without axes",
                rule="a tensor has an axis at least; under jax.jit a number is such an array",
                fix=f"pass {name} as a number that is known when the kernel is traced, which under "
                f"jax.jit is functools.partial(kernel, {name}=2.0) or static_argnames; or pass "
                f"{name}.reshape(1, 1), and load it as a tile",
            )
        return self.of_buffer(self.argument(name, shape, kind.stored).buffer, kind, shape)

    def fixed(self, values: np.ndarray, kind: Type, name: str = "") -> NkiTensor:
        """HBM that holds data known when the kernel is compiled."""
        buffer = self.constant(values.view(kind.stored), name).buffer
        return self.of_buffer(buffer, kind, tuple(values.shape))

    def state_tensor(self, name: str, shape: Ints, dtype: str) -> NkiTensor:
        """State of this core's hardware that no kernel declares, such as accumulators."""
        key = (self.program, name)
        found = self.state.get(key)
        if found is None:
            kind = type_of(dtype)
            buffer = self.hidden(name, shape, kind.stored).buffer
            found = self.state[key] = self.of_buffer(buffer, kind, shape)
        return found

    # -- instructions ---------------------------------------------------------------------------

    def issue(
        self, key: tuple, tensors: tuple[NkiTensor, ...], lower: Callable[[], Recipe]
    ) -> Instruction:
        """Write down what a call does.

        Args:
            key: which operation, with which settings.
            tensors: its tensors: those that it writes, then those that it reads.
            lower: works out what it lowers to. Raises KernelError if that is nothing.
        """
        if self.left:
            for t in tensors:
                self.check_reached(t)
        # With the types: -1, -1.0 and True are equal to others, and one is no operand of bits.
        name = (key, *map(type, key), *[t._layout for t in tensors])
        recipe = self.recipes.get(name)
        fresh = recipe is None
        if fresh:
            _check_wide(key, tensors)
            recipe = lower()
        patterns = []
        forms = recipe.forms
        for at, t in enumerate(tensors):
            own = t._layout
            form = forms[at]
            if form is not None:
                patterns.append(t._pattern_of(form, divmod(t.offset, own.row)))
                continue
            form, place = own.operand(t.offset, *recipe.walks[at])
            if own.on_chip and own.row:
                forms[at] = form
            patterns.append(t._pattern_of(form, place))
        count = recipe.outs
        outs, tiles = tuple(patterns[:count]), tuple(patterns[count:])
        ins = tiles
        if recipe.operands is not None:
            rest = iter(tiles)
            ins = tuple([next(rest) if x is None else x for x in recipe.operands])
        instr = recipe.model.again(outs, ins, tiles, self.program, (), locate())
        try:
            if fresh:
                self.checker.on_instruction(instr)
                self.recipes[name] = recipe
            else:
                self.checker.on_instruction(instr, tuple(patterns))
        except KernelError as error:
            error.instruction = instr
            raise
        self.trace.instructions.append(instr)
        if outs and tensors[0]._layout.space is Space.PSUM and instr.engine is not Engine.TENSOR:
            matmuls.closed(self.psum, tensors[0])
        return instr

    # -- values, where the kernel is traced on data ---------------------------------------------

    def values_of(self, tensor: NkiTensor) -> np.ndarray:
        """The elements of a tensor at this point of the kernel; zeros if it is traced without data
        (see `assume`)."""
        if self.data is None:
            self.assume()
            return np.zeros(tensor.shape, tensor._layout.type.stored)
        self.holds_for_this_data()
        buffer = tensor._buffer
        if buffer.data is not None:
            return _read(buffer.data, tensor)
        self._let_others_come()
        if self.memory is None:
            self.memory = Contents(self.trace, self.data)
        return _read(self.memory.read(buffer), tensor)

    def holds_for_this_data(self) -> None:
        """A value, or the rank, decides what the kernel does."""
        self.depends_on_data = True
        self.checker.modes["input"] = "off"  # which part of an input is read is data, too

    def assume(self) -> None:
        """A value decides what the kernel does, and there is none: the trace gives the shapes of
        the outputs, and what runs is traced on data (nkisim.runtime.by_data)."""
        if not self.depends_on_data:
            self.depends_on_data = True
            self.checker.stop()
            self.recipes = _recipes(self.trace.machine, self.checker.kind)

    @contextmanager
    def one_round(self) -> Iterator[None]:
        """One iteration of a loop whose body is a function: tensors that it declares stay in it."""
        first = len(self.trace.buffers)
        yield
        shared = {t._buffer.number for t in self.state.values() if isinstance(t, NkiTensor)}
        for buffer in self.trace.buffers[first:]:
            own = buffer.declared and buffer.program == self.program
            if own and buffer.number not in shared:
                self.left[buffer.number] = buffer.location

    def check_reached(self, tensor: NkiTensor) -> None:
        """Raises ScopeError for a tensor that the body of a loop has declared and left."""
        if tensor._buffer.number in self.left:
            raise ScopeError(
                f"{tensor.describe()} is used outside of the body that declares it, at "
                f"{self.left[tensor._buffer.number]}",
                rule="what the body of nl.fori_loop or nl.while_loop declares stays in that round",
                fix="declare it before the loop, and write it in the body",
            )

    def on_loop(self, call: str, turns: int) -> None:
        """A run-time loop has so many rounds, or one more or none (True or False).

        Raises:
            ParameterError: it is inside no_reorder.
            ControlFlowError: the cores of a logical core take different ways.
            LimitError: run-time loops have more rounds than the limit says.
        """
        self.iterations += int(turns)
        if self.iterations > limit("iterations"):
            raise too_many_iterations(self.iterations, call)
        if self.ordered:
            raise ParameterError(
                f"{call} inside nl.no_reorder",
                rule="no loop of the device is inside no_reorder; the reverse is fine",
                fix="put no_reorder into the body of the loop",
            )
        here = locate(), turns
        if self.program == 0:
            self.path.append(here)
            return
        first = self.path[self.passed] if self.passed < len(self.path) else None
        self.passed += 1
        if first != here:
            raise _apart(self.program, here, first)

    def number_of(self, index: RunTimeInteger | NkiTensor) -> int:
        """The value of a register or a scalar, or of a one-element tensor."""
        if isinstance(index, RunTimeInteger):
            return index.number()
        return self.element(index)

    def element(self, tensor: NkiTensor) -> int | float:
        """The value of a one-element tensor: an Assumed if it is traced without data."""
        value = self.values_of(tensor).reshape(-1)[0].item()
        return Assumed() if self.data is None else value

    def settled(self, tensor: NkiTensor) -> NkiTensor:
        """The static view that a dynamic view, moved by a register or a tensor, is on this data.

        Raises:
            OutOfBoundsError: it leaves the axis that the index counts on, or the tensor.
        """
        moved: Indirect = tensor._indirect
        own = tensor._layout
        value = self.number_of(moved.index)
        at = tensor.offset + value * moved.unit
        rule = None
        if not 0 <= value <= max(moved.size, 1) - moved.taken:
            rule = f"the axis has {moved.size} elements"
            if moved.taken > 1:
                rule += f", and the view takes {moved.taken} from the offset on"
        elif self.data is not None:
            form, start = own.operand(at, own.shape, own.strides)
            if not form.holds(start):
                rule = (
                    f"from the offset on, the view's {list(own.shape)} elements with the strides "
                    f"{list(own.strides)} lie in the tensor"
                )
        if rule is not None:
            raise OutOfBoundsError(
                f"a dynamic offset of {value} on axis {moved.dim} of {tensor.describe()}",
                rule=rule,
                fix="correct the value that the register or the index tensor holds, or take fewer "
                "elements",
            )
        plain = tensor._at(own, at)
        plain._indirect = None
        return plain


def _check_wide(key: tuple, tensors: tuple[NkiTensor, ...]) -> None:
    """Raises UnsupportedError for what no page says of types of 64 bits: instructions other than
    DMA, and conversions."""
    types = {t.dtype for t in tensors}
    wide = next((t for t in tensors if t.dtype in WIDE), None)
    if wide is None or (key[0] in _MOVES and len(types) == 1):
        return
    raise UnsupportedError(
        f"an instruction on {wide.describe()}"
        + "".join(f", with {other}" for other in sorted(types - {wide.dtype})),
        rule=BY_NAME[f"nl.{wide.dtype}"].unpublished,
        fix="pass it in 32 bits: x.astype(np.int32); or load one element with nisa.scalar_load",
    )


def _apart(core: int, here: Way | None, first: Way | None) -> ControlFlowError:
    """A core takes another way than the first one."""
    if here is None:
        what = f"core 0 comes to a run-time loop, and core {core} does not"
    elif first is None:
        what = f"core {core} comes to a run-time loop, and core 0 does not"
    elif here[0] != first[0]:
        what = f"core {core} comes to a run-time loop, and core 0 to one at {first[0]}"
    else:
        what = f"a run-time loop has {_told(here)} on core {core}, and {_told(first)} on core 0"
    return ControlFlowError(
        what,
        rule="the cores of a logical core take the same way through run-time loops; otherwise what "
        "they do is undefined, and the runtime is likely to stop with an error",
        fix="load the bound from one element that both cores read",
        location=(here or first)[0],
    )


def _told(way: Way) -> str:
    turns = way[1]
    if isinstance(turns, bool):
        return "one more round" if turns else "no more round"
    return f"{turns} round{'s' * (turns != 1)}"


def _alike(instructions: list[Instruction], cores: int) -> bool:
    """Whether all cores run the same instructions, on the same memory or on memory of their own."""
    streams: list[list[Instruction]] = [[] for _ in range(cores)]
    for i in instructions:
        streams[i.program].append(i)
    first = streams[0]
    if any(len(s) != len(first) for s in streams):
        return False
    for other in streams[1:]:
        own: dict[int, int] = {}  # a buffer of the first core -> that of the other
        for a, b in zip(first, other, strict=True):
            if a.opcode != b.opcode or a.settings is not b.settings or len(a.ins) != len(b.ins):
                return False
            for x, y in zip((*a.outs, *a.ins), (*b.outs, *b.ins), strict=True):
                if not isinstance(x, AccessPattern):
                    if x is not y and x != y:
                        return False
                    continue
                if x.form is not y.form or x.offsets != y.offsets:
                    return False
                n, m = x.buffer.number, y.buffer.number
                if own.setdefault(n, m) != m or (x.buffer.program is None and n != m):
                    return False
    return True


def _read(values: np.ndarray, tensor: NkiTensor) -> np.ndarray:
    own = tensor._layout
    flat = values.reshape(-1).view(own.type.stored)
    strides = tuple(s * flat.itemsize for s in own.strides)
    return np.ndarray(own.shape, flat.dtype, flat, tensor.offset * flat.itemsize, strides).copy()


def current() -> Session:
    """The kernel that is being traced.

    Raises:
        TraceContextError: none is, or one of the other dialect.
    """
    found = current_if_any()
    if type(found) is Session:
        return found
    if found is not None:
        raise TraceContextError(
            f"a function of `nki` is called in {found.trace.name}, a kernel of `neuronxcc.nki`",
            rule="a kernel is written in one dialect: nisa instructions of `nki` take their "
            "destination first, those of `neuronxcc.nki` return it",
            fix="decorate the kernel with `nki.jit`, or import nl and nisa from neuronxcc.nki",
        )
    raise TraceContextError(
        "a function of `nki` is called outside a kernel",
        rule="nl.* and nisa.* describe instructions of a kernel that is being traced",
        fix="put the code in a function, and call nki.jit(function) or nki.simulate(function)",
    )
