"""Published latencies of NeuronCore-v2.

A point names its source and how it was measured. `POINTS` holds every one with a device time that
can be relied on (trust high or medium) and a kernel of ours; `EXCLUDED` says which others there are
and why they do not count. Reading this module traces nothing.
"""

from __future__ import annotations

import numpy as np

from nkibook import bench
from nkibook.bench import Record
from nkibook.validation.point import Point, bf16, spec

SOURCES = {
    "matmul": "AWS Neuron SDK 2.26 documentation, NKI tutorial on matrix multiplication",
    "mamba": "AWS Neuron SDK 2.26 documentation, NKI tutorial on fused Mamba",
    "layernorm": "AWS Neuron SDK 2.26 documentation, NKI tutorial on LayerNorm",
    "exp": "AWS Neuron SDK 2.26 documentation, guide to profiling NKI kernels",
    "cs149": "github.com/robertpare17/asst4-trainium, solution.md (Stanford CS149 assignment)",
    "cs149 again": "github.com/im-a-jin/CS149-asst4, writeup.tex (the same assignment)",
    "trace": "hardware traces (NTFF) in github.com/Ericcsr/asst4-trainium and "
    "github.com/Yousef02/149-asst4-trainium, decoded",
    "triton-viz": "github.com/Deep-Learning-Profiling-Tools/triton-viz, downloads/Status_new.md",
    "nkibench": "github.com/zhang677/AccelOpt, NKIBench baselines on trn1.32xlarge, mean of 10 "
    "runs (profile_results.csv)",
    "autocomp": "github.com/ucb-bar/autocomp, examples/trn-tutorial: slowest of 10 runs on "
    "trn1.2xlarge",
    "autocomp conv1d": "github.com/ucb-bar/autocomp, examples/trn-advanced, measured likewise; "
    "profiles in 'How we made AWS Trainium 17x faster (for conv1d)', UC Berkeley, 2025",
    "accelopt": "github.com/zhang677/AccelOpt, samples/nki, and the best of its runs on "
    "trn1.32xlarge (results/11110904_best_plan_id.csv)",
    "user": "a user of the simulator, on trn1.2xlarge: 27.93 and 70.4 TFLOPS, reported to us",
    "memory": "public note on memory bandwidth of trn1.2xlarge, 2026, author not identified",
}


def _mamba(channels: int, length: int) -> tuple:
    row, plane = spec(1, 16, length), spec(1, channels, length)
    return plane, plane, spec(channels, 16), row, row


def _conv(dtype: object, pool: int) -> tuple:
    x, weights = spec(1, 256, 224, 224, dtype=dtype), spec(256, 256, 3, 3, dtype=dtype)
    return x, weights, spec(256, 1, dtype=dtype), pool


def _points() -> list[Point]:
    pair = bf16(8192, 4096), bf16(8192, 8192)  # the left one transposed
    us: float
    points = [
        Point("matmul, full", 6970, "matmul", "latency", "matmul.matmul_full", pair, "high",
              "matmul"),
        Point("matmul, blocked", 22070, "matmul", "latency", "matmul.matmul_blocked", pair,
              "medium", "matmul"),
        Point("matmul, hoisted", 42960, "matmul", "latency", "matmul.matmul_hoisted", pair,
              "medium", "matmul"),
    ]  # fmt: skip
    for name, us, kernel, options in _GROUPS:
        points.append(
            Point(f"matmul, {name}, Autocomp", us, "autocomp", "latency", f"matmul.{kernel}",
                  (*pair, *options), "high", "matmul")
        )  # fmt: skip
    for channels, length, version, us, trust, note in _MAMBA:
        points.append(
            Point(f"mamba v{version}, {channels} x {length}{note}", us, "mamba", "latency",
                  f"mamba.mamba_v{version}", _mamba(channels, length), trust, "Mamba")
        )  # fmt: skip
    for version, us in ((1, 2311), (2, 1969)):
        points.append(
            Point(f"layernorm v{version}, 4096 x 8192", us, "layernorm", "latency",
                  f"layernorm.layernorm_v{version}",
                  (spec(4096, 8192), spec(8192), spec(8192)), "medium", "normalisation")
        )  # fmt: skip
    points.append(
        Point("exp, 250 x 512", 29.26, "exp", "latency", "elementwise.exp",
              (spec(250, 512),), "high", "elementwise")
    )  # fmt: skip
    for name, us, source, how, kernel, size, tile in _ADDS:
        points.append(
            Point(f"add, {name}", us, source, how, f"vector_add.{kernel}",
                  (spec(size), spec(size), tile), "high", "elementwise")
        )  # fmt: skip
    for dtype, pool, us in _CONVS:
        points.append(
            Point(f"convolution {np.dtype(dtype)}, pool {pool}", us, "cs149", "latency",
                  "convolution.conv2d", _conv(dtype, pool), "medium", "convolution")
        )  # fmt: skip
    for name, us, kernel, options in _DEPTHWISE:
        points.append(
            Point(f"depthwise convolution, {name}, Autocomp", us, "autocomp conv1d", "latency",
                  f"depthwise.{kernel}",
                  (spec(8, 512, 1, 2048), spec(512, 1, 1, 3), *options), "high", "convolution")
        )  # fmt: skip
    for columns, us in ((128, 187), (512, 701), (2048, 2839), (4096, 5740)):
        points.append(
            Point(f"stride-2 stores, {columns}", us, "triton-viz", "latency",
                  "dma.strided_stores", (spec(128, columns),), "medium", "DMA")
        )  # fmt: skip
    for transfer, row, rate in (("128 B", 128, 40.8), ("2 KiB", 2048, 207.5),
                            ("4 KiB", 4096, 220.0), ("32 KiB", 32768, 270.8)):  # fmt: skip
        points.append(
            Point(f"four reads, {transfer} rows", 4 * 128 * row / rate / 1e3, "triton-viz", "body",
                  "dma.reads", (spec(4, 128, row // 4),), "medium", "DMA")
        )  # fmt: skip
    points += [
        Point("dependent load, a hop", 2.267, "triton-viz", "slope", "dma.chase",
              (spec(1024, 1, dtype=np.uint32), spec(1, 1, dtype=np.uint32)), "high", "DMA"),
        Point("8 KiB to HBM and back", 2.618, "triton-viz", "slope", "dma.round_trips",
              (spec(128, 16),), "high", "DMA"),
    ]  # fmt: skip
    points += [
        Point(f"{name}, NKIBench", us, "nkibench", "latency", kernel, args, "high", family)
        for name, us, kernel, args, family in (
            ("SiLU 4096 x 7168", 1333.2, "nkibench.silu", (spec(128, 32, 7168),), "elementwise"),
            ("AdamW 10944 x 2048", 1999.8, "nkibench.adamw",
             (spec(128 * 86, 2048),) * 4, "elementwise"),  # in whole tiles
            ("rotary embedding 128 x 262144", 4333.0, "nkibench.rope",
             (spec(128, 262144), *(spec(64, 262144),) * 2), "elementwise"),
            ("batched matmul 16 x 4096 x 64 x 4096", 4610.9, "nkibench.bmm",
             (spec(16, 4096, 64), spec(16, 64, 4096)), "matmul"),
            ("batched matmul and softmax", 11999.6, "nkibench.bmm_softmax",
             (spec(16, 4096, 64), spec(16, 64, 4096)), "matmul"),
            ("mamba 256 x 7168", 2888.7, "mamba.mamba_v1", _mamba(256, 7168), "Mamba"),
            ("add, RMSNorm, matmul 4096 x 1024 x 2048", 1221.9, "nkibench.add_rmsnorm_matmul",
             (spec(4096, 1024), spec(1024, 2048), spec(4096, 1024), spec(1024)), "normalisation"),
            ("matmul, add, RMSNorm 4096 x 2048 x 2048", 2666.6, "nkibench.matmul_add_rmsnorm",
             (spec(4096, 2048), spec(2048, 2048), spec(4096, 2048), spec(2048)), "normalisation"),
        )
    ]  # fmt: skip
    points.append(
        Point("rotary embedding, tuned, AccelOpt", 3332.6, "accelopt", "latency",
              "nkibench.rope_tuned", (spec(128, 262144), *(spec(64, 262144),) * 2), "medium",
              "elementwise")
    )  # fmt: skip
    for name, us, tiles in (("narrow", 39_367, 1), ("wide", 15_618, 4)):
        points.append(
            Point(f"matmul 8192, {name} loads in a loop in order", us, "user", "latency",
                  "matmul.matmul_column", (bf16(8192, 8192), bf16(8192, 8192), tiles), "medium",
                  "matmul")
        )  # fmt: skip
    for name, us in (("v1", 636), ("chunks", 359)):
        points.append(
            Point(f"mamba {name}, 256 x 2048, Autocomp", us, "autocomp", "latency",
                  f"mamba.mamba_{name}", _mamba(256, 2048), "high", "Mamba")
        )  # fmt: skip
    for name, kernel, us in (
        ("small heads", "small_heads", 558),
        ("small heads, fused", "small_heads_fused", 384),
    ):
        points.append(
            Point(f"attention, {name}, 4096 x 64", us, "autocomp", "latency",
                  f"attention.{kernel}", (spec(4096, 64),) * 3, "high", "attention")
        )  # fmt: skip
    points.append(
        Point("attention, through HBM, 4096 x 128", 3093, "autocomp", "latency",
              "attention.through_hbm", (spec(128, 4096),) * 3, "high", "attention")
    )  # fmt: skip
    for gib, us in ((1, 3934), (2, 7867), (4, 15746), (8, 31463)):
        points.append(
            Point(f"read {gib} GiB", us, "memory", "body", "dma.read",
                  (spec(8, 128, 8192), 256 * gib), "medium", "DMA")
        )  # fmt: skip
    return points


# (name, microseconds, kernel, options). The order is that of the source.
_GROUPS = [
    ("tiled", 20990, "matmul_tiled", ()),
    ("groups of 1 x 2", 28680, "matmul_groups", (1, 2)),
    ("groups of 2 x 2", 11800, "matmul_groups", (2, 2)),
    ("groups of 4 x 2", 8070, "matmul_groups", (4, 2)),
    ("groups of 4 x 2, wider loads", 7620, "matmul_groups", (4, 2, 2)),
    ("groups of 4 x 2, widest loads", 6960, "matmul_groups", (4, 2, 4, 2, True)),
]

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
    ("1 x 1 tiles, again", 33554, "cs149 again", "latency", "add_columns", 25600, 1),
    ("128 x 1 tiles, again", 144, "cs149 again", "latency", "add_columns", 25600, 128),
    ("128 x 2 tiles, again", 52, "cs149 again", "latency", "add_tiles", 25600, 2),
    ("128 x 200 tiles, again", 19, "cs149 again", "latency", "add_tiles", 25600, 200),
    ("128 x 1000 tiles, again", 29, "cs149 again", "latency", "add_tiles", 256000, 1000),
    ("128 x 1000 tiles, placed, again", 29, "cs149 again", "latency", "add_tiles", 256000, 1000),
    ("128 x 1000 tiles, profile, again", 29.6, "cs149 again", "latency", "add_tiles", 256000, 1000),
    ("128 x 2000 tiles, profile, again", 33.2, "cs149 again", "latency", "add_tiles", 256000, 2000),
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

# (name, microseconds, kernel, options), in the order of the source.
_DEPTHWISE = [
    ("all at once", 8007, "all_at_once", ()),
    ("an image at a time", 7934, "one_at_a_time", ()),
    ("sums in PSUM", 5602, "sums_in_psum", ()),
    ("weights in PSUM", 4955, "weights_in_psum", ()),
    ("blocks of 64", 461, "weights_in_psum", (64,)),
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
    "AccelOpt: mamba 256 x 7168, tuned: 2278 us": "the published counters show 127 MB read from "
    "HBM, but the source published as the best kernel reads 17 MB: the two do not belong together",
    "matmul, tiled: 51.80 ms": "an early compiler; a later one takes 20.99 ms for the same source, "
    "which counts instead",
    "GIOU on inf2: 211, 293 and 61 us": "host clock around lazy calls that were not waited for",
    "trntensor matmul: 0.67 to 1.0 ms": "host clock: time to dispatch a call, not of the kernel",
    "Tilebench layernorm: 54 us": "the kernel's source is not known",
    "Stable Diffusion and flash attention, fused RMSNorm: limits of AWS's own tests": "limits that "
    "a test asserts, with slack, not measurements",
    "Autocomp: attention of small heads, 434 and 385 us": "in the model the same as the steps "
    "of 437 and 384 us: they differ in the fusion of loops that only load, and in an unused mask",
    "Autocomp: depthwise convolution, 8.007 and 8.01 ms": "but for names, the same source as "
    "the first step that counts, which takes 8.007 ms",
    "convolution limits: 4300 and 1300 us": "limits for students to beat, not measurements",
}
