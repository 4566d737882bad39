"""Stand-in for `neuronxcc.nki`: what the documentation names, and no attribute more."""

import functools

import rehearsal_rules as rules
from neuronxcc.nki import compiler, isa, language, typing
from rehearsal_rules import Kernel, simulated

_nki = simulated("neuronxcc.nki")
tensor = _nki.tensor

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "tensor",
    "trace",
    "typing",
]


def _decorator(of_simulator, mode):
    """A decorator of the SDK: `@d`, `@d(option=...)` or `d(kernel)`."""

    @functools.wraps(of_simulator)
    def decorator(kernel=None, **options):
        if kernel is None:
            return lambda f: decorator(f, **options)
        inner = rules.inner(kernel)
        return Kernel(of_simulator(inner, **options), options.get("mode", mode))

    return decorator


jit = _decorator(_nki.jit, "auto")
trace = _decorator(_nki.trace, "trace")
baremetal = _decorator(_nki.baremetal, "baremetal")
benchmark = _decorator(_nki.benchmark, "benchmark")
profile = _decorator(_nki.profile, "benchmark")


def simulate_kernel(kernel, /, *args, **kwargs):
    """The SDK's own simulator: on the CPU, without a device."""
    return rules.as_on_a_device(lambda: _nki.simulate_kernel(rules.inner(kernel), *args, **kwargs))
