"""The search: every combination of parameters, traced and modelled, over the machine's cores."""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from nkisim.errors import NkiWarning, ParameterError
from nkisim.report import data
from nkisim.report.modelled import timeline
from nkisim.runtime.kernel import Kernel, as_kernel
from nkisim.runtime.profiling import trace_of
from nkisim.tuning.result import Trial, Tuning
from nkisim.tuning.store import Store

GRID = "grid"
KERNEL = "kernel"


def tune(
    kernel: Callable | Kernel | Sequence[Callable | Kernel],
    parameters: Mapping[str, Sequence[Any]],
    /,
    *args: Any,
    jobs: int | None = None,
    cache: bool | str | Path = True,
    progress: bool | None = None,
    executor: Executor | None = None,
    **kwargs: Any,
) -> Tuning:
    """Model a kernel with every combination of parameters, and say which is the fastest and why.

    Nothing is executed, so shapes suffice for arguments. A combination that fails, by a check of
    the simulator, an error of the kernel's own Python, sys.exit or a process that is killed, is
    refused, and kept with the reason. The result is the same in every run: combinations in the
    order in which they are given, the fastest of equals first in that order.

    Args:
        kernel: a kernel, or several forms of one, which are told apart as the parameter "kernel".
        parameters: name to the values to try, for keyword arguments of the kernel. The values of
            "grid" are launch grids (`kernel[2]`: two cores of a Trainium2), if the kernel has no
            argument of that name.
        *args, **kwargs: the other arguments, as for `nkisim.profile`: arrays, or
            `nkisim.TensorSpec(shape, dtype)`.
        jobs: processes at most; None for as many as there are cores. Where JAX or PyTorch is
            loaded it is one: a copy of the process would lack their threads, and could wait for
            one of them forever.
        cache: whether to keep figures on disk for the next search; a path names the folder. The
            key is the traced kernel, so a changed kernel or another nkisim is modelled anew.
        progress: whether to count on standard error; None: if that is a terminal.
        executor: what models combinations in the place of `jobs`, perhaps on other machines:
            concurrent.futures.ProcessPoolExecutor, or `Client(...).get_executor()` of Dask. Its
            processes import the kernel from its module, and are sent the other arguments. A
            combination whose process ends is refused with that reason.

    Returns:
        A Tuning: trials, the best, a table, a figure. All times are modelled.

    Raises:
        ParameterError: no parameters, no values, a parameter that the kernel does not have, or
            that is given as an argument, too.
        KernelError, Exception: that of the first combination, if every one is refused.
    """
    kernels = _kernels(kernel)
    choices = _checked(kernels, parameters, kwargs)
    if len(kernels) > 1:
        choices = {KERNEL: list(kernels), **choices}
    names = list(choices)
    combinations = [dict(zip(names, c, strict=True)) for c in itertools.product(*choices.values())]
    store = None if cache is False else Store(None if cache is True else cache)

    def model(at: int) -> Trial:
        return _trial(kernels, combinations[at], args, kwargs, store)

    if executor is None:
        found_trials = _each(model, combinations, jobs)
    else:
        # Another machine may have another environment: the chip is the one of this.
        pinned = {name: k.on(k.machine) for name, k in kernels.items()}
        found_trials = _sent(executor, pinned, combinations, args, kwargs, store)
    trials: list[Trial | None] = [None] * len(combinations)
    shown = sys.stderr.isatty() if progress is None else progress
    for done, (at, trial) in enumerate(found_trials, 1):
        trials[at] = trial
        if shown:
            end = "\n" if done == len(combinations) else ""
            print(f"\rtune: {done} of {len(combinations)}", end=end, file=sys.stderr, flush=True)
    found = [t for t in trials if t is not None]
    if all(t.refused for t in found):
        _raise_first(kernels, combinations, found, args, kwargs)
    return Tuning(found, names)


def _raise_first(
    kernels: Mapping[str, Kernel],
    combinations: Sequence[Mapping[str, Any]],
    found: Sequence[Trial],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Raise the error of the first combination that does not end the process it is traced in."""
    for combination, trial in zip(combinations, found, strict=True):
        if trial.refused is not None and trial.refused["type"] != BrokenProcessPool.__name__:
            _modelled(kernels, combination, args, kwargs, None)
    raise ParameterError(
        f"nkisim.tune: each of {len(found)} processes was killed",
        rule="the machine ends a process that takes more memory than there is",
        fix="try smaller shapes",
    )


def _kernels(kernel: Any) -> dict[str, Kernel]:
    """The forms by name; those of one name are numbered."""
    forms = list(kernel) if isinstance(kernel, list | tuple) else [kernel]
    if not forms:
        raise ParameterError(
            "nkisim.tune of no kernel",
            rule="it models one kernel, or several forms of one",
            fix="nkisim.tune(kernel, {'tile': [128, 256, 512]}, x)",
        )
    made = [as_kernel(form) for form in forms]
    names = [k.__name__ for k in made]
    return {
        name if names.count(name) == 1 else f"{name} {at}": k
        for at, (name, k) in enumerate(zip(names, made, strict=True))
    }


def _checked(
    kernels: Mapping[str, Kernel], parameters: Any, given: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """The values of each parameter.

    Raises:
        ParameterError: see `tune`.
    """
    example = "nkisim.tune(kernel, {'tile': [128, 256, 512]}, x)"
    if not isinstance(parameters, Mapping) or not (parameters or len(kernels) > 1):
        raise ParameterError(
            f"nkisim.tune with the parameters {parameters!r}",
            rule="the second argument is a dictionary, from the name of each parameter to the "
            "values to try",
            fix=example,
        )
    choices = {}
    for name, values in parameters.items():
        several = isinstance(values, Iterable) and not isinstance(values, str | bytes)
        choices[name] = list(values) if several else []
        if not choices[name]:
            raise ParameterError(
                f"nkisim.tune tries no values of {name!r}",
                rule="each parameter has a list of at least one value",
                fix=example,
            )
        if name in given:
            raise ParameterError(
                f"nkisim.tune is given {name!r} as an argument and as a parameter to try",
                rule="a parameter takes its values from the list",
                fix=f"leave out {name}=",
            )
        for kernel in kernels.values():
            known = kernel.signature.parameters
            takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
            if name not in known and not takes_any and name not in (GRID, KERNEL):
                raise ParameterError(
                    f"{kernel.__name__} has no argument {name!r}",
                    rule="parameters are keyword arguments of the kernel, or its launch 'grid'",
                    fix="name one of " + ", ".join(known) if known else "give the kernel one",
                )
    return choices


def _each(
    model: Callable[[int], Trial], combinations: Sequence[Mapping[str, Any]], jobs: int | None
) -> Iterator[tuple[int, Trial]]:
    """The trials with their numbers, in order of completion, on several processes where that is
    safe."""
    count = len(combinations)
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    threaded = "jax" in sys.modules or "torch" in sys.modules
    if threaded or min(jobs, count) < 2 or not hasattr(os, "fork"):
        for at in range(count):
            yield at, model(at)
        return
    global _inherited
    _inherited = model
    try:
        with (
            warnings.catch_warnings(),
            ProcessPoolExecutor(min(jobs, count), multiprocessing.get_context("fork")) as pool,
        ):
            # Of threads: those of NumPy's BLAS, which starts them again in a child.
            warnings.simplefilter("ignore", DeprecationWarning)
            numbers = {pool.submit(_in_child, at): at for at in range(count)}
            left = []
            for future in as_completed(numbers):
                try:
                    yield numbers[future], future.result()
                except BrokenProcessPool:  # a process was killed, for its memory: which one?
                    left.append(numbers[future])
            yield from ((at, _alone(at, combinations[at])) for at in sorted(left))
    finally:
        _inherited = None


def _alone(at: int, combination: Mapping[str, Any]) -> Trial:
    """A trial in a process of its own; refused where that is killed."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return _or_refused(combination, pool.submit(_in_child, at).result)


def _sent(
    executor: Executor,
    kernels: Mapping[str, Kernel],
    combinations: Sequence[Mapping[str, Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    store: Store | None,
) -> Iterator[tuple[int, Trial]]:
    """The trials with their numbers, in order of completion, by an executor."""
    numbers = {}
    for at, combination in enumerate(combinations):
        try:
            future = executor.submit(_trial, kernels, combination, args, kwargs, store)
        except Exception as error:  # an executor whose worker has ended takes no more
            future = Future()
            future.set_exception(error)
        numbers[future] = at
    for future in as_completed(numbers):
        at = numbers[future]
        yield at, _or_refused(combinations[at], future.result)


_inherited: Callable[[int], Trial] | None = None


def _in_child(at: int) -> Trial:
    """A trial in a forked process."""
    assert _inherited is not None
    return _inherited(at)


def _trial(
    kernels: Mapping[str, Kernel],
    combination: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    store: Store | None,
) -> Trial:
    """One combination, modelled or refused."""
    return _or_refused(combination, lambda: _modelled(kernels, combination, args, kwargs, store))


def _or_refused(combination: Mapping[str, Any], made: Callable[[], Trial]) -> Trial:
    """What `made` returns; refused with the reason where it raises, or its process was killed."""
    try:
        return made()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Trial(dict(combination), None, data.of_error(error))


def _modelled(
    kernels: Mapping[str, Kernel],
    combination: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    store: Store | None,
) -> Trial:
    """One combination, modelled. What the kernel prints while it is traced is dropped.

    Raises:
        BaseException: whatever the kernel raises; ParameterError in the place of SystemExit.
    """
    chosen = dict(combination)
    kernel = kernels[chosen.pop(KERNEL)] if KERNEL in chosen else next(iter(kernels.values()))
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always", NkiWarning)
        try:
            if GRID in chosen and GRID not in kernel.signature.parameters:
                kernel = kernel[chosen.pop(GRID)]
            trace = trace_of(kernel, *args, **{**kwargs, **chosen}).program.trace
            key = store.key(trace) if store is not None else None
            figures = store.get(key) if store is not None and key is not None else None
            if figures is None:
                figures = data.of_timeline(timeline(trace))
                if store is not None and key is not None:
                    store.put(key, figures)
        except SystemExit as error:
            raise ParameterError(
                f"kernel {kernel.__name__} ends the program: {error!r}",
                rule="a kernel is traced, and returns",
                fix="raise an error in place of sys.exit()",
            ) from None
    said = tuple(str(w.message) for w in caught if issubclass(w.category, NkiWarning))
    return Trial(dict(combination), figures, None, said)
