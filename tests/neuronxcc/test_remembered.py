"""Calls on operands like those of an earlier one write down what they would have by themselves."""

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim
from nkisim.errors import KernelError
from nkisim.frontends.neuronxcc.lowering import op_cache as remembered
from nkisim.runtime.kernel import as_kernel

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8]
SHAPES = [(128, 6), (128, 1), (1, 6), (128, 2, 3), (128, 1, 3), (0, 6), (128, 5)]
ONE = ["exp", "negative", "abs", "rsqrt", "square", "logical_not", "invert"]
TWO = ["add", "subtract", "multiply", "maximum", "power", "equal", "less", "bitwise_and", "mod"]


def written_down(kernel, *tensors):
    """What a trace of a kernel says, or the error that it gives."""
    try:
        trace = as_kernel(kernel).specialize(tensors, {}).program.trace
    except KernelError as error:
        return str(error)
    return (
        [
            (
                (str(i), i.location, i.settings, i.engine_asked, i.watched, i.loops, i.program),
                [(t.buffer.number, t.shape, t.offsets, t.coefs) for t in i.outs + i.tiles_in],
            )
            for i in trace.instructions
        ],
        [(repr(b), b.name, b.declared, b.loops, b.location, b.par_axis) for b in trace.buffers],
        trace.partly_written,
        trace.assigned,
    )


def by_itself(kernel, *tensors):
    """The same, where each call looks at its operands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "current_if_any", lambda: None)
        return written_down(kernel, *tensors)


def elementwise(op, operands, dtype):
    """A kernel that applies an operation some times."""

    @nki.jit
    def kernel(*tensors):
        tiles = iter([nl.load(t) for t in tensors])
        values = [next(tiles) if isinstance(x, nkisim.TensorSpec) else x for x in operands]
        for _ in range(3):
            result = getattr(nl, op)(*values, dtype=dtype)
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return kernel


def spec():
    return st.builds(nkisim.TensorSpec, st.sampled_from(SHAPES), st.sampled_from(DTYPES))


def number():
    return st.one_of(
        st.floats(-4, 4, width=32),
        st.integers(-(2**31), 2**32 - 1),
        st.booleans(),
        st.sampled_from([0.0, -0.0, np.float32(2), np.int32(3), ml_dtypes.bfloat16(0.5)]),
    )


@given(st.data())
def test_elementwise_operations(data):
    op = data.draw(st.sampled_from(ONE + TWO))
    operands = [data.draw(spec())]
    if op in TWO:
        operands.append(data.draw(st.one_of(spec(), number())))
        if data.draw(st.booleans()):
            operands.reverse()
    dtype = data.draw(st.sampled_from([None, np.float32, ml_dtypes.bfloat16]))
    tensors = [x for x in operands if isinstance(x, nkisim.TensorSpec)]
    kernel = elementwise(op, operands, dtype)
    assert written_down(kernel, *tensors) == by_itself(kernel, *tensors)


CALLS = {
    "load": lambda t: nl.load(t.hbm[t.k]),
    "load of a type": lambda t: nl.load(t.hbm[t.k], dtype=nl.bfloat16),
    "load under a mask": lambda t: nl.load(t.hbm[t.k], mask=t.p < 100 - t.k),
    "load of nothing": lambda t: nl.load(t.hbm[t.k], mask=t.f < 512 * (t.k - 1)),
    "load of a row": lambda t: nl.load(t.hbm[t.k, 3]),
    "transposed load": lambda t: nl.load_transpose2d(t.hbm[t.k, :, 0:64]),
    "transposed load of a type": lambda t: nl.load_transpose2d(
        t.hbm[t.k, :, 0:64], dtype=nl.bfloat16
    ),
    "transposed load under a mask": lambda t: nl.load_transpose2d(
        t.hbm[t.k, :, 0:64], mask=(t.p < 100 - t.k) & (t.f[:, 0:64] < 60)
    ),
    "transposed load of nothing": lambda t: nl.load_transpose2d(
        t.hbm[t.k, :, 0:64], mask=t.p < 128 * (t.k - 1)
    ),
    "store": lambda t: nl.store(t.out[t.k], t.x),
    "store a number": lambda t: nl.store(t.out[t.k], 0.0 if t.k % 2 else -0.0),
    "store a part": lambda t: nl.store(t.out[t.k], t.x, mask=(t.p < 64) & (t.f >= 3)),
    "store from PSUM": lambda t: nl.store(t.out[t.k, :, 0:256], t.psum),
    "copy": lambda t: nl.copy(t.blocks[:, t.k], dtype=nl.bfloat16),
    "broadcast": lambda t: nl.broadcast_to(t.row, shape=(128, 512)),
    "zeros": lambda t: nl.zeros((nl.par_dim(128), 4), nl.float32, buffer=nl.psum),
    "blocks of zeros": lambda t: nl.zeros((2, nl.par_dim(128), 4), nl.float32),
    "a tile": lambda t: nl.ndarray((nl.par_dim(128), t.k + 1), t.x.dtype, buffer=nl.psum),
    "matmul": lambda t: nl.matmul(t.w, t.bf),
    "matmul of a transpose": lambda t: nl.matmul(t.w, t.bf, transpose_x=True),
    "matmul from PSUM": lambda t: nl.matmul(t.w, nisa.nc_matmul(t.w, t.bf)),
    "transpose": lambda t: nl.transpose(t.w),
    "sums": lambda t: nl.sum(t.blocks, axis=[1, 2] if t.k % 2 else 2, keepdims=t.k > 1),
    "mean": lambda t: nl.mean(t.x, axis=-1),
    "variance": lambda t: nl.var(t.x, 1, mask=t.p < 96 + t.k),
    "softmax": lambda t: nl.softmax(t.x, axis=-1),
    "RMSNorm": lambda t: nl.rms_norm(t.x, t.row.broadcast_to((128, 512)), axis=-1, n=512),
    "where": lambda t: nl.where(t.x, t.y, 0.0),
    "tensor_tensor": lambda t: nisa.tensor_tensor(t.x, t.x if t.k % 2 else t.y, op=nl.multiply),
    "tensor_tensor of parts": lambda t: nisa.tensor_tensor(
        t.blocks[:, t.k], t.blocks[:, t.k // 2], nl.add
    ),
    "tensor_scalar": lambda t: nisa.tensor_scalar(
        t.x, np.subtract, t.c if t.k % 2 else 2, op1=nl.multiply, operand1=t.c, reverse0=t.k > 1
    ),
    "tensor_scalar under a mask": lambda t: nisa.tensor_scalar(
        t.x, np.add, 1.0, mask=(t.f < 100) & (t.p >= t.k)
    ),
    "scalar_tensor_tensor": lambda t: nisa.scalar_tensor_tensor(
        data=t.x, op0=nl.multiply, operand0=t.c, op1=nl.add, operand1=t.y
    ),
    "tensor_scalar_reduce": lambda t: nisa.tensor_scalar_reduce(
        data=t.x, op0=nl.add, operand0=1.0, reduce_op=nl.max, reduce_res=t.c
    ),
    "activation": lambda t: nisa.activation(nl.rsqrt, t.x, bias=t.c, scale=1.0 / (t.k + 1)),
    "activation_reduce": lambda t: nisa.activation_reduce(
        nl.exp, t.x, bias=t.c, reduce_op=np.add, reduce_res=t.c
    ),
    "reduce commands": lambda t: nisa.activation(
        nl.exp, t.x, reduce_op=nl.add, reduce_res=t.c,
        reduce_cmd=nisa.reduce_cmd.reduce if t.k else nisa.reduce_cmd.reset_reduce,
    ),
    "reciprocal": lambda t: nisa.reciprocal(t.c),
    "tensor_copy": lambda t: nisa.tensor_copy(t.x, engine=nisa.scalar_engine),
    "memset": lambda t: nisa.memset((128, 4), t.k, dtype=nl.float32),
    "nc_matmul": lambda t: nisa.nc_matmul(t.w, t.bf, is_moving_onezero=t.k > 1),
    "nc_matmul of a part": lambda t: nisa.nc_matmul(
        t.w[t.p, t.f128][t.p < 64], t.bf[t.p, t.f][t.p < 64]
    ),
    "nc_transpose": lambda t: nisa.nc_transpose(t.w if t.k % 2 else t.x[0:32, 0:32]),
    "tensor_reduce": lambda t: nisa.tensor_reduce(np.max, t.x, axis=1, negate=True),
    "tensor_reduce of other axes": lambda t: nisa.tensor_reduce(np.add, t.blocks, axis=1),
    "scan": lambda t: nisa.tensor_tensor_scan(t.x, t.y, t.c, np.multiply, np.add),
    "statistics": lambda t: nisa.bn_aggr(nisa.bn_stats(t.x[:, 0:256])),
    "max8": lambda t: nisa.nc_find_index8(data=t.x, vals=nisa.max8(src=t.x)),
    "iota": lambda t: nisa.iota(t.f + t.k // 2, dtype=nl.int32, mask=t.p < 100),
    "affine_select": lambda t: nisa.affine_select(t.p + t.k // 2 >= t.f, t.x, 0.5),
    "affine_select under a mask": lambda t: nisa.affine_select(
        (t.p < t.k) if t.k % 2 else t.p - t.f, t.x, -0.0 if t.k % 3 else 0.0, mask=t.f < 9
    ),
    "dma_copy": lambda t: nisa.dma_copy(dst=t.out[t.k], src=t.hbm[3 - t.k]),
    "in place": lambda t: t.x.__iadd__(t.y if t.k % 2 else 2.0),
    "into PSUM": lambda t: t.psum.__iadd__(nisa.nc_matmul(t.w, t.bf[:, 0:256])),
    "assigned": lambda t: t.blocks.__setitem__((slice(None), t.k), t.x * 2.0),
    "assigned a part": lambda t: t.blocks.__setitem__(
        (slice(None), t.k), nisa.tensor_copy(t.x, mask=t.f < 100)
    ),
    "assigned a column": lambda t: t.x.__setitem__(Ellipsis, t.c),
    "not written": lambda t: nl.exp(nl.ndarray((128, 512), nl.float32)),
    "of a wrong shape": lambda t: nisa.tensor_tensor(t.x, t.bf[:, 0:256], nl.add),
    "from HBM": lambda t: nl.exp(t.hbm[t.k]),
}  # fmt: skip


class Tiles:
    """What the calls above take: of a kernel that makes them."""

    def __init__(self, hbm, out):
        self.hbm, self.out = hbm, out
        self.p, self.f = nl.arange(128)[:, None], nl.arange(512)[None, :]
        self.f128 = nl.arange(128)[None, :]
        self.x, self.y = nl.load(hbm[0]), nl.load(hbm[1])
        self.c = nl.sum(self.x, axis=1, keepdims=True)
        self.row = nl.load(hbm[0, 0:1, :])
        self.bf = nl.copy(self.x, dtype=nl.bfloat16)
        self.w = nl.copy(self.x[:, 0:128], dtype=nl.bfloat16)
        self.psum = nl.zeros((nl.par_dim(128), 256), nl.float32, buffer=nl.psum)
        self.blocks = nl.zeros((nl.par_dim(128), 4, 512), nl.float32)
        self.k = 0


@pytest.mark.parametrize("loop", [range, nl.affine_range, nl.static_range])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
def test_calls(name, loop):
    @nki.jit
    def kernel(hbm):
        out = nl.ndarray((4, 128, 512), dtype=hbm.dtype, buffer=nl.shared_hbm)
        tiles = Tiles(hbm, out)
        for k in loop(4):
            tiles.k = k
            CALLS[name](tiles)
        nl.store(out[0], tiles.x)
        return out

    hbm = nkisim.TensorSpec((4, 128, 512), np.float32)
    again = [written_down(kernel, hbm) for _ in range(2)]
    assert again == [by_itself(kernel, hbm)] * 2


def test_most_calls_are_remembered(monkeypatch):
    seen = []
    again = remembered._replay
    monkeypatch.setattr(remembered, "_replay", lambda *args: seen.append(args) or again(*args))

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for k in nl.static_range(10):
            nl.store(out[k], nl.exp(nl.load(a[k])) * 2.0)
        return out

    written_down(kernel, nkisim.TensorSpec((10, 128, 16), np.float32))
    assert len(seen) == 8 * 4


def test_what_is_made_of_a_named_tensor_is_named_after_it():
    """Also if a call on one without a name came first."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for _ in range(2):
            nl.load(nl.shared_constant(np.zeros(a.shape, a.dtype)))
        nl.store(out, nl.load(a))
        return out

    _, buffers, *_ = written_down(kernel, nkisim.TensorSpec((128, 7), np.float32))
    assert [name for _, name, *_ in buffers if name.endswith("_tile")] == ["a_tile"]


def test_other_checks_have_other_notes():
    """What was written down while a check was off tells nothing of what it finds."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for _ in range(3):
            x = nl.zeros((129, 4), dtype=nl.float32)
        nl.store(out, x[0:128])
        return out

    spec = nkisim.TensorSpec((128, 4), np.float32)
    with nkisim.checks(tile="off"):
        first = written_down(kernel, spec)
    assert not isinstance(first, str)
    assert "partition axis of 129" in written_down(kernel, spec)
