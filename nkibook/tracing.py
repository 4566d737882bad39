"""What a kernel's trace says about a launch, for pictures.

The simulator writes down every instruction of a kernel. These functions read from there which
part of a tensor each kernel instance touches. There is no such record on a Neuron instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import kernels

if TYPE_CHECKING:
    from nkisim.numerics.program import Program


def program_of(kernel: Any, *args: Any) -> Program:
    """What a launch of a kernel is traced to: its instructions and its outputs.

    Args:
        kernel: an NKI kernel bound to its grid, `kernel[2, 2]`.
        *args: its arguments: arrays of any framework, on any device; only shapes and dtypes matter.

    Raises:
        RuntimeError: on a Neuron instance, where kernels leave no trace.
    """
    if kernels.backend != "nkisim":
        raise RuntimeError(
            f"the backend is {kernels.backend!r}, which keeps no trace of a kernel. Start Python "
            "with NKI_BACKEND=nkisim in its environment, and nkisim runs the kernel."
        )
    from nkisim.runtime.profiling import spec_of

    return kernel.specialize([spec_of(a) for a in args], {}).program


Owner = tuple[int, ...] | int
Tile = tuple[int, int, int, int, Owner]


def written_tiles(
    kernel: Any, *args: Any, output: int = 0, by: Literal["program", "core", "turn"] = "program"
) -> list[Tile]:
    """The rectangles of a 2-D output that a launch writes, one a store.

    Args:
        kernel: an NKI kernel bound to its grid, `kernel[2, 2]`.
        *args: its arguments: arrays of any framework; only shapes and dtypes matter.
        output: which output of the kernel.
        by: whether a tile's owner is the program id, `(0, 1)`, the number of the NeuronCore, or
            which store it is, from 0.

    Returns:
        (row0, row1, col0, col1, owner) for each tile, row1 and col1 exclusive, in launch order:
        what `nkibook.plots.tile_grid` draws.

    Raises:
        RuntimeError: on a Neuron instance, where kernels leave no trace.
        ValueError: the output is not 2-D, or a store is not a rectangle.
    """
    program = program_of(kernel, *args)
    spec = program.outputs[output]
    if len(spec.shape) != 2:
        raise ValueError(
            f"output {output} of {kernel.__name__} has shape {spec.shape}: only a 2-D tensor can "
            "be drawn as tiles."
        )
    buffer = program.output_buffers[output]
    grid = program.trace.grid
    tiles: list[Tile] = []
    for instr in program.instructions:
        for written in instr.outs:
            if written.buffer is not buffer:
                continue
            if not written.is_box or instr.where is not None:
                raise ValueError(
                    f"{kernel.__name__} stores {written.describe()}, which is not a rectangle."
                )
            (row, col), (rows, cols) = written.offsets, written.shape
            owner: Owner = len(tiles)
            if by != "turn":
                of_grid = grid.core if by == "core" else grid.coordinates
                owner = of_grid(instr.program)
            tiles.append((row, row + rows, col, col + cols, owner))
    return tiles
