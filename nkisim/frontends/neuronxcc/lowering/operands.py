"""Checking and broadcasting the operands of an operation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from nkisim.errors import MemorySpaceError, ParameterError, ShapeError, TileSizeError, locate
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.numbers import brief, number
from nkisim.frontends.neuronxcc.tensors.index import broadcast_shapes
from nkisim.frontends.neuronxcc.tensors.indirect import IndirectTensor
from nkisim.frontends.neuronxcc.tensors.reshaping import as_tile, expand_dims, once
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Space
from nkisim.ir.restriction import Restriction
from nkisim.trace.tracer import current, current_if_any


def require_tensor(what: str, x: object) -> None:
    """Raises ParameterError unless `x` is a Tensor; `what` names the function."""
    if not isinstance(x, Tensor):
        tracer = current_if_any()
        if tracer is not None and tracer.trace.rules.dialect == "nki":
            raise ParameterError(
                f"{what} of neuronxcc.nki is called in {tracer.trace.name}, a kernel of nki",
                rule="a kernel is written in one dialect",
                fix="import nki.language as nl and nki.isa as nisa; their instructions take the "
                "destination first, and return none",
            )
        if isinstance(x, IndirectTensor):
            raise ParameterError(
                f"{what} is given a view of shape {tuple(x.shape)} that a tile indexes",
                rule="views indexed with a tile are for nl.load, nl.store and the copies and "
                "gathers of nki.isa",
                fix="copy the view with nisa.tensor_copy_dynamic_src first, or index with what is "
                "known while tracing",
            )
        raise ParameterError(
            f"{what} is given {brief(x)}",
            rule=f"{what} takes an NKI tensor",
            fix="pass the array as an argument of the kernel, or, if it never changes, "
            "nl.shared_constant(array)"
            if isinstance(x, np.ndarray)
            else "pass a kernel argument, an nl.ndarray or a tile",
        )


def require_on_chip(op: str, tile: Tensor) -> None:
    """Raises MemorySpaceError when `tile` is in HBM; `op` names the function."""
    if not tile.space.on_chip:
        raise MemorySpaceError(
            f"nl.{op} is given {tile.describe()}",
            rule="compute engines reach SBUF and PSUM only; HBM is reached by DMA",
            fix=_LOAD if tile.shape else _as_number(tile.name),
            code="err_unsupported_memory",
        )


def domain(what: str, tiles: Sequence[Tensor]) -> tuple[tuple[int, ...], list[Tensor]]:
    """The shape that tiles broadcast to, and the tiles, with a partition and a free axis at least.
    One value a partition, `t[:, 3]`, has as many free axes as the others.

    Raises:
        ShapeError: they do not broadcast, or a partition axis would come to lie on a free one.
    """
    ndim = max([2, *(t.ndim for t in tiles)])
    wide = []
    for tile in tiles:
        is_column = tile.ndim < 2 and not tile.is_row
        tile = as_tile(tile)
        while is_column and tile.ndim < ndim:
            tile = tile.expand_dims(tile.ndim)
        wide.append(tile)
    try:
        shape = broadcast_shapes(*[t.shape for t in wide])
    except ValueError:
        shape = None
    if shape is None or any([t.ndim < len(shape) and t.shape[0] > 1 for t in wide]):
        raise ShapeError(
            f"{what} of "
            + " and ".join([t.describe() for t in tiles])
            + ": shapes "
            + " and ".join([str(t.shape) for t in tiles]),
            rule="operand shapes follow NumPy's broadcasting rule, and the first axis of each "
            "tile, its partition axis, is the first axis of the result",
            fix="give the tiles as many axes, each as long as the other's or 1: drop axes of size "
            "1, t[:, :, 0], or add some behind, t[:, :, None]; rows and columns are exchanged with "
            "nl.transpose",
        )
    return shape, wide


def spread(tile: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tile` with the shape of the iteration domain: a view, or a copy across partitions.

    Raises:
        ShapeError: it does not broadcast to the shape, or its partition axis would come to lie on
            a free one.
    """
    if tile.shape == shape:
        return tile
    wide = tile.broadcast_to(shape)
    if tile.ndim < 2:
        tile = as_tile(tile)
    if tile.ndim < len(shape) and tile.shape[0] > 1:
        raise ShapeError(
            f"{tile.describe()}, of shape {tile.shape}, is broadcast to {shape}",
            rule="the first axis of a tile is its partition axis, and that of what it is broadcast "
            "to",
            fix="add axes behind: t[:, :, None]",
        )
    if tile.ndim == len(shape) and tile.shape[0] == shape[0]:
        return wide
    row = (shape[0],) + (tile.shape[1:] if tile.ndim == len(shape) else shape[1:])
    spread = ndarray(row, tile.dtype, name=tile.derived_name)
    current().emit("partition_broadcast", (spread,), (tile.broadcast_to(row),))
    return spread.broadcast_to(shape)


def fit(value: Tensor, target: Tensor, what: str) -> Tensor:
    """`value` broadcast to the shape of `target`. Axes that it lacks are its last ones, and have
    size 1: a public kernel assigns a (128, 1) column to a (128, 128, 1) part of a tile, and reports
    the compiler's "from (128, 1) to (128, 1, 1)" for a (1, 128, 1) part."""
    if value.shape == target.shape:
        return value
    if value.space.on_chip:
        value = as_tile(value)
    given, lacking = value, target.ndim - value.ndim
    if value.space.on_chip and lacking > 0 and value.shape[0] > 1:
        for _ in range(lacking):
            value = expand_dims(value, value.ndim)
    try:
        return spread(value, target.shape)
    except ShapeError:
        raise ShapeError(
            f"{what}: {given.describe()} does not fit {target.describe()}",
            rule="the value has the target's shape, or size 1 where it is repeated; axes that it "
            "lacks are its last ones",
            fix="give the value the axes of the target, t[:, None, :], or index the target with "
            "those of the value",
        ) from None


_LOAD = "nl.load the tensor into SBUF first"


def _as_number(name: str) -> str:
    """How to pass a number that a framework made an array of, without axes."""
    return (
        f"pass {name or 'it'} as a number that is known when the kernel is traced, which under "
        f"jax.jit is functools.partial(kernel, {name or 's'}=2.0) or static_argnames; or nl.load it"
    )


def require_tile(what: str, x: object, fix: str = _LOAD) -> Tensor:
    """`x` as an on-chip tile with a partition and a free axis; `fix` is for what is in HBM.

    Raises:
        ParameterError: `x` is not a tensor.
        MemorySpaceError: `x` is in HBM.
    """
    require_tensor(what, x)
    if not x.space.on_chip:
        raise MemorySpaceError(
            f"{what} is given {x.describe()}",
            rule="compute engines reach SBUF and PSUM only; HBM is reached by DMA",
            fix=fix if x.shape else _as_number(x.name),
            code="err_unsupported_memory",
        )
    return as_tile(x)


def lane_operand(what: str, x: object, domain: Tensor, code: str | None = None) -> Tensor | float:
    """A number, or a (partitions, 1) tile spread over the free axes of `domain`.

    Args:
        what: the operand, for messages.
        x: what it was given.
        domain: the tile that the instruction goes over.
        code: AWS's name for the error that a tile of another shape is.

    Raises:
        ShapeError: a tile that does not have one element a partition.
    """
    if not isinstance(x, Tensor):
        return number(x)
    vector = once(require_tile(what, x))
    if vector.shape[0] != domain.shape[0] or vector.size != domain.shape[0]:
        raise ShapeError(
            f"{what} is {vector.describe()}, for data of shape {domain.shape}",
            rule=f"it is a number or a tile of shape ({domain.shape[0]}, 1): one element for each "
            "partition of the data",
            fix="index one column of the tile, or use nisa.tensor_tensor for a whole tile"
            if vector.shape[0] == domain.shape[0]
            else f"spread it over the partitions: t.broadcast_to(({domain.shape[0]}, 1))"
            if vector.size == 1
            else "slice both to the same partitions",
            code=code,
        )
    return lane_view(vector, domain).broadcast_to(domain.shape)


def lane_view(vector: Tensor, domain: Tensor) -> Tensor:
    """A tile with one element a partition, with as many axes as `domain`."""
    while vector.ndim > domain.ndim:
        vector = vector[..., 0]
    while vector.ndim < domain.ndim:
        vector = vector.expand_dims(vector.ndim)
    return vector


def lane_result(what: str, x: object, domain: Tensor) -> Tensor:
    """A (partitions, 1) tile that an instruction writes one element a partition into."""
    declare = f"declare nl.ndarray(({domain.shape[0]}, 1), dtype=nl.float32)"
    vector = once(require_tile(what, x, fix=f"{declare}, and nl.store it afterwards"))
    if vector.shape[0] != domain.shape[0] or vector.size != domain.shape[0]:
        raise ShapeError(
            f"{what} is {vector.describe()}, for data of shape {domain.shape}",
            rule=f"it is a tile of shape ({domain.shape[0]}, 1): one element a partition",
            fix=declare,
        )
    return lane_view(vector, domain)


def narrow(x: Tensor, left: Restriction, axes: tuple[int, ...] | None = None) -> Tensor:
    """The part of `x` that a restriction of the iteration domain leaves.

    Args:
        x: an operand whose leading axes are the domain's.
        left: what a mask leaves of the domain.
        axes: the axes that `x` shares with the domain; all when None.
    """
    if axes is None:
        return x.restrict(left.box)
    box = tuple(left.box[d] if d in axes else (0, n) for d, n in enumerate(x.shape))
    return x.restrict(box)


def same_shape(what: str, a: Tensor, b: Tensor) -> None:
    """Raises ShapeError unless two tiles have equal partitions and elements a partition."""
    if a.shape != b.shape:
        raise ShapeError(
            f"{what} of {a.describe()} and {b.describe()}",
            rule="the tiles have the same partitions and the same elements a partition",
            fix="slice both alike, or spread one over the partitions or the elements of the other, "
            "t.broadcast_to(shape); nisa.tensor_scalar takes one element a partition as it is",
            code="err_num_partition_mismatch" if a.shape[0] != b.shape[0] else None,
        )


def same_elements(what: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two tiles as views of one shape, that of the first: an instruction knows partitions and the
    elements of each, in order. A free axis of size 1 is read again and again where the other tile
    has more, which is an access pattern with a step of 0, as is a tile of one element a partition.

    Raises:
        ShapeError: other partitions, or other elements a partition.
    """
    if a.shape == b.shape:
        return a, b
    if a.shape[:1] == b.shape[:1]:
        of_a, of_b = prod(a.shape[1:]), prod(b.shape[1:])
        if of_b == 1:
            b = lane_view(b, a)
        elif of_a == 1:
            a = lane_view(a, b)
        elif of_a == of_b and not _spread_over_each_other(a, b):
            b = b.reshape(a.shape)
        if _spread_over_each_other(a, b):
            shape = tuple(map(max, a.shape, b.shape))
            return a.broadcast_to(shape), b.broadcast_to(shape)
    same_shape(what, a, b)
    return a, b


def _spread_over_each_other(a: Tensor, b: Tensor) -> bool:
    """Whether two tiles have as many axes, and each is as long as the other's, or 1."""
    return a.ndim == b.ndim and all(
        m == n or 1 in (m, n) for m, n in zip(a.shape, b.shape, strict=True)
    )


def not_both_in_psum(what: str, a: object, b: object) -> None:
    """Raises MemorySpaceError when two operands are both in PSUM."""
    if all([isinstance(x, Tensor) and x.space is Space.PSUM for x in (a, b)]):
        raise MemorySpaceError(
            f"{what} of {a.describe()} and {b.describe()}, both in PSUM",
            rule="an engine reads at most one of the two from PSUM",
            fix="copy one into SBUF first, with nisa.tensor_copy",
        )


def one_of(what: str, name: str, allowed: frozenset[str] | set[str]) -> str:
    """`name`. Raises ParameterError unless it is among `allowed`."""
    if name not in allowed:
        raise ParameterError(
            f"{what}: operator {name}",
            rule="this instruction has the operators " + ", ".join(sorted(allowed)),
            fix="pass one of these, as an nki.language or NumPy function",
        )
    return name


def require_elements(what: str, x: Tensor, low: int, high: int) -> int:
    """Elements a partition of `x`. Raises ShapeError unless they lie in low..high."""
    n = prod(x.shape[1:])
    if not low <= n <= high:
        raise ShapeError(
            f"{what} of {x.describe()}: {n} elements a partition",
            rule=f"{low} to {high} elements a partition",
            fix="divide the tile along its free axes, or pad it",
        )
    return n


def require_one_bank(target: Tensor) -> None:
    """Report TileSizeError where a product is written to several banks of PSUM: to part of a tile
    that is larger than a bank, and starts at one."""
    trace = current().trace
    bank, buffer = trace.machine.psum_bank_bytes, target.buffer
    if buffer.partition_bytes <= bank or target.size == 0:
        return
    low = high = 0
    free = slice(buffer.par_axis + 1, None)
    for (first, last), size in zip(target.bounds()[free], target.base_shape[free], strict=True):
        low, high = low * size + first, high * size + last
    if low * target.itemsize // bank == high * target.itemsize // bank:
        return
    error = TileSizeError(
        f"a product is written to {target.describe()}, elements {low} to {high} of a partition",
        rule=f"a product is written to one bank of PSUM, {bank:,} bytes a partition, and a tile "
        "starts at a bank",
        fix=f"divide it so that each part lies in one bank: elements 0 to "
        f"{bank // target.itemsize - 1}, {bank // target.itemsize} to "
        f"{2 * bank // target.itemsize - 1}, and so on",
        location=locate(),
    )
    current().checker.report("tile", error)
