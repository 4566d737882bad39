"""Runs the integration tests of AWS's nki-library on the simulator.

    git clone https://github.com/aws-neuron/nki-library && cd nki-library && git checkout 2.29
    python tools/aws/nki_library_probe.py PATH_TO_NKI_LIBRARY trn2 TEST_FILES... [pytest options]

They run as NKI 0.6, whose loops the library has, unless NKISIM_NKI says otherwise.

With `--limit SECONDS`, the tests run in a random order (the same each time) until the time is
over; the test that then runs is not counted. What ran of a slow group is a sample that is fair but
for this: slow tests are the likelier to be cut.

Its tests need numpy, torch, scipy, pandas, pytest-metadata, pytest-html, allpairspy, filelock,
attrs, fabric2, boto3, plotext and aws-embedded-metrics. They run kernels in "simulation
mode", through packages that AWS does not publish. This module stands in for these:

- `nki_cpu_simulator`, with `cpu_simulate` and the modules of `nki` below it: the simulator's;
- `nki.dtype`, `nki.compiler`, `nki.tensor`: old names of modules of `nki`;
- `base_tensor` of a tensor that is no view, which kernels of MoE ask for: the tensor itself;
- `nki.compiler.frontend.ParserFrontend`: `compile` traces the kernel;
- `np.zeros` of a packed type such as `nl.float8_e4m3fn_x4`, which is a string in `nki` 0.6;
- the scale that `nisa.quantize_mx` chooses: by OCP's rule, which the library's references have.
  `nki` 0.5 made it twice as large, and so does the simulator;
- `neuron_dtypes`: `static_cast`, `sizeinbytes`, `finfo`, `is_float_type` and the packed types;
- `test.utils.scripts.remote_lock_scripts`, `test.utils.perf_analysis_private`: not in the public
  tree; names only.

At the end it prints a table: file, passed/failed/skipped, and the reasons of failures.

Three lines of its harness are worked around: `Orchestrator._compiled_kernel`, which it reads in
simulation mode and never sets there, is None; `mx_torch_common.quantize_to_mx` is given the name of
a packed type where it is given NumPy's type for one; `test_moe_tkg._resolve_dtype` asks NumPy for a
type by the name of a packed one, which NumPy knows only with AWS's `neuron_dtypes`.
"""

from __future__ import annotations

import builtins
import os
import random
import re
import signal
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"
os.environ.setdefault("NKISIM_NKI", "0.6")


def _module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(contents)
    made.__path__ = []
    sys.modules[name] = made
    return made


def _neuron_dtypes() -> None:
    import ml_dtypes
    import numpy as np

    from nkisim.frontends.nki.dtypes import PACKED, TYPES, packed_numpy, type_of

    def static_cast(array: Any, dtype: Any) -> Any:
        """`array` as another type. Four neighbours of the last axis become one packed element."""
        kind = type_of(dtype)
        array = np.asarray(array)
        if kind.name not in PACKED:
            if array.dtype.names:
                inner = array.dtype[0].base
                if inner.itemsize and kind.stored.itemsize <= 2 and kind.name.startswith("uint"):
                    return array.view(kind.stored)
                shape = *array.shape[:-1], -1
                if inner == np.uint16:  # four of four bits
                    codes = (
                        array[array.dtype.names[0]][..., None]
                        >> np.arange(0, 16, 4, dtype=np.uint16)
                        & 15
                    )
                    array = codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).reshape(shape)
                else:
                    array = np.ascontiguousarray(array[array.dtype.names[0]]).reshape(shape)
            return array.astype(kind.stored)
        if array.dtype.names:
            return array
        values = array.astype(np.float32).astype(kind.packed)
        *outer, last = values.shape
        if kind.name == "float4_e2m1fn_x4":
            codes = values.view(np.uint8).reshape(*outer, last // 4, 4).astype(np.uint16)
            codes = (codes << np.arange(0, 16, 4, dtype=np.uint16)).sum(-1).astype(np.uint16)
            return codes.view(packed_numpy(kind.name))
        groups = np.ascontiguousarray(values.reshape(*outer, last // 4, 4))
        return groups.view(np.uint8).view(packed_numpy(kind.name)).reshape(*outer, last // 4)

    def sizeinbytes(dtype: Any) -> int:
        return type_of(dtype).itemsize

    def is_float_type(dtype: Any) -> bool:
        try:
            return np.dtype(dtype).kind in "fV" and np.dtype(dtype) != np.bool_
        except TypeError:
            return False

    _module(
        "neuron_dtypes",
        static_cast=static_cast,
        sizeinbytes=sizeinbytes,
        finfo=lambda dtype: ml_dtypes.finfo(type_of(dtype).stored),
        is_float_type=is_float_type,
        bfloat16=ml_dtypes.bfloat16,
        **{n: packed_numpy(n) for n in TYPES if n in PACKED},
    )
    _module("neuronxcc.starfish.support.dtype", static_cast=static_cast)

    plain = np.zeros

    def zeros(shape: Any, dtype: Any = float, **options: Any) -> np.ndarray:
        packed = isinstance(dtype, str) and dtype in PACKED
        return plain(shape, packed_numpy(dtype) if packed else dtype, **options)

    np.zeros = zeros


def _mx_scale() -> None:
    from nkisim.numerics.ops import mx

    for name, (dtype, largest_exponent) in list(mx._FORMATS.items()):
        mx._FORMATS[name] = dtype, largest_exponent + 1


def _simulator() -> None:
    import nki
    import nki.collectives
    import nki.isa
    import nki.isa.constants
    import nki.language
    import nki.typing

    def cpu_simulate(kernel: Any) -> Any:
        generation = os.environ.get("NKI_NC_VERSION")
        if generation:
            os.environ[TARGET] = generation
        return nki.simulate(kernel)

    nki.cpu_simulate = cpu_simulate
    nki.language.NkiTensor.base_tensor = property(lambda tensor: tensor)

    class NKIFrontend:
        """What compiles a kernel."""

    class ParserFrontend(NKIFrontend):
        def compile(self, kernel: Any, inputs: dict, target: str = "", lnc: int = 1, **_: Any):
            os.environ[TARGET] = target
            nki.simulate(kernel)[lnc](**inputs)

    empty = _module("nki.compiler")
    _module("nki.compiler.frontend", NKIFrontend=NKIFrontend, ParserFrontend=ParserFrontend)
    _module("nki.compiler.ncc_driver", CompiledKernel=object, CompileOptions=object)
    nki.compiler = empty
    sys.modules["nki.dtype"] = sys.modules["nki.tensor"] = nki.language
    nki.language.tensor = _module("nki.language.tensor", NkiTensor=nki.language.NkiTensor)
    nki.language.dtypes = nki.language
    nki.tensor = nki.dtype = nki.language
    top = _module("nki_cpu_simulator", nki=nki)
    names = {
        "": nki,
        ".builtin": builtins,
        ".compiler": empty,
        ".isa": nki.isa,
        ".isa.constants": nki.isa.constants,
        ".language": nki.language,
        ".language.dtypes": nki.language,
        ".tensor": nki.language,
        ".typing": nki.typing,
    }
    for name, module in names.items():
        sys.modules[f"nki_cpu_simulator.nki{name}"] = module
    nki.builtin = builtins
    top.nki = nki


def _harness() -> None:
    """Names that the harness imports and does not use here."""

    class Anything:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return Anything()

    _module("test.utils.scripts")
    _module("test.utils.scripts.remote_lock_scripts", LockStatus=Anything(), LockResult=Anything)
    _module("test.utils.perf_analysis_private", analyze_trace=lambda *_, **__: None)


def pytest_configure(config: Any) -> None:
    import nkisim

    nkisim.install()
    _neuron_dtypes()
    _mx_scale()
    _simulator()
    _harness()


def pytest_collection_modifyitems() -> None:
    from nkilib_src.nkilib.core.utils import mx_torch_common
    from test.utils.test_orchestrator import Orchestrator

    from nkisim.frontends.nki.dtypes import PACKED, packed_numpy

    Orchestrator._compiled_kernel = None
    names = {packed_numpy(name): name for name in PACKED}
    quantize = mx_torch_common.quantize_to_mx
    mx_torch_common.quantize_to_mx = lambda data, dtype: quantize(data, names.get(dtype, dtype))

    for module in [x for name, x in sys.modules.items() if name.endswith(".test_moe_tkg")]:
        by_numpy = module._resolve_dtype
        module._resolve_dtype = lambda x, known=by_numpy: x if x in PACKED else known(x)


def main() -> None:
    library, platform, *rest = sys.argv[1:]
    limit = None
    if "--limit" in rest:
        at = rest.index("--limit")
        limit = float(rest[at + 1])
        del rest[at : at + 2]
    os.environ[TARGET] = platform
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT), str(ROOT / "tools/aws"), library, str(Path(library) / "src")]
    os.chdir(library)
    import tempfile

    import nki_library_probe

    nki_library_probe.pytest_configure(None)
    with tempfile.TemporaryDirectory() as folder:
        options = ["--test-mode", "simulation", "--platform-target", platform]
        options += ["--output-directory", folder, "--force-local-cleanup"]
        options += ["-p", "no:cacheprovider", "-p", "no:nbval", "-W", "ignore"]
        sys.exit(pytest.main([*rest, *options], plugins=[_Late(limit)]))


class _Late:
    """Hooks that run with the harness loaded, and a table of results at the end."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self.collected = limit, 0
        self.counts: dict[str, Counter[str]] = {}
        self.reasons: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and not (report.when == "setup" and report.outcome != "passed"):
            return
        group = report.nodeid.partition("/nkilib/")[2].partition("::")[0]
        self.counts.setdefault(group, Counter())[report.outcome] += 1
        if report.failed:
            # "E   nkisim.errors.RaceError: ...": the first error of the chain, without numbers
            lines = [x[1:].strip() for x in report.longreprtext.splitlines() if x[:2] == "E "]
            reason = re.sub(r"[0-9][0-9,]*", "N", lines[0] if lines else "no message")
            self.reasons.setdefault(group, Counter())[reason[:160]] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        ran = sum(sum(counts.values()) for counts in self.counts.values())
        write(f"{ran} of {self.collected} tests ran")
        write("group: passed/failed/skipped")
        for group, counts in sorted(self.counts.items()):
            numbers = "/".join(str(counts[x]) for x in ("passed", "failed", "skipped"))
            write(f"{group}: {numbers}")
            for reason, count in self.reasons.get(group, Counter()).most_common():
                write(f"    {count} x {reason}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list) -> None:
        pytest_collection_modifyitems()
        self.collected = len(items)
        if self.limit is not None:
            random.Random(0).shuffle(items)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, self.limit)


if __name__ == "__main__":
    main()
