"""What the cells of the pages gave when they were executed: one file a page and dialect.

    results/nki/add_torch.json.xz

From these files the book is rendered and the notebooks are made, so that neither needs PyTorch, JAX
or ten minutes. A file is written anew only where what a reader sees has changed: it says when, from
which commit and with which Python this result was first there. A result is that of a page while the
code of its cells is the same; whether it is what execution gives today, `make book CLEAN=1` and the
gate find out.
"""

from __future__ import annotations

import configparser
import datetime
import difflib
import functools
import hashlib
import json
import lzma
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pages
from nbformat import NotebookNode
from pages import ROOT

IGNORED = "nbval-ignore-output"
"""The tag of a cell whose output differs from run to run, as nbval has it."""

_LINE = re.compile(r"\b((?:neuronxcc|nki)\.py):\d+")  # of a kernel, which moves with lines above it


@dataclass(frozen=True)
class Result:
    """What one page gave in one dialect.

    Attributes:
        code: the sha256 of the code of its cells.
        outputs: of each code cell that the dialect has.
        date, commit, python: when and where; the commit is "" outside of a repository.
    """

    code: str
    outputs: list[list[NotebookNode]]
    date: str = field(default_factory=lambda: _today())
    commit: str = field(default_factory=lambda: _commit())
    python: str = field(default_factory=platform.python_version)


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip()


def digest(page: str, dialect: str, root: Path = ROOT) -> str:
    """The sha256 of the code of a page in a dialect."""
    code = "\0".join(cell.source for cell in pages.code(page, dialect, root))
    return hashlib.sha256(code.encode()).hexdigest()


def path(page: str, dialect: str, root: Path = ROOT) -> Path:
    """The file of a page's result, in `root`, a checkout."""
    return root / "results" / dialect / f"{Path(page).name}.json.xz"


def read(page: str, dialect: str, root: Path = ROOT) -> Result | None:
    """The stored result of a page, None where there is none for the code that it has now."""
    file = path(page, dialect, root)
    if not file.is_file():
        return None
    found = json.loads(lzma.decompress(file.read_bytes()))
    if found["code"] != digest(page, dialect, root):
        return None
    found["outputs"] = [list(map(nbformat.from_dict, outputs)) for outputs in found["outputs"]]
    return Result(**found)


def write(result: Result, page: str, dialect: str, root: Path = ROOT) -> bool:
    """Store a result, unless a reader would see no difference to the stored one; tell which."""
    if not differences(read(page, dialect, root), result, page, dialect, root):
        return False
    text = json.dumps(vars(result), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    file = path(page, dialect, root)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return True


def kept(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Outputs without what is of one run or one machine: counts, addresses, paths of the checkout.

    Neighbouring pieces of a stream are one: where it is cut is chance.
    """
    patterns = _patterns()
    found: list[NotebookNode] = []
    for output in map(nbformat.from_dict, outputs):
        output.pop("execution_count", None)
        output.pop("transient", None)
        if output.output_type == "stream":
            last = found[-1] if found else None
            if last is not None and last.output_type == "stream" and last.name == output.name:
                last.text += output.text
            else:
                found.append(output)
            continue
        if output.output_type == "execute_result":
            output.output_type = "display_data"
        output.metadata = output.get("metadata") or NotebookNode()
        output.data = {
            kind: _without(value, patterns) if isinstance(value, str) else value
            for kind, value in sorted(output.data.items())
        }
        found.append(output)
    for output in found:
        if output.output_type == "stream":
            output.text = _without(output.text, patterns)
    return found


def _without(text: str, patterns: Sequence[tuple[str, str]]) -> str:
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text)
    return text


@functools.cache
def _patterns() -> list[tuple[str, str]]:
    """What differs from run to run in a text, and what is stored in its place: tools/nbval.ini.

    Not the numbers of lines of kernels: a reader is told the one, and two are compared without.
    """
    sections = configparser.ConfigParser(interpolation=None)
    sections.read(Path(__file__).with_name("nbval.ini"), encoding="utf-8")
    found = {
        name: (section["regex"], section["replace"])
        for name, section in sections.items()
        if section
    }
    del found["line"]
    return list(found.values())


def differences(
    old: Result | None, new: Result, page: str, dialect: str, root: Path = ROOT
) -> list[str]:
    """What a reader of a page would see differ between two results, as lines to print.

    Cells with the tag `nbval-ignore-output` may differ, and so may the numbers of kernels' lines.
    """
    name = f"{page} ({dialect})"
    if old is None:
        return [f"{name}: no result is stored for the code that it has now"]
    found: list[str] = []
    cells = pages.code(page, dialect, root)
    for number, (cell, was, now) in enumerate(zip(cells, old.outputs, new.outputs, strict=True)):
        if IGNORED in cell.metadata.get("tags", []):
            continue
        before, after = _shown(was), _shown(now)
        if before != after:
            names = f"{name}, code cell {number}, stored", "executed"
            found += difflib.unified_diff(before, after, *names, lineterm="", n=1)
    return found


def _shown(outputs: Sequence[NotebookNode]) -> list[str]:
    """What outputs show, as lines that are short enough to be compared."""
    lines: list[str] = []
    for output in outputs:
        if output.output_type == "stream":
            lines += [f"{output.name}: {line}" for line in output.text.splitlines()]
            continue
        for kind, value in sorted(output.data.items()):
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            pieces = re.sub(r"(?<=>)(?=<)", "\n", text) if kind == "text/html" else text
            lines += [f"{kind}: {line[:400]}" for line in pieces.splitlines()]
            lines.append(f"{kind}: sha256 {hashlib.sha256(_numberless(text)).hexdigest()[:16]}")
    return [_LINE.sub(r"\1:...", line) for line in lines]


def _numberless(text: str) -> bytes:
    return _LINE.sub(r"\1:...", text).encode()


def executed(page: str, root: Path = ROOT) -> list[tuple[str, Result]]:
    """The stored results of a page, by dialect."""
    found = [(dialect, read(page, dialect, root)) for dialect in pages.dialects(page, root)]
    return [(dialect, result) for dialect, result in found if result is not None]


def missing(root: Path = ROOT, names: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """The pages, all or these, each in a dialect, without a result for the code they have now."""
    chosen = pages.in_order(root) if names is None else names
    runs = [(page, dialect) for page in chosen for dialect in pages.dialects(page, root)]
    return [run for run in runs if read(*run, root) is None]


def orphans(root: Path = ROOT) -> list[Path]:
    """Results and notebooks of pages, or of dialects of pages, that are no more."""
    wanted = {
        file for run in pages.runs(root) for file in (path(*run, root), pages.notebook(*run, root))
    }
    there = [*root.glob("results/*/*.json.xz"), *root.glob("notebooks/*/*.ipynb")]
    return sorted(set(there) - wanted)
