"""The examples of the reference of `import nki` print what NumPy computes."""

import re
from pathlib import Path

import numpy as np
import pytest

from nkibook.figures.nki_examples import EXAMPLES

X = np.arange(8, dtype=np.float32).reshape(2, 4)
Y = np.array([[1], [2]], np.float32)
MATRIX = np.array([[1, 0], [0, 2], [1, 1]], np.float32)
ROWS = np.array([[1, 2], [3, 4]], np.float32)
IMAGES = np.arange(32, dtype=np.float32).reshape(2, 4, 4)

EXPECTED = {
    "framed": np.hstack([np.full((2, 2), -1), ROWS]),
    "window_sums": IMAGES.reshape(2, 2, 2, 2, 2).sum((2, 4)),
    "pair_sums": X.reshape(2, 2, 2).sum(2),
    "half_each": X + np.array([[100], [200]]),
    "halves_swapped": np.roll(X, 2, axis=1),
    "rounded": np.rint([[0.5, 1.5, 2.5, -1.75]]),
    "product": MATRIX.T @ np.arange(12).reshape(3, 4),
    "difference": X - Y,
    "padded": np.pad(ROWS, ((0, 0), (1, 1))),
    "exponential": np.exp(np.arange(4) / 2 + np.array([[0], [-1]])).round(3),
    "standardised": (X - np.array([[1.5], [5.5]])) / 2,
    "transposed": X.T,
    "repeated": np.tile([[7, 8]], (3, 1)),
    "largest": X.max(1, keepdims=True),
    "swapped": np.array([[[3, 4]], [[1, 2]]]),
    "turned_on_the_way": X.T,
    "inverse": 1 / np.array([[1, 2, 4, 8]]),
    "positions": 5 + 10 * np.arange(2)[:, None] + np.arange(4),
    "scaled_sum": 10 * X + Y,
    "first_rows_summed": X.reshape(4, 2)[:3].sum(0, keepdims=True),
    "tile_numbers": np.add.outer(10 * (np.arange(3) // 2), np.arange(7) // 3),
}
CASES = [(name, example) for name, found in EXAMPLES.items() for example in found]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "example"), CASES, ids=[e.kernel.__name__ for _, e in CASES])
def test_an_example_prints_what_numpy_computes(name, example):
    found = example.run()
    expected = EXPECTED[example.kernel.__name__]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-3 if "round(3)" in example.call else 0)
    text = example.text()
    assert text.endswith("\n".join(f"# {line}" for line in str(found).split("\n")))
    assert f"print({example.call})" in text


@pytest.mark.parametrize(
    ("name", "example"), [c for c in CASES if c[1].large], ids=[n for n, e in CASES if e.large]
)
def test_an_instruction_has_a_modelled_time(name, example):
    text = example.modelled(name.rpartition(".")[2])
    assert 0.02 < float(re.search(r"([\d.]+) µs", text)[1]) < 10
    assert "modelled" in text


def test_every_example_is_linked_from_the_top_of_the_page():
    page = (Path(__file__).parents[2] / "book/api_nki.md").read_text()
    assert set(re.findall(r"<(nki\.[\w.]+)>`", page)) == set(EXAMPLES)
