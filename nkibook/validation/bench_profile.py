"""``python -m nkibook.validation.bench_profile``: what `nkisim.profile` costs on this machine.

A profile traces a kernel and schedules its instructions; both take time in proportion to how many
there are. The findings of its timeline, made when they are asked for, schedule up to some thousand
of them again for each question.

Some kernels, large ones of different kinds, are profiled in a process each: what others leave
behind in memory makes the same profile up to twice as slow. Of some rounds the quickest one counts,
as `timeit` advises: whatever else the machine does only adds to it. The slowest one is told, too.
All kernels of the validation page follow, once each, in one process.
"""

from __future__ import annotations

import multiprocessing
import platform
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from ml_dtypes import bfloat16

import nkisim
from kernels.add.neuronxcc import TILE_COLS, TILE_ROWS, nki_tensor_add_kernel
from kernels.attention.neuronxcc import nki_attention_kernel
from nkibook.bench import describe_machine
from nkibook.validation import (
    attention,
    convolution,
    layernorm,
    mamba,
    matmul,
    nkibench,
    points,
    points_trn2,
)
from nkisim.runtime.kernel import Kernel

WORST = 10.0
"""Seconds that the profile of one kernel may take, on 2 cores."""

TOGETHER = 100.0
"""Seconds that the profiles of all kernels of the validation page may take together."""

ROUNDS = 5


def loops_of_python(a, b):
    """a + b in tiles, in loops over Python's `range`."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // TILE_ROWS):
        for j in range(a.shape[1] // TILE_COLS):
            at = nl.ds(i * TILE_ROWS, TILE_ROWS), nl.ds(j * TILE_COLS, TILE_COLS)
            nl.store(out[at], nl.load(a[at]) + nl.load(b[at]))
    return out


def branches(a, b):
    """a + b in tiles of a checkerboard, a - b in the others."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[0] // TILE_ROWS):
        for j in nl.affine_range(a.shape[1] // TILE_COLS):
            at = nl.ds(i * TILE_ROWS, TILE_ROWS), nl.ds(j * TILE_COLS, TILE_COLS)
            left, right = nl.load(a[at]), nl.load(b[at])
            nl.store(out[at], left - right if (i + j) % 2 else left + right)
    return out


def experts(x, up, down):
    """Each tile of tokens of x (tokens, 512) through one of some pairs of layers, up (experts, 512,
    1024) and down (experts, 1024, 512), that a table of Python names: loops that are unrolled."""
    tokens, width = x.shape
    count, _, inner = up.shape
    steps, parts = width // 128, inner // 128
    chosen = [(5 * i + i // 7) % count for i in nl.static_range(tokens // TILE_ROWS)]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(tokens // TILE_ROWS):
        e, at = chosen[i], nl.ds(i * TILE_ROWS, TILE_ROWS)
        turned = [nl.load_transpose2d(x[at, nl.ds(s * 128, 128)]) for s in nl.static_range(steps)]
        hidden = []
        for p in nl.static_range(parts):
            sums = nl.zeros((128, TILE_ROWS), nl.float32, buffer=nl.psum)
            for s in nl.static_range(steps):
                weights = nl.load(up[e, nl.ds(s * 128, 128), nl.ds(p * 128, 128)])
                sums += nisa.nc_matmul(weights, turned[s])
            hidden.append(nisa.activation(nl.silu, sums, dtype=x.dtype))
        result = nl.zeros((TILE_ROWS, width), nl.float32, buffer=nl.psum)
        for p in nl.static_range(parts):
            weights = nl.load(down[e, nl.ds(p * 128, 128), :])
            result += nisa.nc_matmul(hidden[p], weights)
        nl.store(out[at, :], nisa.tensor_copy(result, dtype=x.dtype))
    return out


def generated(a, b):
    """a @ b as a compiler writes it, a (m, k) and b (k, n): all tiles are kept in a few tensors,
    with an axis for each loop around them."""
    (m, k), n = a.shape, b.shape[1]
    rows, inner, wide = m // 128, k // 128, n // 512
    out = nl.ndarray((m, n), a.dtype, buffer=nl.shared_hbm)
    p, f, h = nl.arange(128)[:, None], nl.arange(128)[None, :], nl.arange(512)[None, :]
    part, width = nl.par_dim(128), 512
    left = nl.ndarray((rows, inner, part, 128), a.dtype)
    turned = nl.zeros((rows, inner, part, 128), nl.float32, buffer=nl.psum)
    moved = nl.ndarray((rows, inner, part, 128), a.dtype)
    right = nl.ndarray((wide, inner, part, width), b.dtype)
    sums = nl.zeros((wide, rows, part, width), nl.float32, buffer=nl.psum)
    done = nl.ndarray((wide, rows, part, width), a.dtype)
    for i in nl.affine_range(rows):
        for j in nl.affine_range(inner):
            left[i, j, p, f] = nl.load(a[i * 128 + p, j * 128 + f])
            turned[i, j, p, f] = nisa.nc_transpose(left[i, j, p, f], engine=nisa.tensor_engine)
            moved[i, j, p, f] = nl.copy(turned[i, j, p, f], dtype=a.dtype)
    for w in nl.affine_range(wide):
        for j in nl.affine_range(inner):
            right[w, j, p, h] = nl.load(b[j * 128 + p, w * width + h])
        for i in nl.affine_range(rows):
            for j in nl.affine_range(inner):
                sums[w, i, p, h] += nisa.nc_matmul(moved[i, j, p, f], right[w, j, p, h])
            done[w, i, p, h] = nl.copy(sums[w, i, p, h], dtype=a.dtype)
            nl.store(out[i * 128 + p, w * width + h], done[w, i, p, h])
    return out


def cases() -> Iterator[tuple[str, Kernel, tuple]]:
    """What is profiled: a name, a kernel that was not traced yet, and its arguments."""

    def spec(*shape: int, dtype: Any = np.float32) -> nkisim.TensorSpec:
        return nkisim.TensorSpec(shape, np.dtype(dtype))

    grid = (80, 125)  # three arrays of 10 GB, which HBM holds
    wide = spec(grid[0] * TILE_ROWS, grid[1] * TILE_COLS)
    yield "add on a grid", Kernel(nki_tensor_add_kernel.func)[grid], (wide, wide)
    left, right = spec(8192, 8192, dtype=bfloat16), spec(8192, 8192, dtype=bfloat16)
    yield "matmul, operands hoisted", Kernel(matmul.matmul_hoisted.func), (left, right)
    row = spec(8192)
    tall = spec(128 * 2000, 8192)
    yield "LayerNorm", Kernel(layernorm.layernorm_v1.func), (tall, row, row)
    plane, column = spec(1, 2048, 8192), spec(1, 16, 8192)
    mamba_args = (plane, plane, spec(2048, 16), column, column)
    yield "Mamba, in tiles of the sequence", Kernel(mamba.mamba_v3.func), mamba_args
    batch = spec(16, 4096, 64), spec(16, 64, 4096)
    yield "batched matmul and softmax", Kernel(nkibench.bmm_softmax.func), batch
    block = spec(8192, 4096, dtype=bfloat16), spec(8192, 2048, dtype=bfloat16)
    yield "matmul, in blocks", Kernel(matmul.matmul_full.func), block
    whole = spec(128, 4096)
    yield "attention, through HBM", Kernel(attention.through_hbm.func), (whole, whole, whole)
    image, weights = spec(1, 256, 224, 224), spec(256, 256, 3, 3)
    yield "convolution", Kernel(convolution.conv2d.func), (image, weights, spec(256, 1), 1)
    square = spec(64 * TILE_ROWS, 128 * TILE_COLS)
    yield "add in loops of Python", Kernel(loops_of_python), (square, square)
    small = spec(32 * TILE_ROWS, 32 * TILE_COLS)
    yield "add or subtract, by the loop index", Kernel(branches), (small, small)
    pair = spec(4096, 2048, dtype=bfloat16), spec(2048, 4096, dtype=bfloat16)
    yield "matmul as a compiler writes it", Kernel(generated), pair
    long = spec(1, 64 * TILE_ROWS, 128)
    causal = long, long, long, 128**-0.5, True
    yield "causal attention", Kernel(nki_attention_kernel.func), causal
    layers = spec(8, 512, 1024, dtype=bfloat16), spec(8, 1024, 512, dtype=bfloat16)
    tokens = spec(64 * TILE_ROWS, 512, dtype=bfloat16)
    yield "a layer of experts, unrolled", Kernel(experts), (tokens, *layers)


def published() -> Iterator[tuple[str, Kernel, tuple]]:
    """Name, kernel and arguments of the kernels of the validation page, each once."""
    known = set()
    for point in (*points.POINTS, *points_trn2.POINTS):
        key = point.kernel, point.core, repr(point.args)
        if key not in known and point.how != "slope":  # those are of a few instructions
            known.add(key)
            where = "" if point.core == "v2" else " on trn2"
            yield point.name + where, Kernel(point.function.func).on(point.machine), point.args


class Cost(NamedTuple):
    """What a profile has cost.

    Attributes:
        instructions: how many the kernel has.
        first: seconds for a kernel that was not traced before.
        again: seconds once it was.
        findings: seconds that the findings of its timeline take, when they are asked for.
    """

    instructions: int
    first: float
    again: float
    findings: float

    @property
    def each(self) -> tuple[float, float]:
        """Microseconds an instruction, the first time and again."""
        return self.first / self.instructions * 1e6, self.again / self.instructions * 1e6


def _cost(kernel: Kernel, args: tuple) -> Cost:
    """What two profiles of a kernel cost, the first of which traces it."""
    seconds = []
    with nkisim.checks(sbuf="warn"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some spill, which is the point of their chapter
        for _ in range(2):
            start = perf_counter()
            timeline = nkisim.profile(kernel, *args)
            seconds.append(perf_counter() - start)
        start = perf_counter()
        _ = timeline.findings
        first, again = seconds
        return Cost(timeline.instructions, first, again, perf_counter() - start)


def _cost_of_case(name: str) -> Cost:
    """What profiles of one of the cases cost, after one of a small other kernel."""
    small = nkisim.TensorSpec((2 * TILE_ROWS, 2 * TILE_COLS), np.dtype(np.float32))
    nkisim.profile(Kernel(loops_of_python), small, small)
    return next(_cost(kernel, args) for n, kernel, args in cases() if n == name)


def _cost_apart(name: str) -> Cost:
    """What profiles of one of the cases cost in a process of their own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_cost_of_case, name).result()


def _tell_cases() -> None:
    """Print what each case costs. The rounds of a case are spread over all of the time: a machine
    may be slow for half a minute."""
    rounds: dict[str, list[Cost]] = {name: [] for name, _, _ in cases()}
    for at in range(ROUNDS):
        for name, costs in rounds.items():
            costs.append(_cost_apart(name))
            print(f"round {at + 1} of {ROUNDS}, profile of {name}: {costs[-1].first:.2f} s, "
                  f"again {costs[-1].again:.2f} s", file=sys.stderr)  # fmt: skip
    for name, costs in rounds.items():
        of = list(zip(*costs, strict=True))
        cost, most = Cost(*map(min, of)), Cost(*map(max, of))
        first, again = (
            f"{t:.1f} µs each (up to {slow:.1f})"
            for t, slow in zip(cost.each, most.each, strict=True)
        )
        print(
            f"profile of {name}: {cost.instructions:,} instructions in {cost.first:.2f} s, "
            f"measured ({_verdict(cost.first, WORST)}); with tracing {first}, once it is traced "
            f"{again}; its findings {cost.findings:.2f} s"
        )


def _tell_published() -> None:
    """Print what the kernels of the validation page cost, each profiled once."""
    costs = {}
    for name, kernel, args in published():
        costs[name] = _cost(kernel, args)
        print(f"profile of {name}: {costs[name].first:.2f} s", file=sys.stderr)
    total = sum(cost.first for cost in costs.values())
    worst = max(costs, key=lambda name: costs[name].first)
    slowest = costs[worst].first
    each = median(cost.each[0] for cost in costs.values())
    print(
        f"{len(costs)} kernels of the validation page, measured: {total:.0f} s together "
        f"({_verdict(total, TOGETHER)}), the slowest {slowest:.1f} s ({worst}; "
        f"{_verdict(slowest, WORST)}), median {each:.1f} µs an instruction with tracing; their "
        f"findings {sum(cost.findings for cost in costs.values()):.0f} s"
    )


def _verdict(seconds: float, limit: float) -> str:
    return f"target: at most {limit:g} s, {'met' if seconds <= limit else 'missed'}"


def main() -> int:
    """Print what a profile of each case costs, the first time and once the kernel is traced, and
    what the kernels of the validation page cost together."""
    _tell_cases()
    _tell_published()
    print(f"quickest of {ROUNDS}; {describe_machine()}, Python {platform.python_version()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
