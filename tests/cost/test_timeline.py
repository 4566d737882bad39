"""What users see: figures, findings, exports, and the SDK's result objects."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
import tempfile
from collections import Counter
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import spec

import nkisim
from nkibook.records import dma_bound
from nkibook.validation import elementwise, mamba, vector_add
from nkisim.errors import ParameterError
from nkisim.machine import GEN4
from nkisim.report import figure
from nkisim.report.times import MODELLED, Interval


@pytest.fixture(scope="module")
def timeline():
    row, plane = spec(1, 16, 1024), spec(1, 128, 1024)
    return nkisim.profile(mamba.mamba_v2, plane, plane, spec(128, 16), row, row)


@pytest.mark.parametrize(
    ("dtype", "itemsize"), [(np.float32, 4), (nl.float32, 4), (nl.bfloat16, 2), (np.int8, 1)]
)
def test_a_type_is_an_argument_like_any_other(dtype, itemsize):
    @nki.jit
    def cast(x, to):
        out = nl.ndarray(x.shape, dtype=to, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nl.load(x), dtype=to))
        return out

    assert nkisim.profile(cast, spec(8, 64), dtype).hbm_bytes == 8 * 64 * (4 + itemsize)


def test_a_tensor_type_stands_for_a_tensor():
    """As in the SDK's examples of nki.benchmark."""
    given = nt.tensor[[256, 512], nl.float32], nt.mutable_tensor[[256, 512], nl.float32]

    @nki.benchmark(warmup=2, iters=3)
    def negate(x, y):
        for i in nl.affine_range(2):
            nl.store(y[i * 128 : i * 128 + 128], nl.negative(nl.load(x[i * 128 : i * 128 + 128])))

    negate(*given)
    latency = negate.benchmark_result.nc_latency.get_latency_percentile(99)
    assert latency == nkisim.profile(negate, *given).latency_us
    assert latency == nkisim.profile(negate, spec(256, 512), spec(256, 512)).latency_us


@pytest.mark.parametrize(
    ("given", "missing"), [(nt.tensor, "shape"), (nt.tensor[128, 512], "dtype")]
)
def test_a_tensor_type_has_a_shape_and_a_dtype(given, missing):
    def negate(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(y, nl.negative(nl.load(x)))
        return y

    with pytest.raises(ParameterError, match=f"type tensor without a {missing}"):
        nkisim.profile(negate, given)


def test_bytes_and_operations_are_counted():
    n = 128 * 1000 * 2
    t = nkisim.profile(vector_add.add_tiles, spec(n), spec(n), 1000)
    assert t.hbm_bytes == 3 * 4 * n
    assert t.flops == n
    assert t.latency_us == pytest.approx(t.body_us + 15.6)
    # Two parts loaded, one stored.
    peak = 16 * 3 / (2 / 17 + 1 / 17.9)
    assert t.bandwidth_gb_per_s < t.peak_bandwidth_gb_per_s == pytest.approx(peak)


def test_no_kernel_beats_its_roofline(timeline):
    name, floor = timeline.roofline
    assert name == "Vector"
    assert 0 < floor <= timeline.bound.busy_us <= timeline.body_us
    assert 0 < timeline.roofline_fraction <= timeline.bound_fraction <= 1
    for use in timeline.engines.values():
        assert 0 <= use.utilisation <= 1 + 1e-9
        assert use.data_us <= use.busy_us + 1e-9
    for use in timeline.queues:
        assert 0 <= use.utilisation <= 1
        assert use.data_us <= use.busy_us + 1e-9


def test_latency_grows_with_size():
    times = [nkisim.profile(elementwise.exp, spec(128 * k, 2048)).latency_us for k in (1, 2, 4, 8)]
    assert times == sorted(times)
    assert times[-1] < 8 * times[0]  # launch overhead is paid once


def test_findings_name_the_line_and_the_gain(timeline):
    first, *gains = timeline.findings
    assert "Vector Engine busy" in first.text
    two = next(f for f in gains if "two-input" in f.text)
    assert "2 cycles an element" in two.text
    assert two.location.filename.endswith("mamba.py")
    assert 0 < two.gain_us < timeline.latency_us
    assert "modelled" in str(two)


def test_a_line_of_a_notebook_cell_is_not_the_number_of_a_cell(timeline):
    notebook = "/tmp/ipykernel_12/345.py"  # IPython's name for the source of a cell
    cell = timeline.findings[1].location._replace(filename=notebook, lineno=7)
    assert "[cell line 7]" in str(timeline.findings[1]._replace(location=cell))
    assert str(cell).startswith("notebook cell, line 7 in ")


def test_findings_see_short_runs():
    @nki.jit
    def columns(x):
        out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[:, 0:2048:4]))
        return out

    t = nkisim.profile(columns, spec(128, 2048))
    (short,) = [f for f in t.findings if "runs of 4 bytes" in f.text]
    assert short.gain_us > 0.5 * t.body_us


def test_a_small_kernel_is_told_of_the_launch():
    t = nkisim.profile(elementwise.exp, spec(128, 64))
    assert "launch overhead" in t.findings[0].text


def test_critical_path_is_a_chain_in_time(timeline):
    path = timeline.critical_path
    assert path[0].start_us == 0
    assert path[-1].end_us == pytest.approx(timeline.body_us)
    for a, b in itertools.pairwise(path):
        assert a.start_us <= b.start_us
        assert a.end_us == pytest.approx(b.start_us)


def test_lines_add_up_to_the_engines(timeline):
    for name in ("Vector", "Scalar", "Tensor"):
        total = sum(r.busy_us for r in timeline.lines if r.resource == name)
        assert total == pytest.approx(timeline.engines[name].busy_us)


def test_text_says_that_it_is_modelled(timeline):
    other = nkisim.profile(elementwise.exp, spec(250, 512))
    outputs = [timeline.table(), str(timeline), repr(timeline), timeline._repr_html_(),
               timeline.compare(other)]  # fmt: skip
    for text in outputs:
        assert MODELLED in text
    assert re.search(r"mamba\.py:\d+", timeline.table())
    assert "elementwise" not in timeline.compare(other)
    assert "exp" in timeline.compare(other)


@pytest.mark.parametrize(
    ("names", "headings"),
    [
        (("narrow", "wide"), ("    narrow", "      wide")),
        (("a_name_of_14__", "b"), ("a_name_of_14__", "             b")),
        (("exactly_as_long_as_t", "b"), ("exactly_as_long_as_t", f"{'b':>20}")),
        (
            ("my_wonderful_layernorm_version_1", "my_wonderful_layernorm_version_2"),
            ("my_wonderf…version_1", "my_wonderf…version_2"),
        ),
        (("big", "big"), ("   big (1)", "   big (2)")),
        (
            ("layernorm_in_bfloat16_rows_forward", "layernorm_in_float32_rows_forward"),
            ("layernor…forward (1)", "layernor…forward (2)"),
        ),
    ],
)
def test_headings_tell_the_kernels_apart(timeline, names, headings):
    first, second = (copy.copy(timeline) for _ in names)
    first.kernel, second.kernel = names
    kind, head, chips, *rows = first.compare(second).splitlines()
    assert kind == MODELLED
    assert chips.split() == ["NeuronCore", "v2", "v2", "-"]
    assert len(chips) == len(head)
    assert head.endswith(f" {headings[0]} {headings[1]}  ratio")
    for row in rows:
        assert len(row) == len(head)
        assert row.endswith("  1.00")


def few_rows(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x))
    return y


def test_perfetto_trace_holds_every_interval(timeline, tmp_path):
    path = tmp_path / "trace.json"
    timeline.to_perfetto(path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(timeline.intervals)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    busy = sum(e["dur"] for e in spans if names[e["tid"]] == "Vector")
    assert busy == pytest.approx(timeline.engines["Vector"].busy_us)
    count = sum(e["args"]["instructions"] for e in spans if names[e["tid"]] == "Vector")
    assert count == timeline.engines["Vector"].instructions
    assert MODELLED in events[0]["args"]["name"]


@nki.jit
def uneven(x, w, rows):
    """Tiles on all queues, and a few rows on as many: queues are not level."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    doubled = nl.ndarray(w.shape, w.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        few = nl.load(w[nl.ds(i * rows, rows)])
        tile = nl.load(x[nl.ds(i * 128, 128)])
        nl.store(doubled[nl.ds(i * rows, rows)], nl.multiply(few, 2.0))
        nl.store(out[nl.ds(i * 128, 128)], nl.exp(tile))
    return out, doubled


def threads_of(t):
    """The threads of a trace, in order, each with its spans."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        t.to_perfetto(path)
        events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(set(names.values())) == len(names)
    return {
        names[tid]: [e for e in spans if e["tid"] == tid] for tid in sorted(names, key=order.get)
    }


def assert_apart(threads):
    """Complete events of a thread must not overlap partly; these do not at all."""
    for spans in threads.values():
        for a, b in itertools.pairwise(sorted(spans, key=lambda e: e["ts"])):
            assert a["ts"] + a["dur"] <= b["ts"]
            ns = [math.floor(1000 * us) for us in (a["ts"], a["dur"], b["ts"])]
            assert ns[0] + ns[1] <= ns[2]  # as readers add them that keep whole nanoseconds


@pytest.mark.parametrize(
    ("rows", "columns", "overlap"), [(1, 1000, True), (3, 64, True), (128, 512, False)]
)
def test_what_overlaps_in_a_kernel_is_on_several_threads(rows, columns, overlap):
    t = nkisim.profile(uneven, spec(1024, columns), spec(8 * rows, columns), rows)
    threads = threads_of(t)
    assert list(threads)[:6] == ["Tensor", "Vector", "Scalar", "GpSimd", "Sync", "DMA"]
    assert ("DMA (2)" in threads) == overlap
    assert_apart(threads)
    found = Counter(re.sub(r" \(\d+\)$", "", n) for n, spans in threads.items() for _ in spans)
    assert found == Counter(i.track for i in t.intervals)


@given(
    st.lists(st.integers(0, 10**5), min_size=2, max_size=20),
    st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**5))),
)
def test_no_intervals_overlap_on_a_thread(times, others):
    back_to_back = itertools.pairwise(sorted(times))
    ends = [(min(ns) / 1e3, max(ns) / 1e3) for ns in (*back_to_back, *others)]
    t = nkisim.profile(few_rows, spec(128, 64))
    t.intervals = sorted(Interval("DMA", "load", *pair, None) for pair in ends)
    threads = threads_of(t)
    assert sum(map(len, threads.values())) == len(ends)
    assert_apart(threads)


def test_a_transfer_on_all_queues_is_one_interval():
    found = nkisim.profile(vector_add.add_tiles, spec(25600), spec(25600), 200)
    transfers = [i for i in found.intervals if i.track.startswith("DMA")]
    assert [i.track for i in transfers] == ["DMA"] * 3  # of 128 partitions
    few = nkisim.profile(few_rows, spec(3, 64))
    assert [i.track for i in few.intervals if i.label == "load"] == ["DMA 0", "DMA 1", "DMA 2"]


def test_each_queue_has_its_own_figures():
    t = nkisim.profile(uneven, spec(1024, 64), spec(24, 64), 3)
    for q, use in enumerate(t.queues):
        assert use.name == f"DMA {q}"
        mine = [i for i in t.intervals if i.track in (use.name, "DMA")]
        assert use.instructions == len(mine)
        assert use.busy_us <= sum(i.end_us - i.start_us for i in mine) + 1e-9
        assert use.utilisation == pytest.approx(use.busy_us / t.body_us)
    every = t.engines["DMA queues"]
    assert every.busy_us == max(use.busy_us for use in t.queues)
    assert every.data_us == pytest.approx(sum(use.data_us for use in t.queues) / len(t.queues))


def test_a_path_through_the_engine_that_starts_transfers_says_so():
    """A row each, on a queue of its own: Sync cannot start them as fast as they end."""
    t = nkisim.profile(uneven, spec(2048, 8), spec(16, 8), 1)
    path = t.critical_path
    assert any(step.label == "start of load" for step in path)
    for step, after in itertools.pairwise(path):
        if after.why == "engine":
            assert step.resource != "DMA queues"
        assert step.label.startswith("start of ") == (step.resource == "Sync")


def test_plot_has_units_named_rows_and_says_modelled(timeline):
    pytest.importorskip("matplotlib")
    figure = timeline.plot()
    (axes,) = figure.axes
    assert "µs" in axes.get_xlabel()
    assert MODELLED in axes.get_title(loc="left")
    rows = {label.get_text().rsplit(" ", 1)[0] for label in axes.get_yticklabels()}
    assert rows >= {"Vector", "Tensor", "DMA load"}


def test_arrays_and_specs_give_the_same_model():
    a = np.zeros(25600, np.float32)
    with_data = nkisim.profile(vector_add.add_tiles, a, a, 200).latency_us
    assert (
        with_data == nkisim.profile(vector_add.add_tiles, spec(25600), spec(25600), 200).latency_us
    )


def test_two_cores_share_the_instances():
    @nki.jit
    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = slice(nl.program_id(0) * 128, (nl.program_id(0) + 1) * 128)
        nl.store(out[rows], nl.load(x[rows]) * 2.0)
        return out

    x = spec(128 * 8, 4096)
    one, two = (nkisim.profile(double[g], x) for g in ((8,), (nl.spmd_dim(nl.nc(2), 4),)))
    assert (len(one.cores), len(two.cores)) == (1, 2)
    assert two.body_us < 0.7 * one.body_us


@nki.jit
def shared_out(x, first):
    """Tiles of 128 rows: instance 0 takes `first` of them, instance 1 the others."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    own, start = first, 0
    if nl.program_id(0) == 1:
        own, start = x.shape[0] // 128 - first, first
    for i in nl.affine_range(own):
        rows = nl.ds((start + i) * 128, 128)
        nl.store(out[rows], nl.exp(nl.load(x[rows])))
    return out


@pytest.mark.parametrize(
    ("first", "slowest", "uneven"), [(8, 0, False), (7, 1, False), (2, 1, True), (16, 0, True)]
)
def test_a_summary_says_which_of_two_cores_it_is_of(first, slowest, uneven):
    x = spec(128 * 16, 512)
    t = nkisim.profile(shared_out[nl.nc(2)], x, first)
    alone = nkisim.profile(elementwise.exp, spec(128 * max(first, 16 - first), 512))
    assert t.hbm_bytes == alone.hbm_bytes
    assert len(t.cores) == 2
    said = (
        "2 cores share the 48 instructions; bytes, engines and findings are of the slower, "
        f"core {slowest}"
    )
    text = str(t).splitlines()
    assert text[2] == f"  {said}"
    assert said in t._repr_html_()
    times = [core.schedule.span / 1e3 for core in t.cores]
    both = f"core 0 {times[0]:.1f} µs, core 1 {times[1]:.1f} µs"
    line = f"  time of the body: {both}; the launch takes as long as the slower"
    assert (line in text) == uneven
    assert (both in t._repr_html_()) == uneven
    assert times[slowest] == t.body_us
    shown = f"on core {slowest}, the slower of 2"
    assert t.table().startswith(f"shared_out: time of each line, {shown}, {MODELLED}")
    title = t.plot().axes[0].get_title(loc="left")
    assert title.splitlines()[-2:] == [shown, MODELLED]
    assert f"shared_out {shown}," in figure.alt_text(t)


def test_a_summary_of_one_core_says_nothing_of_cores(timeline):
    assert "core " not in str(timeline).lower()
    texts = str(timeline), timeline._repr_html_(), timeline.table(), figure.alt_text(timeline)
    assert not [text for text in texts if re.search(r"\bcores?\b", text)]


def test_benchmark_fills_the_documented_result(capsys):
    @nki.benchmark(warmup=2, iters=5)
    @nki.jit
    def scaled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 3.0)
        return out

    out = scaled(np.ones((128, 64), np.float32))
    latency = scaled.benchmark_result.nc_latency
    values = {latency.get_latency_percentile(p) for p in (0, 1, 10, 25, 50, 90, 99, 100)}
    assert len(values) == 1
    assert values.pop() == nkisim.profile(scaled, spec(128, 64)).latency_us
    assert np.isnan(out).all()  # undefined, as documented
    assert MODELLED in capsys.readouterr().out
    assert MODELLED in repr(latency)
    with pytest.raises(nkisim.KernelError, match="percentile"):
        latency.get_latency_percentile(95)


def test_benchmark_on_a_grid_reports_to_the_kernel():
    @nki.benchmark
    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = slice(nl.program_id(0) * 128, (nl.program_id(0) + 1) * 128)
        nl.store(out[rows], nl.load(x[rows]))
        return out

    copy[2](np.ones((256, 64), np.float32))
    assert copy.benchmark_result.nc_latency.get_latency_percentile(50) > 15.6


def test_benchmark_writes_the_trace_that_it_is_asked_for(tmp_path, capsys):
    path = tmp_path / "traces" / "profile.ntff"

    @nki.benchmark(save_trace_name=path)
    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    with pytest.raises(FileNotFoundError):
        copy(np.ones((128, 64), np.float32))
    path.parent.mkdir()
    traces = []
    for columns in (64, 512):
        copy(np.ones((128, columns), np.float32))
        traces.append(json.loads(path.read_text()))
        told = capsys.readouterr().out
        assert all(part in told for part in (str(path), MODELLED, "no NTFF"))
        assert [event for event in traces[-1]["traceEvents"] if event["ph"] == "X"]
        assert MODELLED in traces[-1]["otherData"]["note"]
    assert traces[0] != traces[1]
    assert [f.name for f in path.parent.iterdir()] == ["profile.ntff"]


def test_profile_writes_its_folder(tmp_path):
    @nki.profile(working_directory=str(tmp_path / "profiles"), save_neff_name="file.neff")
    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    copy(np.ones((128, 64), np.float32))
    figures = json.loads((tmp_path / "profiles" / "copy.modelled.json").read_text())
    assert figures["kind"] == MODELLED
    assert (tmp_path / "profiles" / "copy.modelled.trace.json").exists()
    nki.profile(working_directory=str(tmp_path / "named"), save_trace_name="own.ntff")(copy)(
        np.ones((128, 64), np.float32)
    )
    assert {f.name for f in (tmp_path / "named").iterdir()} == {"copy.modelled.json", "own.ntff"}
    assert "traceEvents" in json.loads((tmp_path / "named" / "own.ntff").read_text())
    with pytest.raises(nkisim.KernelError, match="working_directory"):
        nki.profile(working_directory="relative")(copy)


def test_command_line_prints_every_kernel(run_python, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import neuronxcc.nki as nki, neuronxcc.nki.language as nl, numpy as np\n"
        "@nki.jit\n"
        "def copy(x):\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x))\n"
        "    return out\n"
        "for n in (64, 32, 64):\n"
        "    print('sum', copy(np.ones((128, n), np.float32)).sum())\n"
    )
    out = run_python("-m", "nkisim", "profile", str(script)).stdout
    assert out.count(MODELLED) == 2  # one a set of shapes
    assert "sum 8192.0" in out


@pytest.mark.parametrize(("given", "tile", "kept"), [
    ("bfloat16", "float32", "bfloat16"), ("float32", "bfloat16", "float32"),
    ("float32", "bfloat16", "bfloat16"), ("bfloat16", "float32", "float32"),
])  # fmt: skip
def test_bytes_are_those_in_hbm_whatever_is_on_chip(given, tile, kept):
    def convert(x):
        out = nl.ndarray(x.shape, dtype=getattr(nl, kept), buffer=nl.shared_hbm)
        nl.store(out, nl.load(x, dtype=getattr(nl, tile)))
        return out

    sizes = [2 if name == "bfloat16" else 4 for name in (given, kept)]
    t = nkisim.profile(convert, nkisim.TensorSpec((128, 512), getattr(nl, given)))
    assert t.hbm_bytes == 128 * 512 * sum(sizes)


@given(st.integers(1, 40), st.integers(0, 60), st.lists(st.integers(-50, 50), max_size=4))
def test_transfers_under_a_mask_move_what_it_leaves(rows, columns, diagonals):
    diagonals.append(0)
    size = rows + columns  # more than the diagonals cut off on one side

    def bands(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:rows, 0:size]
        for d in diagonals:
            nl.store(out[p, f], nl.load(x[p, f]), mask=p + d <= f)
        return out

    with nkisim.checks(output="off"):
        t = nkisim.profile(bands, spec(rows, size))
    row, column = np.mgrid[:rows, :size]
    left = [np.count_nonzero(row + d <= column) for d in diagonals]
    assert t.hbm_bytes == 4 * (rows * size * len(diagonals) + sum(left))
    stores = [task for task in t._core.work.tasks if task.label == "store"]
    whole = [n for n in left if n]
    assert [task.transfer.nbytes for task in stores] == [4 * n for n in whole]


def softmax_of(reads):
    """A softmax over rows that reads its input so often, and one that goes through HBM."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        for i in nl.affine_range(x.shape[0] // 100):
            rows = nl.ds(i * 100, 100)
            tiles = [nl.load(x[rows]) for _ in range(reads)]
            most = nl.max(tiles[0], axis=1)
            total = nl.sum(nl.exp(tiles[-1] - most), axis=1)
            nl.store(scratch[rows], nl.exp(tiles[reads // 2] - most) / total)
            nl.store(out[rows], nl.load(scratch[rows]))
        return out

    return kernel


def test_inputs_and_outputs_moved_once_are_below_what_a_kernel_moves():
    one, three = (nkisim.profile(softmax_of(n), spec(300, 1111)) for n in (1, 3))
    assert one.once == three.once == (300 * 1111 * 4, 300 * 1111 * 4)
    assert three.hbm_bytes == 6 * 300 * 1111 * 4
    least = dma_bound(*three.once, launch=False).median * 1e6
    assert three.once_us == pytest.approx(least)
    assert f"moved once: {least:.1f} µs, {least / three.latency_us:.0%}" in three.summary()
    assert three.once_us < 0.4 * three.roofline[1]


def test_what_is_not_touched_is_not_moved():
    @nki.jit
    def part(x, index):
        out = nl.ndarray((50, x.shape[1]), x.dtype, buffer=nl.shared_hbm)
        at = nl.load(index)
        nl.store(out, nl.add(nl.load(x[at[:, 0], :]), nl.load(x[0:1, :])))
        return out

    t = nkisim.profile(part, spec(900, 77), nkisim.TensorSpec((50, 1), np.dtype("int32")))
    assert t.once == (51 * 77 * 4 + 50 * 4, 50 * 77 * 4)


def test_two_cores_move_at_twice_the_rate(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    @nki.jit
    def copied(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rows = nl.ds(nl.program_id(0) * 128, 128)
        nl.store(out[rows], nl.load(x[rows]))
        return out

    one, two = (nkisim.profile(copied[g], spec(1024, 512)) for g in ((8,), (nl.nc(2) * 4,)))
    assert one.once == two.once
    assert one.once_us / 2 <= two.once_us < one.once_us


def test_an_assumed_rate_is_marked_where_it_decides():
    @nki.jit
    def counted(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        for _ in nl.static_range(20):
            t = nisa.tensor_tensor(t, t, np.add, engine=nisa.gpsimd_engine)
        nl.store(out, t)
        return out

    t = nkisim.profile(counted, spec(64, 512))
    assert t.bound.name == "GpSimd"
    assert "at an assumed rate" in t.summary()
    assert "at an assumed rate" not in nkisim.profile(softmax_of(1), spec(100, 64)).summary()
    published = nkisim.profile(counted.on(GEN4), spec(64, 512))
    assert published.bound.name == "GpSimd"
    assert "at an assumed rate" not in published.summary()
