"""Figures: valid inline SVG that follows the page's colours, equal in every run, with a text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from kernels import plots
from kernels.bench import Kind, Record, published

SVG = "{http://www.w3.org/2000/svg}"


def line_figure(alt: str = "A line.", data: tuple[int, ...] = (1, 2, 3), **kwargs: str):
    fig, axes = plots.subplots()
    axes.plot(data, marker="o")
    axes.set_xlabel("size")
    return plots.show(fig, alt, **kwargs)


def ids(figure: plots.Figure) -> list[str]:
    return [e.get("id") for e in ElementTree.fromstring(figure.svg).iter() if e.get("id")]


@pytest.mark.parametrize("alt", ["", "  \n "])
def test_a_figure_without_alternative_text_is_refused(alt):
    fig, _ = plots.subplots()
    with pytest.raises(ValueError, match="says what it shows"):
        plots.show(fig, alt)


def test_plain_text_is_the_alternative_text_only():
    figure = line_figure("Time by\n  size.", caption="measured on 2026-11-21")
    assert repr(figure) == "Figure: Time by size."


def test_svg_is_labelled_and_follows_the_page():
    figure = line_figure("Time by size.")
    root = ElementTree.fromstring(figure.svg)
    assert root.tag == f"{SVG}svg"
    assert (root.get("role"), root.get("aria-label")) == ("img", "Time by size.")
    assert root[0].tag == f"{SVG}title"
    assert root[0].text == "Time by size."
    assert root.get("viewBox")
    assert root.get("width") is None
    assert root.get("fill") == "currentColor"
    assert "currentColor" in figure.svg.replace('fill="currentColor"', "", 1)
    # Nothing is painted in fixed black, or in white behind the picture.
    assert not re.search(r"#000000|#ffffff|#fff\b|\bblack\b|\bwhite\b", figure.svg)


def test_axis_text_stays_text():
    texts = {"".join(e.itertext()) for e in ElementTree.fromstring(line_figure().svg).iter()}
    assert "size" in texts


def test_svg_carries_nothing_that_leaks_or_dates_it():
    tags = {e.tag.split("}")[1] for e in ElementTree.fromstring(line_figure().svg).iter()}
    assert not tags & {"style", "metadata", "script"}
    assert "<?xml" not in line_figure().svg


def test_same_figure_gives_the_same_html():
    assert line_figure()._repr_html_() == line_figure()._repr_html_()


def test_ids_are_unique_and_links_resolve():
    one, other = line_figure(data=(1, 2, 3)), line_figure(data=(1, 2, 4))
    assert len(ids(one)) == len(set(ids(one))) > 0
    assert not set(ids(one)) & set(ids(other))
    links = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', one.svg)
    assert links
    assert {a or b for a, b in links} <= set(ids(one))


@given(alt=st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1))
def test_any_text_is_escaped(alt):
    text = " ".join(alt.split())
    if not text:
        return
    figure = plots.Figure("<svg/>", text, caption=alt, width=600)
    seen: dict[str, list] = {"tags": [], "data": []}

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen["tags"].append(tag)

        def handle_data(self, data):
            seen["data"].append(data)

    reader = Reader()
    reader.feed(figure._repr_html_())
    reader.close()
    assert seen["tags"] == ["figure", "style", "svg", "figcaption"]
    assert "".join(seen["data"][1:]) == alt


def test_markup_in_the_alternative_text_is_escaped_in_the_svg():
    root = ElementTree.fromstring(line_figure('a < b & "c"').svg)
    assert root.get("aria-label") == 'a < b & "c"'


QUARTERS = [
    (row, row + 128, col, col + 512, (row // 128, col // 512))
    for row in (0, 128)
    for col in (0, 512)
]


def test_tiles_lie_where_the_trace_says():
    _, axes = plots.subplots()
    colors = plots.draw_tiles(axes, (256, 1024), QUARTERS)
    drawn = {
        (p.get_y(), p.get_y() + p.get_height(), p.get_x(), p.get_x() + p.get_width()): to_hex(
            p.get_facecolor()
        )
        for p in axes.patches
        if isinstance(p, Rectangle)
    }
    assert drawn == {tile[:4]: colors[tile[4]] for tile in QUARTERS}
    assert len(set(colors.values())) == 4
    assert axes.get_ylim() == (256, 0)
    assert [t.get_text() for t in axes.texts] == [f"program {t[4]}" for t in QUARTERS]


def test_tiles_of_one_owner_share_a_color():
    _, axes = plots.subplots()
    halves = [(0, 5, 0, 7, "NeuronCore 0"), (5, 9, 0, 7, "NeuronCore 0")]
    assert len(plots.draw_tiles(axes, (9, 7), halves)) == 1


def test_tile_grid_describes_itself():
    figure = plots.tile_grid((256, 1024), QUARTERS, name="a_input")
    assert "a_input of 256x1024 cut in 4 tiles of 128x512" in figure.alt
    assert "program (1, 0): rows 128 to 255, columns 0 to 511" in figure.alt


def test_labels_that_cannot_be_read_give_way_to_a_legend():
    tiles = [(row, row + 1, 0, 8, row % 2) for row in range(200)]
    figure = plots.tile_grid((200, 8), tiles, owner="NeuronCore {}".format)
    assert figure.svg.count(">NeuronCore 0<") == 1


@pytest.mark.parametrize(
    "tile", [(0, 0, 0, 4, 0), (0, 5, 0, 4, 0), (-1, 2, 0, 4, 0), (2, 1, 0, 4, 0), (0, 1, 3, 5, 0)]
)
def test_a_tile_outside_of_the_array_is_refused(tile):
    with pytest.raises(ValueError, match=re.escape(f"tile {tile!r} does not lie")):
        plots.tile_grid((4, 4), [tile])


def test_memory_bar_says_how_much_is_used():
    figure = plots.memory_bar({"a": 2, "b": 4}, 192, unit="KiB a partition", name="SBUF")
    assert "6 of 192 KiB a partition used" in figure.alt


@pytest.mark.parametrize(("parts", "capacity"), [({"a": -1}, 4), ({"a": 1}, 0)])
def test_memory_bar_refuses_impossible_sizes(parts, capacity):
    with pytest.raises(ValueError, match="size"):
        plots.memory_bar(parts, capacity, unit="KiB", name="SBUF")


def host_record(label: str) -> Record:
    return Record(
        label=label,
        kind=Kind.HOST,
        samples=(2e-6, 3e-6, 4e-6),
        how="by hand",
        machine="an abacus",
        versions={"beads": "1.2"},
        date="2026-11-21",
    )


def test_one_kind_of_time_is_named_on_the_axis():
    figure = plots.timing([host_record("add")])
    assert "time, µs (measured: wall clock on CPU host)" in figure.svg


def test_several_kinds_of_time_are_named_in_a_legend():
    records = [host_record("add"), published("add on trn1", 19e-6, source="a paper")]
    figure = plots.timing(records)
    assert "time, µs<" in figure.svg
    assert "measured: wall clock on CPU host" in figure.svg
    assert "published (a paper)" in figure.svg


def test_times_far_apart_share_a_logarithmic_axis_that_says_so():
    near = [host_record("add"), published("near", 100e-6, source="a paper")]
    far = [host_record("add"), published("far", 300e-6, source="a paper")]
    assert "logarithmic" not in plots.timing(near).svg
    assert "logarithmic axis" in plots.timing(far).svg


def test_circumstances_are_in_the_caption_and_not_in_the_plain_text():
    figure = plots.timing([host_record("add")])
    for circumstance in ("an abacus", "beads 1.2", "2026-11-21"):
        assert circumstance in figure.caption
        assert circumstance not in repr(figure)


def test_samples_far_beyond_the_medians_are_counted_and_not_drawn():
    calm = host_record("calm")
    wild = Record(label="wild", kind=Kind.HOST, samples=(1e-6, 1e-6, 9e-3, 8e-3, 1e-6), how="m")
    figure = plots.timing([calm, wild])
    assert "time, µs" in figure.svg
    assert ">2 beyond<" in figure.svg
    assert figure.svg.count("beyond") == 1


def test_timing_needs_a_record():
    with pytest.raises(ValueError, match="records is empty"):
        plots.timing([])


def test_text_on_every_fill_has_enough_contrast():
    # 4.5 to 1 is what WCAG 2.1 asks of text (success criterion 1.4.3).
    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    from kernels.plots.figure import text_color

    for fill in plots.COLORS.values():
        light, dark = sorted((luminance(fill), luminance(text_color(fill))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, fill
