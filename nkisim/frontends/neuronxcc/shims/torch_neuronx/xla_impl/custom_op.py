"""Stand-in for ``torch_neuronx.xla_impl.custom_op``: builds and loads custom C++ operators."""

from nkisim.customop.loading import load, load_library

__all__ = ["load", "load_library"]
