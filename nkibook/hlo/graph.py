"""Draws dataflow graphs as inline SVG: of HLO, and of what `draw_boxes` is given.

Boxes are instructions, arrows run from an operand to its user, from top to bottom. Ink is
`currentColor`, so the drawing follows the page's light or dark mode.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nkibook.hlo.calls import COLLECTIVES
from nkibook.hlo.layers import Layout, layout
from nkibook.hlo.parse import Computation, Instruction, ParsedModule

_SHRINKS = 0.7  # at most, on a narrow page: to 9 pixels. Beyond that it scrolls
_FONT = 13  # px
_CHARACTER = 7.85  # px a character of that size; monospaced fonts are 0.6 em wide
_BOX = 44  # px, height: two lines of text
_ROW = 84  # px from row to row
_MARGIN = 8
_LEGEND = 30  # a row
_NARROW = 440  # px, a drawing that a phone shows whole: a wider legend takes a second row

# Of the book's figures (nkibook.plots.COLORS): colours that colour-blind readers tell apart.
_ORANGE, _BLUE = "#e69f00", "#56b4e9"
# What the legend calls it: fill, outline.
_KINDS = {
    "parameter": ("none", "currentColor"),
    "instruction": ("rgba(128,128,128,.14)", "currentColor"),
    "operator": ("rgba(128,128,128,.14)", "currentColor"),
    "custom call": ("rgba(230,159,0,.28)", _ORANGE),
    "kernel": ("rgba(230,159,0,.28)", _ORANGE),
    "collective": ("rgba(86,180,233,.25)", _BLUE),
}
_CSS = (
    "html[data-theme=dark] .bd-content div.cell_output .text_html:has(figure.nki-hlo-graph)"
    "{background:transparent;color:inherit;padding:0}"
    ".nki-hlo-graph{margin:1rem 0;max-width:100%;overflow-x:auto}"
    ".nki-hlo-graph svg{display:block;margin:auto;max-width:100%;height:auto}"
)


class Drawing:
    """A drawing that displays as inline SVG in a browser, and as a sentence elsewhere.

    Attributes:
        svg: the drawing, an `<svg>` element.
        alt: what it shows, for readers who cannot see it; the same in every run.
    """

    def __init__(self, svg: str, alt: str) -> None:
        self.svg = svg
        self.alt = alt

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_html_(self) -> str:
        return (
            f'<figure class="nki-hlo-graph" tabindex="0"><style>{_CSS}</style>{self.svg}</figure>'
        )


class Box(NamedTuple):
    """A box of a drawing.

    Attributes:
        kind: one of `_KINDS`, which are what the legend tells apart.
        caption: the two lines in it: what it is, and its shape.
        details: what a browser shows over it: the whole line of the listing.
        operands: the numbers of the boxes whose results it takes.
        is_result: whether its result is the graph's.
        near_use: whether it stands just above its user, as a constant does.
    """

    kind: str
    caption: tuple[str, str]
    details: str
    operands: Sequence[int]
    is_result: bool
    near_use: bool = False


def draw_boxes(boxes: Sequence[Box], alt: str, result: str = "result") -> Drawing:
    """Draws boxes, each of which comes after its operands.

    Args:
        boxes: at least one.
        alt: what the drawing shows, in words.
        result: what the legend calls a result.
    """
    placed = layout(
        [_width(box.caption) for box in boxes],
        [(operand, n) for n, box in enumerate(boxes) for operand in box.operands],
        sink_near_use=[n for n, box in enumerate(boxes) if box.near_use],
    )
    return Drawing(_svg(boxes, placed, alt, result), alt)


def draw(
    module: ParsedModule,
    computation: Computation,
    labels: Mapping[int, str],
    kernels: Mapping[str, str],
    max_nodes: int,
) -> Drawing:
    """Draws one computation of a (shortened) module.

    `labels` names parameters by number, `kernels` names what custom calls run, by instruction.
    Raises ValueError when there are more than `max_nodes` instructions.
    """
    instructions = computation.instructions
    if len(instructions) > max_nodes:
        raise ValueError(
            f"computation {computation.name!r} has {len(instructions)} instructions, and a graph "
            f"of more than {max_nodes} is hard to read: draw another computation, read "
            "text(short=True), or pass a larger max_nodes."
        )
    bodies = {c.name: c for c in module.computations}
    number = {i.name: n for n, i in enumerate(instructions)}
    boxes = [
        Box(
            kind_of(i),
            _caption(i, labels, kernels, bodies),
            str(i),
            [number[operand] for operand in i.operands],
            i.is_root,
            near_use=i.opcode in ("constant", "iota"),
        )
        for i in instructions
    ]
    return draw_boxes(boxes, _describe(module, computation, labels, kernels), "result (ROOT)")


def kind_of(instruction: Instruction) -> str:
    """Which of the legend's kinds an instruction is."""
    if instruction.opcode == "custom-call":
        return "custom call"
    if instruction.opcode.removesuffix("-start") in COLLECTIVES:
        return "collective"
    return "parameter" if instruction.opcode == "parameter" else "instruction"


def _caption(
    instruction: Instruction,
    labels: Mapping[int, str],
    kernels: Mapping[str, str],
    bodies: Mapping[str, Computation],
) -> tuple[str, str]:
    title = instruction.opcode
    if (number := instruction.parameter_number) is not None:
        title = labels.get(number, instruction.name)
    elif instruction.opcode == "constant":
        title = f"constant {cut(instruction.literal, 16)}"
    elif instruction.name in kernels:
        title = f"{instruction.opcode}: {kernels[instruction.name]}"
    elif instruction.opcode in ("fusion", "call"):
        title = cut(f"{instruction.opcode}: {', '.join(_inside(instruction, bodies))}", 44)
    return title, cut(str(instruction.shape), 36)


def _inside(instruction: Instruction, bodies: Mapping[str, Computation]) -> list[str]:
    """The operations that a fusion or call stands for, through nested ones."""
    opcodes = []
    for name in instruction.called_computations:
        for inner in bodies[name].instructions:
            if inner.opcode in ("fusion", "call"):
                opcodes += _inside(inner, bodies)
            elif inner.opcode not in ("parameter", "constant", "tuple", "get-tuple-element"):
                opcodes.append(inner.opcode)
    return opcodes


def cut(text: str, length: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _describe(
    module: ParsedModule,
    computation: Computation,
    labels: Mapping[int, str],
    kernels: Mapping[str, str],
) -> str:
    """The graph in words: every instruction and what it takes, where that stays readable."""

    def name(instruction: Instruction) -> str:
        if (number := instruction.parameter_number) is not None:
            return labels.get(number, instruction.name)
        kernel = kernels.get(instruction.name)
        return instruction.name + (f" ({kernel})" if kernel else "")

    steps = [
        f"{name(i)} takes {', '.join(name(computation[o]) for o in i.operands)}"
        for i in computation.instructions
        if i.operands
    ]
    start = (
        f"dataflow graph of {computation.name} in HLO module {module.name}, "
        f"{len(computation.instructions)} instructions"
    )
    if len(steps) <= 12:
        return f"{start}: {'; '.join(steps)}." if steps else f"{start}."
    calls = [name(i) for i in computation.instructions if i.opcode == "custom-call"]
    return f"{start}; custom calls: {', '.join(calls) if calls else 'none'}."


def _svg(boxes: Sequence[Box], placed: Layout, alt: str, result: str) -> str:
    kinds = [kind for kind in _KINDS if any(box.kind == kind for box in boxes)]
    rows = _legend_rows([*kinds, result], max(placed.width, _NARROW))
    width = max(placed.width, *map(_legend_width, rows)) + 2 * _MARGIN
    shift = (width - placed.width) / 2
    above = max(placed.row) * _ROW + _BOX + 2 * _MARGIN
    height = above + len(rows) * _LEGEND

    parts = [_edge(route, shift) for route in placed.routes.values()]
    for box, x, row in zip(boxes, placed.x, placed.row, strict=True):
        parts.append(_box(box, x + shift, row * _ROW + _MARGIN))
    for at, labels in enumerate(rows):
        x, y = width / 2 - _legend_width(labels) / 2, above + at * _LEGEND
        parts.append(_legend(labels, result, x, y))
    text = html.escape(alt)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{text}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="min-width:{_SHRINKS * width:.0f}px" '
        f"font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" "
        f'font-size="{_FONT}" fill="currentColor" text-anchor="middle">'
        f"<title>{text}</title>{''.join(parts)}</svg>"
    )


def _width(caption: tuple[str, str]) -> float:
    return max(map(len, caption)) * _CHARACTER + 20


def _box(box: Box, x: float, y: float) -> str:
    width = _width(box.caption)
    shape = _rectangle(box.kind, x - width / 2, y, width, _BOX, box.is_result)
    title, below = (html.escape(line) for line in box.caption)
    return (
        f"<g><title>{html.escape(box.details)}</title>{shape}"
        f'<text x="{x:.1f}" y="{y + 18:.1f}" font-weight="700">{title}</text>'
        f'<text x="{x:.1f}" y="{y + 36:.1f}" opacity=".8">{below}</text></g>'
    )


def _rectangle(kind: str, x: float, y: float, width: float, height: float, is_result: bool) -> str:
    fill, stroke = _KINDS[kind]
    radius = height / 2 if kind == "parameter" else 4
    line = 3 if is_result else 1.3
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{radius:.1f}" fill="{fill}" stroke="{stroke}" stroke-width="{line}"/>'
    )


def _edge(route: tuple[tuple[float, int], ...], shift: float) -> str:
    """A smooth line through the route, from the lower side of a box to the upper side of one."""
    points = []
    for i, (x, row) in enumerate(route):
        top = row * _ROW + _MARGIN
        if i > 0:
            points.append((x + shift, top))
        if i < len(route) - 1:
            points.append((x + shift, top + _BOX))
    tip_x, tip_y = points[-1]
    points[-1] = (tip_x, tip_y - 7)
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for i in range(1, len(points)):
        (x0, y0), (x1, y1) = points[i - 1], points[i]
        if i % 2 == 0:  # straight past the boxes of a row
            path += f"L{x1:.1f},{y1:.1f}"
        else:
            middle = (y0 + y1) / 2
            path += f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
    # A drawn arrowhead: a marker needs an id, and ids must be unique on a page.
    head = (
        f"{tip_x:.1f},{tip_y:.1f} {tip_x - 4:.1f},{tip_y - 8:.1f} {tip_x + 4:.1f},{tip_y - 8:.1f}"
    )
    return (
        f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.3" opacity=".75"/>'
        f'<polygon points="{head}" opacity=".75"/>'
    )


def _legend_width(labels: list[str]) -> float:
    return sum(len(label) * _CHARACTER + 48 for label in labels)


def _legend_rows(labels: list[str], width: float) -> list[list[str]]:
    """The labels in as few rows as `width` pixels allow."""
    rows: list[list[str]] = [[]]
    for label in labels:
        if rows[-1] and _legend_width([*rows[-1], label]) > width:
            rows.append([])
        rows[-1].append(label)
    return rows


def _legend(labels: list[str], result: str, x: float, y: float) -> str:
    parts = []
    for label in labels:
        is_result = label == result
        kind = "instruction" if is_result else label
        parts.append(_rectangle(kind, x, y + 6, 22, 13, is_result))
        parts.append(f'<text x="{x + 28:.1f}" y="{y + 17:.1f}" text-anchor="start">{label}</text>')
        x += _legend_width([label])
    return "".join(parts)
