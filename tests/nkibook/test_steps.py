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


def test_text_and_windows():
    assert transformer.decode(transformer.encode(transformer.TEXT)) == transformer.TEXT
    found = transformer.windows(3)
    small = transformer.SMALL
    assert found.shape == (3, small.batch, small.length + 1)
    for window in found.reshape(-1, small.length + 1):
        assert transformer.decode(window) in 2 * transformer.TEXT
    weights = small.weights()
    assert {name: w.shape for name, w in weights.items()} == small.shapes()
    assert 10_000 < sum(w.size for w in weights.values()) < 100_000


@pytest.mark.parametrize("times", [{}, {"width 16": "calls"}])
def test_the_portrait_says_what_it_shows(calls, times):
    by_chip = {title: steps.modelled(calls, chip) for chip, title in steps.CHIPS.items()}
    picture = transformer.portrait(
        {"one": [4, 1], "two": [4, 1]},
        {1: "Rough", 2: "Rough winds"},
        dict.fromkeys(times, by_chip),
    )
    assert isinstance(picture, Figure)
    assert 'After 2 steps the model writes "Rough winds".' in picture.alt
    assert ("modelled" in picture.alt) == bool(times)
