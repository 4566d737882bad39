"""`python -m nkisim judge KERNEL.py:FUNCTION TASK ...`."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nkisim.errors import ParameterError
from nkisim.judging import reports
from nkisim.judging.judge import judge
from nkisim.judging.task import Limits, Task, function_named, read, value_of
from nkisim.judging.verdict import FORM, STATUSES
from nkisim.report.files import write_whole

_CODES = "\n".join(f"  {code}  {name}: {what}" for name, (code, what) in STATUSES.items())
EPILOG = f"""\
TASK is a TOML file; or words: the inputs in the order of the kernel's parameters, such as
'x=float32[n,d]', and the sizes to try, such as n=128,300, of which each combination is a case.
The inputs are drawn after the kernel was traced. All times are modelled.

example:
  python -m nkisim judge scale.py:scale 'x=float32[n,d]' n=128,300 d=512 \\
      --reference reference.py:scale --chip trn2

exit codes:
{_CODES}
  2  the arguments are wrong
"""
_SPEC = re.compile(r"([A-Za-z_]\w*)=(\w+\s*\[[\w,\s]*\])")
_SIZE = re.compile(r"([A-Za-z_]\w*)=(.+)")


def run(words: Sequence[str]) -> int:
    """The command. Returns the exit code; argparse ends the process for wrong words."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim judge",
        description="Judge a kernel: right or not, allowed or not, and its modelled time.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", help="FILE.py:FUNCTION; of a task with a kernel, the FILE alone")
    parser.add_argument("task", nargs="+", metavar="TASK", help="a TOML file, or words")
    parser.add_argument("--reference", help="FILE.py:FUNCTION; without it, time alone is asked")
    parser.add_argument(
        "--framework", default="numpy", help="of the reference's arrays: torch, jax"
    )
    parser.add_argument("--chip", default="trn2", help="chips, with commas between (default: trn2)")
    parser.add_argument("--cores", default="1", help="numbers of cores, with commas between")
    parser.add_argument("--grid", help="launch grid, such as '(n + 127) // 128'")
    parser.add_argument("--rtol", type=float)
    parser.add_argument("--atol", type=float)
    parser.add_argument("--norm", type=float, help="tolerance of the error's L2 norm instead")
    parser.add_argument("--baseline", help="FILE.py:FUNCTION, a kernel to compare the time with")
    parser.add_argument("--at-most", type=float, metavar="X", help="times the baseline's time")
    parser.add_argument("--budget-us", type=float, metavar="US", help="time allowed, modelled")
    parser.add_argument("--strict", action="store_true", help="warnings are refusals")
    parser.add_argument("--seed", type=int, help="for the inputs (default: one nobody knows)")
    parser.add_argument("--time-limit", type=float, metavar="S", help="of each process")
    parser.add_argument("--memory-limit", type=int, metavar="MB", help="of each process, on Linux")
    parser.add_argument("--json", metavar="FILE", help="write the verdict")
    parser.add_argument("--gradescope", metavar="FILE", help="write Gradescope's results.json")
    parser.add_argument("--result", metavar="FILE", help="write a result.json of schema 1")
    options = parser.parse_args(words)
    try:
        task, more = _task(options)
        kernel = options.kernel
        if ":" not in kernel and "kernel" in more:
            kernel = f"{kernel}:{more['kernel']}"
        verdict = judge(kernel, task, seed=options.seed)
    except ParameterError as error:
        parser.error(f"{error.problem}; {error.rule}: {error.fix}")
    except Exception:  # of the reference, say: an exit code of 1 would call the kernel wrong
        traceback.print_exc()
        return STATUSES["error"][0]
    print(verdict)
    written: list[tuple[str | None, Any]] = [
        (options.json, verdict.as_data),
        (options.gradescope, lambda: reports.gradescope(verdict, more.get("score", {}))),
        (options.result, lambda: reports.result(verdict, task, more.get("name", ""))),
    ]
    for path, made in written:
        if path is not None:
            write_whole(path, json.dumps(made(), indent=2))
    return verdict.exit_code


def _task(options: argparse.Namespace) -> tuple[Task, dict[str, Any]]:
    """The task of the arguments, and what else its file says."""
    if len(options.task) == 1 and options.task[0].endswith(".toml"):
        if not Path(options.task[0]).is_file():
            raise _wrong(f"there is no file {options.task[0]!r}")
        return read(options.task[0])
    inputs: dict[str, str] = {}
    sizes: dict[str, list[Any]] = {}
    for word in options.task:
        if (spec := _SPEC.fullmatch(word)) is not None:
            inputs[spec[1]] = spec[2]
        elif (size := _SIZE.fullmatch(word)) is not None:
            sizes[size[1]] = [value_of(v.strip()) for v in size[2].split(",")]
        else:
            raise _wrong(f"{word!r} is no input and no size")
    used = {w for spec in inputs.values() for w in re.findall(r"[A-Za-z_]\w*", spec)}
    limits = {"seconds": options.time_limit, "memory_mb": options.memory_limit}
    reference = options.reference and function_named(options.reference, Path())
    cores = options.cores.split(",")
    if not all(n.strip().isdecimal() for n in cores):
        raise _wrong(f"--cores {options.cores!r} is no list of numbers", "such as --cores 1,2")
    task = Task(
        inputs=inputs,
        cases=[dict(zip(sizes, c, strict=True)) for c in itertools.product(*sizes.values())],
        constants={name: name for name in sizes if name not in used},
        reference=reference,
        framework=options.framework,
        rtol=options.rtol,
        atol=options.atol,
        norm=options.norm,
        chips=options.chip.split(","),
        cores=[int(n) for n in cores],
        grid=options.grid,
        baseline=options.baseline,
        at_most=options.at_most,
        budget_us=options.budget_us,
        strict=options.strict,
        limits=Limits(**{name: x for name, x in limits.items() if x is not None}),
    )
    return task, {}


def _wrong(
    problem: str, fix: str = "TASK.toml, or such as 'x=float32[n,d]' n=128,300"
) -> ParameterError:
    return ParameterError(
        problem,
        rule="the task is a TOML file, or inputs, sizes and options",
        fix=f"write {fix}",
    )


def leaderboard(words: Sequence[str]) -> int:
    """`python -m nkisim leaderboard VERDICT.json ...`: a table. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim leaderboard",
        description="Print a table of verdicts, as judge --json writes them, in Markdown.",
    )
    parser.add_argument("verdicts", nargs="+", metavar="VERDICT.json")
    options = parser.parse_args(words)
    found = {}
    for path in map(Path, options.verdicts):
        try:
            found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            parser.error(f"{path}: {error}")
        if found[path.stem].get("form") != FORM:
            parser.error(f"{path} is no verdict")
    print(reports.leaderboard(found))
    return 0
