"""One step of a report, in a process of its own: prints JSON on its last line.

python -m nkibook.instance.step probe NUMBER | operators FRAMEWORK | hlo FRAMEWORK | environment
python -m nkibook.instance.step times | calls FRAMEWORK | model
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLES = (
    "JAX_PLATFORMS",
    "NEURON_CC_FLAGS",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
    "NEURON_RT_NUM_CORES",
    "NEURON_RT_VISIBLE_CORES",
    "NKI_BACKEND",
    "NKI_DIALECT",
    "PJRT_DEVICE",
    "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
    "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
    "XLA_FLAGS",
)
"""The environment variables that a report has; no other is read."""


def environment() -> dict[str, Any]:
    """Versions, the kind of instance, the dialect of the kernels, and the variables above."""
    import kernels
    from nkibook.device import instance

    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    driver = Path("/sys/module/neuron/version")
    return {
        "instance": instance(),
        "dialect": kernels.dialect,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "driver": driver.read_text().strip() if driver.is_file() else "",
        "packages": dict(sorted((n, v) for n, v in found.items() if n)),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def probe(number: str) -> dict[str, str]:
    """Try one assumption."""
    import linecache

    from nkibook.instance.probes import PROBES

    asked = PROBES[int(number)]
    name = "<probe>"  # kernels need source lines
    linecache.cache[name] = (len(asked.code), None, asked.code.splitlines(True), name)
    names: dict[str, Any] = {"__name__": "probe"}
    try:
        exec(compile(asked.code, name, "exec"), names)
    except BaseException as error:
        return {"outcome": f"{type(error).__name__}: {error}"}
    return {"outcome": f"fine: {names['result']}"}


def error_in_ulp(got: Any, expected: Any) -> float:
    """The largest difference, in units of the last place of the largest expected value."""
    import ml_dtypes
    import numpy as np

    wide = expected.astype(np.float64)
    largest = float(np.abs(wide).max(initial=0.0)) or 1.0
    unit = 2.0 ** np.floor(np.log2(largest)) * float(ml_dtypes.finfo(expected.dtype).eps)
    return float(np.abs(got.astype(np.float64) - wide).max(initial=0.0) / unit)


def operators(framework: Any) -> list[dict[str, Any]]:
    """Run every operator in every dtype; errors in units of the last place."""
    from kernels import operators as book

    found = []
    for operator in book.operators():
        for dtype in book.DTYPES:
            row: dict[str, Any] = {"operator": operator.name, "dtype": dtype}
            arrays = operator.arrays(dtype)
            try:
                start = time.perf_counter()
                result = book.forward(operator, framework, arrays)
                row["first_s"] = time.perf_counter() - start
                start = time.perf_counter()
                result = book.forward(operator, framework, arrays)
                row["later_s"] = time.perf_counter() - start
                expected = operator.reference(*arrays)
                row["ulp"] = error_in_ulp(result, expected)
                if dtype == "float32":
                    grads = book.backward(operator, framework, arrays, expected)
                    wanted = operator.gradients(expected, *arrays)
                    pairs = zip(grads, wanted, strict=True)
                    row["gradient_ulp"] = max(error_in_ulp(g, w) for g, w in pairs)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"
            found.append(row)
    return found


def hlo(framework: str) -> dict[str, Any]:
    """What the compiler is given of an addition.

    The custom call in its HLO: target, and what can be read of its backend_config. With PyTorch's
    neuron device its graph, and the kernels in that.
    """
    import numpy as np

    import kernels
    from kernels.add import nki_tensor_add
    from nkibook.hlo import jax_hlo, torch_hlo

    x = np.ones((300, 5), np.float32)
    if framework == "torch" and kernels.dialect == "nki":
        from kernels.add.torch_op import add
        from kernels.arrays import from_numpy
        from nkibook.fx import graphs

        (graph,) = graphs(add, from_numpy(x, "torch"), from_numpy(x, "torch"))
        return {"kernels": graph.kernels, "text": graph.code()}
    if framework == "torch":
        import torch

        module = torch_hlo(nki_tensor_add, torch.from_numpy(x), torch.from_numpy(x))
    else:
        import jax.numpy as jnp

        module = jax_hlo(nki_tensor_add, jnp.asarray(x), jnp.asarray(x))
    (call,) = module.custom_calls
    return {
        "target": call.target,
        "config": call.config if isinstance(call.config, dict) else str(call.config)[:2000],
        "text": module.text(short=True),
    }


def times() -> list[dict[str, Any]]:
    """Device times of the launches of `nkibook.device`, as records."""
    from nkibook import device

    return [record.as_dict() for record in device.measure_launches()]


def calls(framework: Any) -> list[dict[str, Any]]:
    """First and later calls of these launches in a framework, as records."""
    from nkibook import device

    found = [r for launch in device.launches() for r in device.measure_calls(launch, framework)]
    return [record.as_dict() for record in found]


def model() -> list[dict[str, Any]]:
    """What the cost model says of these launches, as records."""
    from nkibook import device

    return [record.as_dict() for record in device.model().values()]


def main() -> int:
    name, *arguments = sys.argv[1:]
    steps: dict[str, Callable[..., Any]] = {
        "calls": calls,
        "environment": environment,
        "hlo": hlo,
        "model": model,
        "operators": operators,
        "probe": probe,
        "times": times,
    }
    answer = json.dumps(steps[name](*arguments), default=str)
    print(f"\n{answer}", flush=True)
    os._exit(0)  # a runtime that hangs when it is closed must not take the answer with it


if __name__ == "__main__":
    main()
