"""Names that NKI does not have, with the nearest one that it has.

Modules ask here for what is not in them. A tile does not: on Python 3.11 a `__getattr__` slows down
all attributes of a class, those that exist too. What a kernel asks of a tile in vain is told where
the error leaves the kernel (`explain`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from nkisim.errors import Location, UnknownNameError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor

MODULES = {
    "nl": "nkisim.frontends.neuronxcc.nki.language",
    "nisa": "nkisim.frontends.neuronxcc.nki.isa",
    "ncc": "nkisim.frontends.neuronxcc.nki.compiler",
    "nki": "nkisim.frontends.neuronxcc.nki",
}

# What NumPy and PyTorch call it, and how to write it. Names that are near are found without this.
_ELSEWHERE = {
    "T": "nl.transpose(x)",
    "NkiTensor": "nl.ndarray(shape, dtype); NkiTensor is `import nki`",
    "argmax": "nisa.max8 and nisa.nc_find_index8",
    "argmin": "nisa.max8 and nisa.nc_find_index8 of -x",
    "array": "a kernel argument, or nl.shared_constant(array)",
    "asarray": "a kernel argument, or nl.shared_constant(array)",
    "bf16": "nl.bfloat16",
    "cat": "an nl.ndarray of the whole, and assign its parts: t[:, 0:n] = a",
    "clamp": "nl.minimum(nl.maximum(x, low), high)",
    "clip": "nl.minimum(nl.maximum(x, low), high)",
    "concat": "an nl.ndarray of the whole, and assign its parts: t[:, 0:n] = a",
    "concatenate": "an nl.ndarray of the whole, and assign its parts: t[:, 0:n] = a",
    "cumsum": "nisa.tensor_tensor_scan",
    "dot": "nl.matmul(x, y)",
    "double": "nl.float32",
    "dma_compute": "nl.load, an operation, nl.store; dma_compute is `import nki`",
    "dynamic_range": "nl.sequential_range(n); dynamic_range is `import nki`",
    "einsum": "nl.matmul(x, y)",
    "empty": "nl.ndarray(shape, dtype)",
    "eye": "nl.shared_identity_matrix(n)",
    "float8": "nl.float8_e4m3 or nl.float8_e5m2",
    "float64": "nl.float32",
    "fori_loop": "for i in nl.sequential_range(n); fori_loop is `import nki`",
    "fp16": "nl.float16",
    "fp8": "nl.float8_e4m3 or nl.float8_e5m2",
    "half": "nl.float16",
    "int64": "nl.int32",
    "linspace": "nl.arange, and nisa.iota for data",
    "mm": "nl.matmul(x, y)",
    "pow": "nl.power(x, y)",
    "range": "nl.affine_range(n)",
    "register_alloc": "a tile of shape (1, 1); registers are `import nki`",
    "register_load": "nl.load into a tile of shape (1, 1); registers are `import nki`",
    "reshape": "x.reshape(shape)",
    "sort": "nisa.max8 and nisa.nc_match_replace8",
    "stack": "an nl.ndarray of the whole, and assign its parts: t[:, i] = a",
    "std": "nl.sqrt(nl.var(x, axis))",
    "tensor": "a kernel argument, or nl.shared_constant(array)",
    "topk": "nisa.max8 and nisa.nc_match_replace8",
}

_VALUES = (
    "what computes with {0}: its values are not known while tracing; print({0}) shows them where "
    "the kernel is called with NumPy arrays"
)
# What is asked of a tile, and how to write it, for a tile called {}.
_OF_A_TILE = {
    "T": "nl.transpose({})",
    "ap": "an index, as i, j = nl.mgrid[0:128, 0:64]; {}[i, 2 * j]; .ap is `import nki`",
    "bfloat16": "{}.astype(nl.bfloat16)",
    "bmm": "nl.matmul({}, y)",
    "clone": "nl.copy({})",
    "contiguous": "nl.copy({})",
    "cpu": _VALUES,
    "data": _VALUES,
    "dim": "{}.ndim",
    "dot": "nl.matmul({}, y)",
    "fill": "{}[...] = value",
    "fill_": "{}[...] = value",
    "flatten": "{0}.reshape(({0}.shape[0], -1))",
    "float": "{}.astype(nl.float32)",
    "half": "{}.astype(nl.float16)",
    "item": _VALUES,
    "mT": "nl.transpose({})",
    "mm": "nl.matmul({}, y)",
    "numpy": _VALUES,
    "permute": "an index with its axes in another order: i, j, k = nl.mgrid[...]; {}[i, k, j]",
    "pow": "nl.power({}, y)",
    "ravel": "{0}.reshape(({0}.shape[0], -1))",
    "select": "an index, as {}[i]; .select is `import nki`",
    "squeeze": "{}.reshape(shape)",
    "swapaxes": "an index with its axes in another order: i, j, k = nl.mgrid[...]; {}[i, k, j]",
    "to": "{}.astype(dtype)",
    "tolist": _VALUES,
    "type": "{}.astype(dtype)",
    "unsqueeze": "{}.expand_dims(axis)",
    "zero_": "{}[...] = 0",
}
_TILE = ("assert_shape", "astype", "broadcast_to", "dtype", "expand_dims", "itemsize", "name")
_TILE += ("ndim", "reshape", "shape", "size", "view")


def missing(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module.

    Args:
        module: what kernels call it: "nl", "nisa", "ncc" or "nki".
    """

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # what Python and its tools ask of any module
            raise AttributeError(f"module {MODULES[module]!r} has no attribute {name!r}")
        raise UnknownNameError(
            f"there is no {module}.{name}",
            rule=f"{_written(module)} has the names of the Neuron SDK 2.26, which dir({module}) "
            "lists",
            fix=_instead(module, name),
        )

    return __getattr__


def _written(module: str) -> str:
    return MODULES[module].replace("nkisim.frontends.neuronxcc", "neuronxcc")


def _instead(module: str, name: str) -> str:
    known = {m: _public(m) for m in dict.fromkeys((module, "nl", "nisa", *MODULES))}
    for other, names in known.items():
        if name in names:
            return f"write {other}.{name}"
    if name in _ELSEWHERE:
        return f"write {_ELSEWHERE[name]}"
    near = _near(name, known[module], 0.75)
    begins = [n for n in known[module] if n.startswith(name) and len(name) > 2]
    parts = [part for part in reversed(name.lower().split("_")) if part in known["nl"]]
    if near is not None or begins:
        return f"write {module}.{near or begins[0]}, if that is meant"
    if parts:  # `reduce_max`, `tensor_add`
        return f"write nl.{parts[0]}, if that is meant"
    for other, cutoff in ((module, 0.6), ("nl", 0.75), ("nisa", 0.75)):
        near = _near(name, known[other], cutoff)
        if near is not None:
            return f"write {other}.{near}, if that is meant"
    return "look for the operation in dir(nl) and dir(nisa), or compose it of others"


def _public(module: str) -> list[str]:
    """The names that kernels may take from a module."""
    return sorted(importlib.import_module(MODULES[module]).__all__)


def _near(name: str, names: Iterable[str], cutoff: float) -> str | None:
    """The name among `names` that is most like `name`; None when none is."""
    lower = {n.lower(): n for n in sorted(names)}
    near = difflib.get_close_matches(name.lower(), lower, 1, cutoff)
    return lower[near[0]] if near else None


def unknown_name(error: AttributeError, line: Location) -> UnknownNameError | None:
    """What a kernel asked in vain at a line, of a tile or of names such as nisa.engine, in words;
    None for any other error."""
    name, asked = error.name, error.obj
    if not name or name.startswith("_"):
        return None
    if (
        isinstance(asked, tuple)
        and name in ("shape", "dtype", "ndim")
        and type(asked).__name__
        in (
            "tuple",
            "Size",
        )
    ):
        return UnknownNameError(
            f"the tuple {tuple(asked)!r} has no .{name}",
            rule="an argument that is a tuple is a constant of the kernel, and no tensor",
            fix="pass an array; where shape and type are enough, as for nkisim.profile, "
            f"nkisim.TensorSpec({tuple(asked)!r}, np.float32)",
            location=line,
        )
    if isinstance(asked, Tensor):
        called = re.search(rf"\b([A-Za-z_]\w*)\.{re.escape(name)}\b", line.text)
        return UnknownNameError(
            f"{asked.describe()} has no .{name}",
            rule="operations are functions of nki.language and nki.isa; a tensor itself has "
            + ", ".join(_TILE),
            fix="write nl.load_transpose2d("
            f"{called[1] if called else 'x'}), which loads a tensor of two axes transposed"
            if name in ("T", "mT", "transpose", "t") and not asked.space.on_chip
            else f"write {_of_a_tile(name, called[1] if called else 't')}",
            location=line,
        )
    if not isinstance(asked, type) or not asked.__module__.startswith(
        "nkisim.frontends.neuronxcc.nki."
    ):
        return None
    members = getattr(asked, "__members__", None)  # of an enumeration
    names = [n for n in (dir(asked) if members is None else members) if n[0] != "_"]
    near = _near(name, names, 0.5)
    return UnknownNameError(
        f"{asked.__name__} has no .{name}",
        rule=f"it has {', '.join(names)}",
        fix=f"write {asked.__name__}.{near}, if that is meant" if near else "use one of these",
        location=line,
    )


def _of_a_tile(name: str, tile: str) -> str:
    if name in _OF_A_TILE:
        return _OF_A_TILE[name].format(tile)
    language = importlib.import_module(MODULES["nl"])
    function = vars(language).get(name) if name in language.__all__ else None
    if inspect.isfunction(function):
        return f"nl.{name}({_arguments(function, tile)})"
    near = _near(name, _TILE, 0.65)
    if near is not None:
        return f"{tile}.{near}, if that is meant"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    return "a function of nki.language, or of nki.isa"


def _arguments(function: Callable, tile: str) -> str:
    """The arguments that a function must have, the first a tile."""
    names = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    return ", ".join([tile, *("axis=1" if n == "axis" else n for n in names[1:])])
