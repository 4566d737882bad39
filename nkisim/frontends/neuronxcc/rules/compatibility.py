"""Deviations of the SDK's simulator from hardware, for `@nki.jit(mode="simulation")`.

A tile that the kernel returns is copied out, bf16 and fp8 tiles keep fp32 precision, dropout drops
nothing, a tile that a masked instruction filled in part may be stored as a whole
(nkisim.checking.memory_state), and limits of a NeuronCore generation that change no value are not
enforced. All but the second warn. AWS's own documentation tests rely on all five. They hold for
kernels declared with that mode only; every other way to run a kernel (other modes,
`nki.simulate_kernel` of a plain function, JAX and PyTorch by default) does as hardware does.
"""

from __future__ import annotations

from nkisim.errors import KernelError, OutputError, ParameterError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Space
from nkisim.trace.tracer import Tracer


def returned_in_hbm(tracer: Tracer, leaf: object) -> object:
    """`leaf` of a kernel's result; an on-chip tile is copied to HBM, with a warning."""
    if not isinstance(leaf, Tensor) or not leaf.space.on_chip:
        return leaf
    out = tracer.allocate(leaf.shape, leaf.dtype, Space.SHARED_HBM)
    tracer.emit("dma_copy", (out,), (leaf,))
    if tracer.program == 0:
        tracer.checker.warn(
            OutputError(
                f"kernel {tracer.trace.name} returns {leaf.describe()}",
                rule="on hardware outputs live in HBM, and on-chip tiles are gone when the kernel "
                'ends; mode="simulation" copies them out, as the SDK\'s simulator does',
                fix="make an output with nl.ndarray(..., buffer=nl.shared_hbm), nl.store the "
                "tile into it and return that",
                location=leaf.buffer.location,
            )
        )
    return out


def drops_nothing(tracer: Tracer, what: str) -> bool:
    """Whether dropout `what` is to keep all: the SDK lists it as a known issue of its simulator."""
    if tracer.checker.as_sdk and tracer.program == 0:
        tracer.checker.warn(
            ParameterError(
                f"{what} keeps every element",
                rule='mode="simulation" drops nothing, as the SDK\'s simulator; hardware does',
                fix="declare the kernel with another mode, or none, to see dropout",
            )
        )
    return tracer.checker.as_sdk


def refuse(tracer: Tracer, error: KernelError) -> None:
    """Raise `error`, which is about a limit of hardware that a simulator need not have.

    Raises:
        KernelError: unless in the mode of the SDK's simulator, where it is a warning.
    """
    if not tracer.checker.as_sdk:
        raise error
    if tracer.program == 0:
        tracer.checker.warn(error)
