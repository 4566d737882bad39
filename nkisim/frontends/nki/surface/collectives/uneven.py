"""Collectives of which each rank learns the sizes from a tensor, when it runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nkisim.errors import OutOfBoundsError, ParameterError, ShapeError
from nkisim.frontends.nki.session import Session, current
from nkisim.frontends.nki.surface.collectives.exchange import (
    ReplicaGroup,
    check_tensors,
    exchange,
    own_rank,
    put,
    ranks_of,
)
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.tensors.tensor import NkiTensor

__all__ = [
    "all_gather_v",
    "all_gather_v_prepare",
    "all_gather_v_trigger",
    "all_to_all_v",
    "all_to_all_v_prepare",
    "all_to_all_v_trigger",
]

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
) -> NkiInstruction:
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

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: on one core of a logical core, groups of another size, or has_rdispls.
        OutOfBoundsError: more is sent than src or a slot holds.
    """
    group, sizes = _sizes_of_gather("ncc.all_gather_v", replica_group, metadata_tensor, has_rdispls)
    given = _Given(srcs, dsts, group, sizes, metadata_tensor, recv_counts_known, priority)
    return _send("ncc.all_gather_v", given)


def _sizes_of_gather(
    call: str, replica_group: ReplicaGroup, metadata: NkiTensor, has_rdispls: bool
) -> tuple[tuple[int, ...], np.ndarray]:
    """The ranks of this rank's group, and the metadata with a column for each: all the same."""
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
    sizes = _metadata(call, metadata, 3, len(group))
    sizes[[COUNT, START]] = sizes[[COUNT, START], :1]  # all ranks get the same
    return group, sizes


def all_to_all_v(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
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

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: a group or settings that the generation does not have.
        OutOfBoundsError: more is sent than src or dst holds.
    """
    group, sizes = _sizes_of_exchange(
        "ncc.all_to_all_v", replica_group, metadata_tensor, has_rdispls
    )
    given = _Given(srcs, dsts, group, sizes, metadata_tensor, recv_counts_known, priority)
    return _send("ncc.all_to_all_v", given)


def _sizes_of_exchange(
    call: str, replica_group: ReplicaGroup, metadata: NkiTensor, has_rdispls: bool
) -> tuple[tuple[int, ...], np.ndarray]:
    """The group of this rank, and what each of it gets."""
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
    return group, _metadata(call, metadata, 3 + has_rdispls, len(group))


class _Given(NamedTuple):
    """What a collective was given.

    Attributes:
        srcs, dsts: tensors.
        group: the ranks that belong together.
        sizes: the metadata, as int64[rows, ranks].
        metadata: its tensor, which receives the counts.
        counts_known: whether it stays.
        priority: of the DMA.
    """

    srcs: list[NkiTensor]
    dsts: list[NkiTensor]
    group: tuple[int, ...]
    sizes: np.ndarray
    metadata: NkiTensor
    counts_known: bool
    priority: int | None


_PREPARED = "collective"  # in the state of a session: the half that waits for its trigger


def all_gather_v_prepare(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The first half of `all_gather_v`: reads the metadata, and nothing of srcs. New in NKI 0.7.

    Exactly one `all_gather_v_trigger` follows, with no other prepare in between. What srcs hold
    then is sent. Not on a device with a NeuronSwitch (Trn3 UltraServer), which is not checked.

    Args:
        srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority, name:
            as for `all_gather_v`.

    Returns:
        The handle for `all_gather_v_trigger`.

    Raises:
        ParameterError: another prepare waits for its trigger, or as for `all_gather_v`.
    """
    call = "ncc.all_gather_v_prepare"
    group, sizes = _sizes_of_gather(call, replica_group, metadata_tensor, has_rdispls)
    given = _Given(srcs, dsts, group, sizes, metadata_tensor, recv_counts_known, priority)
    return _prepare(call, given)


def all_gather_v_trigger(prepare_instr: NkiInstruction, name: str | None = None) -> NkiInstruction:
    """The second half of `all_gather_v`: reads srcs and writes dsts. New in NKI 0.7.

    Args:
        prepare_instr: what `all_gather_v_prepare` returned.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: it is not of the prepare that waits.
        OutOfBoundsError: more is sent than src or a slot holds.
    """
    return _trigger("ncc.all_gather_v", prepare_instr)


def all_to_all_v_prepare(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The first half of `all_to_all_v`: reads the metadata, and nothing of srcs. New in NKI 0.7.

    Exactly one `all_to_all_v_trigger` follows, with no other prepare in between. What srcs hold
    then is sent. Not on a device with a NeuronSwitch (Trn3 UltraServer), which is not checked.

    Args:
        srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority, name:
            as for `all_to_all_v`.

    Returns:
        The handle for `all_to_all_v_trigger`.

    Raises:
        ParameterError: another prepare waits for its trigger, or as for `all_to_all_v`.
    """
    call = "ncc.all_to_all_v_prepare"
    group, sizes = _sizes_of_exchange(call, replica_group, metadata_tensor, has_rdispls)
    given = _Given(srcs, dsts, group, sizes, metadata_tensor, recv_counts_known, priority)
    return _prepare(call, given)


def all_to_all_v_trigger(prepare_instr: NkiInstruction, name: str | None = None) -> NkiInstruction:
    """The second half of `all_to_all_v`: reads srcs and writes dsts. New in NKI 0.7.

    Args:
        prepare_instr: what `all_to_all_v_prepare` returned.
        name: of the instruction.

    Returns:
        The handle of the instruction.

    Raises:
        ParameterError: it is not of the prepare that waits.
        OutOfBoundsError: more is sent than src or dst holds.
    """
    return _trigger("ncc.all_to_all_v", prepare_instr)


def _prepare(call: str, given: _Given) -> NkiInstruction:
    session = current()
    waiting = session.state.get((session.program, _PREPARED))
    if waiting is not None:
        raise ParameterError(
            f"{call}, while {waiting[0]} waits for its trigger",
            rule="prepared collectives share one slot: each is triggered before the next",
            fix=f"call {waiting[0].replace('_prepare', '_trigger')} first",
        )
    handle = NkiInstruction()
    session.state[session.program, _PREPARED] = call, handle, given
    session.at_end.add(_check_triggered)
    return handle


def _trigger(collective: str, prepared: NkiInstruction) -> NkiInstruction:
    session = current()
    call, handle, given = session.state.pop((session.program, _PREPARED), ("", None, None))
    if handle is None or prepared is not handle or call != f"{collective}_prepare":
        raise ParameterError(
            f"{collective}_trigger of {'another handle' if handle else 'nothing prepared'}",
            rule=f"each {collective}_prepare is followed by one trigger, with the handle that it "
            "returned",
            fix=f"handle = {collective}_prepare(...), then {collective}_trigger(handle)",
        )
    return _send(collective, given)


def _check_triggered(session: Session) -> None:
    """Raises ParameterError for a kernel that ends with half a collective."""
    waiting = session.state.get((session.program, _PREPARED))
    if waiting is not None:
        raise ParameterError(
            f"the kernel ends, and {waiting[0]} waits for its trigger",
            rule="a prepare is followed by exactly one trigger, which moves the data",
            fix=f"call {waiting[0].replace('_prepare', '_trigger')} with its handle",
        )


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


def _send(call: str, given: _Given) -> NkiInstruction:
    srcs, dsts, group, sizes, metadata, counts_known, priority = given
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
    done = NkiInstruction()
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
            done = put(flat[at : at + count], values.reshape(-1)[start : start + count], priority)
        received.append(count)
    if not counts_known:
        row = slice(RECEIVED, RECEIVED + 1)
        counts = metadata[:, row, :] if metadata._layout.on_chip else metadata[row, :]
        done = put(counts, np.array(received, np.uint32).reshape(counts.shape), priority)
    return done
