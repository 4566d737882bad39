"""The rules of `neuronxcc.nki`, as a trace carries them."""

from __future__ import annotations

from nkisim.frontends.neuronxcc.calls import explain
from nkisim.frontends.neuronxcc.rules.counters import Counters
from nkisim.frontends.neuronxcc.rules.loops import check_affine_loops
from nkisim.frontends.neuronxcc.rules.scope import check_scope
from nkisim.frontends.neuronxcc.rules.shapes import Shapes
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.rules import Rules, Words

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
    explain=explain,
    words=Words(
        within=", wherever the mask is true",
        edge="mask the edge, e.g. mask=(index < {size}), or launch fewer tiles",
        tail="loop, or launch, once more, (n + size - 1) // size times, with a mask of the index "
        "< n; or pass the part that is meant",
        everywhere="check the launch grid and the masks of the stores",
        written_only="give this operation the mask that the write had",
        of_each="give each operand the mask that its own write had: a[mask_a], b[mask_b]",
        to_sbuf="copy the tile into SBUF first, with nl.copy",
        by_dma="nl.load the tensor into SBUF before computing, and nl.store the result",
    ),
)
