"""One assumption of the book about the Neuron SDK, and whether an instance bears it out."""

from __future__ import annotations

from dataclasses import dataclass

START = """
import numpy as np
import kernels
from kernels.add import nki_tensor_add_kernel as add
if kernels.dialect == "nki":
    import nki, nki.language as nl
    from kernels.logical_core import cores
    grid = cores()
else:
    import neuronxcc.nki as nki, neuronxcc.nki.language as nl
    grid = 3, 1
array = np.ones((300, 5), np.float32)
"""
"""What a probe begins with: the kernel `add`, its grid, an array of 300 x 5 ones."""


@dataclass(frozen=True)
class Probe:
    """One assumption.

    Attributes:
        name: what is tried.
        code: a script; its last line assigns `result`.
        assumed: "refused", when an error is expected, else the text of `result`.
        words: what the error's text is assumed to have in it; "" for anything.
        framework: whose tensors it takes: "numpy", "torch" or "jax".
        only: the instances for which it holds; all by default.
        dialect: "neuronxcc" or "nki", if it is about one of them.
    """

    name: str
    code: str
    assumed: str
    words: str = ""
    framework: str = "numpy"
    only: tuple[str, ...] = ()
    dialect: str = ""


def judge(probe: Probe, outcome: str) -> bool:
    """Whether an outcome, "fine: ..." or "ErrorType: message", is as assumed."""
    kind, _, text = outcome.partition(": ")
    if probe.assumed == "refused":
        return kind not in ("fine", "no answer") and probe.words in outcome
    return kind == "fine" and text == probe.assumed
