"""Stand-in for the Neuron compiler's Python package."""
