"""Launches that would not end, or that take more than they are given."""

import textwrap

import neuronxcc.nki as neuronxcc_nki
import neuronxcc.nki.language as neuronxcc_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import KernelError
from nkisim.errors import LimitError
from nkisim.ir.limits import parsed

X = np.ones((4, 5), np.float32)


def load(tensor):
    register = nisa.register_alloc()
    nisa.register_load(register, tensor)
    return register


@nki.jit
def endless(x, n):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)

    def body(go):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        return load(n)

    nl.while_loop(load(n), body)
    nl.store(out, value=tile)
    return out


@nki.jit
def counted(x, n):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)

    def inner(j):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)

    nl.fori_loop(0, nisa.scalar_load(n), lambda i: nl.fori_loop(0, 10, inner))
    nl.store(out, value=tile)
    return out


def test_an_endless_loop_ends_at_its_line_with_the_count():
    with nkisim.limits(iterations=30), pytest.raises(LimitError) as caught:
        endless(X, np.array([[1]], np.int32))
    assert caught.value.location.text == "nl.while_loop(load(n), body)"
    assert "31 iterations" in str(caught.value)
    assert "NKISIM_LIMITS=iterations=N" in caught.value.fix


def test_a_loop_of_ten_million_rounds_is_refused_before_the_first():
    with pytest.raises(KernelError, match="10,000,000 iterations"):
        counted(X, np.array([[10_000_000]], np.int32))


def test_iterations_of_nested_loops_count_together():
    n = np.array([[4]], np.int32)  # 4 of the outer loop, 40 of the inner one
    with nkisim.limits(iterations=44):
        np.testing.assert_array_equal(counted(X, n), X + 40)
    with nkisim.limits(iterations=43), pytest.raises(LimitError, match="44 iterations"):
        counted(X, n)


@pytest.mark.parametrize("language", ["nki", "neuronxcc"])
def test_instructions_are_counted_while_the_kernel_is_traced(language):
    def many(x):
        out = lang.ndarray(x.shape, dtype=x.dtype, buffer=lang.shared_hbm)
        while True:
            lang.store(out, lang.load(x))

    lang = nl if language == "nki" else neuronxcc_nl
    kernel = (nki if language == "nki" else neuronxcc_nki).jit(many)
    with nkisim.limits(instructions=1000), pytest.raises(LimitError) as caught:
        kernel(X)
    assert "1,000 instructions" in str(caught.value)
    assert "lang.store(out" in caught.value.location.text


@pytest.mark.parametrize("text", ["iterations", "iterations=0", "iterations=x", "rounds=3"])
def test_a_limit_that_there_is_not(text):
    with pytest.raises(ValueError, match="limits are instructions, iterations"):
        parsed(text)


def test_limits_from_the_environment():
    assert parsed("iterations=5, instructions=1_000") == {"iterations": 5, "instructions": 1000}


def test_a_program_that_goes_on_is_ended_where_it_is(run_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import atexit
        atexit.register(print, "left in order", flush=True)
        while True:
            pass
        """)
    )
    done = run_python("-m", "nkisim", "--time-limit=0.2", str(program), check=False)
    assert "left in order" in done.stdout
    assert "has run for 0.2 s" in done.stderr
    assert "at:   program.py:" in done.stderr


def test_a_program_that_takes_too_much_memory_is_told(run_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import numpy as np\nprint(np.ones((30, 1 << 25), np.float64).sum())\n")
    done = run_python("-m", "nkisim", "--memory-limit", "4000", str(program), check=False)
    assert "--memory-limit" in done.stderr
