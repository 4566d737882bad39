"""Answers to the exercises on JAX primitives and sharding."""

import base64
import json

import numpy as np


def strings(calls):
    known = set()
    for (rows, columns), dtype, constant, devices in calls:
        known.add((rows // devices, columns, dtype, constant))
    return len(known)


def bytes_moved(config):
    fields = json.loads(base64.b64decode(config))
    total = 0
    for _, shape, dtype in fields["inputs"] + fields["outputs"]:
        total += int(np.prod(shape)) * np.dtype(dtype).itemsize
    return total
