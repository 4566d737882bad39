"""`nki.collectives`: data among the ranks of a job. A process simulates one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import UnsupportedError
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.frontends.nki.surface.names import missing
from nkisim.frontends.nki.tensors.tensor import NkiTensor


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


def _unsupported(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"nki.collectives.{name}",
        rule="the simulator runs one rank; what others send is not there",
        fix="simulate the part of the kernel between collectives, or use nisa.sendrecv for the two "
        "cores of a logical core",
    )


def all_reduce(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """The reduction over the ranks of a group, on each of them. Raises UnsupportedError."""
    raise _unsupported("all_reduce")


def all_gather(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """What each rank of a group holds, in turn, on all of them. Raises UnsupportedError."""
    raise _unsupported("all_gather")


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
    raise _unsupported("all_gather_v")


def reduce_scatter(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """The reduction over the ranks of a group, a part on each of them. Raises UnsupportedError."""
    raise _unsupported("reduce_scatter")


def all_to_all(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """A part of what each rank holds to each other one. Raises UnsupportedError."""
    raise _unsupported("all_to_all")


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
    raise _unsupported("all_to_all_v")


def collective_permute(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    source_target_pairs: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """What some ranks hold, to others. Raises UnsupportedError."""
    raise _unsupported("collective_permute")


def collective_permute_implicit(
    srcs_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    channel_ids: Any = [0],  # noqa: B006  as documented
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """What a rank holds to the next one of its ring. Raises UnsupportedError."""
    raise _unsupported("collective_permute_implicit")


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
    """op(srcs0, srcs1) of a rank to the next one of its ring. Raises UnsupportedError."""
    raise _unsupported("collective_permute_implicit_reduce")


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int,
    replica_group: ReplicaGroup,
    channel_id: int = 0,
    name: str | None = None,
) -> VirtualRegister:
    """The rank whose data is current at a step of a ring. Raises UnsupportedError."""
    raise _unsupported("collective_permute_implicit_current_processing_rank_id")


def rank_id(name: str | None = None) -> VirtualRegister:
    """The rank of this participant: 0, in a register."""
    return VirtualRegister(0)


__getattr__: Callable[[str], Any] = missing("nki.collectives")
