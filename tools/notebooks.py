"""Make the notebooks: for each page and dialect one that is complete wherever notebooks are read.

    python tools/notebooks.py                execute what changed, store its result, write all
    python tools/notebooks.py PAGE ...       execute these, whether they changed or not
    python tools/notebooks.py --clean        execute every page
    python tools/notebooks.py --check        compare, execute nothing, write nothing

A notebook, notebooks/DIALECT/NAME.ipynb, is made of the page (book/NAME.md or notebooks/NAME.md)
and of its result in that dialect (results.py). Nothing in it changes unless one of these does. It
has the cells and sentences of its dialect, as Markdown without roles (plain_markdown.py), and
outputs with PNG in the place of SVG (plain_outputs.py).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import bibliography
import dialects
import executing
import nbformat
import needs
import pages
import plain_markdown
import plain_outputs
from nbformat import NotebookNode
from pages import ROOT

import results
from nkibook.cells import MARKS

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

RUNS_ON = {
    "neuronxcc": "inf2 and trn1 with Neuron SDK 2.29 or earlier",
    "nki": "trn2 and trn3 with Neuron SDK 2.33",
}

# Added where a page uses the device of PyTorch.
BETA = {"nki": ", whose device for PyTorch (TorchNeuron) is a public beta"}

# The id of the cell that installs the package: it belongs to the notebook, not to the page.
SETUP_ID = "setup"
SETUP = """\
# Installs the package of the book where it is missing. Run this cell first.
import importlib.util
import os

if importlib.util.find_spec("nkibook") is None:
    %pip install --quiet "{requirement}"
os.environ["NKI_DIALECT"] = "{dialect}"  # this notebook is in {mark}"""

IN_SIMULATOR = """
os.environ |= {  # and it looks into the simulator, which runs its kernels on an instance, too
    "NKI_BACKEND": "nkisim", "JAX_PLATFORMS": "cpu", "PJRT_DEVICE": "CPU"
}"""

# What the site makes of these is not in a notebook.
_GENERATED = re.compile(r"^<!-- names: .* -->$", re.MULTILINE)  # book/_ext/reference.py
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


class References:
    """Where the roles of a page lead, from its notebook in a dialect."""

    def __init__(self, page: str, dialect: str, root: Path) -> None:
        self.own = page
        self.dialect = dialect
        self.root = root
        self.cited: list[str] = []
        texts = (cell.source for cell in pages.cells(page, root) if cell.cell_type == "markdown")
        found = (h for text in texts for h in _HEADING.findall(text))
        self.headings = {slug(heading): heading.replace("`", "") for heading in found}

    def page(self, name: str, text: str) -> str:
        if not pages.source(name, self.root).is_file():
            raise ValueError(f"{self.own} leads to the page {name}, and there is none")
        title = pages.title(name, self.root)
        address = page_address(name, self.dialect, self.root)
        if address:
            return f"[{text or title}]({address})"
        return f"*{text}* (*{title}*)" if text not in ("", title) else f"*{title}*"

    def citation(self, keys: list[str]) -> str:
        entries = bibliography.entries(self.root)
        said = []
        for key in keys:
            if key not in self.cited:
                self.cited.append(key)
            number = f"\\[{self.cited.index(key) + 1}\\]"
            url = entries[key].url
            said.append(f"[{number}]({url})" if url else number)
        return ", ".join(said)

    def works(self) -> str:
        """The list of what the page cites, as a cell; "" where it cites nothing."""
        if not self.cited:
            return ""
        entries = bibliography.entries(self.root)
        lines = [f"{n}. {entries[key]}" for n, key in enumerate(self.cited, 1)]
        return "\n".join(["## References", "", *lines])

    def term(self, term: str, text: str) -> str:
        site = pages.site(self.root)
        anchor = f"term-{re.sub(r'[^A-Za-z0-9]+', '-', term)}"
        return f"[{text}]({site}/book/glossary.html#{anchor})" if site else text

    def file(self, path: str, text: str) -> str:
        site = pages.site(self.root)
        return f"[{text}]({site}/{path})" if site else text

    def heading(self, anchor: str) -> str | None:
        return self.headings.get(anchor)


def slug(heading: str) -> str:
    """The anchor that the site gives a heading, as on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def page_address(name: str, dialect: str, root: Path = ROOT) -> str | None:
    """Where a notebook's link to a page leads: to its notebook, else to the site if that has an
    address, else nowhere."""
    there = pages.dialects(name, root)
    if dialect in there:
        return f"{Path(name).name}.ipynb"
    if there:
        return f"../{there[0]}/{Path(name).name}.ipynb"
    return f"{pages.site(root)}/{name}.html" if pages.site(root) else None


def requirement(page: str, dialect: str, root: Path = ROOT) -> str:
    """What pip installs for a page: the wheel that the site offers, with the page's frameworks.

    While the site has no address, the wheel is to lie beside the notebook.
    """
    code = "\n".join(cell.source for cell in pages.code(page, dialect, root))
    uses = {
        "torch": r"\btorch\b|torch_hlo",
        "jax": r"\bjax\b|jax_hlo",
        "transformers": r"(?:import|from) transformers\b",
    }
    extras = [name for name, used in uses.items() if re.search(used, code)]
    wheel = pages.wheel(root)
    wanted = f"[{','.join(['notebook', *extras])}]"
    site = pages.site(root)
    return f"nki-book{wanted} @ {site}/{wheel}" if site else f"./{wheel}{wanted}"


def skeleton(page: str, dialect: str, root: Path = ROOT) -> NotebookNode:
    """The code of a page's notebook, as it is executed: the cell that installs, then the page's."""
    code = SETUP.format(
        requirement=requirement(page, dialect, root), dialect=dialect, mark=MARKS[dialect]
    )
    if needs.SIMULATOR in needs.of(page, dialect, root):
        code += IN_SIMULATOR
    cells = [nbformat.v4.new_code_cell(code, id=SETUP_ID, metadata={"tags": ["hide-input"]})]
    for cell in pages.code(page, dialect, root):
        cells.append(_code(cell))
    return _named(nbformat.v4.new_notebook(cells=cells, metadata=METADATA))


def outputs_of_page(notebook: NotebookNode) -> list[list[NotebookNode]]:
    """The outputs of the page's own code cells, of a notebook that was executed."""
    return [c.outputs for c in notebook.cells if c.cell_type == "code" and c.id != SETUP_ID]


def make(
    page: str,
    dialect: str,
    result: results.Result,
    root: Path = ROOT,
    made: plain_outputs.Known | None = None,
) -> NotebookNode:
    """The notebook of a page in a dialect, with what its cells gave; `made` are pictures of it."""
    references = References(page, dialect, root)

    def plain(text: str) -> str:
        try:
            return plain_markdown.convert(text, page, root, dialect, references)
        except ValueError as error:
            raise ValueError(f"{page} in {dialect}: {error}") from error

    setup = skeleton(page, dialect, root).cells[0]
    cells: list[NotebookNode] = []
    outputs = iter(result.outputs)
    for cell in pages.cells(page, root):
        own = dialects.dialect_of(cell.source) if cell.cell_type == "code" else None
        if cell.cell_type == "markdown":
            text = plain(_generated(cell.source, page, root))
        elif own in (None, dialect):
            cells.append(_code(cell))
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
            cells[-1].outputs = [
                shown for output in next(outputs) for shown in _outputs(output, alt, plain, made)
            ]
            continue
        elif page in dialects.SHOWN_WHOLE:
            text = f"```python\n{cell.source}\n```"
        else:
            continue
        if cells and cells[-1].cell_type == "markdown":
            cells[-1].source = f"{cells[-1].source}\n\n{text}".strip("\n")
        else:
            cells.append(nbformat.v4.new_markdown_cell(text))
    cells = [cell for cell in cells if cell.cell_type == "code" or cell.source.strip()]
    cells = [*_opening(page, dialect, cells[0].source, root), setup, *_after_opening(cells)]
    if works := references.works():
        cells.append(nbformat.v4.new_markdown_cell(works))
    cells.append(nbformat.v4.new_markdown_cell(f"*{dialects.executed(result)}*"))
    count = 0
    for cell in cells:
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count  # nbval compares no output of a cell that has none
    return _named(nbformat.v4.new_notebook(cells=cells, metadata=METADATA))


def _code(cell: NotebookNode) -> NotebookNode:
    tags = cell.metadata.get("tags", [])
    metadata: dict[str, object] = {"tags": tags} if tags else {}
    # What the site folds, Jupyter collapses.
    if {"hide-input", "remove-input", "hide-cell", "remove-cell"} & {*tags}:
        metadata["jupyter"] = {"source_hidden": True}
    return nbformat.v4.new_code_cell(dialects.without_mark(cell.source), metadata=metadata)


def _outputs(output: NotebookNode, alt: str | None, plain, made) -> list[NotebookNode]:
    found = plain_outputs.plain(output, alt, made)
    for shown in found:
        if "text/markdown" in shown.get("data", {}):
            shown.data["text/markdown"] = plain(shown.data["text/markdown"])
    return found


def _generated(text: str, page: str, root: Path) -> str:
    site = pages.site(root)
    there = f"[The site]({site}/{page}.html)" if site else "The site of the book"
    return _GENERATED.sub(f"{there} lists all names here, with an entry for each.", text)


def _split(text: str) -> tuple[str, str, str]:
    """A page's title, its first paragraph, and the rest of its first cell."""
    title, _, rest = text.strip().partition("\n")
    first, _, rest = rest.strip().partition("\n\n")
    return title, first.strip(), rest.strip()


def _opening(page: str, dialect: str, text: str, root: Path) -> list[NotebookNode]:
    """The first cell: what the page is about, for whom, how it runs, where its twin is."""
    title, first, _ = _split(text)
    name, mark = Path(page).name, MARKS[dialect]
    elsewhere = []
    for other in pages.dialects(page, root):
        if other != dialect:
            elsewhere.append(f"[in `{MARKS[other]}`](../{other}/{name}.ipynb)")
    if site := pages.site(root):
        elsewhere.append(f"[on the book's site]({site}/{page}.html?dialect={dialect})")
    if colab := pages.colab(f"notebooks/{dialect}/{name}.ipynb", root):
        elsewhere.append(f"[in Colab]({colab})")
    twins = f" The same page {', '.join(elsewhere)}." if elsewhere else ""
    wheel = pages.wheel(root)
    install = (
        "The next cell installs the package `nkibook` where it is missing."
        if site
        else f"Where the package `nkibook` is missing, the next cell installs it from `{wheel}`: "
        "put that file beside this notebook first (`pip wheel --no-deps .` in the repository "
        "makes it)."
    )
    needed = needs.of(page, dialect, root)
    beta = BETA.get(dialect, "") if needs.TORCH_NEURON in needed else ""
    in_simulator = needs.SIMULATOR in needed
    where_else = (
        ", and on an instance, in the simulator, too" if in_simulator else ", and on an instance"
    )
    note = (
        f"> **In `{mark}`**, for {RUNS_ON[dialect]}{beta}.{twins}\n"
        ">\n"
        "> It runs on a laptop and in Colab, where a simulator runs the kernels"
        f"{where_else}. {install}"
    )
    return [nbformat.v4.new_markdown_cell("\n\n".join(filter(None, [title, first, note])))]


def _after_opening(cells: Sequence[NotebookNode]) -> list[NotebookNode]:
    rest = _split(cells[0].source)[2]
    return [*([nbformat.v4.new_markdown_cell(rest)] if rest else []), *cells[1:]]


def _named(notebook: NotebookNode) -> NotebookNode:
    """Give the cells of a notebook, in place, ids that depend on their content alone; return it."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        if cell.get("id") == SETUP_ID:
            continue
        digest = hashlib.sha256(f"{cell.cell_type}\0{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    return notebook


# -- the index


def index(root: Path = ROOT) -> str:
    """notebooks/README.md: the pages in the book's order, in both dialects, with a line each."""
    lines = [
        "# The notebooks",
        "",
        "Every page of the book, as a notebook in each dialect of NKI: `neuronxcc.nki` for "
        f"{RUNS_ON['neuronxcc']}, and `import nki` for {RUNS_ON['nki']}. Without a device, "
        "a simulator runs them. Each is complete in itself, and needs the package `nkibook` and "
        f"nothing else from here: `pip install .` in the repository, or `{pages.wheel(root)}` "
        "beside the notebook, from which its first code cell installs it.",
        "",
        "They are made of the pages in this folder and in `book/`; edit those, and run "
        "`make notebooks P=notebooks/add_torch` (CONTRIBUTING says more).",
    ]
    seconds = executing.page_seconds()
    for caption, members in pages.parts(root).items():
        rows = [row for page in members if (row := _row(page, seconds, root))]
        if rows:
            lines += [
                "",
                f"## {caption}",
                "",
                "| page | about | in | runs in |",
                "|---|---|---|---|",
                *rows,
            ]
    return "\n".join(lines) + "\n"


def _row(page: str, seconds: dict[str, dict[str, float]], root: Path) -> str:
    there = pages.dialects(page, root)
    if not there:
        return ""
    links = ", ".join(f"[`{MARKS[d]}`]({d}/{Path(page).name}.ipynb)" for d in reversed(there))
    first = pages.cells(page, root)[0].source
    words = _Words(page, there[-1], root)
    text = plain_markdown.convert(first, page, root, there[-1], words)
    paragraph = " ".join(_split(text)[1].split()).replace(" .", ".")
    sentence = re.split(r"(?<=[.?!:]) ", paragraph, maxsplit=1)[0].rstrip(".:")
    end = "" if sentence.endswith("?") else "."
    took = max(seconds.get(page, {}).values(), default=executing.UNKNOWN)
    title = pages.title(page, root)
    return f"| **{title}** | {sentence}{end} | {links} | {executing.duration(took)} |"


class _Words(References):
    """References without links: for a line of the index."""

    def page(self, name: str, text: str) -> str:
        return text or f"*{pages.title(name, self.root)}*"

    def citation(self, keys: list[str]) -> str:
        return ""

    def term(self, term: str, text: str) -> str:
        return text


# -- reading, comparing, writing


def written(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook) + "\n"


def wanted(runs: Iterable[tuple[str, str]], root: Path = ROOT) -> dict[Path, str]:
    """The files that are to be there for pages in dialects, and what is to be in them.

    Raises:
        ValueError: a page has no result for the code that it has now.
    """
    found = {}
    for page, dialect in runs:
        result = results.read(page, dialect, root)
        if result is None:
            raise ValueError(
                f"{page} has no result in {dialect} for the code that it has now: "
                f"run `make notebooks P={page}`"
            )
        path = pages.notebook(page, dialect, root)
        made = plain_outputs.known(nbformat.read(path, as_version=4)) if path.is_file() else {}
        found[path] = written(make(page, dialect, result, root, made))
    return found


def differing(files: dict[Path, str]) -> list[Path]:
    """Those of files that are missing or say something else."""
    return [
        path
        for path, text in files.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def _files(runs: Sequence[tuple[str, str]], root: Path) -> dict[Path, str]:
    """`wanted`, and the index."""
    return wanted(runs, root) | {root / "notebooks/README.md": index(root)}


def stale(runs: Sequence[tuple[str, str]], root: Path = ROOT) -> list[Path]:
    """Notebooks, index and results that are not what pages and results make. Raises as `wanted`."""
    return [*differing(_files(runs, root)), *results.orphans(root)]


def write(runs: Sequence[tuple[str, str]], root: Path = ROOT) -> None:
    """Write the notebooks of pages in dialects, and the index, where they say something else."""
    files = _files(runs, root)
    for path in differing(files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
        print(f"==> {path.relative_to(root)}", flush=True)


def store(runs: Sequence[tuple[str, str]], root: Path = ROOT, record: bool = False) -> list[str]:
    """Execute pages and store what they gave; return what was wrong, a text for each page."""
    wrong, ended = [], []
    for run in executing.execute(runs, root):
        ended.append(run)
        if run.error:
            wrong.append(f"==> {run}\n{run.error}")
        elif results.write(run.result, run.page, run.dialect, root):
            print(f"==> {results.path(run.page, run.dialect, root).relative_to(root)}", flush=True)
    if root == ROOT:
        executing.record(ended, anew=record)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--clean", action="store_true", help="execute, even what has a result")
    parser.add_argument("--record", action="store_true", help="keep how long each page took")
    parser.add_argument("pages", nargs="*", type=Path, help="default: all; given, it is executed")
    options = parser.parse_args()
    os.environ.update(executing.environment())
    try:
        chosen = {pages.named(path) for path in options.pages}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    runs = [run for run in pages.runs() if not chosen or run[0] in chosen]
    if options.check:
        try:
            found = stale(runs)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print("".join(f"{path.relative_to(ROOT)}\n" for path in found), end="")
        return 1 if found else 0
    again = options.clean or chosen
    wrong = store(runs if again else results.missing(), ROOT, options.record)
    for path in results.orphans():
        path.unlink()
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
    write([run for run in runs if results.read(*run) is not None])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
