"""Sphinx extension: printed text as lines that a phone can wrap.

Texts are printed for 76 columns, and 45 fit a phone. So what was broken there is one item again,
``.nki-item``: its breaks, ``.nki-turn``, count where there is room (book/_static/book.css), and
what wraps begins below the first word behind a mark or a label such as ``fix:``. Rows of a table
are less easily read when they wrap: text in ``columns`` is set in smaller letters.
"""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise

from docutils import nodes
from sphinx.application import Sphinx

WIDTH = 76  # columns that pages print for

_BLOCK = "highlight-default notranslate"  # what the theme knows a block of text by

_GAP = re.compile(r"(?<=\S)  +(?=\S)")
_BEHIND_GAP = re.compile(r"(?<=\S)  +(\S+)")
_LABEL = re.compile(r"\s*(?:(?:[-+*]|\w+:) +)?")
_HANG = 2  # columns, where there is no label


def in_columns(text: str) -> bool:
    """Whether two lines in a row have words, behind two blanks or more, one below the other."""
    places = [
        {place for word in _BEHIND_GAP.finditer(line) for place in enumerate(word.span(1))}
        for line in text.split("\n")
    ]
    return any(above & below for above, below in pairwise(places))


def items(text: str) -> list[list[str]]:
    """The lines of a text, those together that were one before it was broken at WIDTH."""
    found: list[list[str]] = []
    for line in text.split("\n"):
        if found and _continues(found[-1], line):
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _continues(item: list[str], line: str) -> bool:
    words = line.split()
    if not words or _GAP.search(line.strip()) or _GAP.search(_LABEL.sub("", item[-1], count=1)):
        return False
    # Where this would fit above it was not moved down.
    full = len(item[-1]) <= WIDTH < len(item[-1]) + 1 + len(words[0])
    return full and _indent(line) >= _indent(item[0])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _shown(item: list[str]) -> str:
    label = _LABEL.match(item[0])
    assert label is not None  # it may be empty
    hang = len(label[0]) if label[0].strip() else len(label[0]) + _HANG
    text = escape(item[0])
    for line in item[1:]:
        text += f'<span class="nki-turn">\n{" " * _indent(line)}</span>{escape(line.lstrip())}'
    return f'<span class="nki-item" style="--hang:{hang}ch">{text}\n</span>'


def replace(app: Sphinx, doctree: nodes.document) -> None:
    """Put the items in the place of the text that cells of a page print."""
    for block in list(doctree.findall(nodes.literal_block)):
        text = block.astext().rstrip("\n")
        if "stream" not in block["classes"] or "\x1b" in text:  # in colours
            continue
        classes = " ".join([*block["classes"], _BLOCK, *["columns"] * in_columns(text)])
        lines = "".join(map(_shown, items(text)))
        html = f'<div class="{classes}"><div class="highlight"><pre>{lines}</pre></div></div>'
        block.replace_self(nodes.raw("", html, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", replace)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
