"""Ask an instance everything, one process a step, and pack the answers into one archive."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import platform
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kernels
from nkibook.instance.probes import probes

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1800  # seconds a step: a first launch compiles
CONTENT = "report.json"


@dataclasses.dataclass
class Step:
    """One question.

    Attributes:
        name: of the step, and its key in the report.
        command: what is run.
        reads: what its standard output means; by default JSON on the last line.
        environment: changes to the environment.
    """

    name: str
    command: list[str]
    reads: Callable[[str], Any] | None = None
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


def _module(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def steps(frameworks: Sequence[str], notebooks: bool = True) -> Iterator[Step]:
    """All questions, the cheap ones first.

    Args:
        frameworks: of "numpy", "torch" and "jax", those to ask.
        notebooks: whether every notebook is run, too.
    """
    from nkibook.device import instance, model_environment

    here = instance()
    yield Step("environment", _module("nkibook.instance.step", "environment"))
    yield Step("doctor", _module("nkibook.doctor", "--json"), json.loads)
    yield Step("neuron-ls", ["neuron-ls", "--json-output"], devices)
    for number, probe in probes(kernels.dialect):
        if probe.framework in frameworks and (not probe.only or here in probe.only):
            command = _module("nkibook.instance.step", "probe", str(number))
            yield Step(f"probe: {probe.name}", command)
    for framework in frameworks:
        command = _module("nkibook.instance.step", "operators", framework)
        yield Step(f"operators: {framework}", command)
        if framework != "numpy":
            yield Step(f"hlo: {framework}", _module("nkibook.instance.step", "hlo", framework))
    if kernels.dialect == "neuronxcc":  # the other has no nki.benchmark
        yield Step("times", _module("nkibook.instance.step", "times"))
    else:
        for framework in frameworks:
            if framework != "numpy":
                command = _module("nkibook.instance.step", "calls", framework)
                yield Step(f"calls: {framework}", command)
    command = _module("nkibook.instance.step", "model")
    yield Step("model", command, environment=model_environment())
    tests = [sys.executable, str(ROOT / "tools/neuron_tests.py")]
    for framework in frameworks:
        yield Step(f"tests: {framework}", [*tests, "--tests", framework], _tail)
    folder = ROOT / "notebooks" / kernels.dialect
    for path in sorted(folder.glob("*.ipynb")) if notebooks else ():
        yield Step(f"notebook: {path.stem}", [*tests, str(path)], _tail)


def devices(listing: str) -> list[dict[str, Any]]:
    """What neuron-ls says of each device, without the command lines of processes that use it."""
    kept = ("neuron_device", "nc_count", "memory_size", "connected_to")
    return [
        {key: device[key] for key in kept if key in device}
        | {"processes": len(device.get("neuron_processes") or ())}
        for device in json.loads(listing)
    ]


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-40:])


def run(step: Step, limit: float = LIMIT) -> dict[str, Any]:
    """Run one step; whatever it does, there is an answer."""
    start = time.perf_counter()
    found: dict[str, Any] = {}
    try:
        done = subprocess.run(
            step.command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": _path()} | step.environment,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        found["failed"] = f"no answer within {limit:.0f} s"
    except OSError as error:
        found["failed"] = f"{type(error).__name__}: {error}"
    else:
        found["exit_code"] = done.returncode
        try:
            reads = step.reads or (lambda text: json.loads(text.strip().splitlines()[-1]))
            found["answer"] = reads(done.stdout)
        except (ValueError, IndexError):
            found["failed"] = f"exit code {done.returncode}, and no answer"
        if done.returncode or "failed" in found:
            found["errors"] = done.stderr[-6000:]
            found.setdefault("printed", done.stdout[-2000:])
    found["seconds"] = round(time.perf_counter() - start, 1)
    return found


def _path() -> str:
    return os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


def scrubbed(text: str) -> str:
    """The text without paths of the checkout and of home, addresses, names of user and host."""
    for path, said in ((str(ROOT), "<book>"), (sys.prefix, "<env>"), (str(Path.home()), "~")):
        if len(path) > 1:
            text = text.replace(path, said)
    for word, said in ((getpass.getuser(), "<user>"), (platform.node(), "<host>")):
        if len(word) > 3:
            text = re.sub(rf"\b{re.escape(word)}\b", said, text)
    text = re.sub(r"\bi-[0-9a-f]{8,17}\b", "<instance>", text)
    return re.sub(r"\b\d{1,3}(\.\d{1,3}){3}\b", "<address>", text)


def write(path: Path, chosen: Sequence[Step], limit: float = LIMIT) -> dict[str, Any]:
    """Run steps and write the archive. Prints each as it ends.

    Args:
        path: of the archive.
        chosen: of `steps`.
        limit: seconds a step may take.

    Returns:
        The report: what each step answered, by its name.
    """
    report: dict[str, Any] = {}
    for step in chosen:
        print(f"{step.name} ", end="", flush=True)
        report[step.name] = found = run(step, limit)
        print(found.get("failed") or "answered", f"({found['seconds']} s)", flush=True)
        text = scrubbed(json.dumps(report, indent=1, default=str))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(CONTENT, text)  # after each step, so that an interrupted one counts
    return report


def read(path: Path) -> dict[str, Any]:
    """Read an archive.

    Raises:
        ValueError: it is none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(CONTENT))
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no report: {error}") from None
