"""The HLO of one expression in several frameworks, before and after XLA; buttons pick one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nkibook.plots.choice import Choice


@dataclasses.dataclass(frozen=True)
class Programs:
    """A row of buttons, two for each framework: before and after XLA's optimisation.

    Each shows both programs of the framework as one listing with the lines that differ marked.
    What is after it is XLA's CPU backend's, compiled when the picture is asked for.

    Attributes:
        pairs: by the name of a framework, the modules without and with the kernel, both before
            optimisation.
        captions: what the two are.
    """

    pairs: Mapping[str, tuple[Any, Any]]
    captions: tuple[str, str]

    def __repr__(self) -> str:
        frameworks = " and ".join(self.pairs)
        old, new = self.captions
        return f"HLO of {frameworks}, before and after XLA's optimisation: {old}, and {new}"

    def _repr_html_(self) -> str:
        shown = {}
        for framework, (old, new) in self.pairs.items():
            shown[f"{framework}, before XLA"] = old.diff(new, captions=self.captions)
            shown[f"{framework}, after XLA"] = old.after.diff(new.after, captions=self.captions)
        first = next(iter(self.pairs))
        choice = Choice(shown, "the HLO of one expression in", f"{first}, after XLA")
        return choice._repr_html_()
