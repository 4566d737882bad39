"""A launch of `import nki` is on as many cores as the Neuron runtime joins in a logical one."""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from kernels.add import nki_tensor_add
from kernels.launch import kernel_of
from kernels.logical_core import cores
from nkisim import KernelError, NkiWarning
from nkisim.runtime import watch


@pytest.mark.parametrize(
    ("backend", "instance", "said", "expected"),
    [
        ("neuronxcc", "trn2", "", 2),  # the runtime's default
        ("neuronxcc", "trn2", "1", 1),
        ("neuronxcc", "inf2", "", 1),
        ("neuronxcc", "trn1", "", 1),
        ("neuronxcc", "trn1n", "", 1),
        ("neuronxcc", "trn3", "", 2),
        ("neuronxcc", "", "", 1),
        ("nkisim", "trn2", "", 1),  # the simulator launches on what the kernel says
        ("nkisim", "trn2", "2", 2),
    ],
)
def test_as_many_as_the_runtime_joins(monkeypatch, backend, instance, said, expected):
    monkeypatch.setattr(kernels, "backend", backend)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", instance)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", said)
    assert cores() == expected


@pytest.mark.parametrize("joined", [1, 2])
def test_an_operator_is_launched_on_all_of_them(monkeypatch, in_dialect, joined):
    in_dialect("nki")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", str(joined))
    x = np.ones((300, 5), np.float32)
    with watch.launches(each=True) as found:
        nki_tensor_add(x, x)
        with pytest.warns(NkiWarning, match="NEURON_LOGICAL_NC_CONFIG"):
            nki_tensor_add(x, x, lnc=3 - joined)
    assert [launch.kernel.grid.size for launch in found] == [joined, 3 - joined]


def test_cores_that_a_kernel_does_not_run_on(in_dialect):
    x = np.ones((3, 5), np.float32)
    with pytest.raises(ValueError, match="kernels of this book run on one"):
        nki_tensor_add(x, x, lnc=2)
    assert kernel_of("add", "nki_tensor_add_kernel", 1).grid.size == 1
    in_dialect("nki")
    for lnc in (0, 3):
        with pytest.raises(KernelError, match="1 or 2"):
            nki_tensor_add(x, x, lnc=lnc)
