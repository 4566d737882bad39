"""Exercises of the page on the C++ operator: an answer gives a piece of C++, which is compiled."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kernels.giou import reference
from nkibook.exercises import exercise


def _boxes(rng, rows, count):
    return tuple(reference.random_boxes(rng, (rows, count)) for _ in range(2))


def _run(source: str, boxes1: Any, boxes2: Any) -> Any:
    """Compile a kernel function `giou`, call it, and put the package's own back."""
    import torch

    from kernels.giou.cpp import build

    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder) / "exercise.cpp"
        kernel.write_text(source)
        build.load(kernel)
        try:
            return torch.ops.my_ops.giou(boxes1, boxes2)
        finally:
            build.load()


def _with(pattern: str) -> Callable[..., Any]:
    """A run that puts the answer in place of what `pattern` matches in the package's giou.cpp."""

    def run(answer: Callable[[], str], *boxes: Any) -> Any:
        from kernels.giou.cpp import build

        text = build.KERNEL.read_text()
        (found,) = re.findall(pattern, text, re.DOTALL)
        return _run(text.replace(found, answer()), *boxes)

    return run


# static float giou_of(...) { ... }, and the two lines that deal rows out.
_SCORE = _with(r"static float giou_of.*?\n}\n")
_ROWS = _with(r"  const size_t first = [^;]*;\n  const size_t last = [^;]*;\n")


@exercise((8, 3), (11, 5), (3, 2), lines=2, data=_boxes, framework="torch", run=_ROWS)
def rows_of_a_processor(boxes1, boxes2):
    return reference.giou(boxes1, boxes2)


@exercise((8, 6), (5, 3), lines=2, data=_boxes, framework="torch", run=_SCORE)
def iou(boxes1, boxes2):
    starts = np.maximum(boxes1, boxes2)[..., :2]
    sides = np.minimum(boxes1, boxes2)[..., 2:] - starts
    overlap = np.maximum(sides, 0).prod(axis=-1)
    sizes = [x[..., 2:] - x[..., :2] for x in (boxes1, boxes2)]
    areas = sum(size.prod(axis=-1) for size in sizes)
    return overlap / (areas - overlap)


@exercise((8, 6), (5, 3), lines=2, data=_boxes, framework="torch", run=_SCORE)
def center_distance(boxes1, boxes2):
    # The squared distance between the centers.
    centers = ((x[..., :2] + x[..., 2:]) / 2 for x in (boxes1, boxes2))
    return (np.subtract(*centers) ** 2).sum(axis=-1)
