"""Sphinx extension: the download button of a notebook page offers the .ipynb beside its .md.

The page is built from the .md. What a reader downloads is the committed notebook, the same file
that the tests execute.
"""

from pathlib import Path
from shutil import copyfile
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def offer_notebook(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Copy the twin into _sources and name it where the theme's download button looks."""
    twin = Path(app.srcdir, pagename + ".ipynb")
    if doctree is None or not twin.is_file():
        return
    target = Path(app.outdir, "_sources", pagename + ".ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    copyfile(twin, target)
    context["ipynb_source"] = pagename + ".ipynb"


def setup(app: Sphinx) -> dict[str, bool]:
    # Before the theme, which builds its buttons at the default priority and later.
    app.connect("html-page-context", offer_notebook, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
