"""What the installed package needs and imports: NumPy and ml_dtypes, and nothing by surprise."""

import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = ("torch", "torch_xla", "jax", "jaxlib", "matplotlib", "scipy", "IPython", "sphinx")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install .` would install, built without a network."""
    out = tmp_path_factory.mktemp("wheel")
    # From a copy: setuptools leaves build/ and egg-info behind in the tree it builds.
    source = out / "source"
    for name in ("kernels", "nkibook", "nkisim"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "pytest_nkisim.py"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out]
    run = subprocess.run([*command, source], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def isolated(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel and links to NumPy and ml_dtypes, and nothing else."""
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    for name in ("numpy", "ml_dtypes"):
        package = Path(__import__(name).__file__).parent
        for part in (package, package.with_name(f"{name}.libs")):
            if part.exists():
                (site / part.name).symlink_to(part)
    return site


def run_isolated(site: Path, code: str) -> str:
    """Run `code` in a Python that sees the standard library and `site` only."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(site)!r})\n{code}"],
        cwd=site,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_wheel_requires_three_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in required) == [
        "ml_dtypes",
        "numpy",
        "threadpoolctl",
    ]
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert set(metadata.get_all("Provides-Extra")) == set(extras)


def test_wheel_holds_what_its_packages_hold_and_nothing_else(wheel: Path) -> None:
    """Modules, marks of types, sources to compile, and the data that modules and notebooks read."""
    packages = ("kernels", "nkibook", "nkisim")
    sources = {path for name in packages for path in (ROOT / name).rglob("*") if path.is_file()}
    sources = {path for path in sources if path.suffix != ".pyc"}
    sources.add(ROOT / "pytest_nkisim.py")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {path.relative_to(ROOT).as_posix() for path in sources}
    assert {f"{name}/py.typed" for name in packages} <= packed
    assert f"./{wheel.name}\n" in (ROOT / "nkibook/your_ci/kernels.yml").read_text()


def test_the_console_script_runs_a_program(isolated: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, neuronxcc.nki as nki\nprint(sys.argv[1], nki.jit.__module__)\n")
    code = f"""
from importlib.metadata import entry_points
(script,) = entry_points(group="console_scripts", name="nkisim")
sys.argv = ["nkisim", {str(program)!r}, "one"]
script.load()()
"""
    assert run_isolated(isolated, code).split() == ["one", "nkisim.frontends.neuronxcc.nki"]


@pytest.mark.parametrize("package", ["nkisim", "kernels", "nkibook"])
def test_import_from_the_wheel_needs_numpy_and_ml_dtypes_only(isolated: Path, package: str) -> None:
    code = f"import {package}; print({package}.__file__)"
    assert Path(run_isolated(isolated, code).strip()).is_relative_to(isolated)


def test_a_kernel_runs_from_the_wheel(isolated: Path) -> None:
    code = """
import numpy as np
from kernels.add import nki_tensor_add
a = np.arange(6, dtype=np.float32).reshape(2, 3)
assert np.array_equal(nki_tensor_add(a, a), 2 * a)
print("same")
"""
    assert run_isolated(isolated, code).strip() == "same"


@pytest.mark.parametrize("package", ["nkisim", "kernels", "nkibook"])
def test_import_loads_no_framework(package: str) -> None:
    code = f"import sys, {package}; print(*[name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_checkout_is_under_test() -> None:
    import kernels
    import nkisim

    for package in (kernels, nkisim):
        assert Path(package.__file__).resolve().is_relative_to(ROOT)


def pins(name: str) -> dict[str, str]:
    """Return the pinned packages of a requirements file, by normalized name."""
    found = {}
    for line in (ROOT / name).read_text().splitlines():
        requirement = line.split("#")[0].split(";")[0].strip()
        if requirement.startswith("-r "):
            found |= pins(requirement.removeprefix("-r "))
        elif requirement:
            package, exactly, version = requirement.partition("==")
            assert exactly, f"{name}: {line!r} is not an exact pin"
            found[normalized(package)] = version
    return found


def normalized(requirement: str) -> str:
    """Return the name of the package that a requirement is for, as indexes spell it."""
    return re.match(r"[\w.-]+", requirement)[0].replace("_", "-").lower()


def test_requirements_pin_all_that_pyproject_names() -> None:
    declared = list(PYPROJECT["project"]["dependencies"])
    for extra in PYPROJECT["project"]["optional-dependencies"].values():
        declared += extra
    pinned = pins("requirements.txt")
    assert {normalized(requirement) for requirement in declared} <= set(pinned)
    assert len(pinned) > 100  # with what those need in turn


NEURON = [path.name for path in sorted(ROOT.glob("requirements-neuron*.txt"))]


@pytest.mark.parametrize("name", NEURON)
def test_neuron_requirements_have_the_same_tools(name: str) -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    tools = {
        normalized(requirement) for requirement in extras["book"] + extras["lab"] + extras["test"]
    }
    everywhere, neuron = pins("requirements.txt"), pins(name)
    # The SDK brings NumPy and JAX ml_dtypes; the packages themselves are installed with --no-deps.
    declared = map(normalized, PYPROJECT["project"]["dependencies"])
    assert tools | (set(declared) - {"numpy", "ml-dtypes"}) <= set(neuron)
    shared = set(neuron) & set(everywhere)
    assert {name: neuron[name] for name in shared} == {name: everywhere[name] for name in shared}


@pytest.mark.parametrize(
    "name", ["requirements.txt", "requirements-book.txt", *NEURON, "pyproject.toml"]
)
def test_no_package_index_is_named(name: str) -> None:
    text = (ROOT / name).read_text()
    options = [line for line in text.splitlines() if line.startswith(("-i", "--", "-f"))]
    assert options == []
    assert "://" not in re.sub(
        r"^\[project\.urls\]\n(?:[^\[].*\n|\n)*", "", text, flags=re.MULTILINE
    )


def test_wheel_brings_the_table_of_the_api(isolated: Path) -> None:
    code = "from nkibook.facts.coverage import coverage\nprint(len(coverage()))"
    assert int(run_isolated(isolated, code)) > 150
