"""Collectives whose sizes are known while tracing."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.frontends.nki.surface.collectives.exchange import (
    ReplicaGroup,
    check_dim,
    check_divisible,
    check_fits,
    check_tensors,
    exchange,
    own_rank,
    put_all,
    ranks_of,
    reduced,
    reduction,
)
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.tensors.tensor import NkiTensor

__all__ = ["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]


def all_reduce(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The reduction over the ranks of a group, on each of them.

    In fp32 where the tensors are of a floating-point type, in the order of the group.

    Args:
        srcs: tensors of this rank, all in HBM or one in SBUF.
        dsts: one for each of srcs, of its shape and dtype.
        replica_group: which ranks belong together.
        op: nl.add, nl.minimum or nl.maximum.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; tensors of two memories.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.all_reduce"
    reduce = reduction(call, op)
    check_tensors(call, srcs, dsts)
    for src, dst in zip(srcs, dsts, strict=True):
        check_fits(call, src, dst, src.shape)
    group = ranks_of(call, replica_group)
    found = exchange(call, group, srcs, reduce.__name__)
    return put_all(dsts, (reduced(reduce, values) for values in zip(*found, strict=True)), priority)


def all_gather(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Concatenate the tensors of all ranks of a group, on each of them.

    Args:
        srcs: tensors of this rank, all in HBM or one in SBUF.
        dsts: one for each of srcs, longer by the number of ranks in `collective_dim`.
        replica_group: which ranks belong together.
        collective_dim: 0, or 0 or 1 in SBUF.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; tensors of two memories.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.all_gather"
    on_chip = check_tensors(call, srcs, dsts)
    check_dim(call, collective_dim, (0, 1) if on_chip else (0,))
    group = ranks_of(call, replica_group)
    for src, dst in zip(srcs, dsts, strict=True):
        wanted = list(src.shape)
        wanted[collective_dim] *= len(group)
        check_fits(call, src, dst, tuple(wanted))
    found = exchange(call, group, srcs, collective_dim)
    whole = (np.concatenate(values, axis=collective_dim) for values in zip(*found, strict=True))
    return put_all(dsts, whole, priority)


def reduce_scatter(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The reduction over the ranks of a group, a part on each of them.

    Args:
        srcs: tensors of this rank, all in HBM or one in SBUF.
        dsts: one for each of srcs, shorter by the number of ranks in `collective_dim`.
        replica_group: which ranks belong together; the i-th rank of a group gets part i.
        collective_dim: must be 0.
        op: nl.add, nl.minimum or nl.maximum, as for `all_reduce`.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; tensors of two memories.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.reduce_scatter"
    reduce = reduction(call, op)
    check_tensors(call, srcs, dsts)
    check_dim(call, collective_dim, (0,))
    group = ranks_of(call, replica_group)
    for src, dst in zip(srcs, dsts, strict=True):
        check_divisible(call, src, len(group))
        check_fits(call, src, dst, (src.shape[0] // len(group), *src.shape[1:]))
    found = exchange(call, group, srcs, reduce.__name__)
    mine = group.index(own_rank().number)
    whole = (reduced(reduce, values) for values in zip(*found, strict=True))
    return put_all(dsts, (np.split(each, len(group))[mine] for each in whole), priority)


def all_to_all(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Send one part of the tensor of each rank to each rank of the group.

    Args:
        srcs: HBM tensors of this rank: part i of axis 0 goes to rank i of the group.
        dsts: one for each of srcs, of its shape: part i comes from rank i.
        replica_group: which ranks belong together.
        collective_dim: must be 0.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: groups that are not of all ranks, or settings that the collective does not
            have; tensors of two memories.
        ShapeError: tensors that do not fit each other.
    """
    call = "ncc.all_to_all"
    check_tensors(call, srcs, dsts, sbuf=False)
    check_dim(call, collective_dim, (0,))
    group = ranks_of(call, replica_group)
    for src, dst in zip(srcs, dsts, strict=True):
        check_divisible(call, src, len(group))
        check_fits(call, src, dst, src.shape)
    found = exchange(call, group, srcs)
    mine = group.index(own_rank().number)
    parts = [[np.split(values, len(group))[mine] for values in theirs] for theirs in found]
    return put_all(dsts, map(np.concatenate, zip(*parts, strict=True)), priority)
