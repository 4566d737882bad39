"""Sphinx math renderer: LaTeX to MathML at build time.

Browsers draw MathML themselves, so a page needs no MathJax and works without a network.
"""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator


def _mathml(node: nodes.Element, display: str) -> str:
    latex = node.astext()
    try:
        found = convert(latex, display=display)
    except Exception as error:  # the library raises many types, none of which names the formula
        raise ExtensionError(
            f"{node.document and node.document['source']}: cannot convert the formula {latex!r} "
            f"to MathML: {error!r}"
        ) from error
    if "<mi>&</mi>" in found:  # what it does not know it draws
        raise ExtensionError(
            f"{node.document and node.document['source']}: MathML of the formula {latex!r} has its "
            "alignment in print; write a formula a line"
        )
    return found


def visit_inline(translator: HTML5Translator, node: nodes.Element) -> None:
    translator.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.Element) -> None:
    identifier = f' id="{node["ids"][0]}"' if node["ids"] else ""
    translator.body.append(f'<div class="math-block"{identifier}>{_mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
