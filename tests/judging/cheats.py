"""Kernels that cheat, in kinds seen in public contests: each is asked for 2 x.

A comment names what the cheat hopes for. `expected` are the statuses that defeat it.
"""

from __future__ import annotations

from typing import NamedTuple

PREAMBLE = """
import atexit, builtins, gc, os, sys, time
import numpy as np
import nki, nki.isa as nisa, nki.language as nl
import nkisim


def doubled(x, rows=None):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    n, d = x.shape
    for first in range(0, n if rows is None else rows, 128):
        size = min(128, n - first)
        tile = nl.ndarray((size, d), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + size])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[first : first + size], src=tile)
    return out


def embedded(x, answer):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nl.shared_constant(np.asarray(answer, np.float32)))
    return out


def tile_of(x):
    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[0:128])
    return tile
"""


class Cheat(NamedTuple):
    """A cheat: its module, after PREAMBLE, and the statuses that defeat it."""

    code: str
    expected: tuple[str, ...]


def _kernel(body: str, before: str = "") -> str:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"{before}\n\n@nki.jit\ndef kernel(x):\n{lines}\n"


HONEST = _kernel("return doubled(x)")

REFUSED, WRONG, LIMIT = ("refused",), ("wrong",), ("limit",)

CHEATS = {
    # values on the host, and answers that are embedded
    "reads the values of its input": Cheat(
        _kernel("return embedded(x, 2 * nkisim.values(x))"), REFUSED
    ),
    "guards the reading": Cheat(
        _kernel(
            "try:\n    answer = 2 * nkisim.values(x)\nexcept Exception:\n"
            "    answer = np.zeros(x.shape)\nreturn embedded(x, answer)"
        ),
        WRONG,
    ),
    "reads the text of its input": Cheat(
        _kernel("return embedded(x, np.full(x.shape, float('[' in repr(x))))"), WRONG
    ),
    "takes the arguments from the tracer": Cheat(
        _kernel(
            "from nkisim.trace.tracer import current\nreturn embedded(x, 2 * current().data[0])"
        ),
        REFUSED,
    ),
    "finds the input among Python's objects": Cheat(
        _kernel(
            "arrays = [a for a in gc.get_objects() if type(a) is np.ndarray]\n"
            "alike = [a for a in arrays if a.shape == x.shape]\n"
            "return embedded(x, 2 * alike[0] if alike else np.zeros(x.shape))"
        ),
        WRONG,
    ),
    "knows a fixed seed": Cheat(
        _kernel(
            "rng = np.random.default_rng([0, 0, 0])\n"
            "return embedded(x, 2 * rng.standard_normal(x.shape, np.float32))"
        ),
        WRONG,
    ),
    "looks for the reference in its callers": Cheat(
        _kernel(
            "frame, found = sys._getframe(), None\nwhile frame:\n"
            "    found = found or frame.f_locals.get('reference')\n    frame = frame.f_back\n"
            "return embedded(x, found(np.ones(x.shape)) if found else np.zeros(x.shape))"
        ),
        WRONG,
    ),
    "embeds a table made on the host": Cheat(
        _kernel("nl.shared_constant(np.ones((512, 512), np.float32))\nreturn doubled(x)"), LIMIT
    ),
    "remembers the answer of an earlier call": Cheat(
        _kernel("seen.append(x)\nreturn doubled(seen[0], 0)", "seen = []"), REFUSED
    ),
    # the judge's tools
    "replaces numpy's comparison": Cheat(
        _kernel("return doubled(x, 128)", "np.isclose = np.allclose = lambda *a, **k: True"),
        REFUSED,
    ),
    "replaces a ufunc": Cheat(
        _kernel("return doubled(x, 128)", "np.abs = np.absolute = lambda x: x * 0"), REFUSED
    ),
    "replaces a builtin": Cheat(
        _kernel("return doubled(x, 128)", "builtins.all = lambda x: True"), REFUSED
    ),
    "replaces the timer": Cheat(
        _kernel("return doubled(x)", "time.perf_counter = lambda: 0.0"), REFUSED
    ),
    "replaces the time model": Cheat(
        _kernel(
            "return doubled(x)",
            "from nkisim.report.times import Times\nTimes.latency_us = property(lambda self: 0.1)",
        ),
        REFUSED,
    ),
    "replaces the checks": Cheat(
        _kernel(
            "return doubled(x)",
            "from nkisim.checking import Checker\nChecker.on_instruction = lambda *a, **k: None",
        ),
        REFUSED,
    ),
    "changes the code of a function": Cheat(
        _kernel(
            "return doubled(x)",
            "from nkisim.report import data\ndata.of_timeline.__code__ = (lambda t: {}).__code__",
        ),
        REFUSED,
    ),
    "turns the checks off": Cheat(
        _kernel(
            "with nkisim.checks(uninitialized='off', output='off'):\n"
            "    tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)\n"
            "    out = doubled(x)\n    nisa.dma_copy(dst=out[0:128], src=tile)\n    return out"
        ),
        REFUSED,
    ),
    "blinds who looks for replaced functions, and turns the checks off": Cheat(
        _kernel(
            "tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)\n"
            "out = doubled(x)\nnisa.dma_copy(dst=out[0:128], src=tile)\nreturn out",
            "worker = sys.modules['__main__']\nworker._replaced = lambda before: []\n"
            "from nkisim.checking import Checker\nChecker.on_instruction = lambda *a, **k: None\n"
            "Checker.finish = lambda self: None",
        ),
        REFUSED,
    ),
    "raises the limits": Cheat(
        _kernel(
            "for i in range(400):\n    out = doubled(x)\nreturn out",
            "from nkisim.ir.limits import set_limits\nset_limits(instructions=10**9)",
        ),
        (*REFUSED, *LIMIT),
    ),
    # what the other process reads
    "forges the message of its process": Cheat(
        _kernel(
            "return doubled(x)",
            "import pickle\nfrom nkisim.judging.isolation import pack\n"
            "class Evil:\n    def __reduce__(self): return os.system, ('touch FORGED',)\n"
            "said = pack({'kernel': 'k', 'warnings': [], 'replaced': []}, [pickle.dumps(Evil())])\n"
            "for fd in range(3, 40):\n    try: os.write(fd, said)\n    except OSError: pass\n"
            "os._exit(0)",
        ),
        REFUSED,
    ),
    "hides a call in the trace": Cheat(
        _kernel(
            "from nkisim.trace.tracer import current\n"
            "current().trace.name = Evil()\nreturn doubled(x)",
            "class Evil(str):\n    def __reduce__(self): return os.system, ('touch FORGED',)",
        ),
        REFUSED,
    ),
    "claims a faster chip": Cheat(
        _kernel(
            "from nkisim.machine import GEN4\nfrom nkisim.trace.tracer import current\n"
            "out = doubled(x)\ncurrent().trace.machine = GEN4\nreturn out"
        ),
        REFUSED,
    ),
    "says that an argument is smaller": Cheat(
        _kernel(
            "from nkisim.trace.tracer import current\nout = doubled(x)\n"
            "current().trace.arguments.clear()\nreturn out"
        ),
        REFUSED,
    ),
    "runs on an engine that takes no time": Cheat(
        _kernel(
            "from nkisim.ir.instruction import Engine\n"
            "from nkisim.trace.tracer import current\nout = doubled(x)\n"
            "for i in current().trace.instructions: i.engine = Engine.HOST\nreturn out"
        ),
        REFUSED,
    ),
    "says that its argument is on the chip": Cheat(
        _kernel(
            "from nkisim.ir.memory import Space\nfrom nkisim.trace.tracer import current\n"
            "out = doubled(x)\ncurrent().trace.arguments[0].buffer.space = Space.SBUF\nreturn out"
        ),
        REFUSED,
    ),
    "gives a tile another one's shape": Cheat(
        _kernel(
            "from nkisim.trace.tracer import current\nout = doubled(x)\n"
            "for i in current().trace.instructions:\n"
            "    for p in i.outs: p.form.shape = (1, 1)\nreturn out"
        ),
        REFUSED,
    ),
    # the result
    "skips the last rows": Cheat(_kernel("return doubled(x, 128)"), WRONG),
    "returns memory that it did not write": Cheat(
        _kernel("return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)"), REFUSED
    ),
    "returns its input": Cheat(_kernel("return x"), REFUSED),
    "writes its input": Cheat(
        _kernel("tile = tile_of(x)\nnisa.dma_copy(dst=x[0:128], src=tile)\nreturn doubled(x)"),
        REFUSED,
    ),
    "returns an array in the place of a tensor": Cheat(
        _kernel("doubled(x)\nreturn np.ones(x.shape, np.float32)"), (*REFUSED, *WRONG)
    ),
    "returns an object that is equal to everything": Cheat(
        _kernel(
            "doubled(x)\nreturn Equal()",
            "class Equal:\n    __eq__ = lambda self, other: True\n"
            "    __array__ = lambda self, *a, **k: np.ones((130, 40), np.float32)",
        ),
        (*REFUSED, *WRONG),
    ),
    "returns NaN": Cheat(
        _kernel(
            "out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
            "nisa.dma_copy(dst=out, src=nl.shared_constant(np.full(x.shape, np.nan, np.float32)))\n"
            "return out"
        ),
        WRONG,
    ),
    "is right within one percent": Cheat(
        _kernel(
            "out = doubled(x)\ntile = tile_of(out)\n"
            "nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.01)\n"
            "nisa.dma_copy(dst=out[0:128], src=tile)\nreturn out"
        ),
        WRONG,
    ),
    "returns a type with a wider tolerance": Cheat(
        _kernel(
            "out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)\n"
            "for a, b in ((0, 128), (128, x.shape[0])):\n"
            "    t = nl.ndarray((b - a, x.shape[1]), dtype=nl.bfloat16, buffer=nl.sbuf)\n"
            "    s = nl.ndarray((b - a, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)\n"
            "    nisa.dma_copy(dst=s, src=x[a:b])\n"
            "    nisa.tensor_scalar(dst=t, data=s, op0=nl.multiply, operand0=2.0)\n"
            "    nisa.dma_copy(dst=out[a:b], src=t)\nreturn out"
        ),
        WRONG,
    ),
    # elsewhere than on the device
    "computes on the host": Cheat("def kernel(x):\n    return np.asarray(x) * 2\n", REFUSED),
    "computes in its caller": Cheat(
        "@nki.jit\ndef inner(x):\n    return doubled(x)\n\n"
        "def kernel(x):\n    return inner(np.ones((130, 40), np.float32))\n",
        (*REFUSED, *WRONG),
    ),
    # the process
    "ends the program with success": Cheat(_kernel("sys.exit(0)"), REFUSED),
    "ends the process with success": Cheat(_kernel("os._exit(0)"), REFUSED),
    "leaves an exit handler": Cheat(
        _kernel(
            "return doubled(x, 128)",
            "atexit.register(lambda: [os.write(fd, b'right') for fd in range(3, 9)])",
        ),
        WRONG,
    ),
    "goes on for ever": Cheat(_kernel("while True: pass"), LIMIT),
    "takes all memory": Cheat(_kernel("a = [bytearray(1 << 26) for _ in range(64)]"), LIMIT),
    "gives millions of instructions": Cheat(_kernel("while True: doubled(x)"), LIMIT),
    "fills the disk": Cheat(
        _kernel("file = open('BIG', 'wb')\nfile.seek(1 << 40)\nfile.write(b'x')\nfile.close()"),
        REFUSED,
    ),
    "clears the terminal": Cheat(_kernel("raise ValueError('\\x1b[2J\\ud800 right')"), REFUSED),
    "leaves a process that kills the judge of the next one": Cheat(
        _kernel(
            "return doubled(x, 128)",
            "judge = os.getppid()\nif not os.fork():\n    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    os.closerange(0, 256)\n    time.sleep(0.3)\n    os.kill(judge, 9)\n"
            "    os._exit(0)",
        ),
        (*WRONG, "error"),
    ),
    "kills the judge": Cheat(_kernel("os.kill(os.getppid(), 9)\ntime.sleep(2)"), ("error",)),
}
