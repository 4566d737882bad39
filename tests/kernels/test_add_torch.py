"""The add operator in PyTorch: values, gradients, transforms, devices."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch")
with contextlib.suppress(ImportError):
    import torch_xla

    # Before any backward pass: autograd knows only the devices that exist when it first runs.
    torch_xla.device()

from kernels.add import nki_tensor_add  # noqa: E402
from kernels.add.neuronxcc import nki_tensor_add_two_cores  # noqa: E402
from kernels.add.torch_op import add  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def pair(shape=(129, 513), dtype=torch.float32, **options):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(shape, generator=generator).to(dtype).requires_grad_(**options)
        if options
        else torch.randn(shape, generator=generator).to(dtype)
        for _ in "ab"
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("caller", [nki_tensor_add, nki_tensor_add_two_cores, add])
def test_values(caller, dtype):
    a, b = pair(dtype=dtype)
    c = caller(a, b)
    assert c.dtype == dtype
    assert torch.equal(c, a + b)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda b: b[:2], ValueError, r"\(4, 4\) and b_input \(2, 4\)"),
        (lambda b: b.half(), TypeError, "float32 and b_input float16"),
        (lambda b: b.to("meta"), ValueError, "on cpu, meta"),
        (lambda b: b.numpy(), TypeError, r"torch\.from_numpy"),
    ],
)
def test_refused_inputs(change, error, message):
    a, b = pair((4, 4))
    with pytest.raises(error, match=message):
        nki_tensor_add(a, change(b))
