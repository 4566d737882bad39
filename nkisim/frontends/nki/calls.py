"""Errors for a call that does not fit its function, most of `neuronxcc.nki`, and for what a tensor
is asked that has none."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable

from nkisim.errors import KernelError, Location, ParameterError, UnknownNameError
from nkisim.frontends.nki.arguments import SURFACE, wrong_argument
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.frontends.python_values import asking_line, function_called, value_asked
from nkisim.trace.frames import kernel_line

_UNKNOWN = re.compile(r"(?:(\w+)\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_COUNT = re.compile(r"(?:(\w+)\.)?(\w+)\(\) (?:missing|takes|got multiple values for) .*argument")
_HANDLE = "'NkiInstruction' object"
_MODULES = {"nisa": SURFACE + "isa", "nl": SURFACE + "language"}


def explain(error: Exception) -> KernelError | None:
    """A call at a kernel's line whose arguments its function does not have, or that are of another
    kind; None for anything else.

    Python says so with an error of its own, so calls that fit cost nothing.
    """
    if (told := wrong_argument(error)) is not None:
        return told
    if isinstance(error, AttributeError) and isinstance(error.obj, NkiTensor):
        return _no_method(error)
    if (told := value_asked(error, NkiTensor, _MODULES["nl"])) is not None:
        return told
    line = kernel_line(error.__traceback__)
    if line is None:
        return None
    if type(error) is NameError and error.name in _MEMORIES:
        return _memory_of_a_beta(error.name, line)
    text = str(error)
    if _HANDLE in text:
        return _handle_used(line)
    found = _UNKNOWN.match(text) or _COUNT.match(text)
    if not isinstance(error, TypeError) or found is None:
        return None
    called = _called(found[1], found[2], error)
    if called is None:
        return None
    name, function = called
    parameters = [p for p in inspect.signature(function).parameters if p != "self"]
    if found.re is _UNKNOWN:
        what, fix = f"{name} has no argument {found[3]}", _instead(found[3], parameters)
    else:
        what, fix = name + text[text.index("()") + 2 :], _call(name, function)
    return ParameterError(
        what,
        rule=f"its arguments in `import nki` are {', '.join(parameters)}",
        fix=fix,
        location=line,
    )


_METHODS = {
    **dict.fromkeys(("T", "mT", "t", "transpose", "swapaxes"), "nisa.nc_transpose(dst, data={0})"),
    **dict.fromkeys(("sum", "max", "min", "mean"), "nisa.tensor_reduce(dst, op, {0}, axis)"),
    **dict.fromkeys(("astype", "to"), "nisa.tensor_copy(dst, {0}), with dst of the other dtype"),
    **dict.fromkeys(("copy", "clone"), "nisa.tensor_copy(dst, {0})"),
    **dict.fromkeys(("fill", "fill_", "zero_"), "nisa.memset({0}, value)"),
    **dict.fromkeys(("ravel", "flatten"), "{0}.flatten_dims(start_dim, end_dim)"),
    **dict.fromkeys(("dot", "matmul", "mm"), "nisa.nc_matmul(dst, stationary, moving)"),
    **dict.fromkeys(("item", "numpy", "tolist", "cpu"), "print({0}), which shows its values"),
    "broadcast_to": "{0}.broadcast(dim, size)",
    "expand_dims": "{0}.expand_dim(dim)",
}


def _no_method(error: AttributeError) -> UnknownNameError | None:
    """A method or an attribute that tensors do not have; None where the simulator asks for it."""
    line = asking_line(error)
    if line is None or error.name.startswith("_"):
        return None
    called = re.search(rf"\b(\w+)\.{re.escape(error.name)}\b", line.text)
    own = [n for n in dir(NkiTensor) if not n.startswith("_")]
    near = difflib.get_close_matches(error.name, own, 1)
    tile = called[1] if called else "t"
    instead = _METHODS.get(error.name) or (f"{{0}}.{near[0]}, if that is meant" if near else "")
    return UnknownNameError(
        f"{error.obj.describe()} has no .{error.name}",
        rule="operations are functions of nki.isa and nki.language; a tensor itself has "
        + ", ".join(own),
        fix=f"write {instead or 'a function of nki.isa'}".format(tile),
        location=line,
    )


def _called(of: str | None, name: str, error: Exception) -> tuple[str, Callable] | None:
    """The function or the method of `nki` that a kernel's line calls, and what to name it; None
    where it is a function of the kernel's own that has that name."""
    if of in [c.__name__ for c in NkiTensor.__mro__]:
        return f"tensor.{name}", inspect.unwrap(getattr(NkiTensor, name))
    if name == "__call__":  # of the class that makes tensors
        name = "ndarray"
    return function_called(name, error, _MODULES)


_MEMORIES = {"sbuf": "nl.sbuf", "psum": "nl.psum", "hbm": "nl.shared_hbm"}


def _memory_of_a_beta(name: str, line: Location) -> UnknownNameError:
    """A memory as a word of the language, as kernels of the first releases write it."""
    return UnknownNameError(
        f"{name} is not a name of Python",
        rule=f"the first betas of NKI had {name} as a word of the language, {name}.view(dtype=, "
        "shape=)",
        fix=f"nl.ndarray(shape, dtype=dtype, buffer={_MEMORIES[name]})",
        location=line,
    )


def _handle_used(line: Location) -> ParameterError:
    """The result of an instruction, used as those of `neuronxcc.nki` are."""
    return ParameterError(
        "the result of an instruction is used as a tensor",
        rule="in `import nki` an instruction writes into dst and returns a handle",
        fix="declare dst with nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf), pass it first, "
        "and use it",
        location=line,
    )


def _instead(keyword: str, parameters: list[str]) -> str:
    if keyword == "mask":
        return "slice what the mask kept, t[0:n]: mask= is `neuronxcc.nki`"
    if keyword == "dtype" and "dst" in parameters:
        return "declare dst with that dtype: results are cast to the type of dst"
    near = difflib.get_close_matches(keyword, parameters, 1)
    if near:
        return f"write {near[0]}, if that is meant"
    return f"pass one of its parameters, {', '.join(parameters)}, or leave it out"


def _call(name: str, function: Callable) -> str:
    needed = [
        f"{p.name}={p.name}"
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"
    ]
    first = "declare the result and pass it: " if needed[:1] == ["dst=dst"] else ""
    return f"{first}{name}({', '.join(needed)})"
