"""Looking into a kernel: its instructions beside its lines, and tile values in the debugger."""

from __future__ import annotations

import re

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim


@nki.jit
def scaled(x, factor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        tile = nl.load(x[i])
        nl.store(out[i], nl.multiply(tile, factor))
    return out


X = np.arange(3 * 8 * 4, dtype=np.float32).reshape(3, 8, 4)


def test_explain_puts_instructions_below_their_lines():
    text = str(nkisim.explain(scaled, X, 2.0)).splitlines()
    assert text[0] == "scaled: 9 instructions"
    at = next(k for k, line in enumerate(text) if "nl.load(x[i])" in line)
    assert text[at].split()[0] == str(scaled.func.__code__.co_firstlineno + 4)
    assert re.search(r"3 x DMA load: float32\[8, 4\] SBUF .*<- float32\[8, 4\] HBM x", text[at + 1])
    assert "(128 bytes)" in text[at + 1]
    both = [line for line in text if "nl.store" not in line and ("multiply" in line)]
    assert any("Vector tensor_scalar(multiply)" in line and ", 2.0" in line for line in both)


def test_explain_takes_specs_and_grids():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        nl.store(out[i], nl.load(x[i]))
        return out

    seen = nkisim.explain(kernel[3], nkisim.TensorSpec(X.shape, X.dtype))
    assert seen.name == "kernel[3]"
    assert seen.count == 6


def test_explain_names_the_operands_of_nki(monkeypatch):
    import nki as today
    import nki.isa as nisa
    import nki.language as language

    @today.jit
    def copied(x):
        out = language.ndarray(x.shape, dtype=x.dtype, buffer=language.shared_hbm)
        tile = language.ndarray(x.shape, dtype=x.dtype, buffer=language.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.activation(dst=tile, op=language.exp, data=tile)
        nisa.dma_copy(dst=out, src=tile)
        return out

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    text = str(nkisim.explain(copied, X[0])).splitlines()
    assert re.search(r"DMA load: float32\[8, 4\] SBUF <- float32\[8, 4\] HBM x", text[2])
    assert "Scalar activation(exp): float32[8, 4] SBUF <-" in text[4]


def test_explain_in_a_console_is_its_text():
    seen = nkisim.explain(scaled, X, 2.0)
    assert repr(seen) == str(seen)


def test_explain_in_a_notebook_is_an_escaped_table():
    page = nkisim.explain(scaled, X, 2.0)._repr_html_()
    assert page.startswith('<table class="explain"><caption>scaled: 9 instructions</caption>')
    assert page.count("<tr>") == page.count("</tr>") == 1 + 2 + 3
    assert 'scope="col"' in page
    assert "<-" not in page
    assert page.count('data-name="reads"') == 3
    assert "nl.load(x[i])" in page


def test_a_tile_prints_its_values_while_the_kernel_is_traced():
    seen = []

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[1])
        tile[:, 0:2] = nl.multiply(tile[:, 0:2], 10.0)
        part = nl.ndarray((8, 4), dtype=x.dtype)
        part[:, 1:2] = tile[:, 0:1]
        seen.append((nkisim.values(tile), nkisim.values(part), repr(tile[0:1])))
        nl.store(out, tile)
        return out

    want = X[1].copy()
    want[:, :2] *= 10
    np.testing.assert_array_equal(kernel(X), want)
    ((tile, part, text),) = seen
    np.testing.assert_array_equal(tile, want)
    np.testing.assert_array_equal(part[:, 1], want[:, 0])
    assert np.isnan(part[:, [0, 2, 3]]).all()  # nothing has written these
    assert "[1, 4] part of 'x_tile'" in text
    assert "320." in text


def test_without_data_a_tile_prints_its_description():
    seen = []

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[1])
        seen.append(repr(tile))
        with pytest.raises(LookupError, match="without data"):
            nkisim.values(tile)
        nl.store(out, tile)
        return out

    kernel.specialize((nkisim.TensorSpec(X.shape, X.dtype),), {})
    assert seen == ["'x_tile' (float32[8, 4] in SBUF)"]


def test_breakpoint_stops_in_the_kernel_on_every_call(run_python):
    script = """
        import sys
        import numpy as np
        import nkisim; nkisim.install()
        import neuronxcc.nki as nki
        import neuronxcc.nki.language as nl

        @nki.jit
        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            tile = nl.load(x)
            breakpoint()
            nl.store(out, tile)
            return out

        stops = []
        def hook():
            frame = sys._getframe(1)
            stops.append((frame.f_code.co_name, repr(frame.f_locals["tile"])))
        sys.breakpointhook = hook
        for value in (1, 2):
            kernel(np.full((2, 2), value, np.float32))
        assert [name for name, _ in stops] == ["kernel", "kernel"], stops
        assert "[[1., 1.]" in stops[0][1] and "[[2., 2.]" in stops[1][1], stops
    """
    run_python(script)


def test_a_value_that_cannot_be_computed_says_why():
    seen = []

    @nki.jit
    def kernel(x, index):
        out = nl.ndarray((2, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        rows = nl.load(index)
        tile = nl.load(x[0, rows, nl.arange(4)[None, :]])
        seen.append(repr(tile))
        nl.store(out, tile)
        return out

    with pytest.raises(IndexError):
        kernel(X, np.array([[0], [9]], np.int32))
    assert "not computed" in seen[0]
