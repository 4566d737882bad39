"""The checks: consumers of the instruction stream that refuse what hardware or the compiler would.

`Checker` runs them as instructions are written down, so an error points at the kernel line; what
only the whole stream shows is checked at the end. `checks(name="warn")` or the environment
variable NKISIM_CHECKS ("race=warn,uninitialized=off") turns one down.
"""

from nkisim.checking.checker import Checker
from nkisim.checking.settings import CHECKS, checks, settings_key, simulated

__all__ = ["CHECKS", "Checker", "checks", "settings_key", "simulated"]
