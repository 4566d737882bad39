"""Stand-in for `nki`, NKI 0.7: what the documentation names, and no attribute more."""

import rehearsal_rules as rules

from nki import collectives, compiler, isa, language, typing

__all__ = ["collectives", "compiler", "isa", "jit", "language", "simulate", "typing"]

_nki = rules.simulated("nki")


def jit(kernel=None, **options):
    """`@nki.jit`. `mode` is ignored, `platform_target` an error (nki/migration/index.rst)."""
    if kernel is None:
        return lambda f: jit(f, **options)
    return rules.NkiKernel(_nki.jit(rules.inner(kernel), **options), "auto")


def simulate(kernel):
    """The SDK's own simulator: on the CPU, without a device."""
    return rules.NkiKernel(_nki.simulate(rules.inner(kernel)), "simulation")
