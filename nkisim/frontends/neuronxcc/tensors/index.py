"""Index expressions: affine functions of tile coordinates, and the masks made from them.

`nl.arange` and `nl.mgrid` do not hold arrays of indices. They hold, for each axis of the index,
how fast the value grows along it. Indexing a tensor with them therefore gives a strided access
pattern, which is what the hardware's address generators use and what NumPy can view at no cost.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from nkisim.errors import ControlFlowError, IndexingError, ShapeError
from nkisim.ir.access import affine_values
from nkisim.ir.integers import as_int
from nkisim.ir.restriction import Restriction


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcasting rule, as a plain tuple of ints. Raises ValueError if they clash."""
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    return np.broadcast_shapes(*shapes)


class IndexTensor:
    """`offset + sum(coefs[d] * i_d)` over the coordinates `i` of an index of shape `shape`.

    Args:
        shape: extents of the index.
        coefs: growth along each axis; 0 along an axis of size 1.
        offset: value at coordinate zero.
    """

    __slots__ = ("coefs", "offset", "shape")
    __array_ufunc__ = None  # so that NumPy scalars on the left defer to our operators

    def __init__(
        self,
        shape: tuple[int, ...],
        coefs: tuple[int, ...],
        offset: int = 0,
    ) -> None:
        self.shape = shape
        self.coefs = coefs
        self.offset = offset

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def values(self) -> np.ndarray:
        """The index as a dense array of shape `shape`."""
        return affine_values(self.shape, self.coefs, self.offset)

    def expand(self, shape: tuple[int, ...]) -> IndexTensor:
        """This index broadcast to `shape`."""
        if shape == self.shape:
            return self
        pad = (0,) * (len(shape) - self.ndim)
        return IndexTensor(shape, pad + self.coefs, self.offset)

    def __getitem__(self, key: object) -> IndexTensor:
        """Only new axes: `i[:, None]`, `i[None, :]`."""
        if type(key) is tuple and len(key) == 2 and len(self.shape) == 1:  # mostly
            for at, other in ((0, 1), (1, 0)):
                if key[at] is None and _is_whole(key[other]):
                    return _with_axis(at, self.shape[0], self.coefs[0], self.offset)
        keys = key if isinstance(key, tuple) else (key,)
        dots = [at for at, k in enumerate(keys) if k is Ellipsis]
        if dots:
            at = dots[0]
            room = self.ndim - sum(k is not None for k in keys) + 1
            keys = keys[:at] + (slice(None),) * room + keys[at + 1 :]
        shape: list[int] = []
        coefs: list[int] = []
        axis = 0
        for k in keys:
            if k is None:
                shape.append(1)
                coefs.append(0)
            elif _is_whole(k) and axis < self.ndim:
                shape.append(self.shape[axis])
                coefs.append(self.coefs[axis])
                axis += 1
            else:
                raise IndexingError(
                    f"an index tensor of shape {self.shape} cannot be indexed with {k!r}",
                    rule="index tensors only take new axes: i[:, None] or i[None, :]",
                    fix="build the range you want with nl.arange(start, stop)",
                )
        shape += self.shape[axis:]
        coefs += self.coefs[axis:]
        return IndexTensor(tuple(shape), tuple(coefs), self.offset)

    def __setitem__(self, key: object, value: object) -> None:
        raise IndexingError(
            "an index tensor cannot be assigned to",
            rule="nl.arange and nl.mgrid describe addresses; they are not memory",
            fix="materialise it as a tile with nisa.iota first",
            code="err_cannot_assign_to_index",
        )

    def __bool__(self) -> bool:
        raise ControlFlowError(
            "Python control flow depends on an index tensor",
            rule="nl.arange and nl.mgrid stand for many values at once, so `if` cannot test them",
            fix="pass the condition as mask= to the operation",
            code="err_control_flow_condition_depending_on_arange",
        )

    def __iter__(self) -> Iterator:
        raise ControlFlowError(
            "Python iterates over an index tensor",
            rule="nl.arange and nl.mgrid stand for many values at once",
            fix="loop with nl.affine_range(n) instead",
        )

    def _combine(self, other: object, sign: int) -> IndexTensor:
        number = as_int(other)
        if number is not None:
            return IndexTensor(self.shape, self.coefs, self.offset + sign * number)
        if isinstance(other, float | np.floating):
            raise IndexingError(
                f"an index and {other!r}",
                rule="addresses are whole numbers",
                fix="divide with //, which gives an integer, and compare with an integer",
            )
        if not isinstance(other, IndexTensor):
            return NotImplemented
        try:
            shape = broadcast_shapes(self.shape, other.shape)
        except ValueError:
            raise ShapeError(
                f"index shapes {self.shape} and {other.shape} do not broadcast",
                rule="index tensors follow NumPy's broadcasting rule",
                fix="give each its own axis, e.g. nl.arange(128)[:, None] and "
                "nl.arange(512)[None, :]",
            ) from None
        a, b = self.expand(shape), other.expand(shape)
        coefs = tuple(x + sign * y for x, y in zip(a.coefs, b.coefs, strict=True))
        return IndexTensor(shape, coefs, a.offset + sign * b.offset)

    def __add__(self, other: object) -> IndexTensor:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: object) -> IndexTensor:
        return self._combine(other, -1)

    def __rsub__(self, other: object) -> IndexTensor:
        return (-self)._combine(other, 1)

    def __neg__(self) -> IndexTensor:
        return self * -1

    def __mul__(self, other: object) -> IndexTensor:
        number = as_int(other)
        if number is None:
            return self._not_affine("*", other)
        coefs = tuple(c * number for c in self.coefs)
        return IndexTensor(self.shape, coefs, self.offset * number)

    __rmul__ = __mul__

    def _not_affine(self, op: str, other: object) -> IndexTensor:
        raise IndexingError(
            f"index {op} {type(other).__name__} is not an affine expression",
            rule="addresses are sums of constants and multiples of nl.arange, nl.mgrid, "
            "nl.program_id and loop indices",
            fix="split a free axis in two index axes, e.g. 2 * nl.arange(n)[None, :, None] + "
            "nl.arange(2)[None, None, :]; on the partition axis, load rows that repeat in a loop, "
            "e.g. tile[nl.ds(4 * g, 4)] = nl.load(w[0:4]) for g in nl.affine_range(32)",
        )

    def __floordiv__(self, other: object) -> IndexTensor:
        return self._not_affine("//", other)

    def __mod__(self, other: object) -> IndexTensor:
        return self._not_affine("%", other)

    def __truediv__(self, other: object) -> IndexTensor:
        return self._not_affine("/", other)

    def __pow__(self, other: object) -> IndexTensor:
        return self._not_affine("**", other)

    __rfloordiv__ = __floordiv__
    __rmod__ = __mod__
    __rtruediv__ = __truediv__
    __rpow__ = __pow__

    def _at_least(self, other: object, gap: int) -> Mask:
        """The mask of `self - other >= gap`."""
        difference = self._combine(other, -1)
        if difference is NotImplemented:
            return NotImplemented
        return Mask((difference - gap,))

    def __ge__(self, other: object) -> Mask:
        return self._at_least(other, 0)

    def __gt__(self, other: object) -> Mask:
        return self._at_least(other, 1)

    def __le__(self, other: object) -> Mask:
        return (-self)._at_least(-other, 0)

    def __lt__(self, other: object) -> Mask:
        return (-self)._at_least(-other, 1)

    def __eq__(self, other: object) -> Mask:
        return (self >= other) & (self <= other)

    def __ne__(self, other: object) -> Mask:
        raise IndexingError(
            "a mask cannot be made with !=",
            rule="a mask is a conjunction of affine comparisons: <, <=, >, >=, ==",
            fix="split the operation in two, one with < and one with >",
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        terms = [f"{c}*i{d}" for d, c in enumerate(self.coefs) if c]
        if self.offset or not terms:
            terms.append(str(self.offset))
        return f"index{list(self.shape)}({' + '.join(terms)})"


@functools.lru_cache(maxsize=4096)
def _with_axis(at: int, size: int, coef: int, offset: int) -> IndexTensor:
    """An index of one axis, with a new axis in front (`at` 0) or behind."""
    if at == 0:
        return IndexTensor((1, size), (0, coef), offset)
    return IndexTensor((size, 1), (coef, 0), offset)


class Mask:
    """A conjunction of affine conditions, each `index >= 0`.

    Args:
        terms: the conditions.
    """

    __slots__ = ("terms",)
    __array_ufunc__ = None

    def __init__(self, terms: tuple[IndexTensor, ...]) -> None:
        self.terms = terms

    def __and__(self, other: object) -> Mask:
        if isinstance(other, Mask):
            return Mask(self.terms + other.terms)
        if isinstance(other, bool | np.bool_):
            return self if other else Mask((IndexTensor((), (), -1),))
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: object) -> Mask:
        return self._not_a_conjunction("|")

    __ror__ = __or__

    def __xor__(self, other: object) -> Mask:
        return self._not_a_conjunction("^")

    __rxor__ = __xor__

    def __invert__(self) -> Mask:
        return self._not_a_conjunction("~")

    def _not_a_conjunction(self, op: str) -> Mask:
        raise IndexingError(
            f"a mask is combined with {op}",
            rule="a mask is a conjunction of affine comparisons, joined with &",
            fix="split the operation in two with a mask each, or turn the comparison around",
            code="err_unsupported_expression_in_mask",
        )

    def __bool__(self) -> bool:
        raise ControlFlowError(
            "Python control flow depends on a mask",
            rule="a mask stands for many conditions at once; `and`, `or` and `if` cannot test it",
            fix="pass it as mask=, and join conditions with & instead of `and`",
            code="err_control_flow_condition_depending_on_arange",
        )

    def check_fits(self, shape: tuple[int, ...]) -> None:
        """Raises ShapeError unless the mask's own shape broadcasts to `shape`."""
        for term in self.terms:
            _fitted(term, shape)

    def permuted(self, shape: tuple[int, ...], order: Sequence[int]) -> Mask:
        """The mask of a tile of `shape`, for the same tile with its axes in another order.

        Args:
            shape: of the tile.
            order: for each new axis, the old one.

        Raises:
            ShapeError: the mask's own shape does not broadcast to `shape`.
        """
        terms = []
        for term in self.terms:
            wide = _fitted(term, shape)
            terms.append(
                IndexTensor(
                    tuple(wide.shape[d] for d in order),
                    tuple(wide.coefs[d] for d in order),
                    wide.offset,
                )
            )
        return Mask(tuple(terms))

    def restrict(self, shape: tuple[int, ...]) -> Restriction:
        """The restriction of a tile of `shape` to where the mask is true.

        Conditions on one axis shrink that axis's range. Conditions that couple axes (a triangle)
        leave a dense boolean array over the shrunken box.

        Raises:
            ShapeError: the mask's own shape does not broadcast to `shape`.
        """
        low = [0] * len(shape)
        high = list(shape)
        coupled: list[IndexTensor] = []
        for term in self.terms:
            wide = _fitted(term, shape)
            axes = [d for d, c in enumerate(wide.coefs) if c and shape[d] > 1]
            if not axes:
                if wide.offset < 0:
                    return Restriction(tuple((0, 0) for _ in shape), None)
            elif len(axes) == 1:
                d = axes[0]
                c = wide.coefs[d]
                if c > 0:  # offset + c*i >= 0
                    low[d] = max(low[d], -(wide.offset // c))
                else:
                    high[d] = min(high[d], wide.offset // -c + 1)
            else:
                coupled.append(wide)
        box = tuple((lo, max(lo, hi)) for lo, hi in zip(low, high, strict=True))
        if not coupled:
            return Restriction(box, None)
        dense: np.ndarray | None = None
        for term in coupled:
            start = term.offset + sum(c * lo for c, (lo, _) in zip(term.coefs, box, strict=True))
            sizes = tuple(hi - lo for lo, hi in box)
            true = IndexTensor(sizes, term.coefs, start).values() >= 0
            dense = true if dense is None else dense & true
        return Restriction(box, None if dense.all() else dense)

    def __repr__(self) -> str:
        return " & ".join(f"({t!r} >= 0)" for t in self.terms)


def _is_whole(key: object) -> bool:
    """Whether `key` is `:`. By identity: what compares with an index tensor is a mask."""
    return isinstance(key, slice) and key.start is key.stop is key.step is None


def _fitted(term: IndexTensor, shape: tuple[int, ...]) -> IndexTensor:
    """A condition on the axes of a tile. One with fewer axes is on its last ones, as NumPy
    broadcasts, or on its first ones, as those of `x[i_p, i_f]` are that leave others whole.

    Raises:
        ShapeError: it fits neither, or both, and is not one condition for both.
    """
    more = len(shape) - term.ndim
    if more <= 0:
        if _broadcasts_to(term.shape, shape):
            return term
        raise _unfitting(term, shape)
    ones, zeros = (1,) * more, (0,) * more
    behind = _broadcasts_to(term.shape, shape)
    first = IndexTensor((*term.shape, *ones), (*term.coefs, *zeros), term.offset)
    if not _broadcasts_to(first.shape, shape):
        if behind:
            return term.expand(shape)
        raise _unfitting(term, shape)
    if not behind and term.ndim > 1:
        return first.expand(shape)
    if not any([c and n > 1 for c, n in zip(term.coefs, term.shape, strict=True)]):
        return term.expand(shape)
    if not behind:
        raise _unfitting(term, shape)
    raise ShapeError(
        f"it is open which axes of a tile of shape {shape} a mask of shape {term.shape} is on",
        rule="a mask with fewer axes than the tile fits its first or its last ones; here both",
        fix="give the mask as many axes as the tile has: "
        + " or ".join([_as_axis(n, at, len(shape)) for at, n in enumerate(shape) if n > 1]),
    )


def _as_axis(n: int, at: int, ndim: int) -> str:
    """The expression of an index along one axis of a tile, as a kernel writes it."""
    return f"nl.arange({n})[{', '.join([':' if d == at else 'None' for d in range(ndim)])}]"


def _unfitting(term: IndexTensor, shape: tuple[int, ...]) -> ShapeError:
    """The error for a condition of a shape that no axes of a tile have."""
    fix = "build the mask from the same nl.arange / nl.mgrid axes as the tile"
    if term.ndim == len(shape):
        varies = [d for d, c in enumerate(term.coefs) if c and term.shape[d] > 1]
        if all([term.shape[d] == shape[d] for d in varies]):
            # Indices of nl.mgrid span all of its axes, those along which they do not vary, too.
            indices = " and ".join([_as_axis(shape[d], d, len(shape)) for d in varies])
            fix = f"nl.mgrid gives indices of one shape; for this tile write {indices}"
    elif term.ndim < len(shape):
        fix = "give the mask as many axes as the tile has: " + " or ".join(
            [_as_axis(n, at, len(shape)) for at, n in enumerate(shape) if n > 1]
        )
    return ShapeError(
        f"a mask of shape {term.shape} does not fit a tile of shape {shape}",
        rule="a mask is made from the index axes of the tile it masks",
        fix=fix,
    )


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(s in (1, t) for s, t in zip(shape, tail, strict=True))
