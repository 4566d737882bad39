"""Whether this package is alone in its folder. PyPI has another package called ``kernels``, and an
installer puts both into one: files of each, and the ``__init__`` of the one that came last.
"""

from __future__ import annotations

import sys
from pathlib import Path


def check_alone() -> None:
    """Raises ImportError where the other ``kernels`` is installed into this folder, or found in its
    place."""
    folder = Path(__file__).resolve().parent
    package = sys.modules["kernels"]
    found = Path(getattr(package, "__file__", None) or "?").resolve()
    mixed = any(folder.parent.glob("kernels-*.dist-info"))
    if not mixed and (package.__doc__ or "").startswith("The book's NKI kernels"):
        return
    where = folder if found.parent == folder else f"{found.parent}, and this book's in {folder}"
    raise ImportError(
        f"the package `kernels` of PyPI is in {where}: it has the name of this book's package, and "
        "Python takes one of them, or a mixture. Remove both, with `pip uninstall kernels "
        "nki-book`, and install the book again, in an environment without the other one."
    )


def dialect_in_force() -> str:
    """The dialect of NKI that the operators' kernels are written in. It comes from here, since the
    other package's ``__init__``, which has none, may stand in this folder.

    Raises:
        ImportError: it does.
    """
    check_alone()
    return sys.modules["kernels"].dialect
