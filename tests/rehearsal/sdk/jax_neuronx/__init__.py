"""Stand-in for JAX's Neuron package. It must be imported after JAX (release-notes of jax-neuronx),
and gives `nki_call` for kernels that take their outputs as arguments."""

import jax  # noqa: F401
import rehearsal_rules as rules
from rehearsal_rules import simulated


def nki_call(kernel, *args, grid=(), out_shape=None, **kwargs):
    rules.check_arguments("jax", args, kwargs)
    rules.claim("jax")
    return simulated("jax_neuronx").nki_call(
        kernel, *args, grid=grid, out_shape=out_shape, **kwargs
    )
