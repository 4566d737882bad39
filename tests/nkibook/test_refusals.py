"""A page that shows an error fails when the error is not raised."""

import warnings

import pytest

from nkibook.refusals import WIDTH, refused


def fail(message: str) -> None:
    warnings.warn("the error says it, too", stacklevel=1)
    raise ValueError(message)


def test_the_message_is_returned_in_short_lines(recwarn: pytest.WarningsRecorder) -> None:
    said = refused(ValueError, fail, "short\n" + "word " * 40)
    lines = said.splitlines()
    assert lines[0] == "short"
    assert len(lines) > 3
    assert max(map(len, lines)) <= WIDTH
    assert said.split() == ["short"] + 40 * ["word"]
    assert len(recwarn) == 0


def test_advice_that_is_not_the_message_is_left_out() -> None:
    advice = "Buffer Definition Event: bad shape\n\n--------------------\nFor simplicity, JAX has"
    assert refused(ValueError, fail, advice) == "bad shape"


def test_what_is_accepted_or_fails_otherwise_is_no_refusal() -> None:
    with pytest.raises(AssertionError, match="len was to be refused with ValueError"):
        refused(ValueError, len, "abc")
    with pytest.raises(ValueError, match="another"):
        refused(KeyError, fail, "another")
