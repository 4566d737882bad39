"""Sphinx extension: the download button of a notebook page offers a notebook that stands alone.

It is the .ipynb beside the page's .md, with the code cells that the tests execute. What only Sphinx
understands is written out: links by the titles of their pages, sources where they are included. A
first cell says what the notebook needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx

NEEDS = """\
*A page of* NKI kernels for PyTorch and JAX, *as a notebook. It needs the Python package that the
site of the book offers for download:*

```
pip install 'nki_book-0.1.0-py3-none-any.whl[torch,jax,book]'
```
"""

DIALECTS = {"neuronxcc": "neuronxcc.nki", "nki": "import nki"}
ROLE = re.compile(r"\{(\w+)\}(`{1,2})([^`].*?)\2(?!`)", re.DOTALL)
FENCE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})\{(?P<name>[\w-]+)\}[ ]*(?P<title>[^\n]*)\n"
    r"(?P<body>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
OPTION = re.compile(r"\A(?::[\w-]+:[^\n]*\n)+\n?")


def plain(text: str, page: Path, title_of: Callable[[str], str]) -> str:
    """A Markdown cell without roles and directives.

    Args:
        text: the cell, in MyST.
        page: the page's file, which paths of included sources start from.
        title_of: the title of another page, by its name as in a `{doc}` role.
    """
    text = FENCE.sub(lambda match: _directive(match, page, title_of), text)
    return ROLE.sub(lambda match: _role(match[1], match[3].strip(), title_of), text)


def _directive(match: re.Match[str], page: Path, title_of: Callable[[str], str]) -> str:
    name, title, body = match["name"], match["title"].strip(), match["body"]
    options = dict(re.findall(r"^:([\w-]+):[ ]*(.*)$", (OPTION.match(body) or [""])[0], re.M))
    if name == "literalinclude":
        return f"```python\n{_included(page.parent / title, options)}\n```"
    inside = plain(OPTION.sub("", body), page, title_of).strip()
    if name in DIALECTS:
        return f"**In `{DIALECTS[name]}`:**\n\n{inside}"
    if name == "dropdown":
        return f"<details><summary>{title}</summary>\n\n{inside}\n\n</details>"
    heading = f"**{title or name.capitalize()}.**" if title or name != "math" else ""
    return "\n".join(f"> {line}".rstrip() for line in f"{heading}\n\n{inside}".split("\n"))


def _included(path: Path, options: dict[str, str]) -> str:
    """What `literalinclude` shows of a file."""
    text = path.read_text()
    if "pyobject" in options:
        for node in ast.walk(ast.parse(text)):
            if getattr(node, "name", None) == options["pyobject"]:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    lines = text.splitlines()
    if start := options.get("start-at", "").strip('"'):
        lines = lines[next(i for i, line in enumerate(lines) if start in line) :]
    if end := options.get("end-before", "").strip('"'):
        lines = lines[: next(i for i, line in enumerate(lines) if end in line)]
    return "\n".join(lines).strip()


def _role(name: str, text: str, title_of: Callable[[str], str]) -> str:
    if name in DIALECTS:
        inside = ROLE.sub(lambda match: _role(match[1], match[3].strip(), title_of), text)
        return f"{inside} (`{DIALECTS[name]}`)"
    shown, target = re.fullmatch(r"(?:(.*?)\s*<)?([^<>]+)>?", text, re.DOTALL).groups()
    if name == "doc":
        return f"*{shown or title_of(target)}*"
    if name == "cite":
        return f"[{text}]"
    return shown or text


def offer_notebook(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Write the notebook into _sources and name it where the theme's download button looks."""
    page = Path(app.srcdir, pagename + ".md")
    twin = page.with_suffix(".ipynb")
    if doctree is None or not twin.is_file():
        return

    def title_of(name: str) -> str:
        folder = "" if name.startswith("/") else f"{Path(pagename).parent}/"
        title = app.env.titles.get(f"{folder}{name}".lstrip("/"))
        return title.astext() if title is not None else name

    notebook = nbformat.read(twin, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, page, title_of)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(NEEDS, id="needs"))
    target = Path(app.outdir, "_sources", pagename + ".ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)
    context["ipynb_source"] = pagename + ".ipynb"


def setup(app: Sphinx) -> dict[str, bool]:
    # Before the theme, which builds its buttons at the default priority and later.
    app.connect("html-page-context", offer_notebook, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
