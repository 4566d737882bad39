"""One BLAS thread while a program runs whose products are small.

The matmuls of a program are of tiles, 128 by 128 by 512 at most, where the plan does not join them.
OpenBLAS hands even these out to all cores, and then waits for them in a busy loop: where other work
shares the machine, a run took forty times as long with two threads as with one.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threadpoolctl

WORTH_THREADS = 1 << 25
"""Multiplications of a product that is worth handing out, four times those of a tile: about 1 ms,
of which a wait for another core is a part, and not a multiple."""


def one_thread() -> contextlib.AbstractContextManager:
    """A context in which BLAS uses one thread; afterwards as many as before. Where programs run at
    the same time in several threads, the first of them decides for all."""
    return controller().limit(limits=1)


@functools.cache
def controller() -> threadpoolctl.ThreadpoolController:
    """Controls the BLAS libraries that the process had loaded when this was first called."""
    import threadpoolctl  # here, so that importing nkisim needs NumPy and ml_dtypes only

    return threadpoolctl.ThreadpoolController().select(user_api="blas")
