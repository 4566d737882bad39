"""Pages in both dialects: which they are, how their two results become one page of the site."""

from __future__ import annotations

import re
from pathlib import Path

import dialects
import nbformat
import notebook_download
import pytest
from dialects import NEURONXCC, NKI
from docutils import nodes
from myst_nb.core.read import read_myst_markdown_notebook

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path for folder in ("book", "notebooks") for path in (ROOT / folder).glob("*.md"))

PAGE = """\
---
kernelspec:
  name: python3
---

# Title

```{code-cell} python
:tags: [hide-input]

print("shared")
```

```{code-cell} python
# neuronxcc.nki
x = "````"
```

Text.

```{code-cell} python
:tags: [exercise]

# import nki, simulator only: a reason
x = 2
```

```{code-cell} python
---
mystnb:
  image:
    alt: A picture
tags: [hide-input]
---
print(x)
```
"""


def executed(*texts: str) -> nbformat.NotebookNode:
    """The page with one text printed by each cell."""
    notebook = read_myst_markdown_notebook(PAGE)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, text in zip(code, texts, strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    return notebook


def shown(notebook: nbformat.NotebookNode) -> list[tuple[str, list[str], str]]:
    """Of each code cell: its source, its tags, what it printed."""
    return [
        (c.source, c.metadata.get("tags", []), "".join(o.text for o in c.outputs))
        for c in notebook.cells
        if c.cell_type == "code"
    ]


def test_a_page_is_in_both_dialects_where_a_cell_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert dialects.runs(page) == (NEURONXCC, NKI)
    page.write_text(PAGE.replace("# import nki,", "#").replace("# neuronxcc.nki", "#"))
    assert dialects.runs(page) == (NEURONXCC,)
    page.write_text("# Title\n\n# import nki\n")
    assert dialects.runs(page) == (NEURONXCC,)


def test_cells_and_outputs_of_a_dialect_are_tagged() -> None:
    first = executed("at 0x7f0000000001", "a", "Not run", "1")
    second = executed("at 0x7f0000000002", "Not run", "b", "2")
    _, merged = dialects.merge(PAGE, first, second)
    of_neuronxcc, of_nki = dialects.TAGS[NEURONXCC], dialects.TAGS[NKI]
    assert shown(merged) == [
        ('print("shared")', ["hide-input"], "at 0x7f0000000001"),
        ('x = "````"', [of_neuronxcc], "a"),
        ("# simulator only: a reason\nx = 2", ["exercise", of_nki], "b"),
        ("print(x)", ["hide-input", "remove-output"], ""),
        ("print(x)", ["remove-input", of_neuronxcc], "1"),
        ("print(x)", ["remove-input", of_nki], "2"),
    ]
    assert merged.cells[-1].metadata["mystnb"]["image"]["alt"] == "A picture"
    _, merged = dialects.merge(PAGE, first, second, whole=True)
    assert shown(merged)[1:3] == [
        ('# neuronxcc.nki \nx = "````"', [], "a"),
        ("# import nki, simulator only: a reason \nx = 2", ["exercise"], "b"),
    ]
    # The cache of executed pages knows a page by its cells.
    assert [source for source, *_ in shown(merged)] != [c.source for c in first.cells]


def test_outputs_that_agree_are_shown_once_however_they_were_cut() -> None:
    first, second = executed("1\n2\n", "", "", "3"), executed("1\n2\n", "", "", "3")
    cell = second.cells[1]
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=t) for t in ("1\n", "2\n")]
    text, merged = dialects.merge(PAGE, first, second)
    assert len(shown(merged)) == 4
    assert text.startswith("---\nkernelspec:\n  name: python3\n---\n")


def test_a_measured_time_is_shown_once() -> None:
    """Two runs differ by chance, which would read as an effect of the dialect."""
    first, second = executed("", "", "", "1.2 ms"), executed("", "", "", "1.3 ms")
    assert len(shown(dialects.merge(PAGE, first, second)[1])) == 6
    for page in (first, second):
        page.cells[-1].metadata["tags"].append(dialects.MEASURED)
    measured = PAGE.replace("[hide-input]\n---", "[hide-input, measured]\n---")
    _, merged = dialects.merge(measured, first, second)
    assert shown(merged)[-1] == ("print(x)", ["hide-input", "measured"], "1.2 ms")
    assert len(shown(merged)) == 4


def test_results_of_another_page_are_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        dialects.merge(PAGE.replace('"shared"', '"other"'), executed(*"abcd"), executed(*"abcd"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_merged_page_is_the_page(page: Path) -> None:
    """Whatever stands in it, but for marks, and cells that are there for their outputs."""
    if "{code-cell}" not in (text := page.read_text()):
        pytest.skip("no cells")
    before = read_myst_markdown_notebook(text)
    merged, _ = dialects.merge(text, before, read_myst_markdown_notebook(text))
    after = read_myst_markdown_notebook(merged)
    for cell, other in zip(before.cells, after.cells, strict=True):
        is_code = cell.cell_type == "code"
        own = is_code and dialects.dialect_of(cell.source)
        wanted = dialects.without_mark(cell.source) if own else cell.source
        assert (other.cell_type, other.source.strip()) == (cell.cell_type, wanted.strip())
        added = set(other.metadata.get("tags", [])) - set(cell.metadata.get("tags", []))
        assert added == ({dialects.TAGS[str(own)]} if own else set())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_words_of_a_dialect_do_not_begin_with_code(page: Path) -> None:
    """Three backticks in a row would be the role's: begin with another character."""
    assert not re.findall(r"\{(?:nki|neuronxcc)\}`{3}.*", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_words_of_a_dialect_end_where_they_should(page: Path) -> None:
    """And not at a name in them: then two backticks stand on either side. What is left of the words
    would be code that begins with a blank."""
    text = re.sub(r"^(```+|~~~+).*?^\1", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"\{(?:nki|neuronxcc)\}(`+)(?!`).+?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)
    for paragraph in prose.split("\n\n"):
        spans = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", paragraph, re.DOTALL)
        assert not [span for _, span in spans if span[0].isspace()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    """Read a page of MyST with the extension: the page's nodes, and what was warned of."""
    from io import StringIO

    from sphinx.application import Sphinx

    def read(text: str) -> tuple[nodes.document, str]:
        folder = tmp_path_factory.mktemp("site")
        (folder / "index.md").write_text(text)
        (folder / "conf.py").write_text(
            "extensions = ['myst_parser', 'sphinx_design', 'dialect']\n"
            "myst_enable_extensions = ['colon_fence']\n"
        )
        warned = StringIO()
        app = Sphinx(
            folder, folder, folder / "out", folder / "trees", "html",
            status=None, warning=warned, freshenv=True,
        )  # fmt: skip
        app.build()
        return app.env.get_doctree("index"), warned.getvalue()

    return read


def test_blocks_and_words_of_a_dialect_have_its_class(site) -> None:
    document, warned = site(
        "# Title\n\n:::{nki}\nOnly **here**.\n\n- a list\n:::\n\n"
        "A clock of {neuronxcc}``2.8, `bf16` *fast*``{nki}`2.4` GHz.\n"
    )
    assert warned == ""
    (block,) = document.findall(nodes.container)
    assert block["classes"] == ["dialect", "dialect-nki"]
    assert list(block.findall(nodes.list_item))
    words = [n for n in document.findall(nodes.inline) if "dialect" in n["classes"]]
    assert [word["classes"][1] for word in words] == ["dialect-neuronxcc", "dialect-nki"]
    assert [word.astext() for word in words] == ["2.8, bf16 fast", "2.4"]
    assert list(words[0].findall(nodes.literal))
    assert list(words[0].findall(nodes.emphasis))


def test_a_heading_in_a_block_is_refused(site) -> None:
    _, warned = site("# Title\n\n:::{nki}\n## Below\n:::\n\nText.\n")
    assert "Below" in warned


def test_a_page_in_one_dialect_says_so_to_readers_of_the_other(site) -> None:
    cell = "```{code-cell} ipython3\nimport neuronxcc.nki as nki\n```\n"
    document, _ = site(f"# Title\n\nText.\n\n{cell}")
    (note,) = document.findall(nodes.raw)
    assert 'class="dialect dialect-nki dialect-only"' in note.astext()
    assert "This page is in <code>neuronxcc.nki</code>" in note.astext()
    both = cell + cell.replace("neuronxcc.nki as nki", "nki")
    assert not list(site(f"# Title\n\nText.\n\n{both}")[0].findall(nodes.raw))


def test_a_downloaded_notebook_names_the_dialect() -> None:
    text = "It is {neuronxcc}``at `2.8` {cite}`a` ``{nki}`2.4`.\n\n:::{nki}\nHere.\n:::"
    assert notebook_download.plain(text, ROOT / "notebooks/page.md", str) == (
        "It is at `2.8` [a] (`neuronxcc.nki`)2.4 (`import nki`).\n\n**In `import nki`:**\n\nHere."
    )
