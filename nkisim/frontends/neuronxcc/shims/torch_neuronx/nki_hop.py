"""Stand-in for ``torch_neuronx.nki_hop``: the home of ``nki_op`` and ``wrap_nki``."""

from nkisim.frontends.neuronxcc.shims.torch_neuronx import nki_op, wrap_nki

__all__ = ["nki_op", "wrap_nki"]
