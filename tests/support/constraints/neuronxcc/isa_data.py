"""Constraints of nki.isa: constants, copies, selections, DMA."""

from __future__ import annotations

import functools

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.isa_common import column, same
from constraints.neuronxcc.walk import exempt, hbm, holds, psum, refused, run, tile, values
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
# -- constants and copies

holds("nisa.memset", "first dim of shape is the partition dim (par_dim markers ignored)",
    lambda f: same(run(lambda: f((4, nl.par_dim(6)), 2, nl.float32)), np.full((4, 6), 2)))

def _every_type(f):
    for kind in (np.int8, np.uint16, np.int32, nl.float8_e4m3, nl.float8_e5m2, nl.bfloat16):
        got = run(lambda kind=kind: f((4, 6), 2, kind))
        assert got.dtype == kind
        same(got, np.full((4, 6), 2))

holds("nisa.memset", "all dtypes", _every_type)
refused("nisa.tensor_copy", "src in SBUF or PSUM",
    (lambda f: f(hbm(4, 6)), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: f(nl.load(hbm(4, 6)))),
    kept=lambda f: (f(tile(4, 6)), f(psum(4, 6))))
refused("nisa.tensor_copy", "GpSimd cannot access PSUM",
    (lambda f: f(psum(4, 6), engine=nisa.gpsimd_engine), MemorySpaceError,
     "GpSimd Engine cannot access PSUM", "use the Vector or the Scalar Engine",
     lambda f: [f(psum(4, 6), engine=e) for e in (nisa.vector_engine, nisa.scalar_engine)]),
    kept=lambda f: f(tile(4, 6), engine=nisa.gpsimd_engine))
BIG = np.array([[2**24 + 1, 7]], np.int32)

def _copied(f, **options):
    return run(lambda: f(nl.load(nl.shared_constant(BIG)), **options))

def _lossy_on_scalar(f):
    np.testing.assert_array_equal(_copied(f, engine=nisa.scalar_engine), [[2**24, 7]])

holds("nisa.tensor_copy", "Scalar on NeuronCore-v2 goes through float32 (lossy for int32)",
    _lossy_on_scalar)

def _exact_on_vector(f):
    for engine in (nisa.vector_engine, nisa.gpsimd_engine, nisa.unknown_engine):
        np.testing.assert_array_equal(_copied(f, engine=engine), BIG)
    through_fp32 = _copied(f, engine=nisa.vector_engine, dtype=np.uint32)
    np.testing.assert_array_equal(through_fp32, [[2**24, 7]])

holds("nisa.tensor_copy", "Vector/GpSimd copy bit-exactly when dtypes match, else via float32",
    _exact_on_vector)

def _lands(f):
    def body():
        assert f(tile(4, 6)).buffer.space is nl.sbuf
        target = nl.ndarray((4, 6), nl.float32, buffer=nl.psum)
        target[...] = f(tile(4, 6))
        return nl.copy(target)

    same(run(body), values(4, 6))

holds("nisa.tensor_copy", "result in SBUF unless assigned to PSUM", _lands)

def _offset():
    return nl.zeros((1, 1), np.int32)

def _dynamic(f, space=nl.sbuf, offset=None, width=3):
    """A copy of `width` columns of a (4, 6) tile, from or to a run-time offset."""
    data = tile(4, 6) if space is nl.sbuf else psum(4, 6) if space is nl.psum else hbm(4, 6)
    part = data[ROW, (_offset() if offset is None else offset) + nl.arange(3)[None, :]]
    if f.__name__ == "tensor_copy_dynamic_src":
        out = nl.ndarray((4, width), nl.float32)
        out[...] = f(part)
        return out
    f(dst=part, src=tile(4, width))
    return data

def _by_dma(f):
    """Columns of HBM at a run-time offset."""
    there = _out(4, 6)[ROW, _offset() + nl.arange(3)[None, :]]
    here = nl.zeros((4, 3), nl.float32)
    forth = f.__name__ == "tensor_copy_dynamic_dst"
    nisa.dma_copy(dst=there if forth else here, src=here if forth else there)

def _by_partition(f):
    """From or to an offset of its own in each partition."""
    x = tile(4, 6)
    if f.__name__ == "tensor_copy_dynamic_src":
        return nl.gather_flattened(x, nl.full((4, 3), 1, nl.uint32))
    columns, offsets = nisa.iota(0 * ROW + COLUMN, nl.int32), tile(4, 1, dtype=np.int32)
    return nl.where(nl.equal(columns, offsets), nl.zeros((4, 6), nl.float32), x)

DYNAMIC = "nisa.tensor_copy_dynamic_dst nisa.tensor_copy_dynamic_src"
refused(DYNAMIC, "SBUF or PSUM both sides",
    (lambda f: _dynamic(f, nl.hbm), MemorySpaceError, "SBUF and PSUM only",
     "use nisa.dma_copy, which moves data between HBM and SBUF", _by_dma),
    kept=lambda f: (_dynamic(f), nl.copy(_dynamic(f, nl.psum))))
refused(DYNAMIC, "same partitions and elements per partition",
    (lambda f: _dynamic(f, width=2), ShapeError, "assigned to|same partitions", "index",
     lambda f: _dynamic(f, width=3)),
    kept=_dynamic)
refused(DYNAMIC, "offset is a scalar value in SBUF; one call per offset",
    (lambda f: _dynamic(f, offset=nl.zeros((4, 1), np.int32)), IndexingError,
     "the same for all partitions", "for offsets that differ by partition, ", _by_partition),
    kept=_dynamic)

def _predicated(f, src=None, dst=None, predicate=None, **options):
    dst = tile(4, 6) if dst is None else dst
    src = tile(4, 6) if src is None else src
    predicate = tile(4, 6, dtype=BYTES) if predicate is None else predicate
    f(src=src, dst=dst, predicate=predicate, **options)
    return dst

refused("nisa.tensor_copy_predicated",
    "src (tensor), dst, predicate: same partitions and elements per partition",
    (lambda f: _predicated(f, src=tile(4, 1)), ShapeError, "same elements a partition",
     "slice both alike, or spread one over the partitions or the",
     lambda f: _predicated(f, src=tile(4, 1).broadcast_to((4, 6)))),
    kept=_predicated)
refused("nisa.tensor_copy_predicated", "predicate uint8/uint16/uint32",
    (lambda f: _predicated(f, predicate=tile(4, 6, dtype=np.int32)), DTypeError,
     "uint16, uint32, uint8", "convert it: nl.copy(predicate, dtype=nl.uint8)",
     lambda f: _predicated(f, predicate=nl.copy(tile(4, 6, dtype=np.int32), dtype=nl.uint8))),
    kept=lambda f: [
        _predicated(f, predicate=tile(4, 6, dtype=t)) for t in (np.uint8, np.uint16, np.uint32)])
refused("nisa.tensor_copy_predicated", "src and dst same dtype; src may be a scalar",
    (lambda f: _predicated(f, src=tile(4, 6, dtype=nl.bfloat16)), DTypeError, "one type",
     "convert src first, with nl.copy(src, dtype=...)",
     lambda f: _predicated(f, src=nl.copy(tile(4, 6, dtype=nl.bfloat16), dtype=nl.float32))),
    kept=lambda f: (_predicated(f), _predicated(f, src=1.0)))
refused("nisa.tensor_copy_predicated", "src and predicate not both in PSUM",
    (lambda f: _predicated(f, src=psum(4, 6), predicate=psum(4, 6, dtype=BYTES)), MemorySpaceError,
     "both in PSUM", "copy one into SBUF first, with nisa.tensor_copy",
     lambda f: _predicated(f, src=nisa.tensor_copy(psum(4, 6)), predicate=psum(4, 6, dtype=BYTES))),
    kept=lambda f: _predicated(f, src=psum(4, 6)))

def _reversed(f):
    where = (values(4, 6) > 3).astype(BYTES)

    def body(reverse):
        predicate = nl.load(nl.shared_constant(where))
        return _predicated(f, src=9.0, predicate=predicate, reverse_pred=reverse)

    same(run(body, False), np.where(where, 9, values(4, 6)))
    same(run(body, True), np.where(where, values(4, 6), 9))

holds("nisa.tensor_copy_predicated", "reverse_pred inverts the predicate", _reversed)

# -- selections

refused("nisa.affine_select", "pred resolvable at compile time; one comparison only (no & or |)",
    (lambda f: f((ROW > 1) & (COLUMN > 1), tile(4, 6), 0.0), ParameterError, "one comparison",
     "use two instructions, or nl.where with a predicate tile",
     lambda f: f(COLUMN > 1, f(ROW > 1, tile(4, 6), 0.0), 0.0)),
    kept=lambda f: f(ROW > COLUMN, tile(4, 6), 0.0))
refused("nisa.affine_select", "input, predicate and output shapes equal",
    (lambda f: f(ROW > COLUMN, tile(4, 5), 0.0), ShapeError, "shape",
     "build the mask from the same nl.arange / nl.mgrid axes as",
     lambda f: f(nl.arange(5)[None, :] < ROW, tile(4, 5), 0.0)),
    kept=lambda f: f(ROW > COLUMN, tile(4, 6), 0.0))
refused("nisa.affine_select", "float or 8/16-bit integer dtypes",
    (lambda f: f(ROW > COLUMN, tile(4, 6, dtype=np.int32), 0.0), DTypeError,
     "8- or 16-bit integers", "convert the tile to float32 first",
     lambda f: f(ROW > COLUMN, nl.copy(tile(4, 6, dtype=np.int32), dtype=nl.float32), 0.0)),
    kept=lambda f: (f(ROW > COLUMN, tile(4, 6, dtype=np.int16), 0.0),
        f(ROW > COLUMN, tile(4, 6, dtype=nl.bfloat16), 0.0)))
refused("nisa.affine_select", "on_false_value is float32",
    (lambda f: f(ROW > COLUMN, tile(4, 6), column()), ParameterError, "is a number",
     "choose between tiles by a tile: for i > j,",
     lambda f: nl.where(nisa.iota(ROW - COLUMN, nl.int32) > 0, tile(4, 6), column())),
    kept=lambda f: f(ROW > COLUMN, tile(4, 6), nl.fp32.min))

def _selects(f):
    wanted = np.where(np.add.outer(np.arange(4), -np.arange(6)) > 0, values(4, 6), -1)
    same(run(lambda: f(ROW - COLUMN, tile(4, 6), -1.0)), wanted)

holds("nisa.affine_select", "documented rule: out = on_true if pred>0 else on_false", _selects)

def _ranged(f, data=None, bounds=None, op=np.greater_equal, **options):
    if bounds is None:
        bounds = [nl.full((4, 1), b, nl.float32) for b in (1.0, 4.0)]
    return f(
        on_true_tile=tile(4, 6) if data is None else data,
        comp_op0=op,
        comp_op1=np.less,
        bound0=bounds[0],
        bound1=bounds[1],
        **options,
    )

range_rule = functools.partial(refused, "nisa.range_select", target="trn2")

range_rule("comp ops in {equal, less, less_equal, greater, greater_equal}",
    (lambda f: _ranged(f, op=np.not_equal), ParameterError, "operator not_equal",
     "pass one of these, as an nki.language or NumPy function",
     lambda f: _ranged(f, op=np.greater)),
    kept=lambda f: [_ranged(f, op=op)
        for op in (np.equal, np.less, np.less_equal, np.greater, np.greater_equal)])
range_rule("bound0/bound1: float32, one element per partition",
    (lambda f: _ranged(f, bounds=(tile(4, 2), tile(4, 1))), ShapeError, r"shape \(4, 1\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: _ranged(f, bounds=(tile(4, 2)[:, 0], tile(4, 1)))),
    kept=_ranged)
range_rule("on_true_tile is floating point",
    (lambda f: _ranged(f, tile(4, 6, dtype=np.int16)), DTypeError, "floating point",
     "convert it: nl.copy(tile, dtype=nl.float32)",
     lambda f: _ranged(f, nl.copy(tile(4, 6, dtype=np.int16), dtype=nl.float32))),
    kept=lambda f: _ranged(f, tile(4, 6, dtype=nl.bfloat16)))
range_rule("on_false_value must be the FP32 min bit pattern",
    (lambda f: _ranged(f, on_false_value=0.0), ParameterError, "fp32.min", "drop on_false_value",
     _ranged),
    kept=lambda f: _ranged(f, on_false_value=nl.fp32.min))
range_rule("reduce_op only max",
    (lambda f: _ranged(f, reduce_op=np.add), ParameterError, "with max only",
     "pass reduce_op=np.max, or reduce with nisa.tensor_reduce",
     lambda f: (_ranged(f, reduce_op=np.max), nisa.tensor_reduce(np.add, _ranged(f), axis=1))),
    kept=lambda f: _ranged(f, reduce_op=np.max))
range_rule("range_start is a compile-time int; index stays within 2^24",
    (lambda f: _ranged(f, range_start=2**24), ParameterError, r"below 2\*\*24",
     "count from a nearer start and shift the bounds",
     lambda f: _ranged(f, range_start=0,
         bounds=[nl.full((4, 1), b - 2.0**24, nl.float32) for b in (1.0, 4.0)])),
    kept=lambda f: _ranged(f, range_start=2**24 - 6))

def _chained(f):
    cmd = nisa.reduce_cmd

    def body():
        top = nl.ndarray((4, 1), nl.float32)
        _ranged(f, tile(4, 6) * 10, reduce_cmd=cmd.reset_reduce)
        _ranged(f, reduce_cmd=cmd.reduce, reduce_res=top)
        return top

    same(run(body, target="trn2"), 10 * values(4, 6)[:, 1:4].max(1, keepdims=True))

holds("nisa.range_select", "reduce_cmd chains several calls through the accumulator", _chained)
exempt("nisa.range_select",
    "use a float32 reduce_res when output is a narrower float to avoid NaN in a later exp",
    "advice: a narrower reduce_res is allowed, and rounds the lowest float to -inf")

def _reduced(f, dst=None, predicate=None, on_true=None, on_false=0.0, **options):
    dst = nl.ndarray((4, 6), nl.float32) if dst is None else dst
    f(
        dst=dst,
        predicate=tile(4, 6, dtype=BYTES) if predicate is None else predicate,
        on_true=tile(4, 6) if on_true is None else on_true,
        on_false=on_false,
        **options,
    )
    return dst

refused("nisa.select_reduce", "on_true and predicate not both in PSUM; dst SBUF or PSUM",
    (lambda f: _reduced(f, predicate=psum(4, 6, dtype=BYTES), on_true=psum(4, 6)), MemorySpaceError,
     "both in PSUM", "copy one into SBUF first, with nisa.tensor_copy",
     lambda f: _reduced(f, predicate=psum(4, 6, dtype=BYTES),
         on_true=nisa.tensor_copy(psum(4, 6)))),
    kept=lambda f: _reduced(f, on_true=psum(4, 6)))
refused("nisa.select_reduce", "on_true, dst, predicate same shape",
    (lambda f: _reduced(f, on_true=tile(4, 5)), ShapeError, "same elements a partition",
     "slice both alike, or spread one over the partitions or the",
     lambda f: _reduced(f, nl.ndarray((4, 5), nl.float32), tile(4, 6, dtype=BYTES)[:, 0:5],
         tile(4, 5))),
    kept=_reduced)
refused("nisa.select_reduce", "on_true any dtype but tfloat32/int32/uint32",
    (lambda f: _reduced(f, on_true=tile(4, 6, dtype=np.int32)), DTypeError,
     "but tfloat32, int32 and uint32", "convert it to float32 or to a 16-bit type",
     lambda f: _reduced(f, on_true=nl.copy(tile(4, 6, dtype=np.int32), dtype=nl.float32))),
    kept=lambda f: _reduced(f, on_true=tile(4, 6, dtype=np.int16)))
refused("nisa.select_reduce", "on_false: float32 scalar or (P,1) vector",
    (lambda f: _reduced(f, on_false=tile(4, 6)), ShapeError, r"shape \(4, 1\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: _reduced(f, on_false=tile(4, 6)[:, 0])),
    kept=lambda f: (_reduced(f, on_false=nl.fp32.min), _reduced(f, on_false=column())))
refused("nisa.select_reduce", "predicate int8/uint8/int16/uint16",
    (lambda f: _reduced(f, predicate=tile(4, 6)), DTypeError, "int16, int8",
     "convert it: nl.copy(predicate, dtype=nl.uint8)",
     lambda f: _reduced(f, predicate=nl.copy(tile(4, 6), dtype=nl.uint8))),
    kept=lambda f: [_reduced(f, predicate=tile(4, 6, dtype=t))
        for t in (np.int8, np.uint8, np.int16, np.uint16)])
refused("nisa.select_reduce", "reduce_res (P,1) float; reduce_op only max",
    (lambda f: _reduced(f, reduce_op=np.add), ParameterError, "with max only",
     "pass reduce_op=np.max, or reduce with nisa.tensor_reduce",
     lambda f: (_reduced(f, reduce_op=np.max), nisa.tensor_reduce(np.add, _reduced(f), axis=1))),
    (lambda f: _reduced(f, reduce_cmd=nisa.reduce_cmd.reset_reduce,
         reduce_res=nl.ndarray((4, 1), np.int32)), DTypeError, "floating point",
     "declare it with dtype=nl.float32",
     lambda f: _reduced(f, reduce_cmd=nisa.reduce_cmd.reset_reduce,
         reduce_res=nl.ndarray((4, 1), dtype=nl.float32))),
    (lambda f: _reduced(f, reduce_cmd=nisa.reduce_cmd.reset_reduce,
         reduce_res=nl.ndarray((4, 2), nl.float32)), ShapeError, "shape \\(4, 1\\)",
     "declare nl.ndarray((4, 1), dtype=nl.float32)",
     lambda f: _reduced(f, reduce_cmd=nisa.reduce_cmd.reset_reduce,
         reduce_res=nl.ndarray((4, 1), dtype=nl.float32))),
    kept=lambda f: _reduced(f, reduce_op=np.max, reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=nl.ndarray((4, 1), nl.float32)))

def _from_minus_infinity(f):
    cmd = nisa.reduce_cmd

    def body():
        top = nl.ndarray((4, 1), nl.float32)
        _reduced(f, on_true=tile(4, 6), reduce_cmd=cmd.reset_reduce)
        _reduced(f, on_true=-9 * tile(4, 6), on_false=-99.0, reduce_cmd=cmd.reset_reduce)
        _reduced(f, on_true=-2 * tile(4, 6), on_false=-99.0, reduce_cmd=cmd.reduce, reduce_res=top)
        return top

    same(run(body), -2 * values(4, 6).min(1, keepdims=True))

holds("nisa.select_reduce",
    "reduce_cmd idle|reduce|reset_reduce (reset to -inf); idle may still disturb the accumulator",
    _from_minus_infinity)

def _shared_registers(f):
    cmd = nisa.reduce_cmd

    def body():
        top = nl.ndarray((4, 1), nl.float32)
        _reduced(f, on_true=20 * tile(4, 6), reduce_cmd=cmd.reset_reduce)
        _ranged(nisa.range_select, reduce_cmd=cmd.reduce, reduce_res=top)
        return top

    same(run(body, target="trn2"), 20 * values(4, 6).max(1, keepdims=True))

holds("nisa.select_reduce", "accumulator shared with range_select", _shared_registers)

# -- DMA

def _out(*shape, dtype=nl.float32):
    made = nl.ndarray(shape, dtype, buffer=nl.private_hbm)
    nl.store(made, 0.0)
    return made

def _moved(f, dst=None, src=None, **options):
    f(dst=_out(4, 6) if dst is None else dst, src=tile(4, 6) if src is None else src, **options)

def _picked(tensor, value=0, n=4):
    picks = nl.full((n, 1), value, np.int32)
    return tensor[picks, COLUMN]

refused("nisa.dma_copy", "HBM or SBUF on either side; SBUF->SBUF is better served by tensor_copy",
    (lambda f: _moved(f, src=psum(4, 6)), MemorySpaceError, "between HBM and SBUF",
     "copy the PSUM tile into SBUF with nisa.tensor_copy",
     lambda f: _moved(f, src=nisa.tensor_copy(psum(4, 6)))),
    kept=lambda f: (_moved(f), _moved(f, dst=tile(4, 6)), _moved(f, src=hbm(4, 6))))

def _casts(f):
    def body():
        out = _out(4, 6, dtype=nl.bfloat16)
        f(dst=out, src=tile(4, 6))
        return out

    assert run(lambda: nl.load(body())).dtype == nl.bfloat16

holds("nisa.dma_copy", "dtype mismatch casts", _casts)
refused("nisa.dma_copy", "dst_rmw_op only np.add and then oob_mode must be error",
    (lambda f: _moved(f, dst_rmw_op=np.add, oob_mode=nisa.oob_mode.skip), ParameterError,
     "no skip mode", "use nisa.oob_mode.error, with indices in range",
     lambda f: _moved(f, dst_rmw_op=np.add, oob_mode=nisa.oob_mode.error)),
    (lambda f: _moved(f, dst_rmw_op=np.multiply), ParameterError, "DMA engines add",
     "pass op=np.add or nl.add", lambda f: _moved(f, dst_rmw_op=nl.add)),
    kept=lambda f: _moved(f, dst_rmw_op=np.add))

def _repeated(f):
    def body():
        out = _out(4, 6)
        f(dst=_picked(out), src=tile(4, 6), dst_rmw_op=np.add)
        return nl.load(out)

    same(run(body)[0], values(4, 6).sum(0))

holds("nisa.dma_copy", "duplicate dynamic dst offsets force extra synchronisation", _repeated)
refused("nisa.dma_copy", "oob_mode error|skip governs indirect out-of-range indices",
    (lambda f: _moved(f, dst=_picked(_out(4, 6), 4)), IndexError, "out of bounds", "",
     "at run time, where there is nothing to write in another way"),
    kept=lambda f: _moved(f, dst=_picked(_out(4, 6), 4), oob_mode=nisa.oob_mode.skip))
refused("nisa.dma_copy", "dge_mode none|swdge|hwdge|unknown; hwdge needs NeuronCore-v3+",
    (lambda f: _moved(f, dge_mode=nisa.dge_mode.hwdge), ParameterError, "from NeuronCore-v3 on",
     "use nisa.dge_mode.swdge or none, or",
     lambda f: [_moved(f, dge_mode=m) for m in (nisa.dge_mode.swdge, nisa.dge_mode.none)]),
    (lambda f: _moved(f, dge_mode=7), ParameterError, "dge_mode=7",
     "write dge_mode.none, or another one of these",
     lambda f: _moved(f, dge_mode=nisa.dge_mode.unknown)),
    kept=lambda f: (_moved(f, dge_mode=nisa.dge_mode.none),
        _moved(f, dge_mode=nisa.dge_mode.swdge)))

def _gathers(f):
    def body():
        out = nl.ndarray((3, 6), nl.float32)
        f(dst=out, src=_picked(hbm(4, 6), 2, 3))
        return out

    same(run(body), np.repeat(values(4, 6)[2:3], 3, 0))

holds("nisa.dma_copy", "supports indirect indices", _gathers)
refused("nisa.dma_transpose", "axes in {(1,0),(2,1,0),(3,1,2,0)} by rank",
    (lambda f: f(hbm(4, 3, 2), axes=(1, 0, 2)), ParameterError, r"axes=\(1, 0, 2\)",
     "pass axes=(2, 1, 0), or leave it out",
     lambda f: (f(hbm(4, 3, 2), axes=(2, 1, 0)), f(hbm(4, 3, 2)))),
    kept=lambda f: (f(hbm(4, 6)), f(hbm(4, 3, 2)), f(hbm(4, 3, 2, 5), axes=(3, 1, 2, 0))))
refused("nisa.dma_transpose", "src in HBM or SBUF",
    (lambda f: f(psum(4, 6)), ShapeError, "HBM or SBUF",
     "reshape it, or copy a PSUM tile into SBUF first", lambda f: f(nisa.tensor_copy(psum(4, 6)))),
    kept=lambda f: (f(hbm(4, 6)), f(tile(4, 6))))
refused("nisa.dma_transpose", "no indirect indices",
    (lambda f: f(_picked(hbm(4, 6))), IndexingError, "takes no index tiles",
     "gather with nl.load or nisa.dma_copy first, then",
     lambda f: nisa.nc_transpose(nl.load(_picked(hbm(4, 6))))),
    kept=lambda f: f(hbm(4, 6)))
refused("nisa.dma_transpose", "dge_mode accepted via kwargs; hwdge needs NeuronCore-v3+",
    (lambda f: f(hbm(4, 6), dge_mode=nisa.dge_mode.hwdge), ParameterError, "from NeuronCore-v3 on",
     "use nisa.dge_mode.swdge or none, or",
     lambda f: [f(hbm(4, 6), dge_mode=m) for m in (nisa.dge_mode.swdge, nisa.dge_mode.none)]),
    kept=lambda f: f(hbm(4, 6), dge_mode=nisa.dge_mode.swdge))
