"""Kernels of several ranks in one process."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.nki.ranks import Abandoned, Job


def run_ranks(kernel: Callable, arguments: Sequence[Sequence[Any]]) -> list[Any]:
    """Run a kernel that uses `nki.collectives` on several ranks, each with arguments of its own.

        first, second = nkisim.run_ranks(nki.simulate(kernel)[1], [(x0,), (x1,)])

    Under `jax.shard_map` no call of it is needed: there the devices are ranks. Results only: there
    is no model of the time that ranks take to exchange data. AWS's simulator has no collectives.

    Args:
        kernel: called once for each rank.
        arguments: for each rank, NumPy arrays and constants.

    Returns:
        What the kernel returns, for each rank.

    Raises:
        ParameterError: no rank, or ranks that do not meet at a collective: with both lines.
        Exception: what the kernel raises on the first rank that fails.
    """
    if not arguments:
        raise ParameterError(
            "run_ranks without arguments",
            rule="there is one tuple of arguments for each rank",
            fix="pass [(x0,), (x1,)] for two ranks of a kernel with one argument",
        )
    size = len(arguments)
    job = Job(size)
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def work(rank: int) -> None:
        try:
            results[rank] = job.run(rank, lambda: kernel(*arguments[rank]))
        except BaseException as error:
            errors[rank] = error

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work, rank))
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C: no rank is left waiting for ever
        job.stop(error)
        raise
    reasons = [errors[r] for r in sorted(errors) if not isinstance(errors[r], Abandoned)]
    if reasons:
        raise reasons[0]
    return results
