"""``python -m validation.bench_profile``: what `nkisim.profile` costs on this machine.

A profile traces a kernel and schedules its instructions. Both take time in proportion to how many
there are; the aim is at most 40 microseconds each. The findings of its
timeline, made when they are asked for, schedule up to some thousand of them again for each
question.

Each kernel is profiled in a process of its own: what others leave behind in memory makes the same
profile up to twice as slow. Of some rounds the quickest one is judged, as `timeit` advises:
whatever else the machine does only adds to it. The slowest one is told, too. How Python was built
counts as well: one without profile-guided optimisation took 7 to 15 % longer.
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
from typing import NamedTuple

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from ml_dtypes import bfloat16

import nkisim
from kernels.add.nki_kernels import TILE_COLS, TILE_ROWS, nki_tensor_add_kernel
from nkibook.bench import describe_machine
from nkisim.runtime.kernel import Kernel
from validation import (
    attention,
    convolution,
    layernorm,
    mamba,
    matmul,
    nkibench,
    points,
    points_trn2,
)

TARGET_US = 40.0
ROUNDS = 5

# Of the validation page, kernels with so many instructions count: smaller ones take some
# milliseconds, whatever they hold.
LEAST = 2_000


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


def causal_attention(q, k, v):
    """Softmax of the products of each row of q with the rows of k up to its own, times v: q, k and
    v (length, 128)."""
    length, head = q.shape
    tiles = length // TILE_ROWS
    row, column = nl.mgrid[0:TILE_ROWS, 0:TILE_ROWS]
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    keys = nl.ndarray((tiles, nl.par_dim(head), TILE_ROWS), dtype=nl.bfloat16)
    values = nl.ndarray((tiles, nl.par_dim(TILE_ROWS), head), dtype=nl.bfloat16)
    for j in nl.affine_range(tiles):
        part = nl.ds(j * TILE_ROWS, TILE_ROWS)
        keys[j] = nl.load_transpose2d(k[part, :], dtype=nl.bfloat16)
        values[j] = nl.load(v[part, :], dtype=nl.bfloat16)
    for i in nl.affine_range(tiles):
        rows = nl.ds(i * TILE_ROWS, TILE_ROWS)
        query = nl.multiply(nl.load_transpose2d(q[rows, :]), head**-0.5, dtype=nl.bfloat16)
        scores = nl.full((TILE_ROWS, length), -1e30, dtype=nl.float32)
        for j in nl.affine_range(tiles):
            part = nl.ds(j * TILE_ROWS, TILE_ROWS)
            if j < i:
                scores[:, part] = nisa.nc_matmul(query, keys[j])
            elif j == i:
                square = nisa.nc_matmul(query, keys[j])
                scores[:, part] = nisa.affine_select(row >= column, square, -1e30)
        least = nisa.tensor_reduce(np.max, scores, axis=(1,), negate=True)
        powers = nisa.activation(np.exp, scores, bias=least, dtype=nl.bfloat16)
        total = nl.zeros((TILE_ROWS, head), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(tiles):
            if j <= i:
                part = nl.ds(j * TILE_ROWS, TILE_ROWS)
                turned = nl.copy(nisa.nc_transpose(powers[:, part], engine=nisa.tensor_engine))
                total += nisa.nc_matmul(turned, values[j])
        sums = nisa.tensor_reduce(np.add, powers, axis=(1,), dtype=nl.float32)
        nl.store(out[rows, :], nl.divide(total, sums))
    return out


def block_sparse_attention(q, k, v):
    """Attention of each tile of rows of q to the tiles of k and v that a list of Python names for
    it: q, k and v (length, 128)."""
    length, head = q.shape
    tiles = length // TILE_ROWS
    wanted = [sorted({0, i // 3, i // 2, max(i - 1, 0), i}) for i in range(tiles)]
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    known = {}
    for i, blocks in enumerate(wanted):
        row = q[nl.ds(i * TILE_ROWS, TILE_ROWS), :]
        query = nl.copy(nl.transpose(nl.load(row) * head**-0.5), dtype=nl.bfloat16)
        top = nl.full((TILE_ROWS, 1), -3e38, nl.float32)
        sums = nl.zeros((TILE_ROWS, 1), nl.float32)
        total = nl.zeros((TILE_ROWS, head), nl.float32)
        for j in blocks:
            if j not in known:
                at = nl.ds(j * TILE_ROWS, TILE_ROWS)
                turned = nl.copy(nl.transpose(nl.load(k[at, :])), dtype=nl.bfloat16)
                known[j] = turned, nl.load(v[at, :], dtype=nl.bfloat16)
            keys, values = known[j]
            scores = nisa.nc_matmul(query, keys)
            best = nl.maximum(top, nl.max(scores, axis=1, keepdims=True))
            powers = nl.exp(scores - best)
            change = nl.exp(top - best)
            sums = sums * change + nl.sum(powers, axis=1, keepdims=True)
            weights = nl.copy(nl.transpose(powers), dtype=nl.bfloat16)
            total = total * change + nisa.nc_matmul(weights, values)
            top = best
        nl.store(out[nl.ds(i * TILE_ROWS, TILE_ROWS), :], total / sums)
    return out


def experts(x, up, down):
    """Each tile of tokens of x (tokens, 512) through one of some pairs of layers, up (experts, 512,
    1024) and down (experts, 1024, 512), that a table of Python names: loops that are unrolled."""
    tokens, width = x.shape
    count, _, inner = up.shape
    steps, parts = width // 128, inner // 128
    chosen = [(5 * i + i // 7) % count for i in range(tokens // TILE_ROWS)]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(tokens // TILE_ROWS):
        e, at = chosen[i], nl.ds(i * TILE_ROWS, TILE_ROWS)
        turned = [nl.load_transpose2d(x[at, nl.ds(s * 128, 128)]) for s in range(steps)]
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

    def spec(*shape: int, dtype: object = np.float32) -> nkisim.TensorSpec:
        return nkisim.TensorSpec(shape, np.dtype(dtype))

    grid = (400, 125)
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
    square = spec(128 * TILE_ROWS, 128 * TILE_COLS)
    yield "add in loops of Python", Kernel(loops_of_python), (square, square)
    small = spec(32 * TILE_ROWS, 32 * TILE_COLS)
    yield "add or subtract, by the loop index", Kernel(branches), (small, small)
    pair = spec(4096, 2048, dtype=bfloat16), spec(2048, 4096, dtype=bfloat16)
    yield "matmul as a compiler writes it", Kernel(generated), pair
    long = spec(64 * TILE_ROWS, 128)
    yield "causal attention", Kernel(causal_attention), (long, long, long)
    yield "block-sparse attention, unrolled", Kernel(block_sparse_attention), (long, long, long)
    layers = spec(8, 512, 1024, dtype=bfloat16), spec(8, 1024, 512, dtype=bfloat16)
    tokens = spec(64 * TILE_ROWS, 512, dtype=bfloat16)
    yield "a layer of experts, unrolled", Kernel(experts), (tokens, *layers)


def published() -> Iterator[tuple[str, Kernel, tuple]]:
    """The same for the kernels of the validation page, each once."""
    known = set()
    for point in (*points.POINTS, *points_trn2.POINTS):
        key = point.kernel, point.core, repr(point.args)
        if key not in known and point.how != "slope":  # those are of a few instructions
            known.add(key)
            where = "" if point.core == "v2" else " on trn2"
            yield point.name + where, Kernel(point.function.func, machine=point.machine), point.args


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


class Costs(NamedTuple):
    """What the profiles of a kernel have cost in some rounds.

    Attributes:
        least, most: of each time by itself.
    """

    least: Cost
    most: Cost


_GROUPS = {"cases": cases, "published": published}


def _cost(group: str, name: str) -> Cost:
    """What profiles of one of the kernels cost, after one of a small other kernel."""
    kernel, args = next((k, args) for n, k, args in _GROUPS[group]() if n == name)
    seconds = []
    with nkisim.checks(sbuf="warn"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some spill, which is the point of their chapter
        small = nkisim.TensorSpec((2 * TILE_ROWS, 2 * TILE_COLS), np.dtype(np.float32))
        nkisim.profile(Kernel(loops_of_python), small, small)
        for _ in range(2):
            start = perf_counter()
            timeline = nkisim.profile(kernel, *args)
            seconds.append(perf_counter() - start)
            count = timeline.instructions
            start = perf_counter()
            _ = timeline.findings
            findings = perf_counter() - start
            del timeline
    return Cost(count, *seconds, findings)


def _cost_apart(group: str, name: str) -> Cost:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_cost, group, name).result()


def _measured(group: str, least: int) -> dict[str, Costs]:
    """By name, those of the kernels with at least so many instructions. The rounds of a kernel are
    spread over all of the time: a machine may be slow for half a minute."""
    names = [name for name, _, _ in _GROUPS[group]()]
    rounds: dict[str, list[Cost]] = {name: [] for name in names}
    for at in range(ROUNDS):
        for name in names:
            cost = _cost_apart(group, name)
            if cost.instructions >= least:
                rounds[name].append(cost)
                print(f"round {at + 1} of {ROUNDS}, profile of {name}: {cost.first:.2f} s, "
                      f"again {cost.again:.2f} s", file=sys.stderr)  # fmt: skip
        names = [name for name in names if rounds[name]]
    found = {}
    for name in names:
        of = list(zip(*rounds[name], strict=True))
        found[name] = Costs(Cost(*map(min, of)), Cost(*map(max, of)))
    return found


def _tell_all(costs: dict[str, Costs]) -> None:
    for name, (cost, most) in costs.items():
        first, again = (
            f"{t:.1f} µs each ({'met' if t <= TARGET_US else 'missed'}; up to {slow:.1f})"
            for t, slow in zip(cost.each, most.each, strict=True)
        )
        print(
            f"profile of {name}: {cost.instructions:,} instructions in {cost.first:.2f} s, "
            f"measured; with tracing {first}, once it is traced {again}; its findings "
            f"{cost.findings:.2f} s"
        )


def _tell_in_short(held: dict[str, Costs]) -> None:
    for at, when in enumerate(("with tracing", "once they are traced")):
        each = {name: cost.least.each[at] for name, cost in held.items()}
        dearest = max(each, key=each.__getitem__)
        missed = sum(t > TARGET_US for t in each.values())
        slow = sum(cost.most.each[at] > TARGET_US for cost in held.values())
        print(
            f"{len(held)} kernels of the validation page with {LEAST:,} instructions or more, "
            f"{when}: median {median(each.values()):.1f} µs each, most {each[dearest]:.1f} "
            f"({dearest}), measured; {missed} above the target ({slow} in their slowest round)"
        )
    findings = {name: cost.least.findings for name, cost in held.items()}
    dearest = max(findings, key=findings.__getitem__)
    print(
        f"their findings: median {median(findings.values()):.2f} s, most {findings[dearest]:.2f} s "
        f"({dearest}), measured"
    )


def main() -> int:
    """Print what a profile of each kernel costs an instruction, the first time and once the kernel
    is traced, and in short what those of the validation page cost."""
    _tell_all(_measured("cases", 1))
    _tell_in_short(_measured("published", LEAST))
    python = f"Python {platform.python_version()}"
    print(f"target: at most {TARGET_US:g} µs; quickest of {ROUNDS}, {describe_machine()}, {python}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
