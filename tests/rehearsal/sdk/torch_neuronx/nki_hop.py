"""The home of `nki_op` and `wrap_nki`."""

from rehearsal_neuron import nki_op, wrap_nki  # noqa: F401
