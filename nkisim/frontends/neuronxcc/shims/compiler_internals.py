"""`neuronxcc.nki.compiler.backends.neuron.indexing` and `.tensor`: types for annotations.

They are not documented, but the kernels of nki-samples' src/reference import them for their type
hints, as rmsnorm_quant does.
"""

from nkisim.frontends.neuronxcc.tensors.index import IndexTensor as TileIndex
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor as local_tile

__all__ = ["TileIndex", "local_tile"]
