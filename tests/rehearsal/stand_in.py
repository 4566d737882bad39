"""Build the stand-in for a Neuron SDK: an environment of Python, as an instance has it.

To the book it looks like the SDK: packages with its versions, `neuron-ls`, kernels that only take
what the SDK's take, and no framework that the SDK's environment has not. Kernels run in the
simulator, of which the environment has a copy under another name, so that `import nkisim` in a
notebook is another package, as it is on an instance. All else is this environment's, by links.

    python tests/rehearsal/stand_in.py FOLDER [SDK]     # then: FOLDER/bin/python ...
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import re
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tools"))

import forks  # noqa: E402

# What an SDK consists of: distribution, version, its package. From AWS's release manifest,
# src/helperscripts/n2-manifest.json of the documentation of SDK 2.32, and for 2.33.1 from its
# release notes (release-notes/components/index.html).
#
# 2.28.1 is that of requirements-neuron.txt. It has a beta of `nki`, 0.2.0, which nothing here uses.
#
# 2.33.1 has an environment for each framework: requirements-neuron-2.33-*.txt. Its JAX is 0.7.0 to
# 0.10.0, so that of the tests' environment is allowed, though not the 0.10.0 that it is made for.
# Its PyTorch is 2.14 or 2.13 with the `neuron` device, which is imitated on the tests' own PyTorch.
JAX, TORCH = "2.33.1", "2.33.1-torch"
_COMPILER = (("neuronx-cc", "2.28.7631.0", "neuronxcc"), ("nki", "0.7.0", "nki"))
SDKS = {
    "2.28.1": (
        ("neuronx-cc", "2.23.6484.0", "neuronxcc"),
        ("torch-neuronx", "2.9.0.2.12.22436", "torch_neuronx"),
        ("jax-neuronx", "0.7.0.1.0.7584", "jax_neuronx"),
        ("libneuronxla", "2.2.15515.0", "libneuronxla"),
    ),
    JAX: (
        *_COMPILER,
        ("jax-neuronx", "0.10.0.1.0.14198", "jax_neuronx"),
        ("libneuronxla", "3.0.10135.0", "libneuronxla"),
    ),
    TORCH: (*_COMPILER, ("torch-neuronx", "2.14.3.0", "torch_neuronx")),
}
# Distributions of the tests' environment that an environment of the SDK has not. Beside JAX there
# may be PyTorch for the CPU, which a page compares with.
_ABSENT = {"2.28.1": (), JAX: ("torch_xla",), TORCH: ("torch_xla", "jax", "jaxlib")}

# The copy provides the SDK's names under these, and its own under the last.
_COPIED = {
    name: f"stand_in_{name}" for name in ("neuronxcc", "torch_neuronx", "jax_neuronx", "nkisim")
}
_NAMES = re.compile(rf"\b({'|'.join(_COPIED)})\b")

# One device of each: `neuron-ls --json-output` of an inf2.xlarge, a trn1.2xlarge, a trn2.3xlarge.
CORES = {"inf2": 2, "trn1": 2, "trn2": 8}


def build(folder: Path, sdk: str = "2.28.1") -> Path:
    """Make the stand-in for an SDK, one of SDKS, in a folder that is not there; return the folder.

    Its `bin` has `python` and `neuron-ls`.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = site_packages(folder)
    _link_environment(packages, _ABSENT[sdk])
    own = {package for *_, package in SDKS[sdk]}
    for source in (HERE / "sdk").iterdir():
        if source.suffix == ".py":
            shutil.copy(source, packages)
        elif source.name in own:
            shutil.copytree(source, packages / source.name)
    _copy_simulator(packages / _COPIED["nkisim"])
    for documented in (ROOT / "nkibook" / "facts").glob("nki_api_*.json"):
        shutil.copy(documented, packages)
    for distribution, version, package in SDKS[sdk]:
        metadata = packages / f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (metadata / "INSTALLER").write_text("the rehearsal\n")
        init = packages / package / "__init__.py"
        init.write_text(f"{init.read_text()}\n__version__ = {version!r}\n")
    listing = {name: [{"neuron_device": 0, "nc_count": n}] for name, n in CORES.items()}
    neuron_ls = folder / "bin" / "neuron-ls"
    neuron_ls.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        f"print(json.dumps({listing!r}[os.environ['NEURON_PLATFORM_TARGET_OVERRIDE']]))\n"
    )
    neuron_ls.chmod(0o755)
    return folder


def python(folder: Path) -> str:
    """The Python of a stand-in."""
    return str(folder / "bin" / "python")


def site_packages(folder: Path) -> Path:
    """Where a stand-in has its packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))


def _link_environment(packages: Path, absent: tuple[str, ...]) -> None:
    """Link all packages of this environment into another one, but for some distributions."""
    left_out = {"__pycache__"}
    for name in absent:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            files = importlib.metadata.distribution(name).files or ()
            left_out.update(file.parts[0] for file in files)
    for source in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(source).iterdir():
            link = packages / entry.name
            if entry.name not in left_out and not link.exists():
                link.symlink_to(entry)


def _copy_simulator(target: Path) -> None:
    def renamed(text: str) -> str:
        return _NAMES.sub(lambda m: _COPIED[m[1]], text)

    for source in (ROOT / "nkisim").rglob("*"):
        copy = target / renamed(str(source.relative_to(ROOT / "nkisim")))
        if source.suffix in (".py", ".cpp"):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(renamed(source.read_text(encoding="utf-8")), encoding="utf-8")


def environment(
    folder: Path, instance: str, log: Path | None = None, forking: Path | None = None
) -> dict[str, str]:
    """Environment variables of a process on the instance that the stand-in plays.

    Args:
        folder: what `build` made.
        instance: "inf2", "trn1" or "trn2".
        log: a folder in which each process writes what it launched and compiled.
        forking: the socket of tools/forks.py, for kernels of notebooks and steps of a report.
    """
    import os

    changes = {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "NEURON_PLATFORM_TARGET_OVERRIDE": instance,
        "PJRT_DEVICE": "CPU",
        "REHEARSAL_CORES": str(CORES[instance]),
    }
    if log is not None:
        changes["REHEARSAL_LOG"] = str(log)
    variables = {**os.environ, **changes}
    return variables if forking is None else forks.asking(forking, variables)


def read_log(log: Path) -> list[dict]:
    """What each process of a rehearsal wrote down last: see `sdk/rehearsal_rules.py`."""
    return [json.loads(path.read_text()) for path in sorted(log.glob("*.json"))]


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build(Path(sys.argv[1]), *sys.argv[2:])
