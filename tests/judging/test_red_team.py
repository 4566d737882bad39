"""No kernel that cheats is judged right."""

import os
import re
from pathlib import Path

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
    assert str(found).replace("\n", "").isprintable()


def test_a_kernel_that_knows_the_visible_shape_fails_a_hidden_one(tmp_path):
    code = "@nki.jit\ndef kernel(x):\n    return doubled(x, None if x.shape[0] == 130 else 0)\n"
    task = Task(
        inputs={"x": "float32[n, d]"},
        cases=[{"n": 130, "d": 40}, {"n": 257, "d": 3, "hidden": True}],
        reference=lambda x: x * 2,
    )
    found = judge(written(tmp_path, "knows", code), task)
    assert [x.status for x in found.launches] == ["right", "refused"]


def test_what_a_time_follows_from_is_computed_again(tmp_path):
    """A form says how many elements a view has, and is the kernel's while it is traced."""
    smaller = (
        "from nkisim.trace.tracer import current\nout = doubled(x)\n"
        "for i in current().trace.instructions:\n"
        "    for p in (*i.outs, *i.tiles_in): p.form.size = 1\nreturn out"
    )
    body = "\n".join("    " + line for line in smaller.splitlines())
    codes = {"honest": HONEST, "smaller": f"@nki.jit\ndef kernel(x):\n{body}\n"}
    honest, forged = judge_all([written(tmp_path, n, c) for n, c in codes.items()], TASK)
    assert honest.right
    assert forged.launches[0].latency_us == honest.launches[0].latency_us


def test_the_page_for_teachers_counts_the_cheats():
    page = Path(__file__).resolve().parents[2] / "book" / "teaching.md"
    assert f"We hold {len(CHEATS)} such kernels" in page.read_text()
