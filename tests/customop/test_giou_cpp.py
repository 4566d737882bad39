"""torch.ops.my_ops.giou, in C++, against the NumPy reference; and its defective relative."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch_devices  # noqa: E402, F401

from kernels.giou import nki_giou, reference  # noqa: E402
from kernels.giou.cpp import build  # noqa: E402
from nkisim import NkiWarning, checks, customop  # noqa: E402
from nkisim.customop import compiling  # noqa: E402
from nkisim.customop.runtime import TcmError  # noqa: E402
from nkisim.errors import OutputError, RaceError  # noqa: E402

# On a machine that has no compiler at all there is nothing to test here.
pytestmark = pytest.mark.skipif(compiling.compiler() is None, reason="needs a C++ compiler")


@pytest.fixture
def giou():
    build.load()
    return torch.ops.my_ops.giou


@pytest.fixture
def published():
    build.load(build.PUBLISHED)
    return torch.ops.my_ops.giou


def pairs(rows: int, boxes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    first, second = (reference.random_boxes(rng, (rows, boxes)) for _ in range(2))
    return torch.from_numpy(first), torch.from_numpy(second)


def expected(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(reference.giou(a.numpy(), b.numpy()))


def test_every_batch_from_1_to_1031_rows(giou):
    a, b = pairs(1031, 3)
    all_scores = expected(a, b)
    for rows in range(1, 1032):
        scores = giou(a[:rows], b[:rows])
        assert scores.dtype == torch.float32
        assert torch.equal(scores, all_scores[:rows]), rows


@pytest.mark.parametrize("boxes", [1, 2, 255, 256, 455])
def test_rows_of_any_length(giou, boxes):
    a, b = pairs(17, boxes, seed=boxes)
    assert torch.equal(giou(a, b), expected(a, b))


def test_agrees_with_the_nki_kernel(giou):
    a, b = pairs(1024, 256)
    torch.testing.assert_close(giou(a, b), nki_giou(a, b), rtol=0, atol=1e-6)


def test_degenerate_boxes(giou):
    point = torch.full((9, 2, 4), 3.0)
    assert torch.equal(giou(point, point), expected(point, point))
    empty = torch.zeros(0, 5, 4)
    assert giou(empty, empty).shape == (0, 5)


def test_all_eight_processors_share_the_work(giou):
    a, b = pairs(1031, 7)
    with customop.record() as runs:
        giou(a, b)
    (run,) = runs
    assert [p.id for p in run.processors] == list(range(8))
    rows = [p.elements_written / 7 for p in run.processors]
    assert sum(rows) == 1031
    assert set(rows) == {128, 129}
    assert all(p.transfers == 3 * n for p, n in zip(run.processors, rows, strict=True))
    assert (run.unwritten, run.contested) == (0, 0)


def test_tcm_is_what_a_row_needs_and_is_freed(giou):
    with customop.record() as runs:
        giou(*pairs(8, 256))
    assert {(p.tcm_peak, p.tcm_left) for p in runs[0].processors} == {((4 + 4 + 1) * 256 * 4, 0)}


def test_views_are_read_as_what_they_show(giou):
    a, b = pairs(6, 10)
    shown = a.transpose(0, 1)
    assert not shown.is_contiguous()
    assert torch.equal(giou(shown, b.transpose(0, 1)), expected(a, b).T)


def test_row_too_long_for_tcm(giou):
    boxes = torch.zeros(9, 1821, 4)
    with pytest.raises(RuntimeError, match=r"1821 boxes takes 65556 bytes of TCM.*at most 1820"):
        giou(boxes, boxes)


def test_longest_row_fits(giou):
    a, b = pairs(9, 1820)
    with pytest.warns(NkiWarning, match="16384 bytes for tcm_malloc"):
        scores = giou(a, b)
    assert torch.equal(scores, expected(a, b))


def test_row_too_long_for_the_documented_pool(giou, monkeypatch):
    monkeypatch.setenv("NKISIM_TCM_BYTES", "16384")
    a, b = pairs(9, 448)
    assert torch.equal(giou(a, b), expected(a, b))
    with pytest.raises(OutputError, match=r"tcm_malloc\(1824\) returned null in 8 of 8") as caught:
        giou(*pairs(9, 456))
    assert caught.value.location.filename == __file__
    # Cleanly: the next call works.
    assert torch.equal(giou(a, b), expected(a, b))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (torch.zeros(2, 3, 5), torch.zeros(2, 3, 5), r"shape \[2, 3, 5\]"),
        (torch.zeros(2, 4), torch.zeros(2, 4), r"Boxes are \(rows, boxes, 4\)"),
        (torch.zeros(2, 3, 4), torch.zeros(3, 3, 4), "tensors of one shape"),
        (torch.zeros(2, 3, 4).double(), torch.zeros(2, 3, 4), "float32"),
    ],
)
def test_bad_arguments(giou, a, b, message):
    with pytest.raises(RuntimeError, match=message):
        giou(a, b)


def test_shape_without_data(giou):
    boxes = torch.empty(1031, 7, 4, device="meta")
    scores = giou(boxes, boxes)
    assert (scores.shape, scores.dtype, scores.device.type) == ((1031, 7), torch.float32, "meta")


def test_is_a_well_formed_pytorch_operator(giou):
    torch.library.opcheck(giou.default, pairs(5, 3), test_utils=("test_schema", "test_faketensor"))


def test_xla_runs_and_lowers_to_a_custom_call(giou):
    pytest.importorskip("torch_xla")
    from nkibook.hlo import torch_hlo

    a, b = pairs(11, 5)
    device = pytest.importorskip("torch_xla").device()
    assert torch.equal(giou(a.to(device), b.to(device)).cpu(), expected(a, b))

    (call,) = torch_hlo(giou, a, b).custom_calls
    assert call.target == "AwsNeuronCustomOp"
    assert [shape.dims for shape in call.operand_shapes] == [(11, 5, 4), (11, 5, 4)]
    assert [shape.dims for shape in call.result_shapes] == [(11, 5)]
    assert "name=giou;" in call.config


def test_published_kernel_is_caught_three_times(published):
    a, b = pairs(1024, 256)
    with pytest.raises(RaceError, match="written by several processors"):
        published(a, b)
    with checks(race="off"), pytest.raises(OutputError, match="not written"):
        published(a, b)
    with checks(race="off", output="off"), pytest.raises(TcmError, match="4096 bytes in 1 buffer"):
        published(a, b)


def test_published_kernel_reads_the_wrong_boxes(published):
    a, b = pairs(1024, 256)
    with checks(race="off", output="off", tcm="off"), customop.record() as runs:
        scores = published(a, b)
    (run,) = runs
    # By hand: each of 8 processors writes 128 rows of 256, from elements 0, 128, ..., 896 on.
    assert run.elements - run.unwritten == 896 + 128 * 256
    assert torch.isnan(scores).sum() == run.unwritten
    # A quarter of the boxes of what is needed is read, and each processor reads on the same ones.
    assert {p.bytes_read for p in run.processors} == {2 * 128 * 4096}
    # Only what processor 0 alone wrote can be right: 128 elements.
    assert torch.equal(scores.flatten()[:128], expected(a, b).flatten()[:128])
    right = scores == expected(a, b)
    assert right.sum() < 0.13 * right.numel()
    # One buffer has four times the size that it needs.
    assert {p.tcm_peak for p in run.processors} == {(4 + 4 + 4) * 256 * 4}


def test_published_kernel_drops_the_rest_of_a_batch(published):
    a, b = pairs(7, 256)
    with checks(tcm="off"), pytest.raises(OutputError, match=r"1792 of 1792 elements"):
        published(a, b)
