"""`python -m nkisim tune SCRIPT.py KERNEL ARGUMENT ... NAME=VALUE,VALUE ...`."""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from nkisim.errors import KernelError, ParameterError
from nkisim.ir.dtypes import as_dtype
from nkisim.numerics.program import TensorSpec
from nkisim.report.files import write_whole
from nkisim.runtime.importing import NotImportableError, import_file
from nkisim.runtime.kernel import Kernel
from nkisim.tuning.search import tune

EPILOG = """\
ARGUMENT is a tensor, written as dtype[shape], or a Python number or string. NAME=VALUE,VALUE,...
gives the values to try of a keyword argument, or of the launch `grid`. The script is imported:
what stands under `if __name__ == "__main__"` does not run. All times are modelled.

example:
  python -m nkisim tune matmul.py matmul 'bfloat16[2048,2048]' 'bfloat16[2048,2048]' \\
      tile_n=128,256,512 grid=1,2
"""

_TENSOR = re.compile(r"(\w+)\[([\d,\s]*)\]")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def run(words: Sequence[str]) -> int:
    """The command. Returns the exit status; argparse ends the process for wrong words."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim tune",
        description="Model a kernel with every combination of parameters; say which is the fastest "
        "and why.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", help="file with the kernel")
    parser.add_argument("kernel", help="its name; several names with commas between")
    parser.add_argument("words", nargs="*", metavar="ARGUMENT or NAME=VALUE,...")
    parser.add_argument("--jobs", type=int, help="processes (default: as many as there are cores)")
    parser.add_argument("--no-cache", action="store_true", help="look up and keep nothing on disk")
    parser.add_argument("--json", metavar="FILE", help="write all results, for programs")
    parser.add_argument("--plot", metavar="FILE", help="draw these results (SVG, PNG or PDF)")
    options = parser.parse_args(words)
    try:
        module = import_file(options.script)
        kernels = [_kernel(module, name) for name in options.kernel.split(",")]
        args, parameters, kwargs = _parsed(options.words)
    except (NotImportableError, _WrongWord) as error:
        parser.error(str(error))
    try:
        found = tune(
            kernels if len(kernels) > 1 else kernels[0],
            parameters,
            *args,
            jobs=options.jobs,
            cache=not options.no_cache,
            **kwargs,
        )
    except KernelError as error:
        # No kernel line: where nothing was traced, it would be a line of this module's caller.
        said = f"{error.problem}\n  rule: {error.rule}\n  fix:  {error.fix}"
        print(said if isinstance(error, ParameterError) else str(error), file=sys.stderr)
        return 1
    print(found)
    if options.json:
        write_whole(options.json, json.dumps(found.as_data(), indent=2))
    if options.plot:
        found.plot().savefig(options.plot, facecolor="white")
    return 0


class _WrongWord(Exception):
    """A word of the command line that cannot be taken."""


def _kernel(module: ModuleType, name: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        known = [n for n, value in vars(module).items() if isinstance(value, Kernel)]
        raise _WrongWord(
            f"{module.__name__} has no kernel {name!r}; it has {', '.join(known) or 'none'}"
        )
    return found


def _parsed(words: Sequence[str]) -> tuple[list[Any], dict[str, list[Any]], dict[str, Any]]:
    """Positional arguments, parameters with the values to try, and tensors given by name."""
    args: list[Any] = []
    parameters: dict[str, list[Any]] = {}
    kwargs: dict[str, Any] = {}
    for word in words:
        named = _NAMED.fullmatch(word)
        if named is None:
            args.append(_tensor(word) or _value(word))
        elif (tensor := _tensor(named[2])) is not None:
            kwargs[named[1]] = tensor
        else:
            parameters[named[1]] = _values(named[2])
    return args, parameters, kwargs


def _tensor(word: str) -> TensorSpec | None:
    found = _TENSOR.fullmatch(word.strip())
    if found is None:
        return None
    try:
        dtype = as_dtype(found[1])
    except (TypeError, ValueError) as error:
        raise _WrongWord(f"{word!r}: {found[1]!r} is no dtype that tensors have") from error
    return TensorSpec(tuple(int(n) for n in found[2].split(",") if n.strip()), dtype)


def _values(text: str) -> list[Any]:
    try:
        return list(ast.literal_eval(f"[{text}]"))
    except (SyntaxError, ValueError):  # words without quotes
        return [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
