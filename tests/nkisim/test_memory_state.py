"""What the checks remember of a tensor that is written part by part."""

from __future__ import annotations

import numpy as np

from nkisim.checking.memory_state import MemoryState
from nkisim.nki import language as nl
from nkisim.nki import simulate_kernel


def test_a_store_marks_its_own_part_only(monkeypatch):
    """The flags of a tensor are never copied: stores would take time with the tensor's size."""
    flags = []
    define = MemoryState._define

    def watched(self, instr, tensor, undefined):
        define(self, instr, tensor, undefined)
        if not tensor.space.on_chip:
            flags.append(self.defined[tensor.buffer.number])

    monkeypatch.setattr(MemoryState, "_define", watched)

    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            nl.store(y[:, i * 8 : i * 8 + 8], nl.load(x[:, i * 8 : i * 8 + 8]))
        return y

    x = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)
    np.testing.assert_array_equal(simulate_kernel(kernel, x), x)
    assert len(flags) == 4
    assert flags[0] is flags[1] is flags[2]
    assert flags[3] is None  # every element is written
