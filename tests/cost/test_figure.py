"""Pictures of timelines: what they say is said whole, at any usual size."""

from __future__ import annotations

import dataclasses
import itertools
import re
import warnings

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.machine import GEN2, GEN3
from nkisim.report import figure
from nkisim.report.figure import alt_text
from nkisim.report.report import shortened
from nkisim.report.times import MODELLED
from nkisim.runtime import profiling as model

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg

NAME = "a_kernel_with_a_very_long_name_that_describes_all_that_it_does_in_many_words_version_2"


@nki.jit
def busy(x):
    """Something for all engines."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        tile = nl.load(x[rows])
        copied = nl.exp(nisa.tensor_copy(tile, engine=nisa.gpsimd_engine))
        turned = nl.copy(nisa.nc_transpose(copied))
        nl.store(out[rows], nl.add(turned, tile))
    return out


@nki.jit
def stored_twice(x, w):
    """A load on all queues, stores on few of them: queues are not level."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    copy = nl.ndarray(w.shape, w.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        nl.store(out[rows], nl.exp(nl.load(x[rows])))
    nl.store(copy, nl.load(w))
    return out, copy


@nki.jit
def moved(x, columns):
    """Copies of strips of so many columns."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // columns):
        strip = nl.ds(i * columns, columns)
        nl.store(out[:, strip], nl.load(x[:, strip]))
    return out


@pytest.mark.parametrize(("core", "shown"), [(GEN3, True), (GEN2, False)])
def test_sync_has_a_row_where_starting_transfers_takes_long(core, shown):
    x = nkisim.TensorSpec((128, 8192), np.dtype(np.float32))
    t = nkisim.profile(moved.on(core), x, 512)
    assert (t.engines["Sync"].utilisation >= 0.1) == shown
    rows = [label.get_text() for label in t.plot().axes[0].get_yticklabels()]
    assert any(row.startswith("Sync") for row in rows) == shown
    assert ("Sync" in alt_text(t)) == shown


@pytest.fixture(scope="module")
def trace():
    x = nkisim.TensorSpec((1024, 128), np.dtype(np.float32))
    return model.trace_of(busy, x).program.trace


@pytest.mark.parametrize(
    ("size", "name"), [*itertools.product([None, (3, 2), (3, 4), (10, 4)], ["busy", NAME])]
)
def test_all_text_is_in_the_figure(trace, size, name):
    t = model.timeline(dataclasses.replace(trace, name=name))
    figure = t.plot() if size is None else t.plot(size=size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FigureCanvasAgg(figure).draw()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert 0 <= box.x0 < box.x1 <= width
    assert 0 <= box.y0 < box.y1 <= height
    first, *rest = figure.axes[0].get_title(loc="left").split("\n")
    assert first.endswith(f": {t.latency_us:.1f} µs with launch")
    assert " ".join(rest) == t.kind
    shown = first.split(":")[0]
    assert len(shown) >= min(len(name), 12)
    assert shown == shortened(name, len(shown))


def test_a_title_of_ones_own_is_wrapped(trace):
    title = "All engines at once, which takes a title that is longer than a narrow figure is wide"
    figure = model.timeline(trace).plot(size=(3, 2), title=title)
    lines = figure.axes[0].get_title(loc="left").split("\n")
    assert " ".join(lines) == f"{title} {MODELLED}"
    assert (
        model.timeline(trace).plot(size=(20, 2), title=title).axes[0].get_title(loc="left")
        == f"{title}\n{MODELLED}"
    )


@pytest.mark.parametrize(
    ("kernel", "shapes"), [(busy, [(1024, 128)]), (stored_twice, [(512, 512), (1, 4096)])]
)
def test_the_shares_of_loads_and_stores_add_up_to_that_of_the_queues(kernel, shapes):
    t = nkisim.profile(kernel, *(nkisim.TensorSpec(s, np.dtype(np.float32)) for s in shapes))
    labels = [label.get_text() for label in t.plot().axes[0].get_yticklabels()]
    shares = dict(re.fullmatch(r"(.+) (\d+)%", label).groups() for label in labels)
    load, store = int(shares["DMA load"]), int(shares["DMA store"])
    assert load > 0 < store
    assert load + store == pytest.approx(100 * t.engines["DMA queues"].utilisation, abs=1)
    for name in set(shares) - {"DMA load", "DMA store"}:
        assert shares[name] == f"{t.engines[name].utilisation:.0%}"[:-1]


def test_names_are_shortened_in_the_middle():
    assert shortened("my_wonderful_layernorm_version_1", 20) == "my_wonderf…version_1"
    assert shortened("exactly_as_long_as_t", 20) == "exactly_as_long_as_t"
    assert [len(shortened(NAME, n)) for n in (4, 5, 19)] == [4, 5, 19]


def test_blocks_are_as_dense_as_their_engine_is_busy():
    # Tiles of 64 columns, each some instructions that are too short to be seen by themselves.
    t = nkisim.profile(moved, nkisim.TensorSpec((128, 65536), np.dtype(np.float32)), 64)
    for name, bars in figure._tracks(t, 0.0, t.body_us):
        if name in t.engines:
            drawn = sum(bar.length for bar in bars) / t.body_us
            assert drawn == pytest.approx(t.engines[name].utilisation, rel=0.01)
        for bar, after in itertools.pairwise(bars):
            assert bar.end <= after.start + 1e-9


def test_a_block_says_its_instruction_its_line_and_its_time():
    t = nkisim.profile(busy, nkisim.TensorSpec((128, 128), np.dtype(np.float32)))
    (axes,) = t.plot().axes
    said = [title for row in axes.collections for title in row.hover_titles]
    stored = [text for text in said if text.startswith("store")]
    assert stored
    line = next(i for i in t.intervals if i.label == "store").location.lineno
    assert all(f"(test_figure.py:{line})" in text for text in stored)
    assert all(re.search(r": \d+\.\d\d to \d+\.\d\d µs$", text) for text in said)


def test_two_pictures_can_have_one_axis():
    few, many = (
        nkisim.profile(moved, nkisim.TensorSpec((128, n), np.dtype(np.float32)), 512)
        for n in (1024, 4096)
    )
    (axes,) = few.plot(axis_us=many.body_us).axes
    assert axes.get_xlim() == pytest.approx((0, many.body_us))


def test_a_picture_of_a_part_says_so_and_has_no_shares():
    t = nkisim.profile(busy, nkisim.TensorSpec((1024, 128), np.dtype(np.float32)))
    labels = [x.get_text() for x in t.plot(start_us=2, end_us=5).axes[0].get_yticklabels()]
    assert labels
    assert not any("%" in label for label in labels)
    text = alt_text(t, 2, 5)
    assert f"2 to 5 of {t.body_us:.1f} microseconds" in text
    assert "%" not in text
    whole = [x.get_text() for x in t.plot().axes[0].get_yticklabels()]
    assert all(label.endswith("%") for label in whole)
