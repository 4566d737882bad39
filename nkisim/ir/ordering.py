"""Orders in which instructions can run, by what they read and write."""

from __future__ import annotations

from dataclasses import replace

from nkisim.ir.instruction import Instruction, OpKind
from nkisim.ir.memory import Role
from nkisim.ir.trace import Trace


class Node:
    """An instruction that has not run.

    Attributes:
        number: its place in the order in which instructions are given.
        after: those that have to run before it.
    """

    __slots__ = ("after", "instr", "number")

    def __init__(self, number: int, instr: Instruction) -> None:
        self.number, self.instr = number, instr
        self.after: list[Node] = []


class Waiting:
    """Instructions that have not run, and for each those that must run before it: the last write
    of what it touches, and what has read since then what it writes.

    Args:
        apart: whether what one core does in HBM that cores share is in no order with what another
            one does, but for fences.

    Attributes:
        writers: the last write of a buffer, if it has not run. Keys are `key` of a buffer.
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        self._count = 0
        self._nodes: set[Node] = set()
        self.writers: dict[object, Node] = {}
        self._readers: dict[object, list[Node]] = {}
        self._since: dict[int, list[Node]] = {}  # of a core: the last fence, and what follows it
        self._fences: dict[object, Node] = {}

    def add(self, instr: Instruction) -> Node | None:
        """Note an instruction; None if it writes nothing."""
        if instr.spec.kind is OpKind.BARRIER:
            if self._apart and instr.settings.fence:
                self._fence(instr)
            return None
        if not instr.outs:
            return None
        node = self._new(instr)
        keys = self._keys
        written = keys(instr, instr.outs)
        read = keys(instr, instr.tiles_in) - written
        for key in read | written:
            if key in self.writers:
                node.after.append(self.writers[key])
        for key in written:
            node.after += self._readers.pop(key, ())
            self.writers[key] = node
        for key in read:
            self._readers.setdefault(key, []).append(node)
        if self._apart:
            since = self._since.setdefault(instr.program, [])
            if since and since[0].instr.spec.kind is OpKind.BARRIER:
                node.after.append(since[0])
            since.append(node)
        return node

    def _new(self, instr: Instruction) -> Node:
        node = Node(self._count, instr)
        self._count += 1
        self._nodes.add(node)
        return node

    def _keys(self, instr: Instruction, tiles: tuple) -> set:
        if not self._apart:
            return {t.buffer.number for t in tiles}
        return {
            (t.buffer.number, None if t.buffer.role is Role.EXCHANGE else instr.program)
            for t in tiles
        }

    def _fence(self, instr: Instruction) -> None:
        """Order a fence: instructions in front of it, of any party, precede those behind it."""
        meeting = instr.settings.meeting
        node = self._fences.get(meeting)
        if node is None:
            node = self._fences[meeting] = self._new(instr)
        node.after += self._since.get(instr.program, ())
        self._since[instr.program] = [node]

    def take(self, node: Node | None) -> list[Instruction]:
        """An instruction and all that must run before it, in order; from now on they have run."""
        found: set[Node] = set()
        left = [node] if node is not None else []
        while left:
            node = left.pop()
            if node in self._nodes:
                self._nodes.discard(node)
                found.add(node)
                left += node.after
                node.after = []
        return [n.instr for n in sorted(found, key=lambda n: n.number) if n.instr.outs]


def by_core(trace: Trace, last_first: bool) -> list[Instruction]:
    """The instructions of a trace in another order in which they can run: each core does all that
    it can before it waits for another one, for data that it is sent or at a fence; then that one
    does no more than what it waits for.

    Args:
        trace: its instructions in an order in which they can run.
        last_first: whether the last core comes first.
    """
    waiting = Waiting(apart=True)
    cores: list[list[Node]] = [[] for _ in range(trace.grid.size)]
    waits = [0] * trace.grid.size  # how often a core has waited for another one
    fenced = [0] * trace.grid.size  # and how often at its last fence
    after: dict[Node, int] = {}  # and how often before it can do something
    for instr in trace.instructions:
        me = instr.program
        node = waiting.add(instr)
        if node is None:
            if instr.spec.kind is OpKind.BARRIER and instr.settings.fence:
                waits[me] += 1
                fenced[me] = waits[me]
            continue
        own = [after[n] for n in node.after if n in after and n.instr.program == me]
        after[node] = max([fenced[me], *own])
        if any(n.instr.program != me and n in after for n in node.after):
            waits[me] += 1
            after[node] = waits[me]
        cores[me].append(node)
    order: list[Instruction] = []
    for nodes in reversed(cores) if last_first else cores:
        for node in sorted(nodes, key=lambda n: after[n]):
            order += waiting.take(node)
    # What two cores write is compared where both write it in the order of the trace.
    return [i if i.contested is None else replace(i) for i in order]
