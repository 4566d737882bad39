"""Benchmark records: what is counted, what is waited for, and that a number keeps its origin.

No test here looks at how long something really takes: the clock is replaced where it matters.
"""

from __future__ import annotations

import gc
import itertools
import json
import statistics

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nkisim
from nkibook import bench, bench_cases
from nkibook.bench import Kind, Record, benchmark, dma_bound, interleave, modelled, published
from nkibook.bench_cases import SHAPES, Case
from nkibook.validation import bench_profile
from nkisim.machine.timing import V2
from nkisim.runtime.kernel import Kernel


def record(samples=(1.0, 2.0, 3.0), **kwargs) -> Record:
    return Record(**({"label": "x", "kind": Kind.HOST, "samples": samples, "how": "m"} | kwargs))


def test_warm_up_calls_are_made_and_not_counted():
    calls = []
    result = benchmark(calls.append, 7, warmup=2, iters=5)
    assert calls == [7] * 7
    assert len(result.samples) == 5


def test_samples_are_the_time_of_each_call(monkeypatch):
    # The clock reads 0, 1, 3, 6, 10, ... so the timed calls take 1, 3 and 5 seconds.
    clock = itertools.accumulate(itertools.count())
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    result = benchmark(lambda: None, iters=3)
    assert result.samples == (1, 3, 5)
    assert result.median == 3


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=30))
def test_statistics_agree_with_the_standard_library(samples):
    result = record(tuple(samples))
    assert result.median == pytest.approx(statistics.median(samples))
    if len(samples) > 1:
        fifths = statistics.quantiles(samples, n=5, method="inclusive")
        assert (result.p20, result.p80) == pytest.approx((fifths[0], fifths[3]))


def test_interleave_takes_turns_and_moves_the_order_on():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    records = interleave(calls, warmup=1, iters=3)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert list(records) == ["a", "b", "c"]
    assert all(records[name].label == name for name in records)


def test_results_are_waited_for_wherever_they_are_nested():
    class Pending:
        waited = 0

        def block_until_ready(self):
            self.waited += 1

        def devices(self):
            return ()

    first, second = Pending(), Pending()
    benchmark(lambda: {"y": [first, (second, None)]}, warmup=2, iters=3)
    assert (first.waited, second.waited) == (5, 5)


def test_garbage_collection_is_off_while_timing_and_on_again_after_a_failure():
    states = []
    benchmark(lambda: states.append(gc.isenabled()), warmup=1, iters=2)
    assert states == [True, False, False]

    turns = itertools.count()

    def fail_later():
        if next(turns):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        benchmark(fail_later, warmup=1, iters=1)
    assert gc.isenabled()


def test_jax_arrays_are_measured_on_the_host():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones(8)
    if x.devices().pop().platform != "cpu":
        pytest.skip("jax has an accelerator here")
    result = benchmark(jax.jit(lambda x: x + x), x, iters=2)
    assert result.kind is Kind.HOST
    assert result.versions["jax"] == jax.__version__


def test_torch_tensors_are_measured_on_the_host():
    torch = pytest.importorskip("torch")
    result = benchmark(torch.add, torch.ones(8), torch.ones(8), iters=2)
    assert result.kind is Kind.HOST


def test_torch_xla_results_are_waited_for():
    torch = pytest.importorskip("torch")
    torch_xla = pytest.importorskip("torch_xla")
    from torch_xla import runtime
    from torch_xla.debug import metrics

    if runtime.device_type() != "CPU":
        pytest.skip("torch_xla has an accelerator here")
    x = torch.ones(8, device=torch_xla.device())
    metrics.clear_all()
    result = benchmark(lambda: x + x, warmup=1, iters=4)
    assert result.kind is Kind.HOST
    executions = metrics.metric_data("ExecuteTime")[0]
    assert executions == 5


@pytest.mark.parametrize("name", ["warmup", "iters"])
def test_at_least_one_call_of_each_sort(name):
    with pytest.raises(ValueError, match=f"{name} is 0: it must be 1 or more"):
        benchmark(lambda: None, **{name: 0})


def test_interleave_needs_something_to_time():
    with pytest.raises(ValueError, match="calls is empty"):
        interleave({})


@pytest.mark.parametrize(
    ("change", "message"),
    [({"samples": ()}, "no samples"), ({"how": ""}, "how it was")],
)
def test_a_record_without_circumstances_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        record(**change)


def test_a_record_prints_its_numbers_and_its_repr_does_not():
    result = record((1e-6, 2e-6, 3e-6), date="2026-11-21", machine="an abacus")
    assert str(result) == "x: 2 µs [1.4 µs to 2.6 µs] (measured: wall clock on CPU host)"
    assert repr(result) == "Record('x', measured: wall clock on CPU host)"
    assert "2 µs" in result._repr_html_()
    assert "an abacus" in result._repr_html_()


def test_kernels_one_after_another_are_launched_once():
    @nki.jit
    def copy(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    small, large = (
        nkisim.profile(copy, nkisim.TensorSpec((128, n), np.dtype(np.float32))) for n in (8, 800)
    )
    assert modelled("copy", small).median == pytest.approx(small.latency_us / 1e6)
    both = modelled("both", small, large)
    expected = small.body_us + large.body_us + small.overhead_us
    assert both.median == pytest.approx(expected / 1e6)
    assert both.kind is Kind.MODELLED
    assert both.caption.endswith("launch included. “both”: 2 kernels one after another.")
    assert "NeuronCore-v2" in both.caption
    with pytest.raises(ValueError, match="'nothing' has no timeline"):
        modelled("nothing")


def test_the_dma_bound_is_bytes_over_the_published_rates():
    bytes_only = dma_bound(272_000, 286_400, "DMA bound", launch=False)
    assert bytes_only.median == pytest.approx(2e-6)
    assert str(bytes_only) == "DMA bound: 2 µs (from published rates)"
    assert "0.272 MB in at 272 GB/s, 0.286 MB out at 286, without launch" in bytes_only.caption
    both = dma_bound(272_000, 286_400)
    assert both.median == pytest.approx(2e-6 + 1e-9 * (V2.before_ns + V2.after_ns))
    assert "0.286 MB out at 286, and 15.6 µs of launch" in both.caption
    launch = dma_bound(0, 0)
    assert launch.median == pytest.approx(both.median - 2e-6)
    assert "15.6 µs of launch" in launch.caption
    assert "MB" not in launch.caption


@nki.jit
def copy_wide(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        nl.store(out[rows], nl.load(x[rows]))
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_no_modelled_kernel_is_below_the_dma_bound(dtype):
    nbytes = np.dtype(dtype).itemsize * 1024 * 8192
    t = nkisim.profile(copy_wide, nkisim.TensorSpec((1024, 8192), np.dtype(dtype)))
    least = dma_bound(nbytes, nbytes, launch=False).median * 1e6
    assert t.roofline == ("DMA queues", pytest.approx(least))
    assert least <= t.body_us < 1.2 * least


def test_a_published_number_names_its_source():
    result = published("add", 19e-6, source="someone's notes")
    assert result.origin == "published (someone's notes)"
    assert result.median == result.p80 == 19e-6
    with pytest.raises(ValueError, match="where it was published"):
        published("add", 19e-6, source="")


def test_circumstances_are_recorded():
    result = benchmark(np.add, 1, 2, label="np", iters=1)
    assert result.versions["numpy"] == np.__version__
    assert result.machine
    for part in (result.machine, result.date, "median of 1 calls after 3"):
        assert part in result.caption


def test_json_holds_what_the_record_holds(tmp_path):
    records = [record((1e-6, 3e-6), versions={"numpy": "2.0"}), published("y", 5e-6, source="s")]
    bench.write_json(records, tmp_path / "r.json")
    loaded = json.loads((tmp_path / "r.json").read_text())
    assert loaded[0]["samples"] == [1e-6, 3e-6]
    assert (loaded[0]["kind"], loaded[1]["kind"]) == ("host", "published")
    assert [row["median"] for row in loaded] == [2e-6, 5e-6]
    assert bench.read_json(tmp_path / "r.json") == records


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5, "2.5 s"),
        (1.234e-3, "1.23 ms"),
        (45e-6, "45 µs"),
        (7e-9, "7 ns"),
        (0.0, "0 ns"),
        (9.999e-4, "1 ms"),
        (0.99999, "1 s"),
        (9.99e-7, "999 ns"),
    ],
)
def test_times_read_well(seconds, text):
    assert bench.format_seconds(seconds) == text


def test_the_command_compares_simulated_kernels_with_numpy(tmp_path, capsys, monkeypatch):
    small = {name: [(4,) * len(shape) for shape in shapes] for name, shapes in SHAPES.items()}
    monkeypatch.setattr(bench_cases, "SHAPES", small)
    assert bench.main(["--iters", "2", "--json", str(tmp_path / "r.json")]) == 0
    printed = capsys.readouterr().out
    records = json.loads((tmp_path / "r.json").read_text())
    assert {len(r["samples"]) for r in records} == {2}
    assert {r["kind"] for r in records} <= {"host", "device"}
    for plain, kernel in zip(records[::2], records[1::2], strict=True):
        assert plain["label"].startswith(("NumPy", "jax.jit"))
        assert f"medians: {kernel['median'] / plain['median']:.2f}\n" in printed
    timed = " ".join(r["label"] for r in records[1::2])
    assert all(f"kernel of {name}, " in timed for name in SHAPES)


def test_the_command_refuses_to_time_a_wrong_result(monkeypatch):
    ones = np.ones(3, np.float32)
    wrong = Case(("NumPy", "kernel"), lambda: ones, lambda: 1.01 * ones)
    monkeypatch.setattr("nkibook.bench_cases.cases", lambda: [wrong])
    with pytest.raises(RuntimeError, match=r"kernel differs from NumPy\."):
        bench.main(["--iters", "1"])


def test_a_simulated_time_says_that_it_is_the_simulators():
    import kernels

    if kernels.backend != "nkisim":
        pytest.skip("the Neuron SDK runs the kernels here")
    result = benchmark(lambda: None, iters=1)
    assert "the simulator's time, not a NeuronCore's" in result.caption
    assert result.versions["nkisim"] == kernels.backend_version


def test_the_generated_matmul_that_is_profiled_computes_it():
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((256, 384), (384, 1024)))
    got = Kernel(bench_profile.generated)(a, b)
    np.testing.assert_allclose(got, a @ b, rtol=0, atol=1e-3)


def test_the_experts_that_are_profiled_compute_it():
    rng = np.random.default_rng(6)
    shapes = (3 * 128, 512), (2, 512, 1024), (2, 1024, 512)
    x, up, down = (rng.standard_normal(s) / s[-2] ** 0.5 for s in shapes)
    x, up, down = (a.astype(bfloat16).astype(np.float32) for a in (x, up, down))
    got = Kernel(bench_profile.experts)(*(a.astype(bfloat16) for a in (x, up, down)))
    for i, expert in enumerate((0, 1, 0)):
        hidden = x[i * 128 : (i + 1) * 128] @ up[expert]
        wanted = hidden / (1 + np.exp(-hidden)) @ down[expert]
        got_here = got[i * 128 : (i + 1) * 128].astype(np.float32)
        np.testing.assert_allclose(got_here, wanted, rtol=0, atol=0.02)


def test_a_profile_is_timed_in_a_process_of_its_own():
    cost = bench_profile._cost_apart("add or subtract, by the loop index")
    assert cost.instructions == 4096
    assert cost.first > cost.again > 0
    assert cost.findings > 0


def test_a_profile_is_timed_and_judged(monkeypatch, capsys):
    def twice(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(y, nl.load(x) * 2.0)
        return y

    x = nkisim.TensorSpec((128, 64), np.dtype(np.float32))
    for name in ("cases", "published"):
        monkeypatch.setattr(bench_profile, name, lambda: [("twice", Kernel(twice), (x,))])
    monkeypatch.setattr(bench_profile, "_cost_apart", bench_profile._cost_of_case)
    monkeypatch.setattr(bench_profile, "WORST", 0.0)
    assert bench_profile.main() == 0
    line, published, machine = capsys.readouterr().out.splitlines()
    assert line.startswith("profile of twice: 3 instructions in ")
    assert "measured (target: at most 0 s, missed)" in line
    assert line.count("(up to ") == 2
    assert published.startswith("1 kernels of the validation page, measured: ")
    assert "(target: at most 100 s, met)" in published
    assert "(twice; target: at most 0 s, missed)" in published
    assert machine.startswith("quickest of 5; ")


def test_every_kernel_of_the_validation_page_can_be_profiled():
    name, kernel, args = next(bench_profile.published())
    cost = bench_profile._cost(kernel, args)
    assert name
    assert cost.instructions > 0
