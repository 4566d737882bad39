"""Locks in a forked process, which lacks the threads that held them.

Whoever forks while other threads run kernels (multiprocessing up to Python 3.13, PyTorch's
DataLoader) would wait in the child's first kernel for ever.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from threading import RLock
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def in_child(renew: Callable[[], None]) -> Callable[[], None]:
    """A decorator: the function is called in each process that this one forks, at its start."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=renew)
    return renew


def unlocked_in_child(owner: Class) -> Class:
    """A decorator of classes with a cached_property, which has a lock in Python 3.11."""

    @in_child
    def renew() -> None:
        for found in vars(owner).values():
            if isinstance(found, functools.cached_property) and hasattr(found, "lock"):
                found.lock = RLock()

    return owner
