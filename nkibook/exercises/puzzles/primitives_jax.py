"""Exercises of the page on JAX primitives and sharding."""

import base64
import json
import math

import ml_dtypes  # noqa: F401  (makes NumPy know bfloat16)
import numpy as np

from nkibook.exercises import exercise

_LAYERS = [((4096, 512), "bfloat16", 1 / (layer + 1), 8) for layer in range(3)]
_SHARDS = [((1024, 512), "float32", 2.0, 8), ((128, 512), "float32", 2.0, 1)]
_TYPES = [((256, 64), dtype, 1.0, 4) for dtype in ("float32", "bfloat16", "float32")]


@exercise(
    (_LAYERS,),
    (_SHARDS,),
    (_TYPES,),
    (_LAYERS + _SHARDS + _TYPES,),
    lines=2,
    data=lambda _rng, c: (c,),
)
def strings(calls):
    # One string for each combination of a shard's rows, the columns, the
    # dtype and the constant.
    known = set()
    for (rows, columns), dtype, constant, devices in calls:
        known.add((rows // devices, columns, dtype, constant))
    return len(known)


def _config(rng, *dtypes):
    """A backend_config with one tensor a dtype; the last is the output."""
    tensors = [[f"t{i}", [8 * (i + 1), 16], dtype] for i, dtype in enumerate(dtypes)]
    fields = {"func_name": "some_kernel", "inputs": tensors[:-1], "outputs": tensors[-1:]}
    return (base64.b64encode(json.dumps(fields).encode()).decode(),)


@exercise(("float32", "float32"), ("bfloat16", "float32", "int8"), lines=3, data=_config)
def bytes_moved(config):
    # Each input is read once, and each output is written once.
    fields = json.loads(base64.b64decode(config))
    tensors = fields["inputs"] + fields["outputs"]
    size = {dtype: np.dtype(dtype).itemsize for _, _, dtype in tensors}
    return sum(math.prod(shape) * size[dtype] for _, shape, dtype in tensors)
