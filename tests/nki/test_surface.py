"""The surface of `import nki` is what the NKI 0.6 reference lists, with its signatures."""

import enum
import inspect
import json
from pathlib import Path

import nki
import nki.collectives
import nki.isa
import nki.language
import nki.typing
import pytest

import nkisim.frontends.nki as front_end
from nkisim import KernelError

API = json.loads((Path(front_end.__file__).parent / "nki_api_0.6.json").read_text())
MODULES = {
    "nki": nki,
    "nki.language": nki.language,
    "nki.isa": nki.isa,
    "nki.collectives": nki.collectives,
    "nki.typing": nki.typing,
}
ENTRIES = {
    f"{module}.{name}": (MODULES[module], name, entry)
    for module, entries in API["modules"].items()
    for name, entry in entries.items()
}
METHODS = API["modules"]["nki.language"]["NkiTensor"]["method_signatures"]
# The stub writes "..." for FP32_MIN.
VALUES = {"...": -3.4028235e38, "fp32_min": -3.4028235e38}


def test_every_name_is_there():
    assert [
        k for k, (module, name, _) in ENTRIES.items() if getattr(module, name, None) is None
    ] == []


def default(text):
    if text in VALUES:
        return VALUES[text]
    names = {**vars(nki.language), **vars(nki.isa)}
    return eval(text, {"FP32_MIN": -3.4028235e38}, names)


def test_every_signature_is_the_documented_one():
    calls = {
        key: (getattr(module, name), entry["params"])
        for key, (module, name, entry) in ENTRIES.items()
        if entry["kind"] in ("function", "decorator")
    }
    calls |= {
        f"NkiTensor.{name}": (getattr(nki.language.NkiTensor, name), entry["params"])
        for name, entry in METHODS.items()
    }
    assert len(calls) > len(METHODS) > 10
    wrong = {}
    empty = inspect.Parameter.empty
    for key, (function, params) in calls.items():
        found = [
            (p.name, p.kind.name.lower(), p.default)
            for p in inspect.signature(function).parameters.values()
            if p.name != "self"
        ]
        wanted = [
            (p["name"], p["kind"], default(p["default"]) if "default" in p else empty)
            for p in params
            if p["name"] != "self"
        ]
        if found != wanted:
            wrong[key] = found, wanted
    assert wrong == {}


def test_every_enumeration_has_the_documented_members():
    enums = {k: (getattr(m, n), e["members"]) for k, (m, n, e) in ENTRIES.items() if "members" in e}
    assert len(enums) > 5
    found = {
        key: issubclass(kind, enum.Enum) and {m.name: m.value for m in kind}
        for key, (kind, _) in enums.items()
    }
    assert found == {key: members for key, (_, members) in enums.items()}


def test_types_are_strings():
    kinds = [n for n, e in API["modules"]["nki.language"].items() if e["kind"] == "dtype"]
    assert len(kinds) > 15
    for name in kinds:
        assert isinstance(getattr(nki.language, name), str)


@pytest.mark.parametrize("name", ["arange", "mgrid", "par_dim", "static_cast"])
def test_names_of_the_other_dialect_are_told_with_this_ones(name):
    with pytest.raises(KernelError, match="neuronxcc"):
        getattr(nki.language, name)


def test_a_misspelt_name_is_told_with_the_nearest():
    with pytest.raises(AttributeError, match="tensor_copy"):
        nki.isa.tensor_cpoy  # noqa: B018
