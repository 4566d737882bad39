"""The pages of the book: their order, titles and dialects, and where book and repository are."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from myst_nb.core.read import read_myst_markdown_notebook
from nbformat import NotebookNode

from nkibook.cells import dialect_of

ROOT = Path(__file__).resolve().parent.parent
DIALECTS = ("neuronxcc", "nki")
BRANCH = "main"

_FRONT_MATTER = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)
_TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)


def in_order(root: Path = ROOT) -> list[str]:
    """The pages as _toc.yml lists them, without suffix: ``notebooks/add_jax``."""
    return [page for found in parts(root).values() for page in found]


def _pages(chapters: Iterable[dict]) -> Iterator[str]:
    """Pages and the sections below them, in order."""
    for chapter in chapters:
        yield chapter["file"]
        yield from _pages(chapter.get("sections", ()))


def parts(root: Path = ROOT) -> dict[str, list[str]]:
    """The parts of the book, by caption; the first page belongs to the first part."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = toc.get("parts") or [{"caption": "Pages", "chapters": toc.get("chapters", [])}]
    found = {part["caption"]: [*_pages(part["chapters"])] for part in parts}
    next(iter(found.values())).insert(0, toc["root"])
    return found


def source(page: str, root: Path = ROOT) -> Path:
    """The file of a page, in MyST."""
    return root / f"{page}.md"


def named(path: Path, root: Path = ROOT) -> str:
    """The page of a source, or of one of its notebooks.

    Raises:
        ValueError: it is neither.
    """
    stem = path.resolve().with_suffix("").relative_to(root).as_posix()
    if not source(stem, root).is_file():
        stem = next((p for p in in_order(root) if Path(p).name == path.stem), stem)
    if not source(stem, root).is_file():
        raise ValueError(f"no page {stem}; name one as notebooks/add_jax")
    return stem


@functools.cache
def _text(path: Path, changed: int) -> str:
    return path.read_text(encoding="utf-8")


def text(page: str, root: Path = ROOT) -> str:
    """The MyST of a page."""
    path = source(page, root)
    return _text(path, path.stat().st_mtime_ns)


def front_matter(page: str, root: Path = ROOT) -> dict[str, object]:
    """What stands above the text of a page."""
    match = _FRONT_MATTER.match(text(page, root))
    return yaml.safe_load(match[1]) if match else {}


def title(page: str, root: Path = ROOT) -> str:
    """The heading of a page."""
    match = _TITLE.search(_FRONT_MATTER.sub("", text(page, root)))
    return match[1].strip() if match else page


@functools.cache
def _cells(content: str) -> tuple[NotebookNode, ...]:
    return tuple(read_myst_markdown_notebook(content).cells)


def cells(page: str, root: Path = ROOT) -> tuple[NotebookNode, ...]:
    """The cells of a page, in both dialects, as the source has them."""
    return _cells(text(page, root))


def dialects(page: str, root: Path = ROOT) -> tuple[str, ...]:
    """The dialects that a page is executed in; none where it has no cells.

    Both, unless `dialect` in its front matter names the one that it is about.
    """
    if "{code-cell}" not in text(page, root):
        return ()
    only = front_matter(page, root).get("dialect")
    if only is None:
        return DIALECTS
    if only not in DIALECTS:
        raise ValueError(f"{page}.md: dialect is {only!r} in its front matter, not in {DIALECTS}")
    return (str(only),)


def runs(root: Path = ROOT) -> list[tuple[str, str]]:
    """Every page in each of its dialects, in the order of the book."""
    return [(page, dialect) for page in in_order(root) for dialect in dialects(page, root)]


def code(page: str, dialect: str, root: Path = ROOT) -> list[NotebookNode]:
    """The code cells of a page that one dialect has."""
    return [
        cell
        for cell in cells(page, root)
        if cell.cell_type == "code" and dialect_of(cell.source) in (None, dialect)
    ]


def notebook(page: str, dialect: str, root: Path = ROOT) -> Path:
    """The notebook that is made of a page in a dialect."""
    return root / "notebooks" / dialect / f"{Path(page).name}.ipynb"


@functools.cache
def _project(root: Path) -> dict:
    file = root / "pyproject.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))["project"] if file.is_file() else {}


def _url(name: str, root: Path) -> str | None:
    return _project(root).get("urls", {}).get(name, "").rstrip("/") or None


def site(root: Path = ROOT) -> str | None:
    """The address of the site: `Homepage` in [project.urls]; None while it is not set."""
    return _url("Homepage", root)


def repository(root: Path = ROOT) -> str | None:
    """The address of the repository: `Repository` in [project.urls]; None while it is not set."""
    return _url("Repository", root)


def colab(notebook: str, root: Path = ROOT) -> str | None:
    """Where Colab opens a notebook of the repository; None while that is not on GitHub."""
    on_github = re.fullmatch(r"https://github\.com/(.+)", repository(root) or "")
    opened = "https://colab.research.google.com/github"
    return f"{opened}/{on_github[1]}/blob/{BRANCH}/{notebook}" if on_github else None


def wheel(root: Path = ROOT) -> str:
    """The name of the package's wheel, which the site offers."""
    return f"nki_book-{version(root)}-py3-none-any.whl"


def version(root: Path = ROOT) -> str:
    """The version of the package; "0" of a book without one."""
    return _project(root).get("version", "0")
