"""Pages in both dialects: which they are, how their results become one page of the site."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import dialects
import nbformat
import needs
import pages
import pytest
from docutils import nodes
from sphinx.application import Sphinx

import results

PAGES = [pages.source(page) for page in pages.in_order()]

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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/page.md").write_text(PAGE)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    return tmp_path


def executed(*texts: str, day: str = "2026-01-01") -> results.Result:
    """A result of a page whose code cells print one text each."""
    outputs = [[nbformat.v4.new_output("stream", name="stdout", text=text)] for text in texts]
    return results.Result("", outputs, day, "0123abcd", "3.12.1")


def shown(notebook: nbformat.NotebookNode) -> list[tuple[str, list[str], str]]:
    """Of each code cell: its source, its tags, what it printed."""
    return [
        (c.source, c.metadata.get("tags", []), "".join(o.text for o in c.outputs))
        for c in notebook.cells
        if c.cell_type == "code"
    ]


def merged(root: Path, first: results.Result, second: results.Result):
    return dialects.merge("book/page", {"neuronxcc": first, "nki": second}, root)


def test_a_page_is_in_both_dialects_unless_it_names_one(root: Path) -> None:
    page = root / "book/page.md"
    assert pages.dialects("book/page", root) == ("neuronxcc", "nki")
    page.write_text(PAGE.replace("---\n", "---\ndialect: nki\n", 1))
    assert pages.dialects("book/page", root) == ("nki",)
    page.write_text(PAGE.replace("---\n", "---\ndialect: nki06\n", 1))
    with pytest.raises(ValueError, match="nki06"):
        pages.dialects("book/page", root)
    page.write_text("# Title\n\nNo cells.\n")
    assert pages.dialects("book/page", root) == ()


def test_pages_of_one_dialect_have_no_cells_of_the_other() -> None:
    found = {page: pages.dialects(page) for page in pages.in_order()}
    only = {page: there[0] for page, there in found.items() if len(there) == 1}
    assert only
    for page, dialect in only.items():
        cells = [cell for cell in pages.cells(page) if cell.cell_type == "code"]
        assert pages.code(page, dialect) == cells


def test_no_cell_of_import_nki_needs_pytorch_xla() -> None:
    """Its SDK has PyTorch's `neuron` device, and no torch_xla beside it."""
    asked = [page for page, dialect in pages.runs() if dialect == "nki"]
    assert asked
    assert [page for page in asked if needs.TORCH_XLA in needs.of(page, "nki")] == []


def test_cells_and_outputs_of_a_dialect_are_tagged(root: Path, monkeypatch) -> None:
    first, second = executed("a", "b", "1"), executed("a", "c", "2")
    _, notebook = merged(root, first, second)
    of_first, of_second = dialects.TAGS["neuronxcc"], dialects.TAGS["nki"]
    assert shown(notebook) == [
        ('print("shared")', ["hide-input"], "a"),
        ('x = "````"', [of_first], "b"),
        ("# simulator only: a reason\nx = 2", ["exercise", of_second], "c"),
        ("print(x)", ["hide-input", "remove-output"], ""),
        ("print(x)", ["remove-input", of_first], "1"),
        ("print(x)", ["remove-input", of_second], "2"),
    ]
    drawn = [cell for cell in notebook.cells if cell.source == "print(x)"]
    assert all(cell.metadata["mystnb"]["image"]["alt"] == "A picture" for cell in drawn)
    monkeypatch.setattr(dialects, "SHOWN_WHOLE", ("book/page",))
    assert shown(merged(root, first, second)[1])[1:3] == [
        ('# neuronxcc.nki\nx = "````"', [], "b"),
        ("# import nki, simulator only: a reason\nx = 2", ["exercise"], "c"),
    ]


def test_outputs_that_agree_are_shown_once(root: Path) -> None:
    text, notebook = merged(root, executed("1\n", "", "3"), executed("1\n", "", "3"))
    assert len(shown(notebook)) == 4
    assert text.startswith("---\nkernelspec:\n  name: python3\n---\n")


def test_a_measured_time_is_shown_once(root: Path) -> None:
    """Two runs differ by chance, which would read as an effect of the dialect."""
    runs = executed("", "", "1.2 ms"), executed("", "", "1.3 ms")
    assert len(shown(merged(root, *runs)[1])) == 6
    page = root / "book/page.md"
    page.write_text(PAGE.replace("[hide-input]\n---", f"[hide-input, {dialects.MEASURED}]\n---"))
    _, notebook = merged(root, *runs)
    assert shown(notebook)[-1] == ("print(x)", ["hide-input", "measured"], "1.2 ms")
    assert len(shown(notebook)) == 4


def test_a_page_says_when_and_with_what_it_was_executed(root: Path) -> None:
    both = executed("1", "", "3")
    said = "Executed on 2026-01-01, at commit 0123abcd, with Python 3.12.1."
    assert merged(root, both, both)[0].count(said) == 1
    text, _ = merged(root, both, executed("1", "", "3", day="2026-01-02"))
    assert f'<span class="dialect dialect-neuronxcc">{said}</span>' in text
    assert '<span class="dialect dialect-nki">Executed on 2026-01-02' in text


def test_results_of_another_page_are_refused(root: Path) -> None:
    for texts in (("1", "2"), ("1", "2", "3", "4")):
        with pytest.raises(ValueError, match="outputs of another page"):
            merged(root, executed("1", "2", "3"), executed(*texts))


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
    document, _ = site("---\ndialect: neuronxcc\n---\n# Title\n\nText.\n")
    (note,) = document.findall(nodes.raw)
    assert 'class="dialect dialect-nki dialect-only"' in note.astext()
    assert "The kernels of this page are in <code>neuronxcc.nki</code>" in note.astext()
    assert not list(site("# Title\n\nText.\n")[0].findall(nodes.raw))
