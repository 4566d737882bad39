"""Device time and what a call adds, with a stand-in for the SDK's benchmark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import neuronxcc.nki as nki
import numpy as np
import pytest

import nkisim
from kernels.add.nki_kernels import nki_tensor_add_kernel
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
    (record,) = device.measure(nki_tensor_add_kernel, TILE, TILE, warmup=7, iters=11)
    assert sdk == [(7, 11)]
    assert record.kind is Kind.CORE
    assert record.samples == pytest.approx((29e-6, 30e-6, 33e-6))
    assert record.median == pytest.approx(30e-6)
    assert "device time of a NeuronCore" in str(record)
    assert "11 launches after 7" in record.caption


def test_first_call_later_calls_and_dispatch_are_told_apart(sdk, monkeypatch):
    # The clock reads 0 and 9 around the first call, and each later call takes 1 ms.
    clock = itertools.chain([0.0, 9.0], itertools.count(10.0, 1e-3))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    found = device.measure(nki_tensor_add_kernel, TILE, TILE, call=lambda: None, label="x", iters=3)
    core, first, later, dispatch = found
    names = ["x: device", "x: first call", "x: later call", "x: dispatch"]
    assert [r.label for r in found] == names
    assert first.median == 9.0
    assert later.median == pytest.approx(1e-3)
    assert dispatch.median == pytest.approx(1e-3 - core.median)


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
