"""Sphinx extension: "next" and "previous" stay with the reader's framework.

Operators come in pairs, a page for PyTorch (`add_torch`) and one for JAX (`add_jax`). A page of
one framework is followed by the next page that is not of the other one. A page of neither is
followed by the next page, or, where a pair follows, by both of its pages.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

FRAMEWORKS = {"_torch": "PyTorch", "_jax": "JAX"}


def framework(page: str) -> str | None:
    """The framework that a page is for, by its name; None for a page for everybody."""
    return next((name for end, name in FRAMEWORKS.items() if page.endswith(end)), None)


def following(page: str, order: list[str]) -> list[str]:
    """The pages that come after `page` in `order`: one, or one a framework; none at the end."""
    mine = framework(page)
    rest = order[order.index(page) + 1 :]
    if mine is not None:
        return [other for other in rest if framework(other) in (None, mine)][:1]
    pair = {framework(other) for other in rest[:2]} == set(FRAMEWORKS.values())
    return rest[: 2 if pair else 1]


def add_links(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Put the links into the context, for book/_templates/components/prev-next.html."""
    order = [page for page in _order(app) if page in app.env.titles]
    if pagename not in order:
        return

    def link(page: str) -> dict[str, str]:
        title = app.env.titles[page].astext()
        return {"link": app.builder.get_relative_uri(pagename, page), "title": title}

    context["following"] = [link(page) for page in following(pagename, order)]
    before = following(pagename, order[::-1])
    context["preceding"] = [link(page) for page in sorted(before, key=order.index)]


def _order(app: Sphinx) -> list[str]:
    """Every page of the table of contents, from the first to the last."""

    def walk(page: str) -> list[str]:
        children = app.env.toctree_includes.get(page, [])
        return [page, *(found for child in children for found in walk(child))]

    return walk(app.config.root_doc)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
