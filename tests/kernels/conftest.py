"""Fixtures that the tests of several operators share."""

import pytest


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request):
    """JAX deals programs out over devices with each of the two partitioners of XLA."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param == "shardy")
    yield request.param
    jax.config.update("jax_use_shardy_partitioner", before)
