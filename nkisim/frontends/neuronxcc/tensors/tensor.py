"""Tensors as kernels see them: an access pattern with Python's indexing and operators.

Indexing never copies and never computes addresses one by one: it composes affine maps. Operators
call the functions of `nki.language`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.errors import (
    ControlFlowError,
    IndexingError,
    ParameterError,
    ReadOnlyError,
    ShapeError,
    locate,
)
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.indexing import index, is_row
from nkisim.frontends.neuronxcc.tensors.indirect import DynamicIndex, IndirectTensor
from nkisim.frontends.neuronxcc.tensors.reshaping import (
    as_tile,
    broadcast,
    expand_dims,
    once,
    reinterpret,
    reshape,
)
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.integers import as_int, fix_of_integers
from nkisim.ir.memory import Buffer
from nkisim.trace.debugging import shown_to


class Tensor(AccessPattern):
    """A view of a buffer. `nl.ndarray`, kernel arguments and every operation's result are these."""

    # Attributes are set as those of an access pattern, which then becomes a tensor: a
    # `__setattr__` that looked who asks would be slow.
    __slots__ = ()

    is_row = False  # whether the one axis that it has is a free axis: see RowTensor

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        """A tensor of what an access pattern is made of."""
        new = AccessPattern(*args, **kwargs)
        new.__class__ = Tensor
        return new

    __init__ = object.__init__  # `__new__` has done it

    def __reduce__(self):
        form = self.form
        return Tensor, (
            self.buffer,
            form.shape,
            form.base_shape,
            self.offsets,
            form.coefs,
            self.dtype,
        )

    def __setattr__(self, name: str, value: object) -> None:
        """Raises ReadOnlyError."""
        raise ReadOnlyError(
            f".{name} of {self.describe()} is assigned to",
            rule="what a tensor is, its shape, type and memory, is settled when it is made",
            fix=_INSTEAD.get(name, "keep it in a variable of Python"),
        )

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __len__(self) -> int:
        return self.shape[0]

    def assert_shape(self, shape: tuple[int, ...]) -> Tensor:
        """Returns the tensor; raises ShapeError when its shape is not `shape`."""
        if tuple(self.shape) != tuple(shape):
            raise ShapeError(
                f"{self.describe()} does not have the shape {tuple(shape)}",
                rule="assert_shape requires equality",
                fix="correct the shape, or the tensor",
            )
        return self

    # -- views ----------------------------------------------------------------------------------

    def __getitem__(self, key: object) -> Tensor | IndirectTensor:
        if type(key) is tuple:
            return _row_or_not(index(self, key), self, key)
        if type(key) is bool:  # a condition on loop indices, which have values here
            key = Mask((IndexTensor((), (), 0 if key else -1),))
        if isinstance(key, Mask) and isinstance(self, MaskedTensor):
            with contextlib.suppress(ShapeError):  # of one that is of what the first mask left
                return self.whole[self.mask & key]
        part = index(self, key)
        if isinstance(key, Mask):
            return MaskedTensor(self, part, key)
        return _row_or_not(part, self, key)

    def broadcast_to(self, shape: tuple[int, ...]) -> Tensor:
        """A view of `shape` by NumPy's broadcasting rule. Raises ShapeError if it does not fit."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        if len(self.shape) < 2 <= len(shape) and self.space.on_chip:
            self = as_tile(self)
        form = broadcast(self.form, shape)
        if form is None and len(shape) >= self.ndim:
            self = once(self)
            form = broadcast(self.form, shape)
        if form is None:
            raise ShapeError(
                f"{self.describe()} does not broadcast to {shape}",
                rule="each axis must be equal or 1",
                fix="reshape the tile, or index it with new axes",
            )
        return self.view_of(form, self.offsets)

    def expand_dims(self, axis: int) -> Tensor:
        """A view with a size-1 axis inserted at `axis`."""
        if not -self.ndim - 1 <= axis <= self.ndim:
            raise ShapeError(
                f"expand_dims of {self.describe()} at axis {axis}",
                rule=f"the new axis is one of 0..{self.ndim}, or counts from the end",
                fix="correct the axis",
            )
        return expand_dims(self, axis + self.ndim + 1 if axis < 0 else axis)

    def reshape(
        self, *sizes: int | tuple[int, ...], shape: int | tuple[int, ...] | None = None
    ) -> Tensor:
        """A view of the same elements, in the same order, with other axes; one may be -1.

        Args:
            *sizes: extents, or one tuple of them.
            shape: the same by name, instead.

        Raises:
            ShapeError: another number of elements, a changed partition axis, or a part whose
                elements are not evenly spaced along an axis to be joined.
        """
        given = sizes if shape is None else (shape,)
        given = tuple(given[0]) if given and isinstance(given[0], tuple | list) else given
        # Python's / makes floats of integers: 8 / 2 is 4.0, which SDK 2.26 takes for 4.
        extents = tuple(
            [int(n) if isinstance(n, float) and n.is_integer() else as_int(n) for n in given]
        )
        if None in extents:
            raise ShapeError(
                f"{self.describe()} is reshaped to {given}",
                rule="the extents of axes are integers",
                fix=fix_of_integers(given, "compute them from shapes"),
            )
        view = reshape(self, extents)
        if len(extents) == 1 and self.space.on_chip and as_tile(self).shape[0] != view.size:
            return RowTensor.of(view)
        return view

    def view(self, dtype: object) -> Tensor:
        """The same bits as elements of `dtype`; the last axis grows or shrinks to match.

        Raises:
            DTypeError: no such type, or the last axis does not hold whole elements of it.
        """
        return reinterpret(self, as_dtype(dtype))

    def astype(self, dtype: object) -> Tensor:
        """A copy in another type."""
        return _operation("copy")(self, dtype=dtype)

    # -- assignment -----------------------------------------------------------------------------

    def __setitem__(self, key: object, value: object) -> None:
        target = self if key is Ellipsis else self[key]
        if isinstance(value, Tensor) and isinstance(target, Tensor) and target.same_elements(value):
            return  # `t[...] += x` has already written in place
        _operation("assign")(target, value)

    # -- operators ------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise ControlFlowError(
            f"Python control flow depends on {self.describe()}",
            rule="a kernel is traced before it runs: tile values are not known to Python",
            fix="use nl.where or mask=, and & | ~ in place of and, or, not; test `is None` for "
            "optional arguments",
            code="err_ambiguous_tensor_truth_value"
            if self.size > 1
            else "err_dynamic_control_flow_not_supported",
        )

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))

    def _binary(self, op: str, other: object, swap: bool = False) -> Tensor | DynamicIndex:
        if (
            isinstance(other, IndexTensor)
            and op in ("add", "subtract")
            and not (swap and op[0] == "s")
        ):
            return DynamicIndex.of(self, other if op == "add" else -other)
        if not isinstance(other, Tensor) and not np.isscalar(other):
            if isinstance(other, Mask):
                raise self._with_mask(op)
            return NotImplemented
        fn = _operation("operator")
        return fn(op, other, self) if swap else fn(op, self, other)

    def _with_mask(self, op: str) -> IndexingError:
        return IndexingError(
            f"a mask and {self.describe()} are operands of {op}",
            rule="a mask, a comparison of nl.arange / nl.mgrid expressions, says where an "
            "operation computes; it is no data",
            fix="pass it as mask=, or choose with it: nl.where(mask, x, y), nisa.affine_select",
            code="err_unsupported_expression_in_mask",
        )

    def __matmul__(self, other: object) -> Tensor:
        raise self._has_no("@", "nl.matmul(x, y), or nisa.nc_matmul(x, y), which is x.T @ y")

    def __floordiv__(self, other: object) -> Tensor:
        raise self._has_no("//", "nl.floor(nl.divide(x, y))")

    def __round__(self, digits: int = 0) -> Tensor:
        raise self._has_no("round()", "nl.floor(x + 0.5), nl.trunc(x) or nl.ceil(x)")

    __rmatmul__ = __imatmul__ = __matmul__
    __rfloordiv__ = __ifloordiv__ = __divmod__ = __rdivmod__ = __floordiv__

    def _has_no(self, operator: str, instead: str) -> ParameterError:
        return ParameterError(
            f"Python's {operator} is given {self.describe()}",
            rule="tiles have the operators + - * / % **, & | ^ << >>, ~, and comparisons",
            fix=f"write {instead}",
        )

    def __format__(self, how: str) -> str:
        if not how:
            return shown_to(sys._getframe(1), self)
        raise ControlFlowError(
            f"{self.describe()} is formatted with {how!r}",
            rule="a kernel is traced before it runs: tile values are not known to Python",
            fix="print(t) shows them where the kernel is called with NumPy arrays; on the device "
            "nl.device_print does",
        )

    def __neg__(self) -> Tensor:
        return _operation("negative")(self)

    def __invert__(self) -> Tensor:
        return _operation("invert")(self)

    def __abs__(self) -> Tensor:
        return _operation("abs")(self)

    def __float__(self) -> float:
        raise ControlFlowError(
            f"a number is made of {self.describe()}",
            rule="a kernel is traced before it runs: tile values are not known to Python",
            fix="compute with tiles, by the functions of nki.language",
        )

    __int__ = __float__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object):
        """`number * tile` for a NumPy number. Raises ParameterError for what else NumPy is asked
        to do with a tile."""
        number, *rest = inputs
        if isinstance(number, np.generic) and len(rest) == 1 and method == "__call__":
            return _operation("operator")(_operation("operator_name")(ufunc), number, rest[0])
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        if arrays:
            raise ParameterError(
                f"an array of shape {arrays[0].shape} and {self.describe()} are operands of one "
                "operation",
                rule="operands are on-chip tiles, Python numbers or NumPy scalars",
                fix="pass arrays as kernel arguments and nl.load them",
            )
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise ParameterError(
            f"NumPy's {name} is given {self.describe()}",
            rule="a kernel is traced before it runs: a tile has no values that NumPy could take",
            fix=_function_for(name),
        )

    @classmethod
    def __torch_function__(
        cls, function: Callable, types: object, args: tuple = (), kwargs: object = None
    ) -> None:
        """Raises ParameterError: a function of PyTorch is given a tile."""
        name = getattr(function, "__name__", "")
        tile = next((x for x in args if isinstance(x, Tensor)), None)
        given = "a tile" if tile is None else tile.describe()
        raise ParameterError(
            f"PyTorch's {name} is given {given}",
            rule="a kernel is traced before it runs: a tile has no values that PyTorch could take",
            fix=_function_for(name),
        )

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        raise ParameterError(
            f"an array of NumPy is made of {self.describe()}",
            rule="a kernel is traced before it runs: a tile has no values that NumPy could take",
            fix="compute with tiles; to put some side by side, declare one with nl.ndarray and "
            "assign its parts: t[:, 0:n] = a",
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return shown_to(sys._getframe(1), self)


# What to write where an attribute is assigned to.
_INSTEAD = {
    "shape": "t = t.reshape(shape), a view of the same elements; or declare a tile of this shape",
    "dtype": "t = t.astype(dtype), a copy; or t.view(dtype), a view of the same bits",
    "T": "t[...] = value, for all of its elements",
    "data": "t[...] = value, for all of its elements",
    "buffer": "declare another tile with nl.ndarray(..., buffer=...), and nl.copy into it",
}


# Operators call the functions of `nkisim.frontends.neuronxcc.nki.language`, which is built on this
# module. It hands
# them over here, by name, when it is imported.
_operations: dict[str, Callable] = {}


def provide_operations(table: dict[str, Callable]) -> None:
    """Give the functions behind Python's operators: name -> function(x, y)."""
    _operations.update(table)


# What nki.language calls functions of NumPy, where that is something else.
_WRITTEN = {
    "absolute": "abs",
    "add.reduce": "sum",
    "maximum.reduce": "max",
    "minimum.reduce": "min",
    "multiply.reduce": "prod",
    "remainder": "mod",
}


# Those that are not among the operations.
_FUNCTIONS = ("all", "matmul", "max", "mean", "min", "prod", "softmax", "sum", "var", "where")


def _function_for(name: str) -> str:
    """The advice for a call of the function of that name of NumPy or PyTorch."""
    name = _WRITTEN.get(name, name)
    if name in _operations or name in _FUNCTIONS:
        return f"use the function of nki.language: nl.{name}"
    return "compose it of the functions of nki.language; dir(nl) lists them"


def _operation(name: str) -> Callable:
    return _operations[name]


def _operator(op: str, swap: bool = False) -> Callable[[Tensor, object], Tensor | DynamicIndex]:
    def apply(self: Tensor, other: object) -> Tensor | DynamicIndex:
        kind = type(other)
        if kind is float or kind is int or (kind is Tensor and other.shape is self.shape):
            # There is nothing to look at. The kernel's line is found the sooner, the fewer calls
            # it is away.
            function = _operations[op]
            return function(other, self) if swap else function(self, other)
        return self._binary(op, other, swap)

    return apply


def _in_place(op: str) -> Callable[[Tensor, object], Tensor]:
    def assign(target: Tensor, value: object) -> Tensor:
        if not isinstance(value, Tensor) and not np.isscalar(value):
            if isinstance(value, Mask):
                raise target._with_mask(op)
            return NotImplemented
        _operations["assign_op"](op, target, value, locate())
        return target

    return assign


def _define_operators() -> None:
    pairs = {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "truediv": "divide",
        "pow": "power",
        "mod": "mod",
        "and": "bitwise_and",
        "or": "bitwise_or",
        "xor": "bitwise_xor",
        "lshift": "left_shift",
        "rshift": "right_shift",
    }
    for dunder, op in pairs.items():
        setattr(Tensor, f"__{dunder}__", _operator(op))
        setattr(Tensor, f"__r{dunder}__", _operator(op, swap=True))
        setattr(Tensor, f"__i{dunder}__", _in_place(op))
    comparisons = {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }
    for dunder, op in comparisons.items():
        setattr(Tensor, f"__{dunder}__", _operator(op))


_define_operators()


class RowTensor(Tensor):
    """`t[5]`: a view of one axis, which is a free axis, in one partition.

    The first axis of a tile is its partition axis. Of a view with one axis alone its addresses do
    not always tell whether it is that: `t[:, 3]` of a row that was broadcast over partitions, one
    value a partition, walks no partitions. So the view itself does.
    """

    __slots__ = ()
    is_row = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return cls.of(Tensor(*args, **kwargs))

    @classmethod
    def of(cls, view: Tensor) -> Tensor:
        """`view` turned into a row in place; unchanged if it has several axes. Nothing else may
        hold the view."""
        if len(view.shape) < 2:
            object.__setattr__(view, "__class__", cls)
        return view

    def view_of(self, form: Form, offsets: tuple[int, ...]) -> Tensor:
        shape, base, coefs = form.shape, form.base_shape, form.coefs
        return self.of(Tensor(self.buffer, shape, base, offsets, coefs, self.dtype))


def _row_or_not(part: Tensor | IndirectTensor, whole: Tensor, key: object) -> Any:
    """The view `part` = `whole[key]`, turned into a RowTensor where it is a row."""
    return RowTensor.of(part) if len(part.shape) == 1 and is_row(whole, key) else part


class MaskedTensor(Tensor):
    """`tile[mask]`: an operand under a mask of its own. It is the box where the mask is true.

    Attributes:
        whole: `tile`.
        mask: its mask.
        unmasked: the shape of `tile`, which the result of a matmul has.
        box: the (low, high) range of each axis of it that the mask leaves.
    """

    __slots__ = ("box", "mask", "unmasked", "whole")

    def __new__(cls, whole: Tensor, part: Tensor, mask: Mask) -> MaskedTensor:
        new = object.__new__(cls)
        for name in ("base_shape", "buffer", "coefs", "dtype", "form", "offsets", "shape"):
            object.__setattr__(new, name, getattr(part, name))
        own = {"whole": whole, "mask": mask, "unmasked": whole.shape}
        for name, value in (own | {"box": mask.restrict(whole.shape).box}).items():
            object.__setattr__(new, name, value)
        return new

    def __reduce__(self):
        return MaskedTensor, (self.whole, self.view_of(self.form, self.offsets), self.mask)

    def view_of(self, form: Form, offsets: tuple[int, ...]) -> Tensor:
        return Tensor(self.buffer, form.shape, form.base_shape, offsets, form.coefs, self.dtype)

    def moved(self, buffer: Buffer, offsets: tuple[int, ...]) -> Tensor:
        return Tensor(buffer, self.shape, self.base_shape, offsets, self.coefs, self.dtype)
