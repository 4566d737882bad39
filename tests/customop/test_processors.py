"""The simulated processors: what they compute, and what of a kernel's mistakes they catch."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch_neuronx.xla_impl import custom_op  # noqa: E402

from nkisim import NkiWarning, checks, customop  # noqa: E402
from nkisim.customop import compiling  # noqa: E402
from nkisim.customop.runtime import TcmError  # noqa: E402
from nkisim.errors import (  # noqa: E402
    DTypeError,
    KernelError,
    OutOfBoundsError,
    OutputError,
    RaceError,
    ShapeError,
)

pytestmark = pytest.mark.skipif(compiling.compiler() is None, reason="needs a C++ compiler")
HERE = Path(__file__).parent


def ops(multicore: bool):
    sources = str(HERE / "misuse.cpp"), str(HERE / "misuse_shape.cpp")
    custom_op.load("misuse", *sources, multicore=multicore)
    return torch.ops.test_ops


@pytest.fixture
def eight():
    return ops(multicore=True)


@pytest.fixture
def one():
    return ops(multicore=False)


X = torch.arange(16, dtype=torch.float32)


def test_ids_and_count(eight):
    assert eight.ids(torch.zeros(8)).tolist() == [800 + i for i in range(8)]


def test_one_processor(one):
    assert one.ids(torch.zeros(1)).tolist() == [100]
    with customop.record() as runs:
        assert torch.equal(one.misuse(X, 0), X)
    assert [len(run.processors) for run in runs] == [1]


@pytest.mark.parametrize("numel", [1, 99, 100, 101, 799, 800, 801, 12345])
def test_numbers_as_arguments(eight, numel):
    x = torch.arange(numel, dtype=torch.float32) / 8
    assert torch.equal(eight.affine(x, 0.5, -3), x * 0.5 - 3)


def test_element_and_stream_accessors_on_one_processor(one):
    x = torch.arange(15.0).reshape(3, 5)
    assert torch.equal(one.negate(x), -x)
    assert torch.equal(one.plus(x, 2 * x), 3 * x)


def test_same_on_meta_tensors(eight):
    assert eight.affine(X.to("meta"), 0.5, 1).shape == X.shape


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        (1, OutOfBoundsError, "elements 1 to 16 of a tensor of 16 elements"),
        (2, TcmError, "8 bytes at byte 4 of a TCM buffer of 8 bytes"),
        (3, TcmError, "a null pointer as its TCM buffer"),
        (4, TcmError, "tcm_malloc did not return"),
        (5, KernelError, "too many boxes"),
        (6, RaceError, "tcm_accessor"),
        (7, TcmError, "8 of 8 processors returned with TCM .* keeps 100 bytes in 1 buffer"),
        (8, RaceError, r"2 of 16 elements .* element \[0\], by processors 0, 1, .* and 7"),
        (9, OutputError, r"16 of 16 elements .* from element \[0\] on"),
        (10, DTypeError, "T is not the tensor's dtype"),
        (11, KernelError, "C\\+\\+ exception"),
    ],
)
def test_mistakes(eight, how, error, message):
    assert torch.equal(eight.misuse(X, 0), X)
    with pytest.raises(error, match=message) as caught:
        eight.misuse(X, how)
    assert caught.value.location.filename == __file__
    assert torch.equal(eight.misuse(X, 0), X)


@pytest.mark.parametrize(("check", "how"), [("tcm", 7), ("race", 8), ("output", 9)])
def test_checks_can_be_turned_down(eight, check, how):
    others = {"output": "off"} if check == "race" else {}
    with checks(**{check: "warn"}, **others), pytest.warns(NkiWarning):
        eight.misuse(X, how)
    with checks(**{check: "off"}, **others), customop.record() as runs:
        eight.misuse(X, how)
    assert len(runs) == 1


def test_unwritten_elements_show(eight):
    with checks(output="off"):
        assert torch.isnan(eight.misuse(X, 9)).all()


def test_tcm_is_first_fit_in_vectors_of_64_bytes(one):
    sizes = [100, 64, 1, -2, 65, 64]
    got = one.allocations(torch.tensor(sizes, dtype=torch.int32)).tolist()
    # 100 bytes take 128; the gap at 128 is too small for 65 bytes, and right for 64.
    assert got == [0, 128, 192, 0, 256, 128]


def test_tcm_never_gives_more_than_it_has(one):
    @given(sizes=st.lists(st.integers(1, 40000), min_size=1, max_size=16))
    def holds(sizes):
        got = one.allocations(torch.tensor(sizes, dtype=torch.int32)).tolist()
        # Nothing is freed, so that blocks lie one after the other, in vectors of 64 bytes.
        used = 0
        for start, size in zip(got, sizes, strict=True):
            room = -(-size // 64) * 64
            if used + room > customop.TCM_BYTES:
                assert start == -1
            else:
                assert start == used
                used += room

    with checks(tcm="off"):
        holds()


def test_tcm_size_from_the_environment(one, monkeypatch):
    monkeypatch.setenv("NKISIM_TCM_BYTES", "128")
    assert one.allocations(torch.tensor([64, 65], dtype=torch.int32)).tolist() == [0, -1]
    for wrong in ("0", "70000", "many"):
        monkeypatch.setenv("NKISIM_TCM_BYTES", wrong)
        with pytest.raises(ValueError, match=f"NKISIM_TCM_BYTES is '{wrong}'"):
            one.allocations(torch.tensor([1], dtype=torch.int32))


def test_tensors_that_operators_cannot_take(eight):
    with pytest.raises(DTypeError, match="float64"):
        eight.misuse(X.double(), 0)
    with pytest.raises(ShapeError, match="65535"):
        eight.misuse(torch.zeros(65536), 0)
    with pytest.raises(ShapeError, match="8 dimensions"):
        eight.misuse(torch.zeros([1] * 9), 0)
