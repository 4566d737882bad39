"""The modelled time of a training step, by kernel, from the kernel calls in its HLO or its graphs.

A kernel has the same name and the same parameters in both dialects. So a program whose kernels are
in one dialect tells what the other one would launch, on its chip.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from kernels.operators import operators


class Call(Protocol):
    """A call of a kernel: `nkibook.hlo.CustomCall`, or `nkibook.fx.KernelCall`."""

    @property
    def kernel_name(self) -> str: ...

    @property
    def config(self) -> Any: ...


class Part(NamedTuple):
    """What one operator takes of a step.

    Attributes:
        operator: its name, such as "matmul".
        calls: of its forward and backward kernels.
        microseconds: of all of them, modelled, without the overhead of a launch.
    """

    operator: str
    calls: int
    microseconds: float


CHIPS = {"inf2": "inf2", "trn2": "trn2, two cores"}
"""What is modelled, and what to call it: a NeuronCore-v2 of an inf2, with kernels in
`neuronxcc.nki`; a logical core of two physical NeuronCore-v3 of a trn2, with kernels in
`import nki`."""


def modelled(calls: Iterable[Call], chip: str) -> list[Part]:
    """How long the kernels of a step take, by operator, the longest first.

    Args:
        calls: of kernels of this book, in either dialect: the custom calls of its HLO, or the
            `calls` of its graphs.
        chip: one of CHIPS.

    Returns:
        A part for each operator. Kernels of a program run one after the other here, so that times
        add up; what the framework's compiler does between them is not in it.

    Raises:
        ValueError: another chip, or a call to another kernel.
    """
    if chip not in CHIPS:
        raise ValueError(f"chip is {chip!r}. The book has numbers for {' and '.join(CHIPS)}.")
    counted = Counter(_launch(call) for call in calls)
    parts: dict[str, Part] = {}
    for (name, inputs, constants), count in counted.items():
        operator, kernel = _kernel(name, chip)
        body = _body(kernel, inputs, constants)
        before = parts.get(operator, Part(operator, 0, 0.0))
        parts[operator] = Part(operator, before.calls + count, before.microseconds + count * body)
    return sorted(parts.values(), key=lambda part: -part.microseconds)


def _launch(call: Call) -> tuple[str, tuple, tuple]:
    """Name, tensors and constants of a call."""
    inputs = tuple((name, tuple(shape), dtype) for name, shape, dtype in call.config["inputs"])
    return call.kernel_name, inputs, tuple(sorted(call.config["constants"].items()))


def _kernel(name: str, chip: str) -> tuple[str, Any]:
    """The operator that a kernel belongs to, and the kernel in the dialect of a chip."""
    from nkisim.machine import GEN2, GEN3

    module = "neuronxcc" if chip == "inf2" else "nki"
    for package in dict.fromkeys(operator.package for operator in operators()):
        kernel = getattr(importlib.import_module(f"kernels.{package}.{module}"), name, None)
        if kernel is not None:
            return package, kernel.on(GEN2) if chip == "inf2" else kernel.on(GEN3)[2]
    raise ValueError(f"{name} is no kernel of this book's operators.")


def _body(kernel: Any, inputs: tuple, constants: tuple) -> float:
    import nkisim

    dtypes = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
    tensors = {
        name: nkisim.TensorSpec(shape, dtypes.get(dtype) or np.dtype(dtype))
        for name, shape, dtype in inputs
    }
    return nkisim.profile(kernel, **tensors, **dict(constants)).body_us
