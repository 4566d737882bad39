"""Profile a kernel: trace it without data, and schedule the instructions on the machine."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nkisim.checking import simulated
from nkisim.compiler.build import work_of
from nkisim.compiler.loops import ASSUMED, unrolled
from nkisim.cost.tasks import Work
from nkisim.errors import ParameterError
from nkisim.frontends.tensor_types import is_tensor_type
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Space
from nkisim.ir.trace import Trace
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.numerics.program import TensorSpec
from nkisim.report.timeline import Timeline
from nkisim.report.times import Core
from nkisim.runtime import frameworks
from nkisim.runtime.by_data import ProgramByData, no_values
from nkisim.runtime.kernel import Kernel, Specialization, as_kernel
from nkisim.schedule.allocation import spill
from nkisim.schedule.cores import waits_across
from nkisim.schedule.scheduler import schedule, schedule_cores
from nkisim.schedule.touches import Touches
from nkisim.trace.arguments import leaves, map_leaves


def profile(kernel: Callable | Kernel, /, *args: Any, **kwargs: Any) -> Timeline:
    """Model how long a kernel takes and why. Nothing is executed.

    Args:
        kernel: a kernel, a kernel bound to a launch grid (`kernel[2, 2]`), or a function.
        *args, **kwargs: its arguments. A tensor may be an array of any framework, a
            `nkisim.TensorSpec(shape, dtype)` or `nki.typing.tensor[shape, dtype]`: only shape and
            dtype are looked at, unless the kernel itself reads values to tell what to do (a
            register that bounds a loop or moves a view).

    Returns:
        A Timeline. All of its times are modelled.

    Raises:
        KernelError: the kernel breaks a rule.
        ParameterError: a tensor without a shape or a dtype, or with one that no tensor has; a
            TensorSpec for a kernel that reads values.
        TypeError: the arguments do not fit the kernel's signature.
    """
    with _without_collection():
        return timeline(trace_of(kernel, *args, **kwargs).program.trace)


def trace_of(kernel: Callable | Kernel, /, *args: Any, **kwargs: Any) -> Specialization:
    """The kernel traced for the shapes and dtypes of its arguments; for their values where it reads
    them."""
    kernel = as_kernel(kernel)
    specs, specs_by_name = map_leaves(spec_of, (args, kwargs))
    with _without_collection(), simulated():
        special = kernel.specialize(specs, specs_by_name)
        if not isinstance(special.program, ProgramByData):
            return special
        given = leaves(kernel.bind(args, kwargs))
        tensors = [x for x in given if isinstance(spec_of(x), TensorSpec)]
        if any(isinstance(x, TensorSpec | type) for x in tensors):
            raise no_values(kernel.__name__)
        found = special.program.on_data([frameworks.as_numpy(x) for x in tensors])
        assert isinstance(found, Specialization)
        return found


def timeline(trace: Trace) -> Timeline:
    """The Timeline of a traced kernel."""
    machine = trace.machine
    timing = machine.timing
    cores = [trace.instructions]
    if trace.grid.cores > 1:
        cores = [[] for _ in range(trace.grid.cores)]  # also of those that have nothing to do
        for instr in trace.instructions:
            cores[trace.grid.core(instr.program)].append(instr)
        timing = timing.shared_by(len(cores))
    parallel = {n for n, loop in enumerate(trace.loops) if loop.kind in trace.rules.parallel}
    ordered = {n for n, loop in enumerate(trace.loops) if loop.kind == "sequential_range"}
    orders: dict[int, list[Instruction]] = defaultdict(list)
    for earlier, later in trace.orders:
        orders[id(later)].append(earlier)
    with _without_collection():
        planned = [_planned(instructions, machine, timing, parallel) for instructions in cores]
        for work, _, _ in planned:
            work.orders, work.ordered = orders, ordered
        works, spilled, touches = (list(column) for column in zip(*planned, strict=True))
        if len(works) == 1:
            across: list[dict] = [{}]
            schedules = [schedule(works[0], machine, timing, touches=touches[0])]
        else:
            across = waits_across(works, trace.instructions)
            schedules = schedule_cores(works, machine, timing, touches, across)
    waits = any(across)
    found = [Core(*core, waits) for core in zip(works, schedules, spilled, strict=True)]
    count = len(trace.instructions)
    guessed = sorted(trace.guessed)
    return Timeline(trace.name, machine, timing, found, count, trace.target, guessed=guessed)


def _planned(
    instructions: Sequence[Instruction], machine: Machine, timing: Timing, parallel: set[int]
) -> tuple[Work, int, Touches]:
    """The tasks of one core, the bytes that were spilled to make room for them, and what they
    touch."""
    instructions, assumed = unrolled(instructions)
    work = work_of(instructions, machine, timing, parallel)
    touches = Touches.of(work)
    overflows = touches.peak(Space.PSUM) > machine.psum_bytes
    if overflows:
        work = work_of(instructions, machine, timing, parallel, overflows=True)
        touches = Touches.of(work)
    spilled, touches = spill(work, touches, machine, timing)
    if work.kept & work.reloaded:  # there may be no room for what is kept
        fewer = work_of(instructions, machine, timing, parallel, hoists=False, overflows=overflows)
        without, others = spill(fewer, Touches.of(fewer), machine, timing)
        if without < spilled:
            work, spilled, touches = fewer, without, others
    if assumed:
        work.choices[ASSUMED] += assumed
    return work, spilled, touches


def spec_of(leaf: Any) -> Any:
    """Shape and dtype of anything that has them; other arguments as they are."""
    if is_tensor_type(leaf):
        if leaf.shape is None or leaf.dtype is None:
            raise ParameterError(
                f"an argument is the type {leaf.__name__} without a "
                f"{'shape' if leaf.shape is None else 'dtype'}",
                rule="a type in place of an argument says its shape and its dtype",
                fix="pass e.g. tensor[[128, 512], nl.float32]",
            )
        return TensorSpec(tuple(leaf.shape), as_dtype(leaf.dtype))
    if leaf is TensorSpec:
        raise ParameterError(
            "an argument is the class TensorSpec",
            rule="a TensorSpec says a shape and a dtype",
            fix="pass e.g. nkisim.TensorSpec((128, 512), np.float32)",
        )
    if isinstance(leaf, TensorSpec):
        return leaf._replace(shape=_sizes(leaf), dtype=_numpy_dtype(leaf.dtype))
    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    if np.isscalar(leaf) or isinstance(leaf, type):  # np.float32 itself has both names
        return leaf
    return TensorSpec(tuple(leaf.shape), _numpy_dtype(leaf.dtype))


def _sizes(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of a spec, checked here: in the kernel, its own line would be blamed."""
    sizes = spec.shape
    if isinstance(sizes, tuple | list) and all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0 for n in sizes
    ):
        return tuple(map(int, sizes))
    raise ParameterError(
        f"a TensorSpec has the shape {sizes!r}",
        rule="a shape is a tuple of ints, none of them negative",
        fix="pass e.g. nkisim.TensorSpec((128, 512), np.float32)",
    )


def _numpy_dtype(dtype: Any) -> Any:
    """A NumPy dtype; of a torch dtype, the one with the same name."""
    if dtype is None:  # which NumPy takes for float64
        raise ParameterError(
            "a TensorSpec has the dtype None",
            rule="it says what is in the tensor",
            fix="pass e.g. nkisim.TensorSpec((128, 512), np.float32)",
        )
    name = str(dtype)
    return as_dtype(name.removeprefix("torch.") if name.startswith("torch.") else dtype)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Millions of small objects are made and all are kept: looking for garbage only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # Straight to the oldest generation, or all of them would be looked at now.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
