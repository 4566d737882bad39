"""The configuration of `make lab` (JUPYTER_CONFIG_PATH names this folder).

A page opens as a notebook. Its .ipynb, the twin that readers download and tests run, is hidden from
the list of files, and written in its stored form when the page is saved: see tools/notebooks.py.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

c = get_config()  # noqa: F821  (Jupyter defines it)

twins = [twin.name for twin in (ROOT / "notebooks").glob("*.ipynb")]
hidden = ["__pycache__", "import_nki", "*.pyc", "*.egg-info", "_build", ".DS_Store", *twins]
c.ContentsManager.hide_globs = hidden


def store_as_committed(model, path, contents_manager, **_):
    """Leave out of a twin what `make notebooks` leaves out."""
    if model["type"] == "notebook" and path.endswith(".ipynb") and Path(path).name in twins:
        import nbformat

        from notebooks import name_cells, sanitize

        model["content"] = name_cells(sanitize(nbformat.from_dict(model["content"])))


c.ContentsManager.pre_save_hook = store_as_committed
