"""Pages whose cells cannot run on this machine, shown with the outputs that their .ipynb stores.

Without a C++ compiler, a page that compiles is not executed, without torch_xla, none that shows
its HLO, without JAX, none that uses it, and where the Neuron SDK runs the kernels, none about the
simulator and none in the dialect of NKI that this SDK does not compile: stored text outputs go into
the execution cache, where the build finds them, and book/_ext/stored_note.py says so on the page.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import dialects
import nbformat

import kernels

# What some pages need, and which. torch_xla has wheels for Linux on x86_64 only.
COMPILER = "C++ compiler"
TORCH_XLA = "torch_xla"
JAX = "JAX"
SIMULATOR = "simulator"
OLDER = "SDK 2.29 or earlier (neuronxcc.nki)"
TODAYS = "SDK 2.30 or later (import nki)"
_TODAYS_PAGES = ("notebooks/moving",)
_NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.md"))
IN_BOTH = tuple(
    f"notebooks/{path.stem}" for path in _NOTEBOOKS if dialects.NKI in dialects.runs(path)
)
"""Pages that run with any SDK, in its dialect: see dialects.py."""

NEEDS = {
    TODAYS: _TODAYS_PAGES,
    OLDER: tuple(
        page
        for path in _NOTEBOOKS
        if (page := f"notebooks/{path.stem}") not in (*_TODAYS_PAGES, *IN_BOTH)
    ),
    COMPILER: ("notebooks/giou_cpp", "notebooks/rmsnorm_ffi"),
    TORCH_XLA: (
        "notebooks/add_torch",
        "notebooks/attention_torch",
        "notebooks/avgpool_torch",
        "notebooks/custom_call_jax",
        "notebooks/giou_cpp",
        "notebooks/giou_torch",
        "notebooks/matmul_torch",
        "notebooks/rmsnorm_torch",
        "notebooks/training_torch",
        "notebooks/transformer_torch",
    ),
    JAX: (
        "notebooks/add_jax",
        "notebooks/add_torch",
        "notebooks/attention_jax",
        "notebooks/attention_torch",
        "notebooks/avgpool_jax",
        "notebooks/custom_call_jax",
        "notebooks/giou_jax",
        "notebooks/matmul_jax",
        "notebooks/payoff",
        "notebooks/primitives_jax",
        "notebooks/rmsnorm_ffi",
        "notebooks/rmsnorm_jax",
        "notebooks/training_jax",
        "notebooks/transformer_jax",
    ),
    SIMULATOR: (
        "notebooks/attention_fast",
        "notebooks/giou_cpp",
        "notebooks/giou_optimisation",
        "notebooks/matmul_fast",
        "notebooks/rmsnorm_ffi",
        "notebooks/rmsnorm_optimisation",
        "notebooks/tuning",
    ),
}

# Those that need it in cells for the simulator only, so on a device they do without.
FOR_THE_SIMULATOR = {
    TORCH_XLA: ("notebooks/custom_call_jax",),
    JAX: tuple(f"notebooks/{name}_torch" for name in ("add", "attention")),
}


def _ran() -> tuple[str, ...]:
    """The dialects that run here: both in the simulator, with an SDK the one `kernels` takes."""
    return kernels.DIALECTS if kernels.backend == "nkisim" else (kernels.dialect,)


def missing() -> tuple[str, ...]:
    """Which of NEEDS this machine does not have."""
    # $CXX, else c++, as nkisim.customop.compiling and kernels.rmsnorm.ffi.building look.
    compiler = shutil.which(os.environ.get("CXX", "c++").split()[0]) is not None
    ran = _ran()
    found = {
        COMPILER: compiler,
        TORCH_XLA: find_spec("torch_xla") is not None,
        JAX: find_spec("jax") is not None,
        SIMULATOR: kernels.backend == "nkisim",
        OLDER: "neuronxcc" in ran,
        TODAYS: "nki" in ran,
    }
    return tuple(need for need in NEEDS if not found[need])


def stored_pages(root: Path) -> dict[str, str]:
    """The pages of the book in `root` that show stored results here, and for want of what.

    A page that misses two things has the first.
    """
    absent = missing()
    free = FOR_THE_SIMULATOR if SIMULATOR in absent else {}
    return {
        page: need
        for need in reversed(absent)
        for page in NEEDS[need]
        if page not in free.get(need, ()) and (root / f"{page}.md").is_file()
    }


def stored_runs(root: Path) -> list[tuple[str, str]]:
    """Of the pages in both dialects that run here, those that show stored results in one of them:
    the page, and the dialect that no SDK here compiles."""
    other = [dialect for dialect in kernels.DIALECTS if dialect not in _ran()]
    elsewhere = stored_pages(root)
    return [(page, dialect) for page in IN_BOTH for dialect in other if page not in elsewhere]


def put_into_cache(source: Path, cache: Path, dialect: str = dialects.NEURONXCC) -> None:
    """Make the build take the outputs that an .ipynb stores of `source` for those of its cells.

    Args:
        source: a page, in MyST.
        cache: the build's cache of what was executed in the dialect.
        dialect: which of the page's notebooks: see dialects.py.

    Raises:
        ValueError: the two do not have the same code.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from myst_nb.core.read import read_myst_markdown_notebook

    notebook = read_myst_markdown_notebook(source.read_text(encoding="utf-8"))
    twin = nbformat.read(dialects.stored(source, dialect), as_version=4)
    cells, stored = (
        [cell for cell in n.cells if cell.cell_type == "code"] for n in (notebook, twin)
    )
    if [c.source.strip() for c in cells] != [c.source.strip() for c in stored]:
        raise ValueError(
            f"{source.name} and the .ipynb beside it have different code, so the stored outputs "
            f"are not those of {source.name}. Run `make notebooks` where its cells can run."
        )
    for cell, twin_cell in zip(cells, stored, strict=True):
        cell.outputs = twin_cell.outputs
        cell.execution_count = twin_cell.execution_count
    # What an executing kernel says of itself: without it code is not highlighted.
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    bundle = CacheBundleIn(notebook, str(source), data={"execution_seconds": 0.0})
    get_cache(cache).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
