"""Figures of the chip are those of AWS's architecture guides, by dialect."""

import importlib
import sys

import pytest

import kernels
from nkibook.chip import Chip, chip
from nkibook.records import dma_bound
from nkisim.machine import GEN2

MIB = 2**20


@pytest.mark.parametrize(
    ("dialect", "name", "vector", "sbuf", "cores", "load"),
    [
        ("neuronxcc", "NeuronCore-v2", 1.12, 24 * MIB, 2, 272e9),
        ("nki", "NeuronCore-v4", 1.2, 32 * MIB, 8, 369.6e9),
    ],
)
def test_a_dialect_has_its_chip(monkeypatch, dialect, name, vector, sbuf, cores, load):
    monkeypatch.setattr(kernels, "dialect", dialect)
    here = chip()
    assert (here.name, here.sbuf, here.psum, here.cores) == (name, sbuf, 2 * MIB, cores)
    assert here.ghz["Vector"] == vector
    assert here.load_rate == pytest.approx(load)
    # Two operations of 128 x 128 lanes in each cycle.
    assert here.tflops == pytest.approx(2 * 128**2 * here.ghz["Tensor"] / 1e3, rel=0.01)
    assert 10e-6 < here.launch < 20e-6


@pytest.mark.parametrize("instance", ["", "inf2", "trn2"])
@pytest.mark.parametrize("dialect", kernels.DIALECTS)
def test_it_is_the_chip_that_the_simulator_models(monkeypatch, dialect, instance):
    monkeypatch.setattr(kernels, "dialect", dialect)
    monkeypatch.setattr("nkibook.chip.instance", lambda: instance)
    book = importlib.import_module(f"kernels.add.{dialect}")
    assert chip().machine is book.nki_tensor_add_kernel.machine


TARGETS = {
    "NEURON_PLATFORM_TARGET_OVERRIDE": [("inf2", "v2"), ("trn2", "v3"), ("trn3", "v4")],
    "NEURON_CC_FLAGS": [("--target=trn1", "v2"), ("-O1 --target trn2", "v3")],
}


@pytest.mark.parametrize("dialect", ["neuronxcc", "nki"])
@pytest.mark.parametrize(
    ("variable", "value", "core"), [(k, *v) for k, values in TARGETS.items() for v in values]
)
def test_a_target_says_more_than_the_dialect(monkeypatch, dialect, variable, value, core):
    monkeypatch.setattr(kernels, "dialect", dialect)
    monkeypatch.setenv(variable, value)
    assert chip().name == f"NeuronCore-{core}"
    bound = dma_bound(chip().load_rate, 0, launch=False)
    assert bound.samples[0] == pytest.approx(1.0)


def test_a_program_of_another_dialect_than_the_kernels_is_asked(monkeypatch):
    monkeypatch.setattr(kernels, "dialect", "neuronxcc")
    for name in [n for n in sys.modules if n.startswith(("neuronxcc.", "nki."))]:
        monkeypatch.delitem(sys.modules, name)
    assert chip() == Chip(GEN2)
    monkeypatch.setitem(sys.modules, "nki.language", sys)
    with pytest.raises(RuntimeError, match="Which chip is meant"):
        chip()
    monkeypatch.setenv("NKI_DIALECT", "neuronxcc")
    assert chip() == Chip(GEN2)
