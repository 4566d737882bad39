"""What the build of the book has executed, and of that, what would come out the same today.

The build keeps executed pages in a jupyter-cache, which knows a page by the code of its cells and
looks at nothing else. What the cells import is digested here: what all pages share under one key,
and the exercises of a page, which no other page imports, under a key of that page. What a page in
both dialects does in `import nki` is in a cache of its own (dialects.py).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import dialects
import stored_results
from jupyter_cache import get_cache
from jupyter_cache.base import JupyterCacheAbstract
from jupyter_cache.cache.db import NbCacheRecord
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "_build/.jupyter_cache"
CACHE_KEY = CACHE / "nki-book-key"


def cache_of(dialect: str, folder: Path | None = None) -> Path:
    """The cache of what was executed in a dialect, of the build or in another folder.

    That of `import nki` is inside the other, and is dropped with it.
    """
    folder = folder or CACHE
    return folder if dialect == dialects.NEURONXCC else folder / "nki"


# What cells can import, and the packages that they run with.
EXECUTED = ("kernels", "nkibook", "nkisim", "requirements.txt")
# A module a page in each, and no page imports another's.
EXERCISES = (
    "nkibook/exercises/puzzles",
    "nkibook/exercises/solutions",
    "nkibook/exercises/solutions/neuronxcc",
    "nkibook/exercises/solutions/nki",
)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name != "__pycache__" and not child.name.startswith("."):
                yield from _files(child)


def digest(
    names: Iterable[str], root: Path = ROOT, skip: Callable[[Path], bool] = lambda file: False
) -> str:
    """Return the sha256 of this Python and of every file in `names`, with its path.

    Args:
        names: files and folders; what is not there counts as empty.
        root: where they are.
        skip: says of a file, relative to `root`, that it is left out.
    """
    total = hashlib.sha256(sys.version.encode())
    for name in names:
        for file in _files(root / name):
            path = file.relative_to(root)
            if not skip(path):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                total.update(f"{path.as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def _of_one_page(file: Path) -> bool:
    return file.parent.as_posix() in EXERCISES and not file.stem.startswith("_")


def state(names: Iterable[str], **options) -> str:
    """What a build depends on: the content of `names`, and which pages cannot run here."""
    return " ".join([digest(names, ROOT, **options), *sorted(stored_results.stored_pages(ROOT))])


def common_key() -> str:
    """What all pages depend on: `state` of EXECUTED, without the exercises of single pages."""
    return state(EXECUTED, skip=_of_one_page)


def exercises_key(page: str) -> str:
    """The sha256 of the exercises of a page: specifications and solutions."""
    return digest((f"{folder}/{Path(page).stem}.py" for folder in EXERCISES), ROOT)


def _keys() -> tuple[str, dict[str, str]]:
    """The common key that the cache was filled under, and the key of each page in it."""
    if not CACHE_KEY.exists():
        return "", {}
    common, pages = json.loads(CACHE_KEY.read_text())
    return common, pages


def forget_what_is_old(pages: Iterable[str]) -> bool:
    """Drop from the cache what was executed with other code than what is here now.

    Args:
        pages: the pages of the book, without suffix: ``notebooks/add_jax``.

    Returns:
        whether code that all pages share has changed, so that all were dropped.
    """
    common = common_key()
    keys = {page: exercises_key(page) for page in pages}
    before, old = _keys()
    changed = CACHE.exists() and before != common
    if before != common:
        old = {}
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
    for page in keys:
        if old.get(page, keys[page]) != keys[page]:
            source = ROOT / f"{page}.md"
            for dialect in dialects.runs(source):
                cache = get_cache(cache_of(dialect))
                if record := _record(cache, source):
                    cache.remove_cache(record.pk)
    CACHE_KEY.write_text(json.dumps([common, old | keys]))
    return changed


def _record(cache: JupyterCacheAbstract, source: Path) -> NbCacheRecord | None:
    uri = str(source.resolve())
    known = any(record.uri == uri for record in cache.list_project_records())
    return cache.get_cached_project_nb(uri) if known else None


def result(source: Path, folder: Path | None = None) -> NotebookNode | None:
    """The page as the build executed it, or None where it did not execute these cells."""
    cache = get_cache(folder or CACHE)
    record = _record(cache, source)
    return None if record is None else cache.get_cache_bundle(record.pk).nb


def current(sources: Iterable[Path], dialect: str = dialects.NEURONXCC) -> dict[Path, NotebookNode]:
    """The pages among `sources` that the build has executed in a dialect with the present code."""
    common, pages = _keys()
    if common != common_key():
        return {}
    found = {}
    for source in sources:
        page = source.resolve().relative_to(ROOT).with_suffix("").as_posix()
        notebook = result(source, cache_of(dialect))
        if pages.get(page) == exercises_key(page) and notebook is not None:
            found[source] = notebook
    return found
