"""A report of an instance, written and compared with the stand-in, and with faults put in."""

from __future__ import annotations

import functools
import getpass
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import stand_in

from kernels.arrays import frameworks_of_device
from nkibook.instance import comparing, report
from nkibook.instance.probes import PROBES, probes

# This one asks what happens before an import, which a forked process has behind it.
BEFORE = next(i for i, p in enumerate(PROBES) if p.name.endswith("before torch_xla is imported"))


@pytest.fixture(scope="module")
def write(sdks, forkings):
    """Write a report without the notebooks, which test_instance.py runs."""
    return functools.partial(_write, sdks, forkings)


def _write(sdks, forkings, path, sdk, instance, log, *options):
    changes = {"SECRET_TOKEN": "d41d8cd98f00b204", "FORKS_NOT": f"probe {BEFORE}"}
    done = subprocess.run(
        [
            *(stand_in.python(sdks(sdk)), "-m", "nkibook.instance"),
            *("-o", str(path), "--no-notebooks", *options),
        ],
        env=stand_in.environment(sdks(sdk), instance, log, forkings(sdk)) | changes,
        capture_output=True,
        text=True,
    )
    assert path.exists(), done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def written(write, tmp_path_factory):
    """A report; what ran; and the log."""
    path = tmp_path_factory.mktemp("report") / "report.zip"
    log = tmp_path_factory.mktemp("log")
    return path, write(path, "2.28.1", "inf2", log), log


def test_the_stand_in_behaves_as_assumed(written):
    path, done, _ = written
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(comparing.differences(report.read(path)))
    installed = frameworks_of_device()
    older = [probe for _, probe in probes("neuronxcc")]
    asked = [p for p in older if p.framework in installed and "trn2" not in p.only]
    assert sum(said == "as assumed" for _, said, _ in rows) == len(asked)
    assert all(good for _, _, good in rows)
    assert any("measured" in said and "modelled" in said for _, said, _ in rows)
    book = {path.parent.name for path in (report.ROOT / "kernels").glob("*/torch_op.py")}
    for framework in installed:
        asked = [what.split(", ") for what, _, _ in rows if f", {framework}, float16" in what]
        assert {name.split()[0] for name, *_ in asked} == book


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_the_stand_in_for_a_later_sdk_behaves_as_assumed(write, tmp_path, framework):
    """The notebooks have JAX, and tests/kernels/test_dialect.py its operators."""
    if framework == "torch":
        pytest.importorskip("torch")
    path = tmp_path / "report.zip"
    only = ("environment", "probe", "operators", "hlo")
    sdk = {"numpy": stand_in.JAX, "torch": stand_in.TORCH}[framework]
    options = ["--framework", framework, *(word for step in only for word in ("--only", step))]
    done = write(path, sdk, "trn2", tmp_path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = report.read(path)
    assert found["environment"]["answer"]["dialect"] == "nki"
    rows = list(comparing.differences(found))
    asked = [probe for _, probe in probes("nki") if probe.framework == framework]
    assert sum(said == "as assumed" for _, said, _ in rows) == len(asked)
    assert all(good for _, _, good in rows)
    assert sum(what.startswith(f"attention, {framework}") for what, *_ in rows) == 3
    if framework == "torch":
        assert found["hlo: torch"]["answer"]["kernels"] == {"nki_tensor_add_kernel": 1}


@pytest.mark.parametrize("framework", frameworks_of_device())
def test_tests_for_a_device_pass(written, framework):
    step = report.read(written[0])[f"tests: {framework}"]
    assert step["exit_code"] == 0, step
    assert int(re.search(r"(\d+) passed", step["answer"])[1]) >= 30
    notes = [n for n in stand_in.read_log(written[2]) if "pytest" in " ".join(n["argv"])]
    assert [n["refused"] for n in notes if n["runtimes"] == [framework]] == [[]]


def test_a_report_is_compared_anywhere(written, run_python):
    path, *_ = written
    done = run_python("-m", "nkibook.instance", "--compare", str(path))
    assert "0 not as assumed" in done.stdout


def test_a_report_holds_nothing_private(written):
    text = json.dumps(report.read(written[0]))
    assert "SECRET_TOKEN" not in text
    assert "d41d8cd98f00b204" not in text
    assert str(report.ROOT) not in text
    assert str(Path.home()) not in text or len(str(Path.home())) < 2
    assert getpass.getuser() not in text or len(getpass.getuser()) < 5
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" in text


def fault(found: dict, step: str, **changes) -> dict:
    return found | {step: found.get(step, {}) | changes}


def test_faults_are_reported(written):
    found = report.read(written[0])
    probe = "probe: a tile of 300 partitions"
    wrong = list(found["operators: jax"]["answer"])
    wrong[0] = wrong[0] | {"ulp": 1e6}
    for broken, named in (
        (fault(found, probe, answer={"outcome": "fine: 0"}), "a tile of 300 partitions"),
        (fault(found, probe, answer={}, failed="no answer within 5 s"), "a tile of 300 partitions"),
        (fault(found, "operators: jax", answer=wrong), "add, jax, float32"),
        (fault(found, "tests: numpy", exit_code=1), "tests: numpy"),
        (fault(found, "times", failed="exit code 1, and no answer"), "times"),
    ):
        assert [what for what, _, good in comparing.differences(broken) if not good] == [named]


def test_a_step_that_hangs_stops_at_its_limit():
    step = report.Step("hangs", [sys.executable, "-c", "import time; time.sleep(600)"])
    assert report.run(step, limit=1)["failed"] == "no answer within 1 s"
    assert "failed" in report.run(report.Step("absent", ["no-such-program"]))


def test_private_words_are_taken_out(monkeypatch):
    monkeypatch.setattr(report.platform, "node", lambda: "ip-10-0-0-7")
    monkeypatch.setattr(report.getpass, "getuser", lambda: "somebody")
    text = f"{report.ROOT}/kernels somebody@ip-10-0-0-7 172.31.0.12 {Path.home()}/x"
    text += " i-0a1b2c3d4e5f67890"
    found = report.scrubbed(text)
    for word in (str(report.ROOT), "somebody", "ip-10-0-0-7", "172.31.0.12", "0a1b2c3d4e5f67890"):
        assert word not in found


def test_what_others_run_on_the_device_is_counted_and_not_told():
    processes = [{"pid": 4711, "command": "python train.py --key d41d8cd9", "neuroncore_ids": [0]}]
    listed = [{"neuron_device": 0, "nc_count": 2, "bdf": "00:1f.0", "neuron_processes": processes}]
    found = report.devices(json.dumps(listed))
    assert found == [{"neuron_device": 0, "nc_count": 2, "processes": 1}]


def test_without_an_sdk_there_is_no_report(run_python, tmp_path):
    path = tmp_path / "report.zip"
    done = run_python("-m", "nkibook.instance", "-o", str(path), check=False)
    assert done.returncode == 2
    assert "no Neuron SDK here" in done.stderr
    assert not path.exists()
