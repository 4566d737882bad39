"""Figures: valid inline SVG that follows the page's colours, equal in every run, with a text."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import nkisim
from kernels.add import nki_tensor_add_kernel
from nkibook import plots
from nkibook.bench import Kind, Record, dma_bound, format_seconds, modelled, published
from nkibook.plots import times
from nkibook.plots.figure import plain_number

SVG = "{http://www.w3.org/2000/svg}"


def line_figure(alt: str = "A line.", data: tuple[int, ...] = (1, 2, 3), **kwargs: str):
    fig, axes = plots.subplots()
    axes.plot(data, marker="o")
    axes.set_xlabel("size")
    return plots.show(fig, alt, **kwargs)


def texts(figure: plots.Figure) -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.fromstring(figure.svg).iter(f"{SVG}text")]


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
    assert [t.get_text() for t in axes.texts] == [f"instance {t[4]}" for t in QUARTERS]


def test_a_tile_too_narrow_for_the_name_of_its_instance_has_the_program_id():
    _, axes = plots.subplots()
    plots.draw_tiles(axes, (300, 700), [(0, 128, 0, 512, (0, 0)), (0, 128, 512, 700, (0, 1))])
    assert [t.get_text() for t in axes.texts] == ["(0, 0)", "(0, 1)"]


def test_tiles_of_one_owner_share_a_color():
    _, axes = plots.subplots()
    halves = [(0, 5, 0, 7, "NeuronCore 0"), (5, 9, 0, 7, "NeuronCore 0")]
    assert len(plots.draw_tiles(axes, (9, 7), halves)) == 1


def test_tile_grid_describes_itself():
    figure = plots.tile_grid((256, 1024), QUARTERS, name="a_input")
    assert "a_input of 256x1024 cut in 4 tiles of 128x512" in figure.alt
    assert "instance (1, 0): rows 128 to 255, columns 0 to 511" in figure.alt


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


def test_what_is_said_of_several_records_is_said_once():
    first, second = (published(label, 1e-6, source="a paper") for label in ("first", "second"))
    other = published("other", 1e-6, source="a talk")
    assert plots.timing([first, other, second]).caption == (
        f"“first”, “second”: {first.origin}. “other”: {other.origin}."
    )
    one, three = (modelled(str(n), *[profiled(128)] * n) for n in (1, 3))
    assert plots.timing([three, one]).caption == (
        f"{one.caption} “3”: 3 kernels one after another."
    )


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


def spec(rows: int, cols: int) -> nkisim.TensorSpec:
    return nkisim.TensorSpec((rows, cols), np.dtype(np.float32))


@cache
def profiled(rows: int) -> nkisim.Timeline:
    return nkisim.profile(nki_tensor_add_kernel[rows // 128, 1], spec(rows, 512), spec(rows, 512))


def add_records(rows: int) -> dict[str, Record]:
    return {
        "NKI kernel": modelled("NKI kernel", profiled(rows)),
        "DMA bound": dma_bound(2 * 4 * 512 * rows, 4 * 512 * rows),
    }


def test_a_bound_is_a_line_across_the_bars_that_says_what_it_is():
    kernel, bound = add_records(128).values()
    figure = plots.timing([bound, kernel])
    assert "time, µs (modelled by nkisim)" in figure.svg
    legend = " ".join(texts(figure))
    assert (
        "DMA bound and launch: 18.4 µs (0.524 MB in at 272 GB/s, 0.262 MB out at 286, and 15.6 µs "
        "of launch, from published rates)" in legend
    )
    assert "stroke-dasharray" in figure.svg
    # One bar, one bound: only the kernel has a row.
    assert "NKI kernel" in texts(figure)
    assert "DMA bound" not in texts(figure)


def test_several_bounds_differ_in_their_dashes():
    kernel, bound = add_records(128).values()

    def dashes(*bounds):
        svg = plots.timing([kernel, kernel, kernel, *bounds]).svg
        return set(re.findall(r"stroke-dasharray: ([\d., ]+)", svg))

    assert len(dashes(bound)) == 1
    assert len(dashes(bound, replace(bound, label="of half the bytes"))) == 2


def test_bars_of_every_kind_differ_in_colour_or_hatch_and_are_named():
    device = replace(host_record("device"), kind=Kind.DEVICE)
    modelled_add = add_records(128)["NKI kernel"]
    records = [host_record("host"), device, modelled_add, published("p", 19e-6, source="a paper")]
    figure = plots.timing(records)
    for kind in (Kind.HOST, Kind.DEVICE, Kind.MODELLED, Kind.PUBLISHED):
        assert any(str(kind) in text for text in texts(figure)), kind
    looks = [times._LOOK[kind] for kind in (Kind.HOST, Kind.DEVICE, Kind.MODELLED, Kind.PUBLISHED)]
    assert len(set(looks)) == 4


def test_the_alternative_text_has_fixed_times_and_no_measured_one():
    kernel, bound = add_records(128).values()
    alt = plots.timing([host_record("host"), kernel, bound]).alt
    assert f"NKI kernel {format_seconds(kernel.median)} (modelled by nkisim)" in alt
    assert "host (measured: wall clock on CPU host)" in alt
    assert "DMA bound and launch 18.4 µs" in alt
    assert "host 3 µs" not in alt


def test_only_bounds_make_no_bars():
    with pytest.raises(ValueError, match="all bounds"):
        plots.timing([dma_bound(100, 0)])


def test_a_sweep_of_one_kind_names_it_on_the_axis():
    curve = {rows: add_records(rows)["NKI kernel"] for rows in (128, 256)}
    figure = plots.sweep({"NKI kernel": curve}, xlabel="rows of 512 elements")
    assert "latency, µs (modelled by nkisim)" in texts(figure)
    assert "rows of 512 elements, logarithmic axis" in texts(figure)
    ends = [format_seconds(curve[rows].median) for rows in (128, 256)]
    assert f"NKI kernel {ends[0]} at 128 to {ends[1]} at 256 (modelled by nkisim)" in figure.alt


def test_a_sweep_of_several_kinds_names_them_in_the_legend():
    rows = (128, 256)
    figure = plots.sweep(
        {label: {n: add_records(n)[label] for n in rows} for label in add_records(128)}
        | {"a student's": {200: published("add", 19e-6, source="a paper")}},
        xlabel="rows",
    )
    assert "latency, µs" in texts(figure)
    for text in (
        "NKI kernel: modelled by nkisim",
        "DMA bound: from published rates",
        "a student's: published (a paper)",
    ):
        assert text in texts(figure)


def test_sizes_near_each_other_are_labelled_in_powers_of_two():
    def figure(*sizes):
        return plots.sweep({"add": {n: host_record("add") for n in sizes}}, xlabel="rows")

    assert {"128", "256", "1,024"} <= set(texts(figure(128, 256, 1024)))
    assert "256" not in texts(figure(128, 1024 * 1024))
    # Long numbers would run into each other: round ones are written, in short.
    large = set(texts(figure(2**19, 2**20, 2**24)))
    assert {"1M", "2M", "10M"} <= large
    assert "1,048,576" not in large


def test_logarithmic_axes_have_no_exponents_which_would_be_small_on_a_phone():
    fig, axes = plots.subplots()
    axes.loglog([1e-7, 1e-2, 1e5], [1e-1, 1e3, 1e9])
    figure = plots.show(fig, "A line.")
    assert {"1e-7", "0.001", "1k", "100k", "1G"} <= set(texts(figure))
    assert "<tspan" not in figure.svg  # parts of a text in another size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.001, "0.001"),
        (2e-5, "2e-5"),
        (500, "500"),
        (20_000, "20k"),
        (-4e6, "-4M"),
        (1e9, "1G"),
    ],
)
def test_numbers_of_axes_are_short(value, text):
    assert plain_number(value) == text


def test_a_measured_curve_has_no_number_in_the_alternative_text():
    figure = plots.sweep({"add": {1: host_record("add"), 2: host_record("add")}}, xlabel="rows")
    assert figure.alt == (
        "Latency against rows, on logarithmic axes: add (measured: wall clock on CPU host)."
    )


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ({}, "curves is empty"),
        ({"add": {}}, "curve 'add' has no point"),
        ({"add": {0: host_record("add")}}, "curve 'add' has size 0"),
        (
            {"add": {1: host_record("add"), 2: dma_bound(5, 0)}},
            "curve 'add' mixes from published rates, measured",
        ),
    ],
)
def test_a_sweep_that_cannot_be_drawn_is_refused(curves, message):
    with pytest.raises(ValueError, match=message):
        plots.sweep(curves, xlabel="rows")


def test_an_engine_timeline_says_that_it_is_modelled():
    figure = plots.timeline(profiled(128))
    assert "modelled by nkisim, not measured" in texts(figure)
    assert "Vector" in figure.alt


@pytest.mark.parametrize("label", ["time, µs", "latency (us)", "Duration in ms", "seconds"])
def test_times_without_an_origin_are_refused(label):
    fig, axes = plots.subplots()
    axes.plot([1, 2])
    axes.set_ylabel(label)
    with pytest.raises(ValueError, match="measured, modelled or published"):
        plots.show(fig, "A line.")
    axes.set_title("modelled by nkisim")
    assert plots.show(fig, "A line.")


@pytest.mark.parametrize("label", ["size, MB", "columns of a tile", "status", "timeline"])
def test_other_axes_need_no_origin(label):
    fig, axes = plots.subplots()
    axes.set_xlabel(label)
    assert plots.show(fig, "Nothing.")


def test_text_on_every_fill_has_enough_contrast():
    # 4.5 to 1 is what WCAG 2.1 asks of text (success criterion 1.4.3).
    def luminance(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    from nkibook.plots.figure import text_color

    for fill in plots.COLORS.values():
        light, dark = sorted((luminance(fill), luminance(text_color(fill))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, fill


# Several figures in the place of one.


def small(title: str) -> plots.Figure:
    fig, axes = plots.subplots()
    line = axes.scatter([0, 1], [0, 1])
    line.hover_titles = [f"{title}: first", f"{title}: second"]
    return plots.show(fig, alt=f"A small figure of {title}")


def test_marks_tell_their_titles():
    root = ElementTree.fromstring(small("two points").svg)
    titles = [t.text for t in root.iter(f"{SVG}title")]
    assert titles == [
        "A small figure of two points",
        "two points: first",
        "two points: second",
    ]


def test_timelines_have_one_axis_and_a_title_a_block():
    pair = plots.timelines(profiled(512), profiled(2048), titles=["few", "many"])
    first, second = (ElementTree.fromstring(figure.svg) for figure in pair.figures)
    for root in (first, second):
        titles = [t.text for t in root.iter(f"{SVG}title")]
        assert any(
            re.match(r"(?:\d+ x )?load \(.+:\d+.*\): [\d.]+ to [\d.]+ µs", t) for t in titles
        )
    ticks = [[t for t in texts(figure) if re.fullmatch(r"[\d.]+", t)] for figure in pair.figures]
    assert ticks[0] == ticks[1]


def test_a_choice_shows_one_at_a_time_without_a_script():
    choice = plots.Choice({"a & b": small("a"), "c": small("c")}, "letters", start="c")
    page = BeautifulSoup(choice._repr_html_(), "html.parser")
    buttons = page.select("input[type=radio]")
    assert len({button["name"] for button in buttons}) == 1
    assert [button.has_attr("checked") for button in buttons] == [False, True]
    labels = {label["for"]: label.get_text() for label in page.find_all("label")}
    assert [labels[button["id"]] for button in buttons] == ["a & b", "c"]
    styles = "".join(style.get_text() for style in page.find_all("style"))
    for button, panel in zip(buttons, page.select(".nki-panel"), strict=True):
        assert f"#{button['id']}:checked~.{panel['class'][1]}{{display:block}}" in styles
    assert not page.find_all("script")


@pytest.mark.parametrize(("options", "start"), [({}, None), ({"a": 1}, None), ({"a": 1}, "b")])
def test_a_choice_of_nothing_is_refused(options, start):
    options = {name: small(name) for name in options}
    with pytest.raises(ValueError, match=r"options has|start is"):
        plots.Choice(options, "letters", start=start)


def test_frames_move_and_the_last_one_is_the_still():
    moving = plots.Moving([small("one"), small("two")], "two frames")
    page = BeautifulSoup(moving._repr_html_(), "html.parser")
    assert len(page.select(".nki-stack > div")) == 2
    assert page.select_one("input[type=checkbox]")["aria-label"] == "Play: two frames"
    assert repr(moving) == "two frames, 2 frames. The last one: Figure: A small figure of two"
    with pytest.raises(ValueError, match="frames"):
        plots.Moving([small("one")], "one frame")


def test_programs_shows_two_buttons_for_each_framework():
    class Module:
        def __init__(self, name):
            self.name = name

        @property
        def after(self):
            return Module(f"{self.name} optimised")

        def diff(self, other, captions):
            return Shown(f"{captions[0]} {self.name} | {captions[1]} {other.name}")

    class Shown:
        def __init__(self, text):
            self.text = text

        def _repr_html_(self):
            return f"<p>{self.text}</p>"

    programs = plots.Programs({"A": (Module("a"), Module("b"))}, captions=("old", "new"))
    html = programs._repr_html_()
    assert "<p>old a | new b</p>" in html
    assert "<p>old a optimised | new b optimised</p>" in html
    assert re.findall(r"<label[^>]*>([^<]*)", html) == ["A, before XLA", "A, after XLA"]
    assert repr(programs) == "HLO of A, before and after XLA's optimisation: old, and new"
