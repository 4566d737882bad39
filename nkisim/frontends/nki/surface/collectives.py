"""`nki.collectives`: data among the ranks of a job. A process simulates one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import UnsupportedError
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.frontends.nki.surface.names import missing
from nkisim.frontends.nki.tensor import NkiTensor


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
    """Not simulated. Raises UnsupportedError."""
    raise _unsupported("all_reduce")


def rank_id(name: str | None = None) -> VirtualRegister:
    """The rank of this participant: 0, in a register."""
    return VirtualRegister(0)


__getattr__: Callable[[str], Any] = missing("nki.collectives")
