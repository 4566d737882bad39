"""What the notebooks share: HLO views, plots, measurements, exercises, and the doctor.

Importing it in a notebook makes cells known that begin with ``# simulator only``, ``# import nki``
or ``# neuronxcc.nki``: `nkibook.cells`.
"""

import importlib
import warnings

from nkibook import cells

try:
    importlib.import_module("kernels.installed").check_alone()
except ModuleNotFoundError as error:
    if error.name != "kernels.installed":
        raise
    raise ImportError(
        f"`import kernels` finds {importlib.import_module('kernels').__file__}: another package of "
        "that name, which PyPI has, hides this book's. Remove it with `pip uninstall kernels`, or "
        "use an environment without it."
    ) from None

cells.register()
# The book says it in words, where a page uses the device.
warnings.filterwarnings("ignore", "PyTorch's device `neuron` is nkisim's")
