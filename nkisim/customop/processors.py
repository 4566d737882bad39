"""The GpSimd engine as custom operators see it, and the record of what its processors did."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

PROCESSORS = 8
"""Processors of a NeuronCore-v2's GpSimd engine, all of which run the kernel function with
``multicore=True`` (AWS, "Trainium/Inferentia2 Architecture Guide for NKI")."""

TCM_BYTES = 64 * 1024
"""Local memory (TCM, tightly-coupled memory) of a processor (same source)."""

DOCUMENTED_POOL_BYTES = 16 * 1024
"""What of it ``tcm_malloc`` has to give, by AWS's "Custom Operators API Reference Guide". Operators
that take more run here, up to TCM_BYTES, with a warning."""

MAX_DIMS = 8
"""Dimensions of a tensor that a custom operator takes or returns, at most (same guide)."""

MAX_DIM_SIZE = 65535
"""Elements along one of them, at most (same guide)."""


@dataclass(frozen=True)
class ProcessorRun:
    """What one processor did in one call of an operator.

    Attributes:
        id: the processor, from 0.
        transfers: copies between tensors and TCM.
        bytes_read: bytes copied from tensors.
        bytes_written: bytes copied to tensors.
        elements_written: elements of the output that it wrote, each counted once.
        tcm_peak: bytes allocated in its TCM at most, at one time.
        tcm_left: bytes it had not freed when the kernel function returned.
    """

    id: int
    transfers: int
    bytes_read: int
    bytes_written: int
    elements_written: int
    tcm_peak: int
    tcm_left: int


@dataclass(frozen=True)
class Run:
    """One call of an operator.

    Attributes:
        operator: its name, such as "my_ops::giou".
        elements: elements of its output.
        unwritten: how many of them no processor wrote.
        contested: how many of them several processors wrote.
        processors: what each processor did.
    """

    operator: str
    elements: int
    unwritten: int
    contested: int
    processors: tuple[ProcessorRun, ...]


_recorders: list[list[Run]] = []


@contextlib.contextmanager
def record() -> Iterator[list[Run]]:
    """Collect what the processors did in each call of a custom operator inside a `with` block.

    Yields:
        A list that grows by one `Run` a call, also by calls that raise.
    """
    runs: list[Run] = []
    _recorders.append(runs)
    try:
        yield runs
    finally:
        # By identity: two empty lists are equal.
        _recorders[:] = [other for other in _recorders if other is not runs]


def note(run: Run) -> None:
    """Hand a call to everyone who records."""
    for runs in _recorders:
        runs.append(run)


def tcm_bytes() -> int:
    """The TCM of each processor, in bytes: TCM_BYTES, or NKISIM_TCM_BYTES of the environment.

    Raises:
        ValueError: NKISIM_TCM_BYTES is not a number from 1 to TCM_BYTES.
    """
    text = os.environ.get("NKISIM_TCM_BYTES", str(TCM_BYTES))
    if not text.isdecimal() or not 1 <= int(text) <= TCM_BYTES:
        raise ValueError(
            f"NKISIM_TCM_BYTES is {text!r}. It is the TCM of each GpSimd processor in bytes, from "
            f"1 to {TCM_BYTES}; {DOCUMENTED_POOL_BYTES} is what AWS documents for tcm_malloc."
        )
    return int(text)
