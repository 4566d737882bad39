"""nkisim: a CPU simulator of a NeuronCore that stands in for `neuronxcc.nki`.

`nkisim.install()` makes `neuronxcc.nki` importable where the Neuron SDK is not installed. Importing
nkisim costs a NumPy import and nothing more.
"""

from nkisim import ops as _ops  # noqa: F401  fills the table of instructions
from nkisim.checking import CHECKS, checks
from nkisim.cost import Timeline, profile
from nkisim.debugging import values
from nkisim.errors import KernelError, NkiWarning
from nkisim.explaining import Explanation, explain
from nkisim.install import install, sdk_installed
from nkisim.kernel import Kernel
from nkisim.program import Program, TensorSpec

__version__ = "0.1.0"

__all__ = [
    "CHECKS",
    "Explanation",
    "Kernel",
    "KernelError",
    "NkiWarning",
    "Program",
    "TensorSpec",
    "Timeline",
    "checks",
    "explain",
    "install",
    "profile",
    "sdk_installed",
    "values",
]
