"""Running a traced kernel as it is written: one NumPy call an instruction, on separate arrays."""

from __future__ import annotations

import numpy as np

from nkisim.ir.dtypes import poison
from nkisim.ir.memory import Role
from nkisim.ir.views import view_of


def naive(program, inputs):
    """Outputs of `program`, computed with no rewrite and no shared storage."""
    arrays = {}
    for buffer in program.trace.buffers:
        if buffer.role is Role.CONSTANT:
            arrays[buffer.number] = buffer.data.copy()
        else:
            arrays[buffer.number] = np.full(buffer.shape, poison(buffer.dtype), buffer.dtype)
    for tensor, value in zip(program.trace.arguments, inputs, strict=True):
        arrays[tensor.buffer.number][...] = value
    flat = {number: a.reshape(-1) for number, a in arrays.items()}

    def view(t):
        return view_of(flat[t.buffer.number].view(t.dtype), t)

    with np.errstate(all="ignore"):
        for instr in program.instructions:
            outs = [view(t) for t in instr.outs]
            ins = [view(t).copy() for t in instr.tiles_in]
            instr.spec.bind(instr)(*outs, *ins)
    return [
        arrays[number].reshape(spec.shape)
        for number, spec in zip(output_numbers(program), program.outputs, strict=True)
    ]


def output_numbers(program):
    """Buffers of the outputs: what the kernel returned, then the arguments it wrote."""
    trace = program.trace
    result = trace.result if isinstance(trace.result, tuple) else (trace.result,)
    numbers = [t.buffer.number for t in result if t is not None]
    return numbers + [n for n in trace.written_arguments if n not in numbers]


def same_as_naive(kernel, *arrays, compare=None):
    """Run both ways, twice (the workspace of the first run is dirty in the second).

    Bytes are compared, not values: 0.0 and -0.0 differ, NaN equals itself. Or `compare(got, want)`.
    """
    program = kernel.specialize(arrays, {}).program
    expected = naive(program, arrays)
    for _ in range(2):
        results = program.run(list(arrays))
        assert len(results) == len(expected)
        for got, want in zip(results, expected, strict=True):
            if compare is not None:
                compare(got, want)
            else:
                assert got.tobytes() == want.tobytes(), f"\n{got}\n{want}"
    return program
