"""The fixture `device`: whose arrays a test uses, where the Neuron SDK runs the kernels."""

from __future__ import annotations

import pytest

import kernels
from kernels.arrays import FRAMEWORKS


@pytest.fixture(params=FRAMEWORKS)
def device(request: pytest.FixtureRequest) -> str:
    """A framework that reaches the NeuronCores: "numpy", "torch" or "jax".

    `--neuron FRAMEWORK` chooses one. Its process has the NeuronCores, so tests of the others are
    skipped.
    """
    chosen = request.config.getoption("--neuron")
    if kernels.backend == "nkisim":
        pytest.fail("the simulator has the kernels: this is no test of a device")
    if request.param != chosen:
        pytest.skip(f"--neuron {chosen}: a process has the NeuronCores once")
    return request.param
