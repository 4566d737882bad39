"""Whether a result is right: shape, dtype, each element within its tolerance, and the worst one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkisim.judging.task import TOLERANCES


def compared(
    found: Sequence[np.ndarray],
    names: Sequence[str],
    wanted: Sequence[Any],
    inputs: Sequence[np.ndarray],
    rtol: float | None,
    atol: float | None,
    norm: float | None = None,
) -> dict[str, Any]:
    """Compare what a kernel gives with what its reference gives.

    Args:
        found, names: the kernel's results.
        wanted: the reference's.
        inputs: the kernel's. A result has the dtype of the reference's, or of an input of the same
            kind: with another one it would choose its own tolerance.
        norm: the tolerance of the whole, in the place of each element's; see `Task`.
        rtol, atol: the tolerance: |found - wanted| <= atol + rtol * |wanted|. None for that of the
            result's dtype. NaN is right where it is wanted, and so is an infinity.

    Returns:
        {right, why, outputs}: of each output {name, shape, dtype, right, why, wrong, of, rtol,
        atol, worst}, where `worst` is the element that is furthest out: {index, found, wanted,
        error, times}, `times` its error over what is allowed.
    """
    if len(found) != len(wanted):
        why = f"it returns {len(found)} tensors, and the reference {len(wanted)}"
        return {"right": False, "why": why, "outputs": []}
    outputs = []
    for name, f, w in zip(names, found, wanted, strict=True):
        outputs.append({"name": name, **_one(f, np.asarray(w), inputs, rtol, atol, norm)})
    wrong = [f"{x['name'] or 'the result'}: {x['why']}" for x in outputs if not x["right"]]
    return {"right": not wrong, "why": "; ".join(wrong), "outputs": outputs}


def _one(
    found: np.ndarray,
    wanted: np.ndarray,
    inputs: Sequence[np.ndarray],
    rtol: float | None,
    atol: float | None,
    norm: float | None,
) -> dict[str, Any]:
    said: dict[str, Any] = {"shape": list(found.shape), "dtype": str(found.dtype), "right": False}
    if found.shape != wanted.shape:
        return said | {
            "why": f"shape {list(found.shape)}, and the reference's {list(wanted.shape)}"
        }
    whole = found.dtype.kind in "biu"
    kinds = {str(x.dtype) for x in (wanted, *inputs)}
    if str(found.dtype) not in kinds and not (whole and wanted.dtype.kind in "biu"):
        return said | {"why": f"dtype {found.dtype}, and the task's are {', '.join(sorted(kinds))}"}
    usual = (0.0, 0.0) if whole else TOLERANCES.get(str(found.dtype), TOLERANCES["float16"])
    r, a = (u if t is None else t for u, t in zip(usual, (rtol, atol), strict=True))
    with np.errstate(all="ignore"):
        f, w = found.astype(np.float64), wanted.astype(np.float64)
        error = np.abs(f - w)
        same = (f == w) | (np.isnan(f) & np.isnan(w))
        allowed = a + r * np.abs(w)
        right = same | (np.isfinite(w) & (error <= allowed))
        times = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error / allowed))
    count = int(right.size - np.count_nonzero(right))
    said |= {"wrong": count, "of": int(right.size), "rtol": r, "atol": a, "why": ""}
    if f.size:
        at = np.unravel_index(int(np.argmax(times)), f.shape)
        said["worst"] = {
            "index": [int(n) for n in at],
            "found": repr(float(f[at])),
            "wanted": repr(float(w[at])),
            "error": repr(float(error[at])),
            "times": repr(float(times[at])),
        }
    if norm is not None:
        share = float(np.linalg.norm(f - w) / max(np.linalg.norm(w), np.finfo(np.float64).tiny))
        said |= {"norm": repr(share), "right": share <= norm}
        if not said["right"]:
            said["why"] = f"the L2 norm of the error is {share:.3g} of the result's, over {norm:g}"
        return said
    said["right"] = count == 0
    if count:
        x = said["worst"]
        said["why"] = (
            f"{count:,} of {right.size:,} elements differ by more than {a:g} + {r:g} |wanted|; the "
            f"furthest is {x['index']}: {float(x['found']):.6g}, and the reference has "
            f"{float(x['wanted']):.6g}"
        )
    return said
