"""Compiling the handlers: the cache, what goes wrong, and the narrow types."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jax")

from kernels.rmsnorm.ffi import building

needs_compiler = pytest.mark.skipif(
    building.cpp_compiler() is None, reason="needs a C++ compiler (c++, or one in $CXX)"
)
ONE = 'extern "C" int one() { return 1; }\n'


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "one.cpp"
    path.write_text(ONE)
    return path


@needs_compiler
def test_a_library_is_built_once_and_anew_when_something_changed(source, monkeypatch, capsys):
    first = building.build_cpu(source, verbose=True)
    assert ctypes.CDLL(str(first)).one() == 1
    assert "compiling one.cpp" in capsys.readouterr().err
    assert building.build_cpu(source, verbose=True) == first
    assert capsys.readouterr().err == ""
    source.write_text(ONE.replace("1", "2"))
    second = building.build_cpu(source)
    assert second != first
    assert ctypes.CDLL(str(second)).one() == 2
    assert building.build_cpu(source, flags=["-DTHREE"]) not in (first, second)


@needs_compiler
def test_another_version_of_the_compiler_builds_anew(source, tmp_path, monkeypatch):
    """An update leaves the compiler's path as it was, and what it says of itself is another."""
    version, compiler = tmp_path / "version", tmp_path / "compiler"
    real = building.cpp_compiler()[0]
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*|*-dM*) cat {version};; *) exec {real} "$@";; esac\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    version.write_text("13.2")
    first = building.build_cpu(source)
    assert building.build_cpu(source) == first
    version.write_text("13.3")
    assert building.build_cpu(source) != first


@needs_compiler
def test_nothing_is_said_without_a_terminal(source, capfd):
    building.build_cpu(source)
    assert capfd.readouterr() == ("", "")


@needs_compiler
def test_all_that_the_compiler_says_is_in_the_error(source):
    source.write_text("int f() { return first_mistake; }\nint g() { return second_mistake; }\n")
    with pytest.raises(building.CompileError) as caught:
        building.build_cpu(source)
    message = str(caught.value)
    assert message.startswith("one.cpp does not compile.")
    assert "first_mistake" in message
    assert "second_mistake" in message
    assert not list(building.cache_folder().glob("*.so"))


@needs_compiler
def test_a_missing_symbol_is_an_error_of_the_build(source):
    source.write_text("int missing();\nint f() { return missing(); }\n")
    with pytest.raises(building.CompileError, match="missing"):
        building.build_cpu(source)


def test_no_compiler(source, monkeypatch):
    monkeypatch.setenv("PATH", str(source.parent))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(building.CompilerMissingError, match=r"no C\+\+ compiler") as caught:
        building.build_cpu(source)
    assert "Install" in str(caught.value)


@needs_compiler
def test_no_source(source):
    with pytest.raises(FileNotFoundError, match=r"two\.cpp"):
        building.build_cpu(source.with_name("two.cpp"))


@needs_compiler
def test_the_compiler_of_cxx_is_taken_with_its_flags(source, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    assert building.cpp_compiler() is None
    with pytest.raises(building.CompilerMissingError, match="no-such-compiler"):
        building.build_cpu(source)
    monkeypatch.setenv("CXX", "c++ -DONE=1")
    assert building.cpp_compiler()[1:] == ["-DONE=1"]


NARROW = """
#include "narrow.h"
using namespace rms_norm;
template <typename T> void Narrow(const float* from, uint16_t* to, long n) {
  for (long i = 0; i < n; ++i) to[i] = T(from[i]).bits;
}
template <typename T> void Widen(const uint16_t* from, float* to, long n) {
  for (long i = 0; i < n; ++i) { T v; v.bits = from[i]; to[i] = static_cast<float>(v); }
}
extern "C" {
void narrow_bfloat16(const float* a, uint16_t* b, long n) { Narrow<BFloat16>(a, b, n); }
void narrow_float16(const float* a, uint16_t* b, long n) { Narrow<PortableFloat16>(a, b, n); }
void widen_bfloat16(const uint16_t* a, float* b, long n) { Widen<BFloat16>(a, b, n); }
void widen_float16(const uint16_t* a, float* b, long n) { Widen<PortableFloat16>(a, b, n); }
}
"""


@needs_compiler
@pytest.mark.parametrize(
    ("name", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)]
)
def test_conversions_of_narrow_types(source, name, dtype):
    """Every 16-bit number exactly; float32 numbers at random, and around each 16-bit one."""
    source.write_text(NARROW)
    library = ctypes.CDLL(str(building.build_cpu(source)))

    def convert(function, values, to):
        result = np.empty(values.size, to)
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in (values, result))
        getattr(library, function)(*pointers, ctypes.c_long(values.size))
        return result

    narrow = np.arange(1 << 16, dtype=np.uint16)
    wide = narrow.view(dtype).astype(np.float32)
    got = convert(f"widen_{name}", narrow, np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wide))
    real = ~np.isnan(wide)
    np.testing.assert_array_equal(got.view(np.uint32)[real], wide.view(np.uint32)[real])

    near = wide.view(np.uint32)[:, None] + np.array(
        [-1, 0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001], np.int64
    )
    rng = np.random.default_rng(0)
    bits = np.concatenate([near.ravel() & 0xFFFFFFFF, rng.integers(0, 1 << 32, 1 << 18)])
    values = bits.astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(dtype)
    got = convert(f"narrow_{name}", values, np.uint16)
    real = ~np.isnan(values)
    np.testing.assert_array_equal(got[real], expected.view(np.uint16)[real])
    assert np.isnan(got[~real].view(dtype)).all()
