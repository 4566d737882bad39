"""Outputs of cells as every host of notebooks shows them: text, tables, and pictures as PNG.

The book's figures are inline SVG, with styles: GitHub takes both out of an output. So an output of
HTML becomes one or several, in its order: a PNG for each drawing, and what stands around them as
HTML without styles. Of a choice the one that is chosen at first is left, of a moving picture its
still. The letters are those that come with matplotlib, so the picture is the same on every machine.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup, NavigableString, Tag
from bs4.element import PageElement
from nbformat import NotebookNode

SCALE = 2  # pixels of a picture for each that it takes on a screen
COLOURS = 128  # of a picture: with them it is half as large, and looks the same
MOST_PIXELS = 1800  # wide: what is wider gets fewer pixels

_DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_START = re.compile(r"<svg\b[^>]*>")
_KEPT = {
    *("a", "b", "br", "code", "details", "div", "em", "h3", "h4", "i", "li", "ol", "p", "pre"),
    *("strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_BLOCKS = {"details", "div", "li", "ol", "p", "pre", "table", "ul", "h3", "h4"}


Known = Mapping[str, str]
"""Pictures that were made before, as base64, by the digest of what they were made of."""


def known(notebook: NotebookNode) -> dict[str, str]:
    """The pictures of a notebook that was made before. They are taken as they are: a picture is
    made anew only when what it shows changes, and not when the library that draws it does."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return {
        output.metadata["image/png"]["digest"]: output.data["image/png"]
        for output in outputs
        if "digest" in output.get("metadata", {}).get("image/png", {})
    }


def plain(
    output: NotebookNode, alt: str | None = None, made: Known | None = None
) -> list[NotebookNode]:
    """An output as those that stand for it.

    Args:
        output: of a cell that was executed.
        alt: what a picture of matplotlib's shows, which says nothing itself.
        made: pictures that need not be made.
    """
    data = output.get("data", {})
    if "text/html" in data:
        return _of_html(output, made or {})
    if "image/png" in data:
        size = output.get("metadata", {}).get("image/png", {}).get("width")
        source = data["image/png"]
        found = _picture(source, lambda: base64.b64decode(source), alt or "", size, made or {})
        found.data["text/plain"] = data["text/plain"]
        return [found]
    return [output]


def _of_html(output: NotebookNode, made: Known) -> list[NotebookNode]:
    drawings: list[str] = []

    def note(match: re.Match[str]) -> str:
        drawings.append(match[0])
        return f'<nki-drawing number="{len(drawings) - 1}"></nki-drawing>'

    soup = BeautifulSoup(_DRAWING.sub(note, output.data["text/html"]), "html.parser")
    _choose(soup)
    found: list[NotebookNode] = []
    for piece in _pieces(soup):
        if isinstance(piece, str):
            found.append(_shown({"text/html": piece}))
        else:
            found.append(_of_drawing(drawings[int(piece["number"])], _width(piece), made))
    found = found or [_shown({})]
    # One text, as the output had: nbval compares how many there are, and what they say.
    found[0].data["text/plain"] = output.data["text/plain"]
    return found


def _shown(data: dict[str, str]) -> NotebookNode:
    return nbformat.v4.new_output("display_data", data=data)


def _picture(
    source: str, draw: Callable[[], bytes], alt: str, width: int | None, made: Known
) -> NotebookNode:
    """A picture, drawn unless it was made before of the same source in the same way."""
    how = f"{SCALE} {COLOURS} {MOST_PIXELS} {width}\0{source}"
    digest = hashlib.sha256(how.encode()).hexdigest()[:16]
    png = made.get(digest) or base64.b64encode(_smaller(draw())).decode()
    found = _shown({"image/png": png})
    found.metadata["image/png"] = {"alt": alt, "digest": digest} | (
        {"width": width} if width else {}
    )
    return found


def _choose(soup: BeautifulSoup) -> None:
    """Leave of what a page hides only what it shows before its reader does something."""
    for tag in soup(["style", "script", "button"]):
        tag.decompose()
    for moving in soup.select(".nki-moving"):
        frames = moving.select(":scope > .nki-stack > *")
        for frame in frames[:-1]:
            frame.decompose()
        for control in moving.select(":scope > input, :scope > label"):
            control.decompose()
        moving.insert(0, said := soup.new_tag("p"))
        said.string = f"The last of {len(frames)} frames. Run the cell to see it move."
    for choice in soup.select("fieldset.nki-choice"):
        chosen = choice.select_one(":scope > input[checked]")
        label = choice.find("label", attrs={"for": chosen["id"]}).get_text()
        panels = choice.select(":scope > .nki-panel")
        [panel] = [p for p in panels if chosen["id"] in p["class"]]
        others = [found.get_text() for found in choice.select(":scope > label")]
        others.remove(label)
        what = choice.legend.get_text()
        said = soup.new_tag("p")
        said.append(f"{what}: ")
        said.append(bold := soup.new_tag("b"))
        bold.string = label
        listed = " or ".join(filter(None, [", ".join(others[:-1]), others[-1]]))
        said.append(f". Run the cell to choose {listed}.")
        panel.insert(0, said)
        choice.replace_with(panel)


def _pieces(soup: Tag) -> Iterator[str | Tag]:
    """HTML without styles, and the places of drawings, in the order of the output."""
    text: list[str] = []

    def walk(tag: Tag) -> Iterator[str | Tag]:
        for child in tag.children:
            if isinstance(child, Tag) and child.name == "nki-drawing":
                yield from flush()
                yield child
            elif isinstance(child, Tag) and child.find("nki-drawing"):
                yield from walk(child)
            else:
                text.append(_cleaned(child))

    def flush() -> Iterator[str]:
        piece = "".join(text).strip()
        text.clear()
        if re.sub(r"<[^>]*>", "", piece).strip():
            yield piece

    yield from walk(soup)
    yield from flush()


def _cleaned(node: object) -> str:
    """An element without classes and styles; of a listing, a line for each of its lines."""
    if not isinstance(node, Tag):
        return html.escape(str(node), quote=False) if type(node) is NavigableString else ""
    if node.name == "pre" and node.select(".nki-line"):
        lines = (line.get_text().rstrip() for line in node.select(".nki-line"))
        return f"<pre><code>{html.escape(chr(10).join(lines), quote=False)}</code></pre>"
    inside = "".join(
        # Styles keep neighbours apart that have nothing between them.
        f" {_cleaned(child)}" if node.name == "div" and _follows_a_tag(child) else _cleaned(child)
        for child in node.children
    )
    name = {"figcaption": "p", "caption": "p", "legend": "p"}.get(node.name, node.name)
    if name not in _KEPT:
        return inside
    if name == "div" and any(f"<{block}" in inside for block in _BLOCKS):
        return inside
    href = node.get("href", "")
    spans = "".join(f' {key}="{node[key]}"' for key in ("colspan", "rowspan") if key in node.attrs)
    if name == "a":
        return f'<a href="{html.escape(href)}">{inside}</a>' if "://" in href else inside
    return f"<{name}{spans}>{inside}</{name}>" if name != "br" else "<br>"


def _follows_a_tag(node: PageElement) -> bool:
    return isinstance(node, Tag) and isinstance(node.previous_sibling, Tag)


# -- drawings


def _width(place: Tag) -> float | None:
    """How wide a figure is to be, in pixels of the page; None where nothing says so."""
    for parent in place.parents:
        found = re.search(r"max-width:\s*(\d+)px", parent.get("style", "") or "")
        if found:
            return float(found[1])
    return None


# Those that figures use: each is read for each picture.
_LETTERS = ("", "-Bold", "-Oblique", "Mono", "Mono-Bold")


@functools.cache
def _letters() -> list[str]:
    import matplotlib

    folder = Path(matplotlib.get_data_path(), "fonts/ttf")
    return [str(folder / f"DejaVuSans{name}.ttf") for name in _LETTERS]


def _of_drawing(drawing: str, width: float | None, made: Known) -> NotebookNode:
    """A drawing as a picture that says what it shows and how wide it is to be."""
    start = _START.match(drawing)
    assert start is not None
    attributes = dict(re.findall(r'([\w:-]+)="([^"]*)"', start[0]))
    _, _, of_box, _ = map(float, attributes["viewBox"].split())
    natural = float(attributes.get("width", str(of_box * 4 / 3)).removesuffix("px"))
    shown = round(min(width or natural, natural))
    title = re.search(r"<title[^>]*>([^<]+)</title>", drawing)
    alt = html.unescape(attributes.get("aria-label") or (title[1] if title else ""))
    return _picture(drawing, lambda: _png(drawing, shown), alt, shown, made)


def _png(drawing: str, width: int) -> bytes:
    import resvg_py

    if "xmlns=" not in drawing.partition(">")[0]:
        names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        drawing = drawing.replace("<svg", f"<svg {names}", 1)
    png = resvg_py.svg_to_bytes(
        svg_string=drawing,
        width=min(round(width * SCALE), MOST_PIXELS),
        background="#ffffff",
        skip_system_fonts=True,
        font_files=_letters(),
        font_family="DejaVu Sans",
        sans_serif_family="DejaVu Sans",
        monospace_family="DejaVu Sans Mono",
    )
    return bytes(png)


def _smaller(png: bytes) -> bytes:
    """A picture on white, with few colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGBA")
    ground = Image.new("RGBA", picture.size, "white")
    flat = Image.alpha_composite(ground, picture).convert("RGB")
    few = flat.quantize(COLOURS, dither=Image.Dither.NONE)
    written = io.BytesIO()
    few.save(written, "PNG", optimize=True)
    return written.getvalue()
