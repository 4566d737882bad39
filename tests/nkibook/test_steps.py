"""The modelled time of a step, and what the capstone pages share."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkibook import steps, transformer
from nkibook.plots import Figure
from nkisim.machine import GEN2, GEN3

jax = pytest.importorskip("jax")

from kernels.attention.jax_op import attention  # noqa: E402
from kernels.rmsnorm import neuronxcc  # noqa: E402
from kernels.rmsnorm import nki as in_nki  # noqa: E402
from kernels.rmsnorm.jax_op import rms_norm  # noqa: E402
from nkibook.hlo import jax_hlo  # noqa: E402


@pytest.fixture(scope="module")
def calls():
    x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((2, 130, 16), (16,)))

    def loss(x, w):
        y = rms_norm(rms_norm(x, w, 1e-6), w, 1e-6)
        return (attention(y, y, y, causal=True) ** 2).sum()

    return jax_hlo(jax.grad(loss, (0, 1)), x, w).after.custom_calls


@pytest.mark.parametrize(
    ("chip", "module", "bind"),
    [
        ("inf2", neuronxcc, lambda kernel: kernel.on(GEN2)),
        ("trn2", in_nki, lambda kernel: kernel.on(GEN3)[2]),
    ],
)
def test_a_part_is_the_sum_of_its_kernels(calls, chip, module, bind):
    parts = {part.operator: part for part in steps.modelled(calls, chip)}
    assert {name: part.calls for name, part in parts.items()} == {"rmsnorm": 4, "attention": 2}
    x, w, numbers = (nkisim.TensorSpec(s, np.float32) for s in ((260, 16), (1, 16), (260, 1)))
    forward = nkisim.profile(bind(module.nki_rms_norm_kernel), x, w, 1e-6)
    backward = nkisim.profile(bind(module.nki_rms_norm_backward_kernel), x, x, w, numbers)
    expected = 2 * (forward.body_us + backward.body_us)
    assert parts["rmsnorm"].microseconds == pytest.approx(expected)


def test_other_chips_and_kernels_are_refused(calls):
    with pytest.raises(ValueError, match="numbers for inf2 and trn2"):
        steps.modelled(calls, "trn3")

    @nki.jit
    def double(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(y, value=2 * nl.load(x))
        return y

    other = jax_hlo(lambda x: double(x), jax.ShapeDtypeStruct((4, 5), "float32"))
    with pytest.raises(ValueError, match="double is no kernel of this book"):
        steps.modelled(other.after.custom_calls, "inf2")


def test_questions_and_answers():
    found, unseen = transformer.examples(3), transformer.held_out()
    small = transformer.SMALL
    assert found.shape == (3, small.batch, small.length + 1)
    questions = set()
    for row in (*found.reshape(-1, small.length + 1), *unseen.reshape(-1, small.length + 1)):
        question, answer = transformer.decode(row).split(">")
        assert answer == "".join(sorted(set(question)))
        questions.add(question)
    assert len(questions) == (3 + len(unseen)) * small.batch
    answers = unseen[..., transformer.LETTERS + 1 :].copy()
    assert transformer.accuracy(answers, unseen) == 1
    answers[0, 0, 3] += 1
    assert transformer.accuracy(answers, unseen) == pytest.approx(1 - 1 / (len(unseen) * 24))
    weights = small.weights()
    assert {name: w.shape for name, w in weights.items()} == small.shapes()
    assert 10_000 < sum(w.size for w in weights.values()) < 100_000


def test_the_portrait_and_its_file(tmp_path):
    board = transformer.held_out()[0]
    wrong = board.copy()
    wrong[:, -1] = 0
    losses, boards = {"one": [4, 1], "two": [4, 1]}, {1: wrong, 2: board}
    first, last = transformer.portrait(losses, boards).frames
    assert "0% of the answers are sorted" in first.alt
    assert "100% of the answers are sorted" in last.alt
    from PIL import Image

    for dark in (False, True):
        with Image.open(transformer.save(tmp_path / "run.gif", losses, boards, dark=dark)) as image:
            assert image.n_frames == 2
            ground = image.convert("RGB").getpixel((2, 2))
            assert (sum(ground) < 3 * 128) == dark


def test_a_step_is_its_kernels_and_the_bound_of_the_rest():
    x = jax.ShapeDtypeStruct((256, 1000), "float32")
    w = jax.ShapeDtypeStruct((1000,), "float32")

    def function(norm):
        def double_norm(x, w):
            return jax.numpy.exp(2 * norm(x, w))

        return jax_hlo(double_norm, x, w)

    plain = function(lambda x, w: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w)
    ours = function(rms_norm)
    for chip, cores in steps.CHIPS.items():
        # The sum reads x, the rest reads x again and writes the result.
        array = 4 * 256 * 1000
        least = 3 * array / cores.rate * 1e6
        assert steps.step(plain, chip) == pytest.approx(least, rel=0.01)
        assert sum(p.microseconds for p in steps.one_by_one(plain, chip)) > 1.9 * least
        (rest,) = steps.between(ours, chip)
        assert rest.operator == "element-wise"
        assert rest.moved == pytest.approx(2 * array, rel=0.01)
        (kernel,) = steps.modelled(ours.custom_calls, chip)
        assert steps.step(ours, chip) == kernel.microseconds + rest.microseconds
    one, two = steps.CHIPS["trn2 one core"], steps.CHIPS["trn2"]
    assert 1.9 < two.rate / one.rate < 2  # HBM gives two cores less than their DMA engines move
    assert two.tflops == 2 * one.tflops


def test_pictures_of_a_step_name_every_time():
    x = jax.ShapeDtypeStruct((256, 1000), "float32")
    plain = jax_hlo(lambda x: jax.numpy.exp(2 * x) @ x.T, x)
    ways = {"fused": plain, "again": plain}
    bars = transformer.bars(ways, "inf2")
    assert [bar.title for bar in bars] == ["one operation at a time", "fused", "again"]
    assert bars[0].total > bars[1].total == bars[2].total > bars[1].products > 0
    assert isinstance(transformer.draw_bars({"inf2": bars}), Figure)
    assert f"fused {bars[1].total:.2f} ms" in transformer.draw_bars({"inf2": bars}).alt
    found = transformer.swaps(ways)
    assert list(found) == list(steps.CHIPS)
    assert f"again {found['trn2']['again']:.2f}" in transformer.draw_swaps(found).alt
