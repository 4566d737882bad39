"""Whatever a kernel reads, by whatever way, it computes with what Python gives at the call."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
import sys
import types
import warnings
from collections import UserDict

import neuronxcc.nki.language
import nki.language
import numpy as np
import pytest

from tests.nki.stale_forms import ARGUMENTS, KINDS, SETUP
from tests.nki.test_stale_traces import DIALECTS, X

REPLACED = (
    *((math, "sqrt"), (np, "hypot"), (np, "median"), (builtins, "abs"), (itertools, "accumulate")),
    *((operator, "truediv"), (neuronxcc.nki.language, "exp"), (nki.language, "exp")),
)


def module(dialect, *texts):
    made = sys.modules["stale_kinds"] = types.ModuleType("stale_kinds")
    text = "\n".join((DIALECTS[dialect], SETUP, *texts))
    exec(compile(text, f"<{dialect}>", "exec"), vars(made))
    return made


@pytest.fixture
def as_before(monkeypatch):
    """What puts back all that forms replace."""
    options, errors, filters = np.get_printoptions(), np.geterr(), warnings.filters[:]
    digits = sys.get_int_max_str_digits()
    before = [(space, name, getattr(space, name)) for space, name in REPLACED]
    monkeypatch.setenv("STALE_KIND", "1")

    def restore():
        for space, name, value in before:
            setattr(space, name, value)
        np.set_printoptions(**options)
        np.seterr(**errors)
        warnings.filters[:] = filters
        sys.set_int_max_str_digits(digits)
        for changed in (neuronxcc.nki.language.exp, nki.language.exp, np.median, UserDict):
            if hasattr(changed, "stale"):
                del changed.stale

    yield restore
    restore()
    for name in ("stale_kinds", "cfg_of_kinds", "pkg_of_kinds", "pkg_of_kinds.types"):
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_trace_is_stale(kind, dialect, as_before):
    stale = {}
    for form, (before, expression, change) in KINDS[kind].items():
        made = module(
            dialect,
            before,
            f"@nki.jit\ndef direct(x): return body(x, {expression})",
            "direct.s, direct.d = 1.0, {'s': 1.0}",
            f"def value(): return {expression}",
            "@nki.jit\ndef called(x): return body(x, value())",
            f"def change():\n    {change}",
        )
        kernels = made.direct, made.called
        found = [float(k(X)[0, 0]) for k in kernels for _ in range(2)]
        made.change()
        found += [float(k(X)[0, 0]) for k in kernels for _ in range(2)]
        as_before()
        if found != [1.0] * 4 + [2.0] * 4:
            stale[form] = found
    assert not stale


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_argument_that_is_told_apart_is_another(dialect):
    stale = {}
    for form, (before, first, second, expression) in ARGUMENTS.items():
        made = module(
            dialect,
            before,
            f"@nki.jit\ndef kernel(x, a): return body(x, {expression})",
            f"def first(): return {first}\ndef second(): return {second}",
        )
        given = made.first(), made.second()
        found = [float(made.kernel(X, a)[0, 0]) for a in given for _ in range(2)]
        if found != [1.0, 1.0, 2.0, 2.0]:
            stale[form] = found
    assert not stale


RANDOM = {
    "global": ("", "np.random.rand()"),
    "from import": ("from numpy.random import rand", "rand()"),
    "alias": ("rand = np.random.rand", "rand()"),
    "alias of the module": ("r = np.random", "r.rand()"),
    "local import": ("def f():\n    import numpy as n\n    return n.random.rand()", "f()"),
    "closure": ("def make(n): return lambda: n.random.rand()\nf = make(np)", "f()"),
    "default": ("def f(n=np): return n.random.rand()", "f()"),
    "attribute": ("bag.np = np", "bag.np.random.rand()"),
    "local alias": ("def f():\n    n = np\n    return n.random.rand()", "f()"),
    "in a list": ("l = [np.random]", "l[0].rand()"),
    "in a dict": ("d = {'r': np.random.rand}", "d['r']()"),
    "partial": ("f = functools.partial(np.random.uniform, 0, 1)", "f()"),
    "getattr": ("", "getattr(np, 'random').rand()"),
    "generator": ("g = np.random.default_rng(0)", "g.random()"),
    "method of a generator": ("g = np.random.default_rng(0).random", "g()"),
    "state": ("g = np.random.RandomState(0)", "g.rand()"),
    "of Python": ("import random", "random.random()"),
    "object of Python": ("import random; r = random.Random(0)", "r.random()"),
    "system": ("import random; r = random.SystemRandom()", "r.random()"),
    "urandom": ("", "float(int.from_bytes(os.urandom(3), 'little'))"),
    "clock": ("import time", "time.perf_counter() % 1"),
    "alias of the clock": ("from time import perf_counter as now", "now() % 1"),
    "count": ("c = itertools.count()", "float(next(c))"),
    "new kind of text": ("import uuid", "float(uuid.uuid4().int % 1000003)"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_new_at_each_call(dialect, as_before):
    same = []
    for form, (before, expression) in RANDOM.items():
        made = module(dialect, before, f"@nki.jit\ndef kernel(x): return body(x, {expression})")
        if len({float(made.kernel(X)[0, 0]) for _ in range(3)}) < 3:
            same.append(form)
    assert not same


# What stands before the kernel, its statement, and what is 3 after three calls.
EFFECTS = {
    "global": ("n = 0", "global n; n += 1", "n"),
    "list": ("l = []", "l.append(1)", "len(l)"),
    "dict": ("d = {'n': 0}", "d['n'] += 1", "d['n']"),
    "object": ("bag.n = 0", "bag.n += 1", "bag.n"),
    "class": ("Bag.n = 0", "Bag.n += 1", "Bag.n"),
    "function": ("plain.n = 0", "plain.n += 1", "plain.n"),
    "own attribute": ("", "kernel.n = getattr(kernel, 'n', 0) + 1", "kernel.n"),
    "module": ("cfg.n = 0", "cfg.n += 1", "cfg.n"),
    "array": ("a = np.zeros(1)", "a[0] += 1", "a[0]"),
    "setattr": ("bag.n = 0", "setattr(bag, 'n', bag.n + 1)", "bag.n"),
    "set": ("s = set()", "s.add(len(s))", "len(s)"),
    "queue": ("q = collections.deque()", "q.append(1)", "len(q)"),
    "counter": ("c = collections.Counter()", "c['n'] += 1", "c['n']"),
    "helper": ("l = []\ndef note(): l.append(1)", "note()", "len(l)"),
    "closure": (
        "def make():\n    n = 0\n    def note():\n        nonlocal n\n        n += 1\n"
        "    return note, lambda: n\nnote, noted = make()",
        "note()",
        "noted()",
    ),
    "file": ("", "open(T, 'a').write('x\\n')", "open(T).read().count('x')"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_kernel_changes_is_changed_at_each_call(dialect, as_before):
    lost = {}
    for form, (before, statement, count) in EFFECTS.items():
        made = module(
            dialect,
            before,
            f"@nki.jit\ndef kernel(x):\n    {statement}\n    return body(x, 2.0)",
            f"def counted(): return {count}",
        )
        for _ in range(3):
            assert made.kernel(X)[0, 0] == 2.0
        if made.counted() != 3:
            lost[form] = made.counted()
    assert not lost


@pytest.mark.parametrize("dialect", DIALECTS)
def test_classes_that_others_register_do_not_trace_anew(dialect, as_before):
    made = module(
        dialect,
        "class Rows(abc.ABC): pass",
        "def total(v): return sum(x for x in v if isinstance(x, (int, float)))",
        "@nki.jit\ndef kernel(x): return body(x, total([1.0, 1]))",
    )
    for _ in range(2):
        assert made.kernel(X)[0, 0] == 2.0
        made.Rows.register(made.Bag)
    assert made.kernel.cache_info()[:2] == (1, 1)
