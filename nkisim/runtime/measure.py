"""What `nki.benchmark`, `nki.profile` and `nki.baremetal` report where there is no device.

The objects have the documented shape, so that scripts written for the SDK run. The times are
those of the cost model, and everything that prints them says so.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nkisim.errors import ParameterError, locate, warn
from nkisim.ir.dtypes import poison
from nkisim.report.files import write_whole
from nkisim.report.modelled import timeline
from nkisim.report.timeline import Timeline
from nkisim.runtime import neuron_profile
from nkisim.runtime.frameworks import require_numpy
from nkisim.runtime.kernel import Kernel, as_kernel
from nkisim.runtime.profiling import trace_of
from nkisim.trace.arguments import leaves
from nkisim.trace.tracer import tracing

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


class Artifacts:
    """Where nki.profile writes.

    Args:
        folder: the working directory.
        overwrite: whether to replace files of other profiles. A profile replaces its own.
        trace_name: of the trace, if the kernel's is not to be.
    """

    def __init__(self, folder: Path, overwrite: bool, trace_name: str | None = None) -> None:
        self._folder = folder
        self._overwrite = overwrite
        self._trace_name = trace_name
        self._written: set[Path] = set()

    def write(self, timeline: Timeline) -> None:
        """Write the figures and the trace of a profile.

        Raises:
            ParameterError: the files are there, and are not to be replaced.
        """
        trace = self._folder / (self._trace_name or f"{timeline.kernel}.modelled.trace.json")
        figures = self._folder / f"{timeline.kernel}.modelled.json"
        for path in (trace, figures):
            if path.exists() and not self._overwrite and path not in self._written:
                raise ParameterError(
                    f"nki.profile finds {path}, from another profile",
                    rule="existing artifacts are kept unless overwrite=True",
                    fix="pass overwrite=True, or another working_directory",
                )
        self._folder.mkdir(parents=True, exist_ok=True)
        _write_trace(timeline, trace)
        write_whole(figures, json.dumps(_figures(timeline), indent=2))
        self._written |= {trace, figures}


class TraceFile:
    """Where nki.benchmark writes the trace that it is asked for.

    Args:
        path: of the file. Whatever its name, it gets a trace for ui.perfetto.dev.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, timeline: Timeline) -> None:
        """Write the trace of a call, in place of that of the one before."""
        _write_trace(timeline, self._path)


def _write_trace(timeline: Timeline, path: Path) -> None:
    """Write a trace, and say what is in a file with a name that promises another one.

    The stand-in of neuron-profile reads it, too, where there is one."""
    if neuron_profile.stands_in():
        neuron_profile.save(path, timeline)
    else:
        timeline.to_perfetto(path)
    if path.suffix != ".json":
        print(f"{path}: {timeline.kind}; for ui.perfetto.dev, it is no NTFF")


def _figures(timeline: Timeline) -> dict[str, Any]:
    return {
        "kind": timeline.kind,
        "kernel": timeline.kernel,
        "machine": timeline.machine.name,
        "total_time_us": timeline.latency_us,
        "hbm_bytes": timeline.hbm_bytes,
        "engines": {n: u._asdict() for n, u in timeline.engines.items()},
        "findings": [str(f) for f in timeline.findings],
    }


class Benchmarked(Kernel):
    """A kernel whose calls model its latency instead of running it.

    As documented for the SDK, input values are not used and outputs are undefined: they come back
    filled with NaN or the lowest integer, and arguments that the kernel writes stay as they are.

    Args:
        kernel: the kernel.
        what: the function of the SDK, for messages.
        artifacts: what writes files of a timeline; None for no files.
        neff: the name under which the timeline is saved for `nkisim.runtime.neuron_profile`.
    """

    _parent: Benchmarked | None = None

    def __init__(
        self,
        kernel: Kernel,
        what: str,
        artifacts: Artifacts | TraceFile | None = None,
        neff: str | os.PathLike | None = None,
    ) -> None:
        self.__dict__.update(kernel.__dict__)
        self._launches = {}
        self._neff = neff
        self._what = what
        self._artifacts = artifacts
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
        if self._neff is not None:
            neuron_profile.save(self._neff, found)
        if self._artifacts is not None:
            self._artifacts.write(found)
        return special.rebuild(
            [np.full(o.shape, poison(o.dtype), o.dtype) for o in special.program.outputs]
        )

    def __getitem__(self, grid: object) -> Benchmarked:
        bound = Benchmarked(super().__getitem__(grid), self._what, self._artifacts, self._neff)
        bound._parent = self
        return bound

    def _set_result(self, result: BenchmarkResult) -> None:
        self.benchmark_result = result
        if self._parent is not None:  # `fn[grid](...)`, then `fn.benchmark_result`
            self._parent._set_result(result)


class Baremetal(Kernel):
    """A kernel whose calls run it, and save its modelled timeline under the names of files.

    Args:
        kernel: the kernel.
        names: of the NEFF and the NTFF.
    """

    def __init__(self, kernel: Kernel, names: Sequence[str | os.PathLike]) -> None:
        self.__dict__.update(kernel.__dict__)
        self._launches = {}
        self._names = names

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing() or not neuron_profile.stands_in():
            return super().__call__(*args, **kwargs)
        found = timeline(trace_of(self, *args, **kwargs).program.trace)
        for name in self._names:
            neuron_profile.save(name, found)
        return super().__call__(*args, **kwargs)


def baremetal(kernel: Callable, options: Mapping[str, Any]) -> Kernel:
    """What `nki.baremetal` makes of a kernel, with its options, which were checked."""
    names = [options[name] for name in ("save_neff_name", "save_trace_name") if options.get(name)]
    plain = as_kernel(kernel, "baremetal")
    return Baremetal(plain, names) if names else plain


def benchmark(kernel: Callable | None = None, **options: Any) -> Any:
    """Model the device latency of a kernel: `@nki.benchmark(warmup=10, iters=100)`.

    Options of the SDK are checked. Those about repetition have no meaning here: the model gives one
    number. The file that save_trace_name names gets the modelled trace of each call, for
    ui.perfetto.dev: only a device gives an NTFF. Under `python -m nkisim`, that file and the one
    that save_neff_name names, which is no NEFF, are also what the stand-in of neuron-profile reads
    (see nkisim.runtime.neuron_profile). An option that is not documented gives a warning.

    Raises:
        ParameterError: an option that the documentation excludes, such as iters=0; when called, a
            launch on several NeuronCores, or tensors of a framework.

    Returns:
        The kernel; after a call, `fn.benchmark_result.nc_latency.get_latency_percentile(p)` is its
        modelled latency in microseconds.
    """
    check_options("nki.benchmark", options)
    check_files("nki.benchmark", options)

    name = options.get("save_trace_name")
    trace = None if name is None else TraceFile(Path(name))

    def decorated(f: Callable) -> Benchmarked:
        neff = options.get("save_neff_name")
        return Benchmarked(as_kernel(f, "benchmark"), "nki.benchmark", trace, neff)

    return decorated if kernel is None else decorated(kernel)


_WHOLE = {"warmup": 0, "iters": 1, "profile_nth": 1}  # numbers, and the least that makes sense
_NAMES = ("save_neff_name", "save_trace_name", "additional_compile_opt")
# What lets a kernel place its tiles by hand is in no reference; a course's harness passes it.
_DIRECT = "disable_allocation_opt"
_OPTIONS = {
    "nki.benchmark": {"warmup", "iters", *_NAMES, "artifacts_dir", _DIRECT},
    "nki.profile": {"working_directory", "overwrite", "profile_nth", *_NAMES},
    "nki.baremetal": {*_NAMES, "artifacts_dir", _DIRECT},
}


def check_options(what: str, options: dict[str, Any]) -> None:
    """Check the values of options of the SDK, and warn of others, which it takes without a word.

    Args:
        what: the function called.
        options: what it was given.

    Raises:
        ParameterError: a value that an option cannot have.
    """

    def refused(name: str, rule: str, fix: str) -> ParameterError:
        return ParameterError(f"{what} with {name}={options[name]!r}", rule=rule, fix=fix)

    for name, value in options.items():
        if name not in _OPTIONS[what]:
            known = sorted(_OPTIONS[what])
            near = difflib.get_close_matches(name, known, 1)
            warn(
                ParameterError(
                    f"{what} ignores {name}=",
                    rule=f"its options are {', '.join(known)}",
                    fix=f"write {near[0]}, if that is meant" if near else "leave it out",
                    location=locate(),
                )
            )
        elif name in _WHOLE:
            if type(value) is bool or not isinstance(value, int | np.integer):
                raise refused(name, "it is a whole number", "pass an int")
            if value < _WHOLE[name]:
                raise refused(name, f"it is at least {_WHOLE[name]}", "pass a larger one")
        elif name == "overwrite" and not isinstance(value, bool):
            raise refused(name, "it is True or False", "pass one of them")
        elif name in _NAMES and not isinstance(value, str | os.PathLike | None):
            raise refused(name, "it is a string", "pass one, or leave it out")


def check_files(what: str, options: dict[str, Any], neff_needed: bool = False) -> None:
    """Check the options of the SDK that name files.

    Args:
        what: the function called, for messages.
        options: save_neff_name, save_trace_name and artifacts_dir, among others.
        neff_needed: whether save_trace_name needs save_neff_name.

    Raises:
        ParameterError: they contradict the documentation.
    """
    neff, trace = options.get("save_neff_name"), options.get("save_trace_name")
    # Published programs give nki.baremetal the path of a NEFF of another name.
    named = str(neff).endswith(".neff") if neff_needed else neff in ("file.neff", None)
    if trace is not None and not named:
        raise ParameterError(
            f"{what} with save_trace_name={trace!r} and save_neff_name={neff!r}",
            rule="a trace is captured with save_neff_name='file.neff'",
            fix="pass save_neff_name='file.neff', or drop save_trace_name",
        )
    folder = options.get("artifacts_dir")
    if folder is None:
        return
    if not isinstance(folder, str | os.PathLike) or (
        os.path.exists(folder) and not os.path.isdir(folder)
    ):
        raise ParameterError(
            f"{what} with artifacts_dir={folder!r}",
            rule="it is the path of a folder, which need not exist",
            fix="name a folder",
        )
    if os.path.isdir(folder) and os.listdir(folder):
        raise ParameterError(
            f"{what} with artifacts_dir={os.fspath(folder)!r}, which is not empty",
            rule="the compiler's artifacts go into an empty folder",
            fix="name a folder of its own",
        )


def profile_decorator(func: Callable | None = None, **options: Any) -> Any:
    """Model the profile of a kernel: `@nki.profile(working_directory=...)`.

    Writes `NAME.modelled.json` (the figures) and `NAME.modelled.trace.json` (for ui.perfetto.dev),
    or what save_trace_name calls it, to the folder instead of NEFF and NTFF files, which only a
    device gives.

    Raises:
        ParameterError: no working_directory, not an absolute path, or another option that the
            documentation excludes; when called, the files are there, from another profile, and
            overwrite is not True.
    """
    check_options("nki.profile", options)
    folder = options.get("working_directory")
    if not isinstance(folder, str | os.PathLike) or not os.path.isabs(folder):
        raise ParameterError(
            f"nki.profile(working_directory={folder!r})",
            rule="working_directory is required and is an absolute path",
            fix="pass e.g. working_directory=os.path.abspath('profiles')",
        )
    name = options.get("save_trace_name")
    artifacts = Artifacts(
        Path(folder), bool(options.get("overwrite")), None if name is None else os.fspath(name)
    )

    def decorated(f: Callable) -> Benchmarked:
        return Benchmarked(as_kernel(f, "benchmark"), "nki.profile", artifacts)

    return decorated if func is None else decorated(func)
