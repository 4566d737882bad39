"""What a call that must fail is refused with, as a page prints it."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable
from typing import Any

WIDTH = 76


def refused(error: type[Exception], call: Callable[..., Any], *args: Any) -> str:
    """Call a function that must raise an error, and return what the error says.

    Args:
        error: the class of the error.
        call: the function, for example a kernel.
        *args: its arguments.

    Returns:
        The message in lines of at most 76 characters, without the advice on tracebacks that JAX
        adds to it, and without the prefix that XLA sometimes puts before it. Warnings on the way
        are not shown, because the simulator's errors repeat them.

    Raises:
        AssertionError: the call succeeded. Any other error of the call is raised as it is.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(*args)
    except error as found:
        said = str(found).split("\n-----")[0].replace("Buffer Definition Event: ", "")
        return "\n".join(
            textwrap.fill(line, WIDTH, subsequent_indent=8 * " ")
            for line in said.rstrip().splitlines()
        )
    name = getattr(call, "__name__", repr(call))
    raise AssertionError(f"{name} was to be refused with {error.__name__}, and was accepted")
