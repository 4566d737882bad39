"""Operators that tensors of `import nki` do not have, and the functions to call instead."""

from __future__ import annotations

from typing import Any

from nkisim.errors import IndexingError, KernelError


def _no_operator(symbol: str, function: str):
    def operate(self: Any, *other: object) -> Any:
        raise _operator_error(self, symbol, function)

    return operate


def _operator_error(tensor: Any, symbol: str, function: str) -> KernelError:
    return IndexingError(
        f"the operator {symbol} on {tensor.describe()}",
        rule="tensors of `import nki` have no operators; `neuronxcc.nki`'s tiles have them",
        fix=f"write nisa.{function}, or nl.{_WRAPPERS.get(symbol, 'add')}(x, y), which makes a "
        "new tile",
    )


_WRAPPERS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "**": "power",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "~": "invert",
}
_DUNDERS = {
    "+": ("add", "radd", "iadd"),
    "-": ("sub", "rsub", "isub", "neg"),
    "*": ("mul", "rmul", "imul"),
    "/": ("truediv", "rtruediv", "itruediv"),
    "**": ("pow", "rpow"),
    "<": ("lt",),
    "<=": ("le",),
    ">": ("gt",),
    ">=": ("ge",),
    "&": ("and", "rand"),
    "|": ("or", "ror"),
    "^": ("xor", "rxor"),
    "~": ("invert",),
    "@": ("matmul", "rmatmul"),
}
_ISA = {"@": "nc_matmul(dst, stationary, moving)", "~": "tensor_scalar(dst, data, op0, operand0)"}


def refuse_operators(tensor: type) -> None:
    """Give a class of tensors operators that raise IndexingError and name the function to call."""
    for symbol, names in _DUNDERS.items():
        instead = _ISA.get(symbol, "tensor_tensor(dst, x, y, op)")
        for name in names:
            setattr(tensor, f"__{name}__", _no_operator(symbol, instead))
