"""The instructions: for each opcode, the NumPy call that computes it.

A `bind` function receives an instruction and returns `f(*outs, *tiles_in)`, to be called on NumPy
views every time the program runs. Whatever can be decided from types and attributes is decided
once, in `bind`. Importing this package fills `nkisim.ir.instruction.OPCODES`.
"""

from nkisim.numerics.ops import (
    chain,
    elementwise,
    gather,
    generated,
    matmul,
    movement,
    mx,
    random,
    reduce,
    search,
    select,
    statistics,
)

__all__ = [
    "chain",
    "elementwise",
    "gather",
    "generated",
    "matmul",
    "movement",
    "mx",
    "random",
    "reduce",
    "search",
    "select",
    "statistics",
]
