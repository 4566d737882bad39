"""Fixtures that the tests of several operators share."""

from collections.abc import Callable

import pytest

import kernels

CHIPS = {"neuronxcc": "trn1", "nki": "trn2"}
"""The chip that the kernels of a dialect are traced for."""


@pytest.fixture
def in_dialect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``in_dialect("nki")``: from there on, callers launch the kernels of that dialect."""

    def choose(dialect: str) -> None:
        monkeypatch.setattr(kernels, "dialect", dialect)
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", CHIPS[dialect])

    return choose


@pytest.fixture(params=kernels.DIALECTS)
def dialect(request: pytest.FixtureRequest, in_dialect: Callable[[str], None]) -> str:
    """The test is run with the kernels of each dialect."""
    in_dialect(request.param)
    return request.param


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request):
    """JAX deals programs out over devices with each of the two partitioners of XLA."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param == "shardy")
    yield request.param
    jax.config.update("jax_use_shardy_partitioner", before)
