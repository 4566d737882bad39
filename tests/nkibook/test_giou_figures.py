"""The pictures of the GIOU pages: what they say, and that they follow the kernel's trace."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import kernels
from kernels.giou import nki_giou_backward_kernel, nki_giou_kernel, nki_giou_kernel_strict
from nkibook.figures.giou import (
    Reads,
    draw_reads,
    moving_boxes,
    operand_memories,
    pairs_of_boxes,
    reads_of_boxes,
    stored_shapes,
)

traced = pytest.mark.skipif(kernels.backend != "nkisim", reason="only nkisim keeps a trace")


def boxes(*shape):
    return np.zeros(shape, np.float32)


@traced
def test_reads_are_those_of_the_instructions():
    reads = reads_of_boxes(nki_giou_kernel_strict, boxes(128, 512), boxes(128, 512))
    assert reads == [Reads(corner, 4, 128, 3) for corner in range(4)]

    @nki.jit
    def last_two(x):
        out = nl.ndarray((128, 2), x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, value=tile[:, 4:6] + tile[:, 0:6:5])
        return out

    assert reads_of_boxes(last_two, boxes(128, 6)) == [Reads(0, 5, 2, 1), Reads(4, 1, 2, 1)]


@traced
@pytest.mark.filterwarnings("ignore:nisa.activation. copy with a bias tile:nkisim.NkiWarning")
@pytest.mark.parametrize(
    ("n", "forward", "backward"),
    [
        (1, [(1, 1)], [(1, 1)]),
        (128, [(128, 1)], [(128, 1)]),
        (1000, [(128, 7), (104, 1)], [(128, 7), (104, 1)]),
        (65536, [(128, 256), (128, 256)], [(128, 256), (128, 256)]),
        (
            200_001,
            [(128, 256), (128, 512), (128, 512), (128, 282), (65, 1)],
            [(128, 256)] * 6 + [(128, 26), (65, 1)],
        ),
    ],
)
def test_stored_shapes(n, forward, backward):
    """The first tile of the forward kernel is small."""
    assert stored_shapes(nki_giou_kernel, boxes(n, 4), boxes(n, 4), 1e-7, False) == forward
    arguments = boxes(n), boxes(n, 4), boxes(n, 4), 1e-7, False, True
    stored = stored_shapes(nki_giou_backward_kernel, *arguments)
    assert stored == [(*shape, 4) for shape in backward for _ in "ab"]


def test_a_device_keeps_no_trace(monkeypatch):
    monkeypatch.setattr(kernels, "backend", "neuronxcc")
    for look in (reads_of_boxes, stored_shapes):
        with pytest.raises(RuntimeError, match="keeps no trace"):
            look(nki_giou_kernel_strict, boxes(128, 512), boxes(128, 512))


def test_reads_are_drawn_and_described():
    figure = draw_reads([Reads(0, 2, 8, 3), Reads(1, 2, 8, 1)], ["even", "odd"], elements=6)
    assert (figure.svg.count(">even<"), figure.svg.count(">odd<")) == (3, 3)
    assert "odd: 8 elements, one in 2, from element 1, read by 1 instructions" in figure.alt


def test_pairs_carry_their_scores():
    pairs = {"equal": ((0, 0, 1, 1), (0, 0, 1, 1)), "apart": ((0, 0, 1, 1), (3, 3, 4, 4))}
    figure = pairs_of_boxes(pairs, {"equal": (1, 1), "apart": (0, -0.875)})
    assert "equal: IoU 1.00, GIOU 1.00; apart: IoU 0.00, GIOU -0.88." in figure.alt
    with pytest.raises(ValueError, match="give each its score"):
        pairs_of_boxes(pairs, {"equal": (1, 1)})


def test_moving_boxes_draws_each_pair_from_start_to_end():
    targets = np.array([[0, 0, 1, 1], [5, 5, 9, 9]], float)
    way = np.linspace(0, 1, 20)[:, None, None]
    moving = moving_boxes((1 - way) * (targets + 3) + way * targets, targets, alt="Two boxes.")
    assert len(moving.frames) == 12
    assert moving.frames[0].alt == "Two boxes. Here after 0 of 19 steps."
    assert moving.frames[-1].alt == "Two boxes. Here after 19 of 19 steps."
    assert moving.frames[5].svg.count("stroke-dasharray") >= 2  # the start of each
    still = np.repeat(targets[None], 4, 0)
    assert moving_boxes(still, targets, alt="Nothing moves.").frames


def test_operands_are_told_by_their_memory():
    @nki.jit
    def sums(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        in_psum = nl.ndarray(x.shape, x.dtype, buffer=nl.psum)
        in_psum[...] = nl.add(tile, tile)
        nl.store(out, nl.multiply(tile, in_psum))
        return out

    alt = operand_memories(sums, np.zeros((4, 8), np.float32)).alt
    assert alt.startswith("2 instructions with two inputs")
    assert "1 read at most one input from SBUF. Instructions with both inputs in SBUF: 1." in alt
