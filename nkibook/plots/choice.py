"""Several pictures in the place of one: the reader picks, or they follow one another.

No script is involved: radio buttons and style sheets do it, so that it works on a page, in a
notebook, offline and with scripts switched off. Every picture is made when the page is built.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping, Sequence
from typing import Protocol


class Shown(Protocol):
    """What a notebook shows as HTML."""

    def _repr_html_(self) -> str: ...


_CSS = (
    "html[data-theme=dark] .bd-content div.cell_output .text_html:has(.nki-choice)"
    "{background:transparent;color:inherit;padding:0}"
    ".nki-choice{margin:1rem 0;min-width:0;border:0;padding:0}"
    ".nki-choice>legend,.nki-choice .nki-what{font-size:.85em;padding:0;width:auto;float:none;"
    "margin:0 0 .2rem;opacity:.85}"
    ".nki-choice>input{position:absolute;opacity:0;width:1px;height:1px}"
    ".nki-choice>label{display:inline-block;margin:0 .3rem .4rem 0;padding:.15rem .7rem;"
    "border:1px solid currentColor;border-radius:1rem;font-size:.85em;cursor:pointer;opacity:.75}"
    ".nki-choice>input:checked+label{background:#0072b2;border-color:#0072b2;color:#fff;opacity:1}"
    ".nki-choice>input:focus-visible+label{outline:3px solid #e69f00;outline-offset:1px}"
    ".nki-choice>.nki-panel{display:none}"
)
_MOVING_CSS = (
    "html[data-theme=dark] .bd-content div.cell_output .text_html:has(.nki-moving)"
    "{background:transparent;color:inherit;padding:0}"
    ".nki-moving{margin:1rem 0}"
    ".nki-moving>.nki-stack{display:grid}"
    ".nki-moving>.nki-stack>*{grid-area:1/1;visibility:hidden}"
    ".nki-moving>.nki-stack>:last-child{visibility:visible}"
    ".nki-moving>label{display:inline-block;padding:.15rem .7rem;border:1px solid currentColor;"
    "border-radius:1rem;font-size:.85em;cursor:pointer;opacity:.85}"
    ".nki-moving>input{position:absolute;opacity:0;width:1px;height:1px}"
    ".nki-moving>input:focus-visible+label{outline:3px solid #e69f00;outline-offset:1px}"
    ".nki-moving>label::after{content:'▶ Play'}"
    ".nki-moving>input:checked+label::after{content:'■ Stop'}"
)


class Choice:
    """Pictures, or other HTML outputs, of which one is seen: a row of buttons picks it.

    Arrow keys go from one to the next, as in any group of radio buttons.

    Args:
        options: what is shown under each button, by the text of the button.
        what: what is chosen, above the buttons, such as "columns of a tile".
        start: the button that is down at first; by default the first one.

    Raises:
        ValueError: there is nothing to choose from, or no such `start`.
    """

    def __init__(self, options: Mapping[str, Shown], what: str, start: str | None = None) -> None:
        if len(options) < 2:
            raise ValueError(f"options has {len(options)} entries: a choice needs two at least.")
        start = next(iter(options)) if start is None else start
        if start not in options:
            raise ValueError(f"start is {start!r}: it is one of {', '.join(options)}.")
        self.options = dict(options)
        self.what = what
        self.start = start

    def __repr__(self) -> str:
        shown = "\n".join(f"{name}: {option!r}" for name, option in self.options.items())
        return f"Choice of {self.what}\n{shown}"

    def _repr_html_(self) -> str:
        panels = [option._repr_html_() for option in self.options.values()]
        name = _name(self.what, *panels)
        buttons, rules = [], []
        for number, label in enumerate(self.options):
            checked = " checked" if label == self.start else ""
            key = f"{name}-{number}"
            buttons.append(
                f'<input type="radio" name="{name}" id="{key}"{checked}>'
                f'<label for="{key}">{html.escape(label)}</label>'
            )
            rules.append(f"#{key}:checked~.{key}{{display:block}}")
        body = "".join(
            f'<div class="nki-panel {name}-{number}">{panel}</div>'
            for number, panel in enumerate(panels)
        )
        return (
            f'<fieldset class="nki-choice"><style>{_CSS}{"".join(rules)}</style>'
            f"<legend>{html.escape(self.what)}</legend>{''.join(buttons)}{body}</fieldset>"
        )


class Moving:
    """Pictures that follow one another when the reader presses Play. The last one is the still.

    Args:
        frames: the pictures, of one size.
        what: what moves, for the name of the button.
        seconds: how long each frame is seen.

    Raises:
        ValueError: fewer than two frames, or a time that is not positive.
    """

    def __init__(self, frames: Sequence[Shown], what: str, seconds: float = 0.5) -> None:
        if len(frames) < 2:
            raise ValueError(f"{len(frames)} frames: something that moves has two at least.")
        if not seconds > 0:
            raise ValueError(f"seconds is {seconds!r}: a frame is seen for a positive time.")
        self.frames = list(frames)
        self.what = what
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"{self.what}, {len(self.frames)} frames. The last one: {self.frames[-1]!r}"

    def _repr_html_(self) -> str:
        count = len(self.frames)
        panels = [frame._repr_html_() for frame in self.frames]
        name = _name(self.what, *panels)
        # Each frame is seen for its part of the round; the last one for three parts.
        round_seconds = (count + 2) * self.seconds
        share = 100 / (count + 2)
        rules = [
            f"@keyframes {name}{{0%,{share:.3f}%{{visibility:visible}}"
            f"{share + 0.001:.3f}%,100%{{visibility:hidden}}}}",
            f"@keyframes {name}-last{{0%,{3 * share:.3f}%{{visibility:visible}}"
            f"{3 * share + 0.001:.3f}%,100%{{visibility:hidden}}}}",
        ]
        for number in range(count):
            key = name if number < count - 1 else f"{name}-last"
            rules.append(
                f"#{name}-on:checked~.nki-stack>:nth-child({number + 1}){{visibility:hidden;"
                f"animation:{key} {round_seconds:g}s step-end {number * self.seconds:g}s infinite}}"
            )
        body = "".join(f"<div>{panel}</div>" for panel in panels)
        return (
            f'<div class="nki-moving"><style>{_MOVING_CSS}{"".join(rules)}</style>'
            f'<input type="checkbox" id="{name}-on" aria-label="Play: {html.escape(self.what)}">'
            f'<label for="{name}-on"></label><div class="nki-stack">{body}</div></div>'
        )


def _name(*parts: str) -> str:
    """A name that is unique on a page as long as two differ, and the same in every build."""
    return "c" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
