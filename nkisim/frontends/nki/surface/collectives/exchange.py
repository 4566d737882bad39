"""The common part of the collectives: checks of tensors and groups, and the exchange itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from nkisim.errors import ParameterError, ShapeError, locate
from nkisim.frontends.nki import ops, releases
from nkisim.frontends.nki.ranks import Post, Rank, this_rank
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface import isa
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.memory import Space

__all__ = ["ReplicaGroup", "rg_partition_op"]

_REDUCTIONS = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}


class rg_partition_op(Enum):
    """The formula of `ReplicaGroup.from_partition_op`. New in NKI 0.7."""

    bitwise_and = "bitwise_and"
    div = "div"
    mod = "mod"


_FORMULAS: dict[rg_partition_op, Callable[[int, int], int]] = {
    rg_partition_op.bitwise_and: operator.and_,
    rg_partition_op.div: operator.floordiv,
    rg_partition_op.mod: operator.mod,
}


class ReplicaGroup:
    """Groups of ranks that take part in a collective; they do not overlap.

    Args:
        groups: lists of ranks.
    """

    @staticmethod
    def from_partition_op(world_size: int, op: rg_partition_op, operand: int) -> ReplicaGroup:
        """Groups of the ranks 0 to world_size - 1 by a formula. New in NKI 0.7.

        Args:
            world_size: the number of ranks.
            op: ranks with one value of op(rank, operand) are a group.
            operand: of the formula.

        Returns:
            The groups, by their first ranks.

        Raises:
            ParameterError: no ranks, another formula, or an operand that it does not take.
        """
        call = "ncc.ReplicaGroup.from_partition_op"
        if not releases.has(call):
            raise releases.too_new(call)
        if op not in _FORMULAS:
            raise ParameterError(
                f"{call}: op={op!r}",
                rule="it is one of ncc.rg_partition_op: bitwise_and, div, mod",
                fix="pass one of these",
            )
        least = 0 if op is rg_partition_op.bitwise_and else 1
        if world_size < 1 or operand < least:
            raise ParameterError(
                f"{call}({world_size}, {op.name}, {operand})",
                rule=f"there is one rank or more, and the operand of {op.name} is at least {least}",
                fix="pass the number of ranks of the job",
            )
        found: dict[int, list[int]] = {}
        for rank in range(world_size):
            found.setdefault(_FORMULAS[op](rank, operand), []).append(rank)
        return ReplicaGroup(list(found.values()))

    def __init__(self, *groups: Any) -> None:
        given = groups[0] if len(groups) == 1 else groups
        self.groups = [list(g) if isinstance(g, (list, tuple, range)) else [g] for g in given]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaGroup) and self.groups == other.groups

    def __hash__(self) -> int:
        return hash(tuple(map(tuple, self.groups)))

    def __repr__(self) -> str:
        return f"ReplicaGroup({self.groups})"


def own_rank() -> Rank:
    """The rank that the kernel is traced for; 0 without data, and outside of a job."""
    return (this_rank() if current().data is not None else None) or Rank(None, 0)


def count_of_ranks() -> int | None:
    """The number of ranks; None where it is not known: devices of JAX, or no data yet."""
    if current().data is None:
        return None
    rank = own_rank()
    return rank.job.size if rank.job else 1


def ranks_of(call: str, replica_group: ReplicaGroup) -> tuple[int, ...]:
    """The group of this rank."""
    rank = own_rank()
    groups = getattr(replica_group, "groups", None)
    ranks = [r for group in groups or [] for r in group]
    size = count_of_ranks()
    if size is None:
        size = len(ranks)
    if groups is None or sorted(ranks) != list(range(size)) or len({len(g) for g in groups}) > 1:
        raise ParameterError(
            f"{call}: replica_group={replica_group!r} on {size} rank{'s' * (size > 1)}",
            rule="each rank is in one group, and groups have as many ranks",
            fix="run the kernel with nkisim.run_ranks(kernel, arguments), with arguments for each "
            "rank"
            if len(ranks) > size
            else f"name the ranks 0 to {size - 1}",
        )
    if rank.number not in ranks:
        raise ParameterError(
            f"{call}: replica_group={replica_group!r} on device {rank.number} of JAX",
            rule="a rank is a device, and each that runs the kernel is in one group",
            fix="name all devices of the mesh, and make the mesh of the first ones",
        )
    return tuple(next(g for g in groups if rank.number in g))


def check_tensors(
    call: str,
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    sbuf: bool = True,
    several: bool = True,
) -> bool:
    """Whether the tensors are in SBUF. Raises for what a collective does not take."""
    for which, tensors in (("srcs", srcs), ("dsts", dsts)):
        if not isinstance(tensors, (list, tuple)) or not tensors:
            raise ParameterError(
                f"{call}: {which}={tensors!r}",
                rule="a list of tensors",
                fix=f"pass {which}=[tensor]",
            )
        for t in tensors:
            if not isinstance(t, NkiTensor):
                raise ParameterError(
                    f"{call}: {which} holds {t!r}", rule="a list of tensors", fix="pass tensors"
                )
    if len(srcs) != len(dsts):
        raise ParameterError(
            f"{call}: {len(srcs)} srcs, {len(dsts)} dsts",
            rule="there is a destination for each source",
            fix="pass as many of both",
        )
    spaces = {t._buffer.space is Space.SBUF for t in (*srcs, *dsts)}
    on_chip = spaces == {True}
    psum = any(t._buffer.space is Space.PSUM for t in (*srcs, *dsts))
    if psum or len(spaces) > 1 or (on_chip and not sbuf):
        raise ParameterError(
            f"{call}: " + ", ".join(t.describe() for t in (*srcs, *dsts)),
            rule="all tensors are in HBM" + ", or all are in SBUF" * sbuf,
            fix="copy with nisa.dma_copy first",
        )
    if len(srcs) > 1 and (on_chip or not several):
        raise ParameterError(
            f"{call}: {len(srcs)} tensors",
            rule="several tensors in one call are in HBM" if several else "one tensor each way",
            fix="use a call for each",
        )
    return on_chip


def check_dim(call: str, dim: object, allowed: tuple[int, ...]) -> None:
    if dim not in allowed:
        raise ParameterError(
            f"{call}: collective_dim={dim!r}",
            rule="it is " + " or ".join(map(str, allowed)) + " for these tensors",
            fix="put that axis first",
        )


def check_divisible(call: str, src: NkiTensor, parts: int) -> None:
    if src.shape[0] % parts:
        raise ShapeError(
            f"{call}: {src.describe()} among {parts} ranks",
            rule="axis 0 is divided equally among the ranks",
            fix=f"pad axis 0 to {-(-src.shape[0] // parts) * parts}",
        )


def check_fits(call: str, src: NkiTensor, dst: NkiTensor, shape: tuple[int, ...]) -> None:
    if dst.shape != shape or dst.dtype != src.dtype:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, src {src.describe()}",
            rule=f"dst is {src.dtype}{list(shape)} for this src and group",
            fix=f"declare dst with shape {shape} and dtype {src.dtype}",
        )


def by_channel(call: str, which: str, lists: Any, channel_ids: Any) -> list[NkiTensor]:
    channels = list(channel_ids)
    if channels != list(range(len(channels))) or not 1 <= len(channels) <= 4:
        raise ParameterError(
            f"{call}: channel_ids={channels}",
            rule="channels are 0, 1, ..., at most 4 of them",
            fix="pass [0] for one channel",
        )
    if len(lists) != len(channels) or any(len(tensors) != 1 for tensors in lists):
        raise ParameterError(
            f"{call}: {which} has {[len(t) for t in lists]} tensors for channels {channels}",
            rule="there is a list of one tensor for each channel",
            fix=f"pass {which}=[[tensor]] for one channel",
        )
    return [tensors[0] for tensors in lists]


def reduction(call: str, op: Any) -> np.ufunc:
    name = ops.op_name(call, op, frozenset(_REDUCTIONS), current().trace.machine)
    return _REDUCTIONS[name]


def reduced(reduce: np.ufunc, values: Sequence[np.ndarray]) -> np.ndarray:
    dtype = values[0].dtype
    wide = dtype if dtype.kind in "iub" else np.dtype(np.float32)
    total = values[0].astype(wide)
    for other in values[1:]:
        total = reduce(total, other.astype(wide))
    return total.astype(dtype)


def exchange(
    call: str,
    group: tuple[int, ...],
    tensors: Sequence[NkiTensor],
    *settings: Any,
    more: Sequence[np.ndarray] = (),
) -> list[list[np.ndarray]]:
    """Exchange tensors among the ranks of a group. Returns, for each rank, the values of its
    tensors, and after them those of its `more`."""
    session = current()
    session.trace.guessed.add("collectives")
    values = [*(session.values_of(t).copy() for t in tensors), *more]
    if session.data is None:
        return [values] * len(group)
    rank = own_rank()
    if rank.job is None:
        return [values]
    shapes = tuple(f"{t.dtype}{list(t.shape)}" for t in tensors)
    return rank.job.exchange(rank.number, group, Post((call, *settings, *shapes), values, locate()))


def put(dst: NkiTensor, values: np.ndarray, priority: int | None) -> NkiInstruction:
    """Write what has arrived."""
    session = current()
    fixed = session.fixed(np.ascontiguousarray(values), session.types[dst._buffer.number])
    return isa.dma_copy(dst, fixed, priority=priority)


def put_all(
    dsts: Iterable[NkiTensor], values: Iterable[np.ndarray], priority: int | None
) -> NkiInstruction:
    """Write what has arrived into several tensors."""
    done = NkiInstruction()
    for dst, arrived in zip(dsts, values, strict=True):
        done = put(dst, arrived, priority)
    return done
