"""Constraints of nki.language: memories, creation, indexing, loops, loads and stores, casts."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from constraints.neuronxcc.walk import (
    cut,
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
from nkisim import checks
from nkisim.errors import (
    ControlFlowError,
    DTypeError,
    IndexingError,
    LoopError,
    MemorySpaceError,
    ParameterError,
    ScopeError,
    ShapeError,
    TileSizeError,
    UninitializedReadError,
)
from nkisim.ir.grid import Grid

# fmt: off

# -- indices

def rows(n: int, dtype=np.int32, buffer=nl.sbuf):
    """An index tile (n, 1) that counts backwards."""
    picks = nl.load(nl.shared_constant(np.arange(n)[::-1, None].astype(dtype)))
    if buffer is nl.sbuf:
        return picks
    made = nl.ndarray((n, 1), dtype=dtype, buffer=buffer)
    made[...] = nisa.tensor_copy(picks)
    return made

refused("nl.mgrid", "no complex step",
    (lambda f: f[0:4, 0:8:2j], IndexingError, "in integers", "write nl.mgrid[0:128, 0:512]",
     lambda f: f[0:4, 0:8]),
    kept=lambda f: f[0:4, 0:8:2], inside=False)

def _named_axes(f):
    grid = f[0:4, 0:8]
    assert grid.p is grid[0]
    assert grid.x is grid[1]

holds("nl.mgrid", "result also exposes .p/.x style per-axis fields in samples", _named_axes)

def _loaded_rows(i_p, i_f):
    return nl.load(hbm(4, 8)[rows(4)[i_p, 0], i_f])

refused("nl.mgrid", "cannot be used for indirect (dynamic) load/store indexing; use arange",
    (lambda f: _loaded_rows(*f[0:4, 0:8]), IndexingError, "free axis",
     "index with nl.arange(n)[:, None] and nl.arange(m)[None,",
     lambda f: _loaded_rows(nl.arange(4)[:, None], nl.arange(8)[None, :])))
refused("nl.arange", "arange(stop) or arange(start, stop); no step",
    (lambda f: f(0, 8, 2), IndexingError, "step", "multiply the index: 0 + 2 * nl.arange(4)",
     lambda f: 0 + 2 * f(4)),
    (lambda f: f(), IndexingError, "arange", "use shapes, loop indices and constants; multiply the",
     lambda f: 2 * f(4)),
    kept=lambda f: (f(8), f(0, 8)), inside=False)
refused("nl.arange",
    "must be given new axes ([:,None] / [None,:]); 1-D use as an index is an error",
    (lambda f: nl.exp(tile(4, 4)[f(4), 0]), IndexingError, "1-D nl.arange",
     "add an axis, e.g. nl.arange(64)[:, None], or slice:",
     lambda f: (nl.exp(tile(4, 4)[f(4)[:, None], 0]), nl.exp(tile(4, 4)[0:4, 0]))),
    kept=lambda f: nl.exp(tile(4, 4)[f(4)[:, None], 0]))

def _assigned(index):
    index[0, 5] = 1024

refused("nl.arange", "index tensors are not assignable (convert with nisa.iota)",
    (lambda f: _assigned(f(8)[None, :]), IndexingError, "cannot be assigned",
     "materialise it as a tile with nisa.iota first",
     lambda f: _assigned(nisa.iota(f(8)[None, :], dtype=np.int32))))

def _branched(condition):
    return tile(4, 4) if condition else None

refused("nl.arange", "cannot drive control flow",
    (lambda f: _branched(f(4)[:, None] > 2), ControlFlowError,
     "control_flow_condition_depending_on_arange",
     "pass it as mask=, and join conditions with & instead of",
     lambda f: [nl.add(tile(4, 4), 1, mask=(f(4)[:, None] < 2) & (f(4)[None, :] > 2))]),
    kept=lambda f: _branched(nl.add(tile(4, 4), 1, mask=f(4)[:, None] < 2) is None))
holds("nl.ds", "ds(start,size) selects start:start+size",
    lambda f: np.testing.assert_array_equal(run(lambda: nl.copy(tile(4, 9)[:, f(2, 3)])),
        values(4, 9)[:, 2:5]))

# -- memories

def _one_each(f):
    @nki.jit
    def kernel():
        out = nl.ndarray((2, 4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        mine = nl.ndarray((4, 4), dtype=nl.float32, buffer=f)
        if nl.program_id(0) == 0:
            mine[...] = tile(4, 4)
        nl.store(out[nl.program_id(0)], mine)
        return out

    with pytest.raises(UninitializedReadError, match="nothing wrote"):
        kernel[2]()  # the second instance sees nothing of what the first has written

holds("nl.psum nl.sbuf", "private to each kernel instance", _one_each)
refused("nl.psum", "free size of a tile <=512 (TC#2)",
    (lambda f: nl.ndarray((4, 513), nl.float32, buffer=f), TileSizeError, "a PSUM bank",
     "divide the free axes into smaller tiles, or use a narrower",
     lambda f: [*[nl.ndarray((4, n), nl.float32, buffer=f) for n in (512, 1)],
         nl.ndarray((4, 513), nl.bfloat16, buffer=f)]),
    kept=lambda f: nl.zeros((4, 512), nl.float32, buffer=f))

def _alive_at_once(f, n):
    source, total = tile(128, 512), nl.zeros((128, 512), nl.float32)
    tiles = [nl.ndarray((128, 512), nl.float32, buffer=f) for _ in range(n)]
    for t in tiles:
        t[...] = nisa.tensor_copy(source)
    for t in tiles:
        total[...] = total + t
    return total

def _one_after_another(f):
    """Nine tiles: each is copied to SBUF before the next."""

    def body():
        total = nl.zeros((128, 512), nl.float32)
        for _ in range(9):
            t = nl.ndarray((128, 512), nl.float32, buffer=f)
            t[...] = nisa.tensor_copy(tile(128, 512))
            total[...] = total + nl.copy(t)
        return total

    with checks(psum="error"):
        run(body)

def _fits(f, n):
    with checks(psum="error"):  # by default a warning: the compiler may spill
        run(_alive_at_once, f, n)

refused("nl.psum", "8 banks of 2KiB per partition",
    (lambda f: _fits(f, 9), TileSizeError, "PSUM",
     "copy results to SBUF before the next matmuls, or make the", _one_after_another),
    kept=lambda f: _fits(f, 8), inside=False)
refused("nl.sbuf", "tiles need rank >=2",
    (lambda f: nl.ndarray((4,), nl.float32, buffer=f), TileSizeError, "1 axis",
     "declare (partitions, elements), e.g. (128, 1)",
     lambda f: [nl.ndarray((4, 1), nl.float32, buffer=f)]),
    kept=lambda f: nl.zeros((4, 1), nl.float32, buffer=f))

def _created_and_stored(buffer):
    made = nl.ndarray((4, 4), nl.float32, buffer=buffer)
    nl.store(made, 1.0)
    return made

def _made_in_a_loop(f):
    for _ in nl.affine_range(1):
        nl.store(nl.ndarray((4, 4), nl.float32, buffer=f), tile(4, 4))

def _made_at_the_top(f):
    nl.store(nl.ndarray((4, 4), nl.float32, buffer=f), tile(4, 4))

refused("nl.shared_hbm",
    "may only be created at top-level kernel scope (not in loops, if blocks or called functions)",
    (_made_in_a_loop, ScopeError, "in a loop", "make it before the loop; scratch tensors go to",
     lambda f: (_made_at_the_top(f), _made_in_a_loop(nl.private_hbm))),
    kept=_made_at_the_top)
refused("nl.shared_hbm", "no initial value allowed (use ndarray then store)",
    (lambda f: nl.zeros((4, 4), nl.float32, buffer=f), MemorySpaceError, "initial value",
     "create it with nl.ndarray and nl.store the value", _created_and_stored),
    kept=_made_at_the_top)
holds("nl.shared_hbm", "used for kernel outputs", lambda f: _is_an_output(f))

def _is_an_output(f):
    def body():
        out = nl.ndarray((4, 4), nl.float32, buffer=f)
        nl.store(out, tile(4, 4))
        return out

    np.testing.assert_array_equal(run(body), values(4, 4))

refused("nl.par_dim", "n<=128",
    (lambda f: nl.ndarray((2, f(129), 4), nl.float32), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [nl.ndarray((2, f(n), 4), nl.float32) for n in (128, 1)]),
    kept=lambda f: nl.zeros((2, f(128), 4), nl.float32)[0])
exempt("nl.par_dim",
    "dims before it are block dims: deprecated, announced to become an error in 2.25",
    "an announcement; the samples of SDK 2.26 use block axes, and they work here")
holds("nl.tfloat32", "numpy representation is an opaque 4-byte void ('|V4')",
    lambda f: _is_opaque(f))

def _is_opaque(f):
    assert np.dtype(f) == np.dtype("V4")

# -- launch grids and loops

def _orders_cores(f):
    nc = nl.nc
    assert [Grid.of((f(nc(2), 2),)).core(i) for i in range(4)] == [0, 0, 1, 1]
    assert [Grid.of((f(2, nc(2)),)).core(i) for i in range(4)] == [0, 1, 0, 1]

holds("nl.spmd_dim",
    "order of sub-dims decides blocked vs interleaved core assignment: spmd_dim(nc(2),2) gives "
    "core0 the first half, spmd_dim(2,nc(2)) alternates", _orders_cores)

def _shorthand(f):
    for short, long in ((f(2) * 2, nl.spmd_dim(f(2), 2)), (2 * f(2), nl.spmd_dim(2, f(2)))):
        a, b = Grid.of((short,)), Grid.of((long,))
        assert [a.core(i) for i in range(4)] == [b.core(i) for i in range(4)]

holds("nl.nc", "nc(2)*2 and 2*nc(2) are shorthand for spmd_dim", _shorthand)

def _counts_programs(f):
    @nki.jit
    def kernel():
        assert f() == 6
        assert (f(0), f(1), f((0, 1))) == (2, 3, (2, 3))
        out = nl.ndarray((6, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        i = 3 * nl.program_id(0) + nl.program_id(1)
        nl.store(out[i : i + 1, 0:1], float(i))
        return out

    assert kernel[2, 3]().sum() == 15

holds("nl.num_programs", "no axes -> total count", _counts_programs)

def _running_total(loop):
    x, total = tile(4, 8), nl.zeros((4, 1), nl.float32)
    sums = nl.ndarray((4, 8), nl.float32)
    for i in loop(8):
        total[...] = nl.add(total, x[:, i]) * 2
        sums[:, i] = nl.copy(total)
    return sums

refused("nl.affine_range",
    "no loop-carried dependency (matmul accumulation into an outer buffer is allowed)",
    (_running_total, LoopError, "may run in any order",
     "loop with nl.sequential_range, where each iteration sees",
     lambda f: _running_total(nl.sequential_range)))

def _written(f, place):
    out = nl.ndarray((4, 8), nl.float32)
    for i in f(8):
        out[:, place(i)] = nl.copy(tile(4, 8)[:, i])
    return out if place(1) else None

refused("nl.affine_range", "each iteration must write a distinct location of an outer tensor",
    (lambda f: _written(f, lambda i: 0), LoopError, "both write element",
     "index the destination with the loop index, or loop with",
     lambda f: (_written(f, lambda i: i), _written(nl.sequential_range, lambda i: 0))),
    kept=lambda f: _written(f, lambda i: i))

def _one_core(f):
    @nki.jit
    def kernel():
        out = nl.ndarray((8, 4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        for i in f(8):
            nl.store(out[i], tile(4, 4))
        return out

    assert len(nkisim.profile(kernel).cores) == 1

holds("nl.affine_range", "does not spread work over NeuronCores", _one_core)
holds("nl.sequential_range", "Python range() inside a kernel is rewritten to this",
    lambda f: np.testing.assert_array_equal(run(lambda: _running_total(range)),
        run(lambda: _running_total(f))))
exempt("nl.sequential_range", "conservative loop optimisation", "a remark about the compiler")
exempt("nl.static_range", "may inflate compile time and SBUF use",
    "a remark about the compiler's resources")
exempt("nl.static_range", "no loop-level optimisation", "a remark about the compiler")
exempt("nl.static_range", "intended as debugging fallback", "advice about when to use it")

# -- creation

def _in_sbuf(f):
    seen = []

    def body():
        like = tile(4, 4)
        arguments = {
            "empty_like": (like,),
            "zeros_like": (like,),
            "full": ((4, 4), 1.0, nl.float32),
        }.get(f.__name__, ((4, 4), nl.float32))
        made = f(*arguments)
        seen.append(made.buffer.space)
        if f.__name__ == "empty_like":
            made[...] = like
        return made

    run(body)
    assert seen == [nl.sbuf]

holds("nl.empty_like nl.full nl.ones nl.zeros nl.zeros_like", "buffer defaults to sbuf", _in_sbuf)

def _full(f, buffer):
    value = (1.0,) if f.__name__ == "full" else ()
    return f((4, 4), *value, nl.float32, buffer=buffer)

refused("nl.full nl.ones nl.zeros", "HBM buffers cannot have an initial value",
    (lambda f: _full(f, nl.shared_hbm), MemorySpaceError, "initial value",
     "create it with nl.ndarray and nl.store the value",
     lambda f: _created_and_stored(nl.shared_hbm)),
    kept=lambda f: (_full(f, nl.sbuf), _full(f, nl.psum)))

def _placed_zeros(f):
    import neuronxcc.nki.compiler as ncc

    return f((4, 4), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))

def _placed_and_set(f):
    import neuronxcc.nki.compiler as ncc

    t = nl.ndarray((4, 4), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    t[...] = nisa.memset((4, 4), 0, nl.float32)
    return t

refused("nl.zeros", "not allowed with a direct allocator",
    (_placed_zeros, MemorySpaceError, "placed by hand",
     "create it with nl.ndarray and assign: t[...] =", _placed_and_set),
    kept=lambda f: placed(4, 4))
refused("nl.ndarray",
    "buffer defaults to sbuf; accepts sbuf/psum/hbm/private_hbm/shared_hbm or an ncc allocator",
    (lambda f: f((4, 4), nl.float32, buffer="sbuf"), MemorySpaceError, "nl.private_hbm",
     "pass one of these, or an allocation of nki.compiler",
     lambda f: [f((4, 4), nl.float32, buffer=nl.sbuf)]),
    kept=lambda f: [f((4, 4), nl.float32, buffer=b)
        for b in (None, nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm)])
refused("nl.ndarray", "on-chip tensors need rank >=2",
    (lambda f: f((4,), nl.float32, buffer=nl.psum), TileSizeError, "1 axis",
     "declare (partitions, elements), e.g. (128, 1)",
     lambda f: [f((4, 1), nl.float32, buffer=nl.psum)]),
    kept=lambda f: [f(s, nl.float32, buffer=b) for s, b in (((4,), nl.hbm), ((4, 1), nl.psum))])
refused("nl.shared_constant", "constant is an array",
    (lambda f: f(tile(4, 4)), ParameterError, "array",
     "pass a NumPy array; a tile of the kernel needs no constant", lambda f: f(values(4, 4))),
    kept=lambda f: nl.load(f(values(4, 4))))
refused("nl.shared_constant", "result must be loaded before on-chip use",
    (lambda f: nl.exp(f(values(4, 4))), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: nl.exp(nl.load(f(values(4, 4))))))
holds("nl.shared_identity_matrix", "default dtype uint8",
    lambda f: _same(run(lambda: nl.load(f(n=4))), np.identity(4, np.uint8)))

def _same(got, wanted):
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)

refused("nl.static_cast", "dtype is a string or numpy dtype",
    (lambda f: f(3.7, 12), DTypeError, "12", "convert to one of bfloat16, bool, float16, float32,",
     lambda f: f(3.7, nl.int32)),
    kept=lambda f: (f(3.7, "int32"), f(3.7, np.float16)), inside=False)

# -- views and copies

refused("nl.broadcast_to", "src in SBUF/PSUM, or a tensor whose outermost dim is the partition dim",
    (lambda f: f(values(1, 4), shape=(4, 4)), ParameterError, "takes an NKI tensor",
     "pass the array as an argument of the kernel, or, if it",
     lambda f: f(nl.load(nl.shared_constant(values(1, 4))), shape=(4, 4))),
    kept=lambda f: (f(tile(4, 1), shape=(4, 4)), f(psum(4, 1), shape=(4, 4))))

def _unchanged(f):
    def body():
        x = tile(4, 4)
        assert f(x, shape=(4, 4)) is x

    run(body)

holds("nl.broadcast_to", "returns src unchanged if shapes already match", _unchanged)
holds("nl.broadcast_to", "result in SBUF unless assigned to PSUM",
    lambda f: _lands(lambda: f(tile(1, 4), shape=(4, 4))))

def _lands(make):
    """What `make()` gives is in SBUF by itself, and can be assigned to a PSUM tile."""

    def body():
        assert make().buffer.space is nl.sbuf
        target = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
        target[...] = make()
        return nl.copy(target)

    assert run(body).shape == (4, 4)

refused("nl.copy", "src in SBUF or PSUM",
    (lambda f: f(hbm(4, 4)), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF before computing, and", lambda f: f(nl.load(hbm(4, 4)))),
    kept=lambda f: (f(tile(4, 4)), f(psum(4, 4))))
refused("nl.expand_dims", "axis is a free dim, after the last existing index only",
    (lambda f: f(tile(4, 4), 1), ParameterError, "behind the last axis",
     "pass axis=2; elsewhere index with None, or use",
     lambda f: (f(tile(4, 4), 2), tile(4, 4)[:, None, :], tile(4, 4).expand_dims(1))),
    kept=lambda f: (f(tile(4, 4), 2), f(tile(4, 4), -1)))
refused("nl.expand_dims", "not the partition dim",
    (lambda f: f(tile(4, 4), 0), ParameterError, "behind the last axis",
     "pass axis=2; elsewhere index with None, or use",
     lambda f: (f(tile(4, 4), 2), tile(4, 4)[:, None, :])),
    kept=lambda f: f(tile(4, 4), 2))
exempt("nl.device_print", "only under simulate_kernel",
    "every way to run a kernel here is a simulation, and prints")

# -- loads and stores

def _without_a_load(f):
    moved = nl.copy(tile(4, 4)) if f.__name__ == "load" else nisa.nc_transpose(tile(4, 4))
    out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, moved)
    return f(out)

refused("nl.load nl.load_transpose2d", "src in HBM",
    (lambda f: f(tile(4, 4)), MemorySpaceError, "between HBM and SBUF", "between on-chip tiles use",
     _without_a_load),
    kept=lambda f: f(hbm(4, 4)))
refused("nl.load", "par dim <=128 and first in the index tuple",
    (lambda f: f(hbm(129, 4)), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [f(part) for part in (hbm(129, 4)[0:128], hbm(129, 4)[128:129])]),
    (lambda f: f(hbm(2, 129, 4)[0]), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [f(part) for part in (hbm(2, 129, 4)[0, 0:128], hbm(2, 129, 4)[0, 128:129])]),
    kept=lambda f: f(hbm(128, 4)))

def _loads_its_type(f):
    assert run(lambda: f(hbm(4, 4, dtype=nl.bfloat16))).dtype == nl.bfloat16
    assert run(lambda: f(hbm(4, 4, dtype=nl.bfloat16), dtype=nl.float32)).dtype == np.float32

holds("nl.load nl.load_transpose2d", "output dtype = input dtype unless dtype= is given",
    _loads_its_type)
refused("nl.load", "indirect index tile must be in SBUF and index the partition (or block) dim",
    (lambda f: f(hbm(4, 8)[nl.arange(4)[:, None], rows(4)[nl.arange(4)[:, None], 0]]),
     IndexingError, "picks along a free axis",
     "index with nl.arange(n)[:, None] and nl.arange(m)[None,",
     lambda f: f(hbm(4, 8)[rows(4)[nl.arange(4)[:, None], 0], nl.arange(8)[None, :]])),
    kept=lambda f: f(hbm(4, 8)[rows(4), nl.arange(8)[None, :]]))
refused("nl.load", "indirect indexing needs nl.arange, not nl.mgrid",
    (lambda f: f(hbm(4, 8)[rows(4)[nl.mgrid[0:4, 0:8][0], 0], nl.mgrid[0:4, 0:8][1]]),
     IndexingError, "not nl.mgrid", "index with nl.arange(n)[:, None] and nl.arange(m)[None,",
     lambda f: f(hbm(4, 8)[rows(4)[nl.arange(4)[:, None], 0], nl.arange(8)[None, :]])))
refused("nl.load_transpose2d", "par dim <=128",
    (lambda f: f(hbm(4, 129)), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [f(part) for part in cut(hbm(4, 129), 128)]),
    kept=lambda f: f(hbm(4, 128)))
refused("nl.load_transpose2d", "no indirect indexing",
    (lambda f: f(hbm(4, 8)[rows(4), nl.arange(8)[None, :]]), IndexingError, "takes no index tiles",
     "gather with nl.load or nisa.dma_copy first, then",
     lambda f: nl.transpose(nl.load(hbm(4, 8)[rows(4), nl.arange(8)[None, :]]))),
    kept=lambda f: f(hbm(4, 8)[nl.arange(4)[:, None], nl.arange(8)[None, :]]))

def _hbm_out(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.private_hbm)

def _assigned_or_stored(f):
    t, out = nl.ndarray((4, 4), nl.float32), nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
    t[...] = tile(4, 4)
    f(out, t)

refused("nl.store", "dst in HBM",
    (lambda f: f(nl.ndarray((4, 4), nl.float32), tile(4, 4)), MemorySpaceError,
     "between HBM and SBUF", "between on-chip tiles use an assignment, tile[...] =",
     _assigned_or_stored),
    kept=lambda f: f(_hbm_out(4, 4), tile(4, 4)))
refused("nl.store", "par dim <=128 and first in the index tuple",
    (lambda f: f(_hbm_out(129, 4), 1.0), TileSizeError, "partition axis of 129",
     "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [f(part, 1.0) for part in (_hbm_out(129, 4)[0:128], _hbm_out(129, 4)[128:129])]),
    kept=lambda f: f(_hbm_out(128, 4), 1.0))
holds("nl.store", "value in PSUM costs an extra copy through SBUF", lambda f: _copies(f))

def _copies(f):
    direct = opcodes(lambda: f(_hbm_out(4, 4), tile(4, 4)))
    through = opcodes(lambda: f(_hbm_out(4, 4), psum(4, 4)))
    assert through.count("tensor_copy") == direct.count("tensor_copy") + 2  # into PSUM and out

def _changed(f, mutable):
    import neuronxcc.nki.typing as nt

    def body(x):
        f(x, nl.load(x) + 1)
        return x

    body.__annotations__["x"] = nt.mutable_tensor if mutable else nt.tensor
    nki.jit(body)(values(4, 4))

refused("nl.store", "dst must not be an immutable kernel parameter",
    (lambda f: _changed(f, mutable=False), ParameterError, "parameters are immutable",
     "write to an nl.shared_hbm tensor, or annotate the",
     lambda f: (_changed(f, mutable=True), run(_created_and_stored, nl.shared_hbm))),
    kept=lambda f: _changed(f, mutable=True), inside=False)
refused("nl.store", "indirect dst indexing as for load",
    (lambda f: f(_hbm_out(4, 8)[nl.arange(4)[:, None], rows(4)[nl.arange(4)[:, None], 0]],
         tile(4, 1)), IndexingError, "picks along a free axis",
     "index with nl.arange(n)[:, None] and nl.arange(m)[None,",
     lambda f: f(_hbm_out(4, 8)[rows(4)[nl.arange(4)[:, None], 0], nl.arange(8)[None, :]],
         tile(4, 8))),
    kept=lambda f: f(_hbm_out(4, 8)[rows(4), nl.arange(8)[None, :]], tile(4, 8)))

def _counts():
    """HBM that holds zeros."""
    out = _hbm_out(4, 8)
    nl.store(out, 0.0)
    return out

def _updated(f, picks, value=1.0, op=np.add):
    f(_counts()[picks, nl.arange(8)[None, :]], value, op)

def _loaded_added_stored(f):
    counts = _counts()
    nl.store(counts, nl.load(counts) + 1.0)

refused("nl.atomic_rmw", "dst is HBM with indirect dynamic indices only",
    (lambda f: f(_counts()[nl.arange(4)[:, None], nl.arange(8)[None, :]], 1.0, np.add),
     ParameterError, "indexed with a tile",
     "load, add and store when the addresses are known while", _loaded_added_stored),
    kept=lambda f: _updated(f, rows(4)))
refused("nl.atomic_rmw", "index tile in SBUF with shape [N,1]",
    (lambda f: _updated(f, rows(4, buffer=nl.psum)), MemorySpaceError, "SBUF",
     "copy the indices there with nisa.tensor_copy",
     lambda f: _updated(f, nisa.tensor_copy(rows(4, buffer=nl.psum)))),
    kept=lambda f: _updated(f, rows(4)))
refused("nl.atomic_rmw", "op must be np.add",
    (lambda f: _updated(f, rows(4), op=np.multiply), ParameterError, "DMA engines add",
     "pass op=np.add or nl.add", lambda f: _updated(f, rows(4), op=nl.add)))
refused("nl.atomic_rmw", "value is a tile or scalar",
    (lambda f: _updated(f, rows(4), values(4, 8)), DTypeError, "neither a tile nor a number",
     "pass arrays as kernel arguments and nl.load them",
     lambda f: _updated(f, rows(4), nl.load(hbm(4, 8)))),
    kept=lambda f: (_updated(f, rows(4), tile(4, 8)), _updated(f, rows(4), 2.0)))

def _gathered(f, data=(4, 8), indices=(4, 3), dtype=np.uint32, value=1, **options):
    picks = nl.full(indices, value, dtype)
    return f(tile(*data), picks, **options)

refused("nl.gather_flattened", "data and indices rank 2..4",
    (lambda f: _gathered(f, data=(4, 2, 2, 2, 1)), ShapeError, "2 to 4 axes",
     "reshape the free axes",
     lambda f: f(tile(4, 2, 2, 2, 1).reshape((4, 8)), nl.full((4, 3), 1, np.uint32))),
    (lambda f: _gathered(f, indices=(4, 1, 1, 1, 3)), ShapeError, "2 to 4 axes",
     "reshape the free axes",
     lambda f: f(tile(4, 8), nl.full((4, 1, 1, 1, 3), 1, np.uint32).reshape((4, 3)))),
    kept=lambda f: _gathered(f, data=(4, 2, 2, 2)))
refused("nl.gather_flattened", "indices uint32",
    (lambda f: _gathered(f, dtype=np.int32), DTypeError, "uint32", "make them with dtype=nl.uint32",
     lambda f: _gathered(f, dtype=nl.uint32)),
    kept=_gathered)
holds("nl.gather_flattened", "output shape = indices.shape",
    lambda f: _shape_is(run(lambda: _gathered(f, indices=(4, 3, 2))), (4, 3, 2)))

def _shape_is(got, shape):
    assert got.shape == shape

refused("nl.gather_flattened", "up to 128 partitions in parallel",
    (lambda f: _gathered(f, data=(129, 8), indices=(129, 3)), TileSizeError,
     "partition axis of 129", "divide the axis into tiles of 128 (nl.tile_size.pmax) with a",
     lambda f: [_gathered(f, data=(n, 8), indices=(n, 3)) for n in (128, 1)]),
    kept=lambda f: _gathered(f, data=(128, 8), indices=(128, 3)))
refused("nl.gather_flattened", "out-of-range index yields garbage",
    (lambda f: _gathered(f, value=8), IndexError, "index 8 is out of bounds", "",
     "at run time, where there is nothing to write in another way"),
    kept=lambda f: _gathered(f, value=7))
holds("nl.gather_flattened", "output dtype = input dtype unless dtype= is given",
    lambda f: _gathers_its_type(f))

def _gathers_its_type(f):
    assert run(lambda: _gathered(f)).dtype == np.float32
    assert run(lambda: _gathered(f, dtype=np.uint32)).dtype == np.float32
    assert (
        run(
            lambda: f(tile(4, 8), nl.zeros((4, 3), np.uint32), dtype=nl.bfloat16),
        ).dtype
        == nl.bfloat16
    )
