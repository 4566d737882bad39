"""Published pairs of kernel and compiler: each has its source, and gains point the right way."""

import pytest

from nkibook.validation.against_compiler import PAIRS, SOURCES


def test_each_pair_has_its_source():
    assert {pair.source for pair in PAIRS} == set(SOURCES)
    assert len({pair.name for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize(
    ("name", "gain"),
    [
        ("aT @ b, 2048³, bf16", 90.92 / 86.65),
        ("attention, Qwen3 0.6B", 8.543),
        ("attention, video model", 1 - 0.02776),  # "2.855% slower" is of the compiler's time
        ("fused QKV, FLUX.2 klein", 1 / 18.03),
    ],
)
def test_a_gain_is_how_many_times_as_fast(name, gain):
    (pair,) = (pair for pair in PAIRS if pair.name == name)
    assert pair.gain == pytest.approx(gain, rel=1e-3)
