"""Builds and loads ``torch.ops.my_ops.giou``, on a Neuron instance and on any other machine alike.

From the command line it writes ``libgiou.so`` to the folder it is run in:

    python -m kernels.giou.cpp.build

and a program loads that file with ``custom_op.load_library("libgiou.so")``.
"""

from __future__ import annotations

from pathlib import Path

import kernels  # noqa: F401  (takes the Neuron SDK, or the simulator in its place)

HERE = Path(__file__).parent
KERNEL = HERE / "giou.cpp"
PUBLISHED = HERE / "as_published.cpp"
SHAPE = HERE / "shape.cpp"


def load(
    kernel: str | Path = KERNEL,
    *,
    build_directory: str | Path | None = None,
    verbose: bool = False,
) -> None:
    """Compile the operator where that is needed, and make ``torch.ops.my_ops.giou`` call it.

    The operator takes two tensors (rows, boxes, 4), float32, and returns (rows, boxes), float32.

    Args:
        kernel: the C++ file with the kernel function ``giou``.
        build_directory: where to write ``libgiou.so``; None: nowhere.
        verbose: print the compiler's progress.

    Raises:
        RuntimeError: there is no compiler, or the source does not compile.
    """
    from torch_neuronx.xla_impl import custom_op

    custom_op.load(
        name="giou",
        compute_srcs=[str(kernel)],
        shape_srcs=[str(SHAPE)],
        build_directory=None if build_directory is None else str(build_directory),
        multicore=True,
        verbose=verbose,
    )


if __name__ == "__main__":
    load(build_directory=Path.cwd(), verbose=True)
