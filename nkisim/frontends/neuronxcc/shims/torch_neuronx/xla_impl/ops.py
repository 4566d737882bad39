"""Stand-in for ``torch_neuronx.xla_impl.ops``: where programs of SDK 2.20 import ``nki_jit``."""

from nkisim.frontends.neuronxcc.shims.torch_neuronx import nki_jit

__all__ = ["nki_jit"]
