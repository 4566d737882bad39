"""Figures of the chip are those of AWS's architecture guides, by dialect."""

import pytest

import kernels
from nkibook.chip import CHIPS, chip

MIB = 2**20


@pytest.mark.parametrize(
    ("dialect", "name", "vector", "sbuf", "cores", "load"),
    [
        ("neuronxcc", "NeuronCore-v2", 1.12, 24 * MIB, 2, 272e9),
        ("nki", "NeuronCore-v3", 0.96, 28 * MIB, 8, 369.6e9),
    ],
)
def test_a_dialect_has_its_chip(monkeypatch, dialect, name, vector, sbuf, cores, load):
    monkeypatch.setattr(kernels, "dialect", dialect)
    here = chip()
    assert here is CHIPS[dialect]
    assert (here.name, here.sbuf, here.psum, here.cores) == (name, sbuf, 2 * MIB, cores)
    assert here.ghz["Vector"] == vector
    assert here.load_rate == pytest.approx(load)
    # Two operations of 128 x 128 lanes in each cycle.
    assert here.tflops == pytest.approx(2 * 128**2 * here.ghz["Tensor"] / 1e3, rel=0.01)
    assert 10e-6 < here.launch < 20e-6
