"""Pages in both dialects of NKI: which they are, how each is executed, and the results as one page.

A page has cells for one dialect where nkibook/cells.py says so. It is executed once for each
dialect, every time without the cells of the other, as on an instance. NAME.ipynb stores what it
prints in `neuronxcc.nki`, import_nki/NAME.ipynb what in `import nki`. For the site both become one
page, in which a cell or an output of one dialect has a class that the reader's choice hides.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from myst_nb.core.read import read_myst_markdown_notebook
from nbformat import NotebookNode

from nkibook.cells import DIALECTS, MARKS, dialect_of

NEURONXCC, NKI = DIALECTS.values()
# A tag becomes the class `tag_…` of a cell on the site: book/_static/dialect.css.
TAGS = {NEURONXCC: "dialect-neuronxcc", NKI: "dialect-nki"}

FOLDER = "import_nki"  # in notebooks/

MEASURED = "measured"
"""The tag of a shared cell whose output differs by chance: it is shown once, of the first run."""

SHOWN_WHOLE = ("notebooks/dialects",)
"""Pages in both dialects that show the cells of both to every reader, with their marks."""

_MARKED = re.compile(rf"^# .*(?:{'|'.join(map(re.escape, DIALECTS))})", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}\b")


def runs(source: Path) -> tuple[str, ...]:
    """The dialects that a page is executed in: both where a cell has a mark, else the first."""
    text = source.read_text(encoding="utf-8") if source.is_file() else ""
    if not _MARKED.search(text):
        return (NEURONXCC,)
    cells = read_myst_markdown_notebook(text).cells
    marked = any(c.cell_type == "code" and dialect_of(c.source) for c in cells)
    return (NEURONXCC, NKI) if marked else (NEURONXCC,)


def stored(source: Path, dialect: str = NEURONXCC) -> Path:
    """The notebook that stores what a page prints in a dialect."""
    folder = source.parent if dialect == NEURONXCC else source.parent / FOLDER
    return folder / f"{source.stem}.ipynb"


def stored_in(notebook: Path, dialect: str) -> Path:
    """The notebook of a page for a dialect, NAME.ipynb given; of other pages the only one."""
    source = notebook.with_suffix(".md")
    return stored(source, dialect) if dialect in runs(source) else notebook


@contextlib.contextmanager
def started_in(dialect: str) -> Iterator[None]:
    """Have the processes that are started in this block take a dialect."""
    before = os.environ.get("NKI_DIALECT")
    if dialect != NEURONXCC:
        os.environ["NKI_DIALECT"] = dialect
    try:
        yield
    finally:
        os.environ.pop("NKI_DIALECT", None)
        if before is not None:
            os.environ["NKI_DIALECT"] = before


def without_mark(source: str) -> str:
    """A cell as the site shows it: its dialect is the reader's choice, so the mark is left out."""
    mark = MARKS[str(dialect_of(source))]
    line, newline, rest = source.lstrip("\n").partition("\n")
    words, colon, reason = line[1:].partition(":")
    kept = [word.strip() for word in words.split(",") if word.strip() != mark]
    return f"# {', '.join(kept)}{colon}{reason}{newline}{rest}" if kept else rest


def merge(
    text: str, first: NotebookNode, second: NotebookNode, *, whole: bool = False
) -> tuple[str, NotebookNode]:
    """Make one page of a page's two results.

    A cell of one dialect gets that dialect's outputs, and its tag in the place of its mark. A
    shared cell whose outputs differ is followed by two cells without input, which show the outputs
    of either.

    Args:
        text: the page, in MyST.
        first, second: as it was executed in `neuronxcc.nki` and in `import nki`.
        whole: cells of one dialect keep their mark and get no tag: they are shown to every reader.

    Returns:
        the page that Sphinx is to read, and the same as a notebook with outputs.
    """
    results = zip(_code(first), _code(second), strict=True)
    cells: list[NotebookNode] = []
    for cell in read_myst_markdown_notebook(text).cells:
        cells.append(cell)
        if cell.cell_type != "code":
            continue
        a, b = next(results)
        if not cell.source == a.source == b.source:
            raise ValueError(f"the page and its results differ: {cell.source!r}, {a.source!r}")
        outputs = {NEURONXCC: a.outputs, NKI: b.outputs}
        tags = cell.metadata.get("tags", [])
        if dialect := dialect_of(cell.source):
            cell.outputs = outputs[dialect]
            if whole:
                # A blank, so that the cache does not take the page for one of the two results.
                cell.source = cell.source.replace("\n", " \n", 1)
            else:
                cell.source = without_mark(cell.source)
                cell.metadata["tags"] = [*tags, TAGS[dialect]]
        elif {"remove-output", MEASURED} & {*tags} or _content(a.outputs) == _content(b.outputs):
            cell.outputs = a.outputs
        else:
            of_output = [tag for tag in tags if "output" in tag]
            for dialect, found in outputs.items():
                beside = NotebookNode(cell)
                beside.metadata = NotebookNode(cell.metadata)
                beside.metadata["tags"] = [*of_output, "remove-input", TAGS[dialect]]
                beside.outputs = found
                cells.append(beside)
            cell.metadata["tags"] = [*tags, "remove-output"]
    front = _FRONT_MATTER.match(text)
    merged = "\n".join([front[0] if front else "", *_as_myst(cells)])
    notebook = read_myst_markdown_notebook(merged)
    given = [cell for cell in cells if cell.cell_type == "code"]
    for cell, source in zip(_code(notebook), given, strict=True):
        cell.outputs = source.outputs
    # What an executing kernel says of itself: without it code is not highlighted.
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    return merged, notebook


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _content(outputs: list[NotebookNode]) -> str:
    """What outputs show, without what differs between two runs of one cell."""
    shown: list[list[object]] = []
    for output in outputs:
        if output.output_type != "stream":
            shown.append([output.output_type, output.get("data", {})])
        elif shown and shown[-1][0] == output.name:  # where a stream is cut is chance
            shown[-1][1] = str(shown[-1][1]) + output.text
        else:
            shown.append([output.name, output.text])
    return _ADDRESS.sub("", json.dumps(shown, sort_keys=True))


def _as_myst(cells: list[NotebookNode]) -> Iterator[str]:
    """Each cell as text of a MyST notebook."""
    before = None
    for cell in cells:
        if cell.cell_type == "code":
            longest = max((len(run) for run in re.findall("`+", cell.source)), default=0)
            fence = "`" * max(3, longest + 1)
            options = f"---\n{yaml.safe_dump(_plain(cell.metadata))}---\n" if cell.metadata else ""
            yield f"{fence}{{code-cell}} ipython3\n{options}{cell.source}\n{fence}\n"
        else:
            yield f"{'+++' * (before == 'markdown')}\n\n{cell.source}\n"
        before = cell.cell_type


def _plain(value: object) -> object:
    return json.loads(json.dumps(value))
