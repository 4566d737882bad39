"""The build of the book cannot pass when a page is broken, nor show an old result."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import check_book
import digests
import executing
import needs
import pages
import pytest

import results
from nkibook import doctor

ROOT = Path(__file__).resolve().parent.parent
COMPILING = "notebooks/giou_cpp"

PAGE = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
---

# A page with a few words

Text, a formula $a_i$ and LINK.

```{code-cell} ipython3
import sys
print(f"the value is {40 + 1}")
```
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of one executed page, with this repository's tools and configuration."""
    # Without what IPython keeps there, and changes while this runs.
    ignored = shutil.ignore_patterns(".ipython", "__pycache__")
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=ignored)
    for folder in ("_ext", "_static", "_templates"):
        shutil.copytree(ROOT / "book" / folder, tmp_path / "book" / folder)
    shutil.copy(ROOT / "_config.yml", tmp_path)
    shutil.copy(ROOT / "book/search_scorer.js", tmp_path / "book")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    (tmp_path / "book/references.bib").write_text("")
    (tmp_path / "book/page.md").write_text(PAGE.replace("LINK", "no link"))
    return tmp_path


def build(book: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Run the tool behind `make book`; return its exit status and what it printed."""
    command = [sys.executable, "tools/build_book.py", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    run = subprocess.run(command, cwd=book, env=environment, capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def store(book: Path, **variables: str) -> None:
    """Run the tool behind `make notebooks`."""
    command = [sys.executable, "tools/notebooks.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    subprocess.run(command, cwd=book, env=environment, check=True, capture_output=True)


def change(page: Path, old: str, new: str) -> None:
    text = page.read_text()
    assert old in text
    page.write_text(text.replace(old, new))


def test_a_broken_page_fails_every_time(book: Path) -> None:
    page = book / "book/page.md"
    page.write_text(PAGE.replace("LINK", "[a link](nowhere.md)"))
    for _ in range(2):
        status, report = build(book)
        assert status != 0, report
        end = report[report.index("and this is why:") :]
        assert "nowhere.md" in end, report
        assert "error: warnings: 1, see above" in end

    change(page, "print(", "assert not (")
    for _ in range(2):
        status, report = build(book)
        assert status != 0, report
        assert "==> book/page (nki)\n" in report
        assert 'assert not (f"the value is {40 + 1}")' in report
        assert "AssertionError" in report

    change(page, "assert not (", "print('careful', file=sys.stderr); print(")
    status, report = build(book)
    assert status != 0, report
    assert "it wrote to standard error:\ncareful" in report


def test_a_page_is_executed_when_its_code_changes(book: Path) -> None:
    page, site = book / "book/page.md", book / "_build/html/book/page.html"
    status, report = build(book)
    assert status == 0, report
    assert "executing 2 notebooks, 2 at a time: about" in report or os.cpu_count() == 1
    assert "[ 2/2]" in report
    assert "the value is 41" in site.read_text()
    assert "<math" in site.read_text()
    assert re.search(r"Executed on 2\d{3}-\d\d-\d\d, with Python 3\.\d+", site.read_text())
    for dialect in pages.DIALECTS:
        name = f"notebooks/{dialect}/page.ipynb"
        assert (book / "_build/html/_sources" / name).read_text() == (book / name).read_text()
    assert "_sources/notebooks/nki/page.ipynb" in site.read_text()

    assert build(book, "--changed") == (0, "\n")
    status, report = build(book)
    assert (status, "nothing changed" in report) == (0, True), report
    change(page, "Text,", "Other text,")
    status, report = build(book)
    assert status == 0, report
    assert "executing" not in report
    assert "Other text" in site.read_text()

    change(page, "40 + 1", "40 + 2")
    assert build(book, "--changed") == (0, "book/page\n")
    status, report = build(book)
    assert status == 0, report
    assert "changed since they were executed: book/page" in report
    assert "the value is 42" in site.read_text()


def test_executing_all_fails_where_that_gives_something_else(book: Path) -> None:
    page = book / "book/page.md"
    change(page, "40 + 1", "__import__('os').environ['VALUE']")
    store(book, VALUE="41")

    before = {path: path.read_bytes() for path in book.glob("results/*/*")}
    status, report = build(book, "--clean", VALUE="41")
    assert status == 0, report
    status, report = build(book, "--clean", VALUE="42")
    assert status == 1, report
    assert "-stdout: the value is 41" in report
    assert "+stdout: the value is 42" in report
    assert "make notebooks CLEAN=1" in report
    assert {path: path.read_bytes() for path in book.glob("results/*/*")} == before

    notebook = book / "notebooks/nki/page.ipynb"
    change(notebook, "the value is 41", "the value is 43")
    status, report = build(book, "--clean", VALUE="41")
    assert status == 1, report
    assert "notebooks/nki/page.ipynb is not what its page and its result make" in report


def test_what_cannot_run_here_is_shown_as_it_was_stored(book: Path) -> None:
    """A page that compiles, on a machine without a compiler."""
    page = book / f"{COMPILING}.md"
    page.parent.mkdir()
    # Other code than the first page's: MyST-NB knows notebooks by their code.
    text = PAGE.replace("print(", '# custom_op.load(\nprint("compiled", ')
    page.write_text(text.replace("LINK", "no link"))
    toc = f"format: jb-book\nroot: book/page\nchapters:\n- file: {COMPILING}\n"
    (book / "_toc.yml").write_text(toc)
    status, report = build(book, CXX="no-such-compiler")
    assert status == 1, report
    assert f"{COMPILING} is to be executed, and needs C++ compiler" in report

    store(book, CXX=sys.executable)
    status, report = build(book, "--clean", CXX="no-such-compiler")
    assert status == 0, report
    assert f"no C++ compiler here: {COMPILING} (nki) is shown as it was stored" in report
    assert "executing 2 notebooks" in report
    assert "compiled the value is 41" in (book / f"_build/html/{COMPILING}.html").read_text()


def test_what_remains_is_guessed_from_what_is_done() -> None:
    progress = executing.Progress({"a": 60.0, "b": 20.0, "c": 20.0}, 2)
    assert progress.left() == 60.0  # the longest page is longer than half of all
    progress.ended["b"] = 40.0  # on a machine half as fast
    assert progress.left(elapsed=40.0) == 80.0
    assert executing.Progress({"a": 5.0, "b": 5.0, "c": 5.0}, 8).left() == 5.0


def test_what_a_page_needs_is_read_from_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [needs.TORCH, needs.TORCH_XLA, needs.JAX]
    assert [need for need in both if need in needs.of("notebooks/add_torch", "neuronxcc")] == both
    in_nki = needs.of("notebooks/add_torch", "nki")
    assert in_nki == (needs.TORCH, needs.TORCH_NEURON)
    assert needs.of("notebooks/add_jax", "nki") == (needs.JAX,)
    assert needs.COMPILER in needs.of(COMPILING, "neuronxcc")
    assert needs.TRANSFORMERS in needs.of("notebooks/llama_torch", "nki")
    assert needs.of("book/first_kernel", "nki") == (needs.SIMULATOR,)

    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(needs, "find_spec", lambda name: name != "torch_xla" or None)
    assert needs.missing("notebooks/add_torch") == needs.TORCH_XLA
    assert needs.missing("notebooks/add_jax") == ""
    assert needs.missing(COMPILING) in ("", needs.TORCH_XLA)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert needs.missing(COMPILING) == needs.COMPILER

    monkeypatch.setattr(needs.kernels, "backend", "neuronxcc")  # on a device
    monkeypatch.setattr(needs.kernels, "dialect", "nki")
    monkeypatch.setattr(needs, "find_spec", lambda name: True)
    monkeypatch.setattr(doctor, "_version", {"torch": "2.14.0"}.get)
    assert needs.missing("notebooks/add_torch", "nki") == needs.TORCH_NEURON
    monkeypatch.setattr(doctor, "_version", lambda name: "2.14.0")
    assert needs.missing("notebooks/add_torch", "nki") == ""
    assert needs.missing("notebooks/add_torch", "neuronxcc") == "SDK for neuronxcc.nki"
    assert needs.missing("notebooks/tuning", "nki") == needs.SIMULATOR
    # Its cells with PyTorch are for the simulator.
    assert needs.TORCH_XLA not in needs.of("notebooks/custom_call_jax", "nki")


def test_digest_sees_content_names_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    (folder / "__pycache__").mkdir(parents=True)
    module = folder / "a.py"
    seen = set()

    def changed() -> bool:
        digest = digests.digest(("kernels", "missing"), tmp_path)
        new = digest not in seen
        seen.add(digest)
        return new

    assert changed()
    module.write_text("1")
    assert changed()
    module.write_text("2")
    assert changed()
    module.rename(folder / "b.py")
    assert changed()
    (folder / "__pycache__/a.pyc").write_text("1")
    assert not changed()


def test_every_page_has_a_result() -> None:
    assert results.missing() == [], "run: make notebooks"


# The check of the site, one defect at a time.


@pytest.fixture
def check(tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a site with `body` in its article; return what the check says about the page."""

    def run(body: str) -> list[str]:
        (tmp_path / "other.html").write_text(
            '<article id="top">Another page with five words</article>'
        )
        (tmp_path / "picture.png").write_bytes(b"")
        (tmp_path / "index.html").write_text(
            f'<main><article id="here"><p>Some words on a page.</p>{body}</article></main>'
        )
        return check_book.check(check_book.Site(tmp_path)).get(tmp_path / "index.html", [])

    return run


@pytest.mark.parametrize(
    "body",
    [
        '<a href="other.html#top">page</a> <a href="#here">here</a>',
        '<a href="https://example.org/">links may leave the site</a>',
        '<img src="picture.png" alt="A line">',
        '<svg aria-label="A line"></svg><svg><title>A line</title></svg>',
        '<svg aria-hidden="true"></svg>',
        '<svg aria-label="A"><text>time, µs</text><text>add: Modelled by nkisim</text></svg>',
        '<img src="picture.png" alt="Bars of published time">',
        '<svg aria-label="A timeline"><text>bytes, KiB</text></svg>',
        "<pre>**a** {ref}`x` $$ [a](b)</pre><code>:::</code>",
        '<div class="cell_output">arrays[0](1) and ::: are output</div>',
        "<math><mi>x</mi></math>",
        "for x in a[1:2] and f(x)[0], a {set} of 3 * 4 ** 2",
    ],
)
def test_a_good_page_has_no_findings(check: Callable[[str], list[str]], body: str) -> None:
    assert check(body) == []


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ('<a href="gone.html">page</a>', "broken link 'gone.html'"),
        ('<a href="other.html#gone">page</a>', "no such anchor: 'other.html#gone'"),
        ('<a href="#gone">page</a>', "no such anchor: '#gone'"),
        ('<img src="gone.png" alt="A line">', "<img> loads a missing file"),
        ('<img src="picture.png">', "has no alt text"),
        ('<img src="picture.png" alt="../picture.png">', "file name for alt text"),
        ("<svg></svg>", "<svg> has no aria-label"),
        ('<svg aria-label="modelled"><text>latency, µs</text></svg>', "a figure shows times"),
        ('<img src="picture.png" alt="Bars of time">', "a figure shows times"),
        ('<script src="https://cdn.example.org/a.js"></script>', "<script> loads from the network"),
        ('<script src="//cdn.example.org/a.js"></script>', "<script> loads from the network"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "<link> loads from the net"),
        ('<img src="https://example.org/a.png" alt="A">', "<img> loads from the network"),
        ("<style>@import 'https://example.org/a.css';</style>", "a style loads from the network"),
        ('<p style="background: url(//example.org/a.png)">a</p>', "a style loads from the network"),
        ("<p>See {ref}`there`</p>", "a MyST role or directive did not render"),
        ("<p>```{figure} a.png</p>", "a MyST role or directive did not render"),
        ("<p>## A heading</p>", "a Markdown heading did not render"),
        ("<p>{{ name }}</p>", "a substitution did not render"),
        ("<p>:::{note}</p>", "a colon fence did not render"),
        ("<p>the sum $$a + b$$</p>", "a formula did not render"),
        (r"<p>\frac{a}{b}</p>", "a formula did not render"),
        ("<p>[the text](page.md)</p>", "a Markdown link did not render"),
        ("<p>a **bold** word</p>", "bold Markdown did not render"),
        ("<p>\n:alt: A line\n</p>", "a directive option did not render"),
        ('<div class="system-message">Unknown role</div>', "an error of the parser"),
        ('<div class="output">Traceback (most recent call last)</div>', "shows a traceback"),
    ],
)
def test_a_defect_is_found(check: Callable[[str], list[str]], body: str, finding: str) -> None:
    found = check(body)
    assert len(found) == 1, found
    assert finding in found[0]


def test_a_style_sheet_that_loads_a_font_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<article>A page of five words</article>")
    sheet = tmp_path / "a.css"
    sheet.write_text("@font-face { src: url('https://fonts.example.org/a.woff2'); }")
    assert list(check_book.check(check_book.Site(tmp_path))) == [sheet]


def test_a_site_without_a_front_page_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<article>A page of five words</article>")
    assert list(check_book.check(check_book.Site(tmp_path))) == [tmp_path / "index.html"]
