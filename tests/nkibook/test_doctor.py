"""nkibook.doctor against made-up machines: a folder of fake packages, programs and devices."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from nkibook import doctor
from nkibook.doctor import State

ON_LINUX_X86 = (platform.system(), platform.machine()) == ("Linux", "x86_64")
COMPLETE = {
    "torch": ("2.9.0", "torch"),
    "torch_xla": ("2.9.0", "torch_xla"),
    "jax": ("0.7.0", "jax"),
    "matplotlib": ("3.11.2", "matplotlib"),
    "jupyter-book": ("1.0.4.post1", "jupyter_book"),
}


class Machine:
    """A fake machine: only what a test puts into it is there, and NumPy, which kernels needs."""

    def __init__(self, folder: Path, run_python: Callable) -> None:
        self.run_python = run_python
        self.site = folder / "site"
        self.programs = folder / "bin"
        self.site.mkdir()
        self.programs.mkdir()
        real = Path(find_spec("numpy").origin).parents[1]
        for pattern in ("numpy*", "ml_dtypes*"):
            for path in real.glob(pattern):
                (self.site / path.name).symlink_to(path)

    def package(self, name: str, version: str | None, *modules: str) -> None:
        """Installs a package: its metadata if it has a version, and empty modules."""
        if version is not None:
            metadata = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        for module in modules:
            init = self.site.joinpath(*module.split("."), "__init__.py")
            init.parent.mkdir(parents=True, exist_ok=True)
            init.write_text("")

    def complete(self, **changes: tuple[str, str] | None) -> None:
        """Installs all that the book needs, but for the changes (None leaves a package out)."""
        for name, content in {**COMPLETE, **changes}.items():
            if content is not None:
                self.package(name, *content)
        self.program("c++", "echo 'c++ (Fake) 99.1'; echo 'more'")

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def doctor(self, *arguments: str):
        """Runs the doctor there, without this environment's packages (-S)."""
        command = ["-S", "-m", "nkibook.doctor", *arguments]
        environment = {"PATH": str(self.programs), "CXX": ""}
        return self.run_python(*command, env=environment, path=(self.site,), check=False)

    def findings(self) -> tuple[int, dict[str, dict]]:
        done = self.doctor("--json")
        assert done.stderr == ""
        listed = json.loads(done.stdout)
        assert listed["can_build_book"] is (done.returncode == 0)
        return done.returncode, {f["name"]: f for f in listed["findings"]}


@pytest.fixture
def machine(tmp_path, run_python) -> Machine:
    return Machine(tmp_path, run_python)


def states(findings: dict[str, dict]) -> dict[str, str]:
    return {name: finding["state"] for name, finding in findings.items()}


def test_complete_laptop_can_build_the_book(machine):
    machine.complete()
    code, findings = machine.findings()
    assert code == 0
    assert findings["torch"]["found"] == "2.9.0"
    assert findings["C++ compiler"]["found"] == "c++: c++ (Fake) 99.1"
    assert findings["NKI backend"]["found"].startswith("nkisim ")
    found = states(findings)
    assert set(found.values()) == {State.OK, State.ABSENT}
    for name in ("Neuron SDK (neuronx-cc)", "torch-neuronx", "jax-neuronx"):
        assert found[name] == State.ABSENT


def test_bare_machine_cannot_and_is_told_what_to_do(machine):
    code, findings = machine.findings()
    assert code == 1
    for name in ("torch", "jax", "matplotlib", "jupyter-book"):
        assert findings[name]["state"] == State.MISSING
        assert "make env" in findings[name]["advice"]
    assert findings["C++ compiler"]["state"] == State.MISSING
    assert findings["C++ compiler"]["needed"] is False  # one page then shows stored results
    assert "stored results" in findings["C++ compiler"]["advice"]
    for finding in findings.values():
        assert bool(finding["advice"]) is (finding["state"] != State.OK)


@pytest.mark.parametrize("name", ["torch", "jax", "jupyter-book", "matplotlib"])
def test_each_needed_package_counts(machine, name):
    machine.complete(**{name: None})
    code, findings = machine.findings()
    assert code == 1
    bad = [n for n, f in findings.items() if f["needed"] and f["state"] != State.OK]
    assert bad == [name]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("jupyter-book", ("2.0.1", "jupyter_book"), "1.x"),
        ("jax", ("0.7.0", "something_else"), "make env"),
        pytest.param(
            "torch_xla",
            ("2.8.1", "torch_xla"),
            "same release",
            marks=pytest.mark.skipif(not ON_LINUX_X86, reason="torch_xla is for Linux on x86_64"),
        ),
    ],
)
def test_wrong_versions_are_told(machine, name, content, said):
    machine.complete(**{name: content})
    code, findings = machine.findings()
    assert code == 1
    assert findings[name]["state"] == State.WRONG
    assert said in findings[name]["advice"]


def test_real_sdk_is_used_and_its_release_named(machine):
    machine.complete()
    machine.package("neuronx-cc", "2.23.6484.0+3b612583", "neuronxcc", "neuronxcc.nki")
    machine.package("torch-neuronx", "2.9.0.2.12.22436", "torch_neuronx")
    code, findings = machine.findings()
    assert code == 0
    assert findings["Neuron SDK (neuronx-cc)"]["found"] == "2.23.6484.0+3b612583 (SDK 2.28)"
    assert findings["NKI backend"]["found"].startswith("neuronxcc ")
    assert findings["torch-neuronx"]["state"] == State.OK
    assert findings["jax-neuronx"]["state"] == State.MISSING
    assert "neuronxcc" in machine.doctor().stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("compiler", "framework", "file"),
    [
        ("2.23.6484.0", "torch-neuronx", "requirements-neuron.txt"),
        ("2.28.7631.0", "jax-neuronx", "requirements-neuron-2.33-jax.txt"),
        ("2.28.7631.0", "torch-neuronx", "requirements-neuron-2.33-torch.txt"),
    ],
)
def test_next_to_an_sdk_packages_come_from_its_index(machine, compiler, framework, file):
    machine.complete(matplotlib=None)
    machine.package("neuronx-cc", compiler, "neuronxcc")
    machine.package(framework, "2.14.3.0", framework.replace("-", "_"))
    module = "nki" if "2.33" in file else "neuronxcc.nki"
    machine.package("nki", "0.7.0", module, f"{module}.language")
    assert f"-r {file} " in machine.findings()[1]["matplotlib"]["advice"]


@pytest.mark.parametrize(("absent", "other"), [("torch", "jax"), ("jax", "torch")])
def test_with_the_sdk_one_framework_is_enough(machine, absent, other):
    without = {absent: None} | ({"torch_xla": None} if absent == "torch" else {})
    machine.complete(**without)
    machine.package("neuronx-cc", "2.23.6484.0", "neuronxcc", "neuronxcc.nki")
    code, findings = machine.findings()
    assert code == 0
    assert findings[absent]["state"] == State.ABSENT
    assert f"has {other}" in findings[absent]["advice"]
    assert "make test-neuron" in findings[absent]["advice"]
    assert findings[f"{absent}-neuronx"]["state"] == State.ABSENT
    assert findings[f"{other}-neuronx"]["state"] == State.MISSING


def test_the_sdk_without_a_device_is_told_so(machine):
    if any(Path("/dev").glob("neuron[0-9]*")):
        pytest.skip("there is a device")
    machine.complete()
    machine.package("neuronx-cc", "2.23.6484.0", "neuronxcc", "neuronxcc.nki")
    finding = machine.findings()[1]["Neuron device"]
    assert finding["state"] == State.MISSING
    assert "cannot run" in finding["advice"]
    assert "NKI_BACKEND=nkisim" in finding["advice"]


@pytest.mark.parametrize(("value", "listed"), [("CPU", True), ("NEURON", False)])
def test_a_framework_that_is_kept_from_the_device_is_told(machine, monkeypatch, value, listed):
    monkeypatch.setenv("PJRT_DEVICE", value)
    machine.complete()
    assert "PJRT_DEVICE" not in machine.findings()[1]  # without an SDK it is as it should be
    machine.package("neuronx-cc", "2.23.6484.0", "neuronxcc", "neuronxcc.nki")
    assert ("PJRT_DEVICE" in machine.findings()[1]) is listed


@pytest.mark.parametrize("modules", [(), ("neuronxcc",)])
def test_placeholders_from_pypi_are_no_sdk(machine, modules):
    machine.complete()
    machine.package("neuronx-cc", "1.0.0", *modules)
    machine.package("torch-neuronx", "1.0.0")
    code, findings = machine.findings()
    assert code == 0  # the simulator runs the kernels
    assert findings["NKI backend"]["found"].startswith("nkisim ")
    for name in ("Neuron SDK (neuronx-cc)", "torch-neuronx"):
        assert findings[name]["state"] == State.WRONG
        assert "placeholder" in findings[name]["advice"]


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("2.26.6360.0", "2.26.6360.0 (SDK 2.31)"),
        ("3.1.0", "3.1.0 (SDK unknown to this book)"),
        (None, "unknown version"),
    ],
)
def test_sdks_the_book_is_not_written_for(machine, version, found):
    machine.complete()
    machine.package("neuronx-cc", version, "neuronxcc", "neuronxcc.nki")
    finding = machine.findings()[1]["Neuron SDK (neuronx-cc)"]
    assert finding["state"] == State.WRONG
    assert finding["found"] == found


@pytest.mark.parametrize("older", [("neuronxcc.nki",), ()])
def test_an_sdk_whose_kernels_are_in_import_nki(machine, older):
    machine.complete()
    machine.package("neuronx-cc", "2.27.5334.0", "neuronxcc", *older)
    machine.package("nki", "0.6.0", "nki", "nki.language")
    finding = machine.findings()[1]["Neuron SDK (neuronx-cc)"]
    assert finding["state"] == State.OK
    assert finding["found"] == "2.27.5334.0 (SDK 2.32): operators, and pages in import nki"


def test_table_lists_every_finding_and_the_verdict(machine):
    machine.complete(jax=None)
    done = machine.doctor()
    names = [f["name"] for f in json.loads(machine.doctor("--json").stdout)["findings"]]
    table, advice, verdict = done.stdout.split("\n\n")
    assert [
        line[: len(name)] for line, name in zip(table.splitlines()[1:], names, strict=True)
    ] == (names)
    assert "- jax: Run `make env`" in advice
    assert verdict.startswith("The book cannot be built here. NKI kernels run in the CPU simulator")
    assert done.returncode == 1


def test_no_framework_is_imported(machine):
    machine.complete()
    for _, module in COMPLETE.values():
        (machine.site / module / "__init__.py").write_text("raise SystemExit('imported')")
    assert machine.doctor().returncode == 0


# Devices and programs, looked at in this process.


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Machine:
    folder = tmp_path / "programs"
    folder.mkdir()
    fake = Machine(folder, None)
    monkeypatch.setenv("PATH", f"{fake.programs}{os.pathsep}/bin{os.pathsep}/usr/bin")
    return fake


def device(nodes: tuple[str, ...], folder: Path) -> doctor.Finding:
    for node in nodes:
        (folder / node).touch()
    (finding,) = (f for f in doctor.examine(folder) if f.name == "Neuron device")
    return finding


def test_no_device(tmp_path, programs):
    finding = device(("null", "neuron_core"), tmp_path)
    assert (finding.state, finding.found) == (State.ABSENT, "none")


def test_devices_with_their_cores(tmp_path, programs):
    listed = [{"neuron_device": i, "nc_count": 2} for i in range(2)]
    programs.program("neuron-ls", f"[ \"$1\" = --json-output ] && echo '{json.dumps(listed)}'")
    finding = device(("neuron0", "neuron1"), tmp_path)
    assert finding == doctor.Finding(
        "Neuron device", State.OK, "2 (neuron0 to neuron1), 4 NeuronCores"
    )


def test_cores_that_another_process_has_are_told(tmp_path, programs):
    listed = [{"nc_count": 2, "neuron_processes": [{"pid": 4711, "command": "python"}]}]
    programs.program("neuron-ls", f"echo '{json.dumps(listed)}'")
    finding = device(("neuron0",), tmp_path)
    assert finding.state == State.WRONG
    assert "4711" in finding.advice
    assert "NEURON_RT_VISIBLE_CORES" in finding.advice


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "aws-neuronx-tools"),
        ("exit 3", "aws-neuronx-tools"),
        ("echo not json", "no count of cores"),
        ("echo '[{}]'", "no count of cores"),
    ],
)
def test_device_without_a_working_neuron_ls(tmp_path, programs, script, said):
    if script:
        programs.program("neuron-ls", script)
    finding = device(("neuron0",), tmp_path)
    assert (finding.state, finding.found) == (State.OK, "1 (neuron0)")
    assert said in finding.advice


def test_device_without_an_sdk(tmp_path):
    if doctor._has_module("neuronxcc.nki"):
        pytest.skip("the SDK is installed")
    (tmp_path / "neuron0").touch()
    (finding,) = (f for f in doctor.examine(tmp_path) if f.name.startswith("Neuron SDK"))
    assert finding.state == State.MISSING
    assert "install the SDK" in finding.advice


def test_named_compiler_comes_first(programs, monkeypatch):
    programs.program("c++", "echo default")
    programs.program("mine", '[ "$1" = -pthread ] && echo "mine 1.2"')
    monkeypatch.setenv("CXX", "mine -pthread")
    assert doctor._compiler().found == "mine -pthread: mine 1.2"
    programs.program("mine", "exit 1")  # named, but broken: the next one
    assert doctor._compiler().found == "c++: default"


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10), State.WRONG), ((3, 12), State.OK), ((3, 14), State.OK)]
)
def test_python_versions(monkeypatch, version, state):
    monkeypatch.setattr(sys, "version_info", (*version, 1))
    finding = doctor._python()
    assert (finding.state, finding.needed) == (state, True)


@pytest.mark.parametrize(
    ("system", "machine_name", "state"),
    [("Darwin", "arm64", State.ABSENT), ("Linux", "aarch64", State.ABSENT)],
)
def test_torch_xla_is_not_asked_for_where_it_does_not_exist(
    monkeypatch, system, machine_name, state
):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine_name)
    assert doctor._torch_xla().state == state
    assert doctor._system().state == State.OK


@pytest.mark.parametrize(
    ("torch", "compiler", "state"),
    [
        (None, True, State.ABSENT),
        ("2.9.0", True, State.OK),
        ("2.9.0", False, State.MISSING),
        ("2.13.1", False, State.OK),
    ],
)
def test_in_import_nki_pytorch_has_the_device_neuron(monkeypatch, torch, compiler, state):
    monkeypatch.setattr(doctor.kernels, "dialect", "nki")
    monkeypatch.setattr(doctor, "_version", {"torch": torch}.get)
    monkeypatch.setattr(doctor, "_output", lambda *command: "c++ 14.2" if compiler else None)
    assert doctor._torch_device().state == state
    monkeypatch.setattr(doctor.kernels, "dialect", "neuronxcc")
    assert doctor._torch_device().name == "torch_xla"


def test_windows_is_sent_to_wsl(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    assert "WSL" in doctor._system().advice


def test_the_table_of_sdks_is_the_one_on_the_page():
    page = (Path(__file__).resolve().parents[2] / "notebooks/dialects.md").read_text()
    rows = [" | ".join([", ".join(sdks), *cells]).rstrip() for sdks, *cells in doctor._ROWS]
    assert "|---|---|---|---|\n" + "\n".join(f"| {row} |" for row in rows) in page


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.23.6484.0", "SDK 2.28: neuronxcc.nki yes; import nki 0.1, 0.2 (beta), for inf2"),
        ("2.28.7631.0", "SDK 2.33: neuronxcc.nki compile error; import nki 0.7, for trn2, trn3"),
        ("9.1.0", "neuronx-cc 9.1.0 is in no row"),
        (None, "no SDK"),
    ],
)
def test_the_row_that_applies(monkeypatch, version, said):
    monkeypatch.setattr(doctor, "_version", lambda name: version)
    assert doctor._applies().found.startswith(said)
