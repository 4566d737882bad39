"""The outcome of a check, as text and as a block of a page."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkibook.plots import Figure

_WIDTH = 76


@dataclass(repr=False)
class Verdict:
    """What a check found; true when the answer is right.

    Attributes:
        right: whether the answer is right.
        message: what was found: the first sentences to read.
        details: who wrote the first wrong element, and from what.
        cost: modelled latency beside the solution's, or why there is none.
        index: the first wrong element, when values were compared and differ.
        picture: who reads what, around that element.
    """

    right: bool
    message: str
    details: tuple[str, ...] = ()
    cost: str = ""
    index: tuple[int, ...] | None = None
    picture: Figure | None = None

    def __bool__(self) -> bool:
        return self.right

    def __str__(self) -> str:
        return "\n".join(_wrapped(line) for line in self._lines())

    __repr__ = __str__

    def _lines(self) -> list[str]:
        head = f"{'Right' if self.right else 'Not yet'}: {self.message}"
        return [line for part in (head, *self.details, self.cost) for line in part.splitlines()]

    def _repr_html_(self) -> str:
        text = html.escape("\n".join(self._lines()))
        picture = self.picture._repr_html_() if self.picture else ""
        # On a phone a line goes on in the next one: nothing scrolls sideways.
        style = "white-space:pre-wrap;overflow-wrap:anywhere"
        return f'<pre class="verdict" style="{style}">{text}</pre>{picture}'


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line, _WIDTH, subsequent_indent=f"{indent}  ", break_long_words=False, drop_whitespace=True
    )
