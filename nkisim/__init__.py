"""nkisim: a CPU simulator of a NeuronCore that stands in for `neuronxcc.nki`.

`nkisim.install()` makes `neuronxcc.nki` importable where the Neuron SDK is not installed. Importing
nkisim costs a NumPy import and nothing more.
"""

from nkisim.checking import CHECKS, checks
from nkisim.errors import KernelError, NkiWarning
from nkisim.ir.limits import limits
from nkisim.judging import judge
from nkisim.numerics import ops as _ops  # noqa: F401  fills the table of instructions
from nkisim.numerics.program import Program, TensorSpec
from nkisim.report.timeline import Timeline
from nkisim.runtime.explaining import Explanation, explain
from nkisim.runtime.install import install, sdk_installed
from nkisim.runtime.kernel import Kernel
from nkisim.runtime.profiling import profile
from nkisim.runtime.ranks import run_ranks
from nkisim.trace.debugging import values
from nkisim.tuning import tune

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
    "judge",
    "limits",
    "profile",
    "run_ranks",
    "sdk_installed",
    "tune",
    "values",
]
