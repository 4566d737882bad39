"""The verdict in the forms that graders read, and the assignment that the book makes of it."""

import json
import shutil
from pathlib import Path

import pytest

import nkibook
from nkisim.judging import Task, judge_all, read
from nkisim.judging.reports import gradescope, leaderboard, performance, result
from nkisim.judging.verdict import LaunchVerdict, Verdict

# Every field of https://gradescope-autograders.readthedocs.io/en/latest/specs/, section "Output
# format", and what it may hold. All are optional but for a score, here or in each test.
NUMBER, TEXT, DATA = (int, float), (str,), (dict,)
FORMAT = {"text", "simple_format", "html", "md", "ansi"}
VISIBILITY = {"hidden", "after_due_date", "after_published", "visible"}
RESULTS = {
    "score": NUMBER,
    "execution_time": NUMBER,
    "output": TEXT,
    "output_format": FORMAT,
    "test_output_format": FORMAT,
    "test_name_format": FORMAT,
    "visibility": VISIBILITY,
    "stdout_visibility": VISIBILITY,
    "extra_data": DATA,
    "tests": (list,),
    "leaderboard": (list,),
}
TEST = {
    "score": NUMBER,
    "max_score": NUMBER,
    "status": {"passed", "failed"},
    "name": TEXT,
    "name_format": FORMAT,
    "number": TEXT,
    "output": TEXT,
    "output_format": FORMAT,
    "tags": (list,),
    "visibility": VISIBILITY,
    "extra_data": DATA,
}
ENTRY = {"name": TEXT, "value": (int, float, str), "order": {"asc", "desc"}}
FOLDER = Path(nkibook.__file__).parent / "assignment"


def launch(status, us=10.0, base=10.0, **more):
    profile = {"latency_us": us, "bound": {"resource": "Vector"}, "roofline": {"of_latency": 0.5}}
    profile["findings"] = []
    given = {"hidden": False, "points": None, "chip": "trn2", "cores": 1} | more
    return LaunchVerdict({"n": 3}, status=status, profile=profile, baseline_us=base, **given)


def conforms(found, fields):
    for name, value in found.items():
        may = fields[name]
        assert value in may if isinstance(may, set) else type(value) in may, (name, value)


def check_gradescope(found):
    found = json.loads(json.dumps(found, allow_nan=False))
    conforms(found, RESULTS)
    for test in found["tests"]:
        conforms(test, TEST)
        assert {"name", "score", "max_score", "visibility"} <= set(test)
        assert 0 <= test["score"] <= test["max_score"]
    for entry in found["leaderboard"]:
        conforms(entry, ENTRY)
    assert found["score"] == pytest.approx(sum(t["score"] for t in found["tests"]))


@pytest.mark.parametrize(
    ("multiple", "share"), [(0.5, 1.0), (1.0, 1.0), (2**0.5, 0.5), (2.0, 0.0), (9.0, 0.0)]
)
def test_points_for_time_follow_the_baseline(multiple, share):
    found = Verdict("k.py:k", [launch("right", 10 * multiple), launch("slow", 20 * multiple, 20.0)])
    assert performance(found, 1.0, 2.0) == pytest.approx(share)
    check_gradescope(said := gradescope(found, {"points": 10, "performance": 30}))
    assert said["score"] == pytest.approx(20 + 30 * share, abs=0.01)


def test_a_wrong_kernel_has_no_points_for_time_and_a_hidden_case_no_sizes():
    found = Verdict("k.py:k", [launch("right", 1.0), launch("wrong", hidden=True, points=5)])
    check_gradescope(said := gradescope(found, {"points": 10, "performance": 30}))
    assert said["score"] == 10
    assert said["leaderboard"] == []
    shown, hidden, _ = said["tests"]
    assert "n=3" in shown["name"]
    assert "n=3" not in json.dumps(hidden)
    assert hidden["max_score"] == 5


def test_a_leaderboard_has_the_right_ones_first():
    verdicts = {
        "slow": Verdict("k", [launch("right", 30.0)]),
        "wrong": Verdict("k", [launch("wrong", 1.0)]),
        "fast": Verdict("k", [launch("right", 5.0)]),
    }
    table = leaderboard({name: v.as_data() for name, v in verdicts.items()}).splitlines()
    assert table[2:] == [
        "| fast | 1 of 1 | 0.50 |",
        "| slow | 1 of 1 | 3.00 |",
        "| wrong | 0 of 1 |  |",
    ]


@pytest.mark.parametrize("dialect", ["nki", "neuronxcc"])
def test_three_submissions_are_graded(dialect):
    task, more = read(FOLDER / dialect / "grade.toml")
    names = [f"{FOLDER}/{dialect}/submissions/{n}.py:centred" for n in ("right", "edge", "cheat")]
    small = Task(**{**vars(task), "cases": list(task.cases[:4])})
    right, edge, cheat = judge_all(names, small, shrink=False)
    assert right.right, str(right)
    assert all(x.of_baseline >= 0.99 for x in right.launches)
    statuses = [x.status for x in edge.launches]
    assert statuses == ["right", "wrong", "refused", "wrong"]
    assert {x.status for x in cheat.launches} == {"refused"}
    assert "reads values" in cheat.launches[0].why
    for verdict in (right, edge, cheat):
        check_gradescope(gradescope(verdict, more["score"]))
    said = result(right, small, more["name"])
    assert said["schema_version"] == 1
    assert said["correctness"]["passed"] is True
    assert said["correctness"]["max_abs_diff"] < 1e-4
    assert said["timing"]["student_ms_median"] == pytest.approx(right.latency_us / 1e3)
    assert "student_ms_median" not in result(cheat, small, "")["timing"]
    assert set(said) == {
        "schema_version",
        "job_id",
        "assignment",
        "timestamp_utc",
        "correctness",
        "timing",
        "environment",
    }


def test_the_folder_of_the_assignment_is_complete_where_it_is_copied(tmp_path):
    copied = shutil.copytree(FOLDER, tmp_path / "assignment")
    for dialect in ("nki", "neuronxcc"):
        seen, _ = read(copied / dialect / "task.toml")
        graded, _ = read(copied / dialect / "grade.toml")
        assert list(seen.cases) == list(graded.cases[:2])
        assert any(case.get("hidden") for case in graded.cases)
        assert graded.inputs == seen.inputs
        for name in ("kernel.py", "baseline.py"):
            assert (copied / dialect / name).is_file()
