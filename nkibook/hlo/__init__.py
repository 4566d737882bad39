"""The HLO that PyTorch and JAX hand to the compiler, as an object to print, query and draw.

    module = torch_hlo(fn, a, b)          # or jax_hlo(fn, a, b)
    print(module)                         # XLA's own text
    print(module.text(short=True))        # the same, to read line by line
    module.custom_calls                   # targets, shapes, decoded backend_config
    module.after                          # after XLA's optimisation
    module.operations                     # the bytes that each reads and writes
    module.fused                          # those of a program that is fused as well as it can be
    module.diff(other, captions=(…, …))   # both as one listing, with the lines that differ marked
    module.graph()                        # the dataflow graph, as inline SVG

torch, torch_xla and JAX are imported only when called for.
"""

from nkibook.hlo.calls import NKI_TARGET, Collective, CustomCall
from nkibook.hlo.from_jax import jax_hlo
from nkibook.hlo.from_torch import torch_hlo
from nkibook.hlo.graph import Drawing
from nkibook.hlo.html import Diff
from nkibook.hlo.module import HloModule, HloUnavailable
from nkibook.hlo.parse import Computation, HloParseError, Instruction, Shape, parse_module
from nkibook.hlo.traffic import Operation

__all__ = [
    "NKI_TARGET",
    "Collective",
    "Computation",
    "CustomCall",
    "Diff",
    "Drawing",
    "HloModule",
    "HloParseError",
    "HloUnavailable",
    "Instruction",
    "Operation",
    "Shape",
    "jax_hlo",
    "parse_module",
    "torch_hlo",
]
