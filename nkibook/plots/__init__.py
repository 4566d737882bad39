"""Figures of the book: one look, drawn by code, readable in light and dark mode.

A notebook asks this package for a picture and gets back an object that displays as inline SVG
in a browser and as one line of text, ``Figure: <what it shows>``, everywhere else. Draw your own
with :func:`subplots` and :func:`show`, or use the ready-made :func:`tile_grid`, :func:`memory_bar`,
:func:`timing`, :func:`sweep`, :func:`timeline` and :func:`timelines`. :class:`Choice` puts several
in the place of one, :class:`Moving` lets them follow one another, :class:`Programs` has the HLO of
two frameworks.
"""

from nkibook.plots.choice import Choice, Moving
from nkibook.plots.diagrams import arrow, box, memory_bar, note
from nkibook.plots.figure import COLORS, DARK, INK, LIGHT, Figure, Figures, show, style, subplots
from nkibook.plots.programs import Programs
from nkibook.plots.tiles import draw_tiles, tile_grid
from nkibook.plots.times import sweep, timeline, timelines, timing

__all__ = [
    "COLORS",
    "DARK",
    "INK",
    "LIGHT",
    "Choice",
    "Figure",
    "Figures",
    "Moving",
    "Programs",
    "arrow",
    "box",
    "draw_tiles",
    "memory_bar",
    "note",
    "show",
    "style",
    "subplots",
    "sweep",
    "tile_grid",
    "timeline",
    "timelines",
    "timing",
]
