"""Constraints of nki.language: elementwise mathematics, reductions, matmul, normalisation."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.walk import (
    cut,
    exchanged,
    exempt,
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
    IndexingError,
    MemorySpaceError,
    NkiWarning,
    ParameterError,
    PlacementError,
    ShapeError,
    TileSizeError,
)

# fmt: off

FLOAT_UNARY = """
nl.abs nl.arctan nl.ceil nl.cos nl.erf nl.erf_dx nl.exp nl.floor nl.gelu nl.gelu_apprx_sigmoid
nl.gelu_apprx_tanh nl.gelu_dx nl.log nl.mish nl.negative nl.reciprocal nl.relu nl.rsqrt nl.sigmoid
nl.sign nl.silu nl.silu_dx nl.sin nl.softplus nl.sqrt nl.square nl.tan nl.tanh nl.trunc
nisa.reciprocal
"""
UNARY = FLOAT_UNARY + " nl.invert"
BITS = """
nl.bitwise_and nl.bitwise_or nl.bitwise_xor nl.left_shift nl.right_shift
"""
ARITHMETIC = """
nl.add nl.divide nl.fmod nl.maximum nl.minimum nl.mod nl.multiply nl.power nl.subtract
"""
TRUTH = """
nl.equal nl.greater nl.greater_equal nl.less nl.less_equal nl.logical_and nl.logical_or
nl.logical_xor nl.not_equal
"""
BINARY = BITS + ARITHMETIC + TRUTH
REDUCTIONS = "nl.max nl.mean nl.min nl.prod nl.sum nl.var"
_INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert"}

def kind(f) -> type:
    """A type that the function takes."""
    return np.int32 if f.__name__ in _INTEGERS else np.float32

# -- elementwise

refused(UNARY, "operands are on-chip tiles (SBUF or PSUM), partition dim first and <=128",
    (lambda f: f(hbm(4, 4, dtype=kind(f))), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: f(nl.load(hbm(4, 4, dtype=kind(f))))),
    (lambda f: f(nl.zeros((2, nl.par_dim(4), 4), kind(f))), IndexingError, "walks partitions",
     "index so that the partition axis comes first, e.g. one",
     lambda f: [f(nl.zeros((2, nl.par_dim(4), 4), kind(f))[block]) for block in (0, 1)]),
    (lambda f: f(nl.zeros((129, 4), kind(f))), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [f(nl.zeros((n, 4), kind(f))) for n in (128, 1)]),
    kept=lambda f: (f(tile(128, 4, dtype=kind(f))), f(psum(4, 4, dtype=kind(f)))))

def _keeps_its_type(f):
    wide, narrow = (np.int32, np.int16) if kind(f) is np.int32 else (nl.float32, nl.bfloat16)
    assert run(lambda: f(tile(4, 4, dtype=narrow))).dtype == narrow
    assert run(lambda: f(tile(4, 4, dtype=narrow), dtype=wide)).dtype == wide
    if kind(f) is np.float32:  # of integers, too
        assert run(lambda: f(tile(4, 4, dtype=np.int16))).dtype == np.int16

holds([*UNARY.split(), "nl.copy"], "output dtype = input dtype unless dtype= is given",
    _keeps_its_type)
refused(BINARY, "each operand is a tile or a scalar",
    (lambda f: f(tile(4, 4, dtype=kind(f)), values(4, 4, dtype=kind(f))), DTypeError,
     "neither a tile nor a number", "pass arrays as kernel arguments and nl.load them",
     lambda f: f(*[nl.load(hbm(4, 4, dtype=kind(f)))] * 2)),
    kept=lambda f: (f(tile(4, 4, dtype=kind(f)), 2), f(*[tile(4, 4, dtype=kind(f))] * 2)))
refused(BINARY, "x.shape and y.shape must be numpy-broadcastable; result has the common shape",
    (lambda f: f(tile(4, 4, dtype=kind(f)), tile(4, 3, dtype=kind(f))), ShapeError, "broadcast",
     "give the tiles as many axes, each as long as the other's",
     lambda f: f(tile(4, 4, dtype=kind(f))[:, 0:3], tile(4, 3, dtype=kind(f)))),
    kept=lambda f: f(tile(4, 1, dtype=kind(f)), tile(4, 4, dtype=kind(f))).assert_shape((4, 4)))

exempt("nl.add", "partition-dim broadcast is costlier than free-dim broadcast",
    "a hint about speed; tests/cost has the cost of a broadcast")

def _promotes(f):
    pairs = {
        np.int32: [(np.int8, np.int16, np.int16), (np.int8, np.uint8, np.int16)],
        np.float32: [(nl.bfloat16, nl.float32, nl.float32), (nl.float16, np.int8, nl.float16)],
    }
    for a, b, wanted in pairs[kind(f)]:
        got = run(lambda a=a, b=b: f(tile(4, 4, dtype=a), tile(4, 4, dtype=b)))
        assert got.dtype == wanted
        given = run(lambda a=a, b=b: f(tile(4, 4, dtype=a), tile(4, 4, dtype=b), dtype=np.int8))
        assert given.dtype == np.int8

holds(BITS + ARITHMETIC,
    "output dtype = promoted input dtype unless dtype= is given (see tables.type_promotion)",
    _promotes)

def _is_bool(f):
    operands = (tile, tile) if f.__name__ != "logical_not" else (tile,)
    assert run(lambda: f(*(t(4, 4) for t in operands))).dtype == np.bool_
    assert run(lambda: f(*(t(4, 4) for t in operands), dtype=nl.float32)).dtype == np.float32

holds([*TRUTH.split(), "nl.logical_not"], "default output dtype is bool", _is_bool)
refused([*BITS.split(), "nl.invert"], "operands must be integer typed",
    (lambda f: f(*[tile(4, 4)] * (1 if f.__name__ == "invert" else 2)), DTypeError, "integer types",
     "reinterpret or convert the tile to an integer type first",
     lambda f: [f(*[t] * (1 if f.__name__ == "invert" else 2))
         for t in (tile(4, 4).view(np.int32), nl.copy(tile(4, 4), dtype=np.int32))]),
    kept=lambda f: f(*[tile(4, 4, dtype=np.int32)] * (1 if f.__name__ == "invert" else 2)))
refused("nl.logical_not", "x is a tile",
    (lambda f: f(3.0), ShapeError, "at least one operand is a tile", "compute it in Python",
     lambda f: nl.full((4, 4), not 3.0, nl.uint8)),
    kept=lambda f: f(tile(4, 4)))
exempt("nl.invert", "wrong result for bool input (known issue); use int8",
    "a fault of the SDK: the simulator computes the right result")

def _logical_shift(f):
    x = np.array([[-8, 8, -1]], np.int32)
    got = run(lambda: f(nl.load(nl.shared_constant(x)), 1))
    np.testing.assert_array_equal(got, (x.view(np.uint32) >> 1).view(np.int32))

holds("nl.right_shift",
    "ALU table lists logical shift right; arithmetic shift right is unsupported", _logical_shift)

def _scalar_broadcasts(f):
    reference = {"mod": np.mod, "fmod": np.fmod}[f.__name__]
    got = run(lambda: f(7.0, tile(4, 4)))
    np.testing.assert_array_equal(got, reference(np.float32(7), values(4, 4)))

holds("nl.fmod nl.mod", "x is a tile; a scalar x is broadcast to y", _scalar_broadcasts)
refused("nl.exp",
    "lowers to the same instruction as nisa.activation, so in direct-allocated kernels use "
    "nisa.activation with an explicit bias",
    (lambda f: _into_placed(lambda x, bias: f(x)), PlacementError, "bias",
     "use nisa.activation(..., bias=tile), with a (partitions,",
     lambda f: _into_placed(lambda x, bias: nisa.activation(f, x, bias=bias))))

def _into_placed(compute):
    """`compute(x, bias)` in a kernel that places all of its tiles."""
    x, bias = placed(4, 4), placed(4, 1, address=64)
    out = placed(4, 4, address=128)
    out[...] = compute(x, bias)
    return out

refused("nl.where", "condition and x are tiles, y a tile or number",
    (lambda f: f(tile(4, 4) > 2, 1.0, tile(4, 4)), ParameterError, "only y may be a number",
     "swap the two, and turn the condition around: nl.where(t",
     lambda f: f(tile(4, 4) <= 2, tile(4, 4), 1.0)),
    (lambda f: f(True, tile(4, 4), 1.0), ParameterError, "takes an NKI tensor",
     "pass a kernel argument, an nl.ndarray or a tile",
     lambda f: f(nl.ones((4, 4), nl.uint8), tile(4, 4), 1.0)),
    (lambda f: f(tile(4, 4) > 2, tile(4, 4), values(4, 4)), DTypeError,
     "neither a tile nor a number", "pass arrays as kernel arguments and nl.load them",
     lambda f: f(tile(4, 4) > 2, tile(4, 4), nl.load(hbm(4, 4)))),
    kept=lambda f: (f(tile(4, 4) > 2, tile(4, 4), 1.0), f(tile(4, 4) > 2, *[tile(4, 4)] * 2)))

def _where_promotes(f):
    def chosen(**options):
        x, y = tile(4, 4, dtype=nl.bfloat16), tile(4, 4, dtype=nl.float32)
        return f(tile(4, 4) > 2, x, y, **options)

    assert run(chosen).dtype == np.float32
    assert run(lambda: chosen(dtype=nl.float16)).dtype == np.float16

holds("nl.where",
    "output dtype = promoted input dtype unless dtype= is given (see tables.type_promotion)",
    _where_promotes)

# -- reductions

refused([*REDUCTIONS.split(), "nl.all", "nl.softmax"], "x is a tile",
    (lambda f: f(hbm(4, 4), 1), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: f(nl.load(hbm(4, 4)), 1)),
    kept=lambda f: f(tile(4, 4), 1))
# Other free axes do for sum, max, min and prod, with a warning (AWS's average pooling sums axes
# [2, 4]); the partition axis does for none.
_AXES = (
    "axis: free dims only (never 0) and must be the trailing contiguous dims, "
    "e.g. 1 | [1,2] | [1,2,3] | [1,2,3,4]"
)
_NO_AXES = (
    (
        lambda f: f(tile(4, 3, 2), 0),
        ParameterError,
        "never axis 0",
        "reduce axis 0 by a matmul with ones or by",
        lambda f: f(nl.transpose(tile(4, 3, 2)[:, :, 0]), 1),
    ),
    (
        lambda f: f(tile(4, 3, 2), 3),
        ParameterError,
        "never axis 0",
        "count the axes of the tile, 0 to 2, each once: axis=2",
        lambda f: f(tile(4, 3, 2), 2),
    ),
    (
        lambda f: f(tile(4, 3, 2), [2, 2]),
        ParameterError,
        "never axis 0",
        "count the axes of the tile, 0 to 2, each once: axis=2",
        lambda f: f(tile(4, 3, 2), [1, 2]),
    ),
)
refused("nl.max nl.min nl.prod nl.sum", _AXES,
    (lambda f: f(tile(4, 3, 2), [0, 1]), ParameterError, "never axis 0",
     "reduce axis 0 by a matmul with ones or by",
     lambda f: f(nl.transpose(f(tile(4, 3, 2), [1, 2])), 1)),
    *_NO_AXES,
    (lambda f: f(tile(4, 3, 2), 1), NkiWarning, "the last free axes only",
     "permute the axes in the index, which costs nothing: i0,",
     lambda f: f(exchanged(tile(4, 3, 2)), 2)),
    (lambda f: f(tile(4, 2, 3, 2), [1, 3]), NkiWarning, "the last free axes only",
     "permute the axes in the index, which costs nothing: i0,",
     lambda f: f(exchanged(tile(4, 2, 3, 2)), [2, 3])),
    (lambda f: f(tile(4, 3, 2), 1, keepdims=True), ParameterError, "never axis 0",
     "permute the axes in the index, which costs nothing: i0,",
     lambda f: f(exchanged(tile(4, 3, 2)), axis=[2], keepdims=True)),
    kept=lambda f: (f(tile(4, 3, 2), [1, 2]), f(tile(4, 3, 2), 2)))
refused("nl.all nl.mean nl.softmax nl.var", _AXES,
    (lambda f: f(tile(4, 3, 2), [0, 1]), ParameterError, "never axis 0",
     "reduce axis 0 by a matmul with ones or by",
     lambda f: f(nl.transpose(tile(4, 3, 2)[:, :, 0]), 1)),
    *_NO_AXES,
    (lambda f: f(tile(4, 3, 2), 1), ParameterError, "never axis 0",
     "permute the axes in the index, which costs nothing: i0,",
     lambda f: f(exchanged(tile(4, 3, 2)), axis=[2])),
    kept=lambda f: (f(tile(4, 3, 2), [1, 2]), f(tile(4, 3, 2), 2)))

def _reduces_to_its_type(f):
    assert run(lambda: f(tile(4, 4, dtype=nl.bfloat16), 1)).dtype == nl.bfloat16
    assert run(lambda: f(tile(4, 4, dtype=nl.bfloat16), 1, dtype=nl.float32)).dtype == np.float32

holds(REDUCTIONS, "output dtype = input dtype unless dtype= is given", _reduces_to_its_type)

def _keeps_axes(f):
    assert run(lambda: f(tile(4, 3, 2), [1, 2], keepdims=True)).shape == (4, 1, 1)
    assert run(lambda: f(tile(4, 3, 2), 2)).shape == (4, 3)

holds("nl.max nl.min nl.prod nl.sum", "keepdims keeps reduced axes as size 1", _keeps_axes)
holds("nl.all", "default output dtype bool", lambda f: _all_is_bool(f))

def _all_is_bool(f):
    assert run(lambda: f(tile(4, 4), 1)).dtype == np.bool_

def _mean_of_integers(f):
    got = run(lambda: f(tile(4, 3, dtype=np.int32), 1))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got[:, 0], values(4, 3).mean(1), rtol=1e-6)

holds("nl.mean", "float32 intermediates/result for integer input", _mean_of_integers)
refused("nl.var", "no keepdims parameter",
    (lambda f: f(tile(4, 4), 1, keepdims=True), ParameterError, "keepdims",
     "index the result with None, or use nl.mean, which keeps",
     lambda f: (f(tile(4, 4), 1)[:, None], nl.mean(tile(4, 4), 1, keepdims=True))),
    kept=lambda f: f(tile(4, 4), 1))

def _same_two_types(f):
    more = (2.0, 1, 4) if f.__name__ == "rms_norm" else (1,)
    a = run(lambda: f(tile(4, 4), *more, dtype=nl.bfloat16))
    b = run(lambda: f(tile(4, 4), *more, compute_dtype=nl.bfloat16))
    assert a.dtype == b.dtype == nl.bfloat16
    np.testing.assert_array_equal(a.astype(float), b.astype(float))

holds("nl.softmax",
    "dtype and compute_dtype currently behave identically (both set compute and result dtype)",
    _same_two_types)
holds("nl.rms_norm", "dtype and compute_dtype currently behave identically", _same_two_types)
refused("nl.rms_norm", "n is the element count for the RMS",
    (lambda f: f(tile(4, 4), 1.0, 1, 0), ParameterError, "number of elements",
     "pass the extent of the normalised axis", lambda f: f(tile(4, 4), 1.0, 1, 4)))

def _epsilon(f):
    zeros = np.full((2, 4), 1e-3, np.float32)
    got = run(lambda: f(nl.load(nl.shared_constant(zeros)), 1.0, 1, 4))
    np.testing.assert_allclose(got, zeros / np.sqrt(zeros**2 + 1e-6), rtol=1e-5)

holds("nl.rms_norm", "epsilon default 1e-06", _epsilon)

# -- reductions over several tiles

refused("nl.loop_reduce", "op is a numpy ALU operator",
    (lambda f: _looped(f, np.exp), ParameterError, "operator exp",
     "pass one of these, as an nki.language or NumPy function", lambda f: _looped(f, np.maximum)),
    kept=lambda f: _looped(f, np.add))

def _looped(f, op, index=lambda k: [k]):
    total = nl.zeros((4, 4), nl.float32)
    for k in nl.affine_range(3):
        total = f(tile(4, 4), op, index(k))
    return total

refused("nl.loop_reduce", "loop_indices come from affine_range",
    (lambda f: _looped(f, np.add, lambda k: [k + 7]), ParameterError, "loops around the call",
     "pass the loop variable: for k in nl.affine_range(n): b =",
     lambda f: _looped(f, np.add, lambda k: [k])),
    kept=lambda f: _looped(f, np.add))
exempt("nl.loop_reduce", "for plain SBUF accumulation prefer +=", "advice about style only")

def _on_a_grid(f, op=np.add, axes=0, **options):
    @nki.jit
    def kernel():
        out = nl.ndarray((2, 4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], f(tile(4, 4), op, axes, **options))
        return out

    np.testing.assert_array_equal(kernel[2](), np.stack([2 * values(4, 4)] * 2))

refused("nl.all_reduce", "op is a numpy ALU operator",
    (lambda f: _on_a_grid(f, np.exp), ParameterError, "operator exp",
     "pass one of these, as an nki.language or NumPy function", lambda f: _on_a_grid(f, np.add)),
    kept=_on_a_grid, inside=False)
refused("nl.all_reduce", "program_axes is an axis or tuple of grid axes",
    (lambda f: _on_a_grid(f, axes=(0, 1)), ParameterError, "dimensions of the launch grid",
     "launch with a grid, kernel[n, m](...), and pass 0, 1 or", lambda f: _on_a_grid(f, axes=0)),
    kept=lambda f: _on_a_grid(f, axes=(0,)), inside=False)
exempt("nl.all_reduce", "parallel_reduce=True uses more memory",
    "a hint about memory that changes no result")
refused("nl.all_reduce", "asynchronous=True requires an explicit sync before reading",
    (lambda f: _on_a_grid(f, asynchronous=True), ParameterError, "no function that waits",
     "drop asynchronous=", _on_a_grid),
    kept=lambda f: _on_a_grid(f, asynchronous=False), inside=False)

# -- the Tensor Engine

# AWS's attention samples pass PSUM tiles, which are copied into SBUF first.
refused("nl.matmul", "x: SBUF, par dim <=128, free dim <=128",
    (lambda f: f(tile(4, 129), tile(4, 8), transpose_x=True), TileSizeError,
     "at most 128 elements a partition", "divide it into tiles, with a loop",
     lambda f: [f(part, tile(4, 8), transpose_x=True) for part in cut(tile(4, 129), 128)]),
    (lambda f: f(hbm(4, 8), tile(4, 8), transpose_x=True), MemorySpaceError,
     "HBM is reached by DMA", "nl.load the tensor into SBUF first",
     lambda f: f(nl.load(hbm(4, 8)), tile(4, 8), transpose_x=True)),
    kept=lambda f: f(tile(4, 128), tile(4, 8), transpose_x=True))
refused("nl.matmul", "y: SBUF, par dim <=128, free dim <=512",
    (lambda f: f(tile(4, 8), tile(4, 513), transpose_x=True), TileSizeError,
     "at most 512 elements a partition", "divide it into tiles, with a loop",
     lambda f: [f(tile(4, 8), part, transpose_x=True) for part in cut(tile(4, 513), 512)]),
    (lambda f: f(tile(4, 8), hbm(4, 8), transpose_x=True), MemorySpaceError,
     "HBM is reached by DMA", "nl.load the tensor into SBUF first",
     lambda f: f(tile(4, 8), nl.load(hbm(4, 8)), transpose_x=True)),
    kept=lambda f: f(tile(4, 8), tile(4, 512), transpose_x=True))
refused("nl.matmul", "contraction sizes must agree",
    (lambda f: f(tile(4, 8), tile(7, 8)), ShapeError, "contraction of 8 with 7",
     "nl.transpose the operand whose contraction axis is the",
     lambda f: (f(tile(4, 8), nl.transpose(tile(7, 8))), f(tile(4, 8)[:, 0:7], tile(7, 8)))),
    kept=lambda f: f(tile(4, 8), tile(8, 8)))

def _lowers_to_products(f):
    assert "nc_transpose" in opcodes(lambda: f(tile(4, 8), tile(8, 8)))
    straight = opcodes(lambda: f(tile(8, 4), tile(8, 8), transpose_x=True))
    assert straight == ["load", "load", "nc_matmul"]

holds("nl.matmul", "lowers to nc_matmul; without transpose_x an extra transpose of x is inserted",
    _lowers_to_products)

def _in_psum(f):
    seen = []
    run(lambda: seen.append(f(tile(4, 8), tile(8, 8)).buffer.space) or (seen and None))
    assert seen == [nl.psum]

holds("nl.matmul", "result is a PSUM tile (via nc_matmul)", _in_psum)

def _product_in_placed(f, transpose_x):
    import neuronxcc.nki.compiler as ncc

    x, y = placed(4, 4), placed(4, 4, address=64)
    total = nl.ndarray((4, 4), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    total[...] = f(x, y, transpose_x=transpose_x)
    out = nl.ndarray((4, 4), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=128))
    out[...] = nisa.tensor_copy(total)
    return out

refused("nl.matmul", "transpose_x=True required in direct-allocated kernels",
    (lambda f: _product_in_placed(f, False), PlacementError, "transposes on the Tensor Engine",
     "place an identity matrix and multiply by it with", lambda f: _product_in_placed(f, True)))

def _accumulates(f):
    def body():
        total = nl.zeros((4, 8), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(3):
            total += f(tile(4, 4), tile(4, 8))
        return nl.copy(total)

    np.testing.assert_allclose(run(body), 3 * values(4, 4) @ values(4, 8))

holds("nl.matmul", "accumulate over K by += into a PSUM tensor", _accumulates)
refused("nl.transpose", "rank exactly 2",
    (lambda f: f(tile(4, 2, 2)), ShapeError, "two axes",
     "index the tile to two axes, or permute free axes in an", lambda f: f(tile(4, 2, 2)[:, :, 0])),
    kept=lambda f: f(tile(4, 2)))
refused("nl.transpose", "dim 1 size <=128 as well as par dim <=128",
    (lambda f: f(tile(4, 129)), TileSizeError, "at most 128 by 128", "divide the tile into blocks",
     lambda f: [f(part) for part in cut(tile(4, 129), 128)]),
    kept=lambda f: f(tile(4, 128)))

def _transposes_to_its_type(f):
    assert run(lambda: f(tile(4, 4, dtype=nl.bfloat16))).dtype == nl.bfloat16
    assert run(lambda: f(tile(4, 4, dtype=nl.bfloat16), dtype=nl.float32)).dtype == np.float32

holds("nl.transpose", "output dtype = input dtype unless dtype= is given", _transposes_to_its_type)

# -- random numbers

refused("nl.dropout", "rate is a scalar or a 1-element tile",
    (lambda f: f(tile(4, 4), nl.zeros((4, 1), nl.float32)), ShapeError, "one element",
     "use nisa.dropout for a rate a partition",
     lambda f: nisa.dropout(tile(4, 4), nl.zeros((4, 1), nl.float32))),
    kept=lambda f: (f(tile(4, 4), 0.5), f(tile(4, 4), nl.zeros((1, 1), nl.float32))))
holds("nl.dropout", "output dtype = input dtype unless dtype= is given",
    lambda f: _drops_to_its_type(f))

def _drops_to_its_type(f):
    assert run(lambda: f(tile(4, 4, dtype=nl.bfloat16), 0.5)).dtype == nl.bfloat16
    assert run(lambda: f(tile(4, 4), 0.5, dtype=nl.bfloat16)).dtype == nl.bfloat16

holds("nl.rand", "default dtype float32", lambda f: _draws_fp32(f))

def _draws_fp32(f):
    got = run(lambda: f((4, 100)))
    assert got.dtype == np.float32
    assert got.min() >= 0
    assert got.max() < 1

refused("nl.random_seed", "seed is a 32-bit scalar",
    (lambda f: f(2**33), ParameterError, "32-bit",
     "pass an int from -2**31 to 2**32 - 1, or a (1, 1) tile of",
     lambda f: (f(2**31 - 1), f(nl.full((1, 1), 7, np.int32)))),
    kept=lambda f: f(2**31))
