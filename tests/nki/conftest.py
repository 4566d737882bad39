"""Kernels of `import nki` are traced for trn2 here, unless a test says otherwise."""

import pytest

import nkisim

nkisim.install()


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
