"""Short examples for the names of NKI that no page uses, run when the page on the API is built.

An example is the body of a kernel that has tiles `x`, `y`, ... loaded already and leaves a tile
`out`. :func:`run` launches it on the simulator and gives the text that the page shows: the tiles,
the lines, and what came out.
"""

from __future__ import annotations

import inspect
import linecache
import textwrap
from collections.abc import Mapping

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

SIGNED = {"x": np.array([[-2, -0.5, 0.5, 3]], np.float32)}
POSITIVE = {"x": np.array([[0.25, 1, 4, 9]], np.float32)}
PAIR = SIGNED | {"y": np.array([[2, 2, 0.5, 3]], np.float32)}
INTEGERS = {"x": np.array([[1, 6, 12]], np.int32), "y": np.array([[3, 3, 2]], np.int32)}
FLAGS = {"x": np.array([[0, 0, 1, 2]], np.float32), "y": np.array([[0, 1, 0, 1]], np.float32)}
TABLE = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
SQUARE = {"x": np.arange(9, dtype=np.float32).reshape(3, 3)}
EIGHT = {"x": np.array([[3, 9, 1, 7, 5, 8, 2, 6, 4, 0]], np.float32)}

_ONE = (
    "abs ceil cos erf erf_dx exp floor gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx mish "
    "negative relu sigmoid sign silu silu_dx sin softplus square tan tanh trunc"
)
_POSITIVE = "log reciprocal rsqrt sqrt"
_TWO = (
    "add divide equal fmod greater greater_equal less less_equal maximum minimum mod multiply "
    "not_equal subtract"
)
_FLAGS = "logical_and logical_or logical_xor"
_INTEGERS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift"

Example = tuple[str, Mapping[str, np.ndarray]]

EXAMPLES: dict[str, Example] = {
    **{f"nl.{name}": (f"out = nl.{name}(x)", SIGNED) for name in _ONE.split()},
    **{f"nl.{name}": (f"out = nl.{name}(x)", POSITIVE) for name in _POSITIVE.split()},
    **{f"nl.{name}": (f"out = nl.{name}(x, y)", PAIR) for name in _TWO.split()},
    **{f"nl.{name}": (f"out = nl.{name}(x, y)", FLAGS) for name in _FLAGS.split()},
    **{f"nl.{name}": (f"out = nl.{name}(x, y)", INTEGERS) for name in _INTEGERS.split()},
    "nl.arctan": ("out = nl.arctan(x)", {"x": np.array([[-1, 0, 0.5, 1]], np.float32)}),
    "nl.power": ("out = nl.power(x, 0.5)", POSITIVE),
    "nl.invert": ("out = nl.invert(x)", {"x": INTEGERS["x"]}),
    "nl.logical_not": ("out = nl.logical_not(x)", {"x": FLAGS["x"]}),
    "nl.where": ("out = nl.where(x > 0, x, 0.0)", SIGNED),
    "nl.all": ("out = nl.all(x, axis=1)", TABLE),
    "nl.max": ("out = nl.max(x, axis=1, keepdims=True)", TABLE),
    "nl.min": ("out = nl.min(x, axis=1, keepdims=True)", TABLE),
    "nl.mean": ("out = nl.mean(x, axis=1)", TABLE),
    "nl.prod": ("out = nl.prod(x, axis=1, keepdims=True)", TABLE),
    "nl.var": ("out = nl.var(x, axis=1)", TABLE),
    "nl.softmax": ("out = nl.softmax(x, axis=1)", TABLE),
    "nl.rms_norm": ("out = nl.rms_norm(x, 1.0, axis=1, n=4)", TABLE),
    "nl.transpose": ("out = nl.copy(nl.transpose(x))", TABLE),
    "nl.expand_dims": (
        "apart = nl.expand_dims(x, 2)  # (2, 4, 1)\nout = nl.sum(apart, axis=2)",
        TABLE,
    ),
    "nl.empty_like": ("out = nl.empty_like(x)\nout[...] = x * 2", TABLE),
    "nl.zeros_like": ("out = nl.zeros_like(x)\nout[:, 0:2] = x[:, 0:2]", TABLE),
    "nl.ones": ("out = x + nl.ones((2, 4), dtype=nl.float32, buffer=nl.sbuf)", TABLE),
    "nl.static_cast": ("out = nl.static_cast(x, nl.int32)", SIGNED),
    "nl.finfo": ("out = nl.maximum(x, nl.finfo(nl.bfloat16).min)", SIGNED),
    "nl.static_range": (
        "out = nl.zeros((2, 1), dtype=nl.float32)\n"
        "for column in nl.static_range(0, 4, 2):  # start, stop, step\n"
        "    out += x[:, column:column + 1]",
        TABLE,
    ),
    "nl.gather_flattened": (
        "out = nl.gather_flattened(x, y)",
        {"x": TABLE["x"], "y": np.array([[3, 0], [1, 1]], np.uint32)},
    ),
    "nl.shared_identity_matrix": (
        "out = x + nl.load(nl.shared_identity_matrix(3, dtype=nl.float32))",
        SQUARE,
    ),
    "nl.shared_constant": (
        "row = nl.shared_constant(np.array([[10, 20, 30, 40]], np.float32))\n"
        "out = x + nl.broadcast_to(nl.load(row), shape=(2, 4))",
        TABLE,
    ),
    "nisa.affine_select": (
        "i_p, i_f = nl.mgrid[0:3, 0:3]\n"
        "out = nisa.affine_select(pred=(i_p >= i_f), on_true_tile=x, on_false_value=0)",
        SQUARE,
    ),
    "nisa.iota": (
        "i_p, i_f = nl.mgrid[0:2, 0:4]\nout = nisa.iota(i_p * 10 + i_f, dtype=nl.int32)",
        {},
    ),
    "nisa.bn_stats": ("out = nisa.bn_stats(x, dtype=nl.float32)", TABLE),
    "nisa.bn_aggr": (
        "out = nisa.bn_aggr(nisa.bn_stats(x, dtype=nl.float32))  # mean, variance",
        TABLE,
    ),
    "nisa.max8": ("out = nisa.max8(src=x)", EIGHT),
    "nisa.nc_find_index8": ("out = nisa.nc_find_index8(data=x, vals=nisa.max8(src=x))", EIGHT),
    "nisa.nc_match_replace8": (
        "out = nisa.nc_match_replace8(data=x, vals=nisa.max8(src=x), imm=-1)",
        EIGHT,
    ),
    "nisa.memset": ("out = nisa.memset((2, 3), value=7, dtype=nl.int32)", {}),
    "nisa.nc_transpose": ("out = nl.copy(nisa.nc_transpose(x))", TABLE),
    "nisa.reciprocal": ("out = nisa.reciprocal(x)", POSITIVE),
    "nisa.tensor_copy_predicated": (
        "out = nl.zeros((1, 4), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.tensor_copy_predicated(src=x, dst=out, predicate=nl.greater(x, 0, dtype=nl.uint8))",
        SIGNED,
    ),
    "nisa.tensor_partition_reduce": ("out = nisa.tensor_partition_reduce(nl.add, x)", TABLE),
    "nisa.tensor_reduce": ("out = nisa.tensor_reduce(nl.max, x, axis=1, negate=True)", TABLE),
    "nisa.activation_reduce": (
        "total = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.sbuf)\n"
        "squares = nisa.activation_reduce(nl.square, x, reduce_op=nl.add, reduce_res=total)\n"
        "out = total",
        TABLE,
    ),
    "nisa.scalar_tensor_tensor": (
        "out = nisa.scalar_tensor_tensor(\n"
        "    data=x, op0=nl.multiply, operand0=10.0, op1=nl.add, operand1=y)",
        PAIR,
    ),
    "nisa.tensor_scalar": (
        "out = nisa.tensor_scalar(x, nl.multiply, 2.0, op1=nl.add, operand1=1.0)",
        TABLE,
    ),
    "nisa.tensor_scalar_reduce": (
        "total = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.sbuf)\n"
        "twice = nisa.tensor_scalar_reduce(\n"
        "    data=x, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=total)\n"
        "out = total",
        TABLE,
    ),
    "nisa.tensor_tensor_scan": (
        "ones = nl.ones((2, 4), dtype=nl.float32, buffer=nl.sbuf)\n"
        "out = nisa.tensor_tensor_scan(  # running sums\n"
        "    data0=ones, data1=x, initial=0, op0=nl.multiply, op1=nl.add)",
        TABLE,
    ),
    "nisa.sequence_bounds": (
        "out = nisa.sequence_bounds(segment_ids=x)",
        {"x": np.array([[1, 1, 2, 2, 2, 0]], np.float32)},
    ),
    "nisa.nc_stream_shuffle": (
        "out = nl.ndarray((32, 1), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.nc_stream_shuffle(src=x, dst=out, shuffle_mask=list(range(31, -1, -1)))",
        {"x": np.arange(32, dtype=np.float32)[:, None]},
    ),
    "nl.load_transpose2d": ("out = nl.load_transpose2d(x_hbm)", TABLE),
    "nisa.dma_transpose": ("out = nisa.dma_transpose(x_hbm)", TABLE),
    "nisa.dma_copy": (
        "out = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=out, src=x_hbm)",
        TABLE,
    ),
    "nl.loop_reduce": (
        "out = nl.zeros((2, 1), dtype=nl.float32)\n"
        "for i in nl.affine_range(4):\n"
        "    out = nl.loop_reduce(x[:, nl.ds(i, 1)], op=np.add, loop_indices=[i])",
        TABLE,
    ),
    "nl.rand": ("out = nl.less(nl.rand((1, 4)), 1.0)", {}),
    "nl.dropout": ("out = nl.dropout(x, rate=0.0)", TABLE),
    "nisa.dropout": ("out = nisa.dropout(x, prob=1.0)", TABLE),
    "nisa.range_select": (
        "low = nl.full((2, 1), 1, dtype=nl.float32, buffer=nl.sbuf)\n"
        "high = nl.full((2, 1), 3, dtype=nl.float32, buffer=nl.sbuf)\n"
        "out = nisa.range_select(\n"
        "    on_true_tile=x, comp_op0=np.greater_equal, bound0=low,\n"
        "    comp_op1=np.less, bound1=high, reduce_op=np.max)",
        TABLE,
    ),
    "nisa.tensor_copy_dynamic_src": (
        "i_p, i_f = nl.mgrid[0:2, 0:2]\nout = nisa.tensor_copy_dynamic_src(x[i_p, y[0, 0] + i_f])",
        TABLE | {"y": np.array([[1]], np.int32)},
    ),
    "nisa.tensor_copy_dynamic_dst": (
        "i_p, i_f = nl.mgrid[0:2, 0:2]\n"
        "out = nl.zeros((2, 4), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.tensor_copy_dynamic_dst(dst=out[i_p, y[0, 0] + i_f], src=x[i_p, i_f])",
        TABLE | {"y": np.array([[1]], np.int32)},
    ),
}

TRN2 = {"nisa.range_select"}  # names that the first generation does not have


def run(name: str) -> str:
    """The example of a name as text: its inputs, its lines, its result."""
    body, inputs = EXAMPLES[name]
    source = (
        f"def example({', '.join(f'{tile}_hbm' for tile in inputs)}):\n"
        + "".join(f"    {tile} = nl.load({tile}_hbm)\n" for tile in inputs)
        + textwrap.indent(body, "    ")
        + "\n    y_hbm = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.shared_hbm)\n"
        + "    nl.store(y_hbm, value=out)\n    return y_hbm\n"
    )
    # The tracer looks kernel lines up in their file.
    filename = f"<example of {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space = {"nki": nki, "nl": nl, "nisa": nisa, "ncc": ncc, "np": np}
    exec(compile(source, filename, "exec"), space)
    kernel = nki.jit(space["example"], platform_target="trn2" if name in TRN2 else "trn1")
    result = nki.simulate_kernel(kernel, *inputs.values())
    given = "".join(f"{tile} = {_array(values)}\n" for tile, values in inputs.items())
    return f"{given}{body}\n# out: {_array(result)}"


def _array(values: np.ndarray) -> str:
    """A few numbers as nested lists, in four digits."""
    rows = np.asarray(values)
    rows = np.round(rows.astype(np.float64), 4) if rows.dtype.kind == "f" else rows
    text = str(rows.tolist())
    return text if len(text) <= 130 else f"{text[:50]} ... {text[-50:]}"


def signature(found: object) -> str:
    """The parameters of a function or a class, without annotations."""
    shown = inspect.signature(found)  # type: ignore[arg-type]
    parameters = [p.replace(annotation=p.empty) for p in shown.parameters.values()]
    return str(shown.replace(parameters=parameters, return_annotation=shown.empty))
