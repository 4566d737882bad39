"""Published latencies of NeuronCore-v2, and what the cost model says of the same kernels.

A point names its source and how it was measured. `POINTS` holds every one with a device time that
can be relied on (trust high or medium) and a kernel of ours; `EXCLUDED` says which others there are
and why they do not count. Reading this module traces nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from kernels import bench
from kernels.bench import Record

if TYPE_CHECKING:
    from nkisim.kernel import Kernel

SOURCES = {
    "matmul": "AWS Neuron SDK 2.26 documentation, NKI tutorial on matrix multiplication",
    "mamba": "AWS Neuron SDK 2.26 documentation, NKI tutorial on fused Mamba",
    "layernorm": "AWS Neuron SDK 2.26 documentation, NKI tutorial on LayerNorm",
    "exp": "AWS Neuron SDK 2.26 documentation, guide to profiling NKI kernels",
    "cs149": "github.com/robertpare17/asst4-trainium, solution.md (Stanford CS149 assignment)",
    "trace": "hardware traces (NTFF) in github.com/Ericcsr/asst4-trainium and "
    "github.com/Yousef02/149-asst4-trainium, decoded",
    "triton-viz": "github.com/Deep-Learning-Profiling-Tools/triton-viz, downloads/Status_new.md",
    "nkibench": "github.com/zhang677/AccelOpt, NKIBench baselines on trn1.32xlarge, mean of 10 "
    "runs (profile_results.csv)",
    "autocomp": "github.com/ucb-bar/autocomp, examples/trn-tutorial: slowest of 10 runs on "
    "trn1.2xlarge",
    "memory": "public note on memory bandwidth of trn1.2xlarge, 2026, author not identified",
}


@dataclass(frozen=True)
class Point:
    """One published number.

    Attributes:
        name: kernel and size.
        published_us: microseconds.
        source: key in SOURCES.
        how: what was measured: "latency" (with launch overhead), "body" (without), or "slope"
            (microseconds for each repetition).
        kernel: `module.function` of this package.
        args: makes the arguments, from the number of iterations of the outermost loop.
        repeats: that number in the published kernel.
        sample: two smaller numbers; see `modelled_us`.
        trust: "high" or "medium".
        family: points of one plot colour.
    """

    name: str
    published_us: float
    source: str
    how: str
    kernel: str
    args: Callable[[int], tuple]
    trust: str
    family: str
    repeats: int = 1
    sample: tuple[int, int] = (2, 4)

    @property
    def shortened(self) -> bool:
        """Whether the model runs fewer iterations than the published kernel has."""
        return self.how != "slope" and self.repeats > self.sample[1]

    def modelled_us(self, full: bool = False) -> float:
        """What the cost model gives, in microseconds.

        A kernel whose outermost loop does the same again and again is modelled for two small
        numbers of iterations, and the line through both is followed to the published number.

        Args:
            full: model all iterations instead, which takes seconds for the large kernels.
        """
        few, many = self.sample
        if self.how == "slope":
            return (self._at(many) - self._at(few)) / (many - few)
        if full or not self.shortened:
            return self._at(self.repeats)
        start = self._at(few)
        return start + (self.repeats - few) * (self._at(many) - start) / (many - few)

    @property
    def function(self) -> Kernel:
        """The kernel itself."""
        module, function = self.kernel.split(".")
        return getattr(import_module(f"kernels.validation.{module}"), function)

    def _at(self, repeats: int) -> float:
        import nkisim

        with nkisim.checks(sbuf="off"):  # some of them spill, which is the point
            found = nkisim.profile(self.function, *self.args(repeats))
        return found.latency_us if self.how == "latency" else found.body_us


def _spec(*shape: int, dtype: object = np.float32) -> object:
    import nkisim

    return nkisim.TensorSpec(shape, np.dtype(dtype))


def _bf16(*shape: int) -> object:
    from ml_dtypes import bfloat16

    return _spec(*shape, dtype=bfloat16)


def _mamba(length: int) -> Callable[[int], tuple]:
    def args(tiles: int) -> tuple:
        row = _spec(1, 16, length)
        plane = _spec(1, 128 * tiles, length)
        return plane, plane, _spec(128 * tiles, 16), row, row

    return args


def _conv(dtype: object, pool: int) -> Callable[[int], tuple]:
    def args(row_pairs: int) -> tuple:
        x = _spec(1, 256, 2 * row_pairs + 2, 224, dtype=dtype)
        weights = _spec(256, 256, 3, 3, dtype=dtype)
        return x, weights, _spec(256, 1, dtype=dtype), pool

    return args


def _points() -> list[Point]:
    points = [
        # K = N = 8192 and M = 4096; the outermost loop is over blocks of n, m and m.
        Point("matmul, full", 6970, "matmul", "latency", "matmul.matmul_full",
              lambda n: (_bf16(8192, 4096), _bf16(8192, 1024 * n)), "high", "matmul", 8, (1, 2)),
        Point("matmul, blocked", 22070, "matmul", "latency", "matmul.matmul_blocked",
              lambda m: (_bf16(8192, 256 * m), _bf16(8192, 8192)), "medium", "matmul", 16, (1, 2)),
        Point("matmul, hoisted", 42960, "matmul", "latency", "matmul.matmul_hoisted",
              lambda m: (_bf16(8192, 128 * m), _bf16(8192, 8192)), "medium", "matmul", 32, (1, 2)),
    ]  # fmt: skip
    for channels, length, version, us, trust, note in _MAMBA:
        points.append(
            Point(f"mamba v{version}, {channels} x {length}{note}", us, "mamba", "latency",
                  f"mamba.mamba_v{version}", _mamba(length), trust, "Mamba", channels // 128)
        )  # fmt: skip
    for version, us in ((1, 2311), (2, 1969)):
        points.append(
            Point(f"layernorm v{version}, 4096 x 8192", us, "layernorm", "latency",
                  f"layernorm.layernorm_v{version}",
                  lambda n: (_spec(128 * n, 8192), _spec(8192), _spec(8192)),
                  "medium", "normalisation", 32, (6, 10))
        )  # fmt: skip
    points.append(
        Point("exp, 250 x 512", 29.26, "exp", "latency", "elementwise.exp",
              lambda _: (_spec(250, 512),), "high", "elementwise")
    )  # fmt: skip
    for name, us, source, how, kernel, size, tile in _ADDS:
        step = tile if kernel == "add_columns" else 128 * tile
        points.append(
            Point(f"add, {name}", us, source, how, f"vector_add.{kernel}",
                  lambda n, step=step, tile=tile: (_spec(n * step), _spec(n * step), tile),
                  "high", "elementwise", size // step, (50, 100))
        )  # fmt: skip
    for dtype, pool, us in _CONVS:
        points.append(
            Point(f"convolution {np.dtype(dtype)}, pool {pool}", us, "cs149", "latency",
                  "convolution.conv2d", _conv(dtype, pool), "medium", "convolution", 111, (15, 25))
        )  # fmt: skip
    for columns, us in ((128, 187), (512, 701), (2048, 2839), (4096, 5740)):
        points.append(
            Point(f"stride-2 stores, {columns}", us, "triton-viz", "latency",
                  "dma.strided_stores", lambda _, columns=columns: (_spec(128, columns),),
                  "medium", "DMA")
        )  # fmt: skip
    points += [
        Point("dependent load, a hop", 2.267, "triton-viz", "slope", "dma.chase",
              lambda n: (_spec(1024, 1, dtype=np.uint32), _spec(1, 1, dtype=np.uint32), n),
              "high", "DMA", sample=(10, 20)),
        Point("8 KiB to HBM and back", 2.618, "triton-viz", "slope", "dma.round_trips",
              lambda n: (_spec(128, 16), n), "high", "DMA", sample=(10, 20)),
    ]  # fmt: skip
    points += [
        Point(f"{name}, NKIBench", us, "nkibench", "latency", kernel, args, "high", family,
              repeats, sample)
        for name, us, kernel, args, family, repeats, sample in (
            ("SiLU 4096 x 7168", 1333.2, "nkibench.silu",
             lambda n: (_spec(128, n, 7168),), "elementwise", 32, (2, 4)),
            ("AdamW 10944 x 2048", 1999.8, "nkibench.adamw",
             lambda n: (_spec(128 * n, 2048),) * 4, "elementwise", 86, (4, 8)),
            ("rotary embedding 128 x 262144", 4333.0, "nkibench.rope",
             lambda n: (_spec(128, 512 * n), *(_spec(64, 512 * n),) * 2),
             "elementwise", 512, (20, 40)),
            ("batched matmul 16 x 4096 x 64 x 4096", 4610.9, "nkibench.bmm",
             lambda n: (_spec(n, 4096, 64), _spec(n, 64, 4096)), "matmul", 16, (1, 2)),
            ("batched matmul and softmax", 11999.6, "nkibench.bmm_softmax",
             lambda n: (_spec(n, 4096, 64), _spec(n, 64, 4096)), "matmul", 16, (1, 2)),
            ("mamba 256 x 7168", 2888.7, "mamba.mamba_v1",
             lambda n: _mamba(7168)(n), "Mamba", 2, (1, 2)),
            ("add, RMSNorm, matmul 4096 x 1024 x 2048", 1221.9, "nkibench.add_rmsnorm_matmul",
             lambda n: (_spec(128 * n, 1024), _spec(1024, 2048), _spec(128 * n, 1024), _spec(1024)),
             "normalisation", 32, (6, 10)),
            ("matmul, add, RMSNorm 4096 x 2048 x 2048", 2666.6, "nkibench.matmul_add_rmsnorm",
             lambda n: (_spec(128 * n, 2048), _spec(2048, 2048), _spec(128 * n, 2048), _spec(2048)),
             "normalisation", 32, (6, 10)),
        )
    ]  # fmt: skip
    for name, us in (("v1", 636), ("chunks", 359)):
        points.append(
            Point(f"mamba {name}, 256 x 2048, Autocomp", us, "autocomp", "latency",
                  f"mamba.mamba_{name}", _mamba(2048), "high", "Mamba", 2)
        )  # fmt: skip
    for name, kernel, us in (
        ("small heads", "small_heads", 558),
        ("small heads, fused", "small_heads_fused", 384),
    ):
        points.append(
            Point(f"attention, {name}, 4096 x 64", us, "autocomp", "latency",
                  f"attention.{kernel}", lambda n: (_spec(128 * n, 64), *(_spec(4096, 64),) * 2),
                  "high", "attention", 32, (16, 32))
        )  # fmt: skip
    points.append(
        Point("attention, through HBM, 4096 x 128", 3093, "autocomp", "latency",
              "attention.through_hbm", lambda n: (_spec(128, 128 * n), *(_spec(128, 4096),) * 2),
              "high", "attention", 32, (16, 32))
    )  # fmt: skip
    for gib, us in ((1, 3934), (2, 7867), (4, 15746), (8, 31463)):
        points.append(
            Point(f"read {gib} GiB", us, "memory", "body", "dma.read",
                  lambda n: (_spec(8, 128, 8192), n), "medium", "DMA", 256 * gib, (16, 32))
        )  # fmt: skip
    return points


# (channels, length, version, microseconds, trust, note). 16 states, fp32, batch 1.
_MAMBA = [
    (256, 512, 1, 172.93, "high", ", profile"),
    (4096, 512, 1, 2340, "high", ", profile"),
    (4096, 512, 2, 1610, "high", ", profile"),
    (4096, 8192, 2, 53330, "medium", ", profile"),
    *(
        (4096, length, version, us, "medium", "")
        for length, v2, v3 in (
            (512, 1600, 1600),
            (1024, 4400, 3300),
            (2048, 8900, 6600),
            (3072, 13100, 10100),
            (4096, 17600, 13300),
            (5120, 23700, 17300),
            (6144, 27500, 19600),
            (7168, 41300, 24200),
            (8192, 52200, 27800),
        )
        for version, us in ((2, v2), (3, v3))
    ),
]

# (name, microseconds, source, how, kernel, elements, rows or columns of a tile)
_ADDS = [
    ("1 x 1 tiles", 27404, "cs149", "latency", "add_columns", 25600, 1),
    ("128 x 1 tiles", 206, "cs149", "latency", "add_columns", 25600, 128),
    ("128 x 2 tiles", 53, "cs149", "latency", "add_tiles", 25600, 2),
    ("128 x 200 tiles", 19, "cs149", "latency", "add_tiles", 25600, 200),
    ("128 x 1000 tiles", 30, "cs149", "latency", "add_tiles", 256000, 1000),
    ("128 x 1000 tiles, placed", 29, "cs149", "latency", "add_tiles", 256000, 1000),
    ("128 x 1000 tiles, profile", 29, "cs149", "latency", "add_tiles", 256000, 1000),
    ("128 x 2000 tiles, profile", 34, "cs149", "latency", "add_tiles", 256000, 2000),
    ("128 x 2000 tiles, trace 1", 17.817, "trace", "body", "add_tiles", 256000, 2000),
    ("128 x 2000 tiles, trace 2", 17.96, "trace", "body", "add_tiles", 256000, 2000),
    ("128 x 1000 tiles, trace 1", 13.894, "trace", "body", "add_tiles", 256000, 1000),
    ("128 x 1000 tiles, trace 2", 14.107, "trace", "body", "add_tiles", 256000, 1000),
]

_CONVS = [
    (np.float32, 1, 3681),
    (np.float16, 1, 1060),
    (np.float32, 2, 3741),
    (np.float16, 2, 1275),
]

POINTS = _points()


def published(name: str) -> Record:
    """The published number of the point of this name, as a record for a plot.

    Raises:
        KeyError: no point has this name.
    """
    point = {point.name: point for point in POINTS}[name]
    return bench.published(name, point.published_us / 1e6, source=SOURCES[point.source])


EXCLUDED = {
    "matmul, tiled: 51.80 ms": "a later compiler takes 20.99 ms for the same source",
    "GIOU on inf2: 211, 293 and 61 us": "host clock around lazy calls that were not waited for",
    "trntensor matmul: 0.67 to 1.0 ms": "host clock: time to dispatch a call, not of the kernel",
    "Tilebench layernorm: 54 us": "the kernel's source is not known",
    "Stable Diffusion and flash attention, fused RMSNorm: limits of AWS's own tests": "limits that "
    "a test asserts, with slack, not measurements",
    "NKIBench: matmul, RMSNorm and matmul, transposed matmul, GQA, LoRA, SwiGLU": "no version "
    "of ours yet",
    "Autocomp: matmul, 20.99 to 6.96 ms, and the other steps of attention and Mamba": "no version "
    "of ours yet",
    "Autocomp: depthwise convolution, 8.01 to 0.46 ms": "the compiler makes one instruction of up "
    "to 128 iterations of a loop; the model does not, and is far too slow",
    "convolution limits: 4300 and 1300 us": "limits for students to beat, not measurements",
}
