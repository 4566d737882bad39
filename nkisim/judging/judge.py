"""The judge: a kernel against a task."""

from __future__ import annotations

import functools
import inspect
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.dtypes import as_dtype
from nkisim.judging import task as tasks
from nkisim.judging.comparing import compared
from nkisim.judging.isolation import Nursery, NurseryEnded
from nkisim.judging.task import Sizes, Task, sizes_of
from nkisim.judging.verdict import LaunchVerdict, Verdict
from nkisim.runtime.frameworks import as_numpy

Where = tuple[str, int]  # a chip, and cores


def judge(
    kernel: str | Callable[..., Any],
    task: Task | str | Path,
    *,
    seed: int | None = None,
    shrink: bool = True,
) -> Verdict:
    """Judge a kernel: are its results right, is it allowed, how long does it take by the model?

    The kernel is traced on shapes in a process that has no values, no reference and no seed. The
    inputs are drawn then, and the trace is checked and run on them in another process, which never
    runs the kernel's Python. Both have the limits of the task.

    Args:
        kernel: "FILE:FUNCTION", or a function or kernel that stands in a file.
        task: what it is judged by, or the TOML file that says so (see `read`).
        seed: for inputs; None for a number that nobody knows before. The verdict has it.
        shrink: whether to look for the smallest sizes at which a wrong kernel is still wrong.

    Returns:
        A Verdict. Its times are modelled. The status is "error" where the kernel has ended the
        process from which its own are forked.

    Raises:
        ParameterError: the task cannot be judged by: the kernel is in no file, or the baseline is
            refused, or `draw` gives other inputs.
    """
    with Nursery() as nursery:
        try:
            return _judged(nursery, kernel, task, seed, shrink)
        except NurseryEnded as error:
            return _failed(kernel, error)


def _judged(
    nursery: Nursery,
    kernel: str | Callable[..., Any],
    task: Task | str | Path,
    seed: int | None,
    shrink: bool,
) -> Verdict:
    """As `judge`, with processes that are forked from a given one."""
    if not isinstance(task, Task):
        task = tasks.read(task)[0]
    file, function = _place(kernel)
    judging = _Judging(nursery, task, secrets.randbits(48) if seed is None else seed)
    launches = []
    for at, case in enumerate(task.cases):
        for where in judging.places:
            hidden, points = bool(case.get("hidden")), case.get("points")
            found = judging.launch(file, function, sizes_of(case), where, at)
            launches.append(replace(found, hidden=hidden, points=points))
    smallest = None
    for wrong in [x for x in launches if x.status == "wrong"][: int(shrink)]:
        smallest = judging.shrunk(file, function, wrong)
    return Verdict(f"{file}:{function}", launches, smallest)


def judge_all(
    kernels: Sequence[str | Callable[..., Any]],
    task: Task | str | Path,
    *,
    seed: int | None = None,
    shrink: bool = True,
    executor: Executor | None = None,
) -> list[Verdict]:
    """Judge several kernels by one task. Whatever happens to one, the others are judged.

    Args:
        kernels, task, seed, shrink: as for `judge`.
        executor: what calls `judge`: concurrent.futures.ProcessPoolExecutor, or
            `Client(...).get_executor()` of Dask over machines that see the same files; None for one
            after the other. Its processes are sent the arguments: let `task` be a file.

    Returns:
        The verdicts, in the order of the kernels. One that the judge itself failed on has the
        status "error".
    """
    if executor is not None:
        futures = [executor.submit(judge, k, task, seed=seed, shrink=shrink) for k in kernels]
        return [_guarded(k, f.result) for k, f in zip(kernels, futures, strict=True)]
    verdicts = []
    nursery = Nursery()
    for kernel in kernels:
        found = _guarded(kernel, functools.partial(_judged, nursery, kernel, task, seed, shrink))
        if not nursery.alive:
            nursery.close()
            nursery = Nursery()
            if found.status == "error":  # perhaps it was a process that an earlier kernel has left
                found = _guarded(
                    kernel, functools.partial(judge, kernel, task, seed=seed, shrink=shrink)
                )
        verdicts.append(found)
    nursery.close()
    return verdicts


def _guarded(kernel: str | Callable[..., Any], judged: Callable[[], Verdict]) -> Verdict:
    """A verdict, whatever becomes of the judge."""
    try:
        return judged()
    except Exception as error:
        return _failed(kernel, error)


def _failed(kernel: str | Callable[..., Any], error: Exception) -> Verdict:
    """The verdict where the judge itself failed."""
    name = kernel if isinstance(kernel, str) else getattr(kernel, "__name__", repr(kernel))
    why = f"{type(error).__name__}: {error}"
    return Verdict(name, [LaunchVerdict({}, False, None, "", 1, "error", why)])


def _place(kernel: Any) -> tuple[str, str]:
    """The file and the name of a kernel."""
    if isinstance(kernel, str):
        file, _, name = kernel.rpartition(":")
        if os.path.isfile(file):
            return os.path.abspath(file), name
        raise _refused(
            f"{kernel!r}, for which there is no file {file!r}", "pass 'FILE.py:FUNCTION'"
        )
    func = inspect.unwrap(getattr(kernel, "func", kernel))
    code = getattr(func, "__code__", None)
    if code is None or not os.path.isfile(code.co_filename) or func.__qualname__ != func.__name__:
        raise _refused(
            f"{kernel!r}, which does not stand at the top level of a file",
            "write it into a file, and pass 'FILE.py:FUNCTION'",
        )
    return os.path.abspath(code.co_filename), func.__name__


def _refused(problem: str, fix: str) -> ParameterError:
    return ParameterError(
        f"nkisim.judge of {problem}",
        rule="a judged kernel is imported by processes of its own, from its file",
        fix=fix,
    )


class _Judging:
    """Judges launches by a task."""

    def __init__(self, nursery: Nursery, task: Task, seed: int) -> None:
        self._nursery, self._task, self._seed = nursery, task, seed
        self.places: list[Where] = [(chip, n) for chip in task.chips for n in task.cores]
        self._baselines: dict[tuple, float] = {}
        self._known: tuple[tuple, list[np.ndarray]] | None = None  # a case, what is wanted of it

    def launch(
        self, file: str, function: str, sizes: Sizes, where: Where, at: int
    ) -> LaunchVerdict:
        """The verdict on one launch.

        Args:
            file, function: the kernel.
            sizes: of the case.
            where: chip and cores.
            at: a number of the case; cases of other numbers have other inputs.
        """
        task = self._task
        chip, cores = where
        begun = LaunchVerdict(sizes, False, None, chip, cores, "right")
        drawn: list[np.ndarray] = []
        if task.registers:
            drawn = self._drawn(sizes, at)
        traced, parts = self._traced(file, function, sizes, where, self._shown(drawn, sizes, at))
        begun = replace(
            begun,
            printed=traced["printed"],
            seconds=traced["seconds"],
            warnings=traced.get("warnings", []),
        )
        if (bad := self._of_process(begun, traced, "while it is traced")) is not None:
            return bad
        runs = task.reference is not None
        if runs and not drawn:
            drawn = self._drawn(sizes, at)
        told, results = self._nursery.run(
            "run",
            {
                "limits": task.limits.as_data(),
                "runs": runs,
                "registers": bool(task.registers),
                "chip": chip,
                "cores": cores,
            },
            [*parts[:1], *[x.tobytes() for x in drawn if runs]],
        )
        begun = replace(begun, seconds=begun.seconds + told["seconds"])
        if (bad := self._of_process(begun, told, "when its trace is checked and run")) is not None:
            return bad
        begun = replace(begun, embedded_bytes=told["embedded"], profile=told["profile"])
        if (bad := self._of_trace(begun, told, task.arguments(sizes))) is not None:
            return bad
        if task.baseline is not None:
            begun = replace(begun, baseline_us=self._baseline(sizes, where))
        if runs:
            found, names = _results(told, results, task)
            wanted = self._wanted(sizes, at, drawn)
            result = compared(found, names, wanted, drawn, task.rtol, task.atol, task.norm)
            begun = replace(begun, result=result, seed=self._seed)
            if not result["right"]:
                return replace(begun, status="wrong", why=result["why"])
        return self._in_time(begun)

    def shrunk(self, file: str, function: str, wrong: LaunchVerdict) -> LaunchVerdict | None:
        """The smallest sizes found, by bisection of one after the other, at which a wrong launch is
        still wrong; None where that is the launch itself."""
        best = wrong
        for name, n in wrong.sizes.items():
            right, least = 0, n  # no size of 0 is tried; the least one that is known to be wrong
            while type(n) is int and least - right > 1:
                middle = (right + least) // 2
                sizes = {**best.sizes, name: middle}
                try:
                    found = self.launch(file, function, sizes, (wrong.chip, wrong.cores), 0)
                except Exception:  # the reference takes no such sizes
                    found = None
                if found is not None and found.status == "wrong":
                    best, least = found, middle
                else:
                    right = middle
        return None if best is wrong else best

    def _drawn(self, sizes: Sizes, at: int, others: int = 0) -> list[np.ndarray]:
        return self._task.drawn(sizes, np.random.default_rng([self._seed, at, others]))

    def _shown(self, drawn: list[np.ndarray], sizes: Sizes, at: int) -> list[bytes]:
        """The values that the kernel is traced on: those of the inputs that registers read, and
        others in the place of the rest."""
        if not self._task.registers:
            return []
        decoys = self._drawn(sizes, at, 1)
        named = zip(self._task.inputs, drawn, decoys, strict=True)
        return [(x if n in self._task.registers else y).tobytes() for n, x, y in named]

    def _traced(
        self, file: str, function: str, sizes: Sizes, where: Where, shown: list[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        task = self._task
        header = {
            "file": file,
            "function": function,
            "chip": where[0],
            "cores": where[1],
            "grid": task.grid_of(sizes, where[1]),
            "arguments": task.arguments(sizes),
            "constants": task.settings(sizes),
            "strict": task.strict,
            "values": bool(task.registers),
            "limits": task.limits.as_data(),
        }
        return self._nursery.run("trace", header, shown)

    def _of_process(
        self, launch: LaunchVerdict, said: Mapping[str, Any], when: str
    ) -> LaunchVerdict | None:
        """The verdict where a process was ended, or refused the kernel; else None."""
        limits = self._task.limits
        ended, error = said.get("ended"), said.get("error")
        if said.get("replaced"):
            names = ", ".join(said["replaced"][:3])
            return replace(
                launch,
                status="refused",
                why=f"the kernel's file replaces {names}: a kernel changes nothing but its tensors",
            )
        if ended == "time":
            why = f"it takes more than {limits.seconds:g} s of the processor {when}"
            return replace(launch, status="limit", why=why)
        if ended == "memory" or ended == "signal 9":
            why = f"it takes more than {limits.memory_mb:,} MB {when}"
            return replace(launch, status="limit", why=why)
        if ended is not None:
            return replace(launch, status="refused", why=f"its process ends by {ended} {when}")
        if error is not None:
            line = error.get("line")
            place = f" at {line['short']}" if line else ""
            why = f"{error['type']}{place} {when}: {error.get('problem') or error['message']}"
            status = "limit" if error.get("limit") else "refused"
            return replace(launch, status=status, why=why.splitlines()[0], error=error)
        return None

    def _of_trace(
        self, launch: LaunchVerdict, told: Mapping[str, Any], arguments: list[dict[str, Any]]
    ) -> LaunchVerdict | None:
        """The verdict where a trace is not what the task asks for; else None."""
        task = self._task
        names = [x["name"] for x in arguments]
        tensors = [(tuple(x["shape"]), x["dtype"]) for x in arguments]
        if [(tuple(x["shape"]), x["dtype"]) for x in told["inputs"]] != tensors:
            why = f"its tensors are {told['inputs']}, and the task's {arguments}"
            return replace(launch, status="refused", why=why)
        for i in told["written"]:
            if names[i] not in task.in_place:
                why = f"it writes its input {names[i]}, which the task does not allow (in_place)"
                return replace(launch, status="refused", why=why)
        for _, i in told["aliases"]:
            if names[i] not in task.in_place:
                why = f"it returns its input {names[i]} in the place of a result"
                return replace(launch, status="refused", why=why)
        if told["embedded"] > task.limits.embedded_bytes:
            why = (
                f"{told['embedded']:,} bytes of data are embedded in it, and "
                f"{task.limits.embedded_bytes:,} are allowed"
            )
            return replace(launch, status="limit", why=why)
        return None

    def _wanted(self, sizes: Sizes, at: int, drawn: list[np.ndarray]) -> list[np.ndarray]:
        """What the reference gives: the same for every chip and number of cores."""
        assert self._task.reference is not None
        case = (*sorted(sizes.items()), at)
        if self._known is None or self._known[0] != case:
            given = self._task.reference(*tasks.for_framework(self._task.framework, drawn))
            several = isinstance(given, tuple | list)
            self._known = case, [np.asarray(as_numpy(x)) for x in (given if several else [given])]
        return self._known[1]

    def _baseline(self, sizes: Sizes, where: Where) -> float:
        """The modelled time of the baseline."""
        key = (*sorted(sizes.items()), where)
        if key not in self._baselines:
            assert self._task.baseline is not None
            file, function = _place(self._task.baseline)
            plain = replace(self._task, reference=None, baseline=None, at_most=None, budget_us=None)
            found = _Judging(self._nursery, plain, self._seed).launch(
                file, function, sizes, where, 0
            )
            if found.latency_us is None:
                raise _refused(
                    f"a task whose baseline is refused: {found.why}", "mend the baseline"
                )
            self._baselines[key] = found.latency_us
        return self._baselines[key]

    def _in_time(self, launch: LaunchVerdict) -> LaunchVerdict:
        """A right launch, or a slow one."""
        task, took = self._task, launch.latency_us
        assert took is not None
        if task.budget_us is not None and took > task.budget_us:
            why = f"{task.budget_us:g} µs are allowed"
            return replace(launch, status="slow", why=why)
        if task.at_most is not None and launch.of_baseline > task.at_most:  # type: ignore[operator]
            why = f"{task.at_most:g} times the baseline's {launch.baseline_us:.1f} µs are allowed"
            return replace(launch, status="slow", why=why)
        return launch


def _results(
    told: Mapping[str, Any], results: Sequence[bytes], task: Task
) -> tuple[list[np.ndarray], list[str]]:
    """What is compared with the reference: returned tensors, then inputs that were written."""
    arrays = [
        np.frombuffer(data, as_dtype(spec["dtype"])).reshape(spec["shape"])
        for data, spec in zip(results, told["outputs"], strict=True)
    ]
    inputs = dict(told["aliases"])
    order = sorted(range(len(arrays)), key=lambda o: (o in inputs, inputs.get(o, 0)))
    return [arrays[o] for o in order], [told["outputs"][o]["name"] for o in order]
