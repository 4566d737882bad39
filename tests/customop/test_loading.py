"""Building and loading: the cache, errors of the compiler, and libraries in files."""

from __future__ import annotations

import json
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch_neuronx  # noqa: E402
from torch_neuronx.xla_impl import custom_op  # noqa: E402

from kernels.giou.cpp import build  # noqa: E402
from nkisim.customop import compiling  # noqa: E402
from nkisim.errors import ParameterError  # noqa: E402

needs_compiler = pytest.mark.skipif(compiling.compiler() is None, reason="needs a C++ compiler")
ROOT = Path(__file__).resolve().parents[2]


def load(kernel: Path, **options) -> None:
    custom_op.load("giou", [str(kernel)], [str(build.SHAPE)], multicore=True, **options)


def test_the_stand_in_is_the_sdks_module():
    assert custom_op.__name__.endswith("xla_impl.custom_op")
    assert callable(torch_neuronx.nki_jit)


@needs_compiler
def test_library_in_a_file_is_loaded_by_another_process(tmp_path, run_python):
    load(build.KERNEL, build_directory=tmp_path)
    code = f"""
        import nkisim
        nkisim.install()
        import torch
        from torch_neuronx.xla_impl import custom_op

        custom_op.load_library({str(tmp_path / "libgiou.so")!r}, verbose=True)
        boxes = torch.tensor([[[0.0, 0, 2, 2]]])
        print(torch.ops.my_ops.giou(boxes, boxes + 1).item())
    """
    done = run_python(code, env={"CXX": "no-such-compiler"})
    described, score = done.stdout.splitlines()
    assert described == "my_ops::giou(Tensor _0, Tensor _1) -> Tensor: kernel function giou"
    # Overlap 1 of 7, enclosing box 9.
    assert float(score) == pytest.approx(1 / 7 - 2 / 9, abs=1e-6)


@needs_compiler
def test_what_is_built_is_not_built_again(monkeypatch):
    load(build.KERNEL)

    def fail(*arguments, **options):
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiling, "_build", fail)
    load(build.KERNEL)


@needs_compiler
def test_another_version_replaces_the_operator(tmp_path):
    boxes = torch.tensor([[[0.0, 0, 2, 2]]])
    load(build.KERNEL)
    op = torch.ops.my_ops.giou
    assert op(boxes, boxes).item() == pytest.approx(1)
    doubled = tmp_path / "doubled.cpp"
    text = build.KERNEL.read_text()
    doubled.write_text(text.replace("return overlap /", "return 2 * overlap /"))
    load(doubled)
    assert op(boxes, boxes).item() == pytest.approx(2)
    load(build.KERNEL)
    assert op(boxes, boxes).item() == pytest.approx(1)


@needs_compiler
def test_compiler_errors_are_shown_whole(tmp_path):
    broken = tmp_path / "broken.cpp"
    text = build.KERNEL.read_text()
    broken.write_text(text.replace("float hull =", "flaot hull =").replace("get_dst", "get_dest"))
    with pytest.raises(compiling.CompileError, match=r"broken\.cpp") as caught:
        load(broken)
    message = str(caught.value)
    assert "flaot" in message
    assert "get_dest_tensor" in message


@needs_compiler
def test_kernel_function_that_does_not_exist(tmp_path):
    renamed = tmp_path / "renamed.cpp"
    renamed.write_text(build.KERNEL.read_text().replace("Tensor giou(", "Tensor giuo("))
    with pytest.raises(compiling.CompileError) as caught:
        load(renamed)
    assert "undefined" in str(caught.value).lower()
    promised = "torch::Tensor giou(const torch::Tensor&, const torch::Tensor&);"
    assert promised in str(caught.value)


HEADERS = {
    "beside": ('"a.hpp"', "src/a.hpp"),
    "without an ending": ('"a"', "src/a"),
    "of another ending": ('"a.tpp"', "src/a.tpp"),
    "below": ('"sub/a.h"', "src/sub/a.h"),
    "above": ('"../a.inl"', "a.inl"),
    "in a folder that is named": ('"a.ipp"', "more/a.ipp"),
    "in one, in angle brackets": ("<deep/a.h>", "more/deep/a.h"),
    "included by another": ('"first.h"', "src/b c/a.h"),
}


@needs_compiler
@pytest.mark.parametrize("where", HEADERS)
def test_headers_are_part_of_the_key(tmp_path, where):
    include, place = HEADERS[where]
    source, header = tmp_path / "src" / "a.cpp", tmp_path / place
    for path in (source, header, tmp_path / "more" / "unused"):
        path.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(f"#include {include}\n#include <torch/torch.h>\n#include <vector>\n")
    (source.parent / "first.h").write_text('#include "b c/a.h"\n')
    header.write_text("int one();\n")
    key = partial(compiling.fingerprint, "device", [source], [tmp_path / "more"])
    before = key([])
    assert key([]) == before
    assert key(["-g"]) != before
    header.write_text("int two();\n")
    assert key([]) != before


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    with pytest.raises(compiling.CompilerMissingError, match=r"no C\+\+ compiler.*apt-get install"):
        load(build.KERNEL)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.cpp"):
        load(tmp_path / "nothing.cpp")
    with pytest.raises(FileNotFoundError, match=r"libgiou\.so"):
        custom_op.load_library(str(tmp_path / "libgiou.so"))


def test_library_of_a_device_is_refused(tmp_path):
    path = tmp_path / "libgiou.so"
    path.write_bytes(b"!<arch>\n")  # what the SDK's tools write is an ar archive
    with pytest.raises(ParameterError, match="not a library that nkisim built"):
        custom_op.load_library(str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("library.json", json.dumps({"format": "other", "platform": sys.platform}))
    with pytest.raises(ParameterError, match="not a library that nkisim built"):
        custom_op.load_library(str(path))


def test_all_headers_and_sources_are_in_the_wheel():
    import tomllib

    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = data["package-data"]["nkisim.customop"]
    folder = ROOT / "nkisim" / "customop"
    packed = {path for pattern in patterns for path in folder.glob(pattern)}
    assert packed == {path for path in (folder / "include").rglob("*") if path.is_file()}
    assert "*.cpp" in data["package-data"]["*"]
