"""Cells that not every machine runs. They say so in their first line, a comment:

    # simulator only                  where the simulator runs the kernels
    # neuronxcc.nki                   where kernels are in this dialect
    # import nki                      where they are in this one
    # import nki, simulator only      both; a reason may follow after a colon

Elsewhere the cell is not run, and says so: a device keeps no record of instructions, and an SDK
compiles one dialect. Here it is `kernels.dialect`, which NKI_DIALECT sets in the simulator.

With an SDK that no longer compiles ``neuronxcc.nki``, another cell that imports it raises an error
that says what to do. The SDK itself may import it and leave zeros.
"""

from __future__ import annotations

import ast
import os
import sys

import kernels

SIMULATOR = "simulator only"
DIALECTS = {"neuronxcc.nki": "neuronxcc", "import nki": "nki"}
"""The dialects by their marks: what one types, and the name that `kernels.dialect` has for it."""

MARKS = {dialect: mark for mark, dialect in DIALECTS.items()}

SKIPPED = (
    "Not run: this cell looks into the simulator, and here the Neuron SDK runs the kernels.\n"
    "To run it, start Jupyter with NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu."
)
OTHER_DIALECT = "Not run: this cell is in {}, and kernels here are in {}."

OLDER_DIALECT = (
    "this cell imports neuronxcc.nki, and the Neuron SDK here (neuronx-cc {}) "
    "compiles kernels of `import nki` only: SDK 2.29 was the last for "
    "neuronxcc.nki. See notebooks/dialects for `import nki`, or run this page in the "
    "simulator: start Jupyter with NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu. With "
    "SDK 2.28.1 it runs on a device."
)


def marks(cell: str) -> frozenset[str]:
    """The marks that a cell's source begins with: of SIMULATOR and DIALECTS."""
    first = next((line for line in cell.splitlines() if line.strip()), "")
    if not first.startswith("#"):
        return frozenset()
    found = frozenset(part.strip() for part in first[1:].partition(":")[0].split(","))
    return found if found <= {SIMULATOR, *DIALECTS} else frozenset()


def needs_simulator(cell: str) -> bool:
    """Whether a cell is run in the simulator only."""
    return SIMULATOR in marks(cell)


def dialect_of(cell: str) -> str | None:
    """The dialect that a cell is for, as `kernels.dialect` names it; None for a cell of both."""
    return next((DIALECTS[mark] for mark in marks(cell) if mark in DIALECTS), None)


def transform(lines: list[str]) -> list[str]:
    """IPython's input transformation: a note for a marked cell that is not for this machine, and an
    error for an unmarked one in a dialect that the SDK does not compile."""
    cell = "".join(lines)
    if dialect_of(cell) not in (None, kernels.dialect):
        note = OTHER_DIALECT.format(MARKS[str(dialect_of(cell))], MARKS[kernels.dialect])
        if kernels.backend == "nkisim":
            note += f"\nTo run it, start Jupyter with NKI_DIALECT={dialect_of(cell)}."
        return [f"print({note!r})\n"]
    if kernels.backend == "nkisim":
        return lines
    if needs_simulator(cell):
        return [f"print({SKIPPED!r})\n"]
    if _is_refused(cell):
        return [f"raise ImportError({_older_dialect()!r})\n"]
    return lines


def _older_dialect() -> str:
    return OLDER_DIALECT.format(kernels.backend_version)


def _is_refused(cell: str) -> bool:
    if kernels.backend == "nkisim" or kernels.dialect != "nki" or "neuronxcc.nki" not in cell:
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
    """Teach the marks to the IPython session, if this is one.

    In `import nki` it also gets what the pages are written for, unless the environment says
    otherwise: in the simulator a Trainium2, and on a device one physical core in a logical core
    (NEURON_LOGICAL_NC_CONFIG=1), so that `kernel(x)` is a launch that the runtime takes.

    Raises:
        ImportError: the cell that runs now imports `neuronxcc.nki`, which the SDK does not compile.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or transform in shell.input_transformers_cleanup:
        return
    if kernels.dialect == "nki":
        in_simulator = kernels.backend == "nkisim"
        chip, cores = ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2"), ("NEURON_LOGICAL_NC_CONFIG", "1")
        os.environ.setdefault(*(chip if in_simulator else cores))
    shell.input_transformers_cleanup.append(transform)
    cell = shell.user_ns.get("In", [""])[-1]
    if not marks(cell) and _is_refused(cell):
        raise ImportError(_older_dialect())
