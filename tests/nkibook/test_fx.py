"""Graphs of torch.compile: which there are, what they count, and what they say."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

# Before any backward pass: autograd knows only the devices that exist when it first runs.
import torch_neuronx  # noqa: E402

import nkibook  # noqa: E402, F401  makes the SDK's names importable
from kernels.rmsnorm import nki_rms_norm  # noqa: E402
from kernels.softmax.torch_op import softmax  # noqa: E402
from nkibook.fx import graphs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*other operators run on the CPU")


def step(x, y):
    return (softmax(x * y) + softmax(y)).sin()


def test_an_operator_is_a_node_of_each_pass():
    x, y = torch.randn(2, 3, 5)
    (alone,) = graphs(step, x, y)
    assert alone.name == "forward"
    assert alone.counts == {"softmax": 2, "add": 1, "mul": 1, "sin": 1}
    forward, backward = graphs(step, x.requires_grad_(), y)
    assert forward.kernels == {"softmax": 2}
    assert backward.name == "backward"
    assert backward.kernels == {"softmax_backward": 1}  # y wants none
    first, *lines = repr(backward).splitlines()
    assert first.startswith("backward: kernels: 1 softmax_backward; other operators: ")
    assert any("nki_kernels.softmax_backward.default(" in line for line in lines)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        graphs(lambda x: print(x.sum().item()) or x, x)


@torch_neuronx.nki_op("nkibook_test::norm")
def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return nki_rms_norm(x, weight, 1e-5)[0]


def test_a_call_of_a_kernel_is_named_after_it():
    x, weight = torch.randn(4, 6).to("neuron"), torch.ones(6).to("neuron")
    (graph,) = graphs(lambda x, w: norm(x + 1, w) * 2, x, weight)
    assert graph.kernels == {"nki_rms_norm_kernel": 1}
    assert "nki_kernel_wrapper(" in repr(graph)
