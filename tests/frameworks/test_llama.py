"""The Llama of Hugging Face with this book's kernels, against the same model without them.

What puts the kernels in is in the cells of notebooks/llama_torch, and is taken from there.
"""

from __future__ import annotations

from types import SimpleNamespace

import pages
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_xla")

import torch_xla  # noqa: E402
from transformers import StaticCache  # noqa: E402

torch_xla.device()  # before the first backward pass


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    """The names that the page's cells define, up to the function that puts the kernels in."""
    cells = [cell.source for cell in pages.code("notebooks/llama_torch", "neuronxcc")]
    (last,) = (n for n, cell in enumerate(cells) if "def with_kernels" in cell)
    threads, names = torch.get_num_threads(), {}
    for cell in cells[: last + 1]:
        exec(cell, names)
    torch.set_num_threads(threads)
    return SimpleNamespace(**names)


@pytest.fixture(autouse=True)
def nothing_counted(page) -> None:
    page.chosen.clear()


@pytest.fixture(scope="module")
def pair(page):
    """A model of odd sizes, three queries to a key, and its copy with kernels."""
    torch.manual_seed(1)
    config = page.LlamaConfig(
        vocab_size=61,
        hidden_size=90,
        intermediate_size=75,
        num_hidden_layers=1,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=22,
        rope_theta=500.0,
        rms_norm_eps=1e-3,
    )
    theirs = page.AutoModelForCausalLM.from_config(config)
    for parameter in theirs.parameters():  # a weight of ones would hide a norm that leaves it out
        parameter.data += 0.1 * torch.randn_like(parameter)
    return theirs, page.with_kernels(theirs)


def tokens(batch: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 61, (batch, length), generator=generator)


def logits(model, given, **options):
    options = {key: value.to(model.device) for key, value in options.items()}
    return model(given.to(model.device), **options).logits.detach().cpu()


close = {"rtol": 1e-4, "atol": 1e-5}


def test_results_and_gradients_are_those_of_the_original(page, pair) -> None:
    theirs, ours = pair
    given = tokens(3, 37)
    for model in pair:
        there = given.to(model.device)
        model(there, labels=there).loss.backward()
    torch.testing.assert_close(logits(ours, given), logits(theirs, given), **close)
    for (name, mine), other in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), mine.grad, **close, msg=name)
    on_device = {key: calls for key, calls in page.chosen.items() if "cpu" not in key[1]}
    assert on_device == {  # of two forward passes
        ("RMSNorm", "kernel"): 6,
        ("SwiGLU", "kernel"): 2,
        ("rotary embedding", "kernel"): 2,
        ("attention", "kernel"): 2,
    }


def test_padding_and_a_cache_are_not_taken_for_causal_attention(page, pair) -> None:
    given, mask = tokens(2, 29), torch.ones(2, 29, dtype=torch.long)
    mask[1, :7] = 0
    expected, found = (logits(model, given, attention_mask=mask) for model in pair)
    torch.testing.assert_close(found[mask == 1], expected[mask == 1], **close)
    assert page.chosen["attention", "PyTorch: a mask"] == 1
    assert page.chosen["attention", "kernel"] == 0

    # Five more tokens after a prompt: more keys than queries, and each query sees those before it.
    page.chosen.clear()
    later = []
    for model in pair:
        there = given.to(model.device)
        cache = model(there[:, :24], use_cache=True)["cache"]
        later.append(model(there[:, 24:], cache=cache).logits.detach().cpu())
    torch.testing.assert_close(later[1], later[0], **close)
    assert page.chosen["attention", "kernel"] == 1  # of the prompt
    assert page.chosen["attention", "PyTorch: a mask"] == 1


def test_a_cache_of_fixed_size_hides_what_is_not_filled(page, pair) -> None:
    given, found = tokens(2, 8), []
    for model in pair:
        there, cache = given.to(model.device), StaticCache(model.config, max_cache_len=19)
        parts = [model(part, cache=cache).logits for part in (there[:, :7], there[:, 7:])]
        found.append(torch.cat(parts, 1).detach().cpu())
    torch.testing.assert_close(found[1], found[0], **close)
    assert page.chosen["attention", "kernel"] == 0


def test_positions_that_differ_are_left_to_the_library(page, pair) -> None:
    given = tokens(2, 11)
    positions = torch.stack([torch.arange(11), torch.arange(3, 14)])
    expected, found = (logits(model, given, position_ids=positions) for model in pair)
    torch.testing.assert_close(found, expected, **close)
    assert page.chosen["rotary embedding", "PyTorch: positions differ in the batch"] == 1


def test_a_copy_on_the_cpu_is_the_original(page, pair) -> None:
    theirs, _ = pair
    given = tokens(2, 13)
    ours = page.with_kernels(theirs).to("cpu")
    torch.testing.assert_close(logits(ours, given), logits(theirs, given))
    assert {who for _, who in page.chosen} == {"PyTorch: on the cpu"}
