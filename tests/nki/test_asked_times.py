"""What a kernel asks of the schedule holds in modelled times: order, and who starts a transfer."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

TILES, COLUMNS = 4, 512
SPEC = nkisim.TensorSpec((128, TILES * COLUMNS), np.dtype(np.float32))


def _kernel(ordered=False, chained=False, **how):
    def compute(tiles):
        last = None
        for tile in tiles:
            power = nl.ndarray((128, COLUMNS), dtype=tile.dtype, buffer=nl.sbuf)
            first = nisa.activation(dst=power, data=tile, op=nl.exp)
            if chained and last != None:  # noqa: E711
                first.depends_on(last)
            last = nisa.tensor_tensor(dst=tile, data1=power, data2=power, op=nl.add)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = []
        for i in range(TILES):
            tile = nl.ndarray((128, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[:, i * COLUMNS : (i + 1) * COLUMNS], **how)
            tiles.append(tile)
        if ordered:
            with nl.no_reorder():
                compute(tiles)
        else:
            compute(tiles)
        for i, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[:, i * COLUMNS : (i + 1) * COLUMNS], src=tile)
        return out

    return kernel


def _busy_us(kernel, engine):
    return nkisim.profile(kernel, SPEC).engines[engine].busy_us


@pytest.mark.parametrize("how", [{"ordered": True}, {"chained": True}])
def test_engines_take_turns_where_the_kernel_asks_for_the_order(how):
    """Vector and Scalar overlap, unless each step waits for the one before."""
    free, asked = nkisim.profile(_kernel(), SPEC), nkisim.profile(_kernel(**how), SPEC)
    scalar = free.engines["Scalar"].busy_us
    assert asked.body_us > free.body_us + scalar / TILES
    alone = free.engines["Vector"].busy_us + scalar
    assert asked.body_us > alone
    x = np.linspace(-1, 1, 128 * TILES * COLUMNS, dtype=np.float32).reshape(SPEC.shape)
    assert np.array_equal(_kernel()(x), _kernel(**how)(x))


def test_the_engine_that_a_kernel_names_starts_its_transfers():
    trigger = nkisim.machine.GEN3.timing.dma.trigger_ns / 1e3
    hwdge = nisa.dge_mode.hwdge
    by_sync = _kernel(dge_mode=hwdge, engine=nisa.engine.sync)
    by_scalar = _kernel(dge_mode=hwdge, engine=nisa.engine.scalar)
    fewer = _busy_us(by_sync, "Sync") - _busy_us(by_scalar, "Sync")
    assert fewer == pytest.approx(TILES * trigger)
    more = _busy_us(by_scalar, "Scalar") - _busy_us(by_sync, "Scalar")
    assert more > 0.99 * TILES * trigger


def test_descriptors_are_generated_where_the_kernel_says():
    usual = _kernel()
    by_software = _kernel(dge_mode=nisa.dge_mode.swdge)
    in_memory = _kernel(dge_mode=nisa.dge_mode.none)
    assert _busy_us(usual, "GpSimd") == 0
    assert _busy_us(by_software, "GpSimd") > 0
    assert _busy_us(by_software, "Sync") < _busy_us(usual, "Sync")
    assert _busy_us(in_memory, "Sync") < _busy_us(usual, "Sync")
    assert _busy_us(in_memory, "GpSimd") == 0
