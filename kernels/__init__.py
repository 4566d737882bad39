"""The book's NKI kernels, and what its notebooks share.

Importing this package settles which backend runs the kernels: the Neuron SDK's ``neuronxcc.nki``
where it is installed, else the CPU simulator ``nkisim`` under the same name. With
``NKI_BACKEND=nkisim`` in the environment it is the simulator, installed SDK or not.

The operators run kernels of ``neuronxcc.nki``, the dialect up to SDK 2.29. Tensor addition, average
pooling, GIOU and RMSNorm have their kernels in ``import nki`` (NKI 0.6) as well: modules
``nki_kernels_06``, whose callers take NumPy, PyTorch and JAX arrays and ``lnc=1`` or ``2``. They
were run in the simulator only. They take their checks of arguments from ``nki_kernels``, and so
need ``neuronxcc.nki`` to be importable too.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder

if sys.version_info < (3, 11):  # noqa: UP036  says so before something cannot be read
    raise ImportError(
        f"this is Python {sys.version.split()[0]}, and the book needs 3.11, 3.12 or 3.13 (as JAX "
        "0.7 does). Ubuntu 22.04 has 3.10 as python3: apt-get install python3.11 python3.11-venv, "
        "and make the environment with python3.11 -m venv."
    )


def _sdk_is_installed() -> bool:
    """Whether there is a ``neuronxcc`` with ``nki`` in it. Imports nothing.

    PyPI has an empty placeholder called ``neuronxcc``, so the name alone proves nothing.
    """
    spec = importlib.util.find_spec("neuronxcc")
    folders = spec and spec.submodule_search_locations
    return bool(folders) and PathFinder.find_spec("neuronxcc.nki", folders) is not None


def _choose_backend() -> tuple[str, str]:
    """Make ``neuronxcc.nki`` importable; say who provides it and in which version.

    Raises:
        ImportError: an SDK that does not import.
        ValueError: NKI_BACKEND is set to something else than "nkisim".
    """
    wanted = os.environ.get("NKI_BACKEND", "")
    if wanted not in ("", "nkisim"):
        raise ValueError(
            f"NKI_BACKEND={wanted!r} in the environment. It is unset, and the Neuron SDK is used "
            "where it is installed; or it is nkisim, and the simulator is used everywhere."
        )
    if _sdk_is_installed() and not wanted:
        # An SDK that is there but does not import is an error to see, not one to work around.
        try:
            importlib.import_module("neuronxcc.nki")
        except Exception as error:
            raise ImportError(
                f"the Neuron SDK is installed, but `import neuronxcc.nki` fails: {error!r}. "
                "Repair or remove its package neuronx-cc; without it, kernels run in the simulator."
            ) from error
        return "neuronxcc", str(getattr(importlib.import_module("neuronxcc"), "__version__", "?"))
    import nkisim

    nkisim.install(in_place_of_sdk=bool(wanted))
    return "nkisim", nkisim.__version__


backend: str
"""``"neuronxcc"`` (the Neuron SDK) or ``"nkisim"`` (this project's CPU simulator)."""

backend_version: str
"""Version of the backend's package."""

backend, backend_version = _choose_backend()
