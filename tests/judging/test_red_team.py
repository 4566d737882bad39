"""No kernel that cheats is judged right."""

import os
import re

import pytest
from cheats import CHEATS, HONEST, PREAMBLE

from nkisim.judging import Limits, Task, judge, judge_all

TASK = Task(
    inputs={"x": "float32[n, d]"},
    cases=[{"n": 130, "d": 40}],
    reference=lambda x: x * 2,
    limits=Limits(seconds=3, memory_mb=1000, instructions=500),
)


def written(folder, name, code):
    path = folder / (re.sub(r"\W+", "_", name) + ".py")
    path.write_text(PREAMBLE + code)
    return f"{path}:kernel"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """By the name of a cheat; all of them share a process from which theirs are forked."""
    folder = tmp_path_factory.mktemp("cheats")
    codes = {"honest": HONEST, **{name: c.code for name, c in CHEATS.items()}, "last": HONEST}
    names = [written(folder, name, code) for name, code in codes.items()]
    before = os.getcwd()
    os.chdir(folder)
    try:
        found = judge_all(names, TASK, shrink=False)
    finally:
        os.chdir(before)
    assert not (folder / "FORGED").exists()
    return dict(zip(codes, found, strict=True))


@pytest.mark.parametrize("name", ["honest", "last"])
def test_an_honest_kernel_is_right_before_and_after(verdicts, name):
    assert verdicts[name].right, str(verdicts[name])


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_defeated(verdicts, name):
    found = verdicts[name]
    assert found.status in CHEATS[name].expected, str(found)
    assert found.launches[0].why


def test_a_kernel_that_knows_the_visible_shape_fails_a_hidden_one(tmp_path):
    code = "@nki.jit\ndef kernel(x):\n    return doubled(x, None if x.shape[0] == 130 else 0)\n"
    task = Task(
        inputs={"x": "float32[n, d]"},
        cases=[{"n": 130, "d": 40}, {"n": 257, "d": 3, "hidden": True}],
        reference=lambda x: x * 2,
    )
    found = judge(written(tmp_path, "knows", code), task)
    assert [x.status for x in found.launches] == ["right", "refused"]
