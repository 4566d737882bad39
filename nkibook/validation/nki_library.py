"""Latencies that the tests of AWS's nki-library name for its kernels on trn2, and modelled ones.

The kernels are nki-library's own, in `import nki`, so they are not here: `nki_library.json` keeps
what the cost model gave for them, and `tools/aws/nki_library_times.py` makes it anew from a
checkout.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from nkibook.validation.point import Point

RECORD = Path(__file__).with_name("nki_library.json")

SOURCE = "github.com/aws-neuron/nki-library, parameter tables of its tests at tags 2.28 and 2.29"

_FAMILIES = {"mlp_cte": "matmul", "rmsnorm_tkg": "normalisation", "layernorm_tkg": "normalisation"}
_NAMES = {"mlp_cte": "MLP", "rmsnorm_tkg": "RMSNorm", "layernorm_tkg": "layer norm"}
_SIZES = {"batch": "B", "seqlen": "S", "hidden": "H", "intermediate": "I", "hidden_actual": "of "}


def name_of(kernel: str, parameters: dict[str, Any]) -> str:
    """What a point is called: the kernel, the cores, the sizes and what else it does."""
    words = [_NAMES[kernel], f"LNC{parameters['lnc']}"]
    words += [f"{short}{parameters[long]}" for long, short in _SIZES.items() if long in parameters]
    rest = {k: v for k, v in parameters.items() if k != "lnc" and k not in _SIZES}
    words += [
        k.replace("_", " ") if v is True else str(v).replace("_", " ") for k, v in rest.items()
    ]
    return " ".join(words)


def rows() -> list[tuple[Point, float]]:
    """(point, microseconds that were modelled) as recorded."""
    found = []
    for p in json.loads(RECORD.read_text())["points"]:
        point = Point(
            name_of(p["kernel"], p["parameters"]),
            p["published_us"],
            "nki-library",
            "latency",
            p["kernel"],
            (),
            "medium",
            _FAMILIES[p["kernel"]],
            "v3",
        )
        found.append((point, p["modelled_us"]))
    return found


def our_rmsnorms() -> list[tuple[str, float, float, float]]:
    """(name, published, recorded and modelled microseconds) of the points of RMSNorm whose tokens
    are loaded without a DMA transpose; modelled is our own kernel of the same work, on trn2."""
    import nkisim
    from nkibook.validation.norms_nki import rmsnorm_columns
    from nkisim.machine import GEN3

    found = []
    for p in json.loads(RECORD.read_text())["points"]:
        q = p["parameters"]
        if p["kernel"] != "rmsnorm_tkg" or "hidden_dim_tp" in q:
            continue
        x, gamma = (
            nkisim.TensorSpec((rows, q["hidden"]), np.dtype(np.float16))
            for rows in (q["batch"] * q["seqlen"], 1)
        )
        kernel = rmsnorm_columns[q["lnc"]].on(GEN3)
        now = nkisim.profile(kernel, x, gamma, q.get("hidden_actual")).latency_us
        found.append((name_of(p["kernel"], q), p["published_us"], p["modelled_us"], now))
    return found


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation of two lists: equal values share the mean of their ranks."""
    ranks = []
    for values in (np.asarray(a), np.asarray(b)):
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        ranks.append((ends - (counts - 1) / 2)[inverse])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
