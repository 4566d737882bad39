"""Microbenchmarks of DMA: strided stores, round trips, dependent loads, streaming reads."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128


@nki.jit
def strided_stores(x):
    """Two stores of x (128, f) that take every other element of a row: 4-byte descriptors."""
    columns = x.shape[1]
    out = nl.ndarray((P, 2 * columns), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:columns]
    tile = nl.load(x)
    nl.store(out[p, 2 * f], tile)
    nl.store(out[p, 2 * f + 1], tile)
    return out


@nki.jit
def round_trips(x, count):
    """x (128, f) to HBM and back, `count` times, each trip after the one before."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    tile = nl.load(x)
    for _ in nl.static_range(count):
        nl.store(scratch, tile)
        tile = nisa.tensor_copy(nl.load(scratch))
    nl.store(out, tile)
    return out


@nki.jit
def chase(ring, start, count):
    """`count` dependent loads of one number: ring (n, 1) holds the index of the next one."""
    out = nl.ndarray((1, 1), dtype=ring.dtype, buffer=nl.shared_hbm)
    at = nl.load(start)
    for _ in nl.static_range(count):
        at = nl.load(ring[at[0, 0], nl.arange(1)[None, :]])
    nl.store(out, at)
    return out


@nki.jit
def read(x, tiles):
    """Load (128, f) tiles of x (n, 128, f), `tiles` in all, over and over; store a column."""
    out = nl.ndarray((P, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(tiles):
        tile = nl.load(x[i % x.shape[0]])
    nl.store(out, tile[:, 0:1])
    return out


@nki.jit
def reads(x):
    """Load each (128, f) tile of x (n, 128, f). Nothing is stored, which hardware would need."""
    for i in range(x.shape[0]):
        nl.load(x[i])
