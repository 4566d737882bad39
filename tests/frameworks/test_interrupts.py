"""What ends a program, raised while a kernel runs under XLA, comes out of the call."""

from __future__ import annotations

import signal

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402

from nkisim.numerics.program import Program  # noqa: E402


@nki.jit
def twice(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.load(x) * 2.0)
    return out


class Stop(BaseException):
    def __init__(self, first, second):
        super().__init__(first, second)


def _interrupt():
    signal.raise_signal(signal.SIGINT)


def _raise(error):
    raise error


ENDS = {
    "interrupt": (_interrupt, KeyboardInterrupt),
    "with words": (lambda: _raise(KeyboardInterrupt("now")), KeyboardInterrupt),
    "exit": (lambda: _raise(SystemExit(3)), SystemExit),
    "of the user": (lambda: _raise(Stop(1, 2)), Stop),
}
finish = jax.block_until_ready
X = np.ones((4, 8), np.float32)
several = jax.jit(lambda x: twice(twice(twice(x))))
CALLS = {
    "jit": (jax.jit(twice), False),
    "several kernels": (several, False),
    "first call": (lambda x: jax.jit(lambda x: twice(x))(x), False),
    "eager": (lambda x: twice(jax.numpy.asarray(x)), False),
    "waiting": (jax.jit(twice), True),
    "in another function": (
        jax.jit(lambda x: jax.lax.fori_loop(0, 2, lambda _, y: twice(y), x)),
        False,
    ),
}


@pytest.fixture(autouse=True)
def interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("call", CALLS)
def test_what_ends_a_program_does(call, end, monkeypatch):
    call, waits = CALLS[call]
    wanted = np.asarray(call(X))
    ends, kind = ENDS[end]
    count = []

    def run(self, inputs, outputs=None):
        count.append(0)
        ends()

    with monkeypatch.context() as patch:
        patch.setattr(Program, "run", run)
        with pytest.raises(kind) as caught:
            finish(call(X)) if waits else call(X)
    assert len(count) == 1
    if end == "exit":
        assert caught.value.code == 3
    if end == "of the user":
        assert caught.value.args == (1, 2)
    np.testing.assert_array_equal(call(X), wanted)  # nothing is left behind
