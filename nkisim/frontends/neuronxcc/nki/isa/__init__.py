"""`neuronxcc.nki.isa`: one function an instruction.

The functions check what the documentation asks of their operands and write the instruction down;
`nkisim.numerics.ops` computes it.
"""

from __future__ import annotations

from nkisim.frontends.neuronxcc import names as _names
from nkisim.frontends.neuronxcc.nki import keywords as _keywords
from nkisim.frontends.neuronxcc.nki.isa import (
    constants,
    custom,
    elementwise,
    matmul,
    movement,
    random,
    reduce,
    scalar,
    search,
    select,
)

# What an instruction's module lists in its `__all__` is here, with its settings checked.
_FAMILIES = (
    *(constants, custom, elementwise, matmul, movement),
    *(random, reduce, scalar, search, select),
)
_PUBLIC = {name: vars(family)[name] for family in _FAMILIES for name in family.__all__}
globals().update(_PUBLIC, **_keywords.checked(_PUBLIC, list(_PUBLIC), "nisa"))

__all__ = [*_PUBLIC]

__getattr__ = _names.missing("nisa")
