"""Brings the tensors of an instruction to one iteration domain.

An instruction asks for as many elements in each partition, not for one shape: a (128, 512) tensor
goes with a (128, 4, 128) one. Each is walked by axes that both have.
"""

from __future__ import annotations

from math import prod

from nkisim.errors import DTypeError, ParameterError, ShapeError, TileSizeError
from nkisim.frontends.nki.session import Walk
from nkisim.frontends.nki.tensors.layout import Ints, merged, refined
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.machine import GENERATIONS, Machine

_PARTITIONS = 128


def check_on_chip(call: str, **tensors: NkiTensor | None) -> None:
    """Raises TileSizeError for an operand of more than 128 partitions."""
    for name, t in tensors.items():
        if t is None:
            continue
        if t._layout.on_chip and t.shape[0] > _PARTITIONS:
            raise TileSizeError(
                f"{call}: {name} is {t.describe()}",
                rule=f"an instruction reaches at most {_PARTITIONS} partitions",
                fix="loop over tiles of 128 partitions",
            )


def check_generation(call: str, machine: Machine, fix: str) -> None:
    """Raises ParameterError for an instruction that a generation does not have."""
    name = call.removeprefix("nisa.")
    if name not in machine.abilities.instructions:
        first = next(m for m in GENERATIONS if name in m.abilities.instructions)
        raise ParameterError(
            f"{call} on {machine.name}",
            rule=f"it needs {first.name} ({first.instances.lower()})",
            fix=fix,
        )


def check_float32(call: str, **operands: NkiTensor | float | None) -> None:
    """Raises DTypeError for an operand that is a tile of another type than float32."""
    for name, x in operands.items():
        if isinstance(x, NkiTensor) and x.dtype != "float32":
            raise DTypeError(
                f"{call}: {name} is {x.describe()}",
                rule=f"a tile as {name} is float32",
                fix="convert it with nisa.tensor_copy into a float32 tile",
            )


def free_of(t: NkiTensor) -> int:
    """Elements in a partition."""
    return prod(t.shape[1:])


def same_domain(call: str, *tensors: NkiTensor) -> tuple[Walk, ...]:
    """Walks of tensors on chip that have as many partitions, and elements in each.

    Raises:
        ShapeError: they have not, or no axes that all of them have.
    """
    first = tensors[0]
    lanes, count = first.shape[0], free_of(first)
    for t in tensors[1:]:
        if t.shape[0] != lanes or free_of(t) != count:
            raise ShapeError(
                f"{call}: {first.describe()} and {t.describe()}",
                rule="operands have as many partitions, and as many elements in each; there is no "
                "broadcasting",
                fix=_to_one_size(first, t),
            )
    return tuple(
        ((lanes, *shape), (t._layout.strides[0], *steps))
        for t, (shape, steps) in zip(tensors, free_walks(call, tensors), strict=True)
    )


def _to_each_partition(row: NkiTensor, lanes: int) -> str:
    """How to have what one partition holds in several."""
    count = free_of(row)
    return (
        f"load the row into each partition: t = nl.ndarray(({lanes}, {count}), "
        f"dtype=nl.{row.dtype}, buffer=nl.sbuf), then nisa.dma_copy(dst=t, "
        f"src=row.ap([[0, {lanes}], [1, {count}]])), where row is in HBM"
    )


def _to_one_size(x: NkiTensor, y: NkiTensor) -> str:
    """How to give two tensors as many partitions, and elements in each."""
    for one, other in ((x, y), (y, x)):
        lanes, whole = other.shape[0], one._declared
        if one.shape[0] == 1 < lanes and free_of(one) == free_of(other):
            return _to_each_partition(one, lanes)
        if one.shape[0] == 1 and one.shape[1] == lanes and whole[1:2] == (lanes,) and whole[0] > 1:
            turned = (lanes, whole[0], *whole[2:])
            index = ", ".join([":", "i", *[":"] * (len(whole) - 2)])
            return (
                f"axis 0 of {list(whole)} is its partition axis: declare it as {turned}, and take "
                f"t[{index}] for t[{', '.join(['i', *[':'] * (len(whole) - 1)])}]"
            )
        if one.shape[0] == lanes and one.ndim == other.ndim:
            narrow = [d for d in range(1, one.ndim) if one.shape[d] != other.shape[d]]
            if all(one.shape[d] == 1 for d in narrow):
                calls = "".join(f".broadcast({d}, {other.shape[d]})" for d in narrow)
                return f"repeat what there is one of: t{calls} of {one.describe()}"
    return "slice the tensors to one size"


def free_walks(call: str, tensors: tuple[NkiTensor, ...]) -> list[tuple[Ints, Ints]]:
    """The free axes of tensors, of as many elements, walked by the same extents."""
    walks = tuple([merged(t._layout.shape[1:], t._layout.strides[1:]) for t in tensors])
    return common(call, tensors, walks)


def common(
    call: str, tensors: tuple[NkiTensor, ...], walks: tuple[Walk, ...]
) -> list[tuple[Ints, Ints]]:
    """Walks over as many elements, by the same extents. At least one axis."""
    first = walks[0][0]
    if all([w[0] == first for w in walks]):
        shape, strides = first, [w[1] for w in walks]
    else:
        found = refined(walks)
        if found is None:
            shapes = " and ".join(str(list(t.shape)) for t in tensors)
            raise ShapeError(
                f"{call}: views of shapes {shapes}, which are not contiguous",
                rule="an instruction walks its operands by axes that all of them have; these do "
                "not divide each other",
                fix="copy one of them into a contiguous tensor first",
            )
        shape, strides = found
    if not shape:
        return [((1,), (1,)) for _ in walks]
    return [(shape, own) for own in strides]


def _to_a_column(t: NkiTensor, lanes: int) -> str:
    """How to give a tensor one element in each of some partitions."""
    if t.shape[0] == 1 < lanes and free_of(t) == 1:
        return _to_each_partition(t, lanes)
    if t.shape[0] != lanes:
        return f"give it {lanes} partitions, as the data has"
    return "slice it to one column, t[:, 0:1], or use nisa.tensor_tensor for a whole tensor"


def vector(call: str, name: str, t: NkiTensor, lanes: int, axes: int) -> Walk:
    """The walk of a (P, 1) operand, one element a partition, beside tensors of some axes.

    Raises:
        ShapeError: it has another shape.
    """
    if t.shape[0] != lanes or free_of(t) != 1:
        raise ShapeError(
            f"{call}: {name} is {t.describe()}",
            rule=f"{name} is a number, or a ({lanes}, 1) tensor: one element a partition",
            fix=_to_a_column(t, lanes),
        )
    return (lanes, *[1] * (axes - 1)), (t._layout.strides[0], *[1] * (axes - 1))
