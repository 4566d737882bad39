"""Kernels and notebooks use only documented names and keywords of ``neuronxcc.nki``.

This is what lets them run unchanged on a Neuron instance, which the test machine is not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
import pytest

from nkibook.cells import dialect_of
from nkibook.facts.coverage import documented

ROOT = Path(__file__).resolve().parents[2]
API = documented()
_MODULES = {"neuronxcc", *API}


def _python_of(path: Path) -> str:
    """Source of a Python file, or of the code cells of a MyST notebook, in order, without those in
    `import nki`, and without kernels that a cell says are refused."""
    if path.suffix == ".py":
        return path.read_text()
    cells = jupytext.read(path, fmt="md:myst").cells
    code = [c.source for c in cells if c.cell_type == "code"]
    code = [c for c in code if dialect_of(c) != "nki" and "refused(" not in c]
    lines = "\n".join(code).splitlines()
    # Magics and shell lines are not Python.
    return "\n".join("" if re.match(r"\s*[%!]", line) else line for line in lines)


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """``nl.tile_size.pmax`` as ``neuronxcc.nki.language.tile_size.pmax``; None if not of NKI."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, names)
        return base and f"{base}.{node.attr}"
    return None


def _look_up(dotted: str) -> dict | None:
    """The table's entry for a name, ``{}`` for a module or an attribute, None if unknown."""
    if dotted in _MODULES:
        return {}
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 1, -1):
        entries = API.get(".".join(parts[:cut]))
        if entries is None:
            continue
        rest = parts[cut:]
        if ".".join(rest) in entries:  # includes ncc.sbuf.alloc
            return entries[".".join(rest)]
        entry = entries.get(rest[0])
        if entry and len(rest) == 2 and rest[1] in entry.get("attributes", ()):
            return {}
        return None
    return None


def violations(source: str) -> Iterator[str]:
    """Uses of ``neuronxcc.nki`` in some Python source that the documentation does not know."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "neuronxcc":
                    imported.append(alias.name)
                    names[alias.asname or "neuronxcc"] = alias.name if alias.asname else "neuronxcc"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "neuronxcc":
            for alias in node.names:
                imported.append(f"{node.module}.{alias.name}")
                names[alias.asname or alias.name] = imported[-1]
    for dotted in imported:
        if _look_up(dotted) is None:
            yield f"import of {dotted}"
    inner = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }  # only the longest chain counts
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            dotted = _dotted(node, names)
            if dotted and _look_up(dotted) is None:
                yield f"line {node.lineno}: {dotted}"
        elif isinstance(node, ast.Call):
            entry = _look_up(dotted) if (dotted := _dotted(node.func, names)) else None
            if entry is None or entry.get("any_keyword"):
                continue
            for keyword in node.keywords:
                if keyword.arg and keyword.arg not in entry.get("params", ()):
                    yield f"line {node.lineno}: {dotted}({keyword.arg}=)"


_FILES = sorted(
    [
        *(ROOT / "kernels").rglob("*.py"),
        *(ROOT / "notebooks").glob("*.md"),
        *(ROOT / "book").glob("*.md"),
    ]
)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_documented_names(path):
    assert list(violations(_python_of(path))) == []


def test_the_add_kernels_are_looked_at():
    """Guards the test above against finding nothing because it looks at nothing."""
    path = ROOT / "kernels" / "add" / "neuronxcc.py"
    assert path in _FILES
    for known, unknown in (("nl.store(", "nl.stash("), ("mask=", "musk="), ("shared_hbm", "hbm9")):
        assert list(violations(_python_of(path).replace(known, unknown)))


_IMPORTS = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.compiler as ncc
"""


@pytest.mark.parametrize(
    "line",
    [
        "nl.tile_size.qmax",
        "nl.nowhere",
        "nki.language.nowhere(1)",
        "nl.load(x, musk=m)",
        "nisa.tensor_copy(src=x, dst=y)",
        "ncc.sbuf.nowhere()",
        "from neuronxcc.nki.language import nowhere",
        "import neuronxcc.nki.collectives",
        "@nki.jit(turbo=True)\ndef f(): ...",
    ],
)
def test_undocumented_names_are_found(line):
    assert list(violations(_IMPORTS + line))


@pytest.mark.parametrize(
    "line",
    [
        "nl.tile_size.pmax",
        "nki.language.load(x, mask=m)",
        "nisa.engine.vector",
        "ncc.sbuf.mod_alloc(base_addr=0)",
        "from neuronxcc.nki.language import load",
        "nki.simulate_kernel(kernel, x, eps=1e-6)",
        "np.nowhere(1, musk=2)",
    ],
)
def test_documented_names_pass(line):
    assert list(violations(_IMPORTS + line)) == []


def test_notebook_cells_are_read(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```{code-cell} ipython3\n---\ntags: [hide-input]\n---\n"
        "import neuronxcc.nki as nki\n%matplotlib inline\n```\n\ntext\n\n"
        "```{code-cell} ipython3\nnki.nowhere()\n```\n"
    )
    assert list(violations(_python_of(page))) == ["line 3: neuronxcc.nki.nowhere"]
