"""nkibook/validation/modelled.json, which pages show, is what the model says today."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from nkibook.validation import first, pairs, points_book
from nkibook.validation.__main__ import errors, every_point, record, recorded
from nkibook.validation.points import POINTS
from nkibook.validation.points_held_out import HELD_OUT
from nkibook.validation.points_trn2 import POINTS as POINTS_TRN2
from nkisim.machine import GEN2, GEN3, GEN4

SHORT = 10_000  # instructions; 143 of the 192 points, in a tenth of the time of all
EVERY = every_point()


def test_points_of_one_name_are_one_kernel_with_the_same_arguments():
    kernels = {}
    for p in (*POINTS, *HELD_OUT, *POINTS_TRN2, *points_book.BOOK, *pairs.points_of(pairs.PAIRS)):
        what = p.kernel, p.how, repr(p.args)
        assert kernels.setdefault((p.core, p.name), what) == what
    assert len(kernels) == len(EVERY) == len(record())


@pytest.mark.parametrize("part", range(8))
def test_the_record_is_what_is_modelled(part):
    """Of long kernels once a week only. `python -m nkibook.validation --record` writes them."""
    known = record()
    short = settings.get_current_profile_name() != "weekly"
    chosen = [
        p for p in EVERY[part::8] if not short or known[f"{p.core}: {p.name}"].instructions <= SHORT
    ]
    assert len(chosen) > 8
    for p, us in recorded(chosen):
        assert p.modelled().us == pytest.approx(us, rel=1e-9), p.name


@pytest.mark.parametrize("chip", [GEN2, GEN3], ids=lambda chip: chip.name)
def test_the_error_of_a_chip_is_that_of_points_when_first_compared(chip):
    """Which `nkisim.tune` takes for what the model cannot tell apart."""
    assert np.median(np.abs(errors(first.rows(chip.name)))) == pytest.approx(chip.error, abs=5e-4)
    assert GEN4.error >= GEN3.error  # nothing has been compared with it
