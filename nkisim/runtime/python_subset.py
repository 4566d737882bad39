"""Python that runs here, in a kernel of `import nki`, and that AWS's compiler refuses: warnings.

The compiler of SDK 2.32 reads a kernel's syntax tree and takes a subset of Python: the NKI language
guide of that SDK, and messages of the compiler that users report.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from nkisim.errors import Location, ParameterError, UnsupportedError, warn
from nkisim.runtime.kernel import Kernel
from nkisim.trace import sources


def warn_of_python(kernel: Kernel, arguments: dict[str, Any], place: Location | None) -> None:
    """Warns, at the kernel's line, of what AWS's compiler refuses in a kernel's head and body.

    Functions that the kernel calls are not looked at.
    """
    for name, parameter in kernel.signature.parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            warn(
                ParameterError(
                    f"{name} of kernel {kernel.__name__} is a keyword-only argument",
                    rule="AWS's compiler has no keyword-only arguments; this simulator has",
                    fix="leave out the * before it",
                    location=place,
                )
            )
        elif isinstance(arguments.get(name), list):
            warn(
                ParameterError(
                    f"argument {name} of kernel {kernel.__name__} is a list",
                    rule="AWS's compiler takes no lists as arguments; this simulator does",
                    fix="pass a tuple",
                    location=place,
                )
            )
    code = getattr(kernel.func, "__code__", None)
    definition = None if code is None else sources.definition(code)
    if code is None or definition is None:
        return
    for statement, line, fix in _refused(definition):
        warn(
            UnsupportedError(
                f"kernel {kernel.__name__} has a '{statement}' statement",
                rule=f"AWS's compiler takes a subset of Python, without '{statement}'; this "
                "simulator runs it",
                fix=fix,
                location=Location(code.co_filename, line, code.co_name),
            )
        )


def _refused(definition: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Statements that the compiler refuses: their name, line, and what to write instead."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Raise):
            yield "raise", node.lineno, "use assert, or if and else"
        elif isinstance(node, ast.Try):
            yield "try", node.lineno, "test the condition with if before"
        elif isinstance(node, ast.With) and not all(map(_is_region, node.items)):
            yield "with", node.lineno, "do outside the kernel what needs it"


def _is_region(item: ast.withitem) -> bool:
    """Whether a `with` opens `nl.no_reorder()`, which is part of the language."""
    called = item.context_expr
    return isinstance(called, ast.Call) and ast.unparse(called.func).endswith("no_reorder")
