"""How the instruction tests run a few lines of kernel on arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture(scope="session")
def compute() -> Callable:
    """``compute(body, *arrays)`` loads the arrays whole, calls ``body`` on the tiles and gives what
    it returns: one tile or several, as arrays. With ``mask=f`` the store of the result is under
    the mask ``f()``, and the rest of the array keeps the fill value 77. ``target="trn2"`` traces
    for that platform."""
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    def run(
        body: Callable,
        *arrays: np.ndarray,
        mask: Callable | None = None,
        target: str | None = None,
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        options = {} if target is None else {"platform_target": target}

        @nki.jit(**options)
        def kernel(arrays):
            result = body(*(nl.load(a) for a in arrays))
            tiles = result if isinstance(result, tuple) else (result,)
            outs = []
            for tile in tiles:
                out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
                if mask is not None:
                    nl.store(out, nl.full(tile.shape, 77, dtype=tile.dtype))
                nl.store(out, tile, mask=None if mask is None else mask())
                outs.append(out)
            return tuple(outs)

        outs = kernel(list(arrays))
        return outs[0] if len(outs) == 1 else outs

    return run
