"""Constraints of nki.isa: moving, choosing, searching, indices, DMA."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.isa_compute import column, same
from constraints.walk import exempt, hbm, holds, psum, refused, run, tile, values
from nkisim.errors import (
    DTypeError,
    IndexingError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
)

ROW, COLUMN = nl.arange(4)[:, None], nl.arange(6)[None, :]
BYTES = np.uint8

# -- constants and copies

holds(
    "nisa.memset",
    "first dim of shape is the partition dim (par_dim markers ignored)",
    lambda f: same(run(lambda: f((4, nl.par_dim(6)), 2, nl.float32)), np.full((4, 6), 2)),
)


def _every_type(f):
    for kind in (np.int8, np.uint16, np.int32, nl.float8_e4m3, nl.float8_e5m2, nl.bfloat16):
        got = run(lambda kind=kind: f((4, 6), 2, kind))
        assert got.dtype == kind
        same(got, np.full((4, 6), 2))


holds("nisa.memset", "all dtypes", _every_type)
refused(
    "nisa.tensor_copy",
    "src in SBUF or PSUM",
    broken=lambda f: f(hbm(4, 6)),
    error=MemorySpaceError,
    match="HBM is reached by DMA",
    kept=lambda f: (f(tile(4, 6)), f(psum(4, 6))),
)
refused(
    "nisa.tensor_copy",
    "GpSimd cannot access PSUM",
    broken=lambda f: f(psum(4, 6), engine=nisa.gpsimd_engine),
    error=MemorySpaceError,
    match="GpSimd Engine cannot access PSUM",
    kept=lambda f: f(tile(4, 6), engine=nisa.gpsimd_engine),
)
BIG = np.array([[2**24 + 1, 7]], np.int32)


def _copied(f, **options):
    return run(lambda: f(nl.load(nl.shared_constant(BIG)), **options))


def _lossy_on_scalar(f):
    np.testing.assert_array_equal(_copied(f, engine=nisa.scalar_engine), [[2**24, 7]])


holds(
    "nisa.tensor_copy",
    "Scalar on NeuronCore-v2 goes through float32 (lossy for int32)",
    _lossy_on_scalar,
)


def _exact_on_vector(f):
    for engine in (nisa.vector_engine, nisa.gpsimd_engine, nisa.unknown_engine):
        np.testing.assert_array_equal(_copied(f, engine=engine), BIG)
    through_fp32 = _copied(f, engine=nisa.vector_engine, dtype=np.uint32)
    np.testing.assert_array_equal(through_fp32, [[2**24, 7]])


holds(
    "nisa.tensor_copy",
    "Vector/GpSimd copy bit-exactly when dtypes match, else via float32",
    _exact_on_vector,
)


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


DYNAMIC = "nisa.tensor_copy_dynamic_dst nisa.tensor_copy_dynamic_src"
refused(
    DYNAMIC,
    "SBUF or PSUM both sides",
    broken=lambda f: _dynamic(f, nl.hbm),
    error=MemorySpaceError,
    match="SBUF and PSUM only",
    kept=lambda f: (_dynamic(f), nl.copy(_dynamic(f, nl.psum))),
)
refused(
    DYNAMIC,
    "same partitions and elements per partition",
    broken=lambda f: _dynamic(f, width=2),
    error=ShapeError,
    match="assigned to|same partitions",
    kept=_dynamic,
)
refused(
    DYNAMIC,
    "offset is a scalar value in SBUF; one call per offset",
    broken=lambda f: _dynamic(f, offset=nl.zeros((4, 1), np.int32)),
    error=IndexingError,
    match="the same for all partitions",
    kept=_dynamic,
)


def _predicated(f, src=None, dst=None, predicate=None, **options):
    dst = tile(4, 6) if dst is None else dst
    src = tile(4, 6) if src is None else src
    predicate = tile(4, 6, dtype=BYTES) if predicate is None else predicate
    f(src=src, dst=dst, predicate=predicate, **options)
    return dst


refused(
    "nisa.tensor_copy_predicated",
    "src (tensor), dst, predicate: same partitions and elements per partition",
    broken=lambda f: _predicated(f, src=tile(4, 1)),
    error=ShapeError,
    match="same elements a partition",
    kept=_predicated,
)
refused(
    "nisa.tensor_copy_predicated",
    "predicate uint8/uint16/uint32",
    broken=lambda f: _predicated(f, predicate=tile(4, 6, dtype=np.int32)),
    error=DTypeError,
    match="uint16, uint32, uint8",
    kept=lambda f: [
        _predicated(f, predicate=tile(4, 6, dtype=t)) for t in (np.uint8, np.uint16, np.uint32)
    ],
)
refused(
    "nisa.tensor_copy_predicated",
    "src and dst same dtype; src may be a scalar",
    broken=lambda f: _predicated(f, src=tile(4, 6, dtype=nl.bfloat16)),
    error=DTypeError,
    match="one type",
    kept=lambda f: (_predicated(f), _predicated(f, src=1.0)),
)
refused(
    "nisa.tensor_copy_predicated",
    "src and predicate not both in PSUM",
    broken=lambda f: _predicated(f, src=psum(4, 6), predicate=psum(4, 6, dtype=BYTES)),
    error=MemorySpaceError,
    match="both in PSUM",
    kept=lambda f: _predicated(f, src=psum(4, 6)),
)


def _reversed(f):
    where = (values(4, 6) > 3).astype(BYTES)

    def body(reverse):
        predicate = nl.load(nl.shared_constant(where))
        return _predicated(f, src=9.0, predicate=predicate, reverse_pred=reverse)

    same(run(body, False), np.where(where, 9, values(4, 6)))
    same(run(body, True), np.where(where, values(4, 6), 9))


holds("nisa.tensor_copy_predicated", "reverse_pred inverts the predicate", _reversed)

# -- selections

refused(
    "nisa.affine_select",
    "pred resolvable at compile time; one comparison only (no & or |)",
    broken=lambda f: f((ROW > 1) & (COLUMN > 1), tile(4, 6), 0.0),
    error=ParameterError,
    match="one comparison",
    kept=lambda f: f(ROW > COLUMN, tile(4, 6), 0.0),
)
refused(
    "nisa.affine_select",
    "input, predicate and output shapes equal",
    broken=lambda f: f(ROW > COLUMN, tile(4, 5), 0.0),
    error=ShapeError,
    match="shape",
    kept=lambda f: f(ROW > COLUMN, tile(4, 6), 0.0),
)
refused(
    "nisa.affine_select",
    "float or 8/16-bit integer dtypes",
    broken=lambda f: f(ROW > COLUMN, tile(4, 6, dtype=np.int32), 0.0),
    error=DTypeError,
    match="8- or 16-bit integers",
    kept=lambda f: (
        f(ROW > COLUMN, tile(4, 6, dtype=np.int16), 0.0),
        f(ROW > COLUMN, tile(4, 6, dtype=nl.bfloat16), 0.0),
    ),
)
refused(
    "nisa.affine_select",
    "on_false_value is float32",
    broken=lambda f: f(ROW > COLUMN, tile(4, 6), column()),
    error=ParameterError,
    match="is a number",
    kept=lambda f: f(ROW > COLUMN, tile(4, 6), nl.fp32.min),
)


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


def range_rule(constraint, *, broken, error, match, kept=_ranged):
    refused(
        "nisa.range_select",
        constraint,
        broken=broken,
        error=error,
        match=match,
        kept=kept,
        target="trn2",
    )


range_rule(
    "comp ops in {equal, less, less_equal, greater, greater_equal}",
    broken=lambda f: _ranged(f, op=np.not_equal),
    error=ParameterError,
    match="operator not_equal",
    kept=lambda f: [
        _ranged(f, op=op) for op in (np.equal, np.less, np.less_equal, np.greater, np.greater_equal)
    ],
)
range_rule(
    "bound0/bound1: float32, one element per partition",
    broken=lambda f: _ranged(f, bounds=(tile(4, 2), tile(4, 1))),
    error=ShapeError,
    match=r"shape \(4, 1\)",
)
range_rule(
    "on_true_tile is floating point",
    broken=lambda f: _ranged(f, tile(4, 6, dtype=np.int16)),
    error=DTypeError,
    match="floating point",
    kept=lambda f: _ranged(f, tile(4, 6, dtype=nl.bfloat16)),
)
range_rule(
    "on_false_value must be the FP32 min bit pattern",
    broken=lambda f: _ranged(f, on_false_value=0.0),
    error=ParameterError,
    match="fp32.min",
    kept=lambda f: _ranged(f, on_false_value=nl.fp32.min),
)
range_rule(
    "reduce_op only max",
    broken=lambda f: _ranged(f, reduce_op=np.add),
    error=ParameterError,
    match="with max only",
    kept=lambda f: _ranged(f, reduce_op=np.max),
)
range_rule(
    "range_start is a compile-time int; index stays within 2^24",
    broken=lambda f: _ranged(f, range_start=2**24),
    error=ParameterError,
    match=r"below 2\*\*24",
    kept=lambda f: _ranged(f, range_start=2**24 - 6),
)


def _chained(f):
    cmd = nisa.reduce_cmd

    def body():
        top = nl.ndarray((4, 1), nl.float32)
        _ranged(f, tile(4, 6) * 10, reduce_cmd=cmd.reset_reduce)
        _ranged(f, reduce_cmd=cmd.reduce, reduce_res=top)
        return top

    same(run(body, target="trn2"), 10 * values(4, 6)[:, 1:4].max(1, keepdims=True))


holds("nisa.range_select", "reduce_cmd chains several calls through the accumulator", _chained)
exempt(
    "nisa.range_select",
    "use a float32 reduce_res when output is a narrower float to avoid NaN in a later exp",
    "advice: a narrower reduce_res is allowed, and rounds the lowest float to -inf",
)


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


refused(
    "nisa.select_reduce",
    "on_true and predicate not both in PSUM; dst SBUF or PSUM",
    broken=lambda f: _reduced(f, predicate=psum(4, 6, dtype=BYTES), on_true=psum(4, 6)),
    error=MemorySpaceError,
    match="both in PSUM",
    kept=lambda f: _reduced(f, on_true=psum(4, 6)),
)
refused(
    "nisa.select_reduce",
    "on_true, dst, predicate same shape",
    broken=lambda f: _reduced(f, on_true=tile(4, 5)),
    error=ShapeError,
    match="same elements a partition",
    kept=_reduced,
)
refused(
    "nisa.select_reduce",
    "on_true any dtype but tfloat32/int32/uint32",
    broken=lambda f: _reduced(f, on_true=tile(4, 6, dtype=np.int32)),
    error=DTypeError,
    match="but tfloat32, int32 and uint32",
    kept=lambda f: _reduced(f, on_true=tile(4, 6, dtype=np.int16)),
)
refused(
    "nisa.select_reduce",
    "on_false: float32 scalar or (P,1) vector",
    broken=lambda f: _reduced(f, on_false=tile(4, 6)),
    error=ShapeError,
    match=r"shape \(4, 1\)",
    kept=lambda f: (_reduced(f, on_false=nl.fp32.min), _reduced(f, on_false=column())),
)
refused(
    "nisa.select_reduce",
    "predicate int8/uint8/int16/uint16",
    broken=lambda f: _reduced(f, predicate=tile(4, 6)),
    error=DTypeError,
    match="int16, int8",
    kept=lambda f: [
        _reduced(f, predicate=tile(4, 6, dtype=t)) for t in (np.int8, np.uint8, np.int16, np.uint16)
    ],
)
refused(
    "nisa.select_reduce",
    "reduce_res (P,1) float; reduce_op only max",
    broken=lambda f: _reduced(f, reduce_op=np.add),
    error=ParameterError,
    match="with max only",
    also=(
        (
            lambda f: _reduced(
                f, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=nl.ndarray((4, 1), np.int32)
            ),
            DTypeError,
            "floating point",
        ),
        (
            lambda f: _reduced(
                f,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
                reduce_res=nl.ndarray((4, 2), nl.float32),
            ),
            ShapeError,
            "shape \\(4, 1\\)",
        ),
    ),
    kept=lambda f: _reduced(
        f,
        reduce_op=np.max,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=nl.ndarray((4, 1), nl.float32),
    ),
)


def _from_minus_infinity(f):
    cmd = nisa.reduce_cmd

    def body():
        top = nl.ndarray((4, 1), nl.float32)
        _reduced(f, on_true=tile(4, 6), reduce_cmd=cmd.reset_reduce)
        _reduced(f, on_true=-9 * tile(4, 6), on_false=-99.0, reduce_cmd=cmd.reset_reduce)
        _reduced(f, on_true=-2 * tile(4, 6), on_false=-99.0, reduce_cmd=cmd.reduce, reduce_res=top)
        return top

    same(run(body), -2 * values(4, 6).min(1, keepdims=True))


holds(
    "nisa.select_reduce",
    "reduce_cmd idle|reduce|reset_reduce (reset to -inf); idle may still disturb the accumulator",
    _from_minus_infinity,
)


def _shared_registers(f):
    cmd = nisa.reduce_cmd

    def body():
        top = nl.ndarray((4, 1), nl.float32)
        _reduced(f, on_true=20 * tile(4, 6), reduce_cmd=cmd.reset_reduce)
        _ranged(nisa.range_select, reduce_cmd=cmd.reduce, reduce_res=top)
        return top

    same(run(body, target="trn2"), 20 * values(4, 6).max(1, keepdims=True))


holds("nisa.select_reduce", "accumulator shared with range_select", _shared_registers)

# -- indices and searches

refused(
    "nisa.iota",
    "expr is an affine expression of nl.arange",
    broken=lambda f: f(1.5, np.int32),
    error=ParameterError,
    match="nl.arange or nl.mgrid",
    kept=lambda f: f(2 * ROW + COLUMN + 1, np.int32),
)
holds(
    "nisa.iota",
    "computed in 32-bit integers then cast to dtype for free",
    lambda f: same(
        run(lambda: f(2**24 + 1 + 2 * nl.arange(4)[:, None] * 1, nl.float32)),
        (2**24 + 1 + 2 * np.arange(4)[:, None]).astype(np.float32),
        rtol=0,
    ),
)


def _made_in_sbuf(f):
    spaces = []
    run(lambda: spaces.append(f(ROW + COLUMN, np.int32).buffer.space))
    assert spaces == [nl.sbuf]


holds("nisa.iota", "output in SBUF", _made_in_sbuf)


def _local(f, data=(16, 64), indices=(16, 2), dtype=np.uint16, value=1, **options):
    return f(tile(*data), nl.full(indices, value, dtype), **options)


refused(
    "nisa.local_gather",
    "src_buffer.shape[0] == index.shape[0] and %16 == 0",
    broken=lambda f: _local(f, (8, 64), (8, 2)),
    error=ShapeError,
    match="multiple of 16",
    kept=lambda f: _local(f, (32, 64), (32, 2)),
)
refused(
    "nisa.local_gather",
    "index dtype uint16",
    broken=lambda f: _local(f, dtype=np.uint32),
    error=DTypeError,
    match="uint16",
    kept=_local,
)
refused(
    "nisa.local_gather",
    "num_elem_per_idx in {1,2,4,8,16,32}",
    broken=lambda f: _local(f, num_elem_per_idx=3),
    error=ParameterError,
    match="num_elem_per_idx=3",
    kept=lambda f: [_local(f, num_elem_per_idx=n) for n in (1, 2, 4, 8, 16, 32)],
)
refused(
    "nisa.local_gather",
    "<=4096 indices per core",
    broken=lambda f: _local(f, indices=(16, 257)),
    error=ParameterError,
    match="at most 4096",
    kept=lambda f: _local(f, indices=(16, 256)),
)
refused(
    "nisa.local_gather",
    "num_valid_indices <= index.size/(index.shape[0]/16) (default equals it)",
    broken=lambda f: _local(f, num_valid_indices=33),
    error=ParameterError,
    match="num_valid_indices=33 of 32",
    kept=lambda f: (_local(f, num_valid_indices=32), _local(f, num_valid_indices=5)),
)


def _flattened(f):
    picks = (np.arange(32).reshape(16, 2) * 7 % 64).astype(np.uint16)
    got = run(lambda: f(tile(16, 64), nl.load(nl.shared_constant(picks))))
    same(got.reshape(16, -1), values(16, 64)[:, picks.T.reshape(-1)])


holds(
    "nisa.local_gather",
    "indices flattened partition-first within each 16-partition group",
    _flattened,
)
holds(
    "nisa.local_gather",
    "indices are element offsets (the sample pre-multiplies them by num_elem_per_idx)",
    lambda f: same(
        run(lambda: _local(f, value=3, num_elem_per_idx=4)).reshape(16, 32, 4),
        np.repeat(values(16, 64)[:, None, 3:7], 32, 1),
    ),
)
holds("nisa.local_gather", "no dtype conversion", lambda f: _keeps(f))


def _keeps(f):
    picks = nl.full
    got = run(lambda: f(tile(16, 64, dtype=nl.bfloat16), picks((16, 2), 1, np.uint16)))
    assert got.dtype == nl.bfloat16


refused(
    "nisa.local_gather",
    "out-of-range undefined",
    broken=lambda f: _local(f, value=64),
    error=IndexError,
    match="out of bounds",
    kept=lambda f: _local(f, value=63),
)
refused(
    "nisa.max8",
    "8 <= elements per partition <= 16384",
    broken=lambda f: f(src=tile(4, 7)),
    error=ShapeError,
    match="8 to 16384",
    also=((lambda f: f(src=tile(4, 16385)), ShapeError, "8 to 16384"),),
    kept=lambda f: (f(src=tile(4, 8)), f(src=tile(1, 16384))),
)
refused(
    "nisa.max8",
    "src up to 5D; output [P,8]",
    broken=lambda f: f(src=tile(4, 2, 2, 2, 1, 2)),
    error=ShapeError,
    match="at most 5 axes",
    kept=lambda f: f(src=tile(4, 2, 2, 2, 2)).assert_shape((4, 8)),
)


def _compares_in_fp32(f):
    x = np.zeros((1, 9), np.int32)
    x[0, :2] = 2**24, 2**24 + 1  # one number in fp32
    got = run(lambda: f(src=nl.load(nl.shared_constant(x))))
    assert got.tolist() == [[2**24, 2**24] + [0] * 6]


holds("nisa.max8", "compares in fp32", _compares_in_fp32)


def _found(f, data=(4, 9), vals=(4, 8), **options):
    return f(data=tile(*data), vals=nl.full(vals, 1.0, nl.float32), **options)


refused(
    "nisa.nc_find_index8",
    "data up to 5D with 8..16384 elements per partition",
    broken=lambda f: _found(f, (4, 7)),
    error=ShapeError,
    match="8 to 16384",
    also=(
        (lambda f: _found(f, (4, 2, 2, 2, 1, 2)), ShapeError, "at most 5 axes"),
        (lambda f: _found(f, (4, 16385)), ShapeError, "8 to 16384"),
    ),
    kept=lambda f: _found(f, (4, 2, 2, 2, 2)),
)
refused(
    "nisa.nc_find_index8",
    "vals up to 3D with exactly 8 per partition",
    broken=lambda f: _found(f, vals=(4, 7)),
    error=ShapeError,
    match="exactly 8 values",
    also=((lambda f: _found(f, vals=(4, 2, 2, 2)), ShapeError, "at most 3 axes"),),
    kept=lambda f: _found(f, vals=(4, 2, 4)),
)
refused(
    "nisa.nc_find_index8",
    "output uint16 or uint32 (default), 8 per partition",
    broken=lambda f: _found(f, dtype=np.int32),
    error=DTypeError,
    match="uint16 or uint32",
    kept=lambda f: (_found(f), _found(f, dtype=np.uint16)),
)
exempt(
    "nisa.nc_find_index8",
    "absent value: undefined",
    "whether a value is there is known at run time only; the docstring says what comes back",
)


def _masked_search(f):
    got = run(lambda: _found(f, mask=nl.arange(9)[None, :] >= 2))
    places = [[i for i, v in enumerate(row) if v == 1 and i >= 2] for row in values(4, 9)]
    assert got.tolist() == [(at + [2**32 - 1] * 8)[:8] for at in places]


holds("nisa.nc_find_index8", "mask applies to data only", _masked_search)


def _replaced(f, data=(4, 9), vals=None, imm=-1.0, **options):
    vals = nl.full((4, 8), 1.0, nl.float32) if vals is None else vals
    return f(data=tile(*data), vals=vals, imm=imm, **options)


refused(
    "nisa.nc_match_replace8",
    "data up to 5D, <=16384 elements per partition",
    broken=lambda f: _replaced(f, (4, 16385)),
    error=ShapeError,
    match="1 to 16384",
    kept=lambda f: _replaced(f, (4, 2, 2, 2, 2)),
)
refused(
    "nisa.nc_match_replace8",
    "vals up to 3D, exactly 8 per partition",
    broken=lambda f: _replaced(f, vals=tile(4, 9)),
    error=ShapeError,
    match="exactly 8 values",
    kept=lambda f: _replaced(f, vals=tile(4, 2, 4)),
)


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


holds(
    "nisa.nc_match_replace8",
    "free dims flattened for matching, shapes preserved",
    lambda f: _replaces(f, 4, 3, 5),
)
holds(
    "nisa.nc_match_replace8",
    "values processed in order 0..7, each hit replaced before the next",
    lambda f: _replaces(f, 4, 12),
)
refused(
    "nisa.nc_match_replace8",
    "imm float32",
    broken=lambda f: _replaced(f, imm=column()),
    error=ParameterError,
    match="imm is a float32 number",
    kept=lambda f: _replaced(f, imm=np.float32(2)),
)
refused(
    "nisa.nc_match_replace8",
    "inputs SBUF or PSUM, same partitions",
    broken=lambda f: _replaced(f, vals=tile(3, 8)),
    error=ShapeError,
    match="4 partitions",
    kept=lambda f: _replaced(f, vals=psum(4, 8)),
)
exempt(
    "nisa.nc_match_replace8",
    "absent value: undefined",
    "whether a value is there is known at run time only; the docstring says what comes back",
)

KEEP = list(range(32))


def _shuffled(f, src=None, dst=None, mask=KEEP, **options):
    src = tile(32, 6) if src is None else src
    dst = tile(32, 6) if dst is None else dst
    f(src=src, dst=dst, shuffle_mask=mask, **options)
    return dst


refused(
    "nisa.nc_stream_shuffle",
    "src/dst SBUF or PSUM; in place allowed",
    broken=lambda f: _shuffled(f, hbm(32, 6)),
    error=MemorySpaceError,
    match="HBM is reached by DMA",
    kept=lambda f: (_shuffled(f, psum(32, 6)), _shuffled(f, *[tile(32, 6)] * 2)),
)
refused(
    "nisa.nc_stream_shuffle",
    "shuffle_mask has 32 ints; 255 leaves that output partition unchanged",
    broken=lambda f: _shuffled(f, mask=KEEP[:31]),
    error=ParameterError,
    match="32 integers",
    also=((lambda f: _shuffled(f, mask=[32, *KEEP[1:]]), ParameterError, "from 0 to 31"),),
    kept=lambda f: _shuffled(f, mask=[255] * 32),
)


def _every_quadrant(f):
    order = KEEP[::-1]
    got = run(lambda: _shuffled(f, tile(64, 6), tile(64, 6), order))
    same(got, values(64, 6).reshape(2, 32, 6)[:, order].reshape(64, 6))


holds("nisa.nc_stream_shuffle", "same mask for every quadrant", _every_quadrant)
refused(
    "nisa.nc_stream_shuffle",
    "dst dtype = src dtype, same elements per partition",
    broken=lambda f: _shuffled(f, tile(32, 6, dtype=nl.bfloat16)),
    error=DTypeError,
    match="one type",
    also=((lambda f: _shuffled(f, tile(32, 5)), ShapeError, "same elements a partition"),),
    kept=_shuffled,
)
refused(
    "nisa.nc_stream_shuffle",
    "n = ceil(max(src_par,dst_par)/32)*32: start partition 0 if n in {96,128}, {0,64} if n==64, "
    "{0,32,64,96} if n==32",
    broken=lambda f: _shuffled(f, tile(128, 6)[32:96], tile(64, 6)),
    error=IndexingError,
    match="starts at partition 32",
    kept=lambda f: _shuffled(f, tile(128, 6)[64:128], tile(64, 6)),
)


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


refused(
    "nisa.sequence_bounds",
    "par dim must be 1: input (1,n) -> output (1,2,n)",
    broken=lambda f: _bounds(f, tile(2, 6)),
    error=ShapeError,
    match="one partition",
    kept=lambda f: _bounds(f).assert_shape((1, 2, 6)),
)


def _padding(f):
    ids = np.array([[1, 1, 0, 2, 0]], np.int32)
    got = run(lambda: _bounds(f, nl.load(nl.shared_constant(ids))))
    assert got.tolist() == [[[0, 0, 5, 3, 5], [2, 2, -1, 4, -1]]]


holds(
    "nisa.sequence_bounds",
    "ids non-negative; id 0 is padding and maps to start n, end -1",
    _padding,
)
refused(
    "nisa.sequence_bounds",
    "input and output float32 or int32",
    broken=lambda f: _bounds(f, tile(1, 6, dtype=nl.bfloat16)),
    error=DTypeError,
    match="float32 or int32",
    kept=lambda f: (_bounds(f), _bounds(f, tile(1, 6, dtype=np.int32))),
)

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


refused(
    "nisa.dma_copy",
    "HBM or SBUF on either side; SBUF->SBUF is better served by tensor_copy",
    broken=lambda f: _moved(f, src=psum(4, 6)),
    error=MemorySpaceError,
    match="between HBM and SBUF",
    kept=lambda f: (_moved(f), _moved(f, dst=tile(4, 6)), _moved(f, src=hbm(4, 6))),
)


def _casts(f):
    def body():
        out = _out(4, 6, dtype=nl.bfloat16)
        f(dst=out, src=tile(4, 6))
        return out

    assert run(lambda: nl.load(body())).dtype == nl.bfloat16


holds("nisa.dma_copy", "dtype mismatch casts", _casts)
refused(
    "nisa.dma_copy",
    "dst_rmw_op only np.add and then oob_mode must be error",
    broken=lambda f: _moved(f, dst_rmw_op=np.add, oob_mode=nisa.oob_mode.skip),
    error=ParameterError,
    match="no skip mode",
    also=((lambda f: _moved(f, dst_rmw_op=np.multiply), ParameterError, "DMA engines add"),),
    kept=lambda f: _moved(f, dst_rmw_op=np.add),
)


def _repeated(f):
    def body():
        out = _out(4, 6)
        f(dst=_picked(out), src=tile(4, 6), dst_rmw_op=np.add)
        return nl.load(out)

    same(run(body)[0], values(4, 6).sum(0))


holds("nisa.dma_copy", "duplicate dynamic dst offsets force extra synchronisation", _repeated)
refused(
    "nisa.dma_copy",
    "oob_mode error|skip governs indirect out-of-range indices",
    broken=lambda f: _moved(f, dst=_picked(_out(4, 6), 4)),
    error=IndexError,
    match="out of bounds",
    kept=lambda f: _moved(f, dst=_picked(_out(4, 6), 4), oob_mode=nisa.oob_mode.skip),
)
refused(
    "nisa.dma_copy",
    "dge_mode none|swdge|hwdge|unknown; hwdge needs NeuronCore-v3+",
    broken=lambda f: _moved(f, dge_mode=nisa.dge_mode.hwdge),
    error=ParameterError,
    match="from NeuronCore-v3 on",
    also=((lambda f: _moved(f, dge_mode=7), ParameterError, "dge_mode=7"),),
    kept=lambda f: (
        _moved(f, dge_mode=nisa.dge_mode.none),
        _moved(f, dge_mode=nisa.dge_mode.swdge),
    ),
)


def _gathers(f):
    def body():
        out = nl.ndarray((3, 6), nl.float32)
        f(dst=out, src=_picked(hbm(4, 6), 2, 3))
        return out

    same(run(body), np.repeat(values(4, 6)[2:3], 3, 0))


holds("nisa.dma_copy", "supports indirect indices", _gathers)
refused(
    "nisa.dma_transpose",
    "axes in {(1,0),(2,1,0),(3,1,2,0)} by rank",
    broken=lambda f: f(hbm(4, 3, 2), axes=(1, 0, 2)),
    error=ParameterError,
    match=r"axes=\(1, 0, 2\)",
    kept=lambda f: (f(hbm(4, 6)), f(hbm(4, 3, 2)), f(hbm(4, 3, 2, 5), axes=(3, 1, 2, 0))),
)
refused(
    "nisa.dma_transpose",
    "src in HBM or SBUF",
    broken=lambda f: f(psum(4, 6)),
    error=ShapeError,
    match="HBM or SBUF",
    kept=lambda f: (f(hbm(4, 6)), f(tile(4, 6))),
)
refused(
    "nisa.dma_transpose",
    "no indirect indices",
    broken=lambda f: f(_picked(hbm(4, 6))),
    error=IndexingError,
    match="takes no index tiles",
    kept=lambda f: f(hbm(4, 6)),
)
refused(
    "nisa.dma_transpose",
    "dge_mode accepted via kwargs; hwdge needs NeuronCore-v3+",
    broken=lambda f: f(hbm(4, 6), dge_mode=nisa.dge_mode.hwdge),
    error=ParameterError,
    match="from NeuronCore-v3 on",
    kept=lambda f: f(hbm(4, 6), dge_mode=nisa.dge_mode.swdge),
)
