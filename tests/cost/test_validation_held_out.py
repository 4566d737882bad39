"""Published latencies that the cost model was not made with, what the validation page says of the
largest errors, and what the kernels compute. The page asserts that they are as close, and in such
an order, as it says."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from nkibook.validation import attention_steps, nkibench_products
from nkibook.validation.__main__ import evaluate
from nkibook.validation.points import POINTS, SOURCES
from nkibook.validation.points_held_out import HELD_OUT, LADDERS


def test_held_out_points_are_no_points_of_the_model():
    """Neither by name, nor by kernel and arguments, nor by what was published."""
    assert len(HELD_OUT) == 25
    assert len({p.name for p in (*HELD_OUT, *POINTS)}) == len(HELD_OUT) + len(POINTS)
    seen = {(p.kernel, repr(p.args)) for p in POINTS}
    for p in HELD_OUT:
        assert p.source in SOURCES
        assert p.trust in ("high", "medium")
        assert p.machine.name == "NeuronCore-v2"
        assert (p.kernel, repr(p.args)) not in seen


def test_ladders_are_in_the_published_order():
    published = {p.name: p.published_us for p in (*POINTS, *HELD_OUT)}
    steps = [n for ladder in LADDERS.values() for n in ladder]
    held = {p.name for p in HELD_OUT if p.source == "autocomp"}
    assert len(set(steps)) == len(steps) == 24
    assert held < set(steps)
    for ladder in LADDERS.values():
        times = [published[n] for n in ladder]
        assert times == sorted(times, reverse=True)


# -- what the page says of the largest errors


def profile(kernel, *args):
    with nkisim.checks(sbuf="off"):
        return nkisim.profile(kernel, *args)


def test_powers_of_four_tiles_are_one_instruction():
    x = nkisim.TensorSpec((128, 4096), np.dtype(np.float32))
    found = profile(attention_steps.two_passes, x, x, x)
    powers = 32 * 8  # strips of 128 rows, banks of 512 columns
    assert found.choices["activation(exp) of 4 iterations joined"] == powers
    assert found.choices["tensor_reduce(add) of 4 iterations joined"] == powers


def test_grouped_attention_does_the_published_work():
    """Published: 2.33 GB of HBM, Vector active for 31.4 % of 19.11 ms, Scalar for 38.6 %."""
    (point,) = (p for p in HELD_OUT if p.name.startswith("grouped-query attention"))
    found = profile(point.function, *point.args)
    assert found.hbm_bytes == pytest.approx(2.33e9, rel=0.07)
    busy = {engine: use.busy_us for engine, use in found.engines.items()}
    assert busy["Vector"] == pytest.approx(0.314 * point.published_us, rel=0.05)
    assert busy["Scalar"] == pytest.approx(0.386 * point.published_us, rel=0.2)


def test_the_right_operand_of_the_large_matmul_is_loaded_once():
    """Published: 9.06 GB read, which is w 32 times and x 12 times."""
    (point,) = (p for p in HELD_OUT if p.name.startswith("matmul 4096 x 5120"))
    x, w = (np.prod(a.shape) * 4 for a in point.args)
    assert 32 * w + 12 * x == pytest.approx(9.06e9, rel=0.002)
    found = profile(point.function, *point.args)
    assert found.hbm_bytes < 3e9


def test_rows_spread_by_broadcast_to_cost_what_operators_cost():
    forms = "sums in PSUM", "two buffers", "spread by operators"
    names = [f"mamba {form}, 256 x 2048, Autocomp" for form in forms]
    spread = [us for _, us in evaluate(p for p in (*POINTS, *HELD_OUT) if p.name in names)]
    assert len(spread) == 3
    assert max(spread) / min(spread) < 1.001


# -- the kernels compute what they claim to

RNG = np.random.default_rng(19)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x):
    exp = np.exp(x - x.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


BF16 = 0.008  # what products of bfloat16 may be off by
STEPS = [
    (attention_steps.on_chip, (), 1e-5),
    (attention_steps.three_passes, (), 1e-5),
    *((attention_steps.three_passes, (True,) * n, BF16) for n in range(1, 5)),
    (attention_steps.two_passes, (True,), BF16),
    (attention_steps.two_passes, (), BF16),
    (attention_steps.two_passes, (False, True), BF16),
]


@pytest.mark.parametrize(("kernel", "options", "atol"), STEPS)
def test_steps_attend(kernel, options, atol):
    q, k, v = random(128, 1536) / 3, random(128, 1536) / 3, random(128, 1536)
    with nkisim.checks(psum="off"):
        found = kernel(q, k, v, *options)
    np.testing.assert_allclose(found, softmax(q.T @ k) @ v.T, atol=atol)


def test_one_maximum_is_that_of_the_first_rows():
    """A row whose scores are two hundred larger overflows, and only with that step."""
    q, k, v = random(128, 512) / 3, random(128, 512) / 3, random(128, 512)
    k[0], q[0, 300] = 10, 20
    want = softmax(q.T @ k) @ v.T
    np.testing.assert_allclose(attention_steps.two_passes(q, k, v), want, atol=BF16)
    with pytest.warns(nkisim.NkiWarning):
        one = attention_steps.two_passes(q, k, v, False, True)
    rows = np.arange(512) // 128 != 2  # a transpose spreads what is not finite in its tile
    np.testing.assert_allclose(one[rows], want[rows], atol=BF16)
    assert not np.isfinite(one[300]).any()


def test_products_multiply():
    x, w = random(384, 2048), random(2048, 1024)
    found = nkibench_products.matmul(x.reshape(3, 128, 16, 128), w.reshape(16, 128, 1024))
    np.testing.assert_allclose(found.reshape(384, 1024), x @ w, atol=2e-3)
    a, b = random(384, 1024), random(384, 1321)
    found = nkibench_products.transposed_matmul(a.reshape(128, 3, 1024), b.reshape(128, 3, 1321))
    np.testing.assert_allclose(found.reshape(1024, 1321), a.T @ b, atol=1e-3)


def test_rmsnorm_and_matmul_do_both():
    x, w = random(2048, 512) * 3, random(512, 1024)
    found = nkibench_products.rmsnorm_matmul(x.reshape(16, 128, 512), w.reshape(4, 128, 1024))
    want = x / np.sqrt(np.mean(x * x, 1, keepdims=True)) @ w
    np.testing.assert_allclose(found.reshape(2048, 1024), want, atol=1e-3)


def test_swiglu_gates():
    torch = pytest.importorskip("torch")
    x, up, gate = random(1536, 1024) / 8, random(1024, 2048) / 8, random(1024, 2048) / 8
    down = random(2048, 1024)
    found = nkibench_products.swiglu(
        x.reshape(3, 4, 128, 8, 128),
        up.reshape(8, 128, 2048),
        down.reshape(16, 128, 1024),
        gate.reshape(8, 128, 2048),
    )
    want = (torch.nn.functional.silu(torch.tensor(x @ gate)).numpy() * (x @ up)) @ down
    np.testing.assert_allclose(found.reshape(1536, 1024), want, atol=2e-3)


def test_lora_adds_a_product_of_low_rank():
    x, w = random(1024, 5120) / 8, random(5120, 1024) / 8
    a, b = random(5120, 128) / 8, random(128, 1024) / 8
    found = nkibench_products.lora(
        x.reshape(2, 4, 128, 40, 128), w.reshape(40, 128, 1024), a.reshape(40, 128, 128), b
    )
    np.testing.assert_allclose(found.reshape(1024, 1024), x @ w + x @ a @ b, atol=2e-3)


def test_grouped_attention_shares_keys_and_values():
    """Two heads of q for each of k and v; as many rows of q as there are keys is not needed."""
    q, k, v = random(256, 16, 128), random(1024, 8, 128), random(1024, 8, 128)
    with nkisim.checks(sbuf="off"):
        found = nkibench_products.grouped_attention(
            q.reshape(2, 128, 16, 128), k.reshape(2, 4, 128, 8, 128), v.reshape(8, 128, 1024)
        )
    for head in range(16):
        want = softmax(q[:, head] @ k[:, head // 2].T / np.sqrt(128)) @ v[:, head // 2]
        np.testing.assert_allclose(found[head // 2, head % 2].reshape(256, 128), want, atol=1e-5)
