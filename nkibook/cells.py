"""Cells that need the simulator. They begin with the comment ``# simulator only``.

Where the simulator runs the kernels it is a comment. Where the Neuron SDK does, the cell is not
run, and says so: a device keeps no record of instructions, and the cost model reads one.

With an SDK that no longer compiles ``neuronxcc.nki``, another cell that imports it raises an error
that says what to do. The SDK itself may import it and leave zeros.
"""

from __future__ import annotations

import ast
import sys

import kernels

MARK = "# simulator only"
SKIPPED = (
    "Not run: this cell looks into the simulator, and here the Neuron SDK runs the kernels.\n"
    "To run it, start Jupyter with NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu."
)

OLDER_DIALECT = (
    "this cell imports neuronxcc.nki, and the Neuron SDK here (neuronx-cc {}) "
    "compiles kernels of `import nki` only: SDK 2.29 was the last for "
    "neuronxcc.nki. Open notebooks/todays_nki, which is in `import nki`, or run this page in the "
    "simulator: start Jupyter with NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu. With "
    "SDK 2.28.1 it runs on a device."
)


def needs_simulator(cell: str) -> bool:
    """Whether a cell's source begins with the mark; a reason may follow after a colon."""
    first = next((line for line in cell.splitlines() if line.strip()), "")
    return first.partition(":")[0].strip() == MARK


def transform(lines: list[str]) -> list[str]:
    """IPython's input transformation, where the SDK runs the kernels: a note for a marked cell, and
    an error for one in a dialect that the SDK does not compile."""
    cell = "".join(lines)
    if needs_simulator(cell):
        return [f"print({SKIPPED!r})\n"]
    if _is_refused(cell):
        return [f"raise ImportError({_older_dialect()!r})\n"]
    return lines


def _older_dialect() -> str:
    return OLDER_DIALECT.format(kernels.backend_version)


def _is_refused(cell: str) -> bool:
    if kernels.dialect != "nki" or "neuronxcc.nki" not in cell:
        return False
    try:
        tree = ast.parse(cell)
    except SyntaxError:  # a cell of IPython's
        return False
    names: list[str | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module)
    return any(f"{name}.".startswith("neuronxcc.nki.") for name in names)


def register() -> None:
    """Teach the mark to the IPython session, if this is one and the SDK runs its kernels.

    Raises:
        ImportError: the cell that runs now imports `neuronxcc.nki`, which the SDK does not compile.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or kernels.backend == "nkisim":
        return
    if transform not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(transform)
        cells = shell.user_ns.get("In", [""])
        if not needs_simulator(cells[-1]) and _is_refused(cells[-1]):
            raise ImportError(_older_dialect())
