"""Traces to compare: rolled ones with those of all iterations."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np

import nkisim
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.trace import Trace
from nkisim.runtime.kernel import Kernel

F32 = np.dtype(np.float32)


class Tally:
    """How often a kernel's code ran. Traces are not to see that it counts: they do not look into
    objects of the standard library."""

    def __init__(self) -> None:
        self.note = Mock(return_value=None)

    @property
    def times(self) -> int:
        return self.note.call_count

    def reset(self) -> None:
        self.note.reset_mock()


def spec(*shape: int, dtype: object = F32) -> nkisim.TensorSpec:
    return nkisim.TensorSpec(shape, dtype)


def like(x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """A new tensor in HBM."""
    return nl.ndarray(shape or x.shape, x.dtype, buffer=nl.shared_hbm)


def stream(trace: Trace) -> Iterator[tuple]:
    """The instructions in plain data; buffers and loops are numbered as they come up.

    A loop is told by its number and by the iterations around it, which copies of it differ in.
    """
    buffers, loops = {}, {}

    def path(of):
        return tuple((loops.setdefault((*of[:d], n), len(loops)), i) for d, (n, i) in enumerate(of))

    def plain(x):
        if not isinstance(x, Tensor):
            return x
        b = x.buffer
        number = buffers.setdefault(b.number, len(buffers))
        made = (b.shape, b.dtype, b.space, b.program, b.role, b.placed, path(b.loops))
        return number, made, x.shape, x.base_shape, x.offsets, x.coefs, x.dtype

    for i in trace.instructions:
        masks = [None if m is None else m.tolist() for m in (i.where, i.where_out)]
        place = i.engine, i.engine_asked, i.program, path(i.loops), i.location
        operands = [[plain(x) for x in xs] for xs in (i.outs, i.ins, i.tiles_in)]
        yield i.opcode, operands, repr(sorted(i.attrs.items())), masks, place


def rolled(kernel: Kernel, *args: object) -> Trace:
    """The rolled trace. Raises NotUniform where there is none."""
    bound, named = kernel.bind(args, {})
    return kernel._specialize_rolled(bound, named, None).program.trace


def same(kernel: Kernel, *args: object) -> Trace:
    """The rolled trace, which is that of tracing all."""
    short = rolled(kernel, *args)
    whole = kernel.specialize(args, {}).program.trace
    assert len(short.instructions) == len(whole.instructions)
    for mine, theirs in zip(stream(short), stream(whole), strict=True):
        assert mine == theirs
    outputs = {t.buffer.number for t in (whole.result,)}
    assert short.partly_written & outputs == whole.partly_written & outputs
    return short
