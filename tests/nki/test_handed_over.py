"""Arguments and results are handed over as they are: no constructor runs, no class changes."""

from __future__ import annotations

import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.nki.test_stale_traces import DIALECTS, X

SETUP = """
import collections, dataclasses, typing
from dataclasses import dataclass, field, InitVar

@dataclass
class Doubled:
    x: object
    s: float = 1.0
    def __post_init__(self): self.s *= 2
@dataclass
class Later:
    x: object
    s: float = field(default=5.0, init=False)
@dataclass
class Given:
    x: object
    n: InitVar[float] = 5.0
    s: float = 0.0
    def __post_init__(self, n): self.s = n
@dataclass(frozen=True)
class Frozen:
    x: object
    s: float = 2.0
@dataclass(slots=True)
class Slotted:
    x: object
    s: float = 1.0
    def __post_init__(self): self.s *= 2
@dataclass(frozen=True, slots=True)
class Both:
    x: object
    s: float = 2.0
@dataclass
class New:
    x: object
    made = 0
    def __new__(cls, x):
        cls.made += 1
        return object.__new__(cls)
@dataclass
class Sets:
    x: object
    def __setattr__(self, name, value):
        object.__setattr__(self, "s", getattr(self, "s", 1.0) + 1.0)
        object.__setattr__(self, name, value)
class Pair(collections.namedtuple("Pair", "x s")):
    def __new__(cls, x, s=1.0): return super().__new__(cls, x, 2 * s)
class Noted(collections.namedtuple("Noted", "x")): pass
class Texts(dict):
    def __init__(self, x, **more): super().__init__(x=x, **more)
    def __setitem__(self, name, value): raise AssertionError(name)
    def __missing__(self, name): return 2.0
class Items(list):
    def __init__(self, *items): super().__init__(items)
class Row(tuple):
    def total(self): return 2.0
def with_(value, **attributes):
    for name, of_it in attributes.items():
        object.__setattr__(value, name, of_it)
    return value
INNER, KEPT = Frozen(None), [1.0]
def deep(x):
    for _ in range(1100): x = [x]
    return x
def bottom(a):
    while isinstance(a, list): a = a[0]
    return a
def ring(x):
    l = [x]
    l.append(l)
    return l
"""
# What is passed, the tensor in it, and an expression that is 2.0 of what the caller has.
FORMS = {
    "__post_init__": ("Doubled(x)", "a.x", "a.s"),
    "a field that is no parameter": ("with_(Later(x), s=2.0)", "a.x", "a.s"),
    "InitVar": ("Given(x, 2.0)", "a.x", "a.s"),
    "an attribute beside the fields": ("with_(Doubled(x), more=2.0)", "a.x", "a.more"),
    "a field that was changed": ("with_(Doubled(x), s=2.0)", "a.x", "a.s"),
    "frozen": ("with_(Frozen(x, 1.0), s=2.0)", "a.x", "a.s"),
    "slots": ("Slotted(x)", "a.x", "a.s"),
    "frozen, slots": ("Both(x)", "a.x", "a.s"),
    "__new__": ("with_(New(x), s=2.0)", "a.x", "a.s"),
    "__setattr__": ("Sets(x)", "a.x", "a.s"),
    "a named tuple with __new__": ("Pair(x)", "a.x", "a.s"),
    "a named tuple with attributes": ("with_(Noted(x), s=2.0)", "a.x", "a.s"),
    "a class of dicts": ("Texts(x)", "a['x']", "a['missing']"),
    "attributes of a dict": ("with_(Texts(x), s=2.0)", "a['x']", "a.s"),
    "order of a dict": (
        "collections.OrderedDict([('x', x), ('s', 2.0)])",
        "a['x']",
        "next(reversed(a.values()))",
    ),
    "default of a dict": ("collections.defaultdict(lambda: 2.0, x=x)", "a['x']", "a['missing']"),
    "a class of lists": ("Items(x, 2.0)", "a[0]", "a[1] * (type(a) is Items)"),
    "attributes of a list": ("with_(Items(x), s=2.0)", "a[0]", "a.s"),
    "a class of tuples": ("Row((x,))", "a[0]", "a.total()"),
    "inside others": ("{'in': [(Doubled(x),)]}", "a['in'][0][0].x", "a['in'][0][0].s"),
    "an object beside it": ("[x, INNER]", "a[0]", "1.0 + (a[1] is INNER)"),
    "a list beside it": ("(x, KEPT)", "a[0]", "1.0 + (a[1] is KEPT)"),
    "one list twice": ("(lambda l: [l, l])([x])", "a[0][0]", "1.0 + (a[0] is a[1])"),
    "deep inside": ("deep(x)", "bottom(a)", "2.0"),
    "in a ring": ("ring(x)", "a[0]", "1.0 + (type(a[1]) is list)"),
}
FRAMEWORKS = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.tensor}
IN_FRAMEWORKS = ("__post_init__", "slots", "a named tuple with __new__", "a class of dicts")


def module(dialect, *texts):
    made = sys.modules["handed_over"] = types.ModuleType("handed_over")
    exec("\n".join((DIALECTS[dialect], SETUP, *texts)), vars(made))
    return made


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("framework", "form"),
    [("numpy", form) for form in FORMS]
    + [(framework, form) for framework in ("jax", "torch") for form in IN_FRAMEWORKS],
)
@pytest.mark.filterwarnings("ignore:.*AWS's compiler takes a subset of Python")
def test_an_argument_is_as_the_caller_has_it(framework, form, dialect):
    made, tensor, value = FORMS[form]
    built = module(
        dialect,
        f"def make(x): return {made}",
        f"@nki.jit\ndef kernel(a): return body({tensor}, {value})",
        f"def value(a): return {value}",
    )
    given = built.make(FRAMEWORKS[framework](X))
    created = built.New.made
    assert built.value(given) == 2.0
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(built.kernel(given)), 2 * X)
    assert built.value(given) == 2.0
    assert built.New.made == created


# Constants that JSON does not have.
CONSTANTS = {
    "keys": "{1: 2.0, 'a': 0.0, (1, 2): 0.0}",
    "a ring": "ring(2.0)",
    "depth": "{1: 2.0, 'l': deep(2.0)}",
    "digits": "{1: 2.0, 'n': 10**5000}",
    "no text": "{1: 2.0, 'o': Unprinted()}",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", CONSTANTS)
@pytest.mark.filterwarnings("ignore:.*AWS's compiler takes a subset of Python")
def test_jax_hands_over_any_constant(form, dialect):
    built = module(
        dialect,
        "class Unprinted:\n    def __repr__(self): raise KeyError('unprinted')",
        f"def make(): return {CONSTANTS[form]}",
        "@nki.jit\ndef kernel(x, a): return body(x, a[1] if isinstance(a, dict) else a[0])",
    )
    result = built.kernel(jnp.asarray(X), built.make())
    np.testing.assert_array_equal(np.asarray(result), 2 * X)


# What a kernel returns for its output `t`, the array in it, and what is 2.0 of it.
RETURNED = {
    "__post_init__": ("Doubled(t)", "r.x", "r.s"),
    "attributes": ("with_(Doubled(t), more=2.0)", "r.x", "r.more"),
    "slots": ("Slotted(t)", "r.x", "r.s"),
    "frozen": ("with_(Frozen(t, 1.0), s=2.0)", "r.x", "r.s"),
    "a named tuple with __new__": ("Pair(t)", "r.x", "r.s"),
    "a class of dicts": ("Texts(t)", "r['x']", "r['missing']"),
    "a class of lists": ("Items(t, 2.0)", "r[0]", "r[1] * (type(r) is Items)"),
    "inside others": ("[{'in': Doubled(t)}]", "r[0]['in'].x", "r[0]['in'].s"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", RETURNED)
@pytest.mark.filterwarnings("ignore:.*AWS's compiler takes a subset of Python")
def test_a_result_is_as_the_kernel_made_it(form, dialect):
    made, tensor, value = RETURNED[form]
    built = module(
        dialect,
        f"def wrapped(t): return {made}",
        "@nki.jit\ndef kernel(x): return wrapped(body(x, 2.0))",
        f"def array(r): return {tensor}",
        f"def value(r): return {value}",
    )
    for _ in range(2):
        result = built.kernel(X)
        assert built.value(result) == 2.0
        np.testing.assert_array_equal(built.array(result), 2 * X)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_caller_may_change_what_it_got(dialect):
    built = module(dialect, "@nki.jit\ndef kernel(x): return body(x, 2.0), [1.0, {'s': 2.0}]")
    for _ in range(3):
        _, rest = built.kernel(X)
        assert rest == [1.0, {"s": 2.0}]
        rest[1]["s"] = 5.0
        rest.append(3.0)
    assert built.kernel.cache_info()[:2] == (2, 1)


# What a kernel returns for its output `t`, what its caller changes, and what is 1.0 of a new one.
CHANGED = {
    "an object": ("(t, with_(Texts(0), s=1.0))", "r[1].s = 2.0", "r[1].s"),
    "a namespace": ("(t, types.SimpleNamespace(s=1.0))", "r[1].s = 2.0", "r[1].s"),
    "a list beside fields": ("with_(Frozen(t), more=[1.0])", "r.more[0] = 2.0", "r.more[0]"),
    "a list of a dict": ("with_(Texts(t), more=[1.0])", "r.more[0] = 2.0", "r.more[0]"),
    "a set": ("(t, {1.0})", "r[1].add(0.0)", "min(r[1])"),
    "an array": ("(t, np.ones(1))", "r[1][0] = 2.0", "r[1][0]"),
    "a queue": ("(t, collections.deque([1.0]))", "r[1][0] = 2.0", "r[1][0]"),
    "a function": ("(t, lambda: 1.0)", "r[1].s = 2.0", "getattr(r[1], 's', 1.0)"),
    "a key": ("(t, {with_(Row(), s=1.0): 0})", "[*r[1]][0].s = 2.0", "[*r[1]][0].s"),
    "a list": ("[t, [1.0]]", "r[1][0] = 2.0", "r[1][0]"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", CHANGED)
@pytest.mark.filterwarnings("ignore:.*AWS's compiler takes a subset of Python")
def test_what_a_caller_changes_is_its_own(form, dialect):
    made, change, value = CHANGED[form]
    built = module(
        dialect,
        "import types, numpy as np",
        f"def wrapped(t): return {made}",
        "@nki.jit\ndef kernel(x): return wrapped(body(x, 1.0))",
        f"def value(r): return {value}",
        f"def change(r): {change}",
    )
    for _ in range(3):
        result = built.kernel(X)
        assert built.value(result) == 1.0
        built.change(result)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tensors_of_one_list_in_two_arguments_have_its_name(dialect):
    built = module(dialect, "@nki.jit\ndef kernel(a, b, c): return body(c, 2.0)")
    both = [X, X]
    program = built.kernel.specialize((both, both, X), {}).program
    assert [spec.name for spec in program.inputs] == ["a[0]", "a[1]", "c"]
    np.testing.assert_array_equal(built.kernel(both, both, X), 2 * X)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_kernel_that_changes_its_arguments_changes_each(dialect):
    built = module(
        dialect,
        "@nki.jit\ndef kernel(x, given):",
        "    given.append(len(given))\n    return body(x, given[-1])",
    )
    for start in ([0.0, 0.0], [0.0, 0.0], [0.0]):
        given = [*start]
        assert built.kernel(X, given)[0, 0] == len(start)
        assert given == [*start, len(start)]
