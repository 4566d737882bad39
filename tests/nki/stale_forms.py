"""Ways in which a kernel gets at something that changes, by kind, for test_stale_kinds.

Each form is what stands before the kernel, an expression of the kernel, and what changes it. It is
1.0 at first, and 2.0 after the change.
"""

from __future__ import annotations

SETUP = """
import abc, builtins, collections, contextlib, copy, dataclasses, enum, functools, importlib
import itertools, logging, math, numbers, operator, os, sys, tempfile, typing, types, weakref
import numpy as np

S = 1.0
cfg = types.ModuleType("cfg_of_kinds")
cfg.S = 1.0
sys.modules["cfg_of_kinds"] = cfg
class Bag: pass
bag = Bag()
bag.s = 1.0
def plain(): return S
@nki.jit
def other(): return S
@nki.jit
def with_default(s=1.0): return s
@nki.jit
def with_keyword(*, s=1.0): return s
def two(): return 2.0
folder = tempfile.mkdtemp()
P = os.path.join(folder, "s.npy")
T = os.path.join(folder, "s.txt")
def write(s):
    np.save(P, np.float32(s))
    np.savetxt(T, [s])
write(1.0)
"""

GLOBAL = "global S; S = 2.0"
KINDS = {
    "attributes of kernels": {
        "own attribute": ("", "direct.s", "direct.s = 2.0"),
        "other kernel": ("other.s = 1.0", "other.s", "other.s = 2.0"),
        "getattr": ("", "getattr(other, 'late', 1.0)", "other.late = 2.0"),
        "in a list": ("other.s = 1.0; ks = [other]", "ks[0].s", "other.s = 2.0"),
        "func swapped": ("", "other()", "other.func = two"),
        "code swapped": ("", "other()", "other.func.__code__ = two.__code__"),
        "defaults": ("", "with_default()", "with_default.func.__defaults__ = (2.0,)"),
        "keyword defaults": ("", "with_keyword()", "with_keyword.func.__kwdefaults__ = {'s': 2.0}"),
        "in a default": ("def f(k=other): return k()", "f()", GLOBAL),
    },
    "caches": {
        "cleared and refilled": (
            "@functools.lru_cache(maxsize=1)\ndef h(n): return S\nh(0)",
            "h(0)",
            "global S; S = 2.0; h.cache_clear(); h(0)",
        ),
        "of a method": (
            "class C:\n    @functools.cache\n    def h(self): return S\nc = C()",
            "c.h()",
            GLOBAL + "; C.h.cache_clear()",
        ),
        "cached property": (
            "class C:\n    @functools.cached_property\n    def h(self): return S\nc = C()",
            "c.h",
            GLOBAL + "; del c.h",
        ),
        "registered": (
            "@functools.singledispatch\ndef h(x): return 1.0",
            "h(1)",
            "h.register(int)(lambda x: 2.0)",
        ),
        "weak reference": ("w = weakref.ref(bag)", "w().s", "bag.s = 2.0"),
        "iterator": ("it = itertools.count(1)", "float(next(copy.copy(it)))", "next(it)"),
        "generator": (
            "def numbers():\n    yield 1.0\n    yield 2.0\ng = numbers()\nlast = [next(g)]",
            "last[0]",
            "last[0] = next(g)",
        ),
    },
    "functions in C around functions of Python": {
        "frompyfunc": ("f = np.frompyfunc(lambda v: v * S, 1, 1)", "f(1.0)", GLOBAL),
        "map that is kept": (
            "def fresh(): return map(lambda v: v * S, [1.0] * 9)\nf = fresh()",
            "next(f)",
            GLOBAL,
        ),
        "partial of what changes": (
            "f = functools.partial(lambda l: l[0], [1.0])",
            "f()",
            "f.args[0][0] = 2.0",
        ),
        "partial set anew": (
            "f = functools.partial(lambda s: s, 1.0)",
            "f()",
            "f.__setstate__((f.func, (2.0,), {}, {}))",
        ),
        "reduce": ("", "functools.reduce(lambda a, b: b * S, [1.0, 1.0])", GLOBAL),
        "attrgetter": ("get = operator.attrgetter('S')", "get(cfg)", "cfg.S = 2.0"),
        "methodcaller": (
            "class C:\n    def h(self): return S\ncall = operator.methodcaller('h'); c = C()",
            "call(c)",
            GLOBAL,
        ),
        "bound method of C": ("l = [1.0]; get = l.__getitem__", "get(0)", "l[0] = 2.0"),
        "context manager": (
            "@contextlib.contextmanager\ndef scope(): yield S\n"
            "def f():\n    with scope() as s: return s",
            "f()",
            GLOBAL,
        ),
    },
    "files, by any name": {
        "load": ("from numpy import load", "float(load(P))", "write(2.0)"),
        "local import": (
            "def f():\n    import numpy as n\n    return float(n.load(P))",
            "f()",
            "write(2.0)",
        ),
        "default": ("def f(n=np): return float(n.load(P))", "f()", "write(2.0)"),
        "memmap": ("m = np.load(P, mmap_mode='r+')", "float(m[()])", "m[()] = 2.0; m.flush()"),
        "open": ("", "float(open(T).read())", "write(2.0)"),
        "environment": (
            "os.environ['STALE_KIND'] = '1'",
            "float(os.environ['STALE_KIND'])",
            "os.environ['STALE_KIND'] = '2'",
        ),
        "import_module": ("", "importlib.import_module('cfg_of_kinds').S", "cfg.S = 2.0"),
    },
    "modules, by any way": {
        "attribute": ("", "cfg.S", "cfg.S = 2.0"),
        "from import": (
            "def f():\n    from cfg_of_kinds import S\n    return S",
            "f()",
            "cfg.S = 2.0",
        ),
        "replaced": (
            "def f():\n    import cfg_of_kinds as c\n    return c.S",
            "f()",
            "new = types.ModuleType('cfg_of_kinds'); new.S = 2.0; sys.modules[new.__name__] = new",
        ),
        "relative, named as one of Python's": (
            "import sys\npkg = types.ModuleType('pkg_of_kinds'); pkg.__path__ = []\n"
            "sys.modules['pkg_of_kinds'] = pkg\nsub = types.ModuleType('pkg_of_kinds.types')\n"
            "sub.S = 1.0; sys.modules['pkg_of_kinds.types'] = sub\n"
            "space = {'__name__': 'pkg_of_kinds.k', '__package__': 'pkg_of_kinds'}\n"
            "exec('def h():\\n    from .types import S\\n    return S', space); h = space['h']",
            "h()",
            "sub.S = 2.0",
        ),
        "closure": ("def make(c): return lambda: c.S\nf = make(cfg)", "f()", "cfg.S = 2.0"),
        "in a list": ("l = [cfg]", "l[0].S", "cfg.S = 2.0"),
        "format": ("", "float('{0.S}'.format(cfg))", "cfg.S = 2.0"),
        "pattern": (
            "def f():\n    match cfg:\n        case types.ModuleType(S=s): return s",
            "f()",
            "cfg.S = 2.0",
        ),
        "vars": ("", "vars(cfg)['S']", "cfg.S = 2.0"),
        "dict": ("", "cfg.__dict__['S']", "cfg.S = 2.0"),
        "getattr": ("", "getattr(cfg, 'S')", "cfg.S = 2.0"),
        "computed getattr": ("s = 'S'", "getattr(cfg, s)", "cfg.S = 2.0"),
        "computed hasattr": ("e = ''", "1.0 + hasattr(cfg, 'la' + e + 'te')", "cfg.late = 1"),
        "getattr with a default": ("", "getattr(cfg, 'LATE', 1.0)", "cfg.LATE = 2.0"),
        "computes": (
            "cfg.__getattr__ = lambda name: S",
            "cfg.late",
            GLOBAL,
        ),
        "of another class": (
            "class M(types.ModuleType):\n    @property\n    def s(self): return S\nm = M('m')",
            "m.s",
            GLOBAL,
        ),
        "globals, by text": (
            "key = 'S'",
            "float('{0.__globals__[S]}'.format(plain))",
            GLOBAL,
        ),
        "globals": ("", "globals()['S']", GLOBAL),
        "eval": ("", "eval('S')", GLOBAL),
        "frame of a generator": ("", "(s for s in [0]).gi_frame.f_globals['S']", GLOBAL),
    },
    "what there is not": {
        "attribute of a module": (
            "",
            "2.0 if hasattr(cfg, 'late') else 1.0",
            "cfg.late = True",
        ),
        "module in a module": (
            "cfg.inner = types.ModuleType('inner')",
            "2.0 if hasattr(cfg.inner, 'late') else 1.0",
            "cfg.inner.late = True",
        ),
        "attribute that is tried": (
            "def f():\n    try: return cfg.late\n    except AttributeError: return 1.0",
            "f()",
            "cfg.late = 2.0",
        ),
        "variable": (
            "def f():\n    try: return LATE\n    except NameError: return 1.0",
            "f()",
            "global LATE; LATE = 2.0",
        ),
        "attribute of a class": (
            "",
            "2.0 if hasattr(bag, 'late') else 1.0",
            "Bag.late = True",
        ),
        "attribute of a member": (
            "class E(enum.Enum):\n    a = 1",
            "getattr(E.a, 'late', 1.0)",
            "E.a.late = 2.0",
        ),
    },
    "replaced functions": {
        "math": ("", "math.sqrt(1.0)", "math.sqrt = lambda v: 2.0"),
        "builtin": ("", "abs(1.0)", "builtins.abs = lambda v: 2.0"),
        "hidden builtin": ("", "abs(1.0)", "globals()['abs'] = lambda v: 2.0"),
        "own function": ("", "plain()", "globals()['plain'] = two"),
        "code": ("", "plain()", "plain.__code__ = two.__code__"),
        "method": (
            "class C:\n    def h(self): return 1.0\nc = C()",
            "c.h()",
            "C.h = lambda self: 2.0",
        ),
        "method of an object": (
            "class C:\n    def h(self): return 1.0\nc = C()",
            "c.h()",
            "c.h = lambda: 2.0",
        ),
        "operator of a class": (
            "class C:\n    def __mul__(self, o): return 1.0\nc = C()",
            "c * 3",
            "C.__mul__ = lambda self, o: 2.0",
        ),
        "property": (
            "class C:\n    s = property(lambda self: 1.0)\nc = C()",
            "c.s",
            "C.s = property(lambda self: 2.0)",
        ),
        "metaclass": (
            "class M(type):\n    @property\n    def s(cls): return S\nclass C(metaclass=M): pass",
            "C.s",
            GLOBAL,
        ),
        "base": (
            "class A:\n    s = 1.0\nclass B:\n    s = 2.0\nclass C(A): pass",
            "C.s",
            "C.__bases__ = (B,)",
        ),
        "class of an object": (
            "class A:\n    s = 1.0\nclass B:\n    s = 2.0\na = A()",
            "a.s",
            "a.__class__ = B",
        ),
        "of nl": ("exp = nl.exp", "1.0 if nl.exp is exp else 2.0", "nl.exp = two"),
    },
    "identity": {
        "list": ("d = [1]; c = d", "1.0 if c is d else 2.0", "global c; c = [1]"),
        "array": ("d = np.ones(2); c = d", "1.0 if c is d else 2.0", "global c; c = np.ones(2)"),
        "closure": (
            "def make(c):\n    def get(): return 1.0 if c[0] is c[1] else 2.0\n    return get\n"
            "l = [[], []]; l[1] = l[0]; f = make(l)",
            "f()",
            "l[1] = []",
        ),
        "equality of objects": (
            "a = Bag(); b = a",
            "1.0 if a == b else 2.0",
            "global b; b = copy.copy(a)",
        ),
        "membership": ("a = Bag(); l = [a]", "1.0 if a in l else 2.0", "l[0] = copy.copy(a)"),
        "not a number": (
            "n = float('nan'); l = [n]",
            "1.0 if n in l else 2.0",
            "l[0] = float('nan')",
        ),
        "id": ("d = []; i = id(d)", "1.0 if id(d) == i else 2.0", "global d, e; e = d; d = []"),
        "registered class": (
            "class F(abc.ABC): pass",
            "2.0 if isinstance(bag, F) else 1.0",
            "F.register(Bag)",
        ),
        "registered with the library": (
            "",
            "2.0 if isinstance(bag, numbers.Real) else 1.0",
            "numbers.Real.register(Bag)",
        ),
        "protocol": (
            "@typing.runtime_checkable\nclass F(typing.Protocol):\n    def late(self): ...",
            "2.0 if isinstance(bag, F) else 1.0",
            "Bag.late = lambda self: None",
        ),
    },
    "what is said about things": {
        "annotation": (
            "def h(a: 1.0): pass",
            "h.__annotations__['a']",
            "h.__annotations__['a'] = 2.0",
        ),
        "name": ("plain.__name__ = '1'", "float(plain.__name__)", "plain.__name__ = '2'"),
        "qualified name": (
            "plain.__qualname__ = '1'",
            "float(plain.__qualname__)",
            "plain.__qualname__ = '2'",
        ),
        "field": (
            "@dataclasses.dataclass\nclass C:\n    a: float = 1.0",
            "dataclasses.fields(C)[0].default",
            "C.__dataclass_fields__['a'].default = 2.0",
        ),
        "default of a dataclass": (
            "@dataclasses.dataclass\nclass C:\n    a: float = 1.0",
            "C().a",
            "C.__init__.__defaults__ = (2.0,)",
        ),
        "match arguments": (
            "class C:\n    __match_args__ = ('a',)\n    a = 1.0\n    b = 2.0\nc = C()\n"
            "def f():\n    match c:\n        case C(s): return s",
            "f()",
            "C.__match_args__ = ('b',)",
        ),
        "level of a logger": (
            "log = logging.getLogger('kinds'); log.setLevel(50)",
            "2.0 if log.isEnabledFor(10) else 1.0",
            "log.setLevel(10)",
        ),
        "writeable": (
            "a = np.ones(2)",
            "1.0 if a.flags.writeable else 2.0",
            "a.flags.writeable = False",
        ),
        "strides": ("a = np.ones((2, 2))", "1.0 + a.flags.f_contiguous", "global a; a = a.T"),
        "base of an array": (
            "whole = np.ones(4); a = whole[:2]",
            "float(a.base[3])",
            "whole[3] = 2.0",
        ),
        "printing": (
            "a = np.array([1.25])",
            "2.0 if '1.2]' in str(a) else 1.0",
            "np.set_printoptions(precision=1)",
        ),
        "errors of numpy": (
            "def make():\n    n = np\n    return lambda: 1.0 + (n.geterr()['over'] == 'ignore')\n"
            "f = make()",
            "f()",
            "np.seterr(over='ignore')",
        ),
        "factory of a dict": (
            "d = collections.defaultdict(lambda: 1.0)",
            "d.copy()['x']",
            "d.default_factory = two",
        ),
    },
    "objects of any kind": {
        "slots": ("class C:\n    __slots__ = ('s',)\nc = C(); c.s = 1.0", "c.s", "c.s = 2.0"),
        "empty slot": (
            "class C:\n    __slots__ = ('s',)\nc = C()",
            "getattr(c, 's', 1.0)",
            "c.s = 2.0",
        ),
        "slots and a dict": (
            "class A:\n    __slots__ = ('s',)\nclass C(A): pass\nc = C(); c.s = 1.0",
            "c.s",
            "c.s = 2.0",
        ),
        "dict": ("class D(dict): pass\nd = D(s=1.0)", "d['s']", "d['s'] = 2.0"),
        "missing": (
            "class D(dict):\n    def __missing__(self, k): return S\nd = D()",
            "d['s']",
            GLOBAL,
        ),
        "float with attributes": ("class F(float): pass\nf = F(3); f.s = 1.0", "f.s", "f.s = 2.0"),
        "order of a dict": (
            "d = {'s': 1.0, 't': 2.0}",
            "list(d.values())[0]",
            "d['s'] = d.pop('s')",
        ),
        "counter": ("c = collections.Counter('a')", "float(c['a'])", "c['a'] += 1"),
        "view of a dict": (
            "d = {'s': 1.0}; v = types.MappingProxyType(d)",
            "v['s']",
            "d['s'] = 2.0",
        ),
        "memory": ("b = bytearray(b'\\1'); m = memoryview(b)", "float(m[0])", "b[0] = 2"),
        "array of objects": ("a = np.array([bag], object)", "a[0].s", "bag.s = 2.0"),
        "record": (
            "a = np.zeros(1, [('s', float)]); a['s'] = 1.0",
            "float(a[0]['s'])",
            "a['s'] = 2.0",
        ),
        "namespace": ("n = types.SimpleNamespace(s=1.0)", "n.s", "n.s = 2.0"),
        "member of an enum": (
            "class E(enum.Enum):\n    a = [1.0]",
            "E.a.value[0]",
            "E.a.value[0] = 2.0",
        ),
        "method of an enum": (
            "class E(enum.IntEnum):\n    a = 1\n    def h(self): return S",
            "E.a.h()",
            GLOBAL,
        ),
        "descriptor": (
            "class D:\n    def __get__(self, o, c): return S\nclass C:\n    s = D()\nc = C()",
            "c.s",
            GLOBAL,
        ),
        "getattribute of a class": (
            "class C:\n    def __getattribute__(self, n): return S\nc = C()",
            "c.anything",
            GLOBAL,
        ),
        "context variable": (
            "import contextvars; v = contextvars.ContextVar('v', default=1.0)",
            "v.get()",
            "v.set(2.0)",
        ),
        "chain of objects": (
            "first = node = Bag()\nfor _ in range(150): node.next = Bag(); node = node.next\n"
            "node.s = 1.0\ndef last():\n    n = first\n    while hasattr(n, 'next'): n = n.next\n"
            "    return n.s",
            "last()",
            "node.s = 2.0",
        ),
        "deep list": (
            "inner = [1.0]; deep = inner\nfor _ in range(1100): deep = [deep]\n"
            "def last():\n    d = deep\n    while isinstance(d[0], list): d = d[0]\n"
            "    return d[0]",
            "last()",
            "inner[0] = 2.0",
        ),
        "list in itself": ("l = [1.0]; l.append(l)", "l[1][1][0]", "l[0] = 2.0"),
    },
    "names that anyone may write": {
        "class without a module": (
            "ns = {}; exec('class C: pass', ns); c = ns['C'](); c.s = 1.0",
            "c.s",
            "c.s = 2.0",
        ),
        "class of dicts without a module": (
            "ns = {}; exec('class C(dict): pass', ns); c = ns['C'](); c.s = 1.0",
            "c.s",
            "c.s = 2.0",
        ),
        "class with the library's name": (
            "class C:\n    __module__ = 'collections'\n    def h(self): return S\nc = C()",
            "c.h()",
            GLOBAL,
        ),
        "class with the simulator's name": (
            "class C:\n    __module__ = 'nkisim.machine'\n    follows_from_others = {'s'}\n"
            "c = C(); c.s = 1.0",
            "c.s",
            "c.s = 2.0",
        ),
        "member with the simulator's name": (
            "class E(enum.Enum):\n    __module__ = 'nkisim.machine'\n    a = 1\n"
            "    def h(self): return S",
            "E.a.h()",
            GLOBAL,
        ),
        "variables with the library's name": (
            "ns = {'__name__': 'typing', 'S': 1.0}; exec('class C:\\n def f(self): return S', ns)\n"
            "c = ns['C']()",
            "c.f()",
            "ns['S'] = 2.0",
        ),
        "variables of another class": (
            "class G(dict):\n    def __missing__(self, name): return cfg.S\n"
            "ns = G(__builtins__={}); exec('def f(): return Q', ns); f = ns['f']",
            "f()",
            "cfg.S = 2.0",
        ),
    },
    "known things, changed in place": {
        "base of the library": (
            "class D(collections.UserDict): pass\nd = D(); collections.UserDict.stale = 1.0",
            "d.stale",
            "collections.UserDict.stale = 2.0",
        ),
        "function of NumPy": ("np.median.stale = 1.0", "np.median.stale", "np.median.stale = 2.0"),
        "alias of it": ("f = np.median; f.stale = 1.0", "f.stale", "f.stale = 2.0"),
        "function of nl": ("nl.exp.stale = 1.0", "nl.exp.stale", "nl.exp.stale = 2.0"),
        "static method": (
            "f = staticmethod(plain); f.s = [1.0]",
            "f.s[0]",
            "f.s[0] = 2.0",
        ),
        "class of a module": (
            "class M(types.ModuleType):\n    S = property(lambda self: 2.0)",
            "cfg.S",
            "cfg.__class__ = M",
        ),
        "property in a class of modules": (
            "class M(types.ModuleType): pass\nm = M('m'); m.s = 1.0",
            "m.s",
            "M.s = property(lambda self: 2.0)",
        ),
        "metaclass": (
            "class M(type): s = 1.0\nclass N(type): s = 2.0\nclass C(metaclass=M): pass",
            "C.s",
            "C.__class__ = N",
        ),
        "members by name": (
            "class E(enum.Enum):\n    a = 1.0\n    b = 2.0",
            "E['a'].value",
            "E._member_map_['a'] = E.b",
        ),
        "members by value": (
            "class E(enum.Enum):\n    a = 1.0\n    b = 2.0",
            "E(1.0).value",
            "E._value2member_map_[1.0] = E.b",
        ),
        "names of members": (
            "class E(enum.Enum):\n    a = 1.0\n    b = 2.0",
            "[*E][0].value",
            "E._member_names_.remove('a')",
        ),
        "property of enum": (
            "class E(enum.Enum):\n    a = 1\n    @enum.property\n    def s(self): return S",
            "E.a.s",
            GLOBAL,
        ),
        "hash": (
            "class C:\n    def __hash__(self): return int(S)\nc = C()",
            "float(hash(c))",
            GLOBAL,
        ),
        "hidden attributes": (
            "class C: __dict__ = property(lambda self: {})\nc = C(); c.s = 1.0",
            "c.s",
            "c.s = 2.0",
        ),
        "view of a class of dicts": (
            "class D(dict):\n    def __missing__(self, name): return S\n"
            "v = types.MappingProxyType(D())",
            "v['s']",
            GLOBAL,
        ),
        "names of a dtype": (
            "t = np.dtype([('s', 'f4')])",
            "float(len(t.names[0]))",
            "t.names = ('ss',)",
        ),
        "large integer": (
            "class I(int): pass\ni = I(10**5000); i.s = 1.0; r = range(10**5000)",
            "i.s * (0 in r)",
            "i.s = 2.0",
        ),
    },
    "what leads elsewhere": {
        "text of a variable": (
            "t = '{0.__globals__[S]}'",
            "float(t.format(plain))",
            GLOBAL,
        ),
        "method of a text": ("f = '{0.__globals__[S]}'.format", "float(f(plain))", GLOBAL),
        "frame, by text": (
            "",
            "float('{0.gi_frame.f_globals[S]}'.format(s for s in [0]))",
            GLOBAL,
        ),
        "pattern": (
            "def f():\n    match plain:\n        case object(__globals__=g): return g['S']",
            "f()",
            GLOBAL,
        ),
        "key of the dict of a class": (
            "class C:\n    a: 1.0\nk = '__annotations__'",
            "C.__dict__[k]['a']",
            "C.__annotations__['a'] = 2.0",
        ),
        "subclasses": (
            "class C: pass\nclass D(C): pass\nf = C.__subclasses__; more = []",
            "float(len(f()))",
            "more.append(type('E', (C,), {}))",
        ),
        "hints of a function": (
            "def h(a: int): pass",
            "float(len(typing.get_type_hints(h)))",
            "h.__annotations__['b'] = float",
        ),
        "fields of a dataclass": (
            "@dataclasses.dataclass\nclass C:\n    a: float = 1.0\n    b: float = 1.0\nc = C()",
            "3.0 - len(dataclasses.asdict(c))",
            "del C.__dataclass_fields__['b']",
        ),
    },
    "state of Python and NumPy": {
        "errors of floating point": (
            "def f():\n    try: np.float32(3e38) * np.float32(10)\n"
            "    except FloatingPointError: return 2.0\n    return 1.0",
            "f()",
            "np.seterr(over='raise')",
        ),
        "warnings": (
            "import warnings; np.seterr(over='warn')\ndef f():\n"
            "    try: np.float32(3e38) * np.float32(10)\n"
            "    except RuntimeWarning: return 2.0\n    return 1.0",
            "f()",
            "warnings.simplefilter('error')",
        ),
        "function that prints numbers": (
            "np.set_printoptions(formatter={'float': lambda v: str(S)}); a = np.array([5.0])",
            "float(str(a)[1:-1])",
            GLOBAL,
        ),
        "digits of integers": (
            "n = 10**5000\ndef f():\n    try: return 2.0 * bool(str(n))\n"
            "    except ValueError: return 1.0",
            "f()",
            "sys.set_int_max_str_digits(0)",
        ),
    },
}

# What stands before the kernel, two values of its argument, and an expression of them that is 1.0
# of the first, and 2.0 of the second.
CLASS = "class C:\n    def __eq__(self, other): return {}\nc, keep = C(), []\n"
ANOTHER = "(keep.append(C()), keep[-1])[1]"
ARGUMENTS = {
    "sign of nan": ("", "float('nan')", "-float('nan')", "1.5 - math.copysign(0.5, a)"),
    "nan in a list": ("n = float('nan'); l = [n]", "n", "float('nan')", "2.0 - (a in l)"),
    "operator.is_": ("l = [1]", "l", "[1]", "2.0 - operator.is_(a, l)"),
    "is, in __eq__": (CLASS.format("self is other"), "c", "C()", "2.0 - (a == c)"),
    "equal to nothing": (CLASS.format("False"), "c", "C()", "2.0 - (a in [c])"),
    "hash": (
        CLASS.format("True") + "C.__hash__ = object.__hash__",
        "c",
        ANOTHER,
        "2.0 - (hash(a) == hash(c))",
    ),
    "text": (CLASS.format("True"), "c", ANOTHER, "2.0 - (repr(a) == repr(c))"),
    "method": (
        CLASS.format("True") + "C.h = lambda self: 0",
        "c.h",
        ANOTHER + ".h",
        "2.0 - (a == c.h)",
    ),
    "metadata": (
        "",
        "np.dtype('f4', metadata={'s': 1.0})",
        "np.dtype('f4', metadata={'s': 2.0})",
        "a.metadata['s']",
    ),
    "class without a module": (
        "ns = {}; exec('class C(dict): pass', ns)\ndef of(s): c = ns['C'](); c.s = s; return c",
        "of(1.0)",
        "of(2.0)",
        "a.s",
    ),
    "view of a class of dicts": (
        "class D(dict):\n    def __missing__(self, name): return self.s\n"
        "def of(s): d = D(); d.s = s; return types.MappingProxyType(d)",
        "of(1.0)",
        "of(2.0)",
        "a['s']",
    ),
    "large range": ("", "range(10**5000)", "range(1, 10**5000)", "1.0 + a[0]"),
}
