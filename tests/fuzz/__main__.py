"""`python tests/fuzz [COUNT] [FIRST]`: random kernels in both dialects, until one fails."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import nkisim

nkisim.install()

from fuzz_check import check_neuronxcc, check_nki  # noqa: E402  which need neuronxcc and nki


def main() -> int:
    """Run them, with a line every some hundred."""
    count, first = (*map(int, sys.argv[1:]), *(10_000, 0)[len(sys.argv) - 1 :])
    start = perf_counter()
    for n, seed in enumerate(range(first, first + count), 1):
        check_neuronxcc(seed)
        check_nki(seed)
        if n % 500 == 0 or n == count:
            print(
                f"{n:,} of {count:,} kernels in both dialects, {perf_counter() - start:.0f} s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
