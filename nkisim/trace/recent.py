"""What was used last is kept, as far as it fits in a limit."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock


class Recent:
    """Keeps objects alive that others refer to weakly: the last one used in any case, and those
    before it while all are small enough together.

    Args:
        most: the limit, in the unit of the sizes given.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: dict[Hashable, int] = {}  # the last one used at the end
        self._total = 0
        self._lock = Lock()

    def use(self, item: Hashable, size: int) -> None:
        """Note that an object is used, and let go of those used longest ago."""
        with self._lock:
            self._total += size - self._sizes.pop(item, 0)
            self._sizes[item] = size
            while self._total > self._most and len(self._sizes) > 1:
                self._total -= self._sizes.pop(next(iter(self._sizes)))
