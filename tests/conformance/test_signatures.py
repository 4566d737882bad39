"""Every documented function of ``nki.language`` and ``nki.isa`` exists, with its exact signature."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).resolve().parents[1] / "data"
SIGNATURES = json.loads((DATA / "nki_signatures_2.26.json").read_text())["signatures"]

# Documented, and not simulated: see the coverage page.
MISSING = {
    "neuronxcc.nki.isa": {"builtin_custom_op"},
    "neuronxcc.nki.language": {
        "all_reduce",
        "gemm_grid",
        "gemm_stationary_grid",
        "loop_reduce",
    },
}
FUNCTIONS = [
    pytest.param(module, name, id=f"{module.rsplit('.', 1)[1]}.{name}")
    for module, names in SIGNATURES.items()
    for name in names
    if name not in MISSING[module]
]


def documented(module: str, name: str) -> inspect.Signature:
    """The documented signature, its defaults evaluated."""
    nisa = importlib.import_module("neuronxcc.nki.isa")
    space: dict = {
        "np": np,
        "bool": bool,
        **{n: getattr(nisa, n) for n in ("engine", "reduce_cmd", "oob_mode", "dge_mode", "fp32")},
    }
    exec(f"def function{SIGNATURES[module][name]}: ...", space)
    return inspect.signature(space["function"])


def bare(signature: inspect.Signature) -> list:
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_signature(module, name):
    function = getattr(importlib.import_module(module), name)
    assert bare(inspect.signature(function)) == bare(documented(module, name))


@pytest.mark.parametrize(("module", "name"), FUNCTIONS)
def test_docstring(module, name):
    function = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(function)


def test_the_list_of_what_is_missing_is_true():
    for module, names in MISSING.items():
        for name in names:
            assert name in SIGNATURES[module]
            assert not hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("engine", {"tensor": 1, "vector": 5, "scalar": 2, "gpsimd": 3, "sync": 6, "unknown": 0}),
        ("reduce_cmd", {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3}),
        ("dge_mode", {"none": 0, "swdge": 1, "hwdge": 2, "unknown": 3}),
        ("oob_mode", {"error": 0, "skip": 1}),
        ("nc_version", {"gen2": 2, "gen3": 3}),
    ],
)
def test_enumerations(name, members):
    enumeration = getattr(importlib.import_module("neuronxcc.nki.isa"), name)
    assert {m.name: m.value for m in enumeration} == members


def test_constants():
    nl = importlib.import_module("neuronxcc.nki.language")
    nisa = importlib.import_module("neuronxcc.nki.isa")
    lowest = np.array(0xFF7FFFFF, np.uint32).view(np.float32)
    assert np.float32(nl.fp32.min) == np.float32(nisa.fp32.min) == lowest
    assert nl.bfp16.min == -np.inf
    assert nl.finfo(nl.bfloat16).bits == 16
    assert nisa.vector_engine is nisa.engine.vector
