"""The record of nki-library's kernels: modelled times of its points as the validation page has them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from validation import nki_library
from validation.__main__ import errors


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
        assert where.startswith("test/integration/nkilib/core/") and int(where.split(":")[1])
        assert p["kernel"] in where
        assert p["published_us"] > 10  # all contain the launch


@pytest.mark.parametrize("values", [3, 1000])
def test_rank_correlation_is_spearmans(values):
    rng = np.random.default_rng(values)
    a = rng.integers(0, values, 60)
    b = a + rng.integers(0, values, 60)
    assert np.isclose(nki_library.rank_correlation(a, b), spearmanr(a, b)[0])
