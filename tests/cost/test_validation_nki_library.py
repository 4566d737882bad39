"""The record of nki-library's kernels: their points as the validation page has them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from nkibook.validation import nki_library
from nkibook.validation.__main__ import errors
from nkibook.validation.norms_nki import rmsnorm_columns


def test_points_are_as_close_and_in_as_good_an_order_as_promised():
    rows = nki_library.rows()
    assert len(rows) == 109
    assert np.median(np.abs(errors(rows))) <= 0.25
    published, modelled = np.array([(p.published_us, m) for p, m in rows]).T
    assert nki_library.rank_correlation(published, modelled) >= 0.9


def test_every_point_says_where_it_is_published():
    for p in json.loads(nki_library.RECORD.read_text())["points"]:
        tag, where = p["where"].split(", ")
        assert tag in ("2.28", "2.29")
        assert where.startswith("test/integration/nkilib/core/")
        assert int(where.split(":")[1])
        assert p["kernel"] in where
        assert p["published_us"] > 10  # all contain the launch


@pytest.mark.parametrize("values", [3, 1000])
def test_rank_correlation_is_spearmans(values):
    rng = np.random.default_rng(values)
    a = rng.integers(0, values, 60)
    b = a + rng.integers(0, values, 60)
    assert np.isclose(nki_library.rank_correlation(a, b), spearmanr(a, b)[0])


def _columns(x, gamma, cores, divisor):
    """RMSNorm in NumPy, with the hidden axis of each half over 128 partitions."""
    x = x.astype(np.float64)
    y = x / np.sqrt((x**2).sum(-1, keepdims=True) / divisor + 1e-6) * gamma
    parts = y.reshape(len(x), cores, 128, -1).transpose(2, 0, 1, 3)
    return parts.reshape(128, len(x), -1)


@pytest.mark.parametrize(
    ("lnc", "tokens", "hidden", "divisor"),
    [(1, 3, 256, None), (2, 3, 512, None), (2, 20, 768, 700), (1, 600, 128, None), (2, 21, 256, 5)],
)
def test_our_rmsnorm_in_columns(monkeypatch, lnc, tokens, hidden, divisor):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    rng = np.random.default_rng(tokens)
    x = rng.standard_normal((tokens, hidden)).astype(np.float16)
    gamma = rng.standard_normal((1, hidden)).astype(np.float16)
    found = rmsnorm_columns[lnc](x, gamma, divisor)
    expected = _columns(x, gamma, lnc, divisor or hidden)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2e-3, atol=1e-3)


def test_our_rmsnorm_takes_what_is_published_and_recorded():
    """The same work in a kernel of our own, modelled now: so the record is of this model."""
    rows = [
        (published, recorded, now) for _, published, recorded, now in nki_library.our_rmsnorms()
    ]
    assert len(rows) == 18
    published, recorded, now = np.array(rows).T
    # Of tokens that are not shared, nki-library has both cores store all, ours one: 1.8 us.
    assert np.abs(now / recorded - 1).max() <= 0.12
    assert np.median(np.abs(now / published - 1)) <= 0.25
    assert spearmanr(published, now)[0] >= 0.9
