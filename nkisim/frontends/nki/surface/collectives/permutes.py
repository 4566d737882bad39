"""Exchange by pairs of ranks and in rings, and which rank this is."""

from __future__ import annotations

from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.nki.ranks import this_rank
from nkisim.frontends.nki.registers import Assumed, VirtualRegister
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface.collectives.exchange import (
    ReplicaGroup,
    by_channel,
    check_fits,
    check_tensors,
    count_of_ranks,
    exchange,
    own_rank,
    put,
    put_all,
    ranks_of,
    reduced,
    reduction,
)
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.tensors.tensor import NkiTensor

__all__ = [
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
]


def collective_permute(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    source_target_pairs: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Send tensors of some ranks to others. All ranks of the job call it.

    Args:
        srcs: an HBM tensor.
        dsts: an HBM tensor of its shape. It stays if no pair has this rank as its target.
        source_target_pairs: (source, target) ranks; none is twice a source or twice a target.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; several tensors.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.collective_permute"
    check_tensors(call, srcs, dsts, sbuf=False, several=False)
    check_fits(call, srcs[0], dsts[0], srcs[0].shape)
    rank = own_rank()
    pairs = [tuple(pair) for pair in source_target_pairs]
    size = count_of_ranks()
    if size is None:
        size = 1 + max((max(pair) for pair in pairs), default=0)
    for which in zip(*pairs, strict=True):
        if len(set(which)) < len(which) or not set(which) <= set(range(size)):
            raise ParameterError(
                f"{call}: source_target_pairs={pairs} on {size} ranks",
                rule="a rank is a source once, and a target once, at most; ranks are from 0",
                fix="use one collective for each further pair, and nkisim.run_ranks for more ranks",
            )
    if rank.number >= size:  # a device that has no part in it
        return NkiInstruction()
    found = exchange(call, tuple(range(size)), srcs, tuple(pairs))
    done = NkiInstruction()
    for source, target in pairs:
        if target == rank.number:
            done = put(dsts[0], found[source][0], priority)
    return done


def collective_permute_implicit(
    srcs_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    channel_ids: Any = [0],  # noqa: B006  as documented
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Send tensors to the next rank of the ring, which is the group in its order.

    Args:
        srcs_by_channel: for each channel, a list of one tensor.
        dsts_by_channel: for each channel, a list of one tensor for what the rank before sends.
        replica_group: the rings.
        channel_ids: 0, 1, ...: as many as there are lists, at most 4.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; several tensors.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.collective_permute_implicit"
    srcs = by_channel(call, "srcs_by_channel", srcs_by_channel, channel_ids)
    dsts = by_channel(call, "dsts_by_channel", dsts_by_channel, channel_ids)
    for src, dst in zip(srcs, dsts, strict=True):
        check_tensors(call, [src], [dst])
        check_fits(call, src, dst, src.shape)
    group = ranks_of(call, replica_group)
    before = exchange(call, group, srcs)[group.index(own_rank().number) - 1]
    return put_all(dsts, before, priority)


def collective_permute_implicit_reduce(
    srcs0_by_channel: list[list[NkiTensor]],
    srcs1_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    op: Any,
    channel_ids: Any = [0],  # noqa: B006  as documented
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Send op(srcs0, srcs1) to the next rank of the ring, which is the group in its order.

    Args:
        srcs0_by_channel, srcs1_by_channel: for each channel, a list of one tensor.
        dsts_by_channel: for each channel, a list of one tensor for what the rank before sends.
        replica_group: the rings.
        op: nl.add, nl.minimum or nl.maximum.
        channel_ids: 0, 1, ...: as many as there are lists, at most 4.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; several tensors.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.collective_permute_implicit_reduce"
    reduce = reduction(call, op)
    srcs0 = by_channel(call, "srcs0_by_channel", srcs0_by_channel, channel_ids)
    srcs1 = by_channel(call, "srcs1_by_channel", srcs1_by_channel, channel_ids)
    dsts = by_channel(call, "dsts_by_channel", dsts_by_channel, channel_ids)
    for one, two, dst in zip(srcs0, srcs1, dsts, strict=True):
        check_tensors(call, [one], [dst])
        check_tensors(call, [two], [dst])
        check_fits(call, one, two, one.shape)
        check_fits(call, one, dst, one.shape)
    group = ranks_of(call, replica_group)
    found = exchange(call, group, [*srcs0, *srcs1], reduce.__name__)
    before = found[group.index(own_rank().number) - 1]
    pairs = zip(before[: len(dsts)], before[len(dsts) :], strict=True)
    return put_all(dsts, (reduced(reduce, pair) for pair in pairs), priority)


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

    Raises:
        ParameterError: groups that are not of all ranks, or another channel.
    """
    call = "ncc.collective_permute_implicit_current_processing_rank_id"
    group = ranks_of(call, replica_group)
    if not 0 <= channel_id < 4:
        raise ParameterError(
            f"{call}: channel_id={channel_id}",
            rule="there are at most 4 channels, 0 to 3",
            fix="pass the channel of the collective_permute_implicit",
        )
    if current().data is None:
        return _assumed()
    current().holds_for_this_data()
    mine = group.index(own_rank().number)
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
