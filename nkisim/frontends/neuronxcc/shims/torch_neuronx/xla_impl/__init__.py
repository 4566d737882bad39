"""Stand-in for ``torch_neuronx.xla_impl``: the home of ``custom_op`` and ``ops``."""
