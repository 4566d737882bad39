"""Cells that need the simulator. They begin with the comment ``# simulator only``.

Where the simulator runs the kernels it is a comment. Where the Neuron SDK does, the cell is not
run, and says so: a device keeps no record of instructions, and the cost model reads one.
"""

from __future__ import annotations

import sys

import kernels

MARK = "# simulator only"
SKIPPED = (
    "Not run: this cell looks into the simulator, and here the Neuron SDK runs the kernels.\n"
    "To run it, start Jupyter with NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu."
)


def needs_simulator(cell: str) -> bool:
    """Whether a cell's source begins with the mark; a reason may follow after a colon."""
    first = next((line for line in cell.splitlines() if line.strip()), "")
    return first.partition(":")[0].strip() == MARK


def transform(lines: list[str]) -> list[str]:
    """IPython's input transformation, where the SDK runs the kernels: a note for a marked cell."""
    return [f"print({SKIPPED!r})\n"] if needs_simulator("".join(lines)) else lines


def register() -> None:
    """Teach the mark to the IPython session, if this is one and the SDK runs its kernels."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or kernels.backend == "nkisim":
        return
    if transform not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(transform)
