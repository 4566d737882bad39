"""How programs show in a notebook and on a page: inline HTML, no script, no outside assets.

That is HLO, and with the same `Diff` and the same pieces PyTorch's graphs (`nkibook.fx`).

Colours are the page's own (`currentColor`, transparent backgrounds), so light and dark mode both
work. Long lines wrap, indented below their first part, so nothing is cut, on a phone neither.
"""

from __future__ import annotations

import dataclasses
import difflib
import html
import itertools
import json
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from nkibook.hlo.calls import COLLECTIVES, Collective, CustomCall
from nkibook.hlo.shorten import without_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nkibook.hlo.parse import Instruction


class Operation(Protocol):
    """What a line of a listing calls."""

    @property
    def opcode(self) -> str: ...


Line: TypeAlias = "tuple[str, Operation | None]"
"""A line of a listing, and the operation in it."""


class Listing(Protocol):
    """A program of which two can be compared: an HLO module, a graph of PyTorch."""

    @property
    def is_portable(self) -> bool:
        """Whether its text is the same on every machine."""

    def short_lines(self) -> Sequence[Line]: ...

    def plain(self, line: str) -> str:
        """A line without the numbers of names."""

    def numbered(self, name: str, number: int) -> str:
        """A name with this number in the place of its own."""

    def changes(self, other: Any) -> str:
        """What changes from this program to another of its kind, in numbers."""

    def stands_out(self, operation: Any, focus: Sequence[str]) -> bool:
        """Whether a line stays open where others are folded: `focus` is what the text names."""


class Module(Protocol):
    """What is shown of an HLO module: see :class:`nkibook.hlo.module.HloModule`."""

    stage: str
    origin: str

    @property
    def custom_calls(self) -> Sequence[CustomCall]: ...

    @property
    def collectives(self) -> Sequence[Collective]: ...

    def summary(self) -> str: ...

    def short_lines(self) -> list[tuple[str, Instruction | None]]: ...


# The first rule takes away the light plate that the rendered book's theme puts under HTML outputs
# in dark mode; its selector repeats the theme's, to weigh as much. Orange and blue are those of
# the book's figures.
CSS = (
    "html[data-theme=dark] .bd-content div.cell_output .text_html:has(div.nki-hlo)"
    "{background:transparent;color:inherit;padding:0}"
    ".nki-hlo{color:inherit;margin:1rem 0;min-width:0}"
    ".nki-hlo .nki-head{font-size:.85em;opacity:.8;margin-bottom:.3rem}"
    ".nki-hlo pre{background:rgba(128,128,128,.07);color:inherit;border:0;"
    "border-radius:4px;margin:.2rem 0;padding:.6rem 0;max-width:100%;"
    "font-size:.85em;line-height:1.45;white-space:pre-wrap}"
    ".nki-hlo code{display:block;padding:0;background:none;border:0;color:inherit;"
    "font-size:inherit;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".nki-hlo .nki-line{display:block;padding:0 .7rem 0 calc(.7rem + 6ch);text-indent:-6ch;"
    "min-height:1.45em;border-left:3px solid transparent}"
    ".nki-hlo .nki-call{background:rgba(230,159,0,.22);border-left-color:#e69f00}"
    ".nki-hlo .nki-coll{background:rgba(86,180,233,.2);border-left-color:#56b4e9}"
    ".nki-hlo .nki-minus{background:rgba(213,94,0,.16);border-left-color:#d55e00}"
    ".nki-hlo .nki-plus{background:rgba(0,158,115,.18);border-left-color:#009e73}"
    ".nki-diff pre{margin:0;padding:0;border-radius:0}"
    ".nki-hlo .nki-op{font-weight:700}"
    ".nki-hlo .nki-note{font-style:italic}"
    ".nki-hlo summary{cursor:pointer;font-size:.85em}"
)

# Of more lines than _LONG that follow one another with the same sign, _SHOWN are not folded.
_LONG, _SHOWN = 24, 12

_COMMENT = re.compile(r"(/\*.*?\*/)$")

# What a line defines, and where a line may use it: not as an opcode, an attribute or a comment.
_DEFINED = re.compile(r'\s+(?:ROOT )?([\w.-]+)(?: = |: ")')
_USED = re.compile(r"""(?<![\w.*={"'-])[A-Za-z_][\w.-]*(?![\w.(-])""")


def module_html(module: Module) -> str:
    """The module in short, then its custom calls' configs and the full text, folded."""
    parts = [_short_html(module)]
    for call in module.custom_calls:
        if call.config is not None:
            config = json.dumps(call.config, indent=2, sort_keys=True, ensure_ascii=False)
            parts.append(_folded_text(f"backend_config of {call.kernel_name}, decoded", config))
    full = without_source(str(module)).strip()
    parts.append(_folded_text("full text (source paths left out)", full))
    return f'<style>{CSS}</style><div class="nki-hlo">{"".join(parts)}</div>'


@dataclasses.dataclass(frozen=True)
class Diff:
    """The lines of two programs as one listing: what only the first has, only the second, or both.

    A line counts as the same when it differs in the numbers of names alone, `add.1` and `add.2`.
    The names are those of the second program. A value that only the first one has keeps its own,
    or gets the next number where the second program has another value of that name.
    Of a long run of lines with one sign those are open that have an opcode of `focus`, or call a
    kernel; without `focus`, the first ones.
    """

    old: Listing
    new: Listing
    captions: tuple[str, str]
    focus: tuple[str, ...] = ()

    def lines(self) -> list[tuple[str, str, Operation | None]]:
        """Each line as its sign ("-" first only, "+" second only, " " both), text, operation."""
        old, new = self.old.short_lines(), self.new.short_lines()
        before, after = ([self.old.plain(text) for text, _ in lines] for lines in (old, new))
        runs = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        same = {i + m: k + m for tag, i, j, k, _ in runs if tag == "equal" for m in range(j - i)}
        old = self._renamed(old, new, same)
        found: list[tuple[str, str, Operation | None]] = []
        for tag, i, j, k, n in runs:
            if tag == "equal":
                found += [(" ", *line) for line in new[k:n]]
            else:
                found += [("-", *line) for line in old[i:j]]
                found += [("+", *line) for line in new[k:n]]
        return found

    def _renamed(
        self, old: Sequence[Line], new: Sequence[Line], same: dict[int, int]
    ) -> list[Line]:
        """The first program's lines with the names of the second; `same` maps lines to theirs."""
        taken = {found[1] for text, _ in new if (found := _DEFINED.match(text))}
        names: dict[str, str] = {}
        renamed = []
        for i, (text, operation) in enumerate(old):
            if text.endswith("{"):  # the next computation, with names of its own
                names.clear()
            defined = _DEFINED.match(text)
            if defined and i in same and (other := _DEFINED.match(new[same[i]][0])):
                names[defined[1]] = other[1]
            elif defined:
                numbered = (self.old.numbered(defined[1], n) for n in itertools.count(1))
                free = (x for x in itertools.chain([defined[1]], numbered) if x not in taken)
                names[defined[1]] = next(free)
                taken.add(names[defined[1]])
            renamed.append((_USED.sub(lambda x: names.get(x[0], x[0]), text), operation))
        return renamed

    def __repr__(self) -> str:
        head = [f"- {self.captions[0]}", f"+ {self.captions[1]}"]
        if not (self.old.is_portable and self.new.is_portable):
            return "\n".join(head)
        return "\n".join([*head, *(f"{sign} {text}".rstrip() for sign, text, _ in self.lines())])

    def _repr_html_(self) -> str:
        head = "".join(
            f'<div class="nki-head"><span class="nki-line {kind}">{sign} '
            f"{html.escape(caption)}</span></div>"
            for sign, kind, caption in zip(
                "-+", ("nki-minus", "nki-plus"), self.captions, strict=True
            )
        )
        kinds = {"-": " nki-minus", "+": " nki-plus", " ": ""}
        parts = []
        for sign, run in itertools.groupby(self.lines(), key=lambda line: line[0]):
            for is_open, lines in self._pieces([line[1:] for line in run]):
                listing = "".join(line_html(f"{sign} {marked_up(*x)}", kinds[sign]) for x in lines)
                title = f"{sign} {len(lines)} more line{'s' * (len(lines) > 1)}"
                parts.append(pre(listing) if is_open else folded(title, listing))
        body = "".join(parts)
        counts = f'<div class="nki-head">{html.escape(self.counts())}</div>'
        return f'<style>{CSS}</style><div class="nki-hlo nki-diff">{counts}{head}{body}</div>'

    def counts(self) -> str:
        """What changes, in numbers."""
        return self.old.changes(self.new)

    def _pieces(self, lines: list[Line]) -> list[tuple[bool, list[Line]]]:
        """A run of lines with one sign in pieces, each open or not."""
        if len(lines) <= _LONG:
            return [(True, lines)]
        if not self.focus:
            return [(True, lines[:_SHOWN]), (False, lines[_SHOWN:])]
        pieces = itertools.groupby(
            lines, key=lambda x: x[1] is not None and self.old.stands_out(x[1], self.focus)
        )
        return [(is_open, list(piece)) for is_open, piece in pieces]


def change(values: Iterable[object]) -> str:
    """Numbers before and after, with an arrow between them."""
    return " \N{RIGHTWARDS ARROW} ".join(map(str, values))


def in_units(n_bytes: int) -> str:
    """A number of bytes, in KiB or MiB if there are as many."""
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes} bytes"


def heading(module: Module) -> str:
    """What a module is, in one line: who made it, at which stage, what stands out in it."""
    counts = [(len(module.custom_calls), "custom call"), (len(module.collectives), "collective")]
    notes = [f"{n} {what}{'s' if n > 1 else ''}" for n, what in counts if n]
    return ", ".join([f"HLO {module.stage} XLA optimisation", *notes]) + f" ({module.origin})"


def _short_html(module: Module, caption: str | None = None) -> str:
    lines = []
    for text, instruction in module.short_lines():
        opcode = "" if instruction is None else instruction.opcode
        kind = " nki-call" if opcode == "custom-call" else ""
        if opcode.removesuffix("-start") in COLLECTIVES:
            kind = " nki-coll"
        lines.append(line_html(marked_up(text, instruction), kind))
    head = html.escape(caption or heading(module))
    return f'<div class="nki-head">{head}</div>{pre("".join(lines))}'


def marked_up(text: str, operation: Operation | None) -> str:
    """A line as HTML: its opcode stands out, its comment stands back."""
    line = html.escape(text)
    if operation is None:
        return line
    head, call, rest = line.partition(f" {operation.opcode}(")
    rest = _COMMENT.sub(r'<span class="nki-note">\1</span>', rest)
    opcode = call[1:-1]
    return f'{head} <span class="nki-op">{opcode}</span>{call[len(opcode) + 1 :]}{rest}'


def _folded_text(title: str, text: str) -> str:
    return folded(title, "".join(line_html(html.escape(line)) for line in text.split("\n")))


def folded(title: str, lines: str) -> str:
    """Lines, as `line_html` gives them, below a title that opens them."""
    return f"<details><summary>{html.escape(title)}</summary>{pre(lines)}</details>"


def line_html(content: str, kind: str = "") -> str:
    """A line of a listing; `kind` is a class of `CSS`, after a space."""
    # The newline shows where a viewer drops the style sheet; at the end of a block it takes no
    # space.
    return f'<span class="nki-line{kind}">{content}\n</span>'


def pre(content: str) -> str:
    """A listing of lines, as `line_html` gives them."""
    return f"<pre><code>{content}</code></pre>"
