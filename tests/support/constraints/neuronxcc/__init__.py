"""The cases of `test_constraints.py`, by area. Importing this package fills `walk.CASES`."""

from constraints.neuronxcc import (
    isa_compute,
    isa_data,
    isa_matmul,
    isa_reduce,
    isa_search,
    language_data,
    language_math,
    program,
)

__all__ = [
    "isa_compute",
    "isa_data",
    "isa_matmul",
    "isa_reduce",
    "isa_search",
    "language_data",
    "language_math",
    "program",
]
