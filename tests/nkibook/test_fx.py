"""Graphs of torch.compile: which there are, what they count, and what they say."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

# Before any backward pass: autograd knows only the devices that exist when it first runs.
import torch_neuronx  # noqa: E402

import nkibook  # noqa: E402, F401  makes the SDK's names importable
from kernels.rmsnorm import nki_rms_norm  # noqa: E402
from kernels.softmax.torch_op import softmax  # noqa: E402
from nkibook import device, steps  # noqa: E402
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
    assert forward.labels == {"primals_1": "x", "primals_2": "y"}
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


def on_neuron(*shape):
    return torch.randn(shape).to("neuron")


def twice(x, y):
    return softmax(x * 2) + x[:, :4].sum() + y


def test_on_the_device_the_nodes_of_an_operator_are_its_kernels():
    """As with TorchNeuron's nki_op. Views and single results are told apart from what computes."""
    x, y = on_neuron(3, 5).requires_grad_(), on_neuron(5)
    forward, backward = graphs(twice, x, y)
    assert forward.kernels == {"nki_softmax_kernel": 1}
    assert backward.kernels == {"nki_softmax_backward_kernel": 1}
    called = forward.counts
    assert [called[name] for name in ("add", "mul", "sum")] == [2, 1, 1]
    assert forward.views == called["slice"] + called["view"] + called["detach"]
    assert f"; other operators: 4; views: {forward.views}\n" in repr(forward)
    assert '    primals_2: "f32[5]",  # y' in forward.code().splitlines()
    # One array an operator: x * 2, the softmax, a number, and two sums.
    assert sorted(t.nbytes for t in forward.computed) == [4, 60, 60, 60, 60]


def test_two_graphs_are_one_listing():
    x, y = on_neuron(3, 5), on_neuron(5)
    (with_kernel,) = graphs(twice, x, y)
    (plain,) = graphs(lambda x, y: (x * 2).softmax(-1) + x[:, :4].sum() + y, x, y)
    diff = plain.diff(with_kernel, captions=("plain", "with_kernel"))
    assert diff.counts().startswith("Kernels: 0 \u2192 1. Other operators: 5 \u2192 4. Arrays")
    head, below, *lines = repr(diff).splitlines()
    assert [head, below] == ["- plain", "+ with_kernel"]
    assert sum(line.startswith("-") and "aten._softmax.default(" in line for line in lines) == 1
    assert any(line.startswith("+") and "nki_kernel_wrapper(" in line for line in lines)
    # The names of sums have other numbers in the two graphs only if what they take has.
    assert any(line.startswith("  ") and "aten.sum.default(slice_" in line for line in lines)
    assert diff.counts() in diff._repr_html_().replace("&gt;", ">")


def test_a_long_listing_keeps_its_kernels_open():
    def long(x):
        for _ in range(20):
            x = x.sin()
        return softmax(x).cos()

    (graph,) = graphs(long, on_neuron(3, 5))
    shown = graph._repr_html_()
    opened = shown.replace("<details>", "\0<details>").split("\0")
    closed = [part.partition("</details>")[0] for part in opened[1:]]
    assert sum(part.count("aten.sin") for part in closed) > 10
    assert not any("nki_kernel_wrapper" in part for part in closed)
    assert 'class="nki-line nki-call"' in shown
    assert graph.summary() in shown
    assert shown.count('class="nki-line') == len(graph.short_lines())


def test_a_drawing_tells_results_from_what_is_kept_for_backward():
    x = on_neuron(3, 5)
    (inference,) = graphs(lambda x: x.exp().sum(), x)
    forward, backward = graphs(lambda x: x.exp().sum(), x.requires_grad_())
    assert ">result, or kept for backward</text>" in forward.graph().svg
    for graph in (inference, backward):
        assert ">result</text>" in graph.graph().svg


def test_a_drawing_shows_what_computes():
    (graph,) = graphs(twice, on_neuron(3, 5), on_neuron(5))
    drawing = graph.graph()
    assert drawing.alt.startswith("dataflow graph. forward: kernels: 1 nki_softmax_kernel; ")
    assert "nki_softmax_kernel takes mul; sum_1 takes x; add takes nki_softmax_kernel, sum_1; " in (
        drawing.alt
    )
    assert drawing.svg.count("<g><title>") == 2 + 5
    assert ">mul 2</text>" in drawing.svg
    assert ">kernel</text>" in drawing.svg
    assert ">slice" not in drawing.svg
    with pytest.raises(ValueError, match="has 7 inputs and operators"):
        graph.graph(max_nodes=6)


def test_the_calls_of_a_graph_are_modelled(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    (graph,) = graphs(lambda x, w: norm(norm(x, w), w), on_neuron(256, 512), on_neuron(512))
    (part,) = steps.modelled(graph.calls, "trn2")
    assert (part.operator, part.calls) == ("rmsnorm", 2)
    assert part.microseconds > 0
    (on_cpu,) = graphs(softmax, torch.ones(3, 5))
    with pytest.raises(ValueError, match=r"softmax is one node .* x\.to\('neuron'\)"):
        _ = on_cpu.calls
    monkeypatch.setattr("kernels.backend", "neuronxcc")
    with pytest.raises(RuntimeError, match="simulator only"):
        _ = graph.calls


@pytest.mark.parametrize(("dialect", "kind"), [("nki", "neuron"), ("neuronxcc", "xla")])
def test_an_operator_runs_on_the_device_of_the_dialect(monkeypatch, dialect, kind):
    if kind == "xla":
        pytest.importorskip("torch_xla")
    monkeypatch.setattr(device.kernels, "dialect", dialect)
    seen = []

    def op(x, factor):
        seen.append(x.device.type)
        return x * factor, x

    x = torch.ones(3, requires_grad=kind == "neuron")
    double, same = device.on_device(op, x, 2.0)
    assert seen == [kind]
    assert double.device.type == same.device.type == "cpu"
    assert double.tolist() == [2.0] * 3
    if x.requires_grad:
        double.sum().backward()
        assert x.grad.tolist() == [2.0] * 3
