"""A kernel of the dialect that the operators are in, ready to be called.

Importing this needs no NKI: a kernel's module is imported when the kernel is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

import kernels
from kernels.logical_core import cores


def kernel_of(operator: str, name: str, lnc: int | None = None) -> Any:
    """A kernel of an operator, in the dialect of ``kernels.dialect``.

    Args:
        operator: the name of a package in ``kernels``, for example "rmsnorm".
        name: the kernel's name in the package's modules ``neuronxcc`` and ``nki``.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on, with ``import nki``.
            By default as many as the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        The kernel of ``neuronxcc.nki``, which runs on one core; or that of ``import nki``, with its
        number of cores.

    Raises:
        ValueError: several cores for a kernel of ``neuronxcc.nki``.
    """
    found = getattr(importlib.import_module(f"kernels.{operator}.{kernels.dialect}"), name)
    if kernels.dialect == "nki":
        return found[cores(lnc)]
    if lnc not in (None, 1):
        raise ValueError(
            f"lnc is {lnc}, and {name} is in neuronxcc.nki, whose kernels of this book run on one "
            "NeuronCore. Leave lnc out, or take the kernels in `import nki`: NKI_DIALECT=nki."
        )
    return found
