"""Exercises of the page on the life of a custom call."""

import base64
import json
import math

import ml_dtypes  # noqa: F401  (makes NumPy know bfloat16)
import numpy as np

import kernels
from nkibook.exercises import exercise


def _traces(answer, w, grad):
    """The result, and how often the kernel was traced, which only nkisim counts."""
    result, step = answer(w, grad)
    return (result, step.cache_info().misses) if kernels.backend == "nkisim" else result


@exercise(((4, 8), (4, 8)), ((3, 5), (3, 5)), lines=3, run=_traces, framework="jax")
def descend(w, grad):
    for i in range(5):
        w = w - grad * np.float32(0.1 / (i + 1))
    return (w, 1) if kernels.backend == "nkisim" else w  # one trace


def _config(rng, *dtypes):
    """A backend_config with one tensor a dtype; the last is the output."""
    tensors = [[f"t{i}", [8 * (i + 1), 16], dtype] for i, dtype in enumerate(dtypes)]
    fields = {"func_name": "some_kernel", "inputs": tensors[:-1], "outputs": tensors[-1:]}
    return (base64.b64encode(json.dumps(fields).encode()).decode(),)


@exercise(("float32", "float32"), ("bfloat16", "float32", "int8"), lines=3, data=_config)
def bytes_moved(config):
    # Each input is read once, each output written once.
    fields = json.loads(base64.b64decode(config))
    tensors = fields["inputs"] + fields["outputs"]
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for _, shape, dtype in tensors)


@exercise(
    ((4, 8), (2.0, 3.0)),
    ((3, 5), (1.5, -1.0)),
    lines=1,
    data=lambda rng, shape, f: (rng.standard_normal(shape, dtype=np.float32), f),
    framework="jax",
)
def scale_by(x, factors):
    return [x * np.float32(factor) for factor in factors]
