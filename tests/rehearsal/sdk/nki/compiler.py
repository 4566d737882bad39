"""Names of the documentation, from the simulator's copy."""

from rehearsal_rules import take_documented

take_documented(__name__, globals())
