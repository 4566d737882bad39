"""Constraints of nki.isa: what the Scalar, Vector, GpSimd and Tensor Engines compute."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.walk import hbm, holds, opcodes, placed, psum, refused, run, tile, values
from nkisim.errors import (
    DTypeError,
    MemorySpaceError,
    NkiWarning,
    ParameterError,
    PlacementError,
    ShapeError,
    TileSizeError,
)

ACTIVATIONS = "nisa.activation nisa.activation_reduce"
ADD, MAX, MULTIPLY = nl.add, nl.maximum, nl.multiply


def column(dtype=nl.float32, rows: int = 4):
    """A tile (rows, 1) of ones."""
    return nl.full((rows, 1), 1, dtype)


def same(got, wanted, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(wanted, float), rtol=rtol)


def keeps_type(call):
    """`call(x, **options)` gives x's type, or dtype=."""

    def show(f):
        assert run(lambda: call(f, tile(4, 6, dtype=nl.bfloat16))).dtype == nl.bfloat16
        assert run(lambda: call(f, tile(4, 6, dtype=nl.bfloat16), dtype=nl.float32)).dtype == "f4"

    return show


def promotes(call):
    """`call(a, b, **options)` gives the promoted type of a and b, or dtype=."""

    def show(f):
        def pair():
            return tile(4, 6, dtype=nl.bfloat16), tile(4, 6, dtype=nl.float32)

        assert run(lambda: call(f, *pair())).dtype == np.float32
        assert run(lambda: call(f, *pair(), dtype=nl.bfloat16)).dtype == nl.bfloat16

    return show


def in_fp32(call, wanted):
    """`call(x)` of a bf16 tile: one rounding, at the end, into the type asked for."""

    def show(f):
        x = (1 + np.arange(24).reshape(4, 6) / 128).astype(nl.bfloat16)
        exact = wanted(x.astype(np.float32))

        def on(**options):
            return run(lambda: call(f, nl.load(nl.shared_constant(x)), **options))

        same(on(dtype=nl.float32), exact)
        same(on(dtype=nl.bfloat16), exact.astype(nl.bfloat16))

    return show


# -- activation


def act(f, data=None, op=np.exp, **options):
    """`activation`, or `activation_reduce` with what it needs."""
    data = tile(4, 6) if data is None else data
    if f.__name__ == "activation_reduce":
        options.setdefault("reduce_res", nl.ndarray((data.shape[0], 1), nl.float32))
        options.setdefault("reduce_op", ADD)
    return f(op, data, **options)


refused(
    "nisa.activation",
    "data par dim <=128; SBUF or PSUM in and out",
    broken=lambda f: act(f, hbm(4, 6)),
    error=MemorySpaceError,
    match="HBM is reached by DMA",
    also=(
        (lambda f: act(f, nl.zeros((129, 6), nl.float32)), TileSizeError, "partition axis of 129"),
    ),
    kept=lambda f: (act(f, tile(128, 6)), act(f, psum(4, 6))),
)
refused(
    "nisa.activation",
    "op from tables.activation_functions",
    broken=lambda f: act(f, op=nl.add),
    error=ParameterError,
    match="operator add",
    kept=lambda f: (act(f, op=nl.gelu), act(f, op=np.sqrt), act(f, op=np.copy)),
)
refused(
    "nisa.activation",
    "scale: compile-time scalar or float32 [P,1] vector",
    broken=lambda f: act(f, scale=column(nl.bfloat16)),
    error=DTypeError,
    match="scale tile is float32",
    also=((lambda f: act(f, scale=tile(4, 2)), ShapeError, "shape \\(4, 1\\)"),),
    kept=lambda f: (act(f, scale=2.0), act(f, scale=column())),
)
refused(
    "nisa.activation",
    "bias: [P,1] vector of float32/float16/bfloat16",
    broken=lambda f: act(f, bias=column(np.int8)),
    error=DTypeError,
    match="float32, float16 or bfloat16",
    also=(
        (lambda f: act(f, bias=1.0), ParameterError, "the bias is a tile"),
        (lambda f: act(f, bias=tile(4, 2)), ShapeError, "shape \\(4, 1\\)"),
    ),
    kept=lambda f: (act(f, bias=column()), act(f, bias=column(nl.bfloat16))),
)
holds(
    "nisa.activation",
    "math in float32; in/out dtype casts are free",
    in_fp32(lambda f, x, **o: f(np.exp, x, scale=1.5, **o), lambda x: np.exp(1.5 * x)),
)
refused(
    "nisa.activation",
    "reduce_res shape (P,1)",
    broken=lambda f: act(
        f,
        reduce_op=ADD,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=nl.ndarray((4, 2), nl.float32),
    ),
    error=ShapeError,
    match=r"shape \(4, 1\)",
    kept=lambda f: act(
        f,
        reduce_op=ADD,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=nl.ndarray((4, 1), nl.float32),
    ),
)
refused(
    ACTIVATIONS,
    "NeuronCore-v2: reduce_op only add",
    broken=lambda f: act(f, reduce_op=MAX),
    error=ParameterError,
    match="by addition only",
    kept=lambda f: act(f, reduce_op=np.add),
)


def _accumulators(f):
    cmd = nisa.reduce_cmd

    def body():
        total = nl.ndarray((4, 1), nl.float32)
        f(np.copy, tile(4, 6), reduce_op=ADD, reduce_cmd=cmd.reset_reduce)
        f(np.copy, tile(4, 6), reduce_op=ADD, reduce_cmd=cmd.reduce, reduce_res=total)
        return total

    same(run(body), 2 * values(4, 6).sum(1, keepdims=True))

    def shared():  # with activation_reduce, which resets them
        first, total = nl.ndarray((4, 1), nl.float32), nl.ndarray((4, 1), nl.float32)
        f(np.copy, tile(4, 6), reduce_op=ADD, reduce_cmd=cmd.reset_reduce)
        nisa.activation_reduce(np.copy, tile(4, 6), reduce_op=ADD, reduce_res=first)
        f(np.copy, tile(4, 6), reduce_op=ADD, reduce_cmd=cmd.reduce, reduce_res=total)
        return total

    same(run(shared), 2 * values(4, 6).sum(1, keepdims=True))


holds(
    "nisa.activation",
    "128 accumulator registers, one per partition, shared with activation_reduce; driven by "
    "reduce_cmd {idle,reset,reduce,reset_reduce}",
    _accumulators,
)
refused(
    "nisa.activation",
    "op=reciprocal takes no bias on NeuronCore-v2",
    broken=lambda f: act(f, op=nl.reciprocal, bias=column()),
    error=ParameterError,
    match="reciprocal takes no bias",
    kept=lambda f: act(f, op=nl.reciprocal),
)


def _activated_in_place(f, **options):
    x, bias = placed(4, 4), placed(4, 1, address=64)
    if "bias" in options:
        options["bias"] = bias
    out = placed(4, 4, address=128)
    out[...] = f(np.exp, x, **options)
    return out


refused(
    "nisa.activation",
    "direct-allocated kernels must pass bias",
    broken=_activated_in_place,
    error=PlacementError,
    match="bias",
    kept=lambda f: _activated_in_place(f, bias=True),
)
holds("nisa.activation", "output dtype = data dtype unless dtype=", keeps_type(act))
refused(
    "nisa.activation_reduce",
    "reduce_res is SBUF/PSUM of shape (P,1)",
    broken=lambda f: act(f, reduce_res=hbm(4, 1)),
    error=MemorySpaceError,
    match="HBM is reached by DMA",
    kept=lambda f: (act(f), act(f, reduce_res=nl.ndarray((4, 1), nl.float32, buffer=nl.psum))),
)


def _reduces_all(f):
    def body(**options):
        total = nl.ndarray((4, 1), nl.float32)
        f(np.copy, tile(4, 3, 2), reduce_op=ADD, reduce_res=total, **options)
        return total

    same(run(body), values(4, 3, 2).sum((1, 2))[:, None])


holds("nisa.activation_reduce", "reduces all free axes", _reduces_all)


def _same_instruction(f):
    def by(call, **options):
        return opcodes(
            lambda: call(
                np.exp,
                tile(4, 6),
                reduce_op=ADD,
                reduce_res=nl.ndarray((4, 1), nl.float32),
                **options,
            )
        )

    assert by(f) == by(nisa.activation, reduce_cmd=nisa.reduce_cmd.reset_reduce)


holds(
    "nisa.activation_reduce",
    "legacy; equals activation with reduce_cmd=reset_reduce",
    _same_instruction,
)
holds(
    "nisa.activation_reduce",
    "shares accumulator registers with activation",
    lambda f: _accumulators(nisa.activation),
)

# -- tensor_tensor and tensor_scalar

refused(
    "nisa.tensor_tensor",
    "same partition size and same elements per partition",
    broken=lambda f: f(tile(4, 6), tile(1, 6), ADD),
    error=ShapeError,
    match="same partitions",
    also=((lambda f: f(tile(4, 6), tile(4, 5), ADD), ShapeError, "same elements a partition"),),
    kept=lambda f: f(tile(4, 6), tile(4, 6), ADD),
)
refused(
    "nisa.tensor_tensor",
    "not both inputs in PSUM",
    broken=lambda f: f(psum(4, 6), psum(4, 6), ADD),
    error=MemorySpaceError,
    match="both in PSUM",
    kept=lambda f: f(psum(4, 6), tile(4, 6), ADD),
)
refused(
    "nisa.tensor_tensor",
    "bitvec ops: integer dtypes, no casting",
    broken=lambda f: f(*[tile(4, 6, dtype=np.int32)] * 2, nl.bitwise_and, dtype=nl.float32),
    error=DTypeError,
    match="bit patterns",
    also=((lambda f: f(tile(4, 6), tile(4, 6), nl.bitwise_and), DTypeError, "bit patterns"),),
    kept=lambda f: f(*[tile(4, 6, dtype=np.int32)] * 2, nl.bitwise_and),
)
holds(
    "nisa.tensor_tensor",
    "arithmetic: float32 math then cast",
    in_fp32(lambda f, x, **o: f(x, x, MULTIPLY, **o), lambda x: x * x),
)
refused(
    "nisa.tensor_tensor",
    "power and integer add/multiply/subtract run on GpSimd, which cannot touch PSUM",
    broken=lambda f: f(psum(4, 6), tile(4, 6), nl.power),
    error=MemorySpaceError,
    match="GpSimd Engine cannot access PSUM",
    kept=lambda f: f(tile(4, 6), tile(4, 6), nl.power),
)
holds(
    "nisa.tensor_tensor",
    "output dtype = promoted input dtype unless dtype= is given (see tables.type_promotion)",
    promotes(lambda f, a, b, **o: f(a, b, ADD, **o)),
)
refused(
    "nisa.tensor_scalar",
    "data in SBUF or PSUM",
    broken=lambda f: f(hbm(4, 6), ADD, 1.0),
    error=MemorySpaceError,
    match="HBM is reached by DMA",
    kept=lambda f: (f(tile(4, 6), ADD, 1.0), f(psum(4, 6), ADD, 1.0)),
)
refused(
    "nisa.tensor_scalar",
    "operand0/1: (P,1) SBUF/PSUM tile or compile-time scalar",
    broken=lambda f: f(tile(4, 6), ADD, tile(4, 6)),
    error=ShapeError,
    match=r"shape \(4, 1\)",
    kept=lambda f: (f(tile(4, 6), ADD, column()), f(tile(4, 6), ADD, psum(4, 1))),
)
refused(
    "nisa.tensor_scalar",
    "op0 and op1 both bitvec or both arithmetic",
    broken=lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, op1=nl.add, operand1=1),
    error=ParameterError,
    match="both operators",
    kept=lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, op1=nl.bitwise_or, operand1=1),
)
refused(
    "nisa.tensor_scalar",
    "bitvec: Vector engine only, integer dtypes, no casting",
    broken=lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, engine=nisa.gpsimd_engine),
    error=ParameterError,
    match="bit operations run on the Vector Engine",
    also=(
        (lambda f: f(tile(4, 6), nl.bitwise_and, 3), DTypeError, "bit patterns"),
        (
            lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, dtype=nl.float32),
            DTypeError,
            "bit patterns",
        ),
    ),
    kept=lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, engine=nisa.vector_engine),
)
holds(
    "nisa.tensor_scalar",
    "arithmetic: float32 math then cast",
    in_fp32(
        lambda f, x, **o: f(x, MULTIPLY, 1.1, op1=ADD, operand1=0.3, **o),
        lambda x: x * np.float32(1.1) + np.float32(0.3),
    ),
)
refused(
    "nisa.tensor_scalar",
    "Scalar engine on trn2 only: (multiply,add), (multiply,None), (add,None)",
    broken=lambda f: f(tile(4, 6), nl.subtract, 1.0, engine=nisa.scalar_engine),
    error=ParameterError,
    match="multiply then add",
    kept=lambda f: (
        f(tile(4, 6), MULTIPLY, 2.0, op1=ADD, operand1=1.0, engine=nisa.scalar_engine),
        f(tile(4, 6), MULTIPLY, 2.0, engine=nisa.scalar_engine),
        f(tile(4, 6), ADD, 2.0, engine=nisa.scalar_engine),
    ),
    target="trn2",
)
refused(
    "nisa.tensor_scalar",
    "gpsimd only for rsqrt",
    broken=lambda f: f(tile(4, 6), ADD, 1.0, engine=nisa.gpsimd_engine),
    error=ParameterError,
    match="for rsqrt only",
    kept=lambda f: f(tile(4, 6), nl.rsqrt, 0.0, engine=nisa.gpsimd_engine),
)
holds(
    "nisa.tensor_scalar",
    "reverse0/reverse1 swap operand order",
    lambda f: same(
        run(lambda: f(tile(4, 6), nl.subtract, 1.0, True, nl.subtract, 2.0, True)),
        2 - (1 - values(4, 6)),
    ),
)
refused(
    "nisa.tensor_scalar",
    "unused op1/operand1 must be None",
    broken=lambda f: f(tile(4, 6), ADD, 1.0, operand1=2.0),
    error=ParameterError,
    match="both given or both None",
    kept=lambda f: f(tile(4, 6), ADD, 1.0, op1=None, operand1=None),
)


def _stt(f, data=None, other=None, operand0=1.0):
    data = tile(4, 6) if data is None else data
    other = tile(4, 6) if other is None else other
    return f(data=data, op0=MULTIPLY, operand0=operand0, op1=ADD, operand1=other)


refused(
    "nisa.scalar_tensor_tensor",
    "data is 2D, SBUF or PSUM",
    broken=lambda f: _stt(f, tile(4, 3, 2), tile(4, 3, 2)),
    error=ShapeError,
    match="two axes",
    kept=lambda f: (_stt(f), _stt(f, psum(4, 6))),
)
refused(
    "nisa.scalar_tensor_tensor",
    "operand0: (P,1) tile or compile-time scalar",
    broken=lambda f: _stt(f, operand0=tile(4, 2)),
    error=ShapeError,
    match=r"shape \(4, 1\)",
    kept=lambda f: (_stt(f, operand0=2.0), _stt(f, operand0=column())),
)
refused(
    "nisa.scalar_tensor_tensor",
    "operand1: same shape as data",
    broken=lambda f: _stt(f, other=tile(4, 1)),
    error=ShapeError,
    match="same elements a partition",
    kept=_stt,
)
refused(
    "nisa.scalar_tensor_tensor",
    "data and operand1 not both in PSUM",
    broken=lambda f: _stt(f, psum(4, 6), psum(4, 6)),
    error=MemorySpaceError,
    match="both in PSUM",
    kept=lambda f: _stt(f, psum(4, 6)),
)


def _tsr(f, op0=MULTIPLY, reduce_op=ADD, shape=(4, 1), **options):
    res = nl.ndarray(shape, nl.float32)
    return f(data=tile(4, 6), op0=op0, operand0=2.0, reduce_op=reduce_op, reduce_res=res, **options)


refused(
    "nisa.tensor_scalar_reduce",
    "op0 arithmetic only",
    broken=lambda f: _tsr(f, op0=nl.bitwise_and),
    error=ParameterError,
    match="operator bitwise_and",
    kept=_tsr,
)
refused(
    "nisa.tensor_scalar_reduce",
    "reduce_op in {add, subtract, multiply, max, min}",
    broken=lambda f: _tsr(f, reduce_op=nl.logical_and),
    error=ParameterError,
    match="operator logical_and",
    kept=lambda f: [_tsr(f, reduce_op=op) for op in (ADD, nl.subtract, MULTIPLY, np.max, np.min)],
)
refused(
    "nisa.tensor_scalar_reduce",
    "reduce_res SBUF/PSUM of shape (P,1)",
    broken=lambda f: _tsr(f, shape=(4, 2)),
    error=ShapeError,
    match=r"shape \(4, 1\)",
    kept=_tsr,
)
refused(
    "nisa.tensor_scalar_reduce",
    "reverse0 not supported yet",
    broken=lambda f: _tsr(f, reverse0=True),
    error=ParameterError,
    match="does not swap",
    kept=_tsr,
)

# -- reductions, scans, statistics

refused(
    "nisa.tensor_reduce",
    "axis must contain the most-minor free axis and be consecutive, up to 4 free axes, never "
    "axis 0",
    broken=lambda f: f(ADD, tile(4, 3), axis=[0, 1]),
    error=ParameterError,
    match="never axis 0",
    also=(
        (lambda f: f(ADD, tile(4, 3, 2), axis=1), NkiWarning, "the last free axes only"),
        (lambda f: f(ADD, tile(4, 2, 3, 2), axis=[1, 3]), NkiWarning, "the last free axes only"),
    ),
    kept=lambda f: (f(ADD, tile(4, 3, 2), axis=2), f(ADD, tile(4, 2, 2, 2, 2), axis=[1, 2, 3, 4])),
)
refused(
    "nisa.tensor_reduce",
    "bitvec ops: integer in/out, no casting",
    broken=lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1, dtype=nl.float32),
    error=DTypeError,
    match="bit patterns",
    kept=lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1),
)
holds(
    "nisa.tensor_reduce",
    "arithmetic ops: float32 math then cast",
    in_fp32(lambda f, x, **o: f(ADD, x, 1, **o), lambda x: x.sum(1, keepdims=True)),
)
refused(
    "nisa.tensor_reduce",
    "negate only for arithmetic ops",
    broken=lambda f: f(nl.bitwise_or, tile(4, 6, dtype=np.int32), axis=1, negate=True),
    error=ParameterError,
    match="only arithmetic results",
    kept=lambda f: f(ADD, tile(4, 6), axis=1, negate=True),
)
refused(
    "nisa.tensor_reduce",
    "op must be a legal reduction op (tables.alu_operators)",
    broken=lambda f: f(nl.less, tile(4, 6), axis=1),
    error=ParameterError,
    match="operator less",
    kept=lambda f: (f(np.max, tile(4, 6), axis=1), f(nl.logical_or, tile(4, 6), axis=1)),
)
refused(
    "nisa.tensor_partition_reduce",
    "op in {add, max, bitwise_or, bitwise_and}",
    broken=lambda f: f(np.min, tile(4, 6)),
    error=ParameterError,
    match="operator minimum",
    kept=lambda f: (f(np.add, tile(4, 6)), f(nl.bitwise_or, tile(4, 6, dtype=np.int32))),
)


def _scan(f, a=None, b=None, initial=0.0, op0=MULTIPLY, op1=ADD, **options):
    a = tile(4, 6) if a is None else a
    b = tile(4, 6) if b is None else b
    return f(a, b, initial, op0, op1, **options)


refused(
    "nisa.tensor_tensor_scan",
    "same partition size and elements per partition",
    broken=lambda f: _scan(f, b=tile(4, 5)),
    error=ShapeError,
    match="same elements a partition",
    kept=_scan,
)
refused(
    "nisa.tensor_tensor_scan",
    "not both inputs in PSUM",
    broken=lambda f: _scan(f, psum(4, 6), psum(4, 6)),
    error=MemorySpaceError,
    match="both in PSUM",
    kept=lambda f: _scan(f, psum(4, 6)),
)
refused(
    "nisa.tensor_tensor_scan",
    "initial: float32 compile-time scalar or (P,1) tile",
    broken=lambda f: _scan(f, initial=tile(4, 6)),
    error=ShapeError,
    match=r"shape \(4, 1\)",
    kept=lambda f: (_scan(f, initial=1.0), _scan(f, initial=column())),
)
refused(
    "nisa.tensor_tensor_scan",
    "op0/op1 are binary arithmetic ops; reverse0/reverse1 swap operands",
    broken=lambda f: _scan(f, op0=nl.bitwise_and),
    error=ParameterError,
    match="operator bitwise_and",
    also=((lambda f: _scan(f, op1=nl.abs), ParameterError, "operator abs"),),
    kept=lambda f: _scan(f, op1=nl.subtract, reverse1=True),
)


def _scanned(x):
    state, out = np.zeros(x.shape[0], np.float32), np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = state = x[:, i] * state + x[:, i]
    return out


holds(
    "nisa.tensor_tensor_scan",
    "float32 math then cast",
    in_fp32(lambda f, x, **o: f(x, x, 0.0, MULTIPLY, ADD, **o), _scanned),
)
holds(
    "nisa.tensor_tensor_scan",
    "output dtype = promoted input dtype unless dtype= is given (see tables.type_promotion)",
    promotes(lambda f, a, b, **o: _scan(f, a, b, **o)),
)
refused(
    "nisa.bn_stats",
    "free size <=512",
    broken=lambda f: f(tile(4, 513)),
    error=ShapeError,
    match="1 to 512 elements",
    kept=lambda f: f(tile(4, 512)),
)


def _statistics(f):
    x = values(4, 7)
    wanted = [g(p) for p in (x[:, ::2], x[:, 1::2]) for g in (
        lambda p: np.full(4, p.shape[1]), lambda p: p.mean(1), lambda p: p.var(1) * p.shape[1]
    )]  # fmt: skip
    same(run(lambda: f(tile(4, 7))), np.stack(wanted, 1), rtol=1e-5)


holds(
    "nisa.bn_stats",
    "output 6 elements per partition: (count, mean, var*count) for even then odd",
    _statistics,
)
holds(
    "nisa.bn_stats",
    "math in float32; in/out dtype casts are free",
    in_fp32(
        lambda f, x, **o: nl.copy(f(x, **o)[:, 1:2]), lambda x: x[:, ::2].mean(1, keepdims=True)
    ),
)
refused(
    "nisa.bn_stats",
    "mask must not involve the reduced dim (known issue)",
    broken=lambda f: f(tile(4, 6), mask=nl.arange(6)[None, :] < 3),
    error=ParameterError,
    match="a mask on the free axis",
    kept=lambda f: nl.copy(f(tile(4, 6), mask=nl.arange(4)[:, None] < 3)[0:3]),
)
refused(
    "nisa.bn_aggr",
    "elements per partition divisible by 3",
    broken=lambda f: f(tile(4, 7)),
    error=ShapeError,
    match="multiple of 3",
    kept=lambda f: f(tile(4, 6)),
)


def _aggregates(f):
    got = run(lambda: f(nisa.bn_stats(tile(4, 7))))
    same(got, np.stack([values(4, 7).mean(1), values(4, 7).var(1)], 1), rtol=1e-5)


holds("nisa.bn_aggr", "output 2 elements per partition: mean, variance", _aggregates)
holds(
    "nisa.bn_aggr",
    "math in float32; in/out dtype casts are free",
    in_fp32(
        lambda f, x, **o: nl.copy(f(nisa.bn_stats(x, dtype=nl.float32), **o)[:, 0:1]),
        lambda x: x.mean(1, keepdims=True),
    ),
)

# -- dropout

refused(
    "nisa.dropout",
    "prob: scalar or (P,1) tile; 1.0 drops all, 0.0 keeps all",
    broken=lambda f: f(tile(4, 6), 1.5),
    error=ParameterError,
    match="between 0 and 1",
    also=((lambda f: f(tile(4, 6), tile(4, 2)), ShapeError, "shape \\(4, 1\\)"),),
    kept=lambda f: (f(tile(4, 6), 0.0), f(tile(4, 6), 1.0), f(tile(4, 6), column())),
)
refused(
    "nisa.dropout",
    "integer data: prob float32 and output dtype = data dtype",
    broken=lambda f: f(tile(4, 6, dtype=np.int32), column(nl.bfloat16)),
    error=DTypeError,
    match="float32 for integer data",
    also=(
        (
            lambda f: f(tile(4, 6, dtype=np.int32), 0.5, dtype=nl.float32),
            DTypeError,
            "the data's type",
        ),
    ),
    kept=lambda f: f(tile(4, 6, dtype=np.int32), column()),
)
refused(
    "nisa.dropout",
    "float data: prob any float dtype, output any dtype",
    broken=lambda f: f(tile(4, 6), column(np.int32)),
    error=DTypeError,
    match="floating point",
    kept=lambda f: f(tile(4, 6), column(nl.bfloat16), dtype=np.int32),
)
holds(
    "nisa.dropout",
    "output dtype = input dtype unless dtype= is given",
    keeps_type(lambda f, x, **o: f(x, 0.5, **o)),
)

# -- the Tensor Engine


def _product(f, a=None, b=None, **options):
    return f(tile(8, 4) if a is None else a, tile(8, 6) if b is None else b, **options)


refused(
    "nisa.nc_matmul",
    "both inputs in SBUF, output in PSUM",
    broken=lambda f: _product(f, psum(8, 4)),
    error=MemorySpaceError,
    match="reads SBUF and writes PSUM",
    also=((lambda f: _product(f, None, psum(8, 6)), MemorySpaceError, "reads SBUF"),),
    kept=_product,
)
refused(
    "nisa.nc_matmul",
    "contraction (par dim) equal on both and <=128",
    broken=lambda f: _product(f, tile(7, 4)),
    error=ShapeError,
    match="contraction of 7 with 8",
    also=(
        (
            lambda f: _product(f, nl.zeros((129, 4), nl.float32)),
            TileSizeError,
            "partition axis of 129",
        ),
    ),
    kept=lambda f: _product(f, tile(128, 4), tile(128, 6)),
)
refused(
    "nisa.nc_matmul",
    "stationary free size <=128, moving free size <=512",
    broken=lambda f: _product(f, tile(8, 129)),
    error=TileSizeError,
    match="at most 128 elements",
    also=((lambda f: _product(f, None, tile(8, 513)), TileSizeError, "at most 512 elements"),),
    kept=lambda f: _product(f, tile(8, 128), tile(8, 512)),
)
refused(
    "nisa.nc_matmul",
    "input dtypes: float8_e4m3/float8_e5m2/bfloat16/float16/tfloat32/float32",
    broken=lambda f: _product(f, tile(8, 4, dtype=np.int8)),
    error=DTypeError,
    match="the Tensor Engine multiplies",
    kept=lambda f: [
        _product(f, *(tile(8, 4, dtype=t),) * 2)
        for t in (nl.float8_e4m3, nl.float8_e5m2, nl.bfloat16, nl.float16, nl.float32)
    ],
)


def _fp32_sums(f):
    a, b = tile, tile
    got = run(lambda: _product(f, a(8, 4, dtype=nl.bfloat16), b(8, 6, dtype=nl.bfloat16)))
    assert got.dtype == np.float32
    same(got, values(8, 4).T @ values(8, 6))


holds("nisa.nc_matmul", "accumulation and output are float32", _fp32_sums)
holds(
    "nisa.nc_matmul",
    "output shape (stationary free, moving free)",
    lambda f: same(run(lambda: _product(f)), values(8, 4).T @ values(8, 6)),
)


def _in_steps(f):
    def body():
        total = nl.zeros((4, 6), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(3):
            total += _product(f)
        return nl.copy(total)

    same(run(body), 3 * values(8, 4).T @ values(8, 6))


holds("nisa.nc_matmul", "K>128: accumulate several calls into the same PSUM tile", _in_steps)


def _hints(f, **options):
    same(run(lambda: _product(f, **options)), run(lambda: _product(f)))


holds(
    "nisa.nc_matmul",
    "onezero hints only matter for float32 operands and can double throughput",
    lambda f: _hints(f, is_stationary_onezero=True, is_moving_onezero=True),
)
refused(
    "nisa.nc_matmul",
    "PE tiling needs both tile_position and tile_size, integers or affine exprs, multiples of 32",
    broken=lambda f: _product(f, tile_position=(0, 0), tile_size=(60, 64)),
    error=ParameterError,
    match="multiples of 32",
    also=(
        (lambda f: _product(f, tile_position=(0, 0)), ParameterError, "one without the other"),
        (
            lambda f: _product(f, tile_position=(0.0, 0), tile_size=(64, 64)),
            ParameterError,
            "integers",
        ),
    ),
    kept=lambda f: _product(f, tile_position=(0, 0), tile_size=(64, 64)),
)
refused(
    "nisa.nc_matmul",
    "tile_size >= accessed stationary tile",
    broken=lambda f: _product(f, tile(8, 65), tile_position=(0, 0), tile_size=(64, 64)),
    error=ParameterError,
    match="smaller than the stationary tile",
    kept=lambda f: _product(f, tile(8, 64), tile_position=(0, 0), tile_size=(64, 64)),
)
refused(
    "nisa.nc_matmul",
    "on NeuronCore-v2 the tile_size rows and columns cannot be 32",
    broken=lambda f: _product(f, tile_position=(0, 0), tile_size=(32, 64)),
    error=ParameterError,
    match="neither size is 32",
    kept=lambda f: _product(f, tile_position=(0, 0), tile_size=(64, 64)),
)


def _transposes(f):
    eye = nl.load(nl.shared_constant(np.identity(8, np.float32)))
    return f(tile(8, 4), eye, is_transpose=True)


holds(
    "nisa.nc_matmul",
    "is_transpose hints that moving is an identity matrix",
    lambda f: same(run(lambda: _transposes(f)), values(8, 4).T),
)


def _masked_product(f):
    got = run(lambda: nl.copy(_product(f, mask=nl.arange(8)[:, None] < 5)))
    same(got, values(8, 4)[:5].T @ values(8, 6)[:5])


holds("nisa.nc_matmul", "masking uses per-operand mask expressions", _masked_product)


refused(
    "nisa.nc_transpose",
    "Tensor: input <= (128,128), SBUF in, PSUM out",
    broken=lambda f: f(psum(4, 6), engine=nisa.tensor_engine),
    error=MemorySpaceError,
    match="reads SBUF and writes PSUM",
    also=(
        (lambda f: f(tile(4, 129), engine=nisa.tensor_engine), TileSizeError, "at most 128 by 128"),
    ),
    kept=lambda f: f(tile(128, 128), engine=nisa.tensor_engine),
)
refused(
    "nisa.nc_transpose",
    "Vector: input <= (32,32), SBUF or PSUM on either side",
    broken=lambda f: f(tile(4, 33), engine=nisa.vector_engine),
    error=TileSizeError,
    match="at most 32 by 32",
    kept=lambda f: (
        f(tile(32, 32), engine=nisa.vector_engine),
        f(psum(4, 6), engine=nisa.vector_engine),
    ),
)
holds(
    "nisa.nc_transpose",
    "several free axes are collapsed into one",
    lambda f: same(run(lambda: f(tile(4, 3, 2))), values(4, 3, 2).reshape(4, 6).T),
)


def _spreads(f):
    x = values(4, 40)
    x[1, 5] = np.inf

    def on(engine, target=None):
        return run(lambda: f(nl.load(nl.shared_constant(x)), engine=engine), target=target)

    got = on(nisa.tensor_engine)
    assert np.isinf(got[5, 1])
    assert np.isnan(got[5, [0, 2, 3]]).all()  # infinity times zero
    same(np.delete(got, 5, 0), np.delete(x.T, 5, 0))
    same(on(nisa.tensor_engine, "trn2"), x.T)


holds(
    "nisa.nc_transpose",
    "Tensor path multiplies by identity: not bit exact for NaN/Inf on NeuronCore-v2",
    _spreads,
)
holds(
    "nisa.nc_transpose",
    "a different dtype adds a cast instruction",
    lambda f: _casts(f),
)


def _casts(f):
    assert opcodes(lambda: f(tile(4, 6)))[1:] == ["nc_transpose"]
    assert opcodes(lambda: f(tile(4, 6), dtype=nl.bfloat16))[1:] == ["nc_transpose", "tensor_copy"]


def _transposed_in_place(f, n, engine):
    x = placed(n, n)
    memory = ncc.psum.mod_alloc(base_bank=0)
    if engine is nisa.vector_engine:
        memory = ncc.sbuf.mod_alloc(base_addr=4096)
    out = nl.ndarray((n, n), nl.float32, buffer=memory)
    out[...] = f(x, engine=engine)
    if out.buffer.space is nl.sbuf:
        return out
    back = nl.ndarray((n, n), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=8192))
    back[...] = nisa.tensor_copy(out)
    return back


refused(
    "nisa.nc_transpose",
    "Tensor path not allowed in direct-allocated kernels",
    broken=lambda f: _transposed_in_place(f, 64, nisa.tensor_engine),
    error=PlacementError,
    match="transposes on the Tensor Engine",
    kept=lambda f: _transposed_in_place(f, 32, nisa.vector_engine),
)
