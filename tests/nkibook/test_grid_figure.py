"""The picture of a grid that fills says of each tile what the timeline says of its transfers."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from kernels.add import nki_tensor_add_kernel
from nkibook.figures.grid import filling, state, times_of_tiles
from nkibook.tracing import written_tiles


def launch(columns=4100):
    x = np.zeros((300, columns), np.float32)
    kernel = nki_tensor_add_kernel[3, -(-columns // 2048)]
    return nkisim.profile(kernel, x, x), x.shape, written_tiles(kernel, x, x)


def test_each_tile_goes_through_all_states_in_order_and_is_stored_once():
    timeline, _, tiles = launch()
    times = times_of_tiles(timeline, len(tiles))
    assert len(times) == 9
    for tile in times:
        assert list(tile) == sorted(tile)
        loaded, arrived, stored, written = tile
        moments = (loaded - 1e-3, loaded, arrived, stored, written)
        names = ["waits", "loading", "in SBUF", "storing", "written"]
        assert [state(tile, moment) for moment in moments] == names
    # Bytes tell tiles apart: the three at the right have 4 columns, the last row of tiles 44 rows.
    store_us = [written - stored for _, _, stored, written in times]
    assert max(store_us[2::3]) < min(store_us[0::3][:2])
    assert store_us[6] < store_us[0]


def test_the_grid_fills_and_the_still_picture_is_full():
    moving = filling(*launch(4096), frames=5)  # no tile is too small for its label
    written = [frame.svg.count(">instance (") for frame in moving.frames]
    assert len(written) == 5
    assert written == sorted(written)
    assert written[0] == 0
    assert written[-1] == 6
    assert repr(moving.frames[-1]).endswith("with all of its 6 tiles written.")
    assert "waits" in moving.frames[0].alt
    assert "loading" in moving.frames[0].alt


def test_tiles_are_labelled_by_their_owner():
    full = filling(*launch(4096), owner="tile {}".format, frames=2).frames[-1].svg
    assert full.count(">tile (") == 6
    assert ">program" not in full


def test_a_launch_of_other_tiles_is_refused():
    timeline, shape, tiles = launch()
    with pytest.raises(ValueError, match=r"18 loads and 9 stores for 4 tiles"):
        filling(timeline, shape, tiles[:4])
