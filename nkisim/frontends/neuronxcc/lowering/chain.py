"""Instructions of two steps, and those that reduce their result on the side.

tensor_scalar does (data op0 operand0) op1 operand1, activation does op(data * scale + bias).
"""

from __future__ import annotations

from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.lowering.operands import lane_operand, lane_view, narrow, one_of
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.instruction import Engine
from nkisim.numerics import alu
from nkisim.trace.tracer import current

Steps = tuple[tuple[str, bool], ...]  # (operator, whether its operands are swapped)


def chain(
    opcode: str,
    out: Tensor,
    *,
    x: Tensor,
    steps: Steps,
    rest: tuple,
    mask: Mask | None = None,
    engine: Engine | None = None,
    default: Engine | None = None,
    **attrs: Any,
) -> None:
    """Write down (x op0 rest[0]) op1 rest[1]; a tile of `rest` has x's shape or one element a
    partition."""
    operands = tuple([
        r if isinstance(r, Tensor) and r.shape == x.shape else lane_operand(f"operand{i}", r, x)
        for i, r in enumerate(rest)
    ])  # fmt: skip
    current().emit(
        opcode, (out,), (x, *operands), mask=mask, engine=engine, default=default,
        op=_spell(steps), steps=steps, **attrs,
    )  # fmt: skip


def _spell(steps: Steps) -> str:
    return ", ".join(name for name, _ in steps)


def with_reductions(
    opcode: str,
    out: Tensor,
    ins: tuple,
    *,
    reduce_op: str,
    reductions: tuple[Tensor, ...],
    mask: Mask | None,
    before: Tensor | None = None,
    **attrs: Any,
) -> None:
    """Write down an elementwise instruction that also reduces its result over all free axes.

    Args:
        opcode: an opcode whose outputs are the result and its reductions.
        out: the result.
        ins: operands, tiles spread over out's shape.
        reduce_op: the reduction.
        reductions: (partitions, 1) tiles that receive it.
        mask: which elements are computed and count.
        before: what was accumulated before, to reduce on from.
    """
    left = restriction(mask, out.shape)
    if left.empty:
        return
    seen = None
    if left.dense is not None:
        seen = left.dense.any(axis=tuple(range(1, out.ndim)), keepdims=True)
        if not seen.all():
            raise ParameterError(
                "a reduction under a mask that leaves some partitions empty",
                rule="every partition of the result has at least one element",
                fix="mask whole partitions with a condition on the partition index alone",
            )

    def part(x: Tensor, axes: tuple[int, ...] | None = None) -> Tensor:
        return x if mask is None else narrow(x, left, axes)

    vectors = [part(lane_view(r, out), (0,)) for r in reductions]
    operands = [part(x) if isinstance(x, Tensor) else x for x in ins]
    if before is not None:
        operands.append(part(lane_view(before, out), (0,)))
        attrs["accumulate"] = True
    current().emit(
        opcode,
        (part(out), *vectors),
        tuple(operands),
        where=left.dense,
        reduce_op=reduce_op,
        **attrs,
    )


def activate(
    op: str,
    x: Tensor,
    out: Tensor,
    *,
    scale: Tensor | float = 1.0,
    bias: Tensor | float = 0.0,
    mask: Mask | None = None,
    reduce_op: str = "add",
    reductions: tuple[Tensor, ...] = (),
    before: Tensor | None = None,
) -> None:
    """Write down op(x * scale + bias) on the Scalar Engine, with reductions if asked for."""
    one_of("nisa.activation", op, alu.ACTIVATIONS)
    wide = "err_activation_scale_scalar_or_vector"
    ins = (x, lane_operand("scale", scale, x, wide), lane_operand("bias", bias, x))
    if not reductions:
        current().emit("activation", (out,), ins, mask=mask, engine=Engine.SCALAR, op=op)
        return
    with_reductions(
        "activation_reduce", out, ins, reduce_op=reduce_op, reductions=reductions, mask=mask,
        before=before, op=op,
    )  # fmt: skip
