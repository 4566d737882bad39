"""The two cores of a logical core: exchanging tiles, waiting for each other."""

from __future__ import annotations

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki.session import Recipe, Session, current
from nkisim.frontends.nki.surface.isa.dma import dma_walks
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction, dma_engine, engine
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.movement import TransferCopy


def _two_cores(call: str) -> Session:
    session = current()
    machine = session.trace.machine
    if machine.abilities.cores == 1 or session.trace.grid.size != 2:
        raise ParameterError(
            f"{call} in a kernel on {session.trace.grid.size} core of {machine.name}",
            rule="two cores make a logical core, on NeuronCore-v3 and later",
            fix="launch the kernel with kernel[2](...), or call it only where "
            "nl.num_programs() == 2",
        )
    return session


def sendrecv(
    src: NkiTensor,
    dst: NkiTensor,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: dma_engine = dma_engine.dma,
    name: str | None = None,
) -> NkiInstruction:
    """Send src to the other core, and receive its tile in dst.

    Args:
        src, dst: SBUF tiles of one shape and dtype.
        send_to_rank, recv_from_rank: the other core: 0 or 1.
        pipe_id: names the exchange; both cores pass the same.
        dma_engine: the shared DMA, or GpSimd's.
        name: of the instruction.

    Raises:
        MemorySpaceError: a tensor that is not in SBUF.
        ShapeError: src and dst of different shapes.
        DTypeError: src and dst of different types.
        ParameterError: a launch on one core, a rank that is not the other core's, a list of tiles,
            or more bytes than the DMA of GpSimd moves.
    """
    call = "nisa.sendrecv"
    session = _two_cores(call)
    me, other = session.program, 1 - session.program
    if isinstance(src, (list, tuple)) or isinstance(dst, (list, tuple)):
        raise ParameterError(f"{call} of {src!r}", rule="it sends one tile", fix="pass a tile")
    if send_to_rank != other or recv_from_rank != other:
        raise ParameterError(
            f"{call} on core {me}: send_to_rank={send_to_rank}, recv_from_rank={recv_from_rank}",
            rule="the cores of a logical core are 0 and 1; each sends to the other one",
            fix="pass 1 - nl.program_id(0) for both",
        )
    if src.dtype != dst.dtype or src.size != dst.size or src.shape[0] != dst.shape[0]:
        raise (DTypeError if src.dtype != dst.dtype else ShapeError)(
            f"{call}: src is {src.describe()}, dst {dst.describe()}",
            rule="both have one shape and dtype",
            fix="slice or convert one of them",
        )
    for which, t in (("src", src), ("dst", dst)):
        if t._layout.space is not Space.SBUF:
            raise MemorySpaceError(
                f"{call}: {which} is {t.describe()}",
                rule="tiles in SBUF are exchanged",
                fix="copy it to SBUF first",
            )
    kind = src._layout.type
    limit = {4: 1024, 2: 512, 1: 256}[kind.itemsize]
    row = src.size // src.shape[0] * kind.itemsize
    if dma_engine.name == "gpsimd_dma" and row > limit:
        raise ParameterError(
            f"{call}: src is {src.describe()} with dma_engine.gpsimd_dma",
            rule=f"GpSimd's DMA moves up to {limit} bytes a partition of such a type",
            fix="divide the tile, or use nisa.dma_engine.dma",
        )
    lanes = src.shape[0]
    shape = (lanes, src.size // lanes)
    meeting = session.meeting(f"{call} of pipe {pipe_id}", (0, 1))
    sent, received = (
        session.of_buffer(session.exchange((meeting, core), shape, kind.stored).buffer, kind, shape)
        for core in (me, other)
    )
    session.trace.guessed.add("sendrecv")
    _move(session, sent, src, pipe_id, sends=True)
    session.meet(meeting)
    return _move(session, dst, received, pipe_id, sends=False)


def _move(
    session: Session, dst: NkiTensor, src: NkiTensor, pipe: int, *, sends: bool
) -> NkiInstruction:
    key = ("sendrecv", pipe, sends)

    def lower() -> Recipe:
        walks = dma_walks("nisa.sendrecv", dst, src)
        settings = TransferCopy(pipe=pipe, sends=sends)
        return Recipe("dma_copy", Engine.DMA, walks[:1], walks[1:], None, settings)

    return NkiInstruction(session.issue(key, (dst, src), lower))


def core_barrier(
    data: NkiTensor,
    cores: tuple[int, int],
    engine: engine = engine.gpsimd,
    name: str | None = None,
) -> NkiInstruction:
    """Wait until both cores reach the barrier. After it, both see what they wrote to `data` before.

    Args:
        data: a tensor in shared HBM.
        cores: (0, 1).
        engine: the engine that waits.
        name: of the instruction.

    Raises:
        MemorySpaceError: data that is not in shared HBM.
        ParameterError: a launch on one core, or other cores than (0, 1).
    """
    call = "nisa.core_barrier"
    session = _two_cores(call)
    if tuple(cores) != (0, 1):
        raise ParameterError(
            f"{call}: cores={cores!r}", rule="both cores wait: (0, 1)", fix="pass (0, 1)"
        )
    if data._layout.on_chip:
        raise MemorySpaceError(
            f"{call}: data is {data.describe()}",
            rule="cores share tensors in shared HBM",
            fix="pass the tensor that one writes and the other reads",
        )
    session.trace.guessed.add("core_barrier")
    session.meet(session.meeting(call, (0, 1)), fence=True)
    return NkiInstruction()


__all__ = ["core_barrier", "sendrecv"]
