"""`python -m nkisim SCRIPT.py ...` and `python -m nkisim -m MODULE ...`: run an NKI program.

The program runs unmodified, as under `python -m pdb`: with its own arguments, its own folder first
on the path, and `__name__ == "__main__"`. `python -m nkisim profile SCRIPT.py ...` then prints the
modelled timeline of every kernel that it launched. Python programs that it starts run on the
simulator, too.

`python -m nkisim translate-check OLD.py NEW.py` runs two programs and compares the kernels that
they launch, in order: data, results and timelines. It exits with 1 where they do not agree.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import fill
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nkisim.checking.settings import CHECKS, OF_NEURONXCC
from nkisim.errors import KernelError, NkiWarning
from nkisim.frontends.nki.releases import NEWEST, SDK, VARIABLE
from nkisim.ir.limits import LIMITS
from nkisim.runtime.children import reach
from nkisim.runtime.install import install, sdk_installed
from nkisim.runtime.limiting import limit_memory, limit_time
from nkisim.runtime.neuron_profile import COMMANDS, stand_in
from nkisim.runtime.neuron_profile import run as neuron_profile

if TYPE_CHECKING:
    from nkisim.report.timeline import Timeline
    from nkisim.runtime.kernel import Specialization

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

_LIMITS = ", ".join(f"{name}={most}" for name, most in LIMITS.items())


def _checks(label: str, names: Iterable[str]) -> str:
    return fill(", ".join(names), 78, initial_indent=label, subsequent_indent=" " * len(label))


EPILOG = f"""\
With the word `profile` first, the program runs as well, and then the modelled timeline of each
kernel that it launched is printed. With `profile --json FILE`, launches, warnings and the error
that ended the program, if one did, are also written to FILE, for programs.

python -m nkisim translate-check OLD.py NEW.py runs two programs and compares the kernels that
they launch, in order: data, results and modelled timelines.

python -m nkisim tune SCRIPT.py KERNEL ... models a kernel with every combination of parameters.

The program finds a stand-in for neuron-profile and neuron-explorer on its path, if it has none:
`capture` and `view --output-format summary-json`, of what nki.benchmark or nki.baremetal saves as
a NEFF.

python -m nkisim judge KERNEL.py:FUNCTION TASK ... judges a kernel against a reference; its exit
code says how. python -m nkisim leaderboard VERDICT.json ... prints a table of verdicts.

environment:
  NKISIM_NKI=0.6               as --nki: `import nki` is NKI 0.6, in the place of {NEWEST}.
  NKISIM_LIMITS=NAME=N,...     limits of a launch: {_LIMITS}.
  NKISIM_CHECKS=NAME=MODE,...  turn checks of the simulator to error, warn or off.
{_checks("    checks: ", [name for name in CHECKS if name not in OF_NEURONXCC])}
{_checks("    of neuronxcc.nki alone: ", OF_NEURONXCC)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m nkisim",
        description="Run an NKI program on the CPU simulator, unmodified.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m nkisim [--nki RELEASE] [--time-limit S] [--memory-limit MB] "
        "[profile [--json FILE]] [-m MODULE | SCRIPT.py] [ARGUMENTS ...]",
    )
    parser.add_argument(
        "--time-limit", type=_amount(float), metavar="S", help="seconds after which it is ended"
    )
    parser.add_argument(
        "--memory-limit", type=_amount(int), metavar="MB", help="memory that it may take, on Linux"
    )
    parser.add_argument("--nki", choices=SDK, help=f"which `import nki`; {NEWEST} if left out")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    parser.add_argument("target", help="script or module to run")
    words = sys.argv[1:]
    first: list[str] = []
    while words[:1] and words[0].split("=")[0] in ("--nki", "--time-limit", "--memory-limit"):
        count = 1 if "=" in words[0] else 2
        first, words = first + words[:count], words[count:]
    release = parser.parse_args([*first, ""]).nki
    if release is not None:
        os.environ[VARIABLE] = release  # for the programs that this one starts, too
    if words[:1] == ["translate-check"]:
        sys.exit(_translate_check(words[1:]))
    if words[:1] == ["tune"]:
        sys.exit(_tune(words[1:]))
    if words[:1] == ["judge"]:
        sys.exit(_judge(words[1:]))
    if words[:1] == ["leaderboard"]:
        from nkisim.judging.command import leaderboard

        sys.exit(leaderboard(words[1:]))
    if words and words[0] in COMMANDS:
        sys.exit(neuron_profile(words[0], words[1:]))
    profiles = words[:1] == ["profile"]
    words = words[profiles:]
    json_file = None
    if profiles and words[:1] == ["--json"]:
        if len(words) < 3:
            parser.error("--json needs a file, and then a script or -m MODULE")
        json_file, words = words[1], words[2:]
    # What follows the target is the program's own, to the letter: `--`, too.
    own = 2 if words[:1] == ["-m"] else 1
    options, arguments = parser.parse_args(first + words[:own]), words[own:]
    if not options.module and not os.path.isfile(options.target):
        parser.error(f"there is no file {options.target!r}; for a module use -m")

    if not install() and sdk_installed():
        print("nkisim: the Neuron SDK is installed; running on it", file=sys.stderr)
    else:
        os.environ.setdefault("PJRT_DEVICE", "CPU")  # what torch_xla runs on without a device
        reach()
        stand_in()
    sys.argv = [options.target, *arguments]
    sys.excepthook = _show
    if options.memory_limit is not None:
        limit_memory(options.memory_limit)
    if options.time_limit is not None:
        atexit.register(limit_time(options.time_limit))
    if not profiles:
        _run(options)
    elif sdk_installed():
        parser.error("profile models kernels on the simulator; with the SDK, use nki.profile")
    else:
        _profile(options, json_file)


def _amount(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser of a number above 0."""

    def amount(word: str) -> Any:
        value = kind(word)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{word} is not above 0")
        return value

    amount.__name__ = kind.__name__
    return amount


def _translate_check(words: Sequence[str]) -> int:
    """Compare two programs; 0 when they agree, 1 when they do not."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim translate-check",
        description="Run two NKI programs, and compare the kernels that they launch, in order.",
    )
    parser.add_argument("old", help="program whose results are right")
    parser.add_argument("new", help="program that must give them, too")
    options = parser.parse_args(words)
    for script in (options.old, options.new):
        if not os.path.isfile(script):
            parser.error(f"there is no file {script!r}")
    if not install() and sdk_installed():
        parser.error("it compares kernels on the simulator, and the Neuron SDK is installed")
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    sys.excepthook = _show
    from nkisim.runtime.translation import check

    agree, report = check(options.old, options.new)
    print(report)
    return 0 if agree else 1


def _tune(words: Sequence[str]) -> int:
    """Search for the fastest form of a kernel."""
    if not install() and sdk_installed():
        print("nkisim: tune models kernels on the simulator; the SDK is installed", file=sys.stderr)
        return 2
    sys.excepthook = _show
    from nkisim.tuning.command import run

    return run(words)


def _judge(words: Sequence[str]) -> int:
    """Judge a kernel. Its processes have the simulator, wherever the SDK is installed."""
    from nkisim.judging.command import run

    return run(words)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the program, without the frames above the program's own.

    A refused kernel is the program's fault: the simulator's frames are left out as well.
    """
    if isinstance(error, MemoryError):
        error.add_note("if it runs under --memory-limit, that may be too low")
    calls = []
    while trace is not None:
        calls.append(trace)
        trace = trace.tb_next
    # The console script calls `main` from a frame of its own.
    while len(calls) > 1 and any(map(_starts_programs, calls[:2])):
        del calls[0]
    if isinstance(error, KernelError):
        calls = [c for c in calls if not c.tb_frame.f_code.co_filename.startswith(_PACKAGE)]
    shorter = None
    for call in reversed(calls):
        shorter = TracebackType(shorter, call.tb_frame, call.tb_lasti, call.tb_lineno)
    sys.__excepthook__(kind, error.with_traceback(shorter), shorter)


def _starts_programs(call: TracebackType) -> bool:
    frame = call.tb_frame
    return frame.f_globals.get("__name__") in ("runpy", "nkisim.runtime.translation") or (
        frame.f_code.co_filename == __file__
    )


def _profile(options: argparse.Namespace, json_file: str | None) -> None:
    """Run the program, then print a summary of each kernel, grid and set of shapes it launched.

    However the program ends, what it launched until then is printed, and it still ends so.

    Args:
        options: the program.
        json_file: where launches, warnings and the error are written, too, as `_report` says.
    """
    from nkisim.runtime.watch import launches

    with launches() as found, _warnings() as warned:
        error: BaseException | None = None
        try:
            _run(options)
        except BaseException as raised:
            error = raised
            raise
        finally:
            # An error tells more than that there was no launch before it.
            shown = []
            if found or error is None or isinstance(error, SystemExit):
                shown = _print_summaries(found)
            if json_file is not None:
                _report(json_file, shown, warned, error)


@contextmanager
def _warnings() -> Iterator[list[NkiWarning]]:
    """The simulator's warnings while the block runs. They are shown as always."""
    found: list[NkiWarning] = []
    before = warnings.showwarning

    def show(message: Warning | str, *rest: Any, **named: Any) -> None:
        if isinstance(message, NkiWarning):
            found.append(message)
        before(message, *rest, **named)

    warnings.showwarning = show
    try:
        yield found
    finally:
        warnings.showwarning = before


def _report(
    path: str,
    shown: Sequence[tuple[Specialization, Timeline]],
    warned: Sequence[NkiWarning],
    error: BaseException | None,
) -> None:
    """Write {form, launches, warnings, error} as JSON.

    A launch is what `nkisim.report.data.of_timeline` describes, with inputs, [{name, shape,
    dtype}], and grid. Warnings are texts; error is None or as `of_error` describes it.
    """
    from nkisim.report import data
    from nkisim.report.files import write_whole

    ended = error is not None and not isinstance(error, SystemExit)
    written = {
        "form": data.FORM,
        "launches": [
            {
                "inputs": [
                    {"name": x.name, "shape": list(x.shape), "dtype": str(x.dtype)}
                    for x in special.program.inputs
                ],
                "grid": str(special.kernel.grid),
                **data.of_timeline(timeline),
            }
            for special, timeline in shown
        ],
        "warnings": [str(warning) for warning in warned],
        "error": data.of_error(error) if ended and error is not None else None,
    }
    write_whole(path, json.dumps(written, indent=2))


def _print_summaries(found: Sequence[Specialization]) -> list[tuple[Specialization, Timeline]]:
    """Print a summary of each kernel, grid and set of shapes, and of each of its models. Returns
    what was printed.

    The ways to launch a kernel, and its options, are traced apart; most are modelled the same.
    """
    from nkisim.report.modelled import timeline

    if not found:
        print("nkisim: the program launched no kernel", file=sys.stderr)
    printed = {}
    for special in found:
        modelled = timeline(special.program.trace)
        summary = modelled.summary()
        kernel = special.kernel
        what = (id(kernel.func), str(kernel.grid), special.program.inputs, summary)
        if what not in printed:
            printed[what] = special, modelled
            tensors = ", ".join(
                f"{x.name} {x.dtype}{list(x.shape)}".lstrip() for x in special.program.inputs
            )
            # At once: before the traceback, if there is one, where both go to one file.
            print(f"{kernel.__name__}({tensors}), grid {kernel.grid}:")
            print(summary, flush=True)
    return list(printed.values())


def _run(options: argparse.Namespace) -> None:
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.target, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.target)))
    runpy.run_path(options.target, run_name="__main__")


if __name__ == "__main__":
    main()
