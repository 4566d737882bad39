"""What tests of traces share."""

from __future__ import annotations

import numpy as np

import nkisim
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor

F32 = np.dtype(np.float32)


def spec(*shape: int, dtype: object = F32) -> nkisim.TensorSpec:
    return nkisim.TensorSpec(shape, np.dtype(dtype))


def like(x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """A new tensor in HBM."""
    return nl.ndarray(shape or x.shape, x.dtype, buffer=nl.shared_hbm)
