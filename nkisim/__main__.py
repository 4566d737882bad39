"""`python -m nkisim SCRIPT.py ...` and `python -m nkisim -m MODULE ...`: run any NKI program.

The program runs unmodified, as under `python -m pdb`: with its own arguments, its own folder first
on the path, and `__name__ == "__main__"`. `python -m nkisim profile SCRIPT.py ...` then prints the
modelled timeline of every kernel that it launched.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from nkisim.install import install, sdk_installed


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m nkisim",
        description="Run an NKI program on the CPU simulator, unmodified.",
        usage="python -m nkisim [profile] [-m MODULE | SCRIPT.py] [ARGUMENTS ...]",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    parser.add_argument("target", help="script or module to run")
    words = sys.argv[1:]
    profiles = words[:1] == ["profile"]
    words = words[profiles:]
    # What follows the target is the program's own, to the letter: `--`, too.
    own = 2 if words[:1] == ["-m"] else 1
    options, arguments = parser.parse_args(words[:own]), words[own:]

    if not install() and sdk_installed():
        print("nkisim: the Neuron SDK is installed; running on it", file=sys.stderr)
    elif "PJRT_DEVICE" not in os.environ:
        os.environ["PJRT_DEVICE"] = "CPU"  # what torch_xla runs on without a Neuron device
    sys.argv = [options.target, *arguments]
    if not profiles:
        _run(parser, options)
    elif sdk_installed():
        parser.error("profile models kernels on the simulator; with the SDK, use nki.profile")
    else:
        _profile(parser, options)


def _profile(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Run the program, then print a summary for each kernel, grid and set of shapes."""
    from nkisim.cost import timeline
    from nkisim.cost.watch import launches

    with launches() as found:
        _run(parser, options)
    if not found:
        print("nkisim: the program launched no kernel", file=sys.stderr)
    for special in found:
        print(timeline(special.program.trace).summary())


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.target, run_name="__main__", alter_sys=True)
        return
    if not os.path.isfile(options.target):
        parser.error(f"there is no file {options.target!r}; for a module use -m")
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.target)))
    runpy.run_path(options.target, run_name="__main__")


if __name__ == "__main__":
    main()
