"""The pages keep the rules of the book, and their notebooks are complete wherever they are read."""

from __future__ import annotations

import ast
import base64
import functools
import io
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pages
import plain_markdown
import pytest
from markdown_it import MarkdownIt
from nbconvert import HTMLExporter
from PIL import Image

import notebooks
import results
from nkibook.cells import dialect_of

ROOT = pages.ROOT
PAGES = pages.in_order()
RUNS = pages.runs()
MAX_CELL_LINES = 40

each_run = pytest.mark.parametrize(("page", "dialect"), RUNS, ids=lambda text: Path(text).name)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: Path(page).name)


# What an author writes.


def checks(source: str) -> int:
    """Count the statements of a cell that fail when something is wrong."""
    found = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            found += 1
        elif isinstance(node, ast.Call):
            called = node.func
            function = called.attr if isinstance(called, ast.Attribute) else ""
            function = called.id if isinstance(called, ast.Name) else function
            found += function.startswith(("assert_", "check")) or function == "raises"
    return found


def code_cells(page: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in pages.cells(page) if cell.cell_type == "code"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("notebooks/")])
def test_page_checks_what_it_says(page: str) -> None:
    assert sum(checks(cell.source) for cell in code_cells(page)) >= 1


@each_page
def test_cells_keep_the_rules(page: str) -> None:
    for number, cell in enumerate(code_cells(page)):
        where = f"{page}, code cell {number}:\n{cell.source}"
        tags = set(cell.metadata.get("tags", []))
        assert len(cell.source.splitlines()) <= MAX_CELL_LINES, where
        # The tag tolerates an error and never requires one: assert the error in the cell.
        assert not tags & {"raises-exception", "nbval-raises-exception", "nbval-skip"}, where
        # nbval runs cells without history, where IPython ignores the semicolon.
        assert not cell.source.rstrip().endswith(";"), where
        # The exercises of another page may change without this page being executed again.
        for imported in re.findall(r"exercises\.(?:puzzles|solutions) import (\w+)", cell.source):
            assert imported == Path(page).name, where


def test_table_of_contents_lists_every_page() -> None:
    files = [path for folder in ("book", "notebooks") for path in (ROOT / folder).glob("*.md")]
    there = {path.relative_to(ROOT).with_suffix("").as_posix() for path in files}
    assert len(PAGES) == len(set(PAGES))
    assert set(PAGES) == there - {"notebooks/README"}
    assert len({Path(page).name for page in PAGES}) == len(PAGES)  # of their notebooks


# What a reader gets.


@functools.cache
def stored(page: str, dialect: str) -> nbformat.NotebookNode:
    return nbformat.read(pages.notebook(page, dialect), as_version=4)


@each_run
def test_a_notebook_is_what_its_page_and_result_make(page: str, dialect: str) -> None:
    """Whether the result is what execution gives, `make book CLEAN=1` and the gate find out."""
    assert results.read(page, dialect) is not None, f"no result; run: make notebooks P={page}"
    files = notebooks.wanted([(page, dialect)])
    assert notebooks.differing(files) == [], f"run: make notebooks P={page}"


def test_every_notebook_has_a_page_and_the_index_lists_all() -> None:
    assert results.orphans() == []
    index = (ROOT / "notebooks/README.md").read_text(encoding="utf-8")
    assert index == notebooks.index(), "run: make notebooks"
    linked = set(re.findall(r"\((\w+/\w+)\.ipynb\)", index))
    assert linked == {f"{dialect}/{Path(page).name}" for page, dialect in RUNS}


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """All Markdown of a notebook: cells, and outputs."""
    found = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return found + [
        o.data["text/markdown"] for o in outputs if "text/markdown" in o.get("data", {})
    ]


MARKUP = {
    "a role": re.compile(r"\{[a-z][\w:+-]*\}$"),  # before code
    "a directive": re.compile(r":{3,}|\{\{.*?\}\}|(?<!\S):(?:tags|pyobject|alt|name|width):"),
    "a label": re.compile(r"^\([\w-]+\)=$", re.MULTILINE),
}
HTML = re.compile(r"</?(?:details|summary|a|b|br|code|p)\b[^>]*>|<!--.*?-->", re.DOTALL)
PARSER = MarkdownIt("commonmark").enable("table")


def faults_of_text(text: str, headings: set[str], folder: Path) -> list[str]:
    """What CommonMark's parser finds in a text that is not plain, or leads nowhere."""
    found: list[str] = []
    for block in PARSER.parse(text):
        if block.type == "fence" and block.info.strip().startswith("{"):
            found.append(f"a directive: {block.info}")
        html = block.content if block.type == "html_block" else ""
        if left := re.search(r"<[^>]*>", HTML.sub("", html)):
            found.append(f"HTML that hosts take out: {left[0]}")
        before = ""
        for child in block.children or []:
            if child.type == "text":
                found += [
                    f"{what}: {child.content!r}"
                    for what, pattern in MARKUP.items()
                    if what != "a role" and pattern.search(child.content)
                ]
            if child.type == "code_inline" and MARKUP["a role"].search(before):
                found.append(f"a role: {before}`{child.content}`")
            if child.type == "code_inline" and re.search(r"\w$", before):
                found.append(f"no blank: {before}`{child.content}`")
            before = child.content if child.type == "text" else ""
            if child.type == "link_open" and (fault := _leads_nowhere(child, headings, folder)):
                found.append(fault)
            if child.type == "image":
                found.append(f"a picture that is not in the notebook: {child.attrs['src']}")
    return found


def _leads_nowhere(link, headings: set[str], folder: Path) -> str:
    target = unquote(str(link.attrs["href"]))
    if target.startswith(("https://", "http://")):
        return ""
    if target.startswith("#"):
        return "" if target[1:] in headings else f"no such heading: {target}"
    there = (folder / target).resolve()
    inside = ROOT / "notebooks" in there.parents and there.suffix == ".ipynb"
    return "" if inside and there.is_file() else f"a link that leads nowhere: {target}"


def headings_of(notebook: nbformat.NotebookNode) -> set[str]:
    """The anchors that Jupyter gives the headings of a notebook."""
    found: set[str] = set()
    for text in texts(notebook):
        tokens = PARSER.parse(text)
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                parts = (child.content for child in tokens[at + 1].children or [])
                found.add("".join(parts).replace(" ", "-"))
    return found


@each_run
def test_the_text_is_plain_and_its_links_lead_somewhere(page: str, dialect: str) -> None:
    notebook = stored(page, dialect)
    nbformat.validate(notebook)
    headings = headings_of(notebook)
    folder = ROOT / "notebooks" / dialect
    for text in texts(notebook):
        assert faults_of_text(text, headings, folder) == [], text
        assert "OWNER" not in text


@each_run
def test_code_is_of_the_dialect_and_runs_anywhere(page: str, dialect: str) -> None:
    notebook = stored(page, dialect)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    setup, *cells = [cell.source for cell in code]
    assert f'os.environ["NKI_DIALECT"] = "{dialect}"' in setup
    assert "%pip install" in setup
    assert len(cells) == len(pages.code(page, dialect))
    for cell in cells:
        assert dialect_of(cell) is None, cell  # a mark: of this dialect it would be left out
        # A folder of the checkout, which is not beside a notebook that was downloaded.
        assert not re.search(r"[\"'](?:\.\./|(?:book|notebooks|nkibook)/)", cell), cell
        assert "parents[" not in cell, cell
    if dialect == "nki":  # whose PyTorch has a device of its own
        assert not [cell.source for cell in notebook.cells if "torch_xla" in cell.source]


@each_run
def test_outputs_are_there_as_every_host_shows_them(page: str, dialect: str) -> None:
    for cell in stored(page, dialect).cells:
        if cell.cell_type != "code":
            continue
        data = [output.get("data", {}) for output in cell.outputs]
        said = "".join(
            o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in cell.outputs
        )
        assert "Not run:" not in said
        assert not [output for output in cell.outputs if output.get("name") == "stderr"]
        pictures = [kinds["image/png"] for kinds in data if "image/png" in kinds]
        assert len(pictures) >= len(re.findall(r"^Figure: ", said, re.MULTILINE)) > -1
        for output in cell.outputs:
            html = output.get("data", {}).get("text/html", "")
            assert not re.search(r"<(?:svg|style|script|img|input|fieldset)\b|\bclass=", html), html
            if "image/png" in output.get("data", {}):
                assert output.metadata["image/png"]["alt"].strip()
        for picture in pictures:
            image = Image.open(io.BytesIO(base64.b64decode(picture)))
            assert len(image.convert("RGB").getcolors(1 << 24)) > 1, "the picture is blank"
            assert image.width <= 1800


@pytest.mark.parametrize("dialect", pages.DIALECTS)
def test_nbconvert_shows_pictures_links_and_solutions(dialect: str) -> None:
    """What GitHub and nbviewer use: one page, which has all of it."""
    shown, _ = HTMLExporter().from_notebook_node(stored("notebooks/add_torch", dialect))
    assert shown.count("data:image/png;base64,") >= 8
    assert "<summary>Solution</summary>" in shown
    assert 'href="add_jax.ipynb"' in shown
    assert 'id="Where-the-time-goes"' in shown
    assert 'href="#Where-the-time-goes"' in shown


# The tools, on what is made to fail.


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("See {doc}`add`.", "a role"),
        ("even if`x` is", "no blank"),
        ("```{note}\nText\n```", "a directive"),
        (":::{nki}\nText\n:::", "a directive"),
        ("See [there](../../book/setup.md).", "leads nowhere"),
        ("See [there](#nowhere).", "no such heading"),
        ("![a](a.png)", "a picture"),
        ('<div class="x">\n<svg></svg>\n</div>', "HTML"),
    ],
)
def test_faults_of_text_are_found(text: str, fault: str) -> None:
    found = faults_of_text(text, {"There"}, ROOT / "notebooks/nki")
    assert any(fault in line for line in found), found
    plain = (
        "A [link](#There), `{code}`, [[1]](https://example.org).\n\n<details><summary>S</summary>\n"
    )
    assert faults_of_text(plain, {"There"}, ROOT / "notebooks/nki") == []


class Named:
    """References that say what they were asked."""

    def page(self, name: str, text: str) -> str:
        return f"[{text}]({name})"

    def citation(self, keys: list[str]) -> str:
        return f"[{' '.join(keys)}]"

    def term(self, term: str, text: str) -> str:
        return f"{text}/{term}"

    def file(self, path: str, text: str) -> str:
        return f"{text} ({path})"

    def heading(self, slug: str) -> str | None:
        return {"the-time": "The time"}.get(slug)


def plain(text: str, dialect: str = "nki") -> str:
    return plain_markdown.convert(text, "notebooks/page", ROOT, dialect, Named())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{doc}`/book/x`, {doc}`this <y>`", "[](book/x), [this](notebooks/y)"),
        ("A {term}`tile`, {term}`tiles <tile>` {cite}`a,b`.", "A tile/tile, tiles/tile [a b]."),
        ("{py:data}`load <nl.load>` of `{nki}`", "`load` of `{nki}`"),
        ("{neuronxcc}`two`{nki}``one `c` {cite}`a` ``!", "one `c` [a]!"),
        ("of {neuronxcc}`` `a` ``{nki}`` `b`, `c` `` d", "of `b`, `c` d"),
        (":::{neuronxcc}\nA\n:::\n:::{nki}\nB {cite}`a`\n:::", "B [a]"),
        ("- a\n- {neuronxcc}`b`\n- c", "- a\n- c"),
        ("See [it](#the-time).", "See [it](#The-time)."),
        ("Term\n: What it\n  means.", "- **Term**: What it\n  means."),
        (
            "````{dropdown} Hint\nA {term}`t`.\n````",
            "<details><summary>Hint</summary>\n\nA t/t.\n\n</details>",
        ),
        (":::{admonition} Mind\nThis.\n:::", "> **Mind.**\n>\n> This."),
        ("```\n{doc}`x`\n```", "```\n{doc}`x`\n```"),
        ('<a href="../a.whl">the wheel</a>', "the wheel (a.whl)"),
    ],
)
def test_markup_becomes_plain(text: str, wanted: str) -> None:
    assert plain(text) == wanted


def test_a_page_without_a_notebook_is_named_by_its_title(monkeypatch) -> None:
    monkeypatch.setattr(pages, "site", lambda root=ROOT: None)
    references = notebooks.References("book/api_nki", "nki", ROOT)
    assert references.page("book/api_nki_isa", "nisa") == "*nisa* (*`nki.isa`*)"
    assert references.page("book/glossary", "") == "*Glossary*"


def test_included_code_is_written_out() -> None:
    shown = plain(
        "```{literalinclude} ../kernels/add/nki.py\n:pyobject: nki_tensor_add_kernel\n```"
    )
    assert shown.startswith("```python\n@nki.jit\ndef nki_tensor_add_kernel(")
    text = "a = 1\n\n\ndef f():\n    if a:\n        return 2\n"
    assert plain_markdown.included(text, {"start-at": "if", "end-at": "return", "dedent": ""}) == (
        "if a:\n    return 2"
    )
    assert plain_markdown.included(text, {"end-before": "def"}) == "a = 1"
    with pytest.raises(ValueError, match="no g"):
        plain_markdown.included(text, {"pyobject": "g"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{new}`role`", "role {new} is not known"),
        ("```{new}\n```", "directive {new} is not known"),
        ("[a](#gone)", "no heading"),
        ("{nki}`a {term}`tile`, b`", "needs two backticks"),
        ("```{note}\nText", "has no end"),
        (":::\nText\n:::", "colons"),
    ],
)
def test_unknown_markup_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plain(text)
