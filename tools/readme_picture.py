"""Draw the picture of README.md: the loss of a language model without kernels and with them.

    python tools/readme_picture.py

Writes .github/loss-light.png and .github/loss-dark.png, for readers in light and in dark mode.
"""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).resolve().parents[1] / ".github"
INK = {"light": "#1f2328", "dark": "#e6edf3"}  # GitHub's colours of text
PIXELS_AN_INCH = 150
SIZE = (6.4, 2.2)  # inches of one of the two timelines
COLORS = 32  # of the file: blocks of one engine have one


def main() -> None:
    """Write the pictures, for one core of a trn2."""
    os.environ |= {"NKI_DIALECT": "nki", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}
    from nkibook.figures.intro import loss_profiles

    profiles = loss_profiles()
    end = max(timeline.body_us for timeline, _ in profiles)
    for mode, ink in INK.items():
        drawn = [
            _drawn(timeline.plot(axis_us=end, title=title, size=SIZE), ink)
            for timeline, title in profiles
        ]
        whole = Image.new("RGBA", (drawn[0].width, sum(image.height for image in drawn)))
        top = 0
        for image in drawn:
            whole.paste(image, (0, top))
            top += image.height
        file = FOLDER / f"loss-{mode}.png"
        whole.quantize(COLORS, method=Image.Quantize.FASTOCTREE).save(file, optimize=True)
        print(f"{file}: {whole.width} x {whole.height}, {file.stat().st_size / 1000:.0f} kB")


def _drawn(figure: object, ink: str) -> Image.Image:
    """A figure of matplotlib as a picture without background, its black in another colour."""
    from matplotlib.lines import Line2D
    from matplotlib.spines import Spine
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_color(ink)
    for line in figure.findobj(Line2D):
        line.set_color(ink)
        line.set_markeredgecolor(ink)
    for spine in figure.findobj(Spine):
        spine.set_edgecolor(ink)
    data = BytesIO()
    figure.savefig(data, format="png", dpi=PIXELS_AN_INCH, transparent=True)
    return Image.open(data)


if __name__ == "__main__":
    main()
