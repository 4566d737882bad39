"""Device time and what a call adds, with a stand-in for the SDK's benchmark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import neuronxcc.nki as nki
import numpy as np
import pytest

import nkisim
from kernels.add.neuronxcc import nki_tensor_add_kernel
from nkibook import bench, device, plots
from nkibook.bench import Kind

TILE = np.zeros((128, 64), np.float32)


@pytest.fixture
def sdk(monkeypatch):
    """An `nki.benchmark` with the documented result: 30 us, and more for the slowest launches."""
    asked = []

    def benchmark(warmup, iters):
        asked.append((warmup, iters))

        def decorate(kernel):
            percentiles = {0: 28.0, 1: 28.0, 10: 29.0, 25: 29.5, 50: 30.0, 90: 33.0, 99: 90.0}
            latency = SimpleNamespace(get_latency_percentile=lambda p: percentiles[p])

            class Timed:
                def __getitem__(self, grid):
                    return self

                def __call__(self, *args):
                    self.benchmark_result = SimpleNamespace(nc_latency=latency)

            return Timed()

        return decorate

    monkeypatch.setattr(device.kernels, "backend", "neuronxcc")
    monkeypatch.setattr(nki, "benchmark", benchmark)
    return asked


def test_device_time_is_what_the_sdk_reports(sdk):
    record = device.measure(nki_tensor_add_kernel, TILE, TILE, warmup=7, iters=11)
    assert sdk == [(7, 11)]
    assert record.kind is Kind.CORE
    assert record.samples == pytest.approx((29e-6, 30e-6, 33e-6))
    assert record.median == pytest.approx(30e-6)
    assert "device time of a NeuronCore" in str(record)
    assert "11 launches after 7" in record.caption


def test_first_call_and_later_calls_are_told_apart(sdk, monkeypatch):
    pytest.importorskip("jax")
    # The clock reads 0 and 9 around the first call, and each later call takes 1 ms.
    clock = itertools.chain([0.0, 9.0], itertools.count(10.0, 1e-3))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    launch = device.Launch("x", lambda a, b: None, (TILE, TILE))
    first, later = device.measure_calls(launch, "jax", iters=3)
    assert [first.label, later.label] == ["x: first call, jax", "x: later call, jax"]
    assert first.median == 9.0
    assert later.median == pytest.approx(1e-3)


def record(label, *samples, kind=Kind.DEVICE):
    return bench.Record(label=label, kind=kind, samples=samples, how="a test")


def test_everything_is_measured_in_processes_of_their_own(monkeypatch):
    asked = []

    def answer(*arguments, **environment):
        asked.append((arguments, environment))
        if arguments[0] == "times":
            return [record("x: device", 30e-6, kind=Kind.CORE)]
        if arguments[0] == "calls":
            f = arguments[1]
            return [record(f"x: first call, {f}", 9.0), record(f"x: later call, {f}", 1e-3)]
        return [record("x", 28e-6, kind=Kind.MODELLED)]

    monkeypatch.setattr(device, "_from_process", answer)
    monkeypatch.setattr(device, "frameworks_of_device", lambda: ("numpy", "jax"))
    found = {r.label: r for r in device.measure_all()}
    assert list(found) == ["x: device", "x: first call, jax", "x: dispatch, jax", "x"]
    assert found["x: dispatch, jax"].median == pytest.approx(1e-3 - 30e-6)
    assert asked[-1][1]["NKI_BACKEND"] == "nkisim"  # the model reads the simulator's trace


def test_without_a_benchmark_in_the_dialect_only_calls_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(device.kernels, "backend", "neuronxcc")
    monkeypatch.setattr(device.kernels, "dialect", "nki")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(device.NoDeviceError, match=r"has no nki\.benchmark"):
        device.measure(nki_tensor_add_kernel, TILE, TILE)
    assert device.main([]) == 1
    assert capsys.readouterr().out.startswith("Nothing was measured: `import nki` has no nki.")
    asked = {}

    def answer(*arguments, **environment):
        asked[arguments] = environment
        return [record("x: first call, jax", 9.0), record("x: later call, jax", 1e-3)]

    monkeypatch.setattr(device, "_from_process", answer)
    monkeypatch.setattr(device, "frameworks_of_device", lambda: ("numpy", "jax"))
    assert {r.label for r in device.measure_all()} == {"x: first call, jax", "x: later call, jax"}
    assert list(asked) == [("calls", "jax"), ("model",)]
    model = asked["model",]
    assert model["NKI_DIALECT"] == "nki"
    assert model["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn2"
    assert model["NEURON_LOGICAL_NC_CONFIG"] == "2"


def test_a_page_shows_what_was_measured_beside_the_model(monkeypatch, tmp_path):
    folder = tmp_path / "of the reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(device, "BOOK", tmp_path)
    assert "Nothing was measured" in repr(device.measured("x"))
    assert "--all measured.json" in device.measured("x")._repr_html_()
    records = [
        record("x: device", 30e-6, kind=Kind.CORE),
        record("x", 28e-6, kind=Kind.MODELLED),
        record("y: device", 1e-6, kind=Kind.CORE),
    ]
    bench.write_json([record("x", 1.0)], tmp_path / "measured.json")
    assert "of a NeuronCore" not in device.measured("x").svg
    bench.write_json(records, folder / "measured.json")
    svg = device.measured("x").svg
    assert "measured: device time of a NeuronCore" in svg
    assert "modelled by nkisim" in svg
    assert "y: device" not in svg


def test_without_a_device_nothing_is_measured(capsys):
    with pytest.raises(device.NoDeviceError, match="no Neuron SDK on this machine"):
        device.measure(nki_tensor_add_kernel, TILE, TILE)
    assert device.main([]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("Nothing was measured")
    assert printed.count("(modelled by nkisim)") == len(list(device.launches()))
    assert "(measured" not in printed


def test_measurements_travel_and_stand_beside_the_model(sdk, monkeypatch, tmp_path, capsys):
    path = tmp_path / "measured.json"
    assert device.main(["--json", str(path)]) == 0
    measured = bench.read_json(path)
    assert {r.kind for r in measured} == {Kind.CORE}
    assert measured[0].samples == pytest.approx((29e-6, 30e-6, 33e-6))
    capsys.readouterr()
    monkeypatch.setattr(device.kernels, "backend", "nkisim")
    assert device.main(["--compare", str(path)]) == 0
    assert capsys.readouterr().out.count("modelled over measured: ") == len(measured)
    timeline = nkisim.profile(nki_tensor_add_kernel[1, 1], TILE, TILE)
    figure = plots.timing([measured[0], bench.modelled("modelled", timeline)], alt="two bars")
    assert "measured: device time of a NeuronCore" in figure.svg
    assert "modelled by nkisim" in figure.svg
