"""The book's NKI kernels, as operators of PyTorch and JAX.

Importing this package settles two things.

Which *backend* runs the kernels: the Neuron SDK where it is installed, else the CPU simulator
``nkisim`` in its place. With ``NKI_BACKEND=nkisim`` in the environment it is the simulator,
installed SDK or not.

Which *dialect* of NKI the operators' kernels are written in: ``neuronxcc.nki``, which the compilers
of SDK 2.29 and earlier take, or ``import nki`` (NKI 0.7), which those of SDK 2.30 and later take.
The installed SDK decides; the simulator runs both, and takes ``neuronxcc.nki``.
``NKI_DIALECT=nki`` or ``NKI_DIALECT=neuronxcc`` in the environment decides otherwise. Each
operator has kernels in both; ``nki`` holds those in ``import nki``. No kernel in
``import nki`` has run on a device.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder

from kernels.installed import check_alone

if sys.version_info < (3, 11):  # noqa: UP036  says so before something cannot be read
    raise ImportError(
        f"this is Python {sys.version.split()[0]}, and the book needs 3.11 or newer. Ubuntu 22.04 "
        "has 3.10 as python3: apt-get install python3.11 python3.11-venv, and make the environment "
        "with python3.11 -m venv."
    )


check_alone()

DIALECTS = ("neuronxcc", "nki")
"""The dialects of NKI, older first, by the package that a kernel imports."""

_FIRST_COMPILER_OF_NKI = (2, 25)
"""The neuronx-cc of SDK 2.30: kernels of ``neuronxcc.nki`` are a compile error from there on (SDK
2.30's release notes, components/nki.rst)."""

_FIRST_AFTER_THE_BETAS = (2, 24)
"""The neuronx-cc of SDK 2.29, which has NKI 0.3. Those before it have 0.1 and 0.2, betas without
``nl.load`` (AWS's nki/migration/index.rst)."""


def _provides(package: str, submodule: str) -> bool:
    """Whether a package is installed and has this submodule. Imports nothing.

    PyPI has empty placeholders called ``neuronxcc`` and ``nki``, so the name alone proves nothing.
    """
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return bool(folders) and PathFinder.find_spec(f"{package}.{submodule}", folders) is not None


def _wanted(variable: str, values: tuple[str, ...], meaning: str) -> str:
    """A setting of the environment, "" when it is unset.

    Raises:
        ValueError: it is none of `values`.
    """
    wanted = os.environ.get(variable, "")
    if wanted not in ("", *values):
        raise ValueError(f"{variable}={wanted!r} in the environment. {meaning}")
    return wanted


def _choose() -> tuple[str, str, str]:
    """Make the dialects importable; return the backend, its version and the dialect.

    Raises:
        ImportError: an SDK that does not import, or without the dialect that is asked for.
        ValueError: NKI_BACKEND or NKI_DIALECT is set to something unknown.
    """
    simulate = _wanted(
        "NKI_BACKEND",
        ("nkisim",),
        "It is unset, and the Neuron SDK is used where it is installed; or it is nkisim, and the "
        "simulator is used everywhere.",
    )
    wanted = _wanted(
        "NKI_DIALECT",
        DIALECTS,
        "It is unset, and the operators use the dialect of the installed SDK; or it is one of "
        f"{' and '.join(DIALECTS)}.",
    )
    older, newer = _provides("neuronxcc", "nki"), _provides("nki", "language")
    if not (older or newer) or simulate:
        import nkisim

        nkisim.install(in_place_of_sdk=bool(simulate))
        return "nkisim", nkisim.__version__, wanted or DIALECTS[0]
    version = _sdk_version()
    release = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if wanted == "nki" and (not newer or (older and release < _FIRST_AFTER_THE_BETAS)):
        raise ImportError(
            f"NKI_DIALECT=nki, and the Neuron SDK here (neuronx-cc {version}) has no `import nki`, "
            "or a beta of it. What is in `import nki` needs SDK 2.30 or later, or the simulator: "
            "start with NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu. The other pages of "
            "the book are in neuronxcc.nki, and run with this SDK."
        )
    is_newer = newer and (not older or release >= _FIRST_COMPILER_OF_NKI)
    if wanted == "neuronxcc" and is_newer:
        raise ImportError(
            f"NKI_DIALECT=neuronxcc, and the Neuron SDK here (neuronx-cc {version}) compiles "
            "kernels of `import nki` only: SDK 2.29 was the last for neuronxcc.nki. The book has "
            "each page in `import nki`, too; or run this in the simulator: start with "
            "NKI_BACKEND=nkisim PJRT_DEVICE=CPU JAX_PLATFORMS=cpu."
        )
    dialect = wanted or DIALECTS[is_newer]
    # An SDK that is there but does not import is an error to see, not one to work around.
    module = "neuronxcc.nki" if dialect == "neuronxcc" else "nki"
    try:
        importlib.import_module(module)
    except Exception as error:
        raise ImportError(
            f"the Neuron SDK is installed, but `import {module}` fails: {error!r}. Repair or "
            "remove its packages neuronx-cc and nki; without them, kernels run in the simulator."
        ) from error
    return "neuronxcc", version, dialect


def _sdk_version() -> str:
    """Version of the compiler, neuronx-cc, or "?"."""
    try:
        return str(importlib.import_module("neuronxcc").__version__)
    except Exception:  # told with the import of the dialect, which needs the compiler
        return "?"


backend: str
"""``"neuronxcc"`` (the Neuron SDK) or ``"nkisim"`` (this project's CPU simulator)."""

backend_version: str
"""Version of the backend's package."""

dialect: str
"""``"neuronxcc"`` or ``"nki"``: what the operators' kernels are written in."""

backend, backend_version, dialect = _choose()
