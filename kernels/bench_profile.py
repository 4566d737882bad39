"""``python -m kernels.bench_profile``: what `nkisim.profile` costs on this machine.

A profile traces a kernel and schedules its instructions. Both take time in proportion to how many
there are; the aim is at most 20 microseconds each.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from statistics import median
from time import perf_counter

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from ml_dtypes import bfloat16

import nkisim
from kernels.add.nki_kernels import TILE_COLS, TILE_ROWS, nki_tensor_add_kernel
from kernels.bench import describe_machine
from kernels.validation import attention, convolution, layernorm, mamba, matmul, nkibench
from nkisim.kernel import Kernel

TARGET_US = 20.0
ROUNDS = 3


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
    long = spec(64 * TILE_ROWS, 128)
    yield "causal attention", Kernel(causal_attention), (long, long, long)


def _profile(kernel: Kernel, args: tuple) -> tuple[float, int]:
    """Seconds that a profile takes, and how many instructions it has."""
    start = perf_counter()
    timeline = nkisim.profile(kernel, *args)
    return perf_counter() - start, timeline.instructions


def main() -> int:
    """Print, for each kernel, its instructions and the median time of a profile for each, and of a
    second profile, for which the kernel is not traced again."""
    times: dict[str, list[tuple[float, float]]] = {}
    counts: dict[str, int] = {}
    for _ in range(ROUNDS):
        for name, kernel, args in cases():
            gc.collect()  # the traces of the case before
            with nkisim.checks(sbuf="warn"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some spill, which is the point of their chapter
                first, counts[name] = _profile(kernel, args)
                second, _ = _profile(kernel, args)
            times.setdefault(name, []).append((first, second))
            print(f"profile of {name}: {first:.2f} s, again {second:.2f} s", file=sys.stderr)
    for name, samples in times.items():
        first, second = map(median, zip(*samples, strict=True))
        each, again = first / counts[name] * 1e6, second / counts[name] * 1e6
        met, met_again = ("met" if t <= TARGET_US else "missed" for t in (each, again))
        print(
            f"profile of {name}: {counts[name]:,} instructions in {first:.2f} s, measured; "
            f"with tracing {each:.1f} µs each ({met}), once it is traced {again:.1f} ({met_again})"
        )
    print(f"target: at most {TARGET_US:g} µs; median of {ROUNDS}, {describe_machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
