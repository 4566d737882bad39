"""Constraints of nki.isa: indices, searches, gathers and shuffles."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.isa_common import column, same
from constraints.neuronxcc.walk import cut, exempt, hbm, holds, psum, refused, run, tile, values
from nkisim.errors import (
    DTypeError,
    IndexingError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
)

# fmt: off

ROW, COLUMN = nl.arange(4)[:, None], nl.arange(6)[None, :]
BYTES = np.uint8

# -- indices and searches

refused("nisa.iota", "expr is an affine expression of nl.arange",
    (lambda f: f(1.5, np.int32), ParameterError, "nl.arange or nl.mgrid",
     "add an axis: nl.arange(128)[:, None], or use nisa.memset",
     lambda f: nisa.memset((128, 1), 1.5, nl.float32)),
    kept=lambda f: f(2 * ROW + COLUMN + 1, np.int32))
holds("nisa.iota", "computed in 32-bit integers then cast to dtype for free",
    lambda f: same(run(lambda: f(2**24 + 1 + 2 * nl.arange(4)[:, None] * 1, nl.float32)),
        (2**24 + 1 + 2 * np.arange(4)[:, None]).astype(np.float32), rtol=0))

def _made_in_sbuf(f):
    spaces = []
    run(lambda: spaces.append(f(ROW + COLUMN, np.int32).buffer.space))
    assert spaces == [nl.sbuf]

holds("nisa.iota", "output in SBUF", _made_in_sbuf)

def _local(f, data=(16, 64), indices=(16, 2), dtype=np.uint16, value=1, **options):
    return f(tile(*data), nl.full(indices, value, dtype), **options)

refused("nisa.local_gather", "src_buffer.shape[0] == index.shape[0] and %16 == 0",
    (lambda f: _local(f, (8, 64), (8, 2)), ShapeError, "multiple of 16",
     "give both 16, 32, ... 128 partitions: the 16 of a group",
     lambda f: _local(f, (16, 64), (16, 2))),
    kept=lambda f: _local(f, (32, 64), (32, 2)))
refused("nisa.local_gather", "index dtype uint16",
    (lambda f: _local(f, dtype=np.uint32), DTypeError, "uint16", "make them with dtype=nl.uint16",
     lambda f: _local(f, dtype=nl.uint16)),
    kept=_local)
refused("nisa.local_gather", "num_elem_per_idx in {1,2,4,8,16,32}",
    (lambda f: _local(f, num_elem_per_idx=3), ParameterError, "num_elem_per_idx=3",
     "pass one of these", lambda f: _local(f, num_elem_per_idx=2)),
    kept=lambda f: [_local(f, num_elem_per_idx=n) for n in (1, 2, 4, 8, 16, 32)])
refused("nisa.local_gather", "<=4096 indices per core",
    (lambda f: _local(f, indices=(16, 257)), ParameterError, "at most 4096",
     "leave num_valid_indices out, or pass at most 4096; gather",
     lambda f: [_local(f, indices=(16, n)) for n in (256, 1)]),
    kept=lambda f: _local(f, indices=(16, 256)))
refused("nisa.local_gather",
    "num_valid_indices <= index.size/(index.shape[0]/16) (default equals it)",
    (lambda f: _local(f, num_valid_indices=33), ParameterError, "num_valid_indices=33 of 32",
     "leave num_valid_indices out, or pass at most 32; gather",
     lambda f: (_local(f, num_valid_indices=32), _local(f))),
    kept=lambda f: (_local(f, num_valid_indices=32), _local(f, num_valid_indices=5)))

def _flattened(f):
    picks = (np.arange(32).reshape(16, 2) * 7 % 64).astype(np.uint16)
    got = run(lambda: f(tile(16, 64), nl.load(nl.shared_constant(picks))))
    same(got.reshape(16, -1), values(16, 64)[:, picks.T.reshape(-1)])

holds("nisa.local_gather", "indices flattened partition-first within each 16-partition group",
    _flattened)
holds("nisa.local_gather",
    "indices are element offsets (the sample pre-multiplies them by num_elem_per_idx)",
    lambda f: same(run(lambda: _local(f, value=3, num_elem_per_idx=4)).reshape(16, 32, 4),
        np.repeat(values(16, 64)[:, None, 3:7], 32, 1)))
holds("nisa.local_gather", "no dtype conversion", lambda f: _keeps(f))

def _keeps(f):
    picks = nl.full
    got = run(lambda: f(tile(16, 64, dtype=nl.bfloat16), picks((16, 2), 1, np.uint16)))
    assert got.dtype == nl.bfloat16

refused("nisa.local_gather", "out-of-range undefined",
    (lambda f: _local(f, value=64), IndexError, "out of bounds", "",
     "at run time, where there is nothing to write in another way"),
    kept=lambda f: _local(f, value=63))

def _padded():
    """A tile of 7 columns, and one of a value that is never found."""
    padded = nl.full((4, 8), -np.inf, nl.float32)
    padded[:, 0:7] = nl.copy(tile(4, 7))
    return padded

refused("nisa.max8", "8 <= elements per partition <= 16384",
    (lambda f: f(src=tile(4, 7)), ShapeError, "8 to 16384",
     "divide the tile along its free axes, or pad it", lambda f: f(src=_padded())),
    (lambda f: f(src=tile(4, 16385)), ShapeError, "8 to 16384",
     "divide the tile along its free axes, or pad it",
     lambda f: [f(src=part) for part in cut(tile(4, 16385), 8192)]),
    kept=lambda f: (f(src=tile(4, 8)), f(src=tile(1, 16384))))
refused("nisa.max8", "src up to 5D; output [P,8]",
    (lambda f: f(src=tile(4, 2, 2, 2, 1, 2)), ShapeError, "at most 5 axes",
     "reshape it to fewer axes, t.reshape((partitions,",
     lambda f: f(src=tile(4, 2, 2, 2, 1, 2)[:, :, :, :, 0])),
    kept=lambda f: f(src=tile(4, 2, 2, 2, 2)).assert_shape((4, 8)))

def _compares_in_fp32(f):
    x = np.zeros((1, 9), np.int32)
    x[0, :2] = 2**24, 2**24 + 1  # one number in fp32
    got = run(lambda: f(src=nl.load(nl.shared_constant(x))))
    assert got.tolist() == [[2**24, 2**24] + [0] * 6]

holds("nisa.max8", "compares in fp32", _compares_in_fp32)

def _found(f, data=(4, 9), vals=(4, 8), **options):
    return f(data=tile(*data), vals=nl.full(vals, 1.0, nl.float32), **options)

refused("nisa.nc_find_index8", "data up to 5D with 8..16384 elements per partition",
    (lambda f: _found(f, (4, 7)), ShapeError, "8 to 16384",
     "divide the tile along its free axes, or pad it",
     lambda f: f(data=_padded(), vals=nl.full((4, 8), 1.0, nl.float32))),
    (lambda f: _found(f, (4, 2, 2, 2, 1, 2)), ShapeError, "at most 5 axes",
     "reshape it to fewer axes, t.reshape((partitions,",
     lambda f: f(data=tile(4, 2, 2, 2, 1, 2)[:, :, :, :, 0],
         vals=nl.full((4, 8), 1.0, nl.float32))),
    (lambda f: _found(f, (4, 16385)), ShapeError, "8 to 16384",
     "divide the tile along its free axes, or pad it",
     lambda f: [f(data=part, vals=nl.full((4, 8), 1.0, nl.float32))
         for part in cut(tile(4, 16385), 8192)]),
    kept=lambda f: _found(f, (4, 2, 2, 2, 2)))
refused("nisa.nc_find_index8", "vals up to 3D with exactly 8 per partition",
    (lambda f: _found(f, vals=(4, 7)), ShapeError, "exactly 8 values", "pass what nisa.max8 gives",
     lambda f: f(data=tile(4, 9), vals=nisa.max8(src=tile(4, 9)))),
    (lambda f: _found(f, vals=(4, 2, 2, 2)), ShapeError, "at most 3 axes",
     "reshape it to fewer axes, t.reshape((partitions,",
     lambda f: f(data=tile(4, 9), vals=tile(4, 2, 2, 2).reshape((4, 8)))),
    kept=lambda f: _found(f, vals=(4, 2, 4)))
refused("nisa.nc_find_index8", "output uint16 or uint32 (default), 8 per partition",
    (lambda f: _found(f, dtype=np.int32), DTypeError, "uint16 or uint32",
     "drop dtype=, which gives uint32", _found),
    kept=lambda f: (_found(f), _found(f, dtype=np.uint16)))
exempt("nisa.nc_find_index8", "absent value: undefined",
    "whether a value is there is known at run time only; the docstring says what comes back")

def _masked_search(f):
    got = run(lambda: _found(f, mask=nl.arange(9)[None, :] >= 2))
    places = [[i for i, v in enumerate(row) if v == 1 and i >= 2] for row in values(4, 9)]
    assert got.tolist() == [(at + [2**32 - 1] * 8)[:8] for at in places]

holds("nisa.nc_find_index8", "mask applies to data only", _masked_search)

def _replaced(f, data=(4, 9), vals=None, imm=-1.0, **options):
    vals = nl.full((4, 8), 1.0, nl.float32) if vals is None else vals
    return f(data=tile(*data), vals=vals, imm=imm, **options)

refused("nisa.nc_match_replace8", "data up to 5D, <=16384 elements per partition",
    (lambda f: _replaced(f, (4, 16385)), ShapeError, "1 to 16384",
     "divide the tile along its free axes, or pad it",
     lambda f: [f(data=part, vals=nl.full((4, 8), 1.0, nl.float32), imm=-1.0)
         for part in cut(tile(4, 16385), 16384)]),
    kept=lambda f: _replaced(f, (4, 2, 2, 2, 2)))
refused("nisa.nc_match_replace8", "vals up to 3D, exactly 8 per partition",
    (lambda f: _replaced(f, vals=tile(4, 9)), ShapeError, "exactly 8 values",
     "pass what nisa.max8 gives", lambda f: _replaced(f, vals=nisa.max8(src=tile(4, 9)))),
    kept=lambda f: _replaced(f, vals=tile(4, 2, 4)))

def _in_order(data, vals, imm):
    """What the instruction does, a value at a time."""
    out = data.reshape(data.shape[0], -1).copy()
    for row, wanted in zip(out, vals, strict=True):
        for v in wanted:
            at = np.flatnonzero(row == v)
            if at.size:
                row[at[0]] = imm
    return out.reshape(data.shape)

def _replaces(f, *shape):
    wanted = np.resize([1.0, 1.0, 3.0], (4, 8)).astype(np.float32)
    got = run(lambda: _replaced(f, shape, vals=nl.load(nl.shared_constant(wanted))))
    same(got, _in_order(values(*shape), wanted, -1))

holds("nisa.nc_match_replace8", "free dims flattened for matching, shapes preserved",
    lambda f: _replaces(f, 4, 3, 5))
holds("nisa.nc_match_replace8", "values processed in order 0..7, each hit replaced before the next",
    lambda f: _replaces(f, 4, 12))
refused("nisa.nc_match_replace8", "imm float32",
    (lambda f: _replaced(f, imm=column()), ParameterError, "imm is a float32 number",
     "pass a Python number", lambda f: _replaced(f, imm=1.0)),
    kept=lambda f: _replaced(f, imm=np.float32(2)))
refused("nisa.nc_match_replace8", "inputs SBUF or PSUM, same partitions",
    (lambda f: _replaced(f, vals=tile(3, 8)), ShapeError, "4 partitions",
     "pass what nisa.max8 gives", lambda f: _replaced(f, vals=nisa.max8(src=tile(4, 9)))),
    kept=lambda f: _replaced(f, vals=psum(4, 8)))
exempt("nisa.nc_match_replace8", "absent value: undefined",
    "whether a value is there is known at run time only; the docstring says what comes back")

KEEP = list(range(32))

def _shuffled(f, src=None, dst=None, mask=KEEP, **options):
    src = tile(32, 6) if src is None else src
    dst = tile(32, 6) if dst is None else dst
    f(src=src, dst=dst, shuffle_mask=mask, **options)
    return dst

refused("nisa.nc_stream_shuffle", "src/dst SBUF or PSUM; in place allowed",
    (lambda f: _shuffled(f, hbm(32, 6)), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: _shuffled(f, nl.load(hbm(32, 6)))),
    kept=lambda f: (_shuffled(f, psum(32, 6)), _shuffled(f, *[tile(32, 6)] * 2)))
refused("nisa.nc_stream_shuffle",
    "shuffle_mask has 32 ints; 255 leaves that output partition unchanged",
    (lambda f: _shuffled(f, mask=KEEP[:31]), ParameterError, "32 integers",
     "write [source of partition i for i in range(32)]",
     lambda f: _shuffled(f, mask=[(i + 1) % 32 for i in range(32)])),
    (lambda f: _shuffled(f, mask=[32, *KEEP[1:]]), ParameterError, "from 0 to 31",
     "write [source of partition i for i in range(32)]",
     lambda f: _shuffled(f, mask=[(i + 1) % 32 for i in range(32)])),
    kept=lambda f: _shuffled(f, mask=[255] * 32))

def _every_quadrant(f):
    order = KEEP[::-1]
    got = run(lambda: _shuffled(f, tile(64, 6), tile(64, 6), order))
    same(got, values(64, 6).reshape(2, 32, 6)[:, order].reshape(64, 6))

holds("nisa.nc_stream_shuffle", "same mask for every quadrant", _every_quadrant)
refused("nisa.nc_stream_shuffle", "dst dtype = src dtype, same elements per partition",
    (lambda f: _shuffled(f, tile(32, 6, dtype=nl.bfloat16)), DTypeError, "one type",
     "convert with nl.copy before or after",
     lambda f: _shuffled(f, nl.copy(tile(32, 6, dtype=nl.bfloat16), dtype=nl.float32))),
    (lambda f: _shuffled(f, tile(32, 5)), ShapeError, "same elements a partition",
     "index both with the same free axes",
     lambda f: _shuffled(f, tile(32, 5), tile(32, 6)[:, 0:5])),
    kept=_shuffled)
refused("nisa.nc_stream_shuffle",
    "n = ceil(max(src_par,dst_par)/32)*32: start partition 0 if n in {96,128}, {0,64} if n==64, "
    "{0,32,64,96} if n==32",
    (lambda f: _shuffled(f, tile(128, 6)[32:96], tile(64, 6)), IndexingError,
     "starts at partition 32", "place the tile at one of these partitions",
     lambda f: _shuffled(f, tile(128, 6)[64:128], tile(64, 6))))

def _masked_shuffle(f):
    got = run(lambda: _shuffled(f, tile(32, 6) * 10, mask=KEEP, **{"dtype": None}))
    same(got, 10 * values(32, 6))
    half = {"mask": nl.arange(32)[:, None] < 16}

    def body():
        dst = tile(32, 6)
        f(tile(32, 6) * 10, dst, KEEP, **half)
        return dst

    wanted = values(32, 6)
    wanted[:16] *= 10
    same(run(body), wanted)

holds("nisa.nc_stream_shuffle", "mask applies to dst", _masked_shuffle)

def _bounds(f, ids=None, **options):
    return f(segment_ids=tile(1, 6) if ids is None else ids, **options)

refused("nisa.sequence_bounds", "par dim must be 1: input (1,n) -> output (1,2,n)",
    (lambda f: _bounds(f, tile(2, 6)), ShapeError, "one partition",
     "handle one row at a time: ids[i:i + 1, :]",
     lambda f: [_bounds(f, nl.load(hbm(2, 6)[i : i + 1])) for i in range(2)]),
    kept=lambda f: _bounds(f).assert_shape((1, 2, 6)))

def _padding(f):
    ids = np.array([[1, 1, 0, 2, 0]], np.int32)
    got = run(lambda: _bounds(f, nl.load(nl.shared_constant(ids))))
    assert got.tolist() == [[[0, 0, 5, 3, 5], [2, 2, -1, 4, -1]]]

holds("nisa.sequence_bounds", "ids non-negative; id 0 is padding and maps to start n, end -1",
    _padding)
refused("nisa.sequence_bounds", "input and output float32 or int32",
    (lambda f: _bounds(f, tile(1, 6, dtype=nl.bfloat16)), DTypeError, "float32 or int32",
     "convert the ids: nl.copy(ids, dtype=nl.int32)",
     lambda f: _bounds(f, nl.copy(tile(1, 6, dtype=nl.bfloat16), dtype=nl.int32))),
    kept=lambda f: (_bounds(f), _bounds(f, tile(1, 6, dtype=np.int32))))
