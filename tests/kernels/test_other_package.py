"""PyPI has another package called `kernels`: no mixture of both."""

from __future__ import annotations

import shutil

import pytest

import kernels


@pytest.fixture
def folder(tmp_path):
    """An empty site-packages folder with this book's packages in it."""
    made = tmp_path / "site"
    for package in ("kernels", "nkibook"):
        source = kernels.__file__.replace("kernels/__init__.py", package)
        shutil.copytree(source, made / package, ignore=shutil.ignore_patterns("__pycache__"))
    return made


def install_other(folder):
    """What an installer writes of the other package."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    (folder / "kernels/__init__.py").write_text('"""Load compute kernels from a hub."""\n')
    info = folder / "kernels-0.5.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.5.0\n")


@pytest.mark.parametrize("order", ["other first", "other last", "no record"])
@pytest.mark.parametrize(
    "use",
    ["-m kernels", "kernels.add", "kernels.softmax.jax_op", "kernels.arguments", "nkibook.doctor"],
)
def test_a_mixture_is_an_error_that_says_what_to_do(run_python, folder, order, use):
    ours = (folder / "kernels/__init__.py").read_text()
    install_other(folder)
    if order == "other first":
        (folder / "kernels/__init__.py").write_text(ours)
    elif order == "no record":
        shutil.rmtree(folder / "kernels-0.5.0.dist-info")
    command = [*use.split(), "add"] if use.startswith("-m") else [f"import {use}"]
    done = run_python(*command, path=(folder,), check=False)
    assert done.returncode
    assert "pip uninstall kernels" in done.stderr


def test_another_package_in_front_is_told(run_python, folder, tmp_path):
    other = tmp_path / "front"
    install_other(other)
    done = run_python("import nkibook", path=(other, folder), check=False)
    assert done.returncode
    assert str(other) in done.stderr
    assert "pip uninstall kernels" in done.stderr


def test_alone_it_works(run_python, folder):
    run_python("import kernels.add.neuronxcc, nkibook", path=(folder,))
