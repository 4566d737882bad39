"""The surface of `import nki` is what the reference lists, with its signatures."""

import enum
import inspect

import nki
import nki.collectives
import nki.compiler
import nki.isa
import nki.language
import nki.typing
import pytest

from nkibook import facts
from nkisim import KernelError

API = facts.documented("nki")
MODULES = {
    "nki": nki,
    "nki.language": nki.language,
    "nki.isa": nki.isa,
    "nki.collectives": nki.collectives,
    "nki.compiler": nki.compiler,
    "nki.typing": nki.typing,
}
ENTRIES = {
    f"{module}.{name}": (MODULES[module], name, entry)
    for module, entries in API.items()
    for name, entry in entries.items()
}
METHODS = API["nki.language"]["NkiTensor"]["signatures"]
FP32_MIN = -3.4028235e38  # the stub writes "..." for it


def test_every_name_is_there():
    assert [
        k for k, (module, name, _) in ENTRIES.items() if getattr(module, name, None) is None
    ] == []


def parameters(signature):
    """Name, kind and default of each parameter but self."""
    return [
        (p.name, p.kind, FP32_MIN if p.default is ... else p.default)
        for p in signature.parameters.values()
        if p.name != "self"
    ]


def test_every_signature_is_the_documented_one():
    calls = {
        key: (getattr(module, name), entry["signature"])
        for key, (module, name, entry) in ENTRIES.items()
        if entry["kind"] in ("function", "decorator")
    }
    calls |= {
        f"NkiTensor.{name}": (getattr(nki.language.NkiTensor, name), text)
        for name, text in METHODS.items()
    }
    assert len(calls) > len(METHODS) > 10
    wrong = {}
    names = {**vars(nki.language), **vars(nki.isa), "FP32_MIN": FP32_MIN, "fp32_min": FP32_MIN}
    for key, (function, text) in calls.items():
        found = parameters(inspect.signature(function))
        wanted = parameters(facts.signature(text, names))
        if found != wanted:
            wrong[key] = found, wanted
    assert wrong == {}


def test_every_enumeration_has_the_documented_members():
    enums = {k: (getattr(m, n), e["members"]) for k, (m, n, e) in ENTRIES.items() if "members" in e}
    assert len(enums) > 5
    found = {
        key: issubclass(kind, enum.Enum)
        and {m.name: m.value if members[m.name] is not None else None for m in kind}
        for key, (kind, members) in enums.items()
    }
    assert found == {key: members for key, (_, members) in enums.items()}


def test_types_are_strings():
    kinds = [n for n, e in API["nki.language"].items() if e["kind"] == "dtype"]
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


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        ("language", "tensor_copy", r"did you mean nisa\.tensor_copy\?"),
        ("isa", "add", r"did you mean nl\.add\?"),
        ("language", "grid", "see the reference"),  # and no module of the simulator: nl.grids
        ("isa", "nki_dma", "see the reference"),
    ],
)
def test_a_name_is_looked_for_in_the_other_modules(module, name, says):
    with pytest.raises(AttributeError, match=says):
        getattr(getattr(nki, module), name)
