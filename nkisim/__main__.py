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
import os
import runpy
import sys
from collections.abc import Sequence
from textwrap import fill
from types import TracebackType
from typing import TYPE_CHECKING

from nkisim.checking.settings import CHECKS
from nkisim.errors import KernelError
from nkisim.runtime import children
from nkisim.runtime.install import install, sdk_installed

if TYPE_CHECKING:
    from nkisim.runtime.kernel import Specialization

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

EPILOG = f"""\
With the word `profile` first, the program runs as well, and then the modelled timeline of each
kernel that it launched is printed.

python -m nkisim translate-check OLD.py NEW.py runs two programs and compares the kernels that
they launch, in order: data, results and modelled timelines.

environment:
  NKISIM_CHECKS=NAME=MODE,...  turn checks of the simulator to error, warn or off.
{fill(", ".join(CHECKS), 78, initial_indent="    checks: ", subsequent_indent=" " * 12)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m nkisim",
        description="Run an NKI program on the CPU simulator, unmodified.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m nkisim [profile] [-m MODULE | SCRIPT.py] [ARGUMENTS ...]",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    parser.add_argument("target", help="script or module to run")
    words = sys.argv[1:]
    if words[:1] == ["translate-check"]:
        sys.exit(_translate_check(words[1:]))
    profiles = words[:1] == ["profile"]
    words = words[profiles:]
    # What follows the target is the program's own, to the letter: `--`, too.
    own = 2 if words[:1] == ["-m"] else 1
    options, arguments = parser.parse_args(words[:own]), words[own:]
    if not options.module and not os.path.isfile(options.target):
        parser.error(f"there is no file {options.target!r}; for a module use -m")

    if not install() and sdk_installed():
        print("nkisim: the Neuron SDK is installed; running on it", file=sys.stderr)
    else:
        os.environ.setdefault("PJRT_DEVICE", "CPU")  # what torch_xla runs on without a device
        _reach_children()
    sys.argv = [options.target, *arguments]
    sys.excepthook = _show
    if not profiles:
        _run(options)
    elif sdk_installed():
        parser.error("profile models kernels on the simulator; with the SDK, use nki.profile")
    else:
        _profile(options)


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


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends the program, without the frames above the program's own.

    A refused kernel is the program's fault: the simulator's frames are left out as well.
    """
    calls = []
    while trace is not None:
        calls.append(trace)
        trace = trace.tb_next
    while len(calls) > 1 and _starts_programs(calls[0]):
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


def _reach_children() -> None:
    """Have the Python programs that this process starts install the simulator as well."""
    before = os.environ.get("PYTHONPATH")
    folders = [os.path.dirname(children.__file__), *([before] if before else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)


def _profile(options: argparse.Namespace) -> None:
    """Run the program, then print a summary of each kernel, grid and set of shapes it launched.

    However the program ends, what it launched until then is printed, and it still ends so.
    """
    from nkisim.runtime.watch import launches

    with launches() as found:
        try:
            _run(options)
        except SystemExit:
            _print_summaries(found)
            raise
        except BaseException:
            # An error tells more than that there was no launch before it.
            if found:
                _print_summaries(found)
            raise
    _print_summaries(found)


def _print_summaries(found: Sequence[Specialization]) -> None:
    """Print a summary of each kernel, grid and set of shapes, and of each of its models.

    The ways to launch a kernel, and its options, are traced apart; most are modelled the same.
    """
    from nkisim.runtime.profiling import timeline

    if not found:
        print("nkisim: the program launched no kernel", file=sys.stderr)
    printed = set()
    for special in found:
        summary = timeline(special.program.trace).summary()
        kernel = special.kernel
        what = (id(kernel.func), str(kernel.grid), special.program.inputs, summary)
        if what not in printed:
            printed.add(what)
            tensors = ", ".join(
                f"{x.name} {x.dtype}{list(x.shape)}".lstrip() for x in special.program.inputs
            )
            # At once: before the traceback, if there is one, where both go to one file.
            print(f"{kernel.__name__}({tensors}), grid {kernel.grid}:")
            print(summary, flush=True)


def _run(options: argparse.Namespace) -> None:
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.target, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.target)))
    runpy.run_path(options.target, run_name="__main__")


if __name__ == "__main__":
    main()
