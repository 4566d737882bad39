"""Python's garbage collector, which stays out of the way while a trace is looked at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Millions of small objects are made and all are kept: looking for garbage only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # Straight to the oldest generation, or all of them would be looked at now.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
