"""Graphs of PyTorch in the words of HLO: their bytes and products, counted by hand."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from kernels.rmsnorm.torch_op import rms_norm  # noqa: E402
from nkibook.hlo.from_fx import torch_graph  # noqa: E402
from nkibook.pays import main, of_function, payoff  # noqa: E402

N, M, K = 130, 96, 64
BF16 = 2
ARRAY = N * M * BF16


def meta(*shape, dtype=torch.bfloat16, grad=False):
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


COUNTED = {
    "a chain reads and writes once": (lambda x: x.exp() * 2 + x, [meta(N, M)], 2 * ARRAY),
    "an activation is fused": (lambda g, u: F.silu(g) * u, [meta(N, M)] * 2, 3 * ARRAY),
    "views are free": (lambda x: x.reshape(M, N)[None].exp().flatten(), [meta(N, M)], 2 * ARRAY),
    "a transpose moves its elements": (lambda x: x.t().contiguous(), [meta(N, M)], 4 * ARRAY),
    "a product reads its operand along either axis": (
        lambda a, b: a @ b.t(),
        [meta(N, K), meta(M, K)],
        BF16 * (N * K + M * K + N * M),
    ),
    "an element-wise operation stays with its product": (
        lambda a, b: (a @ b).relu(),
        [meta(N, K), meta(K, M)],
        BF16 * (N * K + M * K + N * M),
    ),
    "halves are joined": (lambda x: torch.cat(x.chunk(2, -1)[::-1], -1), [meta(N, M)], 2 * ARRAY),
}


@pytest.mark.parametrize("name", COUNTED)
def test_bytes_of_a_fused_graph(name):
    function, args, expected = COUNTED[name]
    graph = torch_graph(function, *args)
    assert sum(op.moved for op in graph.fused) == expected
    assert sum(op.moved for op in graph.operations) >= ARRAY


def test_products_of_a_training_step():
    def step(a, b):
        return torch.autograd.grad((a @ b).float().square().sum(), (a, b))

    graph = torch_graph(step, meta(N, K, grad=True), meta(K, M, grad=True))
    assert graph.count("dot") == 3
    assert sum(op.flops for op in graph.fused) == 3 * 2 * N * K * M
    assert payoff(graph).products_us > 0


@pytest.mark.parametrize(
    "function", [torch.exp, torch.sigmoid, lambda x: F.silu(x), lambda x: x.softmax(-1)]
)
def test_exponentials_are_counted(function):
    assert payoff(torch_graph(function, meta(N, M))).exponentials_us > 0
    assert payoff(torch_graph(torch.relu, meta(N, M))).exponentials_us == 0


@pytest.mark.parametrize(
    ("norm", "statistics"),
    [
        (lambda x: F.layer_norm(x, (M,)), N),
        (lambda x: F.rms_norm(x, (M,)), N),
        (lambda x: F.group_norm(x, 4), 4 * N),
        (lambda x: F.batch_norm(x, None, None, training=True), M),
    ],
    ids=["layer", "rms", "group", "batch"],
)
def test_a_normalisation_is_written_out_and_reads_its_array_twice(norm, statistics):
    graph = torch_graph(norm, meta(N, M))
    of_statistics = sum(op.moved for op in graph.fused) - 3 * ARRAY
    assert 0 < of_statistics <= 40 * statistics
    assert payoff(graph).gain > 1.3


def test_softmax_is_written_out_and_reads_its_rows_several_times():
    graph = torch_graph(lambda x: x.softmax(-1), meta(N, M, dtype=torch.float32))
    assert graph.count("reduce") == 2  # the maximum and the sum
    array = N * M * 4
    assert 3 * array < sum(op.moved for op in graph.fused) < 5 * array


def test_kernels_are_custom_calls_with_what_they_are_launched_on():
    def step(x, w):
        y = rms_norm(x, w.shape, w, 1e-5)
        return torch.autograd.grad(y.sum(), (x, w))

    args = meta(3, N, M, grad=True), meta(M, grad=True)
    forward, backward = torch_graph(step, *args).custom_calls
    assert forward.kernel_name == "nki_rms_norm_kernel"
    assert forward.config["constants"] == {"eps": 1e-5}
    assert forward.config["inputs"] == [
        ["x_input", [3 * N, M], "bfloat16"],
        ["weight", [1, M], "bfloat16"],
    ]
    assert backward.kernel_name == "nki_rms_norm_backward_kernel"
    assert [str(s) for s in backward.operand_shapes][:2] == [f"bf16[{3 * N},{M}]"] * 2


def test_nothing_is_computed():
    graph = torch_graph(lambda a, b: a @ b, meta(2**14, 2**14), meta(2**14, 2**14))
    assert sum(op.flops for op in graph.operations) == 2 * 2**42


def test_pytorch_and_jax_count_the_same_for_one_formula():
    jax = pytest.importorskip("jax")

    def norm(x):
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    def jax_norm(x):
        wide = x.astype("float32")
        mean = (wide * wide).mean(-1, keepdims=True)
        return (wide * jax.lax.rsqrt(mean + 1e-5)).astype(x.dtype)

    ours = of_function(norm, meta(N, M))
    theirs = of_function(jax_norm, jax.ShapeDtypeStruct((N, M), "bfloat16"))
    assert ours.name == "norm"
    assert ours.fused_bytes == theirs.fused_bytes
    assert ours.least_bytes == theirs.least_bytes == 2 * ARRAY


def test_the_command_takes_a_function_of_tensors(tmp_path, monkeypatch, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def gelu(x):\n    return x * (1.702 * x).sigmoid()\n")
    words = ["pays", "--framework", "torch", str(file), "gelu", f"bfloat16[{N},{M}]"]
    monkeypatch.setattr("sys.argv", words)
    assert main() == 0
    said = capsys.readouterr().out
    assert said.startswith("gelu on one NeuronCore")
    assert "does not pay: fused, the operations move 0.0 MB" in said
