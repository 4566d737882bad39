"""Profile a kernel: trace it without data, and schedule the instructions on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.checking import simulated
from nkisim.errors import ParameterError
from nkisim.frontends.tensor_types import is_tensor_type
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.garbage import without_collection
from nkisim.numerics.program import TensorSpec
from nkisim.report.modelled import timeline
from nkisim.report.timeline import Timeline
from nkisim.runtime import frameworks
from nkisim.runtime.by_data import ProgramByData, no_values
from nkisim.runtime.kernel import Kernel, Specialization, as_kernel
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
    with without_collection():
        return timeline(trace_of(kernel, *args, **kwargs).program.trace)


def trace_of(kernel: Callable | Kernel, /, *args: Any, **kwargs: Any) -> Specialization:
    """The kernel traced for the shapes and dtypes of its arguments; for their values where it reads
    them."""
    kernel = as_kernel(kernel)
    specs, specs_by_name = map_leaves(spec_of, (args, kwargs))
    with without_collection(), simulated():
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
