"""Constraints of nki.isa: reductions, scans, statistics, dropout."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.isa_common import (
    ADD,
    MULTIPLY,
    column,
    in_fp32,
    keeps_type,
    promotes,
    same,
)
from constraints.neuronxcc.walk import (
    cut,
    exchanged,
    holds,
    psum,
    refused,
    run,
    tile,
    values,
)
from nkisim.errors import (
    DTypeError,
    MemorySpaceError,
    NkiWarning,
    ParameterError,
    ShapeError,
)

# fmt: off

# -- reductions, scans, statistics

refused("nisa.tensor_reduce",
    "axis must contain the most-minor free axis and be consecutive, up to 4 free axes, never axis "
    "0",
    (lambda f: f(ADD, tile(4, 3), axis=[0, 1]), ParameterError, "never axis 0",
     "reduce axis 0 by a matmul with ones or by",
     lambda f: nisa.tensor_partition_reduce(ADD, f(ADD, tile(4, 3), axis=1))),
    (lambda f: f(ADD, tile(4, 3, 2), axis=1), NkiWarning, "the last free axes only",
     "permute the axes in the index, which costs nothing: i0,",
     lambda f: f(ADD, exchanged(tile(4, 3, 2)), axis=2)),
    (lambda f: f(ADD, tile(4, 2, 3, 2), axis=[1, 3]), NkiWarning, "the last free axes only",
     "permute the axes in the index, which costs nothing: i0,",
     lambda f: f(ADD, exchanged(tile(4, 2, 3, 2)), axis=[2, 3])),
    kept=lambda f: (f(ADD, tile(4, 3, 2), axis=2), f(ADD, tile(4, 2, 2, 2, 2), axis=[1, 2, 3, 4])))
refused("nisa.tensor_reduce", "bitvec ops: integer in/out, no casting",
    (lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1, dtype=nl.float32), DTypeError,
     "bit patterns", "convert the tile to an integer type, or pass an integer",
     lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1, dtype=np.int32)),
    kept=lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1))
holds("nisa.tensor_reduce", "arithmetic ops: float32 math then cast",
    in_fp32(lambda f, x, **o: f(ADD, x, 1, **o), lambda x: x.sum(1, keepdims=True)))
refused("nisa.tensor_reduce", "negate only for arithmetic ops",
    (lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1, negate=True), ParameterError,
     "only arithmetic results", "drop negate",
     lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1)),
    kept=lambda f: f(ADD, tile(4, 6), axis=1, negate=True))
refused("nisa.tensor_reduce", "op must be a legal reduction op (tables.alu_operators)",
    (lambda f: f(nl.less, tile(4, 6), axis=1), ParameterError, "operator less",
     "pass one of these, as an nki.language or NumPy function",
     lambda f: f(nl.maximum, tile(4, 6), axis=1)),
    kept=lambda f: (f(np.max, tile(4, 6), axis=1), f(nl.logical_or, tile(4, 6), axis=1)))
refused("nisa.tensor_partition_reduce", "op in {add, max, bitwise_or, bitwise_and}",
    (lambda f: f(np.min, tile(4, 6)), ParameterError, "operator minimum",
     "pass one of these, as an nki.language or NumPy function", lambda f: f(np.max, tile(4, 6))),
    kept=lambda f: (f(np.add, tile(4, 6)), f(nl.bitwise_or, tile(4, 6, dtype=np.int32))))

def _scan(f, a=None, b=None, initial=0.0, op0=MULTIPLY, op1=ADD, **options):
    a = tile(4, 6) if a is None else a
    b = tile(4, 6) if b is None else b
    return f(a, b, initial, op0, op1, **options)

refused("nisa.tensor_tensor_scan", "same partition size and elements per partition",
    (lambda f: _scan(f, b=tile(4, 5)), ShapeError, "same elements a partition",
     "slice both alike, or spread one over the partitions or the",
     lambda f: _scan(f, tile(4, 6)[:, 0:5], tile(4, 5))),
    kept=_scan)
refused("nisa.tensor_tensor_scan", "not both inputs in PSUM",
    (lambda f: _scan(f, psum(4, 6), psum(4, 6)), MemorySpaceError, "both in PSUM",
     "copy one into SBUF first, with nisa.tensor_copy",
     lambda f: _scan(f, nisa.tensor_copy(psum(4, 6)), psum(4, 6))),
    kept=lambda f: _scan(f, psum(4, 6)))
refused("nisa.tensor_tensor_scan", "initial: float32 compile-time scalar or (P,1) tile",
    (lambda f: _scan(f, initial=tile(4, 6)), ShapeError, r"shape \(4, 1\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: _scan(f, initial=tile(4, 6)[:, 0])),
    kept=lambda f: (_scan(f, initial=1.0), _scan(f, initial=column())))
refused("nisa.tensor_tensor_scan",
    "op0/op1 are binary arithmetic ops; reverse0/reverse1 swap operands",
    (lambda f: _scan(f, op0=nl.bitwise_and), ParameterError, "operator bitwise_and",
     "pass one of these, as an nki.language or NumPy function", lambda f: _scan(f, op0=nl.maximum)),
    (lambda f: _scan(f, op1=nl.abs), ParameterError, "operator abs",
     "pass one of these, as an nki.language or NumPy function", lambda f: _scan(f, op1=nl.maximum)),
    kept=lambda f: _scan(f, op1=nl.subtract, reverse1=True))

def _scanned(x):
    state, out = np.zeros(x.shape[0], np.float32), np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = state = x[:, i] * state + x[:, i]
    return out

holds("nisa.tensor_tensor_scan", "float32 math then cast",
    in_fp32(lambda f, x, **o: f(x, x, 0.0, MULTIPLY, ADD, **o), _scanned))
holds("nisa.tensor_tensor_scan",
    "output dtype = promoted input dtype unless dtype= is given (see tables.type_promotion)",
    promotes(lambda f, a, b, **o: _scan(f, a, b, **o)))
refused("nisa.bn_stats", "free size <=512",
    (lambda f: f(tile(4, 513)), ShapeError, "1 to 512 elements",
     "divide the tile along its free axes, or pad it",
     lambda f: [f(part) for part in cut(tile(4, 513), 512)]),
    kept=lambda f: f(tile(4, 512)))

def _statistics(f):
    x = values(4, 7)
    wanted = [g(p) for p in (x[:, ::2], x[:, 1::2]) for g in (
        lambda p: np.full(4, p.shape[1]), lambda p: p.mean(1), lambda p: p.var(1) * p.shape[1]
    )]  # fmt: skip
    same(run(lambda: f(tile(4, 7))), np.stack(wanted, 1), rtol=1e-5)

holds("nisa.bn_stats",
    "output 6 elements per partition: (count, mean, var*count) for even then odd", _statistics)
holds("nisa.bn_stats", "math in float32; in/out dtype casts are free",
    in_fp32(lambda f, x, **o: nl.copy(f(x, **o)[:, 1:2]),
        lambda x: x[:, ::2].mean(1, keepdims=True)))
refused("nisa.bn_stats", "mask must not involve the reduced dim (known issue)",
    (lambda f: f(tile(4, 6), mask=nl.arange(6)[None, :] < 3), ParameterError,
     "a mask on the free axis", "slice the tile: tile[:, 0:n]", lambda f: f(tile(4, 6)[:, 0:3])),
    kept=lambda f: nl.copy(f(tile(4, 6), mask=nl.arange(4)[:, None] < 3)[0:3]))
refused("nisa.bn_aggr", "elements per partition divisible by 3",
    (lambda f: f(tile(4, 7)), ShapeError, "multiple of 3",
     "pass what nisa.bn_stats gives, 6 elements a call", lambda f: f(nisa.bn_stats(tile(4, 7)))),
    kept=lambda f: f(tile(4, 6)))

def _aggregates(f):
    got = run(lambda: f(nisa.bn_stats(tile(4, 7))))
    same(got, np.stack([values(4, 7).mean(1), values(4, 7).var(1)], 1), rtol=1e-5)

holds("nisa.bn_aggr", "output 2 elements per partition: mean, variance", _aggregates)
holds("nisa.bn_aggr", "math in float32; in/out dtype casts are free",
    in_fp32(lambda f, x, **o: nl.copy(f(nisa.bn_stats(x, dtype=nl.float32), **o)[:, 0:1]),
        lambda x: x.mean(1, keepdims=True)))

# -- dropout

refused("nisa.dropout", "prob: scalar or (P,1) tile; 1.0 drops all, 0.0 keeps all",
    (lambda f: f(tile(4, 6), 1.5), ParameterError, "between 0 and 1",
     "0.1 drops one element in ten", lambda f: f(tile(4, 6), 0.1)),
    (lambda f: f(tile(4, 6), tile(4, 2)), ShapeError, "shape \\(4, 1\\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: f(tile(4, 6), nl.zeros((4, 2), nl.float32)[:, 0])),
    kept=lambda f: (f(tile(4, 6), 0.0), f(tile(4, 6), 1.0), f(tile(4, 6), column())))
refused("nisa.dropout", "integer data: prob float32 and output dtype = data dtype",
    (lambda f: f(tile(4, 6, dtype=np.int32), column(nl.bfloat16)), DTypeError,
     "float32 for integer data", "convert it: nl.copy(prob, dtype=nl.float32)",
     lambda f: f(tile(4, 6, dtype=np.int32), nl.copy(column(nl.bfloat16), dtype=nl.float32))),
    (lambda f: f(tile(4, 6, dtype=np.int32), 0.5, dtype=nl.float32), DTypeError, "the data's type",
     "drop dtype=, and convert afterwards",
     lambda f: nl.copy(f(tile(4, 6, dtype=np.int32), 0.5), dtype=nl.float32)),
    kept=lambda f: f(tile(4, 6, dtype=np.int32), column()))
refused("nisa.dropout", "float data: prob any float dtype, output any dtype",
    (lambda f: f(tile(4, 6), column(np.int32)), DTypeError, "floating point",
     "convert it: nl.copy(prob, dtype=nl.float32)",
     lambda f: f(tile(4, 6), nl.copy(column(np.int32), dtype=nl.float32))),
    kept=lambda f: f(tile(4, 6), column(nl.bfloat16), dtype=np.int32))
holds("nisa.dropout", "output dtype = input dtype unless dtype= is given",
    keeps_type(lambda f, x, **o: f(x, 0.5, **o)))
