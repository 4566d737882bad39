"""Where pooling windows lie: output sizes, counts, and the tiles that fit into SBUF.

Integer arithmetic only, known before a kernel runs. The definitions are those of
``torch.nn.functional.avg_pool2d``, floor and ceil modes included. One :class:`Axis` describes
rows or columns; everything about a 2-D window is a pair of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernels.tiles import ceil_div, pieces

TILE_BYTES = 32 * 1024
"""Bytes that a tile and its intermediate values may take in each SBUF partition.

A fifth of what a kernel can allocate (192 KiB less 16 KiB reserved, NeuronCore-v2): several tiles
are on their way at a time, and an image of some size is cut in enough of them that the first is
computed while the last is loaded. Elements count four bytes each, as float32."""


@dataclass(frozen=True)
class Pooling:
    """The settings of a pooling, validated. Make one with :func:`pooling`."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    ceil_mode: bool
    count_include_pad: bool
    divisor_override: int | None

    def axes(self, height: int, width: int) -> tuple[Axis, Axis]:
        """Rows and columns of an image of this size.

        Raises:
            ValueError: the window does not fit into the image once.
        """
        found = tuple(
            Axis(size, k, s, p, self.ceil_mode)
            for size, k, s, p in zip(
                (height, width), self.kernel_size, self.stride, self.padding, strict=True
            )
        )
        for name, axis in zip(("height", "width"), found, strict=True):
            if axis.out < 1:
                raise ValueError(
                    f"the {name} is {axis.size}, padding {axis.padding} and the window "
                    f"{axis.kernel}: no window fits. Use a smaller kernel_size, or pad the input."
                )
        return found[0], found[1]

    def out_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the output. Raises ValueError as :meth:`axes`."""
        rows, cols = self.axes(height, width)
        return rows.out, cols.out

    def counts(self, axis: Axis, first: int, last: int) -> list[int]:
        """What each of the windows `first` to `last - 1` along an axis counts: the divisor of an
        output is the count of its row times that of its column."""
        count = axis.covered if self.count_include_pad else axis.inside
        return [count(i) for i in range(first, last)]


def pooling(
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Pooling:
    """Validate the settings of a pooling. Their meaning is that of ``avg_pool2d`` in PyTorch.

    Args:
        kernel_size: height and width of the window; one number for both.
        stride: distance between windows, down and across; the window's size when None.
        padding: zeros around the image, on both sides; at most half the window.
        ceil_mode: whether the last window may reach over the edge.
        count_include_pad: whether padding counts in the divisor.
        divisor_override: a fixed divisor, in place of the count.

    Raises:
        TypeError: a size that is not an integer.
        ValueError: a size out of its range.
    """
    kernel = _pair("kernel_size", kernel_size, least=1)
    steps = kernel if stride is None else _pair("stride", stride, least=1)
    pads = _pair("padding", padding, least=0)
    for k, p in zip(kernel, pads, strict=True):
        if 2 * p > k:
            raise ValueError(
                f"padding is {pads} and kernel_size {kernel}: padding is at most half the window, "
                "or a window could hold nothing but padding. Reduce it, or pad the input first."
            )
    if divisor_override is not None:
        divisor_override = _integer("divisor_override", divisor_override)
        if divisor_override == 0:
            raise ValueError(
                "divisor_override is 0: sums are divided by it. Pass another integer, or None to "
                "divide by the number of elements."
            )
    return Pooling(kernel, steps, pads, bool(ceil_mode), bool(count_include_pad), divisor_override)


def _pair(name: str, value: Any, least: int) -> tuple[int, int]:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(parts) not in (1, 2):
        raise ValueError(
            f"{name} is {value!r}: {len(parts)} numbers. Pass one, or a pair (down, across)."
        )
    sizes = [_integer(name, part) for part in parts]
    if min(sizes) < least:
        raise ValueError(
            f"{name} is {value!r}: it must be at least {least}, down and across. "
            + ("A window has at least one element." if name == "kernel_size" else "Raise it.")
        )
    return sizes[0], sizes[-1]


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} holds {value!r}, a {type(value).__name__}: it must be an integer known before "
            "the kernel is compiled."
        ) from None


@dataclass(frozen=True)
class Axis:
    """Windows along one axis of an image.

    Attributes:
        size: elements of the image.
        kernel, stride, padding: of the window, see :func:`pooling`.
        ceil_mode: whether the last window may reach over the edge.
    """

    size: int
    kernel: int
    stride: int
    padding: int
    ceil_mode: bool = False

    @property
    def out(self) -> int:
        """Number of windows. In ceil mode the last one still starts inside the image or the
        padding before it, as PyTorch has it."""
        room = self.size + 2 * self.padding - self.kernel
        if not self.ceil_mode:
            return room // self.stride + 1
        count = ceil_div(room, self.stride) + 1
        return count - ((count - 1) * self.stride >= self.size + self.padding)

    def start(self, i: int) -> int:
        """First element of window `i`; negative in the padding."""
        return i * self.stride - self.padding

    def covered(self, i: int) -> int:
        """Elements of window `i` in the image and its padding. Less than the window in ceil mode
        only."""
        return min(self.start(i) + self.kernel, self.size + self.padding) - self.start(i)

    def inside(self, i: int) -> int:
        """Elements of window `i` in the image."""
        return min(self.start(i) + self.kernel, self.size) - max(self.start(i), 0)


class Run(NamedTuple):
    """Consecutive coordinates: `first` to `last - 1`."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first

    def common(self, other: Run) -> Run:
        """The common part; may be empty, but never of negative size."""
        first = max(self.first, other.first)
        return Run(first, max(first, min(self.last, other.last)))


def _cut(size: int, step: int, first: int = 0) -> list[Run]:
    """`size` coordinates from `first` in runs of `step`; the last may be shorter."""
    return [Run(at, at + length) for at, length in pieces(size, step, first)]


class ForwardTile(NamedTuple):
    """A block of outputs along one axis, and the parts in which its windows are summed.

    `parts` cuts the window, and has one entry unless a window alone is too large for SBUF.
    """

    outs: Run
    parts: list[Run]

    def image(self, axis: Axis, part: Run) -> Run:
        """What the outputs read of the image and its padding, for one part of the window."""
        first = axis.start(self.outs.first) + part.first
        return Run(first, first + axis.stride * (self.outs.size - 1) + part.size)


def forward_tiles(rows: Axis, cols: Axis) -> Iterator[tuple[ForwardTile, ForwardTile]]:
    """Blocks of outputs whose windows fit into SBUF, as (rows, columns). They cover the output
    once.

    Blocks are cut until they fit: first in height, since rows lie one after the other in HBM, then
    in width. Only when a single window does not fit is the window cut as well.
    """

    def needed(out_rows: int, out_cols: int, part_rows: int, part_cols: int) -> int:
        slab = (rows.stride * (out_rows - 1) + part_rows) * (
            cols.stride * (out_cols - 1) + part_cols
        )
        copies = 2 if rows.padding or cols.padding else 1  # with and without the padding
        return 4 * (copies * slab + 3 * out_rows * out_cols)  # and sum, divisor, result

    out_rows, out_cols, part_rows, part_cols = _fit(
        needed, rows.out, cols.out, rows.kernel, cols.kernel
    )
    row_parts, col_parts = _cut(rows.kernel, part_rows), _cut(cols.kernel, part_cols)
    for row_run in _cut(rows.out, out_rows):
        for col_run in _cut(cols.out, out_cols):
            yield ForwardTile(row_run, row_parts), ForwardTile(col_run, col_parts)


class Spread(NamedTuple):
    """One step of the backward pass along one axis: outputs `outs` add their gradient to `phases`
    elements of each stride, from element `to` of the tile on, in steps of the tile's `phases`."""

    outs: Run
    to: int
    phases: int


class BackwardTile(NamedTuple):
    """A block of the input's gradient along one axis.

    Element `x` of the image, counted with the padding before it, is ``stride * group + phase``.
    A tile is a run of groups times a run of phases: all of them, unless one group alone is too
    large for SBUF. Then it is a part of one group. Either way it is contiguous.
    """

    groups: Run
    phases: Run

    @property
    def size(self) -> int:
        return self.groups.size * self.phases.size

    def image(self, axis: Axis) -> Run:
        """The elements of the image and its padding that the tile holds."""
        first = axis.stride * self.groups.first + self.phases.first - axis.padding
        return Run(first, first + self.size)

    def outs(self, axis: Axis) -> Run:
        """The outputs whose windows may reach into the tile; may be empty."""
        reach = ceil_div(axis.kernel, axis.stride)
        return Run(self.groups.first - reach + 1, self.groups.last).common(Run(0, axis.out))

    def spreads(self, axis: Axis) -> Iterator[Spread]:
        """The steps that add every gradient where it belongs. Output `i` reaches group `i + q` in
        step `q`: within one step no two outputs meet."""
        for q in range(ceil_div(axis.kernel, axis.stride)):
            groups = self.groups.common(Run(q, axis.out + q))
            phases = self.phases.common(Run(0, axis.kernel - axis.stride * q))
            if groups.size and phases.size:
                to = (groups.first - self.groups.first) * self.phases.size
                outs = Run(groups.first - q, groups.last - q)
                yield Spread(outs, to + phases.first - self.phases.first, phases.size)


def backward_tiles(rows: Axis, cols: Axis) -> Iterator[tuple[BackwardTile, BackwardTile]]:
    """Blocks of the input's gradient that fit into SBUF, as (rows, columns). They cover it once.

    Blocks are cut until they fit, in height, then in width; last, groups are cut.
    """
    row_groups, col_groups = _groups(rows), _groups(cols)

    def needed(group_rows: int, group_cols: int, phase_rows: int, phase_cols: int) -> int:
        # The windows that reach into a run of groups: one for each, and those that begin before.
        out_rows = group_rows - 1 + ceil_div(rows.kernel, rows.stride)
        out_cols = group_cols - 1 + ceil_div(cols.kernel, cols.stride)
        tile_rows, tile_cols = group_rows * phase_rows, group_cols * phase_cols
        # The gradient as it comes, its divisor and quotient, spread in height, and in width.
        return 4 * (3 * out_rows * out_cols + tile_rows * (out_cols + tile_cols))

    group_rows, group_cols, phase_rows, phase_cols = _fit(
        needed, row_groups.size, col_groups.size, rows.stride, cols.stride
    )
    for row_run in _cut(row_groups.size, group_rows, row_groups.first):
        for col_run in _cut(col_groups.size, group_cols, col_groups.first):
            for row_phases in _cut(rows.stride, phase_rows):
                for col_phases in _cut(cols.stride, phase_cols):
                    tile = BackwardTile(row_run, row_phases), BackwardTile(col_run, col_phases)
                    image = tile[0].image(rows).common(Run(0, rows.size))
                    if image.size and tile[1].image(cols).common(Run(0, cols.size)).size:
                        yield tile


def _groups(axis: Axis) -> Run:
    """The groups that hold elements of the image."""
    last = (axis.size - 1 + axis.padding) // axis.stride
    return Run(axis.padding // axis.stride, last + 1)


def _fit(needed: Callable[..., int], *sizes: int) -> list[int]:
    """`sizes` cut in the fewest equal pieces with which `needed(*sizes)` fits, the first first."""
    fitted = list(sizes)
    for at, size in enumerate(sizes):
        parts = 1
        while fitted[at] > 1 and needed(*fitted) > TILE_BYTES:
            parts += 1
            fitted[at] = ceil_div(size, parts)
    return fitted


def around(
    size: tuple[int, int], at: tuple[int, int], inner: tuple[int, int]
) -> list[tuple[Run, Run]]:
    """What is left of a (rows, columns) block around one inside it, as up to four blocks."""
    (height, width), (down, across), (rows, cols) = size, at, inner
    beside = Run(down, down + rows)
    blocks = [
        (Run(0, down), Run(0, width)),
        (Run(down + rows, height), Run(0, width)),
        (beside, Run(0, across)),
        (beside, Run(across + cols, width)),
    ]
    return [block for block in blocks if block[0].size and block[1].size]


def runs(counts: list[int]) -> list[tuple[Run, int]]:
    """Equal neighbours of a list, as (where, value)."""
    starts = [i for i, count in enumerate(counts) if i == 0 or count != counts[i - 1]]
    stops = [*starts[1:], len(counts)]
    return [(Run(first, last), counts[first]) for first, last in zip(starts, stops, strict=False)]
