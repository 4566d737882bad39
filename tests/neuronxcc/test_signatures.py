"""Every documented name of ``neuronxcc.nki`` exists, functions with their exact signature."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest

from nkibook.facts import coverage
from nkisim.errors import UnsupportedError
from nkisim.frontends.neuronxcc import nki
from nkisim.frontends.neuronxcc.nki import language as nl

TABLE = coverage.documented()
NAMES = [(module, name) for module, names in TABLE.items() for name in names]
FUNCTIONS = [(m, n) for m, n in NAMES if "signature" in TABLE[m][n]]


def parameters(signature: inspect.Signature) -> list[tuple]:
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def test_every_name_is_there():
    missing = []
    for module, name in NAMES:
        try:
            coverage.find(module, name)
        except AttributeError:
            missing.append(f"{module}.{name}")
    assert missing == []


def test_what_is_imported_is_what_is_looked_at():
    for module in TABLE:
        for name in set(TABLE[module]) & set(dir(importlib.import_module(module))):
            ours = coverage.find(module, name)
            assert getattr(importlib.import_module(module), name) is ours


def test_every_signature_is_the_documented_one():
    wrong = {}
    for module, name in FUNCTIONS:
        found = parameters(inspect.signature(coverage.find(module, name)))
        wanted = parameters(coverage.documented_signature(module, name))
        if found != wanted:
            wrong[f"{module}.{name}"] = found, wanted
    assert wrong == {}


def test_every_function_has_a_docstring():
    assert [(m, n) for m, n in FUNCTIONS if not inspect.getdoc(coverage.find(m, n))] == []


def test_the_table_agrees_with_itself():
    # The names of the parameters also stand beside the signature.
    wrong = []
    for module, name in FUNCTIONS:
        named = [p for p in coverage.documented_signature(module, name).parameters if p != "kwargs"]
        if named != TABLE[module][name]["params"]:
            wrong.append(f"{module}.{name}")
    assert wrong == []


@pytest.mark.parametrize("path", coverage.NOT_YET)
def test_what_is_said_to_be_missing_says_so_itself(path):
    module, _, name = path.rpartition(".")
    found = coverage.find(module, name)
    if isinstance(found, np.dtype):
        with pytest.raises(UnsupportedError, match=name):
            nki.simulate_kernel(_makes_a_tile, found)
        return
    parameters = inspect.signature(found).parameters.values()
    required = [None for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    with pytest.raises(UnsupportedError, match=name):
        found(*required)


@nki.jit
def _makes_a_tile(dtype):
    nl.zeros((2, 3), dtype)


@pytest.mark.parametrize("path", coverage.PARTLY)
def test_what_is_said_to_be_partly_there_is_documented_and_there(path):
    entry = {e.path: e for e in coverage.coverage()}[path]
    assert entry.status == "partly"
    assert entry.reason == coverage.PARTLY[path]


def test_coverage_finds_a_missing_name_and_a_wrong_signature(monkeypatch):
    nl = coverage.find("neuronxcc.nki", "language")
    before = {e.path: e.status for e in coverage.coverage()}
    assert before["neuronxcc.nki.language.load"] == before["neuronxcc.nki.language.store"]
    monkeypatch.delattr(nl, "load")
    monkeypatch.setattr(nl, "store", lambda dst, value, mask=None: None)
    after = {e.path: e for e in coverage.coverage()}
    assert after["neuronxcc.nki.language.load"].status == "not yet"
    assert after["neuronxcc.nki.language.store"].status == "partly"
    assert "parameters" in after["neuronxcc.nki.language.store"].reason
    others = {p: e.status for p, e in after.items() if not p.endswith((".load", ".store"))}
    assert others == {p: s for p, s in before.items() if p in others}


def test_every_status_but_simulated_has_a_reason():
    for entry in coverage.coverage():
        assert (entry.status == "simulated") == (entry.reason == "")
        assert entry.reason != "missing", entry.path


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
