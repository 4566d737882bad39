"""Says what this machine has, which backend will run the kernels, and what to do about the rest.

    python -m nkibook.doctor            # a table; exit code 0 when the book can be built here
    python -m nkibook.doctor --json     # the same, for programs

Packages are found by their metadata and files. None of the frameworks is imported.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib.machinery
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import kernels

# Which Neuron SDK a neuronx-cc belongs to, from AWS' release manifests. `neuronxcc.nki` works up
# to 2.29: later ones answer it with a compile error (book/setup.md has the sources).
SDK_OF_COMPILER = {
    "2.21": "2.26",
    "2.22": "2.27",
    "2.23": "2.28",
    "2.24": "2.29",
    "2.25": "2.30",
    "2.26": "2.31",
    "2.27": "2.32",
    "2.28": "2.33",
}
# Which SDK compiles which dialect, and for which chips AWS states support of `import nki`: AWS's
# documentation of SDK 2.33, October 2026 (release-notes/components/nki.rst, nki/nki_faq.rst,
# nki/migration/index.rst). A test holds the table of "Two dialects of NKI" to it.
_ROWS = (
    (("2.26",), "yes, the only dialect", "no", ""),
    (("2.27", "2.28"), "yes", "0.1, 0.2 (beta)", "inf2, trn1, trn2"),
    (("2.29",), "yes, for the last time", "0.3", "trn2, trn3"),
    (("2.30",), "compile error", "0.4", "trn2, trn3"),
    (("2.31",), "compile error", "0.5", "trn2, trn3"),
    (("2.32",), "compile error", "0.6", "trn2, trn3"),
    (("2.33",), "compile error", "0.7", "trn2, trn3"),
)
SUPPORTED_SDKS = ("2.26", "2.27", "2.28", "2.29")
TORCH = "2.9"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))

_NEURON = 'See the page "Set up", section "On an instance".'


class State(enum.StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    ABSENT = "absent"  # not here, and that is fine
    MISSING = "missing"
    WRONG = "wrong"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report.

    `needed` tells whether the book cannot be built while the state is MISSING or WRONG. `advice`
    says what to do, or why nothing is to be done; it is empty when the state is OK.
    """

    name: str
    state: State
    found: str
    advice: str = ""
    needed: bool = False


def examine(dev: Path = Path("/dev")) -> list[Finding]:
    """Looks at everything, in the order of the report. `dev` is where device nodes are."""
    return [
        _python(),
        _system(),
        _backend(),
        _dialect(),
        _target(),
        _sdk(_devices(dev)),
        _applies(),
        _device(_devices(dev)),
        *_pjrt(),
        _neuron_package("torch-neuronx", "torch_neuronx", "PyTorch"),
        _neuron_package("jax-neuronx", "jax_neuronx", "JAX"),
        _framework("torch", "torch", "jax"),
        _torch_device(),
        _framework("jax", "jax", "torch"),
        _package("matplotlib", "matplotlib"),
        _jupyter_book(),
        _compiler(),
    ]


def can_build(findings: Sequence[Finding]) -> bool:
    """Whether nothing that the book needs is missing or wrong."""
    bad = (State.MISSING, State.WRONG)
    return not any(finding.needed and finding.state in bad for finding in findings)


def report(findings: Sequence[Finding]) -> str:
    """The findings as a table, then what to do, then the verdict."""
    rows = [("", "state", "found")] + [(f.name, str(f.state), f.found) for f in findings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]
    advice = [f"- {f.name}: {f.advice}" for f in findings if f.advice]
    if advice:
        lines += ["", "What to do:", *advice]
    able = "can" if can_build(findings) else "cannot"
    return "\n".join([*lines, "", f"The book {able} be built here. {_who_runs_kernels()}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report. Returns 0 when the book can be built here, else 1."""
    parser = argparse.ArgumentParser("python -m nkibook.doctor", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    findings = examine()
    if options.json:
        content = {
            "can_build_book": can_build(findings),
            "backend": kernels.backend,
            "backend_version": kernels.backend_version,
            "dialect": kernels.dialect,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        print(json.dumps(content, indent=2))
    else:
        print(report(findings))
    return 0 if can_build(findings) else 1


def _who_runs_kernels() -> str:
    if kernels.backend == "neuronxcc":
        return (
            f"NKI kernels go to the Neuron SDK (neuronxcc {kernels.backend_version}), and `make "
            "test-neuron` runs the notebooks there."
        )
    return f"NKI kernels run in the CPU simulator (nkisim {kernels.backend_version})."


# Packages.


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _has_module(name: str) -> bool:
    """Whether a module's files are on the path, without importing it or its parents.

    PathFinder looks at files only, so the simulator that stands in for `neuronxcc` is not found.
    """
    path: Sequence[str] | None = None
    parts = name.split(".")
    for depth in range(len(parts)):
        found = importlib.machinery.PathFinder.find_spec(".".join(parts[: depth + 1]), path)
        if found is None:
            return False
        path = found.submodule_search_locations
        if path is None and depth + 1 < len(parts):
            return False
    return True


def _has_sdk() -> bool:
    """Whether a dialect of NKI is on the path, with its code."""
    return _has_module("neuronxcc.nki") or _has_module("nki.language")


def _install() -> str:
    """How to get the tested versions: next to an SDK they have their own list."""
    if _has_sdk():
        framework = "torch" if _version("torch-neuronx") else "jax"
        sdk = f"-2.33-{framework}" if kernels.dialect == "nki" else ""
        name = f"requirements-neuron{sdk}.txt"
        return (
            f"Run `pip install -r {name} --extra-index-url "
            "https://pip.repos.neuron.amazonaws.com` in this environment."
        )
    return "Run `make env`, which installs the versions of requirements.txt into .venv."


def _package(name: str, module: str) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(name, State.MISSING, "not installed", _install(), needed=True)
    if not _has_module(module):
        return Finding(name, State.WRONG, f"{version}, without its code", _install(), needed=True)
    return Finding(name, State.OK, version, needed=True)


def _framework(name: str, module: str, other: str) -> Finding:
    """A framework. With the SDK one of the two is enough: AWS's images have an environment each."""
    finding = _package(name, module)
    if finding.state is State.OK or not _has_sdk() or not _has_module(other):
        return finding
    pages = "PyTorch" if name == "torch" else "JAX"
    advice = (
        f"This environment of the SDK has {other}. The {pages} pages are skipped here: run `make "
        f"test-neuron` in the other environment, too."
    )
    return Finding(name, State.ABSENT, "not installed", advice)


def _torch_device() -> Finding:
    """What makes PyTorch's device, in the dialect of the kernels."""
    return neuron_backend() if kernels.dialect == "nki" else _torch_xla()


def neuron_backend() -> Finding:
    """The device `neuron`: torch-neuronx has its own finding; the simulator's needs PyTorch 2.13 or
    a compiler."""
    name = "PyTorch's device neuron"
    version = _version("torch")
    if version is None:
        return Finding(name, State.ABSENT, "not installed", "It comes with PyTorch.")
    if kernels.backend == "neuronxcc":
        if _version("torch-neuronx"):
            return Finding(name, State.OK, "of torch-neuronx")
        return Finding(name, State.MISSING, "no torch-neuronx", _NEURON)
    made = f"nkisim's, for torch {version}"
    minor = tuple(int(part) for part in _minor(version).split(".") if part.isdigit())
    if minor >= (2, 13) or _compiler().state is State.OK:
        return Finding(name, State.OK, made)
    advice = "PyTorch before 2.13 needs a C++ compiler for it: install one, or a newer PyTorch."
    return Finding(name, State.MISSING, "cannot be made", advice)


def _torch_xla() -> Finding:
    name = "torch_xla"
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        why = "It exists for Linux on x86_64 only. Here the PyTorch pages show stored results."
        return Finding(name, State.ABSENT, "not for this platform", why)
    finding = _package("torch_xla", "torch_xla")
    if finding.state is State.MISSING and _framework("torch", "torch", "jax").state is State.ABSENT:
        return Finding(name, State.ABSENT, "not installed", "It comes with PyTorch.")
    torch = _version("torch")
    if finding.state is State.OK and torch and _minor(torch) != _minor(finding.found):
        found = f"{finding.found}, with torch {torch}"
        advice = f"The two must be of the same release, here {TORCH}. {_install()}"
        return Finding(name, State.WRONG, found, advice, needed=True)
    return finding


def _jupyter_book() -> Finding:
    finding = _package("jupyter-book", "jupyter_book")
    if finding.state is State.OK and finding.found.split(".")[0] != "1":
        advice = f"The book needs 1.x: 2.x reads neither _config.yml nor _toc.yml. {_install()}"
        return dataclasses.replace(finding, state=State.WRONG, advice=advice)
    return finding


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


# Neuron.


def _dialect() -> Finding:
    """Which dialect of NKI the operators' kernels are in, and what says so."""
    by = "by NKI_DIALECT" if os.environ.get("NKI_DIALECT") else "by default"
    if kernels.backend != "nkisim" and by == "by default":
        by = f"by neuronx-cc {kernels.backend_version}"
    return Finding("dialect of operators", State.OK, f"{kernels.dialect}, {by}")


def _applies() -> Finding:
    """The row of the table of SDKs that the installed compiler is in."""
    name = "SDK and dialects"
    version = _version("neuronx-cc")
    sdk = SDK_OF_COMPILER.get(_minor(version)) if version else None
    for sdks, old, today, chips in _ROWS:
        if sdk in sdks:
            found = f"SDK {sdk}: neuronxcc.nki {old}; import nki {today}"
            return Finding(name, State.OK, f"{found}, for {chips}" if chips else found)
    if version:
        return Finding(name, State.OK, f"neuronx-cc {version} is in no row of the table of SDKs")
    advice = "notebooks/dialects has the table of SDKs, chips and dialects, to choose from."
    return Finding(name, State.ABSENT, "no SDK: the simulator takes both dialects", advice)


def _target() -> Finding:
    """Which NeuronCore generation kernels are for, in the simulator, and what says so."""
    name = "target of kernels"
    if kernels.backend != "nkisim":
        return Finding(name, State.OK, "what the SDK finds")
    from nkisim.errors import ParameterError
    from nkisim.frontends.nki.target import target as target_of_nki
    from nkisim.machine.target import PLATFORMS, target

    try:
        machine, source = target_of_nki() if kernels.dialect == "nki" else target()
    except ParameterError as error:
        found = str(error).splitlines()[0]
        advice = f"Name one of {', '.join(PLATFORMS)}, or none: as it is, no kernel runs."
        return Finding(name, State.WRONG, found, advice, needed=True)
    found = f"{machine.name} ({machine.instances}), of `{kernels.dialect}`"
    return Finding(name, State.OK, f"{found}, by {source}" if source else found)


def _sdk(devices: Sequence[str]) -> Finding:
    name = "Neuron SDK (neuronx-cc)"
    version = _version("neuronx-cc")
    if not _has_sdk():
        if version is None and not _has_module("neuronxcc"):
            if devices:
                advice = f"This machine has a Neuron device: install the SDK to use it. {_NEURON}"
                return Finding(name, State.MISSING, "not installed", advice)
            return Finding(name, State.ABSENT, "not installed", "Not needed without a device.")
        found = f"{version or 'a package'} of that name, without NKI"
        advice = (
            "This is an empty placeholder from PyPI, not the SDK: uninstall it. The SDK comes "
            f"from AWS' own index. {_NEURON}"
        )
        return Finding(name, State.WRONG, found, advice)
    if version is None:
        advice = f"neuronxcc is there, but not as a package: install the SDK with pip. {_NEURON}"
        return Finding(name, State.WRONG, "unknown version", advice)
    sdk = SDK_OF_COMPILER.get(_minor(version))
    found = f"{version} (SDK {sdk or 'unknown to this book'})"
    if sdk in SUPPORTED_SDKS:
        return Finding(name, State.OK, found)
    if sdk and _has_module("nki.language"):
        return Finding(name, State.OK, f"{found}: operators, and pages in import nki")
    supported = f"{SUPPORTED_SDKS[0]} to {SUPPORTED_SDKS[-1]}"
    advice = (
        f"The book's kernels in neuronxcc.nki are written for SDK {supported}, those in import nki "
        f"for 2.33, which needs its package nki. {_NEURON}"
    )
    return Finding(name, State.WRONG, found, advice)


# Arguments of _framework.
_OTHER = {"PyTorch": ("torch", "torch", "jax"), "JAX": ("jax", "jax", "torch")}


def _neuron_package(distribution: str, module: str, framework: str) -> Finding:
    version = _version(distribution)
    if version is None:
        if _framework(*_OTHER[framework]).state is State.ABSENT:
            advice = f"It comes with {framework}."
            return Finding(distribution, State.ABSENT, "not installed", advice)
        if _has_sdk():
            advice = f"Needed to run the {framework} pages on a Neuron device. {_NEURON}"
            return Finding(distribution, State.MISSING, "not installed", advice)
        return Finding(distribution, State.ABSENT, "not installed", "Not needed without the SDK.")
    if not _has_module(module):
        advice = (
            "This is an empty placeholder from PyPI: uninstall it. The real one comes from AWS' "
            f"own index. {_NEURON}"
        )
        return Finding(distribution, State.WRONG, f"{version}, without its code", advice)
    return Finding(distribution, State.OK, version)


def _devices(dev: Path) -> list[str]:
    return sorted(p.name for p in dev.glob("neuron*") if p.name.removeprefix("neuron").isdigit())


def _device(devices: Sequence[str]) -> Finding:
    name = "Neuron device"
    if not devices and kernels.backend == "neuronxcc":
        advice = (
            "The SDK is here and no device, so kernels compile and cannot run. Use an inf2, trn1 "
            "or trn2 instance with the driver (aws-neuronx-dkms), or set NKI_BACKEND=nkisim, and "
            "the simulator runs them."
        )
        return Finding(name, State.MISSING, "none", advice)
    if not devices:
        advice = "Not needed: the simulator runs the kernels. Times are then of this CPU."
        return Finding(name, State.ABSENT, "none", advice)
    found = f"{len(devices)} ({devices[0]}{f' to {devices[-1]}' if len(devices) > 1 else ''})"
    listed = _output("neuron-ls", "--json-output")
    if listed is None:
        advice = "neuron-ls is not there or fails: install the package aws-neuronx-tools."
        return Finding(name, State.OK, found, advice)
    try:
        listing = json.loads(listed)
        cores = sum(int(device["nc_count"]) for device in listing)
        users = [int(p["pid"]) for d in listing for p in d.get("neuron_processes") or ()]
    except (ValueError, TypeError, KeyError):
        return Finding(name, State.OK, found, "neuron-ls --json-output gave no count of cores.")
    found = f"{found}, {cores} NeuronCores"
    if users:
        who = ", ".join(map(str, sorted(set(users))))
        advice = (
            "A process has the NeuronCores until it ends, and another is told that they are not "
            f"available. Process {who} has some: end it (an open "
            "notebook's kernel, often), or share with NEURON_RT_VISIBLE_CORES."
        )
        return Finding(name, State.WRONG, f"{found}, in use", advice)
    return Finding(name, State.OK, found)


def _pjrt() -> list[Finding]:
    """Where torch_xla and JAX compute, with the SDK: nothing to say when the SDK decides it."""
    if kernels.backend != "neuronxcc":
        return []
    asked = {"PJRT_DEVICE": "NEURON", "JAX_PLATFORMS": "neuron"}
    return [
        Finding(
            name,
            State.WRONG,
            os.environ[name],
            f"With this variable the framework does not compute on the NeuronCores. Unset {name}.",
        )
        for name, device in asked.items()
        if os.environ.get(name) and device not in os.environ[name].split(",")
    ]


# The machine.


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] in PYTHONS:
        return Finding("Python", State.OK, version, needed=True)
    advice = "Use 3.11 to 3.14 (JAX and torch_xla: to 3.13): make env PYTHON=/path/to/python3.12"
    return Finding("Python", State.WRONG, version, advice, needed=True)


def _system() -> Finding:
    found = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if platform.system() in ("Linux", "Darwin"):
        return Finding("operating system", State.OK, found, needed=True)
    advice = "Use Linux or macOS; on Windows, the Linux of WSL 2."
    return Finding("operating system", State.WRONG, found, advice, needed=True)


def _backend() -> Finding:
    return Finding("NKI backend", State.OK, f"{kernels.backend} {kernels.backend_version}")


def _compiler() -> Finding:
    candidates = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    for command in filter(None, candidates):
        version = _output(*command.split(), "--version")
        if version:
            found = f"{command}: {version.splitlines()[0]}"
            return Finding("C++ compiler", State.OK, found)
    advice = (
        "The page on C++ operators compiles one; without it, the book shows that page with stored "
        "results and its tests are skipped. Debian, Ubuntu: apt-get install g++. "
        "macOS: xcode-select --install"
    )
    return Finding("C++ compiler", State.MISSING, "none", advice)


def _output(*command: str) -> str | None:
    """What a program prints, or None when it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
