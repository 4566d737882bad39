"""What `nki.benchmark`, `nki.profile` and `nki.baremetal` report where there is no device.

The objects have the documented shape, so that scripts written for the SDK run. The times are
those of the cost model, and everything that prints them says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nkisim.cost.model import timeline, trace_of
from nkisim.cost.timeline import Timeline
from nkisim.errors import ParameterError
from nkisim.frameworks import require_numpy
from nkisim.kernel import Kernel, as_kernel, leaves
from nkisim.program import poison
from nkisim.trace import tracing

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)


class Latency:
    """`benchmark_result.nc_latency`: modelled device latency.

    The model is deterministic, so every percentile is the same number.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.kind = timeline.kind

    def get_latency_percentile(self, percentile: int) -> float:
        """Modelled latency in microseconds.

        Args:
            percentile: one of 0, 1, 10, 25, 50, 90, 99, 100.

        Raises:
            ParameterError: another percentile.
        """
        if percentile not in PERCENTILES:
            raise ParameterError(
                f"get_latency_percentile({percentile!r})",
                rule="percentiles are " + ", ".join(map(str, PERCENTILES)),
                fix="ask for one of these",
            )
        return self.timeline.latency_us

    def __repr__(self) -> str:
        return f"<latency {self.timeline.latency_us:.2f} us, {self.kind}>"


class BenchmarkResult:
    """`fn.benchmark_result` after a benchmarked call."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.kind = timeline.kind
        self.nc_latency = Latency(timeline)

    def __repr__(self) -> str:
        return f"<benchmark result: {self.nc_latency!r}>"


class Benchmarked(Kernel):
    """A kernel whose calls model its latency instead of running it.

    As documented for the SDK, input values are not used and outputs are undefined: they come back
    filled with NaN or the lowest integer, and arguments that the kernel writes stay as they are.
    """

    def __init__(self, kernel: Kernel, what: str, folder: str | None = None) -> None:
        self.__dict__.update(kernel.__dict__)
        self._launches = {}
        self._what = what
        self._folder = folder
        self.benchmark_result: BenchmarkResult | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return super().__call__(*args, **kwargs)
        require_numpy(self._what, leaves((args, kwargs)))
        if self._what == "nki.benchmark" and self.grid.cores > 1:
            raise ParameterError(
                f"nki.benchmark of {self.__name__}[{self.grid}] on {self.grid.cores} NeuronCores",
                rule="nki.benchmark measures one NeuronCore",
                fix="launch without nl.nc, or look at nkisim.profile(kernel[grid], ...)",
            )
        special = trace_of(self, *args, **kwargs)
        found = timeline(special.program.trace)
        self._set_result(BenchmarkResult(found))
        print(f"{self.__name__}: nc_latency {found.latency_us:.2f} us ({found.kind})")
        if self._folder is not None:
            _write_profile(found, Path(self._folder))
        return special.rebuild(
            [np.full(o.shape, poison(o.dtype), o.dtype) for o in special.program.outputs]
        )

    def __getitem__(self, grid: object) -> Benchmarked:
        bound = Benchmarked(super().__getitem__(grid), self._what, self._folder)
        bound._parent = self
        return bound

    def _set_result(self, result: BenchmarkResult) -> None:
        self.benchmark_result = result
        parent = self.__dict__.get("_parent")
        if parent is not None:  # `fn[grid](...)`, then `fn.benchmark_result`
            parent._set_result(result)


def benchmark(kernel: Callable | None = None, **options: Any) -> Any:
    """Model the device latency of a kernel: `@nki.benchmark(warmup=10, iters=100)`.

    Options of the SDK are checked. Those about repetition and files have no meaning here: the
    model gives one number, and no NEFF is written.

    Raises:
        ParameterError: save_trace_name with a save_neff_name other than "file.neff"; when called,
            a launch on several NeuronCores, or tensors of a framework.

    Returns:
        The kernel; after a call, `fn.benchmark_result.nc_latency.get_latency_percentile(p)` is its
        modelled latency in microseconds.
    """
    if kernel is None:
        return lambda f: benchmark(f, **options)
    check_files("nki.benchmark", options)
    return Benchmarked(as_kernel(kernel, "benchmark"), "nki.benchmark")


def check_files(what: str, options: dict[str, Any], neff_needed: bool = False) -> None:
    """Check the options of the SDK that name files, of which none is written here.

    Args:
        what: the function called, for messages.
        options: save_neff_name, save_trace_name and artifacts_dir, among others.
        neff_needed: whether save_trace_name needs save_neff_name.

    Raises:
        ParameterError: they contradict the documentation.
    """
    neff, trace = options.get("save_neff_name"), options.get("save_trace_name")
    names = ("file.neff",) if neff_needed else ("file.neff", None)
    if trace is not None and neff not in names:
        raise ParameterError(
            f"{what} with save_trace_name={trace!r} and save_neff_name={neff!r}",
            rule="a trace is captured with save_neff_name='file.neff'",
            fix="pass save_neff_name='file.neff', or drop save_trace_name",
        )
    folder = options.get("artifacts_dir")
    if folder is not None and os.path.isdir(folder) and os.listdir(folder):
        raise ParameterError(
            f"{what} with artifacts_dir={os.fspath(folder)!r}, which is not empty",
            rule="the compiler's artifacts go into an empty folder",
            fix="name a folder of its own",
        )


def profile_decorator(func: Callable | None = None, **options: Any) -> Any:
    """Model the profile of a kernel: `@nki.profile(working_directory=...)`.

    Writes `NAME.modelled.json` (the figures) and `NAME.modelled.trace.json` (for ui.perfetto.dev)
    to the folder instead of NEFF and NTFF files, which only a device gives.

    Raises:
        ParameterError: no working_directory, or not an absolute path.
    """
    if func is None:
        return lambda f: profile_decorator(f, **options)
    folder = options.get("working_directory")
    if not isinstance(folder, str | os.PathLike) or not os.path.isabs(folder):
        raise ParameterError(
            f"nki.profile(working_directory={folder!r})",
            rule="working_directory is required and is an absolute path",
            fix="pass e.g. working_directory=os.path.abspath('profiles')",
        )
    return Benchmarked(as_kernel(func, "benchmark"), "nki.profile", os.fspath(folder))


def _write_profile(timeline: Timeline, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    timeline.to_perfetto(folder / f"{timeline.kernel}.modelled.trace.json")
    figures = {
        "kind": timeline.kind,
        "kernel": timeline.kernel,
        "machine": timeline.machine.name,
        "total_time_us": timeline.latency_us,
        "hbm_bytes": timeline.hbm_bytes,
        "engines": {n: u._asdict() for n, u in timeline.engines.items()},
        "findings": [str(f) for f in timeline.findings],
    }
    path = folder / f"{timeline.kernel}.modelled.json"
    path.write_text(json.dumps(figures, indent=2), encoding="utf-8")
