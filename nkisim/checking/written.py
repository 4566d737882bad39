"""Which elements of each buffer were written, as far as the trace has come."""

from __future__ import annotations

import numpy as np

from nkisim.checking.cells import Part, covered
from nkisim.memory import Buffer
from nkisim.tensor import Tensor
from nkisim.views import view_of

# What is known of a buffer: None when every element was written, False when none was, else a flag
# for each element.
Flags = np.ndarray | bool | None


class WrittenElements:
    """A flag an element, where it comes to that.

    Most tensors in HBM are written tile by tile and never read again by the kernel: what is written
    of them is only noted, and looked at when something depends on it.
    """

    def __init__(self) -> None:
        self._flags: dict[int, np.ndarray | None] = {}
        self._missing: dict[int, int] = {}  # elements without a flag, of the arrays above
        self._noted: dict[int, dict[Part, Tensor]] = {}
        self._covered: dict[tuple, bool] = {}  # tiles are written in the same parts again and again

    def of(self, buffer: Buffer) -> Flags:
        """What is known of a buffer."""
        if buffer.number in self._noted:
            self._look_at(buffer)
        return self._flags.get(buffer.number, False)

    def touched(self, buffer: Buffer) -> bool:
        """Whether anything was written of a buffer."""
        return buffer.number in self._flags or buffer.number in self._noted

    def missing(self, buffer: Buffer) -> int:
        """How many elements of a buffer nothing wrote."""
        known = self.of(buffer)
        if known is None:
            return 0
        return self._missing[buffer.number] if known is not False else buffer.size

    def add_all(self, buffer: Buffer) -> None:
        """Every element of a buffer is written."""
        self._noted.pop(buffer.number, None)
        self._flags[buffer.number] = None

    def note(self, tensor: Tensor) -> None:
        """All that `tensor` names is written."""
        if tensor.itemsize != tensor.buffer.dtype.itemsize:
            self.add(tensor)
        elif self._flags.get(tensor.buffer.number, False) is not None:
            self._noted.setdefault(tensor.buffer.number, {})[tensor.form, tensor.offsets] = tensor

    def knows(self, tensor: Tensor) -> bool:
        """Whether it is known without a look that all of these elements were written: their whole
        buffer was, or just them."""
        number = tensor.buffer.number
        noted = self._noted.get(number)
        if noted is None:
            return self._flags.get(number, False) is None
        return (tensor.form, tensor.offsets) in noted

    def add(
        self,
        tensor: Tensor,
        fresh: np.ndarray | bool = True,
        where: np.ndarray | None = None,
    ) -> None:
        """What `tensor` names is written.

        Args:
            tensor: a part of a buffer.
            fresh: for each of its elements, whether it is known from now on.
            where: which of its elements are touched; None for all.
        """
        buffer = tensor.buffer
        number = buffer.number
        known = self.of(buffer)
        if known is False or known is None:
            self._flags[number] = state = np.full(buffer.size, known is None)
            self._missing[number] = 0 if known is None else buffer.size
            known = state
        flags = as_read(known, tensor)
        view = view_of(flags, tensor)
        before = np.count_nonzero(view)
        if where is None:
            view[...] = fresh
        else:
            np.copyto(view, fresh, where=where)
        if flags is known:
            self._missing[number] -= np.count_nonzero(view) - before
        else:
            self._flags[number] = known = _as_stored(flags, tensor)
            self._missing[number] = known.size - np.count_nonzero(known)
        if self._missing[number] == 0:
            self._flags[number] = None

    def _look_at(self, buffer: Buffer) -> None:
        """Give flags to what was noted of a buffer."""
        noted = self._noted.pop(buffer.number)
        if self._flags.get(buffer.number, False) is False:
            parts = (buffer.shape, *noted)
            if parts not in self._covered:
                self._covered[parts] = covered(buffer.shape, noted)
            if self._covered[parts]:
                self._flags[buffer.number] = None
                return
        for tensor in noted.values():
            self.add(tensor)


def as_read(known: np.ndarray, tensor: Tensor) -> np.ndarray:
    """`known`, one flag an element of the buffer, as one flag an element of the type that
    `tensor` sees it under: the same array unless `Tensor.view` changed the element size."""
    stored, seen = tensor.buffer.dtype.itemsize, tensor.itemsize
    if stored == seen:
        return known  # itself, which is written in place
    if stored > seen:
        return known.repeat(stored // seen)
    return known.reshape(-1, seen // stored).all(axis=1)


def _as_stored(flags: np.ndarray, tensor: Tensor) -> np.ndarray:
    """What `as_read` gave, back as one flag an element of the buffer. An element is taken as
    known when a part of it is: bytes of one element may be written one after the other."""
    stored, seen = tensor.buffer.dtype.itemsize, tensor.itemsize
    if stored > seen:
        return flags.reshape(-1, stored // seen).any(axis=1)
    return flags.repeat(seen // stored)
