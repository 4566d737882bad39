"""Entries of the reference (reference.py) for every documented name of `import nki`.

Parameters, engine and limits are those of nkibook/facts/nki_api_nki.json, the text is the
simulator's docstring, else that file's; since when a name is there is in
`nkisim.frontends.nki.releases`. Then come the pages whose cells use the name, and of those that
kernels use most an example that is run here (nkibook/figures/nki_examples.py).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference import Entry, described, literal, summary, used_in, uses
from reference_neuronxcc import docstring

SHORT = {"nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}
ENGINES = {"DMA": "DMA", "Tensor": "Tensor Engine", "Vector": "Vector Engine"}
ENGINES |= {"Scalar": "Scalar Engine", "GpSimd": "GpSimd"}
OTHERS = "Registers, and what is not an engine's alone"
FUNCTIONS = "Functions"
TYPES = "Types and constants"
MOST_LIMITS = 3  # in a line; more are a list


def entries(root: Path, pages: list[str], module: str) -> list[Entry]:
    """The entries of a module, by group, the most used first."""
    from nkibook import facts
    from nkibook.figures import judges

    documented = facts.documented("nki")
    tried = judges.tried(documented)
    used = _uses(root, tuple(pages))
    home = importlib.import_module(module)
    made = []
    for group, names in _groups(module, documented[module]).items():
        for short in sorted(names, key=lambda short: -tried[f"{module}.{short}"].kernels):
            name, known = f"{module}.{short}", names[short]
            called = known["kind"] in ("function", "decorator")
            value = getattr(home, short, None)
            told = docstring(value) if called else None
            told = told or known.get("semantics")
            text = described(told) if called and docstring(value) else [literal(told or "")]
            text += _said(known, judges.said(tried[name]), value)
            text += _releases(f"{SHORT.get(module, module)}.{short}")
            text += used_in(used.get(f"{SHORT.get(module, module)}.{short}", []))
            text += _examples(name)
            kind, parameters = ("function", known["signature"]) if called else ("data", "")
            shown = f"{SHORT.get(module, module)}.{short}"
            made.append(Entry(module, group, name, shown, kind, parameters, summary(told), text))
    return made


_uses = functools.cache(functools.partial(uses, dialect="nki"))


def _groups(module: str, names: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The names of a module by what they are: what kernels are written with comes first."""
    found: dict[str, dict[str, Any]] = {
        group: {} for group in (*ENGINES.values(), OTHERS, FUNCTIONS, TYPES)
    }
    for name, known in names.items():
        if module not in ("nki.language", "nki.isa"):
            group = ""
        elif known["kind"] in ("dtype", "constant", "class"):
            group = TYPES
        elif module == "nki.isa":
            group = ENGINES.get((known.get("engines") or ("",))[0], OTHERS)
        else:
            group = FUNCTIONS
        found.setdefault(group, {})[name] = known
    return {group: names for group, names in found.items() if names}


def _said(known: dict[str, Any], who: str, value: Any) -> Iterator[str]:
    """What is documented of a name beside its text, and who has tried it."""
    yield ""
    if engines := known.get("engines"):
        either = " or ".join(filter(None, (", ".join(engines[:-1]), engines[-1])))
        yield f"*Engine:* {known.get('engine', either)}."
    if generation := known.get("generation"):
        cores = f", on {known['cores']} cores" if "cores" in known else ""
        yield f"*Chips:* NeuronCore-{generation} and later{cores}."
    limits = [literal(limit) for limit in known.get("constraints") or ()]
    if len(limits) > MOST_LIMITS:
        yield from ("*Limits:*", "", *(f"- {limit}" for limit in limits))
    elif limits:
        yield f"*Limits:* {'; '.join(limits)}."
    if members := known.get("members"):
        yield from ("", f"*Members:* {', '.join(f'``{member}``' for member in members)}.")
    for title, texts in (("Methods", "methods"), ("Attributes", "attributes")):
        if told := known.get(texts):
            yield from ("", f"*{title}:*", "")
            yield from (
                f"- ``{name}{_signature(value, name)}``: {literal(text)}"
                for name, text in told.items()
            )
    if known["kind"] not in ("dtype", "constant"):
        yield from ("", f"*Tried:* {who}")


def _releases(name: str) -> Iterator[str]:
    """Since when a name is there, and what a release has changed of it."""
    from nkisim.frontends.nki.releases import BY_NAME, NEWEST

    change = BY_NAME.get(name)
    kind = change.kind if change else ""
    said = [f"*Since* NKI {NEWEST if kind == 'new' else '0.6 or earlier'}."]
    if change is not None and kind in ("deprecated", "removed"):
        said.append(f"**{kind.capitalize()}** in NKI {NEWEST}: use {_text(change.instead)}.")
    if change is not None and kind == "changed":
        said.append(
            f"*Changed* in NKI {NEWEST}: {_text(change.now)}. Before: {_text(change.before)}."
        )
    if change is not None and change.unpublished:
        said.append(f"*Not published:* {_text(change.unpublished)}.")
    yield from ("", " ".join(said))


def _text(text: str) -> str:
    """Text with code between backticks, as reStructuredText."""
    parts = text.split("`")
    return "".join(f"``{part}``" if n % 2 else literal(part) for n, part in enumerate(parts))


def _signature(cls: Any, name: str) -> str:
    """Names and defaults of a method's parameters, "" of what is no method."""
    method = getattr(cls, name, None)
    if name.startswith("__") or not inspect.isfunction(method):
        return ""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    plain = [each.replace(annotation=each.empty) for each in parameters]
    return str(inspect.Signature(plain))


def _examples(name: str) -> Iterator[str]:
    from nkibook.figures.nki_examples import EXAMPLES

    for example in EXAMPLES.get(name, ()):
        yield from ("", f"*Example.* {example.notice}", "", ".. code-block:: python", "")
        yield from (f"   {line}" for line in example.text().split("\n"))
        if example.large:
            yield from ("", example.modelled(name.rpartition(".")[2]))
