"""Kernels whose latency on hardware has been published, to hold the cost model against.

Each module has this project's own version of kernels that others have timed; `points` says what
was published for them, and where, `points_trn2` the same for trn2, and `points_held_out` the same
for kernels that the model was not made with. `first` has what the model gave before it had seen
them. `python -m nkibook.validation` prints modelled against published. Nothing here is meant for
use in a model: the kernels are as slow as the published ones.
"""

import kernels  # noqa: F401  (settles the backend of neuronxcc.nki)
