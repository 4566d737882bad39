"""Published latencies of NeuronCore-v3, in the form of `validation.points`.

Where a source gives the share of the peak that a kernel reaches, the latency is computed from that:
one core does 128 x 128 products at 2.4 GHz, 78.64 TFLOPS.
"""

from __future__ import annotations

import numpy as np

from nkibook.validation.point import Point, bf16, spec

SOURCES = {
    "cs149-2025": "github.com/xaviergonzalez/asst4-trainium2, writeup.md (Stanford "
    "CS149, 2025; convolutions at 1f089e2)",
    "profiles": "profiles in github.com/chenhzhu/asst4-trainium2 (e30a10f) and "
    "github.com/rishic3/asst4-trainium2 (ef7e4ef), total time",
    "convolution profiles": "github.com/chenhzhu/asst4-trainium2 (fecd8c8), conv2d_fin.py and "
    "part2/profile: total time",
    "fusion": "github.com/allenkchau/trainium-kernel-fusion, profiling/reports (71713d4 and "
    "d709ddf): median latency on trn2.3xlarge",
    "autotune": "github.com/awslabs/nki-autotune, kernel_library: share of the peak",
    "autotune ladder": "github.com/awslabs/nki-autotune at d57bcc3: kernel_transforms.py, "
    "examples/tune_matmul_lhsT_rhs.py and e55ed5d (59.6 % and 83.4 % of the peak); about 16 % for "
    "loads in the innermost loop",
    "optimisation": "AWS Neuron SDK documentation, introduction to NKI kernel optimization: "
    "profiles; 28.2 to 28.4 ms for the three later stages",
}


def _points() -> list[Point]:
    points = []
    for name, us, source, kernel, size, tile, core in _ADDS:
        points.append(
            Point(f"add, {name}", us, source, "latency", f"vector_add.{kernel}",
                  (spec(size), spec(size), tile), "high", "elementwise", core)
        )  # fmt: skip
    for run, us in ((1, 46.47), (2, 46.85)):
        points.append(
            Point(f"transpose 1024 x 1024, profile {run}", us, "profiles", "latency",
                  "transpose.transpose_tiles", (spec(1024, 1024),), "high", "matmul", "v3 static")
        )  # fmt: skip
    for dtype, pool, us in _CONVS:
        points.append(
            Point(f"convolution {np.dtype(dtype)}, pool {pool}", us, "cs149-2025", "latency",
                  "convolution.conv2d_rows",
                  (spec(1, 256, 224, 224, dtype=dtype), spec(256, 256, 3, 3, dtype=dtype),
                   spec(256, 1, dtype=dtype), pool),
                  "medium", "convolution", "v3 static")
        )  # fmt: skip
    for dtype, height, width, pool, us, trust in _STRIPS:
        points.append(
            Point(f"convolution {height} x {width}, strips, {np.dtype(dtype)}, pool {pool}", us,
                  "convolution profiles", "latency", "convolution.conv2d_strips",
                  (spec(1, 256, height, width, dtype=dtype), spec(256, 256, 3, 3, dtype=dtype),
                   spec(256, 1, dtype=dtype), pool),
                  trust, "convolution", "v3 static")
        )  # fmt: skip
    for name, kernel, make, latencies in _ATTENTION:
        points += [
            Point(f"attention, {name}, {rows} x 128", us, "fusion", "latency",
                  f"wide_attention.{kernel}", (make(128, rows),) * 3, "high", "attention", "v3")
            for rows, us in zip((512, 1024, 2048, 4096), latencies, strict=True)
        ]  # fmt: skip
    points += [
        Point(f"product and GELU {m} x {k} x {n}, {dtype}", us, "fusion", "latency",
              "mlp.product_gelu",
              (make(k, m), make(k, n), make(1, n)), "medium", "matmul", "v3")
        for m, k, n, dtype, make, us in _MLPS
    ]  # fmt: skip
    points += [
        Point(f"matmul {name}", us, source, "latency", f"matmul.{kernel}", args, trust, "matmul",
              "v3")
        for name, us, source, kernel, args, trust in _MATMULS
    ]  # fmt: skip
    points += [
        Point(f"matmul 2048, {name}", _SQUARE_FLOP / (share * _PEAK) * 1e6, "autotune ladder",
              "latency", f"products_nki.{kernel}", (_SQUARE, _SQUARE, *options), trust, "matmul",
              "v3")
        for name, share, kernel, options, trust in (
            ("loads in the inner loop, nki", 0.16, "sunk_loads", (), "medium"),
            ("operands resident, nki", 0.596, "resident", (), "high"),
            ("operands resident, two accumulators, nki", 0.834, "resident", (2,), "high"),
        )
    ]  # fmt: skip
    return points


# (name, microseconds, source, kernel, elements, rows or columns of a tile, core). The write-up's
# numbers are of nki.benchmark.
_ADDS = [
    ("1 x 1 tiles", 37318, "cs149-2025", "add_columns", 25600, 1, "v3"),
    ("128 x 1 tiles", 378, "cs149-2025", "add_columns", 25600, 128, "v3"),
    ("128 x 2 tiles", 186, "cs149-2025", "add_strips", 25600, 2, "v3"),
    ("128 x 200 tiles", 15, "cs149-2025", "add_strips", 25600, 200, "v3"),
    ("128 x 1000 tiles, profile 1", 26.42, "profiles", "add_strips", 256000, 1000, "v3 static"),
    ("128 x 1000 tiles, profile 2", 27.86, "profiles", "add_strips", 256000, 1000, "v3 static"),
    ("128 x 2000 tiles, profile 1", 28.90, "profiles", "add_strips", 256000, 2000, "v3 static"),
    ("128 x 2000 tiles, profile 2", 28.36, "profiles", "add_strips", 256000, 2000, "v3 static"),
]

_CONVS = [
    (np.float32, 1, 3832),
    (np.float16, 1, 824),
    (np.float32, 2, 3830),
    (np.float16, 2, 825),
]

# Profiles of one kernel. (The same product in fp32 takes 13 % more without pooling than with it.)
_STRIPS = [
    (np.float16, 224, 224, 1, 790, "medium"),
    (np.float16, 224, 224, 2, 790, "medium"),
    (np.float32, 224, 224, 1, 3400, "medium"),
    (np.float32, 224, 224, 2, 3020, "medium"),
    (np.float16, 32, 16, 1, 47.2, "high"),
    (np.float16, 32, 16, 2, 47.0, "high"),
    (np.float32, 32, 16, 1, 68.7, "high"),
    (np.float32, 32, 16, 2, 70.5, "high"),
]

_ATTENTION = [
    ("one pass, fp32", "one_pass", spec, (31, 69, 215, 839)),
    ("one pass, bf16", "one_pass", bf16, (28, 60, 188, 684)),
    ("three phases, fp32", "three_phases", spec, (52, 107, 274, 1137)),
    ("three phases, bf16", "three_phases", bf16, (48, 96, 260, 1035)),
]

_MLPS = [
    (128, 128, 512, "fp32", spec, 21),
    (256, 512, 1024, "fp32", spec, 40),
    (512, 1024, 2048, "fp32", spec, 150),
    (1024, 2048, 4096, "fp32", spec, 1074),
    (2048, 4096, 4096, "fp32", spec, 4187),
    (128, 128, 512, "bf16", bf16, 19),
    (256, 512, 1024, "bf16", bf16, 28),
    (512, 1024, 2048, "bf16", bf16, 56),
    (1024, 2048, 4096, "bf16", bf16, 288),
    (2048, 4096, 4096, "bf16", bf16, 1554),
    *((m, 512, 2048, "fp32", spec, us) for m, us in (
        (128, 40), (256, 61), (512, 98), (1024, 175), (2048, 326), (4096, 647), (8192, 1274))),
    *((m, 512, 2048, "bf16", bf16, us) for m, us in (
        (128, 28), (256, 32), (512, 41), (1024, 58), (1792, 85))),
]  # fmt: skip


_WIDE = spec(8192, 4096), spec(8192, 8192)  # the left one transposed
_SQUARE = bf16(2048, 2048)
_SQUARE_FLOP = 2 * 2048**3
_PEAK = 128 * 128 * 2 * 2.4e9  # operations a second

_MATMULS = [
    ("fp32, loads in the inner loop", 39890, "optimisation", "matmul_tiled", _WIDE, "high"),
    ("fp32, loads hoisted", 28300, "optimisation", "matmul_lists", _WIDE, "medium"),
    ("fp32, blocks of 2 x 2 tiles", 28300, "optimisation", "matmul_lists", (*_WIDE, 2), "medium"),
    ("fp32, blocks in all dimensions", 28300, "optimisation", "matmul_full", _WIDE, "medium"),
    ("2048, two stages of K", 240.3, "autotune", "matmul_two_stages", (_SQUARE,) * 2, "high"),
    ("2048, two stages, one PSUM tile", 271.5, "autotune", "matmul_two_stages",
     (_SQUARE, _SQUARE, True), "medium"),
    ("2048, loads first", 372.8, "autotune", "matmul_loads_first", (_SQUARE,) * 2, "medium"),
    ("2048, transposed by DMA", 244.2, "autotune", "matmul_dma_transposed", (_SQUARE,) * 2,
     "high"),
    ("2048, two products", 798.3, "autotune", "double_product", (_SQUARE,) * 3, "medium"),
]  # fmt: skip

POINTS = _points()

EXCLUDED = {
    "transpose 1024 x 1024: 86 us": "the kernel's source is not stored; with a load and a store a "
    "tile the model gives 85",
    "transpose by DMA: 836 us": "the shape is not stated",
    "convolution, other stages: 13.5 to 0.9 ms": "rounded, and the sources are not stored",
    "NAKB: cumulative sum, maximum and others": "neither method nor number of cores is stated",
    "KDA: operators of NKIBench": "about twice what one core can do, by every engine's rate",
    "rmsnorm_quant and others of nki-library": "two cores",
}
