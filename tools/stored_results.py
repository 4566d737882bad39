"""Pages whose cells cannot run on this machine, shown with the outputs that their .ipynb stores.

Without a C++ compiler, a page that compiles is not executed: its stored text outputs go into the
execution cache, where the build finds them, and book/_ext/stored_note.py says so on the page.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat

# The pages that compile C++ when they run.
COMPILING = ("notebooks/giou_cpp",)


def has_compiler() -> bool:
    """Whether there is a C++ compiler: $CXX, else c++, as nkisim.customop.compiling looks."""
    return shutil.which(os.environ.get("CXX", "c++").split()[0]) is not None


def stored_pages(root: Path) -> tuple[str, ...]:
    """The pages of the book in `root` that are shown with stored results on this machine."""
    if has_compiler():
        return ()
    return tuple(page for page in COMPILING if (root / f"{page}.md").is_file())


def put_into_cache(source: Path, cache: Path) -> None:
    """Make the build take the outputs of the .ipynb beside `source` for those of its cells.

    Raises:
        ValueError: the two do not have the same code.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from myst_nb.core.read import read_myst_markdown_notebook

    notebook = read_myst_markdown_notebook(source.read_text(encoding="utf-8"))
    twin = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    cells, stored = (
        [cell for cell in n.cells if cell.cell_type == "code"] for n in (notebook, twin)
    )
    if [c.source.strip() for c in cells] != [c.source.strip() for c in stored]:
        raise ValueError(
            f"{source.name} and the .ipynb beside it have different code, so the stored outputs "
            f"are not those of {source.name}. Run `make notebooks` where there is a C++ compiler."
        )
    for cell, twin_cell in zip(cells, stored, strict=True):
        cell.outputs = twin_cell.outputs
        cell.execution_count = twin_cell.execution_count
    # What an executing kernel says of itself: without it code is not highlighted.
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    bundle = CacheBundleIn(notebook, str(source), data={"execution_seconds": 0.0})
    get_cache(cache).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
