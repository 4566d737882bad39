"""`python -m nkibook.instance`: write a report of this instance, or compare one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import kernels
from kernels.arrays import frameworks_of_device
from nkibook.instance import comparing, report
from nkibook.options import input_file, output_file


def main(argv: Sequence[str] | None = None) -> int:
    """Ask this Neuron instance whether the book is right on it, and pack the answers into a file.

    Takes from minutes to some hours, as every kernel is compiled; each step has a limit, and none
    stops the others. The file has versions, a list of environment variables by name, numbers and
    messages; no other variables, and no names of user, host or home.
    """
    parser = argparse.ArgumentParser("python -m nkibook.instance", description=main.__doc__)
    parser.add_argument("-o", "--output", type=output_file, help="the archive to write")
    parser.add_argument("--compare", type=input_file, help="an archive to read instead")
    parser.add_argument("--no-notebooks", action="store_true", help="leave the notebooks out")
    parser.add_argument(
        "--framework",
        action="append",
        choices=frameworks_of_device(),
        help="only this one; repeatable",
    )
    parser.add_argument(
        "--only", action="append", metavar="STEP", help="steps that begin so; repeatable"
    )
    parser.add_argument("--limit", type=float, default=report.LIMIT, help="seconds a step")
    options = parser.parse_args(argv)
    if options.compare is None and options.output is None:
        parser.error("say where to write, with -o report.zip, or what to read, with --compare")
    if options.compare is not None:
        try:
            found = report.read(options.compare)
        except ValueError as error:
            parser.error(str(error))
        return say(found)
    if kernels.backend != "neuronxcc":
        print(
            "error: no Neuron SDK here, so there is nothing to report. Run this on an inf2, trn1 "
            "or trn2 instance, in an environment with the SDK.",
            file=sys.stderr,
        )
        return 2
    frameworks = options.framework or frameworks_of_device()
    chosen = [
        step
        for step in report.steps(frameworks, not options.no_notebooks)
        if step.name.startswith(tuple(options.only or [""]))
    ]
    found = report.write(options.output, chosen, options.limit)
    print()
    code = say(found)
    print(f"\nWritten: {options.output}. README.md says what is done with it and where to send it.")
    return code


def say(found: dict) -> int:
    """Print every answer and whether it is as assumed; return 1 when one is not."""
    rows = list(comparing.differences(found))
    for what, said, good in rows:
        print(f"{'  ' if good else '! '}{what}: {said}")
    wrong = sum(not good for _, _, good in rows)
    print(f"\n{len(rows)} answers, {wrong} not as assumed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
