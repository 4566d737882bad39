"""Collectives of which each rank learns the sizes from a tensor, when it runs."""

from __future__ import annotations

import numpy as np

from nkisim.errors import OutOfBoundsError, ParameterError, ShapeError
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface.collectives.exchange import (
    ReplicaGroup,
    check_tensors,
    exchange,
    own_rank,
    put,
    ranks_of,
)
from nkisim.frontends.nki.tensors.tensor import NkiTensor

_CHIP = 4  # ranks of a device, of two cores each
COUNT, START, RECEIVED, PLACE = range(4)  # rows of the metadata


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
    """Gather a part of the tensor of each rank, with a size of its own, on all ranks of a group.

    Tensors are flat here. dst has one slot for each rank, all of one size; what rank r of the group
    sends is at the beginning of slot r. The rest of dst stays.

    Args:
        srcs: an HBM tensor of this rank.
        dsts: an HBM tensor of its dtype, of any size.
        replica_group: which ranks belong together: four each.
        metadata_tensor: uint32 (3, 4) in HBM, or (1, 3, 4) in SBUF. Row 0 begins with the number of
            elements that this rank sends, row 1 with the first of them in src. Row 2 receives how
            many came from each rank.
        recv_counts_known: leave row 2 as it is.
        has_rdispls: False.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Raises:
        ParameterError: on one core of a logical core, groups of another size, or has_rdispls.
        OutOfBoundsError: more is sent than src or a slot holds.
    """
    call = "ncc.all_gather_v"
    _two_cores(call)
    if has_rdispls:
        raise ParameterError(
            f"{call} with has_rdispls=True",
            rule="what each rank sends goes to the slot of its number",
            fix="leave it out, and copy from the slots",
        )
    group = ranks_of(call, replica_group)
    if len(group) != _CHIP:
        raise ParameterError(
            f"{call} in a group of {len(group)}",
            rule=f"a group has {_CHIP} ranks, those of a device",
            fix="use ncc.all_gather on padded tensors for other groups",
        )
    sizes = _metadata(call, metadata_tensor, 3, len(group))
    sizes[[COUNT, START]] = sizes[[COUNT, START], :1]  # all ranks get the same
    _send(call, srcs, dsts, group, sizes, metadata_tensor, recv_counts_known, priority)


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
    """Send parts of the tensor of each rank, with sizes of their own, to each rank of the group.

    Tensors are flat here. What rank r of the group sends is written to dst from place r * slot on,
    where slot is the size of dst divided by the number of ranks, or from the place in row 3. The
    rest of dst stays.

    Args:
        srcs: an HBM tensor of this rank.
        dsts: an HBM tensor of its dtype, of any size.
        replica_group: which ranks belong together. On NeuronCore-v4: several whole devices of
            four ranks each. On earlier cores: ranks of different nodes, which is not checked, since
            ranks have no node in the simulator.
        metadata_tensor: uint32 (rows, ranks) in HBM, or (1, rows, ranks) in SBUF; 4 rows with
            has_rdispls, otherwise 3. Column r: elements sent to rank r, the first of them in src;
            row 2 receives how many came from rank r; row 3: where they go in dst.
        recv_counts_known: leave row 2 as it is.
        has_rdispls: whether there is a row 3, on NeuronCore-v4.
        priority: 0 to 3, on NeuronCore-v4.
        name: of the instruction.

    Raises:
        ParameterError: a group or settings that the generation does not have.
        OutOfBoundsError: more is sent than src or dst holds.
    """
    call = "ncc.all_to_all_v"
    machine = current().trace.machine
    group = ranks_of(call, replica_group)
    if machine.abilities.places_of_exchanges:
        _two_cores(call)
        devices = [r // _CHIP for r in group]
        whole = all(devices.count(d) == _CHIP for d in devices)
        if not whole or len(set(devices)) < 2:
            raise ParameterError(
                f"{call} in a group of ranks {list(group)}",
                rule="a group has all four ranks of each of its devices (0 to 3, 4 to 7, ...), and "
                "more than one device",
                fix="name all of their ranks, and set the counts of those that send nothing to 0",
            )
    elif has_rdispls:
        raise ParameterError(
            f"{call} with has_rdispls=True on {machine.name}",
            rule="places in dst can be chosen on NeuronCore-v4",
            fix="leave it out, and copy from the slots",
        )
    sizes = _metadata(call, metadata_tensor, 3 + has_rdispls, len(group))
    _send(call, srcs, dsts, group, sizes, metadata_tensor, recv_counts_known, priority)


def _two_cores(call: str) -> None:
    if current().trace.grid.size != 2:
        raise ParameterError(
            f"{call} in a kernel on {current().trace.grid.size} core",
            rule="it needs a logical core of two",
            fix="launch kernel[2]",
        )


def _metadata(call: str, metadata: NkiTensor, rows: int, ranks: int) -> np.ndarray:
    """The elements of a metadata tensor, as int64[rows, ranks]."""
    wanted = (1, rows, ranks) if metadata._layout.on_chip else (rows, ranks)
    if metadata.dtype != "uint32" or metadata.shape != wanted:
        raise ShapeError(
            f"{call}: metadata_tensor is {metadata.describe()}",
            rule=f"it is uint32{list(wanted)}: {rows} rows for {ranks} ranks"
            + ", on one partition" * metadata._layout.on_chip,
            fix=f"declare it with shape {wanted} and dtype nl.uint32",
        )
    return current().values_of(metadata).reshape(rows, ranks).astype(np.int64)


def _send(
    call: str,
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    group: tuple[int, ...],
    sizes: np.ndarray,
    metadata: NkiTensor,
    counts_known: bool,
    priority: int | None,
) -> None:
    check_tensors(call, srcs, dsts, sbuf=False, several=False)
    (src,), (dst,) = srcs, dsts
    if src.dtype != dst.dtype:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, src {src.describe()}",
            rule="both have one dtype",
            fix=f"declare dst with dtype {src.dtype}",
        )
    for count, start in zip(sizes[COUNT], sizes[START], strict=True):
        if start + count > src.size:
            raise OutOfBoundsError(
                f"{call}: {count} elements from {start} on of {src.describe()}",
                rule=f"src has {src.size} elements",
                fix="correct rows 0 and 1 of the metadata",
            )
    found = exchange(call, group, [src], more=[sizes])
    mine = group.index(own_rank().number)
    slot = dst.size // len(group)
    flat = dst.reshape((dst.size,))
    received = []
    for n, (values, theirs) in enumerate(found):
        count, start = theirs[COUNT][mine], theirs[START][mine]
        at = sizes[PLACE][n] if len(sizes) > PLACE else n * slot
        room = dst.size - at if len(sizes) > PLACE else slot
        if count > room:
            raise OutOfBoundsError(
                f"{call}: {count} elements from rank {group[n]} to {at} of {dst.describe()}",
                rule=f"there is room for {max(room, 0)}",
                fix="make dst larger, or send less",
            )
        if count:
            put(flat[at : at + count], values.reshape(-1)[start : start + count], priority)
        received.append(count)
    if not counts_known:
        row = slice(RECEIVED, RECEIVED + 1)
        counts = metadata[:, row, :] if metadata._layout.on_chip else metadata[row, :]
        put(counts, np.array(received, np.uint32).reshape(counts.shape), priority)
