"""Entries of the reference (reference.py) for the simulator, the operators and the book's package.

The source is read and not imported, so the entries of PyTorch's and JAX's operators are there where
neither is installed. A module's names are those of its `__all__`; without one, the functions and
classes that it defines and that have a docstring. A class comes with its methods. An annotation
stands in the docstring, with shapes and units, and so is left out of the parameters.
"""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from reference import RESULTS, Entry, described, summary

Definition = ast.FunctionDef | ast.ClassDef


def entries(root: Path, pages: list[str], module: str) -> list[Entry]:
    """The entries of a module; of the package of an operator, those of its parts."""
    if (root / module.replace(".", "/") / "torch_op.py").is_file():
        return [*_of_operator(root, module)]
    return [*_of_module(root, module, f"{module}.")]


def _of_module(root: Path, module: str, prefix: str) -> Iterator[Entry]:
    package = module.rpartition(".")[0]
    of_package = public(root, package) if package in ("nkisim", "nkibook") else []
    for name in public(root, module):
        if name not in of_package and (found := find(root, module, name)):
            yield from _entries(root, module, f"{prefix}{name}", *found)


def _of_operator(root: Path, package: str) -> Iterator[Entry]:
    parts = {"launch": "nki_", "torch_op": "", "jax_op": "", "reference": "", "neuronxcc": "nki_",
             "nki": "nki_"}  # fmt: skip
    for part, begin in parts.items():
        # What launches a kernel is in the package itself, too.
        prefix = f"{package}." if part == "launch" else f"{package}.{part}."
        for entry in _of_module(root, f"{package}.{part}", prefix):
            if entry.name.removeprefix(prefix).startswith(begin):
                yield entry


def _entries(root: Path, shown_in: str, name: str, home: str, found: Definition) -> Iterator[Entry]:
    told = ast.get_docstring(found)

    def entry(name: str, kind: str, parameters: str, told: str | None) -> Entry:
        text = described(_as_read(told))
        return Entry(shown_in, "", name, name, kind, parameters, summary(told), text)

    if isinstance(found, ast.FunctionDef):
        yield entry(name, "function", parameters(found), told)
        return
    yield entry(name, "class", _of_class(found), told)
    methods = {method.name: method for method in _methods(root, home, found)}
    for method in methods.values():
        decorators = {ast.unparse(d).rpartition(".")[2] for d in method.decorator_list}
        is_value = decorators & {"property", "cached_property"}
        kind, taken = ("property", "") if is_value else ("method", parameters(method))
        yield entry(f"{name}.{method.name}", kind, taken, ast.get_docstring(method))


def _of_class(found: ast.ClassDef) -> str:
    """The parameters of a class: of its `__init__`, or, of data, its fields."""
    makers = [n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    if makers:
        return parameters(makers[0])
    return f"({', '.join(n.target.id for n in found.body if _is_field(n))})"


def _methods(root: Path, home: str, found: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The public methods of a class that are described, after those of its bases."""
    for base in found.bases:
        of_base = find(root, home, base.id) if isinstance(base, ast.Name) else None
        if of_base and isinstance(of_base[1], ast.ClassDef):
            yield from _methods(root, of_base[0], of_base[1])
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and _is_public(node):
            yield node


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def parameters(function: ast.FunctionDef) -> str:
    """Names and defaults, without `self`."""
    given = copy.deepcopy(function.args)
    for each in ast.walk(given):
        if isinstance(each, ast.arg):
            each.annotation = None
    text = ast.unparse(given)
    return f"({re.sub(r'^(self|cls)(, |$)', '', text)})"


def _as_read(docstring: str | None) -> str | None:
    """A docstring as `described` takes it: several results are a list, and pseudocode is code."""
    if docstring is None:
        return None
    return _SEVERAL.sub(RESULTS, docstring).replace("Pseudocode:\n", "Pseudocode::\n\n")


# The heading above two or more results that have names.
_SEVERAL = re.compile(
    r"^Returns(?=:\n(?: {4}.*\n)*? {4}[\w, ]+: .*\n(?: {5,}.*\n)* {4}[\w, ]+: )", re.M
)


# -- what a module has


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _file(root: Path, module: str) -> Path | None:
    path = root / module.replace(".", "/")
    found = [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]
    return found[0] if found else None


def _is_public(node: Definition) -> bool:
    return not node.name.startswith("_") and ast.get_docstring(node) is not None


def public(root: Path, module: str) -> list[str]:
    """The public names of a module, in order: `__all__`, else what it defines and describes."""
    path = _file(root, module)
    if path is None:
        return []
    body = _parsed(path).body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [
        node.name
        for node in body
        if isinstance(node, Definition) and _is_public(node) and node.name != "main"
    ]


def find(root: Path, module: str, name: str) -> tuple[str, Definition] | None:
    """Where a name of a module is defined, through its imports, and how; None of a constant."""
    path = _file(root, module)
    if path is None:
        return None
    for node in _parsed(path).body:
        if isinstance(node, Definition) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(root, node.module, alias.name)
    return None
