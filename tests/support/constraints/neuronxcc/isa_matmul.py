"""Constraints of nki.isa: the Tensor Engine."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.isa_common import same
from constraints.neuronxcc.walk import (
    cut,
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

# -- the Tensor Engine

def _product(f, a=None, b=None, **options):
    return f(tile(8, 4) if a is None else a, tile(8, 6) if b is None else b, **options)

refused("nisa.nc_matmul", "both inputs in SBUF, output in PSUM",
    (lambda f: _product(f, psum(8, 4)), MemorySpaceError, "reads SBUF and writes PSUM",
     "copy the tile into SBUF first, with nl.copy", lambda f: _product(f, nl.copy(psum(8, 4)))),
    (lambda f: _product(f, None, psum(8, 6)), MemorySpaceError, "reads SBUF",
     "copy the tile into SBUF first, with nl.copy",
     lambda f: _product(f, None, nl.copy(psum(8, 6)))),
    kept=_product)
refused("nisa.nc_matmul", "contraction (par dim) equal on both and <=128",
    (lambda f: _product(f, tile(7, 4)), ShapeError, "contraction of 7 with 8",
     "nl.transpose the operand whose contraction axis is the",
     lambda f: _product(f, tile(7, 4), tile(8, 6)[0:7])),
    (lambda f: _product(f, nl.zeros((129, 4), nl.float32)), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [_product(f, nl.zeros((n, 4), nl.float32), tile(n, 6)) for n in (128, 1)]),
    kept=lambda f: _product(f, tile(128, 4), tile(128, 6)))
refused("nisa.nc_matmul", "stationary free size <=128, moving free size <=512",
    (lambda f: _product(f, tile(8, 129)), TileSizeError, "at most 128 elements",
     "divide it into tiles, with a loop",
     lambda f: [_product(f, part) for part in cut(tile(8, 129), 128)]),
    (lambda f: _product(f, None, tile(8, 513)), TileSizeError, "at most 512 elements",
     "divide it into tiles, with a loop",
     lambda f: [_product(f, None, part) for part in cut(tile(8, 513), 512)]),
    kept=lambda f: _product(f, tile(8, 128), tile(8, 512)))
refused("nisa.nc_matmul", "input dtypes: float8_e4m3/float8_e5m2/bfloat16/float16/tfloat32/float32",
    (lambda f: _product(f, tile(8, 4, dtype=np.int8)), DTypeError, "the Tensor Engine multiplies",
     "convert the tile, e.g. nl.copy(tile, dtype=nl.bfloat16)",
     lambda f: _product(f, *[nl.copy(tile(8, 4, dtype=np.int8), dtype=nl.bfloat16)] * 2)),
    kept=lambda f: [_product(f, *(tile(8, 4, dtype=t),) * 2)
        for t in (nl.float8_e4m3, nl.float8_e5m2, nl.bfloat16, nl.float16, nl.float32)])

def _fp32_sums(f):
    a, b = tile, tile
    got = run(lambda: _product(f, a(8, 4, dtype=nl.bfloat16), b(8, 6, dtype=nl.bfloat16)))
    assert got.dtype == np.float32
    same(got, values(8, 4).T @ values(8, 6))

holds("nisa.nc_matmul", "accumulation and output are float32", _fp32_sums)
holds("nisa.nc_matmul", "output shape (stationary free, moving free)",
    lambda f: same(run(lambda: _product(f)), values(8, 4).T @ values(8, 6)))

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

holds("nisa.nc_matmul", "onezero hints only matter for float32 operands and can double throughput",
    lambda f: _hints(f, is_stationary_onezero=True, is_moving_onezero=True))
refused("nisa.nc_matmul",
    "PE tiling needs both tile_position and tile_size, integers or affine exprs, multiples of 32",
    (lambda f: _product(f, tile_position=(0, 0), tile_size=(60, 64)), ParameterError,
     "multiples of 32", "use e.g. tile_position=(0, 0), tile_size=(64, 64); (128,",
     lambda f: _product(f, tile_position=(0, 0), tile_size=(64, 64))),
    (lambda f: _product(f, tile_position=(0, 0)), ParameterError, "one without the other",
     "use e.g. tile_position=(0, 0), tile_size=(64, 64); (128,",
     lambda f: _product(f, tile_position=(0, 0), tile_size=(128, 128))),
    (lambda f: _product(f, tile_position=(0.0, 0), tile_size=(64, 64)), ParameterError, "integers",
     "write 0; // divides into an integer",
     lambda f: _product(f, tile_position=(0, 0), tile_size=(64, 64))))
refused("nisa.nc_matmul", "tile_size >= accessed stationary tile",
    (lambda f: _product(f, tile(8, 65), tile_position=(0, 0), tile_size=(64, 64)), ParameterError,
     "smaller than the stationary tile", "use e.g. tile_position=(0, 0), tile_size=(64, 64); (128,",
     lambda f: _product(f, tile(8, 65), tile_position=(0, 0), tile_size=(128, 128))),
    kept=lambda f: _product(f, tile(8, 64), tile_position=(0, 0), tile_size=(64, 64)))
refused("nisa.nc_matmul", "on NeuronCore-v2 the tile_size rows and columns cannot be 32",
    (lambda f: _product(f, tile_position=(0, 0), tile_size=(32, 64)), ParameterError,
     "neither size is 32", "use e.g. tile_position=(0, 0), tile_size=(64, 64); (128,",
     lambda f: _product(f, tile_position=(0, 0), tile_size=(64, 64))))

def _transposes(f):
    eye = nl.load(nl.shared_constant(np.identity(8, np.float32)))
    return f(tile(8, 4), eye, is_transpose=True)

holds("nisa.nc_matmul", "is_transpose hints that moving is an identity matrix",
    lambda f: same(run(lambda: _transposes(f)), values(8, 4).T))

def _masked_product(f):
    got = run(lambda: nl.copy(_product(f, mask=nl.arange(8)[:, None] < 5)))
    same(got, values(8, 4)[:5].T @ values(8, 6)[:5])

holds("nisa.nc_matmul", "masking uses per-operand mask expressions", _masked_product)

refused("nisa.nc_transpose", "Tensor: input <= (128,128), SBUF in, PSUM out",
    (lambda f: f(psum(4, 6), engine=nisa.tensor_engine), MemorySpaceError,
     "reads SBUF and writes PSUM", "copy the tile into SBUF first, with nl.copy",
     lambda f: f(nl.copy(psum(4, 6)), engine=nisa.tensor_engine)),
    (lambda f: f(tile(4, 129), engine=nisa.tensor_engine), TileSizeError, "at most 128 by 128",
     "divide the tile into blocks",
     lambda f: [f(part, engine=nisa.tensor_engine) for part in cut(tile(4, 129), 128)]),
    kept=lambda f: f(tile(128, 128), engine=nisa.tensor_engine))
refused("nisa.nc_transpose", "Vector: input <= (32,32), SBUF or PSUM on either side",
    (lambda f: f(tile(4, 33), engine=nisa.vector_engine), TileSizeError, "at most 32 by 32",
     "divide the tile into blocks, or use the Tensor Engine",
     lambda f: ([f(part, engine=nisa.vector_engine) for part in cut(tile(4, 33), 32)],
         f(tile(4, 33), engine=nisa.tensor_engine))),
    kept=lambda f: (f(tile(32, 32), engine=nisa.vector_engine),
        f(psum(4, 6), engine=nisa.vector_engine)))
holds("nisa.nc_transpose", "several free axes are collapsed into one",
    lambda f: same(run(lambda: f(tile(4, 3, 2))), values(4, 3, 2).reshape(4, 6).T))

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

holds("nisa.nc_transpose",
    "Tensor path multiplies by identity: not bit exact for NaN/Inf on NeuronCore-v2", _spreads)
holds("nisa.nc_transpose", "a different dtype adds a cast instruction", lambda f: _casts(f))

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

def _times_identity(n):
    """A transpose by a product, in a kernel that places all of its tiles."""
    x, eye = placed(n, n), placed(n, n, address=4096)
    eye[...] = nl.load(nl.shared_constant(np.identity(n, np.float32)))
    out = nl.ndarray((n, n), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    out[...] = nisa.nc_matmul(x, eye)
    back = nl.ndarray((n, n), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=8192))
    back[...] = nisa.tensor_copy(out)
    return back

refused("nisa.nc_transpose", "Tensor path not allowed in direct-allocated kernels",
    (lambda f: _transposed_in_place(f, 64, nisa.tensor_engine), PlacementError,
     "transposes on the Tensor Engine", "place an identity matrix and multiply by it with",
     lambda f: (_times_identity(64), _transposed_in_place(f, 32, nisa.vector_engine))),
    kept=lambda f: _transposed_in_place(f, 32, nisa.vector_engine))
