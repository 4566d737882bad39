"""What the cases of nki.isa share: columns, and checks of types and rounding."""

from __future__ import annotations

import neuronxcc.nki.language as nl
import numpy as np

from constraints.neuronxcc.walk import (
    run,
    tile,
)

ADD, MAX, MULTIPLY = nl.add, nl.maximum, nl.multiply


def column(dtype=nl.float32, rows: int = 4):
    """A tile (rows, 1) of ones."""
    return nl.full((rows, 1), 1, dtype)


def same(got, wanted, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(wanted, float), rtol=rtol)


def keeps_type(call):
    """`call(x, **options)` gives x's type, or dtype=."""

    def show(f):
        assert run(lambda: call(f, tile(4, 6, dtype=nl.bfloat16))).dtype == nl.bfloat16
        assert run(lambda: call(f, tile(4, 6, dtype=nl.bfloat16), dtype=nl.float32)).dtype == "f4"

    return show


def promotes(call):
    """`call(a, b, **options)` gives the promoted type of a and b, or dtype=."""

    def show(f):
        def pair():
            return tile(4, 6, dtype=nl.bfloat16), tile(4, 6, dtype=nl.float32)

        assert run(lambda: call(f, *pair())).dtype == np.float32
        assert run(lambda: call(f, *pair(), dtype=nl.bfloat16)).dtype == nl.bfloat16

    return show


def in_fp32(call, wanted):
    """`call(x)` of a bf16 tile: one rounding, at the end, into the type asked for."""

    def show(f):
        x = (1 + np.arange(24).reshape(4, 6) / 128).astype(nl.bfloat16)
        exact = wanted(x.astype(np.float32))

        def on(**options):
            return run(lambda: call(f, nl.load(nl.shared_constant(x)), **options))

        same(on(dtype=nl.float32), exact)
        same(on(dtype=nl.bfloat16), exact.astype(nl.bfloat16))

    return show
