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
import collections, dataclasses, enum, functools, logging, operator, os, types, typing
import numpy as np

config = types.ModuleType("config")
config.scale = 1.0
config.inner = types.ModuleType("config.inner")
config.inner.scale = 1.0
SCALE = 1.0
key = "sca"

def helper(): pass
def scale(): return SCALE

class Plain:
    scale = 1.0
    def __getattr__(self, name): return SCALE if name == "computed" else getattr(config, "scale")
    def method(self): return SCALE
class Bare: pass
class Stat:
    @staticmethod
    def static(): return SCALE
    @classmethod
    def of_class(cls): return cls.factor
    factor = 1.0
    __marked__ = 1.0
class Level(enum.Enum):
    low = 1.0
    high = 2.0
class Wide(enum.IntFlag):
    one = 1
    two = 2
class Table(enum.Enum):
    rows = [1.0]
@functools.cache
def remembered(): return SCALE
@functools.lru_cache
def remembered_of(n): return SCALE * n
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
plain, bare, stat = Plain(), Bare(), Stat()
chosen = Level.low
log = logging.getLogger("test_stale_traces")
log.setLevel("WARNING")
def logged():
    log.debug("traced")
    return 2.0 if log.isEnabledFor(logging.DEBUG) else 1.0
def lacking():
    try:
        return config.missing
    except AttributeError:
        return 1.0
def absent():
    try:
        return LATER
    except NameError:
        return 1.0
@functools.singledispatch
def dispatched(x): return SCALE
class One:
    def get(self): return 1.0
class Two:
    def get(self): return 2.0
class Derived(One): pass
derived = Derived()
def make():
    held = 1.0
    def get(): return held
    def put(value):
        nonlocal held
        held = value
    return get, put
get, put = make()
"""

# (an expression of the kernel, what changes it)
FORMS = {
    "module lacks it": ("2.0 if hasattr(config, 'double') else 1.0", "config.double = True"),
    "inner module": ("2.0 if hasattr(config.inner, 'two') else 1.0", "config.inner.two = True"),
    "default": ("getattr(config, 'triple', 1.0)", "config.triple = 3.0"),
    "try module": ("lacking()", "config.missing = 2.0"),
    "try global": ("absent()", "global LATER; LATER = 2.0"),
    "module getattr": (
        "config.scale",
        "vars(config).pop('scale', 0); config.__getattr__ = lambda _: 2.0",
    ),
    "function lacks it": ("2.0 if hasattr(helper, 'double') else 1.0", "helper.double = True"),
    "function has another": ("getattr(helper, 'scale', 1.0)", "helper.scale = 2.0"),
    "class lacks it": ("2.0 if hasattr(Bare, 'double') else 1.0", "Bare.double = True"),
    "object lacks it": ("2.0 if hasattr(bare, 'double') else 1.0", "bare.double = True"),
    "class of an object": ("2.0 if hasattr(bare, 'double') else 1.0", "Bare.double = True"),
    "attrgetter": ("operator.attrgetter(key + 'le')(config)", "config.scale = 2.0"),
    "methodcaller": ("operator.methodcaller('met' + 'hod')(plain)", "global SCALE; SCALE = 2.0"),
    "dict of a module": ("config.__dict__[key + 'le']", "config.scale = 2.0"),
    "vars": ("vars(config)[key + 'le']", "config.scale = 2.0"),
    "getattribute": ("config.__getattribute__(key + 'le')", "config.scale = 2.0"),
    "globals of a function": ("scale.__globals__['SCA' + 'LE']", "global SCALE; SCALE = 2.0"),
    "computed getattr": ("getattr(config, key + 'le')", "config.scale = 2.0"),
    "computed hasattr": ("1.0 + hasattr(config, 'dou' + key[:0] + 'ble')", "config.double = 1"),
    "getattr of builtins": (
        "__import__('builtins').getattr(config, key + 'le')",
        "config.scale = 2.0",
    ),
    "alias of getattr": ("(lambda ask: ask(config, key + 'le'))(getattr)", "config.scale = 2.0"),
    "chosen name": ("getattr(config, 'scale' if key else 'x')", "config.scale = 2.0"),
    "computed attribute": ("plain.computed", "global SCALE; SCALE = 2.0"),
    "attribute by getattr": ("Bare.__name__ and plain.other", "config.scale = 2.0"),
    "method": ("plain.method()", "global SCALE; SCALE = 2.0"),
    "replaced method": ("plain.method()", "Plain.method = lambda self: 5.0"),
    "class attribute": ("Stat.of_class()", "Stat.factor = 2.0"),
    "static method": ("stat.static()", "global SCALE; SCALE = 2.0"),
    "dunder attribute": ("Stat.__marked__", "Stat.__marked__ = 2.0"),
    "bases": ("derived.get()", "Derived.__bases__ = (Two,)"),
    "class of it": ("derived.get()", "derived.__class__ = Two"),
    "dispatch": ("dispatched(1)", "global SCALE; SCALE = 2.0"),
    "another dispatch": ("dispatched(1)", "dispatched.register(int)(lambda x: 5.0)"),
    "closure": ("get()", "put(2.0)"),
    "builtin": ("abs(-1.0)", "import builtins; builtins.abs = lambda x: 4.0"),
    "environment": ("float(os.environ.get('STALE_SCALE', '1'))", "os.environ['STALE_SCALE'] = '2'"),
    "getenv": ("float(os.getenv('STALE_SCALE', 1))", "os.environ['STALE_SCALE'] = '2'"),
    "list in dict": ("table['a'][0]()", "global SCALE; SCALE = 2.0"),
    "default argument": ("kw()", "kw.__kwdefaults__['s'] = 2.0"),
    "enum": ("chosen.value", "global chosen; chosen = Level.high"),
    "value in an enum": ("Table.rows.value[0]", "Table.rows.value[0] = 2.0"),
    "attribute of a member": ("getattr(Level.low, 'extra', 1.0)", "Level.low.extra = 2.0"),
    "cleared cache": ("remembered()", "global SCALE; SCALE = 2.0; remembered.cache_clear()"),
    "level of a log": ("logged()", "log.setLevel('DEBUG')"),
    "level of all logs": ("logged()", "log.setLevel('DEBUG'); logging.disable('CRITICAL')"),
}
CHANGED_BACK = """
import builtins, logging, os
builtins.abs = _abs
os.environ.pop("STALE_SCALE", None)
logging.disable(logging.NOTSET)
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
    text = f"""{COMMON}
table = {{"a": [scale]}}
def kw(*, s=1.0): return s
{DIALECTS[dialect]}
_abs = abs
{kernel}
"""
    exec(compile(text, f"<{dialect}>", "exec"), vars(made))
    return made


X = np.ones((4, 8), np.float32)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_kernel_found_is_watched(form, dialect):
    expression, change = FORMS[form]
    made = module(
        dialect,
        f"def value(): return {expression}\n"
        f"@nki.jit\ndef direct(x): return body(x, {expression})\n"
        f"@nki.jit\ndef called(x): return body(x, value())\n"
        f"def change():\n    {change}\n",
    )
    try:
        found = []
        for _ in range(2):
            wanted = made.value()
            found.append(wanted)
            for kernel in (made.direct, made.called):
                for _ in range(2):
                    assert kernel(X)[0, 0] == np.float32(wanted)
            made.change()
        assert form == "level of all logs" or found[0] != found[1]
    finally:
        exec(CHANGED_BACK, vars(made))


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
    for _ in range(3):
        assert made.kernel(X)[0, 0] == np.float32(made.value())
    assert made.kernel.cache_info()[:2] == (2, 1)
