"""Tiles alive at one time fit their memory, also those that several tasks fill."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.schedule.allocation import Residence


def bytes_alive(timeline) -> dict[int, int]:
    """The most bytes a partition of tiles between their first use and their last, by memory."""
    core = timeline.cores[0]
    tiles, schedule = Residence.of(core.work), core.schedule
    span: dict[int, list[float]] = {}
    for at, touched in enumerate(tiles.touched):
        for tile in touched:
            held = span.setdefault(tile, [schedule.start[at], schedule.done[at]])
            held[0] = min(held[0], schedule.start[at])
            held[1] = max(held[1], schedule.done[at])
    changes: dict[int, list[tuple[float, int]]] = {}
    for tile, (begin, end) in span.items():
        nbytes = tiles.nbytes[tile]
        changes.setdefault(tiles.memory[tile], []).extend([(begin, nbytes), (end, -nbytes)])
    return {
        memory: int(np.cumsum([n for _, n in sorted(c)]).max()) for memory, c in changes.items()
    }


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_tiles_that_are_filled_in_parts_wait_for_room(parts):
    def kernel(x):
        out = nl.ndarray((16, 128, 1), nl.float32, buffer=nl.shared_hbm)
        width = x.shape[2] // parts
        for i in nl.affine_range(16):
            tile = nl.ndarray((128, x.shape[2]), nl.float32)
            for part in range(parts):
                at = nl.ds(part * width, width)
                tile[:, at] = nl.load(x[i, :, at])
            # Slower than the loads, which run ahead as far as there is room.
            for _ in range(4):
                tile[...] = nisa.activation(nl.exp, tile)
            nl.store(out[i], nl.sum(tile, axis=1))
        return out

    timeline = nkisim.profile(kernel, nkisim.TensorSpec((16, 128, 8192), np.dtype(np.float32)))
    assert bytes_alive(timeline)[0] <= timeline.machine.sbuf_usable_bytes
