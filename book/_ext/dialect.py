"""Sphinx extension: what a page says in one dialect of NKI, and the switch between the two.

    :::{nki}                      a block for readers of `import nki`
    The clock is 1.2 GHz.
    :::

The roles {nki}`…` and {neuronxcc}`…` do the same inside a sentence; where the words have code in
them, with two backticks on either side. tools/dialects.py gives the same classes to the cells of
one dialect, and a page with cells is read as tools/build_book.py has merged it. A page whose front
matter names one `dialect` says so to readers of the other.

An inline script in the head puts the reader's choice on <html> before anything is drawn, and the
style sheet hides the other dialect. Without scripts both are shown, each with its name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

MERGED = "_build/merged"

FRONT_MATTER = re.compile(r"\A---\n.*?^dialect: (\w+)$.*?^---$", re.MULTILINE | re.DOTALL)
_ONLY = "The kernels of this page are in <code>{}</code>: SDK {}."
ONLY = {
    "neuronxcc": _ONLY.format("neuronxcc.nki", "2.29 and earlier, inf2 and trn1"),
    "nki": _ONLY.format("import nki", "2.30 and later, trn2 and trn3"),
}
OTHER = {"neuronxcc": "nki", "nki": "neuronxcc"}

SCRIPT = """<script>
(function () {
  var html = document.documentElement, chosen = null;
  try {
    chosen = new URLSearchParams(location.search).get("dialect");
    if (chosen) localStorage.setItem("nki-dialect", chosen);
    chosen = chosen || localStorage.getItem("nki-dialect");
  } catch (error) {}
  html.dataset.dialect = chosen === "neuronxcc" ? "neuronxcc" : "nki";
})();
</script>"""


class Block(SphinxDirective):
    """What stands between ``:::{nki}`` and ``:::``, for readers of that dialect."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        self.assert_has_content()
        block = nodes.container(is_div=True, classes=["dialect", f"dialect-{self.name}"])
        self.set_source_info(block)
        self.state.nested_parse(self.content, self.content_offset, block)
        headings = block.findall(lambda n: isinstance(n, nodes.section | nodes.rubric))
        if heading := next(headings, None):
            raise self.error(
                f"a heading inside {{{self.name}}}: {heading.astext()[:40]!r}. The table of "
                "contents is the same in both dialects, so put it before the block."
            )
        return [block]


class Words(SphinxRole):
    """Words of a sentence in one dialect."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        words = nodes.inline("", classes=["dialect", f"dialect-{self.name}"])
        # Code at the end is followed by a blank, for the sake of the backticks: not on the page.
        text = re.sub(r"(?<=`) $", "", self.text)
        found, messages = self.inliner.parse(text, self.lineno, self.inliner, words)
        words += found
        return [words], messages


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Take a page with cells as it was merged; name the dialect of a page in one."""
    merged = Path(app.srcdir, MERGED, f"{page}.md")
    if merged.is_file():
        source[0] = merged.read_text(encoding="utf-8")
    if only := FRONT_MATTER.match(source[0]):
        classes = f"dialect dialect-{OTHER[only[1]]} dialect-only"
        note = f'\n\n<p class="{classes}">{ONLY[only[1]]}</p>\n'
        source[0] = re.sub(r"^# .*$", lambda m: m[0] + note, source[0], count=1, flags=re.M)


def add_script(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Put the script that reads the choice into the head, to run before the page is drawn."""
    context["metatags"] = context.get("metatags", "") + SCRIPT


def setup(app: Sphinx) -> dict[str, bool]:
    for name in ONLY:
        app.add_directive(name, Block)
        app.add_role(name, Words())
    app.connect("source-read", read, priority=400)  # before notes are put below the title
    app.connect("html-page-context", add_script)
    app.add_js_file("dialect.js")
    app.add_css_file("dialect.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
