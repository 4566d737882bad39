"""`nkisim.tune`: the modelled times of all forms of a kernel, and why the best one wins."""

from nkisim.tuning.result import Trial, Tuning
from nkisim.tuning.search import tune

__all__ = ["Trial", "Tuning", "tune"]
