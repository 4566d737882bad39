"""Sphinx extension: a path of this repository in the text is a link to that file.

`kernels/add/neuronxcc.py`, in code type, leads to a copy of the file in the site, as plain text,
or to the repository where pyproject.toml names one.
"""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copyfile

import pages
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

SOURCE = re.compile(
    r"(?:book|kernels|nkibook|nkisim|tests|tools)(?:/[\w.]+)+\.(?:py|cpp|hpp|json|ini)"
)
FOLDER = "_sources/files"  # in the site


def link_sources(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Wrap the paths of a page in links, and note the files that they lead to."""
    for literal in list(doctree.findall(nodes.literal)):
        path = literal.astext()
        if not SOURCE.fullmatch(path) or isinstance(literal.parent, nodes.reference):
            continue
        if not Path(app.srcdir, path).is_file():
            continue
        if repository := pages.repository(Path(app.srcdir)):
            address = f"{repository}/blob/{pages.BRANCH}/{path}"
        else:
            target = Path(app.outdir, FOLDER, f"{path}.txt")
            target.parent.mkdir(parents=True, exist_ok=True)
            copyfile(Path(app.srcdir, path), target)
            address = relative_uri(app.builder.get_target_uri(page), f"{FOLDER}/{path}.txt")
        link = nodes.reference("", "", literal.deepcopy(), refuri=address, internal=False)
        literal.replace_self(link)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", link_sources)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
