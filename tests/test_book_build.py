"""The build of the book cannot pass when a page is broken, nor show an old result."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import check_book
import executed
import executing
import jupytext
import nbformat
import pytest
import stored_results
from jupyter_cache import get_cache

ROOT = Path(__file__).resolve().parent.parent
COMPILING = stored_results.NEEDS[stored_results.COMPILER][0]

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
sys.path.insert(0, "..")
from kernels import value
print(f"the value is {value}")
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
    (tmp_path / "kernels").mkdir()
    stand_in = '"""The book\'s NKI kernels: one number."""\nvalue = 41\n'
    (tmp_path / "kernels/__init__.py").write_text(stand_in)
    return tmp_path


def build(book: Path, **variables: str) -> tuple[int, str]:
    """Run the tool behind `make book`; return its exit status and what it printed."""
    command = [sys.executable, "tools/build_book.py"]
    environment = os.environ | variables
    run = subprocess.run(command, cwd=book, env=environment, capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def test_a_broken_page_fails_every_time(book: Path) -> None:
    page = book / "book/page.md"
    broken = PAGE.replace("LINK", "[a link](nowhere.md)")
    page.write_text(broken.replace("print(", "print('to standard error', file=sys.stderr)\nprint("))
    for _ in range(2):
        status, report = build(book)
        assert status != 0, report
        assert "nowhere.md" in report

        end = report[report.index("and this is why:") :]
        assert "nowhere.md" in end, report
        assert "book/page.md wrote to standard error:\nto standard error" in end
        assert "error: warnings: 2, see above" in end

    page.write_text(PAGE.replace("LINK", "no link").replace("print(", "assert not ("))
    status, report = build(book)
    assert status != 0, report
    end = report[report.index("==> book/page\n") :]
    assert 'assert not (f"the value is {value}")' in end
    assert "AssertionError" in end
    assert "a cell raised in book/page:" in end


def test_what_remains_is_guessed_from_what_is_done() -> None:
    progress = executing.Progress({"a": 60.0, "b": 20.0, "c": 20.0}, 2)
    assert progress.left() == 60.0  # the longest page is longer than half of all
    progress.ended["b"] = 40.0  # on a machine half as fast
    assert progress.left(elapsed=40.0) == 80.0
    assert executing.Progress({"a": 5.0, "b": 5.0, "c": 5.0}, 8).left() == 5.0


@pytest.fixture
def compiling(book: Path) -> Path:
    """The same book with a page that needs a compiler, whose .ipynb stores another output."""
    page = book / f"{COMPILING}.md"
    page.parent.mkdir()
    # Other code than the first page's: the cache knows notebooks by their code.
    page.write_text((book / "book/page.md").read_text().replace("the value is", "compiled:"))
    (book / "_toc.yml").write_text(
        f"format: jb-book\nroot: book/page\nchapters:\n- file: {COMPILING}\n"
    )
    twin = jupytext.read(page, fmt="md:myst")
    (code,) = (cell for cell in twin.cells if cell.cell_type == "code")
    code.execution_count = 1
    code.outputs = [nbformat.v4.new_output("stream", name="stdout", text="the stored value\n")]
    nbformat.write(twin, page.with_suffix(".ipynb"))
    return book


def test_results_are_those_of_the_machine_that_is_there(compiling: Path) -> None:
    site = compiling / "_build/html"
    needy, other = site / f"{COMPILING}.html", site / "book/page.html"
    status, report = build(compiling, CXX="no-such-compiler")
    assert status == 0, report
    assert "executing 1 pages, 1 at a time: about" in report
    assert "[ 1/1]" in report
    assert "the value is 41" in other.read_text()
    assert "<math" in other.read_text()
    assert "no C++ compiler" not in other.read_text()
    assert "shows stored results" in report
    assert "the stored value" in needy.read_text()
    assert "no C++ compiler where this site was built" in needy.read_text()

    status, report = build(compiling, CXX="no-such-compiler")
    assert (status, "nothing changed" in report) == (0, True), report

    # With a compiler the page is executed: nothing stored is left over.
    status, report = build(compiling, CXX=sys.executable)
    assert status == 0, report
    assert "compiled: 41" in needy.read_text()
    assert "no C++ compiler" not in needy.read_text()


def test_stored_results_are_those_of_the_page(compiling: Path) -> None:
    page = compiling / f"{COMPILING}.md"
    page.write_text(page.read_text().replace("compiled:", "it is"))
    with pytest.raises(ValueError, match=r"different code.*make notebooks"):
        stored_results.put_into_cache(page, compiling / "cache")


CELL = re.compile(r"^```\{code-cell\}.*?^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("need", "uses"),
    [
        (stored_results.COMPILER, ("custom_op.load(", "cpp_extension", "kernels.rmsnorm.ffi")),
        (stored_results.TORCH_XLA, ("torch_hlo(", "import torch_xla", "from torch_xla")),
        (stored_results.JAX, ("jax_hlo(", "import jax", "from jax")),
        (stored_results.TODAYS, ("\nimport nki\n",)),
    ],
)
def test_every_page_that_needs_something_is_known(need: str, uses: tuple[str, ...]) -> None:
    sources = [*(ROOT / "notebooks").glob("*.md"), *(ROOT / "book").glob("*.md")]
    found = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in sources
        if any(name in cell for cell in CELL.findall(path.read_text()) for name in uses)
    }
    # The book is not built without these, but notebooks are tested.
    if need in (stored_results.JAX, stored_results.TODAYS):
        found = {page for page in found if page.startswith("notebooks/")}
    if need == stored_results.TODAYS:  # pages in both dialects run with either SDK
        found -= set(stored_results.IN_BOTH)
    assert found == set(stored_results.NEEDS[need])


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", sys.executable)
    for need, module in ((stored_results.TORCH_XLA, "torch_xla"), (stored_results.JAX, "jax")):
        there = {"torch_xla", "jax"} - {module}
        monkeypatch.setattr(stored_results, "find_spec", lambda n, t=there: n in t or None)
        stored = stored_results.stored_pages(ROOT)
        assert set(stored) == set(stored_results.NEEDS[need])
        assert set(stored.values()) == {need}
    monkeypatch.setattr(stored_results.kernels, "backend", "neuronxcc")
    assert stored_results.SIMULATOR in stored_results.missing()
    monkeypatch.setattr(stored_results, "find_spec", lambda n: n == "jax" or None)
    stored = stored_results.stored_pages(ROOT)
    assert "notebooks/custom_call_jax" not in stored  # uses torch_xla in the simulator's cells
    assert stored["notebooks/add_torch"] == stored_results.TORCH_XLA
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert stored_results.stored_pages(ROOT)["notebooks/giou_cpp"] == stored_results.COMPILER
    assert stored_results.stored_pages(ROOT)["notebooks/moving"] == stored_results.TODAYS
    monkeypatch.setattr(stored_results.kernels, "dialect", "nki")
    monkeypatch.setattr(stored_results, "find_spec", lambda n: n == "jax" or None)
    stored = stored_results.stored_pages(ROOT)
    assert "notebooks/moving" not in stored
    older = stored_results.NEEDS[stored_results.OLDER][0]
    assert stored[older] == stored_results.OLDER
    both = stored_results.IN_BOTH[0]
    assert stored.get(both) != stored_results.OLDER
    monkeypatch.setattr(stored_results, "find_spec", lambda n: True)
    stored, runs = stored_results.stored_pages(ROOT), stored_results.stored_runs(ROOT)
    assert runs
    assert {dialect for _, dialect in runs} == {"neuronxcc"}
    assert not {page for page, _ in runs} & set(stored)


def test_digest_sees_content_names_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    (folder / "__pycache__").mkdir(parents=True)
    module = folder / "a.py"
    seen = set()

    def changed() -> bool:
        digest = executed.digest(("kernels", "missing"), tmp_path)
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


def test_a_change_of_code_forgets_all_and_of_exercises_one_page(
    monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executed, "ROOT", tmp_path)
    monkeypatch.setattr(executed, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(executed, "CACHE_KEY", tmp_path / "cache/key")
    pages = ["notebooks/a", "notebooks/b"]
    sources = [tmp_path / f"{page}.md" for page in pages]
    for folder in ("notebooks", "kernels", *executed.EXERCISES):
        (tmp_path / folder).mkdir(parents=True)
    for source in sources:
        source.write_text(PAGE.replace("the value", source.stem))
        nbformat.write(jupytext.read(source, fmt="md:myst"), source.with_suffix(".ipynb"))

    def execute() -> None:
        assert not executed.forget_what_is_old(pages)
        cache = get_cache(executed.CACHE)
        for source in sources:
            cache.add_nb_to_project(str(source), read_data={"name": "myst_nb_md", "type": "plugin"})
            stored_results.put_into_cache(source, executed.CACHE)
        assert set(executed.current(sources)) == set(sources)

    def there() -> list[str]:
        return [source.stem for source in executed.current(sources)]

    assert there() == []
    execute()
    for folder in executed.EXERCISES:
        (tmp_path / folder / "a.py").write_text("1")
        assert there() == ["b"]
        assert not executed.forget_what_is_old(pages)
        assert there() == ["b"]
        execute()
    sources[1].write_text(sources[1].read_text().replace("print(", "print(1, "))
    assert there() == ["a"]
    (tmp_path / "kernels/a.py").write_text("1")
    assert there() == []
    assert executed.forget_what_is_old(pages)
    assert there() == []


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
