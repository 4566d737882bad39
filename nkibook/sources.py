"""The source of two kernels side by side, with the lines that differ marked.

    compare(old_kernel, new_kernel)
    compare([old_kernel, old_helper], [new_kernel, new_helper], captions=("before", "after"))

Shown as inline HTML: two columns where there is room, one listing where there is not. As text it
is one listing. No script is involved.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import html
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from nkibook.hlo.html import CSS, line_html

Source = Callable[..., Any] | str
"""A kernel, a function, or source text."""

# A column has room for a line of code from some 21rem on. Below, what both have is shown once.
_CSS = (
    ".nki-code{container-type:inline-size}"
    ".nki-code .highlight{background:none;margin:0;padding:0;border:0}"
    # The book's button that copies a block of code is as tall as two lines, and no part of a
    # comparison is a program.
    ".nki-code .highlight{min-height:0!important}.nki-code .copybtn{display:none!important}"
    ".nki-code pre{padding:0!important;margin:0!important;border-radius:0}"  # else the theme's
    ".nki-code pre{font-size:.72em;line-height:1.5}"
    ".nki-code .nki-line{padding:0 .3rem 0 calc(.4rem + 4ch);text-indent:-4ch}"
    ".nki-code .nki-row{display:grid;grid-template-columns:1fr 1fr;gap:0 .5rem}"
    ".nki-code .nki-row>*{min-width:0;background:rgba(128,128,128,.07)}"
    ".nki-code .nki-head{background:none!important;font-weight:600}"
    "@container (max-width:42rem){.nki-code .nki-row{grid-template-columns:1fr}"
    ".nki-code .nki-twice{display:none}}"
)


def compare(
    old: Source | Sequence[Source],
    new: Source | Sequence[Source],
    captions: tuple[str, str] = ("neuronxcc.nki", "import nki"),
) -> Sources:
    """Two kernels as one picture of what differs between their sources.

    Docstrings and empty lines around them are left out. Lines are paired by their text, without
    the spaces at its ends.

    Args:
        old, new: a kernel, a function or source text, or several of these, one below the other.
        captions: what each side is.

    Raises:
        OSError: no source is kept, as of what was typed into an interpreter.
        SyntaxError: text that is not Python.
    """
    return Sources(_listing(old), _listing(new), captions)


@dataclasses.dataclass(frozen=True)
class Sources:
    """Two listings, line by line. Displays side by side; prints as lines with a sign.

    Attributes:
        old, new: the lines.
        captions: what each is.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    captions: tuple[str, str]

    def hunks(self) -> list[tuple[bool, slice, slice]]:
        """Runs of lines, in order: whether both have them, and where they are in each."""
        before, after = ([line.strip() for line in lines] for lines in (self.old, self.new))
        # A bracket or an empty line in both says nothing of what belongs together.
        matcher = difflib.SequenceMatcher(
            lambda line: not line.strip("()[]{},"), before, after, autojunk=False
        )
        return [
            (tag == "equal", slice(i, j), slice(k, n)) for tag, i, j, k, n in matcher.get_opcodes()
        ]

    @property
    def changed(self) -> tuple[int, int]:
        """How many lines only the first has, and only the second; empty lines do not count."""
        differ = [(i, k) for same, i, k in self.hunks() if not same]
        old = sum(bool(line.strip()) for i, _ in differ for line in self.old[i])
        new = sum(bool(line.strip()) for _, k in differ for line in self.new[k])
        return old, new

    def __repr__(self) -> str:
        lines = [f"- {self.captions[0]}", f"+ {self.captions[1]}"]
        for same, i, k in self.hunks():
            if same:
                lines += [f"  {line}" for line in self.new[k]]
            else:
                lines += [f"- {line}" for line in self.old[i]]
                lines += [f"+ {line}" for line in self.new[k]]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        old, new = _colored(self.old), _colored(self.new)
        rows = [_row(*(f'<div class="nki-head">{html.escape(c)}</div>' for c in self.captions))]
        for same, i, k in self.hunks():
            if same:
                rows.append(_row(_block(old[i], " ", "", " nki-twice"), _block(new[k], " ", "")))
            else:
                rows.append(
                    _row(_block(old[i], "-", " nki-minus"), _block(new[k], "+", " nki-plus"))
                )
        return f'<style>{CSS}{_CSS}</style><div class="nki-hlo nki-code">{"".join(rows)}</div>'


def _listing(sources: Source | Sequence[Source]) -> tuple[str, ...]:
    """The lines of one source or several, an empty line between them."""
    several = [sources] if isinstance(sources, str) or callable(sources) else list(sources)
    lines: list[str] = []
    for source in several:
        text = source if isinstance(source, str) else inspect.getsource(source)
        lines += ([""] if lines else []) + _without_docstrings(textwrap.dedent(text).strip())
    return tuple(lines)


def _without_docstrings(text: str) -> list[str]:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or len(node.body) == 1:
            continue
        if ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines[first.lineno - 1 : first.end_lineno] = [None] * (  # type: ignore[list-item]
                (first.end_lineno or first.lineno) - first.lineno + 1
            )
    return [line for line in lines if line is not None]


def _colored(lines: Sequence[str]) -> list[str]:
    """Lines as HTML, with the classes that the book's theme colours code by."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return highlight("\n".join(lines), lexer, HtmlFormatter(nowrap=True)).split("\n")


def _row(left: str, right: str) -> str:
    return f'<div class="nki-row">{left}{right}</div>'


def _block(lines: Sequence[str], sign: str, kind: str, more: str = "") -> str:
    """Lines of one side. What is shown on both sides is read out once."""
    body = "".join(line_html(f"{sign} {line}", kind) for line in lines)
    hidden = ' aria-hidden="true"' if more else ""
    return f'<div class="highlight{more}"{hidden}><pre><code>{body}</code></pre></div>'
