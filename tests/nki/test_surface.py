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
ENTRIES = [
    pytest.param(module, name, entry, id=f"{module}.{name}")
    for module, entries in API["modules"].items()
    for name, entry in entries.items()
]
CALLS = [p for p in ENTRIES if p.values[2]["kind"] in ("function", "decorator")]
ENUMS = [p for p in ENTRIES if "members" in p.values[2]]
# The stub writes "..." for FP32_MIN.
VALUES = {"...": -3.4028235e38, "fp32_min": -3.4028235e38}


@pytest.mark.parametrize(("module", "name", "entry"), ENTRIES)
def test_the_name_exists(module, name, entry):
    assert getattr(MODULES[module], name) is not None


def default(text):
    if text in VALUES:
        return VALUES[text]
    names = {**vars(nki.language), **vars(nki.isa)}
    return eval(text, {"FP32_MIN": -3.4028235e38}, names)


def parameters(entry):
    return [p for p in entry["params"] if p["name"] != "self"]


def check_signature(function, wanted):
    found = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    assert [p.name for p in found] == [p["name"] for p in wanted]
    assert [p.kind.name.lower() for p in found] == [p["kind"] for p in wanted]
    for have, want in zip(found, wanted, strict=True):
        if "default" in want:
            assert have.default == default(want["default"]), have.name
        else:
            assert have.default is inspect.Parameter.empty, have.name


@pytest.mark.parametrize(("module", "name", "entry"), CALLS)
def test_the_signature(module, name, entry):
    check_signature(getattr(MODULES[module], name), parameters(entry))


@pytest.mark.parametrize(("module", "name", "entry"), ENUMS)
def test_the_members(module, name, entry):
    found = getattr(MODULES[module], name)
    assert issubclass(found, enum.Enum)
    assert {m.name: m.value for m in found} == entry["members"]


METHODS = API["modules"]["nki.language"]["NkiTensor"]["method_signatures"]


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_of_tensors(name):
    wanted = [p for p in METHODS[name]["params"] if p["name"] != "self"]
    check_signature(getattr(nki.language.NkiTensor, name), wanted)


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
