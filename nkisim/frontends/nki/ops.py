"""Operators that instructions take as `op=`: functions of `nki.language`, by what they are called.

The tables are those of the SDK 2.32 documentation (nkibook/facts/nki_api_nki.json).
"""

from __future__ import annotations

from nkisim.errors import KernelError, ParameterError
from nkisim.machine import GENERATIONS, Machine

NAMES: dict[object, str] = {}  # of the operators that kernels pass


class Operator:
    """An operator that is no function on tiles."""

    def __init__(self, name: str, doc: str = "") -> None:
        self.__name__ = name
        self.__doc__ = doc
        NAMES[self] = name

    def __repr__(self) -> str:
        return f"nl.{self.__name__}"


BITS = frozenset(
    {"invert", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
)
UNARY = frozenset({"invert", "abs", "square", "relu", "rsqrt", "reciprocal", "logical_not"})
COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})
ALU = (
    BITS
    | (UNARY - {"logical_not"})
    | COMPARISONS
    | {"add", "subtract", "multiply", "maximum", "minimum", "power", "abs_max", "abs_min"}
    | {"logical_and", "logical_or", "logical_xor"}
)
REDUCTIONS = frozenset(
    {"bitwise_and", "bitwise_or", "bitwise_xor", "add", "subtract", "multiply"}
    | {"maximum", "minimum", "logical_and", "logical_or", "logical_xor"}
)
ACTIVATIONS = frozenset(
    {"copy", "square", "sigmoid", "relu", "prelu", "gelu", "gelu_dx", "gelu_apprx_tanh"}
    | {"gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx", "silu", "silu_dx", "tanh", "softplus"}
    | {"mish", "erf", "erf_dx", "exp", "log", "sin", "arctan", "sqrt", "rsqrt", "reciprocal"}
    | {"sign", "abs"}
)
_NOT_EVERYWHERE = frozenset[str]().union(*(m.abilities.operators for m in GENERATIONS))


def op_name(call: str, op: object, allowed: frozenset[str], machine: Machine) -> str:
    """The name of an operator.

    Raises:
        ParameterError: it is none, or none of those that the instruction has.
    """
    try:
        name = NAMES.get(op)
    except TypeError:
        name = None
    if name is None:
        raise _no_operator(call, op, allowed)
    if name not in allowed:
        raise _no_operator(call, f"nl.{name}", allowed)
    if name in _NOT_EVERYWHERE - machine.abilities.operators:
        raise ParameterError(
            f"{call}: op nl.{name} on {machine.name}",
            rule=f"nl.{name} needs NeuronCore-v4 (trn3)",
            fix="compile for trn3, with NEURON_PLATFORM_TARGET_OVERRIDE=trn3, or use another "
            "operator",
        )
    return name


# Functions of a whole tile, and the operators that they repeat.
_REDUCED_BY = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply"}


def _no_operator(call: str, op: object, allowed: frozenset[str]) -> KernelError:
    given = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    name = given.removeprefix("nl.")
    meant = _REDUCED_BY.get(name)
    fix = "name one of these; other functions take several instructions"
    if meant in allowed:
        fix = f"write nl.{meant}: nl.{given} is a function of a tile, no operator of two values"
    elif name in allowed:  # its name, or the function of another package
        fix = f"write nl.{name}, the function of nki.language"
    return ParameterError(
        f"{call}: operator {op!r}" if name in allowed else f"{call}: operator {given}",
        rule="it is one of nl." + ", nl.".join(sorted(allowed)),
        fix=fix,
    )
