"""A kernel computes with what Python gives at the call, however it gets there; and where nothing
has changed, it is traced once."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

DIALECTS = {
    "nki": """
import nki, nki.isa as nisa, nki.language as nl

def body(x, s):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=float(s))
    nisa.dma_copy(dst=out, src=t)
    return out
""",
    "neuronxcc.nki": """
import neuronxcc.nki as nki, neuronxcc.nki.language as nl

def body(x, s):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * float(s))
    return out
""",
}
COMMON = """
import dataclasses, enum, functools, types, typing
import numpy as np

config = types.ModuleType("config")
config.scale = 1.0
SCALE = 1.0

def scale(): return SCALE

class Plain:
    def method(self): return SCALE
class Level(enum.Enum):
    low = 1.0
    high = 2.0
class Wide(enum.IntFlag):
    one = 1
    two = 2
@dataclasses.dataclass
class Args:
    x: np.ndarray
    level: Level = Level.low
    size: float = 1.0
    def scale(self): return SCALE
    @property
    def doubled(self): return 2 * SCALE
    factor = 1.0
class Pair(typing.NamedTuple):
    x: np.ndarray
    size: float = 1.0
    def scale(self): return SCALE
plain = Plain()
chosen = Level.low
"""

# (arguments, an expression of the kernel on the argument `a` whose tensor is `x`, what changes it)
WITH_TENSORS = {
    "dict": ("{'x': x, 'f': scale}", "a['x']", "a['f']()", "global SCALE; SCALE = 2.0"),
    "tuple": ("(x, scale)", "a[0]", "a[1]()", "global SCALE; SCALE = 2.0"),
    "list in a dict": (
        "{'x': x, 'fs': [[scale]]}",
        "a['x']",
        "a['fs'][0][0]()",
        "global SCALE; SCALE = 2.0",
    ),
    "dataclass": ("Args(x)", "a.x", "a.scale()", "global SCALE; SCALE = 2.0"),
    "property": ("Args(x)", "a.x", "a.doubled", "global SCALE; SCALE = 2.0"),
    "class attribute": ("Args(x)", "a.x", "a.factor", "Args.factor = 2.0"),
    "field": ("Args(x, size=SCALE)", "a.x", "a.size", "global SCALE; SCALE = 2.0"),
    "named tuple": ("Pair(x)", "a.x", "a.scale()", "global SCALE; SCALE = 2.0"),
    "inside another": (
        "{'in': Args(x)}",
        "a['in'].x",
        "a['in'].scale()",
        "global SCALE; SCALE = 2.0",
    ),
    "object": ("{'x': x, 'o': plain}", "a['x']", "a['o'].method()", "global SCALE; SCALE = 2.0"),
    "bound method": (
        "{'x': x, 'f': plain.method}",
        "a['x']",
        "a['f']()",
        "global SCALE; SCALE = 2.0",
    ),
    "partial": (
        "{'x': x, 'f': functools.partial(scale)}",
        "a['x']",
        "a['f']()",
        "global SCALE; SCALE = 2.0",
    ),
    "module": ("{'x': x, 'm': config}", "a['x']", "a['m'].scale", "config.scale = 2.0"),
    "lacking": ("(x, config)", "a[0]", "2.0 if hasattr(a[1], 'two') else 1.0", "config.two = 1"),
}
# Another partial object is equal to none; a module could be asked for anything.
DOUBTED = ("partial", "module", "lacking")


def module(dialect, kernel):
    made = sys.modules["stale"] = types.ModuleType("stale")  # which dataclasses look up
    text = f"{COMMON}\n{DIALECTS[dialect]}\n{kernel}"
    exec(compile(text, f"<{dialect}>", "exec"), vars(made))
    return made


X = np.ones((4, 8), np.float32)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", WITH_TENSORS)
def test_what_is_beside_a_tensor_is_watched(form, dialect):
    arguments, tensor, expression, change = WITH_TENSORS[form]
    made = module(
        dialect,
        f"def arguments(x): return {arguments}\n"
        f"def value(a): return {expression}\n"
        f"@nki.jit\ndef kernel(a): return body({tensor}, {expression})\n"
        f"def change():\n    {change}\n",
    )
    found = []
    for _ in range(2):
        a = made.arguments(X)
        found.append(made.value(a))
        assert made.kernel(a)[0, 0] == np.float32(found[-1])
        assert made.kernel(made.arguments(X))[0, 0] == np.float32(found[-1])
        made.change()
    assert found[0] != found[1]
    if form not in DOUBTED:
        assert made.kernel.cache_info().hits, "nothing had changed in between"


ONCE = {
    "a member": "chosen.value",
    "all members": "sum(level.value for level in Level)",
    "a member by value": "Level(2.0).value",
    "a member by name": "Level['high'].value",
    "comparison": "1.0 if chosen is Level.low else 2.0",
    "flags": "float(Wide.one | Wide.two)",
    "integers": "float(Wide.two + 1)",
    "a list of members": "[Level.low, Level.high][1].value",
    "a dict of members": "{Level.low: 3.0}[chosen]",
    "a dataclass": "Args(None).level.value",
    "hasattr": "1.0 + hasattr(config, 'double')",
    "getattr": "getattr(config, 'scale', 3.0)",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", ONCE)
def test_a_kernel_is_traced_once_where_nothing_changes(form, dialect):
    made = module(
        dialect,
        f"def value(): return {ONCE[form]}\n@nki.jit\ndef kernel(x): return body(x, value())\n",
    )
    wanted = np.float32(made.value())  # a class keeps the flags that were combined
    for _ in range(3):
        assert made.kernel(X)[0, 0] == wanted
    assert made.kernel.cache_info()[:2] == (2, 1)
