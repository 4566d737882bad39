"""Answers to the exercises on tuning."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def fits(rows, columns):
    return "fits" if rows // 128 * columns * 4 <= 16 * 1024 else "refused"


@nki.jit
def doubled(x, width=4096):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // width):
        columns = nl.ds(i * width, width)
        tile = nl.load(x[:, columns])
        nl.store(out[:, columns], value=nl.multiply(tile, 2.0))
    return out
