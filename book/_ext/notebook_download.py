"""Sphinx extension: a page offers its notebook, in the reader's dialect, to download and in Colab.

The files are those of notebooks/, which the tests run. They are copied into the site with the
same folders, so that the links between them lead somewhere. A button has the address of one;
dialect.js puts in that of the dialect that the reader chose. The button for Colab is there where
[project.urls] in pyproject.toml names the repository.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile
from typing import Any

import pages
from docutils import nodes
from sphinx.application import Sphinx


def offer_notebook(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Copy the notebooks of a page into _sources; name one where the theme's button looks."""
    root = Path(app.srcdir)
    if doctree is None or not pages.source(pagename, root).is_file():
        return
    there = pages.dialects(pagename, root)
    for dialect in there:
        notebook = pages.notebook(pagename, dialect, root)
        if not notebook.is_file():  # a page that is built alone, while it is written
            return
        name = notebook.relative_to(root).as_posix()
        target = Path(app.outdir, "_sources", name)
        target.parent.mkdir(parents=True, exist_ok=True)
        copyfile(notebook, target)
        context["ipynb_source"] = name
    if there:
        meta = f'<meta name="nki-dialects" content="{" ".join(there)}">'
        context["metatags"] = context.get("metatags", "") + meta


def add_colab(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Put a button for Colab beside the theme's."""
    name = context.get("ipynb_source")
    if name and (address := pages.colab(name, Path(app.srcdir))):
        context["header_buttons"].append(
            {
                "type": "link",
                "text": "",
                "tooltip": "Open in Colab",
                "icon": "fas fa-rocket",
                "url": address,
                "label": "colab",
            }
        )


def setup(app: Sphinx) -> dict[str, bool]:
    # Before the theme, which builds its buttons at the default priority and later; then after it.
    app.connect("html-page-context", offer_notebook, priority=400)
    app.connect("html-page-context", add_colab, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
