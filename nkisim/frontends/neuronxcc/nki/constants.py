"""What kernels import from `neuronxcc.nki.language.constants`."""

from __future__ import annotations

from typing import Any

from nkisim.ir.dtypes import as_dtype
from nkisim.machine import GEN2

sbuf_min_align = GEN2.sbuf_min_align  # as in all generations
psum_min_align = GEN2.psum_min_align


def sizeinbytes(dtype: Any) -> int:
    """Bytes of an element of `dtype`. Raises DTypeError if the NeuronCore has no such type."""
    return as_dtype(dtype).itemsize
