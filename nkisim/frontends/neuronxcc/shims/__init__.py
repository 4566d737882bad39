"""Stand-ins for the Neuron SDK's framework packages, under whose names nkisim installs them.

They hold what NKI programs import from ``torch_neuronx`` and ``jax_neuronx``, and nothing else.
"""
