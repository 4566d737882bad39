"""Running a program on a caller's arrays, which may share memory.

On a device each argument of a launch is memory of its own, and a program is run as if it were: an
input is read as it was before the launch, whatever the launch writes into an array that overlaps
it. Written arguments are copied back afterwards, in the order of the program's outputs, so that
memory which two of them share holds what the later one got. This is what `jax.jit` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nkisim.errors import ParameterError
from nkisim.numerics.program import Program

_WORK = 10_000  # candidates that are looked at for an element that two strided views share


def run_in_place(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a program, and change the arguments that it writes.

    Args:
        program: the program.
        arrays: one for each of its inputs, in any layout; any of them may share memory.

    Returns:
        The outputs. One that aliases an argument is that array, or where another written argument
        shares its memory, an array of its own.

    Raises:
        ParameterError: an argument that is written is read-only, or has elements that share memory.
    """
    aliased = set(program.aliases.values())
    written = {i for i in aliased if program.writes_input(i)}
    for i in written:
        _check_writable(arrays[i], program.inputs[i].name, program.trace.name)
    shared = {i for i in aliased if any(j != i and _share(arrays[i], arrays[j]) for j in written)}
    inputs = list(arrays)
    for i in aliased:
        if i in shared or not arrays[i].flags.c_contiguous:
            inputs[i] = arrays[i].copy(order="C")
    in_place = [inputs[i] for i in written if inputs[i] is arrays[i]]
    for i, array in enumerate(arrays):
        if i not in aliased and any(_share(array, other) for other in in_place):
            inputs[i] = array.copy()
    outputs = [
        inputs[program.aliases[o]] if o in program.aliases else np.empty(spec.shape, spec.dtype)
        for o, spec in enumerate(program.outputs)
    ]
    results = list(program.run(inputs, outputs))
    for o, i in program.aliases.items():
        if i in written and inputs[i] is not arrays[i]:
            arrays[i][...] = inputs[i]
        if i not in shared:
            results[o] = arrays[i]
    return results


def _share(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have an element's memory in common, or may have."""
    if not np.may_share_memory(a, b):
        return False
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return True
    try:
        return np.shares_memory(a, b, max_work=_WORK)
    except np.exceptions.TooHardError:
        return True


def _check_writable(array: np.ndarray, name: str, kernel: str) -> None:
    if not array.flags.writeable:
        raise ParameterError(
            f"argument '{name}' is read-only, but kernel {kernel} writes it",
            rule="an output argument is an array the kernel may write",
            fix="pass a writable array, e.g. np.array(x)",
        )
    if any(n > 1 and step == 0 for n, step in zip(array.shape, array.strides, strict=True)):
        raise ParameterError(
            f"argument '{name}' repeats elements, with strides {array.strides}, but kernel "
            f"{kernel} writes it",
            rule="each element of an output argument has memory of its own",
            fix="pass a copy that is not broadcast, e.g. np.array(x) or x.clone()",
        )
