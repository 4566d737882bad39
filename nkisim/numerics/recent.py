"""A least-recently-used cache with a limit in bytes."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

from nkisim.ir.forks import in_child


def memory() -> int:
    """Bytes of memory of this machine, or of the container that this process is in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # "max"
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return found


class Recent:
    """Lets go of objects that others keep, those used longest ago first, so that all are small
    enough together. The last one used stays in any case. None is kept alive by this.

    Args:
        most: the limit, in the unit of the sizes given.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By identity, the last one used at the end: what notices that it is gone, the size, and
        # what lets it go.
        self._items: dict[int, tuple[weakref.ref, int, Callable[[], Any]]] = {}
        self._total = 0
        self._newest: int | None = None
        self._lock = RLock()
        _all.add(self)

    def use(self, item: object, size: int, let_go: Callable[[], Any]) -> None:
        """Note that an object is used, and let go of those used longest ago.

        Args:
            item: the object.
            size: how much of the limit it takes.
            let_go: makes those who keep the object drop it. It does not refer to the object.
        """
        key = id(item)
        if key == self._newest:  # by far the most frequent
            entry = self._items.get(key)
            if entry is not None and entry[1] == size:
                return
        with self._lock:
            self._remove(key)
            gone = weakref.ref(item, lambda _: self._remove(key))
            self._items[key] = gone, size, let_go
            self._total += size
            self._newest = key
            while self._total > self._most and len(self._items) > 1:
                oldest = next(iter(self._items))
                drop = self._items[oldest][2]
                self._remove(oldest)
                drop()

    def _remove(self, key: int) -> None:
        with self._lock:
            if key == self._newest:
                self._newest = None
            entry = self._items.pop(key, None)
            if entry is not None:
                self._total -= entry[1]


_all: weakref.WeakSet[Recent] = weakref.WeakSet()


@in_child
def _unlock() -> None:
    for recent in [*_all]:
        recent._lock = RLock()
