"""A submission: computes on the host, from values that no compiler has."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

import nkisim


@nki.jit
def centred(x, w):
    a, b = nkisim.values(x), nkisim.values(w)
    answer = (a - np.mean(a, axis=1, keepdims=True)) * b
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(nl.shared_constant(answer)))
    return out
