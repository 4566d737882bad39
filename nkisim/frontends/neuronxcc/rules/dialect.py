"""The rules of `neuronxcc.nki`, as a trace carries them."""

from __future__ import annotations

from nkisim.errors import KernelError
from nkisim.frontends.neuronxcc.rules.counters import Counters
from nkisim.frontends.neuronxcc.rules.loops import check_affine_loops
from nkisim.frontends.neuronxcc.rules.scope import check_scope
from nkisim.frontends.neuronxcc.rules.shapes import Shapes
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.rules import Rules


def _explain(error: AttributeError) -> KernelError | None:
    from nkisim.frontends.neuronxcc.nki.names import explain  # which knows all modules

    return explain(error)


RULES = Rules(
    one_bank=True,
    places_all=True,
    dialect="neuronxcc.nki",
    tensor=Tensor,
    parallel=frozenset({"affine_range"}),
    restriction=restriction,
    checks={"scope": check_scope},
    checks_at_end={"loop": check_affine_loops},
    declared=Shapes,
    watch_loop=Counters,
    explain=_explain,
)
