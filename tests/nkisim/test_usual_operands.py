"""Operations on usual operands take a short way, and come out as on the long one."""

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim
from nkisim.cost.model import trace_of
from nkisim.errors import KernelError
from nkisim.lowering import elementwise

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8]
SHAPES = [(128, 6), (128, 1), (1, 6), (128, 2, 3), (128, 1, 3), (0, 6), (128, 5)]
ONE = ["exp", "negative", "abs", "rsqrt", "square", "logical_not", "invert"]
TWO = ["add", "subtract", "multiply", "maximum", "power", "equal", "less", "bitwise_and", "mod"]


def written_down(op, operands, dtype):
    """The instructions of a kernel that applies an operation, or the error that it gives."""

    @nki.jit
    def kernel(*tensors):
        tiles = iter([nl.load(t) for t in tensors])
        values = [next(tiles) if isinstance(x, nkisim.TensorSpec) else x for x in operands]
        result = getattr(nl, op)(*values, dtype=dtype)
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    tensors = [x for x in operands if isinstance(x, nkisim.TensorSpec)]
    try:
        trace = trace_of(kernel, *tensors).program.trace
    except KernelError as error:
        return str(error)
    return [
        (str(i), i.location, i.attrs, [(t.shape, t.offsets, t.coefs) for t in i.outs + i.tiles_in])
        for i in trace.instructions
    ]


def spec():
    return st.builds(nkisim.TensorSpec, st.sampled_from(SHAPES), st.sampled_from(DTYPES))


def number():
    return st.one_of(
        st.floats(-4, 4, width=32),
        st.integers(-(2**31), 2**32 - 1),
        st.booleans(),
        st.sampled_from([np.float32(2), np.int32(3), ml_dtypes.bfloat16(0.5)]),
    )


@given(st.data())
def test_both_ways_write_down_the_same(data):
    op = data.draw(st.sampled_from(ONE + TWO))
    operands = [data.draw(spec())]
    if op in TWO:
        operands.append(data.draw(st.one_of(spec(), number())))
        if data.draw(st.booleans()):
            operands.reverse()
    dtype = data.draw(st.sampled_from([None, np.float32, ml_dtypes.bfloat16]))
    short = written_down(op, operands, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elementwise, "_usual", lambda op, operands: None)
        assert written_down(op, operands, dtype) == short
