"""A page of the site, of what the page gave in each dialect.

Every page is executed once in each dialect, without the cells of the other. On the site the
results are one page, in which a cell or an output of one dialect has a class that the reader's
choice hides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pages
import yaml
from myst_nb.core.read import read_myst_markdown_notebook
from nbformat import NotebookNode
from pages import ROOT

from nkibook.cells import MARKS, dialect_of
from results import Result

# A tag becomes the class `tag_…` of a cell on the site: book/_static/dialect.css.
TAGS = {"neuronxcc": "dialect-neuronxcc", "nki": "dialect-nki"}

MEASURED = "measured"
"""The tag of a shared cell whose output differs by chance: it is shown once, of the first run."""

SHOWN_WHOLE = ("notebooks/dialects",)
"""Pages that show the cells of both dialects to every reader, with their marks."""

_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def without_mark(source: str) -> str:
    """A cell as readers see it: its dialect is their choice, so the mark is left out."""
    dialect = dialect_of(source)
    if dialect is None:
        return source
    line, newline, rest = source.lstrip("\n").partition("\n")
    words, colon, reason = line[1:].partition(":")
    kept = [word.strip() for word in words.split(",") if word.strip() != MARKS[dialect]]
    return f"# {', '.join(kept)}{colon}{reason}{newline}{rest}" if kept else rest


def merge(page: str, results: dict[str, Result], root: Path = ROOT) -> tuple[str, NotebookNode]:
    """Make one page of a page's results.

    A cell of one dialect gets that dialect's outputs, and its tag in the place of its mark. A
    shared cell whose outputs differ is followed by two cells without input, which show the outputs
    of either.

    Args:
        page: as in _toc.yml.
        results: by dialect.

    Returns:
        the page that Sphinx is to read, and the same as a notebook with outputs.
    """
    text = pages.text(page, root)
    for dialect, result in results.items():
        if len(result.outputs) != len(pages.code(page, dialect, root)):
            raise ValueError(f"{page} in {dialect}: its result has the outputs of another page")
    of = {dialect: iter(result.outputs) for dialect, result in results.items()}
    cells: list[NotebookNode] = []
    for cell in read_myst_markdown_notebook(text).cells:
        cells.append(cell)
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        if dialect := dialect_of(cell.source):
            cell.outputs = next(of[dialect])
            if page not in SHOWN_WHOLE:
                cell.source = without_mark(cell.source)
                cell.metadata["tags"] = [*tags, TAGS[dialect]]
            continue
        outputs = {dialect: next(found) for dialect, found in of.items()}
        first, *others = outputs.values()
        if {"remove-output", MEASURED} & {*tags} or all(first == other for other in others):
            cell.outputs = first
            continue
        of_output = [tag for tag in tags if "output" in tag]
        for dialect, found in outputs.items():
            beside = NotebookNode(cell)
            beside.metadata = NotebookNode(cell.metadata)
            beside.metadata["tags"] = [*of_output, "remove-input", TAGS[dialect]]
            beside.outputs = found
            cells.append(beside)
        cell.metadata["tags"] = [*tags, "remove-output"]
    front = _FRONT_MATTER.match(text)
    merged = "\n".join([front[0] if front else "", *_as_myst(cells), executed_note(results)])
    notebook = read_myst_markdown_notebook(merged)
    given = [cell for cell in cells if cell.cell_type == "code"]
    there = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, source in zip(there, given, strict=True):
        cell.outputs = source.outputs
    # What an executing kernel says of itself: without it code is not highlighted.
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    return merged, notebook


def executed_note(results: dict[str, Result]) -> str:
    """When, from which commit and with which Python a page was executed, as HTML."""
    notes = {dialect: executed(result) for dialect, result in results.items()}
    if len({*notes.values()}) == 1:
        notes = {"": next(iter(notes.values()))}
    spans = (
        f'<span class="{f"dialect dialect-{dialect}" * bool(dialect)}">{note}</span>'
        for dialect, note in notes.items()
    )
    return f'\n<p class="nki-executed">{"".join(spans)}</p>\n'


def executed(result: Result) -> str:
    """When, from which commit and with which Python a page was executed, as a sentence."""
    commit = f"at commit {result.commit}, " if result.commit else ""
    return f"Executed on {result.date}, {commit}with Python {result.python}."


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
