"""Published latencies of NeuronCore-v2 that the cost model was not made with.

They were looked for, and kernels written for them, after the model was set, by someone who did not
change it. The validation page says what has changed since. Sources are in
`validation.points`.
"""

from __future__ import annotations

from nkibook.validation.point import Point, spec

_PLANE, _ROW = spec(1, 256, 2048), spec(1, 16, 2048)
_SCAN = _PLANE, _PLANE, spec(256, 16), _ROW, _ROW  # 256 channels, 16 states, 2048 columns
_WIDE = (spec(128, 4096),) * 3
_NARROW = (spec(4096, 64),) * 3

# (name, microseconds, kernel, arguments, family). All are in fp32.
_NKIBENCH = [
    ("RMSNorm, matmul 4096 x 1024 x 2048", 1055.8, "rmsnorm_matmul",
     (spec(32, 128, 1024), spec(8, 128, 2048)), "normalisation"),
    ("transposed matmul 4096 x 2048 x 10944", 9610.3, "transposed_matmul",
     (spec(128, 16, 4096), spec(128, 16, 10944)), "matmul"),
    ("SwiGLU 4096 x 1024 x 3072", 4221.8, "swiglu",
     (spec(8, 4, 128, 8, 128), spec(8, 128, 3072), spec(24, 128, 1024), spec(8, 128, 3072)),
     "matmul"),
    ("matmul 4096 x 5120 x 12288", 35199.7, "matmul",
     (spec(32, 128, 40, 128), spec(40, 128, 12288)), "matmul"),
    ("LoRA 4096 x 5120 x 12288, rank 128", 30166.4, "lora",
     (spec(8, 4, 128, 40, 128), spec(40, 128, 12288), spec(40, 128, 128), spec(128, 12288)),
     "matmul"),
    ("grouped-query attention 16 x 4096 x 128", 19110.5, "grouped_attention",
     (spec(32, 128, 16, 128), spec(8, 4, 128, 8, 128), spec(32, 128, 1024)), "attention"),
]  # fmt: skip

# (name, microseconds, kernel, options), in the order of the source.
_MAMBA = [
    ("rows hoisted", 636, "rows_hoisted", ()),
    ("reordered", 539, "reordered", ()),
    ("A hoisted", 538, "reordered", (True,)),
    ("sums in PSUM", 435, "chunked", ()),
    ("two buffers", 430, "chunked", (True,)),
    ("spread by operators", 362, "chunked", (True, True)),
]
_ATTENTION = [
    ("through HBM, summed by exp", 2879, "attention.through_hbm", (True,)),
    ("on chip", 1569, "attention_steps.on_chip", ()),
    ("three passes", 1016, "attention_steps.three_passes", ()),
    ("three passes, bf16", 691, "attention_steps.three_passes", (True,)),
    ("three passes, summed by exp", 682, "attention_steps.three_passes", (True,) * 2),
    ("three passes, fewer copies", 681, "attention_steps.three_passes", (True,) * 3),
    ("three passes, v rounded first", 579, "attention_steps.three_passes", (True,) * 4),
    ("two passes, scores kept", 411, "attention_steps.two_passes", (True,)),
    ("two passes", 409, "attention_steps.two_passes", ()),
    ("two passes, one maximum", 293, "attention_steps.two_passes", (False, True)),
]
_SMALL_HEADS = [
    ("summed by exp", 437, ()),
    ("powers copied", 424, (False, True)),
    ("bf16 scores", 399, (True,)),
]


def _points() -> list[Point]:
    rows = [
        (f"{name}, NKIBench", us, "nkibench", f"nkibench_products.{kernel}", args, family)
        for name, us, kernel, args, family in _NKIBENCH
    ]
    rows += [
        (f"mamba {name}, 256 x 2048, Autocomp", us, "autocomp", f"mamba_steps.{kernel}",
         _SCAN + options, "Mamba")
        for name, us, kernel, options in _MAMBA
    ]  # fmt: skip
    rows += [
        (f"attention, {name}, 4096 x 128", us, "autocomp", kernel, _WIDE + options, "attention")
        for name, us, kernel, options in _ATTENTION
    ]
    rows += [
        (f"attention, small heads, {name}, 4096 x 64", us, "autocomp",
         "attention.small_heads_summed", _NARROW + options, "attention")
        for name, us, options in _SMALL_HEADS
    ]  # fmt: skip
    return [
        Point(name, us, source, "latency", kernel, args, "high", family)
        for name, us, source, kernel, args, family in rows
    ]


HELD_OUT = _points()


def _ladder(first: str, part: str, last: str = "") -> list[str]:
    """The points of Autocomp whose name contains `part`, between two of `points.POINTS`."""
    names = [p.name for p in HELD_OUT if p.source == "autocomp" and part in p.name]
    return [first, *names, *([last] if last else [])]


# Autocomp's steps in the order of the source, each as fast as the one before, or faster: names of
# points, of which the first, and some of the last, are in `points.POINTS`.
LADDERS = {
    "attention": _ladder("attention, through HBM, 4096 x 128", "4096 x 128"),
    "Mamba": _ladder(
        "mamba v1, 256 x 2048, Autocomp", "mamba", "mamba chunks, 256 x 2048, Autocomp"
    ),
    "attention of small heads": _ladder(
        "attention, small heads, 4096 x 64",
        "small heads",
        "attention, small heads, fused, 4096 x 64",
    ),
}
