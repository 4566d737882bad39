"""`nki.collectives`: data among the ranks of a job, which `nkisim.run_ranks` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nkisim.errors import ParameterError, ShapeError, UnsupportedError, locate
from nkisim.frontends.nki import ops
from nkisim.frontends.nki.ranks import Post, Rank, this_rank
from nkisim.frontends.nki.registers import Assumed, VirtualRegister
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface import isa
from nkisim.frontends.nki.surface.names import missing
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.memory import Space

_REDUCTIONS = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}


class ReplicaGroup:
    """Groups of ranks that take part in a collective; they do not overlap.

    Args:
        groups: lists of ranks.
    """

    def __init__(self, *groups: Any) -> None:
        given = groups[0] if len(groups) == 1 else groups
        self.groups = [list(g) if isinstance(g, (list, tuple)) else [g] for g in given]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaGroup) and self.groups == other.groups

    def __hash__(self) -> int:
        return hash(tuple(map(tuple, self.groups)))

    def __repr__(self) -> str:
        return f"ReplicaGroup({self.groups})"


def all_reduce(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """The reduction over the ranks of a group, on each of them.

    In fp32 where the tensors are of a floating-point type, in the order of the group.

    Args:
        srcs: tensors of this rank, all in HBM or one in SBUF.
        dsts: one for each of srcs, of its shape and dtype.
        replica_group: which ranks belong together.
        op: nl.add, nl.minimum or nl.maximum.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.all_reduce"
    reduce = _reduction(call, op)
    _check(call, srcs, dsts)
    for src, dst in zip(srcs, dsts, strict=True):
        _fits(call, src, dst, src.shape)
    group = _group(call, replica_group)
    found = _exchange(call, group, srcs, reduce.__name__)
    for n, dst in enumerate(dsts):
        _put(dst, _reduced(reduce, [values[n] for values in found]), priority)


def all_gather(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """What each rank of a group holds, one after the other, on all of them.

    Args:
        srcs: tensors of this rank, all in HBM or one in SBUF.
        dsts: one for each of srcs, longer by the number of ranks in `collective_dim`.
        replica_group: which ranks belong together.
        collective_dim: 0, or 0 or 1 in SBUF.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.all_gather"
    on_chip = _check(call, srcs, dsts)
    _dim(call, collective_dim, (0, 1) if on_chip else (0,))
    group = _group(call, replica_group)
    for src, dst in zip(srcs, dsts, strict=True):
        wanted = list(src.shape)
        wanted[collective_dim] *= len(group)
        _fits(call, src, dst, tuple(wanted))
    found = _exchange(call, group, srcs, collective_dim)
    for n, dst in enumerate(dsts):
        _put(dst, np.concatenate([values[n] for values in found], axis=collective_dim), priority)


def all_gather_v(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """As all_gather, with sizes that a tensor holds. Raises UnsupportedError."""
    raise _unsupported("all_gather_v", "all_gather")


def reduce_scatter(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """The reduction over the ranks of a group, a part on each of them.

    Args:
        srcs: tensors of this rank, all in HBM or one in SBUF.
        dsts: one for each of srcs, shorter by the number of ranks in `collective_dim`.
        replica_group: which ranks belong together; the part of a rank is by its place in it.
        collective_dim: 0.
        op: nl.add, nl.minimum or nl.maximum, as for `all_reduce`.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.reduce_scatter"
    reduce = _reduction(call, op)
    _check(call, srcs, dsts)
    _dim(call, collective_dim, (0,))
    group = _group(call, replica_group)
    for src, dst in zip(srcs, dsts, strict=True):
        _divisible(call, src, len(group))
        _fits(call, src, dst, (src.shape[0] // len(group), *src.shape[1:]))
    found = _exchange(call, group, srcs, reduce.__name__)
    mine = group.index(_rank().number)
    for n, dst in enumerate(dsts):
        whole = _reduced(reduce, [values[n] for values in found])
        _put(dst, np.split(whole, len(group))[mine], priority)


def all_to_all(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """A part of what each rank holds to each rank of the group.

    Args:
        srcs: HBM tensors of this rank: part i of axis 0 goes to rank i of the group.
        dsts: one for each of srcs, of its shape: part i comes from rank i.
        replica_group: which ranks belong together.
        collective_dim: 0.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.all_to_all"
    _check(call, srcs, dsts, sbuf=False)
    _dim(call, collective_dim, (0,))
    group = _group(call, replica_group)
    for src, dst in zip(srcs, dsts, strict=True):
        _divisible(call, src, len(group))
        _fits(call, src, dst, src.shape)
    found = _exchange(call, group, srcs)
    mine = group.index(_rank().number)
    for n, dst in enumerate(dsts):
        _put(dst, np.concatenate([np.split(v[n], len(group))[mine] for v in found]), priority)


def all_to_all_v(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """As all_to_all, with counts that a tensor holds. Raises UnsupportedError."""
    raise _unsupported("all_to_all_v", "all_to_all")


def collective_permute(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    source_target_pairs: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """What some ranks hold, to others. All ranks of the job call it.

    Args:
        srcs: an HBM tensor.
        dsts: an HBM tensor of its shape. Where no pair has this rank as target, it stays.
        source_target_pairs: (source, target) ranks; none is twice a source or twice a target.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.collective_permute"
    _check(call, srcs, dsts, sbuf=False, several=False)
    _fits(call, srcs[0], dsts[0], srcs[0].shape)
    rank = _rank()
    pairs = [tuple(pair) for pair in source_target_pairs]
    size = rank.job.size if rank.job else 1
    for which in zip(*pairs, strict=True):
        if len(set(which)) < len(which) or not set(which) <= set(range(size)):
            raise ParameterError(
                f"{call}: source_target_pairs={pairs} on {size} ranks",
                rule="a rank is a source once, and a target once, at most; ranks are from 0",
                fix="use one collective for each further pair, and nkisim.run_ranks for more ranks",
            )
    found = _exchange(call, tuple(range(size)), srcs, tuple(pairs))
    for source, target in pairs:
        if target == rank.number:
            _put(dsts[0], found[source][0], priority)


def collective_permute_implicit(
    srcs_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    channel_ids: Any = [0],  # noqa: B006  as documented
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """What a rank holds to the next one of its ring, the group in its order.

    Args:
        srcs_by_channel: for each channel, a list of one tensor.
        dsts_by_channel: for each channel, a list of one tensor for what the rank before sends.
        replica_group: the rings.
        channel_ids: 0, 1, ...: as many as there are lists, at most 4.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.collective_permute_implicit"
    srcs = _by_channel(call, "srcs_by_channel", srcs_by_channel, channel_ids)
    dsts = _by_channel(call, "dsts_by_channel", dsts_by_channel, channel_ids)
    for src, dst in zip(srcs, dsts, strict=True):
        _check(call, [src], [dst])
        _fits(call, src, dst, src.shape)
    group = _group(call, replica_group)
    before = _exchange(call, group, srcs)[group.index(_rank().number) - 1]
    for dst, values in zip(dsts, before, strict=True):
        _put(dst, values, priority)


def collective_permute_implicit_reduce(
    srcs0_by_channel: list[list[NkiTensor]],
    srcs1_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    op: Any,
    channel_ids: Any = [0],  # noqa: B006  as documented
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """op(srcs0, srcs1) of a rank to the next one of its ring, the group in its order.

    Args:
        srcs0_by_channel, srcs1_by_channel: for each channel, a list of one tensor.
        dsts_by_channel: for each channel, a list of one tensor for what the rank before sends.
        replica_group: the rings.
        op: nl.add, nl.minimum or nl.maximum.
        channel_ids: 0, 1, ...: as many as there are lists, at most 4.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.
    """
    call = "ncc.collective_permute_implicit_reduce"
    reduce = _reduction(call, op)
    srcs0 = _by_channel(call, "srcs0_by_channel", srcs0_by_channel, channel_ids)
    srcs1 = _by_channel(call, "srcs1_by_channel", srcs1_by_channel, channel_ids)
    dsts = _by_channel(call, "dsts_by_channel", dsts_by_channel, channel_ids)
    for one, two, dst in zip(srcs0, srcs1, dsts, strict=True):
        _check(call, [one], [dst])
        _check(call, [two], [dst])
        _fits(call, one, two, one.shape)
        _fits(call, one, dst, one.shape)
    group = _group(call, replica_group)
    found = _exchange(call, group, [*srcs0, *srcs1], reduce.__name__)
    before = found[group.index(_rank().number) - 1]
    for n, dst in enumerate(dsts):
        _put(dst, _reduced(reduce, [before[n], before[n + len(dsts)]]), priority)


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int,
    replica_group: ReplicaGroup,
    channel_id: int = 0,
    name: str | None = None,
) -> VirtualRegister:
    """The rank whose data is current at a step of a ring, in a register.

    Args:
        iteration_id: steps so far: after 0 it is this rank, then the one before it, and so on.
        replica_group: the rings.
        channel_id: 0 to 3.
        name: of the instruction.
    """
    group = _group("ncc.collective_permute_implicit_current_processing_rank_id", replica_group)
    if current().data is None:
        return _assumed()
    current().holds_for_this_data()
    mine = group.index(_rank().number)
    return VirtualRegister(group[(mine - iteration_id) % len(group)])


def rank_id(name: str | None = None) -> VirtualRegister:
    """The rank of this participant, in a register: its number in `nkisim.run_ranks`, or that of the
    device of JAX; 0 elsewhere."""
    if current().data is None:
        return _assumed()
    rank = this_rank()
    if rank is None:
        return VirtualRegister(0)
    current().holds_for_this_data()
    return VirtualRegister(rank.number)


def _assumed() -> VirtualRegister:
    """A register whose value is known when the kernel runs."""
    current().assume()
    return VirtualRegister(Assumed())


def _unsupported(name: str, instead: str) -> UnsupportedError:
    return UnsupportedError(
        f"nki.collectives.{name}",
        rule="the simulator has no collectives whose sizes are data",
        fix=f"pad to equal sizes, and use {instead}",
    )


def _rank() -> Rank:
    return (this_rank() if current().data is not None else None) or Rank(None, 0)


def _group(call: str, replica_group: ReplicaGroup) -> tuple[int, ...]:
    """The group of this rank."""
    rank = _rank()
    groups = getattr(replica_group, "groups", None)
    ranks = [r for group in groups or [] for r in group]
    if current().data is None or (rank.job and rank.job.size is None):
        size = len(ranks)  # devices, which nobody has counted
    else:
        size = rank.job.size if rank.job else 1
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


def _check(
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


def _dim(call: str, dim: object, allowed: tuple[int, ...]) -> None:
    if dim not in allowed:
        raise ParameterError(
            f"{call}: collective_dim={dim!r}",
            rule="it is " + " or ".join(map(str, allowed)) + " for these tensors",
            fix="put that axis first",
        )


def _divisible(call: str, src: NkiTensor, parts: int) -> None:
    if src.shape[0] % parts:
        raise ShapeError(
            f"{call}: {src.describe()} among {parts} ranks",
            rule="axis 0 is cut into as many equal parts",
            fix=f"pad axis 0 to {-(-src.shape[0] // parts) * parts}",
        )


def _fits(call: str, src: NkiTensor, dst: NkiTensor, shape: tuple[int, ...]) -> None:
    if dst.shape != shape or dst.dtype != src.dtype:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, src {src.describe()}",
            rule=f"dst is {src.dtype}{list(shape)} for this src and group",
            fix=f"declare dst with shape {shape} and dtype {src.dtype}",
        )


def _by_channel(call: str, which: str, lists: Any, channel_ids: Any) -> list[NkiTensor]:
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


def _reduction(call: str, op: Any) -> np.ufunc:
    name = ops.op_name(call, op, frozenset(_REDUCTIONS), current().trace.machine)
    return _REDUCTIONS[name]


def _reduced(reduce: np.ufunc, values: list[np.ndarray]) -> np.ndarray:
    dtype = values[0].dtype
    wide = dtype if dtype.kind in "iub" else np.dtype(np.float32)
    total = values[0].astype(wide)
    for other in values[1:]:
        total = reduce(total, other.astype(wide))
    return total.astype(dtype)


def _exchange(
    call: str, group: tuple[int, ...], tensors: Sequence[NkiTensor], *settings: Any
) -> list[list[np.ndarray]]:
    """What the tensors hold on each rank of a group."""
    session = current()
    values = [session.values_of(t).copy() for t in tensors]
    if session.data is None:
        return [values] * len(group)
    rank = _rank()
    if rank.job is None:
        return [values]
    shapes = tuple(f"{t.dtype}{list(t.shape)}" for t in tensors)
    return rank.job.exchange(rank.number, group, Post((call, *settings, *shapes), values, locate()))


def _put(dst: NkiTensor, values: np.ndarray, priority: int | None) -> None:
    """Write what has arrived."""
    session = current()
    fixed = session.fixed(np.ascontiguousarray(values), session.types[dst._buffer.number])
    isa.dma_copy(dst, fixed, priority=priority)


__getattr__: Callable[[str], Any] = missing("nki.collectives")
