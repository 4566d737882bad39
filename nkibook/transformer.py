"""What both capstone pages share: a task, the sizes and first weights of a small transformer, and
pictures of a training run and of a step's time.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nkibook.plots import COLORS, Figure, Moving, show, subplots
from nkibook.plots.figure import text_color
from nkibook.steps import CHIPS, between, modelled, one_by_one, step

if TYPE_CHECKING:
    from nkibook.hlo import HloModule
    from nkibook.hlo.from_fx import FxModule

    Program = HloModule | FxModule

LETTERS = 8
"""How many letters are sorted. All of them are different."""

CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ>"
"""What the model knows: the alphabet, and the mark between question and answer."""


def encode(text: str) -> np.ndarray:
    """The number of each character, int32."""
    return np.array([CHARACTERS.index(c) for c in text], np.int32)


def decode(numbers: Iterable[int]) -> str:
    """The text of numbers of characters."""
    return "".join(CHARACTERS[int(n)] for n in numbers)


@dataclass(frozen=True)
class Sizes:
    """Of a transformer and its batch.

    Attributes:
        classes: characters, or tokens, that it knows.
        width: numbers a token. heads: of attention. hidden: width of the gated MLP.
        layers: how many there are.
        batch, length: sequences of a step, and tokens of each.
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


SMALL = Sizes(
    len(CHARACTERS), width=64, heads=2, hidden=128, layers=2, batch=24, length=2 * LETTERS
)
"""The model of the pages, which is trained."""

WIDE = Sizes(classes=4096, width=1024, heads=8, hidden=2816, layers=2, batch=2, length=512)
"""Two layers of the width of a model that people use. Its time is modelled, and it is not trained.
"""

_HELD_OUT = 10  # batches


def examples(steps: int) -> np.ndarray:
    """A batch of sequences to learn from for each step, such as "QCXAMBZE>ABCEMQXZ".

    None of them has the question of a sequence of `held_out`.

    Returns:
        (steps, batch, 2 LETTERS + 1), int32.
    """
    kept = {row[:LETTERS].tobytes() for row in held_out().reshape(-1, 2 * LETTERS + 1)}
    found = _drawn(np.random.default_rng(1), (steps + 1) * SMALL.batch)
    new = np.array([row for row in found if row[:LETTERS].tobytes() not in kept])
    return new[: steps * SMALL.batch].reshape(steps, SMALL.batch, -1)


def held_out() -> np.ndarray:
    """Sequences that the model is not trained on: (batches, batch, 2 LETTERS + 1), int32."""
    found = _drawn(np.random.default_rng(2), _HELD_OUT * SMALL.batch)
    return found.reshape(_HELD_OUT, SMALL.batch, -1)


def _drawn(rng: np.random.Generator, count: int) -> np.ndarray:
    order = np.argsort(rng.random((count, len(CHARACTERS) - 1)), axis=1)
    question = order[:, :LETTERS].astype(np.int32)
    mark = np.full((count, 1), CHARACTERS.index(">"), np.int32)
    return np.concatenate([question, mark, np.sort(question, axis=1)], axis=1)


def accuracy(answers: np.ndarray, sequences: np.ndarray) -> float:
    """The share of answers that are right in all letters.

    Args:
        answers: (..., LETTERS), what the model wrote.
        sequences: (..., 2 LETTERS + 1), with the questions and the right answers.
    """
    return float((answers == sequences[..., LETTERS + 1 :]).all(-1).mean())


# -- a training run as a picture ----------------------------------------------------------------

ROWS = 8
"""Held-out sequences that a picture shows."""


def portrait(losses: Mapping[str, Sequence[float]], boards: Mapping[int, np.ndarray]) -> Moving:
    """A training run that moves: what the model answers after so many steps, and the losses.

    Args:
        losses: a curve for each name, one number a step; the last one is drawn broken.
        boards: by the number of steps, (batch, 2 LETTERS + 1) sequences with the model's answers.
    """
    frames = [show(_frame(losses, boards, steps), _said(boards, steps)) for steps in boards]
    return Moving(frames, "what the model answers, as it is trained", seconds=0.6)


def save(
    path: str | Path,
    losses: Mapping[str, Sequence[float]],
    boards: Mapping[int, np.ndarray],
    *,
    dark: bool = False,
) -> Path:
    """Save the moving picture of `portrait` as a GIF, on a white or on a dark ground."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    images = []
    for steps in boards:
        figure = _frame(losses, boards, steps)
        figure.patch.set_facecolor("#14181e" if dark else "#ffffff")
        if dark:
            _light_ink(figure)
        FigureCanvasAgg(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=110, facecolor=figure.get_facecolor())
        images.append(Image.open(stream).convert("P", palette=Image.Palette.ADAPTIVE))
    path = Path(path)
    times = [600] * (len(images) - 1) + [2500]
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0)
    return path


def _light_ink(figure: Any) -> None:
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if text.get_color() in ("#000000", "black"):
            text.set_color("#e6e6e6")
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_color() == "#000000":
                line.set_color("#e6e6e6")
        axes.tick_params(colors="#e6e6e6")
        axes.xaxis.label.set_color("#e6e6e6")
        axes.yaxis.label.set_color("#e6e6e6")
        for spine in axes.spines.values():
            spine.set_color("#e6e6e6")


def _frame(losses: Mapping[str, Any], boards: Mapping[int, np.ndarray], steps: int) -> Any:
    fig, (left, right, below) = _places()
    board = boards[steps]
    _draw_letters(left, board[:ROWS, :LETTERS], "question")
    wrong = board[:ROWS, LETTERS + 1 :] != np.sort(board[:ROWS, :LETTERS], axis=1)
    _draw_letters(right, board[:ROWS, LETTERS + 1 :], f"answer after {steps} steps", wrong)
    for (name, values), line in zip(losses.items(), ("-", "--"), strict=True):
        color, width = (COLORS["sky"], 5) if line == "-" else (COLORS["vermillion"], 2)
        until = np.arange(1, len(values) + 1)
        below.plot(until, values, line, color=color, linewidth=width, label=name)
    below.axvline(steps, color="#000000", linewidth=1.5)
    below.set(xlabel="step", ylabel="loss", ylim=(0, None), xlim=(0, max(boards)))
    below.legend(loc="upper right")
    return fig


def _places() -> tuple[Any, tuple[Any, Any, Any]]:
    fig, axes = subplots(2, 2, size=(5.6, 5.4), height_ratios=[1.7, 1])
    grid = axes[1, 0].get_gridspec()
    for place in axes[1]:
        place.remove()
    return fig, (axes[0, 0], axes[0, 1], fig.add_subplot(grid[1, :]))


def _draw_letters(
    axes: Any, letters: np.ndarray, title: str, wrong: np.ndarray | None = None
) -> None:
    """Each letter on a colour that goes through the alphabet, so that what is sorted fades."""
    import matplotlib

    ramp = matplotlib.colormaps["viridis"]
    rows, columns = letters.shape
    axes.pcolormesh(letters, cmap=ramp, vmin=0, vmax=25)
    for (row, column), letter in np.ndenumerate(letters):
        ink = text_color(matplotlib.colors.to_hex(ramp(min(letter, 25) / 25)))
        axes.text(column + 0.5, row + 0.54, CHARACTERS[letter], ha="center", va="center", color=ink)
        if wrong is not None and wrong[row, column]:
            line = [column + 0.15, column + 0.85], [row + 0.9, row + 0.9]
            axes.plot(*line, color=ink, linewidth=1.5)
    axes.set(xlim=(0, columns), ylim=(rows, 0), title=title)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _said(boards: Mapping[int, np.ndarray], steps: int) -> str:
    board = boards[steps]
    share = float((board[:, LETTERS + 1 :] == np.sort(board[:, :LETTERS], axis=1)).all(1).mean())
    question, answer = decode(board[0, :LETTERS]), decode(board[0, LETTERS + 1 :])
    return (
        f"Rows of letters, coloured by their place in the alphabet, and the answers of the model "
        f"after {steps} steps: of {question} it makes {answer}. {share:.0%} of the answers are "
        "sorted. Below, two loss curves that coincide."
    )


# -- a step's time ------------------------------------------------------------------------------

_LOOKS = {
    "matmul": "blue",
    "attention": "orange",
    "rmsnorm": "green",
    "rope": "purple",
    "swiglu": "sky",
    "cross_entropy": "yellow",
}


@dataclass(frozen=True)
class Bar:
    """One way to run a step on one chip. Times are in ms.

    Attributes:
        title: of the way.
        kernels: by operator, modelled.
        products, rest: of what is no kernel: bounds.
    """

    title: str
    kernels: Mapping[str, float]
    products: float
    rest: float

    @property
    def total(self) -> float:
        """All of it, one after the other."""
        return sum(self.kernels.values()) + self.products + self.rest


def bars(programs: Mapping[str, Program], chip: str) -> list[Bar]:
    """A step one operation at a time, and each of some programs, on a chip of `steps.CHIPS`.

    Args:
        programs: the first has no kernels. By what it is called.
    """
    plain = next(iter(programs.values()))
    found = [_bar("one operation at a time", [], one_by_one(plain, chip))]
    for title, program in programs.items():
        calls = modelled(program.custom_calls, chip) if program.custom_calls else []
        found.append(_bar(title, calls, between(program, chip)))
    return found


def _bar(title: str, calls: Sequence[Any], rest: Sequence[Any]) -> Bar:
    products = sum(part.microseconds for part in rest if part.operator == "products") / 1000
    return Bar(
        title,
        {part.operator: part.microseconds / 1000 for part in calls},
        products,
        sum(part.microseconds for part in rest) / 1000 - products,
    )


def draw_bars(by_chip: Mapping[str, Sequence[Bar]]) -> Figure:
    """Bars side by side on one axis, three or more a chip.

    Args:
        by_chip: of `bars`, by a key of `steps.CHIPS`.
    """
    count = sum(map(len, by_chip.values()))
    fig, axes = subplots(size=(5.6, 0.36 * count + 0.3 * len(by_chip) + 2.1))
    row, places, names, seen = 0.0, [], [], set()
    for chip, found in by_chip.items():
        axes.annotate(CHIPS[chip].title, (0, row), (4, 0), textcoords="offset points", va="center",
                      fontweight="bold")  # fmt: skip
        row += 1
        for bar in found:
            parts = [(name, ms, COLORS[_LOOKS[name]], "") for name, ms in bar.kernels.items()]
            parts = sorted(parts, key=lambda part: list(_LOOKS).index(part[0]))
            parts += [("products, no kernel", bar.products, COLORS["blue"], "//")]
            parts += [("everything else", bar.rest, "#c3c9d4", "..")]
            left = 0.0
            for name, ms, color, hatch in parts:
                label = name.replace("_", "-") if ms and name not in seen else None
                seen |= {name} if ms else set()
                axes.barh(
                    row, ms, left=left, color=color, hatch=hatch, linewidth=0,
                    edgecolor="#ffffff" if color == COLORS["blue"] else "#5b6472",
                    label=label,
                )  # fmt: skip
                left += ms
            axes.annotate(
                f"{left:.2f}", (left, row), (4, 0), textcoords="offset points", va="center"
            )
            places.append(row)
            names.append(bar.title)
            row += 1
        row += 0.3
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel("ms a step: kernels modelled, the rest a bound")
    most = max(bar.total for found in by_chip.values() for bar in found)
    axes.set_xlim(0, 1.12 * most)
    fig.legend(loc="outside lower center", ncols=2)
    said = "; ".join(
        f"{CHIPS[chip].title}: " + ", ".join(f"{bar.title} {bar.total:.2f} ms" for bar in found)
        for chip, found in by_chip.items()
    )
    return show(fig, f"Bars of a step's time. {said}.")


def swaps(programs: Mapping[str, Program]) -> dict[str, dict[str, float]]:
    """The milliseconds of a step with each of some programs, by chip of `steps.CHIPS`."""
    return {
        chip: {title: step(program, chip) / 1000 for title, program in programs.items()}
        for chip in CHIPS
    }


def draw_swaps(found: Mapping[str, Mapping[str, float]]) -> Figure:
    """A line for each chip: the time of a step after each kernel that was put in."""
    fig, axes = subplots(size=(5.6, 4.2))
    for (chip, by_title), color, mark in zip(
        found.items(), ("vermillion", "sky", "blue"), "os^", strict=True
    ):
        titles, times = list(by_title), list(by_title.values())
        axes.plot(range(len(times)), times, marker=mark, color=COLORS[color],
                  label=CHIPS[chip].title)  # fmt: skip
        best = int(np.argmin(times))
        axes.plot(best, times[best], "o", markersize=13, fillstyle="none", color="#000000")
        above = 12 if chip == "trn2 one core" else -22  # whose line is the next one's neighbour
        axes.annotate(f"{times[best]:.2f}", (best, times[best]), (0, above),
                      textcoords="offset points", ha="center")  # fmt: skip
    axes.set_xticks(range(len(titles)), [t.replace("_", "-\n") for t in titles], rotation=30)
    axes.set(ylabel="ms a step: kernels modelled,\nthe rest a bound", ylim=(0, None))
    axes.grid(axis="y")
    fig.legend(loc="outside lower center", ncols=2)
    said = "; ".join(
        f"{CHIPS[chip].title}: " + ", ".join(f"{t} {ms:.2f}" for t, ms in by_title.items())
        for chip, by_title in found.items()
    )
    return show(fig, f"Lines of the ms of a step as kernels are put in. {said}.")
