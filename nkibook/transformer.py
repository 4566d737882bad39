"""What both capstone pages share: a text, the sizes and first weights of a small transformer, and
the picture that the pages end with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nkibook.plots import COLORS, Figure, show, subplots
from nkibook.steps import Part

TEXT = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
"""
"""The first lines of Shakespeare's 18th sonnet, of 1609."""

CHARACTERS = "".join(sorted(set(TEXT)))


def encode(text: str) -> np.ndarray:
    """The number of each character, int32."""
    return np.array([CHARACTERS.index(c) for c in text], np.int32)


def decode(numbers: Sequence[int]) -> str:
    """The text of numbers of characters."""
    return "".join(CHARACTERS[int(n)] for n in numbers)


@dataclass(frozen=True)
class Sizes:
    """Of a transformer and its batch.

    Attributes:
        classes: characters, or tokens, that it knows.
        width: numbers a token. heads: of attention. hidden: width of the gated MLP.
        layers: how many there are.
        batch, length: windows of a step, and tokens of each.
    """

    classes: int
    width: int
    heads: int
    hidden: int
    layers: int
    batch: int
    length: int

    @property
    def head(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The name and the shape of each weight."""
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.classes, self.width)}
        for i in range(self.layers):
            shapes |= {
                f"{i}.norm1": (self.width,),
                f"{i}.qkv": (self.width, 3 * self.width),
                f"{i}.out": (self.width, self.width),
                f"{i}.norm2": (self.width,),
                f"{i}.gate_up": (self.width, 2 * self.hidden),
                f"{i}.down": (self.hidden, self.width),
            }
        return shapes | {"norm": (self.width,), "logits": (self.width, self.classes)}

    def weights(self) -> dict[str, np.ndarray]:
        """The weights to start with, float32, the same every time: ones for norms, else normal
        numbers, divided by the square root of what is summed up."""
        rng = np.random.default_rng(0)
        return {
            name: np.ones(shape, np.float32)
            if len(shape) == 1
            else rng.standard_normal(shape, np.float32)
            / np.float32(1 if name == "embed" else np.sqrt(shape[0]))
            for name, shape in self.shapes().items()
        }


SMALL = Sizes(len(CHARACTERS), width=64, heads=2, hidden=128, layers=2, batch=8, length=64)
"""The model of the pages."""

WIDE = Sizes(classes=4096, width=1024, heads=8, hidden=2816, layers=2, batch=2, length=512)
"""Two layers of the width of a model that people use. It is modelled, and not trained."""


def windows(steps: int) -> np.ndarray:
    """A batch of windows of the text for each step: (steps, batch, length + 1), int32. The text
    begins again where it ends."""
    first = np.random.default_rng(1).integers(0, len(TEXT), (steps, SMALL.batch, 1))
    return encode(TEXT)[(first + np.arange(SMALL.length + 1)) % len(TEXT)]


_LOOKS = {
    "matmul": "blue",
    "attention": "orange",
    "rmsnorm": "green",
    "rope": "purple",
    "swiglu": "sky",
    "cross_entropy": "vermillion",
}


def portrait(
    losses: Mapping[str, Sequence[float]],
    samples: Mapping[int, str],
    times: Mapping[str, Mapping[str, Sequence[Part]]],
) -> Figure:
    """A training run in one picture: the losses, what the model writes, and a step's time.

    Args:
        losses: a curve for each name, one number a step; the last one is drawn broken.
        samples: what the model wrote, by the number of steps it was trained for.
        times: modelled, from :func:`nkibook.steps.modelled`: for each model and each chip its
            parts. Empty where nothing is modelled, as on an instance; then it is not drawn.
    """
    heights = [2.2, 0.3 * len(samples) + 0.4] + [1.5] * len(times)
    fig, rows = subplots(len(heights), 1, size=(5.6, sum(heights) + 0.4), height_ratios=heights)
    _draw_losses(rows[0], losses)
    _write_samples(rows[1], samples)
    for axes, (model, by_chip) in zip(rows[2:], times.items(), strict=True):
        _draw_times(axes, model, by_chip)
    if times:
        handles, labels = rows[2].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=3)
    return show(fig, _said(losses, samples, times))


def _draw_losses(axes, losses) -> None:
    for (name, values), line in zip(losses.items(), ("-", "--"), strict=True):
        color = COLORS["sky"] if line == "-" else COLORS["vermillion"]
        width = 5 if line == "-" else 2
        axes.plot(range(1, len(values) + 1), values, line, color=color, linewidth=width, label=name)
    axes.set(xlabel="step", ylabel="loss", ylim=(0, None))
    axes.legend(loc="upper right")


def _write_samples(axes, samples) -> None:
    axes.set(xlim=(0, 1), ylim=(len(samples) - 0.5, -0.5))
    axes.set_title("what the model writes after", loc="left", fontsize="medium")
    axes.set_xticks([])
    axes.set_yticks(range(len(samples)), [f"{steps} steps" for steps in samples])
    axes.tick_params(length=0, pad=10)
    axes.spines[:].set_visible(False)
    for row, text in enumerate(samples.values()):
        line = axes.text(0, row, text.replace("\n", " "), va="center", family="monospace")
        line.set_in_layout(False)  # it may be wider than the axes


def _draw_times(axes, model, by_chip) -> None:
    for row, parts in enumerate(by_chip.values()):
        left, found = 0.0, {part.operator: part.microseconds / 1000 for part in parts}
        for operator, color in _LOOKS.items():
            name = operator.replace("_", " ") if row == 0 else None
            width = found.get(operator, 0.0)
            axes.barh(row, width, left=left, color=COLORS[color], label=name)
            left += width
    axes.set_yticks(range(len(by_chip)), [chip.replace(", ", ",\n") for chip in by_chip])
    axes.invert_yaxis()
    axes.set_xlabel(f"ms a step, modelled: {model}")


def _said(losses, samples, times) -> str:
    """The text alternative."""
    names = " and ".join(losses)
    ends = next(iter(losses.values()))
    said = [f"The losses of {names} overlap and fall from {ends[0]:.1f} to {ends[-1]:.2f}."]
    steps, text = list(samples.items())[-1]
    line = text.replace("\n", " ")
    said.append(f'After {steps} steps the model writes "{line}".')
    for model, by_chip in times.items():
        each = " and ".join(
            f"{sum(part.microseconds for part in parts) / 1000:.2g} ms on {chip} "
            f"(the largest part in {parts[0].operator.replace('_', ' ')})"
            for chip, parts in by_chip.items()
        )
        said.append(f"A step of {model} takes a modelled {each}.")
    return " ".join(said)
