"""Constraints of nki.isa: activations, tensor_tensor and tensor_scalar."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.isa_common import (
    ADD,
    MAX,
    MULTIPLY,
    column,
    in_fp32,
    keeps_type,
    promotes,
    same,
)
from constraints.neuronxcc.walk import (
    hbm,
    holds,
    opcodes,
    placed,
    psum,
    refused,
    run,
    tile,
    values,
)
from nkisim.errors import (
    DTypeError,
    MemorySpaceError,
    ParameterError,
    PlacementError,
    ShapeError,
    TileSizeError,
)

# fmt: off

ACTIVATIONS = "nisa.activation nisa.activation_reduce"

# -- activation

def act(f, data=None, op=np.exp, **options):
    """`activation`, or `activation_reduce` with what it needs."""
    data = tile(4, 6) if data is None else data
    if f.__name__ == "activation_reduce":
        options.setdefault("reduce_res", nl.ndarray((data.shape[0], 1), nl.float32))
        options.setdefault("reduce_op", ADD)
    return f(op, data, **options)

refused("nisa.activation", "data par dim <=128; SBUF or PSUM in and out",
    (lambda f: act(f, hbm(4, 6)), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: act(f, nl.load(hbm(4, 6)))),
    (lambda f: act(f, nl.zeros((129, 6), nl.float32)), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [act(f, nl.zeros((n, 6), nl.float32)) for n in (128, 1)]),
    kept=lambda f: (act(f, tile(128, 6)), act(f, psum(4, 6))))
refused("nisa.activation", "op from tables.activation_functions",
    (lambda f: act(f, op=nl.add), ParameterError, "operator add",
     "pass one of these, as an nki.language or NumPy function", lambda f: act(f, op=nl.gelu)),
    kept=lambda f: (act(f, op=nl.gelu), act(f, op=np.sqrt), act(f, op=np.copy)))
refused("nisa.activation", "scale: compile-time scalar or float32 [P,1] vector",
    (lambda f: act(f, scale=column(nl.bfloat16)), DTypeError, "scale tile is float32",
     "convert it: nl.copy(scale, dtype=nl.float32)",
     lambda f: act(f, scale=nl.copy(column(nl.bfloat16), dtype=nl.float32))),
    (lambda f: act(f, scale=tile(4, 2)), ShapeError, "shape \\(4, 1\\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: act(f, scale=tile(4, 2)[:, 0])),
    kept=lambda f: (act(f, scale=2.0), act(f, scale=column())))
refused("nisa.activation", "bias: [P,1] vector of float32/float16/bfloat16",
    (lambda f: act(f, bias=column(np.int8)), DTypeError, "float32, float16 or bfloat16",
     "convert it: nl.copy(bias, dtype=nl.float32)",
     lambda f: act(f, bias=nl.copy(column(np.int8), dtype=nl.float32))),
    (lambda f: act(f, bias=1.0), ParameterError, "the bias is a tile",
     "make one: nl.full((partitions, 1), value,",
     lambda f: act(f, bias=nl.full((4, 1), 1.0, dtype=nl.float32))),
    (lambda f: act(f, bias=tile(4, 2)), ShapeError, "shape \\(4, 1\\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: act(f, bias=tile(4, 2)[:, 0:1])),
    kept=lambda f: (act(f, bias=column()), act(f, bias=column(nl.bfloat16))))
holds("nisa.activation", "math in float32; in/out dtype casts are free",
    in_fp32(lambda f, x, **o: f(np.exp, x, scale=1.5, **o), lambda x: np.exp(1.5 * x)))
refused("nisa.activation", "reduce_res shape (P,1)",
    (lambda f: act(f, reduce_op=ADD, reduce_cmd=nisa.reduce_cmd.reset_reduce,
         reduce_res=nl.ndarray((4, 2), nl.float32)), ShapeError, r"shape \(4, 1\)",
     "declare nl.ndarray((4, 1), dtype=nl.float32)",
     lambda f: act(f, reduce_op=ADD, reduce_cmd=nisa.reduce_cmd.reset_reduce,
         reduce_res=nl.ndarray((4, 1), dtype=nl.float32))),
    kept=lambda f: act(f, reduce_op=ADD, reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=nl.ndarray((4, 1), nl.float32)))
refused(ACTIVATIONS, "NeuronCore-v2: reduce_op only add",
    (lambda f: act(f, reduce_op=MAX), ParameterError, "by addition only",
     "pass reduce_op=nl.add, or reduce with nisa.tensor_reduce",
     lambda f: (act(f, reduce_op=nl.add), nisa.tensor_reduce(MAX, act(f), axis=1))),
    kept=lambda f: act(f, reduce_op=np.add))

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

holds("nisa.activation",
    "128 accumulator registers, one per partition, shared with activation_reduce; driven by "
    "reduce_cmd {idle,reset,reduce,reset_reduce}", _accumulators)
refused("nisa.activation", "op=reciprocal takes no bias on NeuronCore-v2",
    (lambda f: act(f, op=nl.reciprocal, bias=column()), ParameterError, "reciprocal takes no bias",
     "add first with nisa.tensor_scalar, or use nisa.reciprocal",
     lambda f: (act(f, nisa.tensor_scalar(tile(4, 6), ADD, column()), op=nl.reciprocal),
         nisa.reciprocal(nl.add(tile(4, 6), column())))),
    kept=lambda f: act(f, op=nl.reciprocal))

def _activated_in_place(f, **options):
    x, bias = placed(4, 4), placed(4, 1, address=64)
    if "bias" in options:
        options["bias"] = bias
    out = placed(4, 4, address=128)
    out[...] = f(np.exp, x, **options)
    return out

refused("nisa.activation", "direct-allocated kernels must pass bias",
    (_activated_in_place, PlacementError, "bias",
     "use nisa.activation(..., bias=tile), with a (partitions,",
     lambda f: _activated_in_place(f, bias=True)))
holds("nisa.activation", "output dtype = data dtype unless dtype=", keeps_type(act))

def _reduced_and_stored(f):
    total = nl.ndarray((4, 1), dtype=nl.float32)
    act(f, reduce_res=total)
    nl.store(nl.ndarray((4, 1), nl.float32, buffer=nl.private_hbm), total)

refused("nisa.activation_reduce", "reduce_res is SBUF/PSUM of shape (P,1)",
    (lambda f: act(f, reduce_res=hbm(4, 1)), MemorySpaceError, "HBM is reached by DMA",
     "declare nl.ndarray((4, 1), dtype=nl.float32), and", _reduced_and_stored),
    kept=lambda f: (act(f), act(f, reduce_res=nl.ndarray((4, 1), nl.float32, buffer=nl.psum))))

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

holds("nisa.activation_reduce", "legacy; equals activation with reduce_cmd=reset_reduce",
    _same_instruction)
holds("nisa.activation_reduce", "shares accumulator registers with activation",
    lambda f: _accumulators(nisa.activation))

# -- tensor_tensor and tensor_scalar

refused("nisa.tensor_tensor", "same partition size and same elements per partition",
    (lambda f: f(tile(4, 6), tile(1, 6), ADD), ShapeError, "same partitions",
     "slice both alike, or spread one over the partitions or the",
     lambda f: (f(tile(4, 6), tile(1, 6).broadcast_to((4, 6)), ADD),
         f(tile(4, 6)[0:1], tile(1, 6), ADD))),
    (lambda f: f(tile(4, 6), tile(4, 5), ADD), ShapeError, "same elements a partition",
     "slice both alike, or spread one over the partitions or the",
     lambda f: f(tile(4, 6)[:, 0:5], tile(4, 5), ADD)),
    kept=lambda f: f(tile(4, 6), tile(4, 6), ADD))
refused("nisa.tensor_tensor", "not both inputs in PSUM",
    (lambda f: f(psum(4, 6), psum(4, 6), ADD), MemorySpaceError, "both in PSUM",
     "copy one into SBUF first, with nisa.tensor_copy",
     lambda f: f(nisa.tensor_copy(psum(4, 6)), psum(4, 6), ADD)),
    kept=lambda f: f(psum(4, 6), tile(4, 6), ADD))
refused("nisa.tensor_tensor", "bitvec ops: integer dtypes, no casting",
    (lambda f: f(*[tile(4, 6, dtype=np.int32)] * 2, nl.bitwise_and, dtype=nl.float32), DTypeError,
     "bit patterns", "convert the tile to an integer type, or pass an integer",
     lambda f: f(*[tile(4, 6, dtype=np.int32)] * 2, nl.bitwise_and, dtype=np.int32)),
    (lambda f: f(tile(4, 6), tile(4, 6), nl.bitwise_and), DTypeError, "bit patterns",
     "convert the tile to an integer type, or pass an integer",
     lambda f: f(*[nl.copy(tile(4, 6), dtype=np.int32)] * 2, nl.bitwise_and)),
    kept=lambda f: f(*[tile(4, 6, dtype=np.int32)] * 2, nl.bitwise_and))
holds("nisa.tensor_tensor", "arithmetic: float32 math then cast",
    in_fp32(lambda f, x, **o: f(x, x, MULTIPLY, **o), lambda x: x * x))
refused("nisa.tensor_tensor",
    "power and integer add/multiply/subtract run on GpSimd, which cannot touch PSUM",
    (lambda f: f(psum(4, 6), tile(4, 6), nl.power), MemorySpaceError,
     "GpSimd Engine cannot access PSUM", "copy the tile into SBUF first, with nl.copy",
     lambda f: f(nl.copy(psum(4, 6)), tile(4, 6), nl.power)),
    kept=lambda f: f(tile(4, 6), tile(4, 6), nl.power))
holds("nisa.tensor_tensor",
    "output dtype = promoted input dtype unless dtype= is given (see tables.type_promotion)",
    promotes(lambda f, a, b, **o: f(a, b, ADD, **o)))
refused("nisa.tensor_scalar", "data in SBUF or PSUM",
    (lambda f: f(hbm(4, 6), ADD, 1.0), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: f(nl.load(hbm(4, 6)), ADD, 1.0)),
    kept=lambda f: (f(tile(4, 6), ADD, 1.0), f(psum(4, 6), ADD, 1.0)))
refused("nisa.tensor_scalar", "operand0/1: (P,1) SBUF/PSUM tile or compile-time scalar",
    (lambda f: f(tile(4, 6), ADD, tile(4, 6)), ShapeError, r"shape \(4, 1\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: (f(tile(4, 6), ADD, tile(4, 6)[:, 0]),
         nisa.tensor_tensor(tile(4, 6), tile(4, 6), ADD))),
    kept=lambda f: (f(tile(4, 6), ADD, column()), f(tile(4, 6), ADD, psum(4, 1))))
refused("nisa.tensor_scalar", "op0 and op1 both bitvec or both arithmetic",
    (lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, op1=nl.add, operand1=1),
     ParameterError, "both operators", "use two instructions",
     lambda f: f(f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3), nl.add, 1)),
    kept=lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, op1=nl.bitwise_or, operand1=1))
refused("nisa.tensor_scalar", "bitvec: Vector engine only, integer dtypes, no casting",
    (lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, engine=nisa.gpsimd_engine),
     ParameterError, "bit operations run on the Vector Engine", "drop engine=",
     lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3)),
    (lambda f: f(tile(4, 6), nl.bitwise_and, 3), DTypeError, "bit patterns",
     "convert the tile to an integer type, or pass an integer",
     lambda f: f(nl.copy(tile(4, 6), dtype=np.int32), nl.bitwise_and, 3)),
    (lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, dtype=nl.float32), DTypeError,
     "bit patterns", "convert the tile to an integer type, or pass an integer",
     lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, dtype=np.int32)),
    kept=lambda f: f(tile(4, 6, dtype=np.int32), nl.bitwise_and, 3, engine=nisa.vector_engine))
holds("nisa.tensor_scalar", "arithmetic: float32 math then cast",
    in_fp32(lambda f, x, **o: f(x, MULTIPLY, 1.1, op1=ADD, operand1=0.3, **o),
        lambda x: x * np.float32(1.1) + np.float32(0.3)))
refused("nisa.tensor_scalar",
    "Scalar engine on trn2 only: (multiply,add), (multiply,None), (add,None)",
    (lambda f: f(tile(4, 6), nl.subtract, 1.0, engine=nisa.scalar_engine), ParameterError,
     "multiply then add", "drop engine=", lambda f: f(tile(4, 6), nl.subtract, 1.0)),
    kept=lambda f: (f(tile(4, 6), MULTIPLY, 2.0, op1=ADD, operand1=1.0, engine=nisa.scalar_engine),
        f(tile(4, 6), MULTIPLY, 2.0, engine=nisa.scalar_engine),
        f(tile(4, 6), ADD, 2.0, engine=nisa.scalar_engine)), target="trn2")
refused("nisa.tensor_scalar", "gpsimd only for rsqrt",
    (lambda f: f(tile(4, 6), ADD, 1.0, engine=nisa.gpsimd_engine), ParameterError, "for rsqrt only",
     "drop engine=", lambda f: f(tile(4, 6), ADD, 1.0)),
    kept=lambda f: f(tile(4, 6), nl.rsqrt, 0.0, engine=nisa.gpsimd_engine))
holds("nisa.tensor_scalar", "reverse0/reverse1 swap operand order",
    lambda f: same(run(lambda: f(tile(4, 6), nl.subtract, 1.0, True, nl.subtract, 2.0, True)),
        2 - (1 - values(4, 6))))
refused("nisa.tensor_scalar", "unused op1/operand1 must be None",
    (lambda f: f(tile(4, 6), ADD, 1.0, operand1=2.0), ParameterError, "both given or both None",
     "pass op1, e.g. op1=nl.add, or drop operand1",
     lambda f: (f(tile(4, 6), ADD, 1.0, op1=nl.add, operand1=2.0), f(tile(4, 6), ADD, 1.0))),
    kept=lambda f: f(tile(4, 6), ADD, 1.0, op1=None, operand1=None))

def _stt(f, data=None, other=None, operand0=1.0):
    data = tile(4, 6) if data is None else data
    other = tile(4, 6) if other is None else other
    return f(data=data, op0=MULTIPLY, operand0=operand0, op1=ADD, operand1=other)

refused("nisa.scalar_tensor_tensor", "data is 2D, SBUF or PSUM",
    (lambda f: _stt(f, tile(4, 3, 2), tile(4, 3, 2)), ShapeError, "two axes",
     "index the tile to two axes", lambda f: _stt(f, *[tile(4, 3, 2)[:, :, 0]] * 2)),
    kept=lambda f: (_stt(f), _stt(f, psum(4, 6))))
refused("nisa.scalar_tensor_tensor", "operand0: (P,1) tile or compile-time scalar",
    (lambda f: _stt(f, operand0=tile(4, 2)), ShapeError, r"shape \(4, 1\)",
     "index one column of the tile, or use nisa.tensor_tensor",
     lambda f: (_stt(f, operand0=tile(4, 2)[:, 0]),
         nisa.tensor_tensor(tile(4, 2), tile(4, 2), ADD))),
    kept=lambda f: (_stt(f, operand0=2.0), _stt(f, operand0=column())))
refused("nisa.scalar_tensor_tensor", "operand1: same shape as data",
    (lambda f: _stt(f, other=tile(4, 1)), ShapeError, "same elements a partition",
     "slice both alike, or spread one over the partitions or the",
     lambda f: nisa.tensor_scalar(tile(4, 6), MULTIPLY, 1.0, op1=ADD, operand1=tile(4, 1))),
    kept=_stt)
refused("nisa.scalar_tensor_tensor", "data and operand1 not both in PSUM",
    (lambda f: _stt(f, psum(4, 6), psum(4, 6)), MemorySpaceError, "both in PSUM",
     "copy one into SBUF first, with nisa.tensor_copy",
     lambda f: _stt(f, nisa.tensor_copy(psum(4, 6)), psum(4, 6))),
    kept=lambda f: _stt(f, psum(4, 6)))

def _tsr(f, op0=MULTIPLY, reduce_op=ADD, shape=(4, 1), **options):
    res = nl.ndarray(shape, nl.float32)
    return f(data=tile(4, 6), op0=op0, operand0=2.0, reduce_op=reduce_op, reduce_res=res, **options)

refused("nisa.tensor_scalar_reduce", "op0 arithmetic only",
    (lambda f: _tsr(f, op0=nl.bitwise_and), ParameterError, "operator bitwise_and",
     "pass one of these, as an nki.language or NumPy function", lambda f: _tsr(f, op0=nl.subtract)),
    kept=_tsr)
refused("nisa.tensor_scalar_reduce", "reduce_op in {add, subtract, multiply, max, min}",
    (lambda f: _tsr(f, reduce_op=nl.logical_and), ParameterError, "operator logical_and",
     "pass one of these, as an nki.language or NumPy function",
     lambda f: _tsr(f, reduce_op=nl.maximum)),
    kept=lambda f: [_tsr(f, reduce_op=op) for op in (ADD, nl.subtract, MULTIPLY, np.max, np.min)])
refused("nisa.tensor_scalar_reduce", "reduce_res SBUF/PSUM of shape (P,1)",
    (lambda f: _tsr(f, shape=(4, 2)), ShapeError, r"shape \(4, 1\)",
     "declare nl.ndarray((4, 1), dtype=nl.float32)", _tsr))
refused("nisa.tensor_scalar_reduce", "reverse0 not supported yet",
    (lambda f: _tsr(f, reverse0=True), ParameterError, "does not swap",
     "use nisa.tensor_scalar with reverse0 and then",
     lambda f: nisa.tensor_reduce(ADD, nisa.tensor_scalar(tile(4, 6), MULTIPLY, 2.0, reverse0=True),
         axis=1)),
    kept=_tsr)
