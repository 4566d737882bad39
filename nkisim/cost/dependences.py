"""Which tasks wait for which others, whatever they cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nkisim.cost.allocation import Residence
from nkisim.cost.regions import ORDER, READ, RESULT, Patterns, Regions
from nkisim.cost.tasks import Work
from nkisim.tensor import Tensor

RING = 3  # a dependence on an earlier transfer of the same DMA instruction


@dataclass(slots=True)
class Dependences:
    """What waits for what among the tasks of one core.

    It follows from the memory that tasks touch, and from which of them are transfers; not from what
    they cost. All lists are over the tasks.

    Attributes:
        tiles: which of them are on chip when.
        users: those that wait for a task's result.
        others: of some tasks, what else waits for them, with the kind of dependence.
        waits: for how many each one waits.
    """

    tiles: Residence
    users: list[list[int]]
    others: dict[int, list[tuple[int, int]]]
    waits: list[int]

    @classmethod
    def of(cls, work: Work, in_flight: int) -> Dependences:
        """Find them.

        Args:
            work: the tasks.
            in_flight: transfers of one DMA instruction that are under way at a time.
        """
        tasks, tiles = work.tasks, work.residence or Residence.of(work)
        patterns = Patterns()
        # Of memory that is not simply written once, and then read.
        regions = {n: Regions(patterns) for n in tiles.changing}
        hbm = {n for n, memory in work.memory.items() if not memory.space.on_chip}
        made: dict[int, tuple[int, Tensor | None]] = {}  # other memory -> who wrote which part
        users: list[list[int]] = [[] for _ in tasks]
        others: dict[int, list[tuple[int, int]]] = defaultdict(list)
        waits_for = []
        rings: dict[tuple, list[int]] = defaultdict(list)
        for at, task in enumerate(tasks):
            waits: dict[int, int] = {}
            for number, part in task.reads:
                source = made.get(number)
                if source is not None:
                    writer, written = source
                    if part is written or patterns.meet(part, written):
                        waits[writer] = RESULT
                elif number in regions:
                    regions[number].read(part, at, waits)
            for number, part in task.writes:
                if number in regions:
                    regions[number].write(part, at, waits)
                else:
                    made[number] = (at, part)
            kind = task.kind
            if kind.accumulates:
                for before, why in waits.items():
                    if why == RESULT and tasks[before].instr.opcode == "nc_matmul":
                        waits[before] = ORDER
            if kind.transfer is not None:
                far = None
                if task.reads and task.reads[0][0] in hbm:
                    far = task.reads[0][0]
                elif task.writes and task.writes[0][0] in hbm:
                    far = task.writes[0][0]
                ring = rings[id(task.instr.location), kind.label, far]
                if len(ring) >= in_flight:
                    waits.setdefault(ring[-in_flight], RING)
                ring.append(at)
            waits_for.append(len(waits))
            for before, why in waits.items():
                if why == RESULT:
                    users[before].append(at)
                else:
                    others[before].append((at, why))
        return cls(tiles, users, others, waits_for)

    def renamed(self, work: Work) -> Dependences:
        """The same if what is written on chip had memory of its own wherever that was used before:
        only who reads a result waits for it.

        Args:
            work: the tasks that these are the dependences of.
        """
        tasks = work.tasks
        hbm = {n for n, memory in work.memory.items() if not memory.space.on_chip}
        read = [{n for n, _ in task.reads} for task in tasks]
        stores = {at for at, task in enumerate(tasks) if any(n in hbm for n, _ in task.writes)}
        waits = list(self.waits)

        def overwrites(before: int, at: int, why: int) -> bool:
            if at in stores:
                return False
            return why == READ or read[at].isdisjoint([n for n, _ in tasks[before].writes])

        users: list[list[int]] = []
        for before, found in enumerate(self.users):
            users.append([at for at in found if not overwrites(before, at, RESULT)])
            for at in set(found).difference(users[before]):
                waits[at] -= 1
        others: dict[int, list[tuple[int, int]]] = {}
        for before, followers in self.others.items():
            others[before] = [
                (at, why) for at, why in followers if why == RING or not overwrites(before, at, why)
            ]
            for at, _ in set(followers).difference(others[before]):
                waits[at] -= 1
        return Dependences(self.tiles, users, others, waits)
