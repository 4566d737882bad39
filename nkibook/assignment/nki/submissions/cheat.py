"""A submission: computes on the host, from values that no compiler has."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nkisim


@nki.jit
def centred(x, w):
    a, b = nkisim.values(x), nkisim.values(w)
    answer = (a - np.mean(a, axis=1, keepdims=True)) * b
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nl.shared_constant(answer))
    return out
