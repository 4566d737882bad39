"""The Scalar Engine: activation functions, and sums of their results on the side."""

from __future__ import annotations

import functools
from typing import Any

from nkisim.errors import DTypeError, ParameterError, locate
from nkisim.frontends.neuronxcc.lowering import chain as lowering
from nkisim.frontends.neuronxcc.lowering.elementwise import operator_name
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import lane_result, one_of, require_tile
from nkisim.frontends.neuronxcc.lowering.registers import accumulate
from nkisim.frontends.neuronxcc.nki.isa.constants import reduce_cmd
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import F32
from nkisim.numerics import alu
from nkisim.trace.tracer import current


@remembered
def activation(
    op: Any,
    data: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | float = 1.0,
    reduce_op: Any = None,
    reduce_res: Tensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """`op(data * scale + bias)` on the Scalar Engine, fp32 inside.

    The engine has one accumulator register a partition. With `reduce_cmd` it reduces the result
    over all free axes into these registers, starting anew (reset_reduce) or from their contents
    (reduce); `reduce_res` receives the contents.

    Args:
        op: an activation function, as an `nki.language` or NumPy function.
        data: tile in SBUF or PSUM.
        bias: tile of shape (partitions, 1), float32, float16 or bfloat16.
        scale: a number, or a float32 tile of shape (partitions, 1).
        reduce_op: add (the only one on NeuronCore-v2).
        reduce_res: tile of shape (partitions, 1), written.
        reduce_cmd: what to do with the accumulators.
        mask: where to compute, and what counts.
        dtype: output type; data's when None.

    Returns:
        An SBUF tile of data's shape.

    Raises:
        ParameterError: reduce_cmd reduces, and there is no reduce_op.
    """
    what = "nisa.activation"
    data, name = require_tile(what, data), operator_name(op)
    one_of(what, name, alu.ACTIVATIONS)
    _check_affine(what, name, bias, scale)
    out = ndarray(data.shape, data.dtype if dtype is None else dtype)
    numbers = {"scale": scale, "bias": 0.0 if bias is None else bias}
    if reduce_op is not None:
        _only_add(what, reduce_op)
    if reduce_cmd == _cmd.idle and reduce_res is None:
        lowering.activate(name, data, out, mask=mask, **numbers)
        return out
    if reduce_cmd in (_cmd.reduce, _cmd.reset_reduce) and reduce_op is None:
        raise ParameterError(
            f"{what}: reduce_cmd={reduce_cmd!r} without reduce_op",
            rule="a reduction needs its operator",
            fix="pass reduce_op=nl.add",
        )
    res = None if reduce_res is None else lane_result(f"{what}: reduce_res", reduce_res, data)
    accumulate(
        "Scalar Engine",
        reduce_cmd.name,
        data,
        res,
        "add",
        idle=lambda: lowering.activate(name, data, out, mask=mask, **numbers),
        reduce=functools.partial(lowering.activate, name, data, out, mask=mask, **numbers),
    )
    return out


_cmd = reduce_cmd


def _only_add(what: str, reduce_op: Any) -> None:
    name = operator_name(reduce_op)
    if name != "add":
        raise ParameterError(
            f"{what}: reduce_op {name}",
            rule="the Scalar Engine accumulates by addition only",
            fix="pass reduce_op=nl.add, or reduce with nisa.tensor_reduce",
        )


def _check_affine(what: str, op: str, bias: object, scale: object) -> None:
    """Types of scale and bias, and the functions that take none."""
    if bias is not None and not isinstance(bias, Tensor):
        raise ParameterError(
            f"{what}: bias={bias!r}",
            rule="the bias is a tile of shape (partitions, 1)",
            fix="make one: nl.full((partitions, 1), value, dtype=nl.float32)",
        )
    if bias is not None and bias.dtype.name not in ("float32", "float16", "bfloat16"):
        raise DTypeError(
            f"{what}: bias is {bias.describe()}",
            rule="the bias is float32, float16 or bfloat16",
            fix="convert it: nl.copy(bias, dtype=nl.float32)",
            code="err_activation_bias_invalid_type",
        )
    if isinstance(scale, Tensor) and scale.dtype != F32:
        raise DTypeError(
            f"{what}: scale is {scale.describe()}",
            rule="a scale tile is float32",
            fix="convert it: nl.copy(scale, dtype=nl.float32)",
            code="err_activation_scale_invalid_type",
        )
    machine = current().trace.machine
    if op == "copy" and bias is not None and not machine.abilities.number_as_bias:
        error = ParameterError(
            f"{what}: copy with a bias tile on {machine.name}",
            rule="users report of its compiler: [NCC_IBVF043] Activation function with type Copy "
            "only supports immediate bias; AWS's page says that a bias is a tile, of any function",
            fix="add the tile with nisa.tensor_scalar(data, nl.add, bias)",
            location=locate(),
        )
        current().checker.report("compiler", error)
    if op == "reciprocal" and bias is not None and not machine.abilities.reciprocal_bias:
        raise ParameterError(
            f"{what}: reciprocal with a bias",
            rule=f"on {machine.name} the Scalar Engine's reciprocal takes no bias",
            fix="add first with nisa.tensor_scalar, or use nisa.reciprocal",
        )


@remembered
def activation_reduce(
    op: Any,
    data: Tensor,
    *,
    reduce_op: Any,
    reduce_res: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | float = 1.0,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """`activation`, and the sum of its result over all free axes in `reduce_res`.

    Args, returns: as for `activation` with reduce_cmd=reset_reduce.
    """
    return activation(
        op,
        data,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_res=reduce_res,
        reduce_cmd=reduce_cmd.reset_reduce,
        mask=mask,
        dtype=dtype,
    )


__all__ = ["activation", "activation_reduce"]
