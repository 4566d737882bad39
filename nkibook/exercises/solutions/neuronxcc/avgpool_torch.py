"""Answers to the exercises on average pooling in PyTorch."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def max_pool(x, k):
    c, h, w = x.shape
    rows, cols = h // k, w // k
    out = nl.ndarray((c, rows, cols), x.dtype, buffer=nl.shared_hbm)
    i_c, i_y, i_x, i_v, i_u = nl.mgrid[0:c, 0:rows, 0:cols, 0:k, 0:k]
    windows = nl.load(x)[i_c, k * i_y + i_v, k * i_x + i_u]
    nl.store(out, value=nl.max(windows, axis=[3, 4]))
    return out


@nki.jit
def stride_three(x):
    c, h, w = x.shape
    rows, cols = (h - 2) // 3 + 1, (w - 2) // 3 + 1
    out = nl.ndarray((c, rows, cols), x.dtype, buffer=nl.shared_hbm)
    i_c, i_y, i_x, i_v, i_u = nl.mgrid[0:c, 0:rows, 0:cols, 0:2, 0:2]
    windows = nl.load(x)[i_c, 3 * i_y + i_v, 3 * i_x + i_u]
    nl.store(out, value=nl.sum(windows, axis=[3, 4]) / 4)
    return out


@nki.jit
def dilated(x):
    c, h, w = x.shape
    rows, cols = h - 2, w - 2
    out = nl.ndarray((c, rows, cols), x.dtype, buffer=nl.shared_hbm)
    i_c, i_y, i_x, i_v, i_u = nl.mgrid[0:c, 0:rows, 0:cols, 0:2, 0:2]
    windows = nl.load(x)[i_c, i_y + 2 * i_v, i_x + 2 * i_u]
    nl.store(out, value=nl.sum(windows, axis=[3, 4]) / 4)
    return out


@nki.jit
def rectangles(x, kh, kw):
    c, h, w = x.shape
    rows, cols = h // kh, w // kw
    out = nl.ndarray((c, rows, cols), x.dtype, buffer=nl.shared_hbm)
    i_c, i_y, i_x, i_v, i_u = nl.mgrid[0:c, 0:rows, 0:cols, 0:kh, 0:kw]
    windows = nl.load(x)[i_c, kh * i_y + i_v, kw * i_x + i_u]
    nl.store(out, value=nl.sum(windows, axis=[3, 4]) / (kh * kw))
    return out
