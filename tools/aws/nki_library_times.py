"""Models the latencies of nki-library's own kernels, beside those that its tests name.

    git clone https://github.com/aws-neuron/nki-library && cd nki-library && git checkout 2.29
    python tools/aws/nki_library_times.py PATH_TO_NKI_LIBRARY

The points are those of `nkibook/validation/nki_library.json`: kernel, parameters, and the published
latency with the line that it is in. Each kernel is profiled for NeuronCore-v3 (trn2) on its logical
core, with the arguments that the library's test makes, by shape and dtype: fp16 for the norms, bf16
for the MLP. `modelled_us` is written back to the file.

The tables of the norms' latencies are in the tests of tag 2.28, and the kernels of that tag do not
run on NKI 0.3 and later, so the kernels are those of 2.29. What stands in for the rest of the
library's imports is in `nki_library_probe.py`. Races are not checked: of one kernel both cores
store the same sum.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def arguments(kernel: str, p: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The library's kernel, and the arguments of its test for some parameters."""
    import ml_dtypes
    import numpy as np
    from nkilib_src.nkilib.core.utils.common_types import ActFnType, NormType, QuantizationType

    import nkisim

    b, s, h = p["batch"], p["seqlen"], p["hidden"]
    dtype = np.dtype(ml_dtypes.bfloat16 if kernel == "mlp_cte" else np.float16)

    def tensor(*shape: int) -> nkisim.TensorSpec:
        return nkisim.TensorSpec(shape, dtype)

    if kernel != "mlp_cte":
        given = {"input": tensor(b, s, h), "gamma": tensor(1, h)}
        given["output"] = tensor(128, b * s, h // 128)
        if kernel == "layernorm_tkg":
            from nkilib_src.nkilib.core.subkernels.layernorm_tkg import layernorm_tkg

            return layernorm_tkg, given | {"beta": tensor(1, h)}
        from nkilib_src.nkilib.core.subkernels.rmsnorm_tkg import rmsnorm_tkg

        more = {n: p[n] for n in ("hidden_actual", "hidden_dim_tp") if n in p}
        return rmsnorm_tkg, given | more
    import nki.language as nl
    from nkilib_src.nkilib.core.mlp.mlp import mlp

    i, norm = p["intermediate"], NormType[p.get("norm_type", "NO_NORM")]
    scaled = norm not in (NormType.NO_NORM, NormType.RMS_NORM_SKIP_GAMMA)
    has = {
        "normalization_weights_tensor": (scaled, (1, h)),
        "normalization_bias_tensor": (scaled and "norm_bias" in p, (1, h)),
        "up_proj_bias_tensor": ("up_bias" in p, (1, i)),
        "down_proj_bias_tensor": ("down_bias" in p, (1, h)),
        "fused_add_tensor": ("fused_add" in p, (b, s, h)),
    }
    given = {name: tensor(*shape) for name, (there, shape) in has.items() if there}
    return mlp, {
        "hidden_tensor": tensor(b, s, h),
        "gate_proj_weights_tensor": tensor(h, i),
        "up_proj_weights_tensor": tensor(h, i),
        "down_proj_weights_tensor": tensor(i, h),
        "store_fused_add_result": "store_add" in p,
        "activation_fn": ActFnType[p["act_fn_type"]],
        "normalization_type": norm,
        "quantization_type": QuantizationType.NONE,
        "output_dtype": nl.bfloat16,
        "skip_gate_proj": "skip_gate" in p,
        **given,
    }


def main() -> None:
    (library,) = sys.argv[1:]
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn2"
    sys.path[:0] = [str(ROOT), str(ROOT / "tools/aws"), library, str(Path(library) / "src")]
    import logging

    import nki_library_probe
    import numpy as np

    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    nki_library_probe.pytest_configure(None)
    import nki

    import nkisim
    from nkibook.validation import nki_library
    from nkibook.validation.__main__ import errors

    record = json.loads(nki_library.RECORD.read_text())
    for point in record["points"]:
        kernel, given = arguments(point["kernel"], point["parameters"])
        with nkisim.checks(race="off", sbuf="off", psum="off", output="off"):
            kernel = nki.jit(getattr(kernel, "func", kernel))
            found = nkisim.profile(kernel[point["parameters"]["lnc"]], **given)
        point["modelled_us"] = round(found.latency_us, 2)
        name = nki_library.name_of(point["kernel"], point["parameters"])
        print(f"{point['published_us']:10.1f} {point['modelled_us']:10.1f}  {name}", flush=True)
    nki_library.RECORD.write_text(json.dumps(record, indent=1) + "\n")
    rows = nki_library.rows()
    published, modelled = np.array([(p.published_us, m) for p, m in rows]).T
    print(
        f"{len(rows)} points: median absolute error {np.median(np.abs(errors(rows))):.1%}, "
        f"rank correlation {nki_library.rank_correlation(published, modelled):.3f}"
    )


if __name__ == "__main__":
    main()
