"""Sphinx extension: a reference entry for every documented name of `import nki`.

A page holds the line `<!-- reference-nki -->`; in its place come the names, by module and
engine, each as an object of Sphinx's Python domain. Parameters, engine and limits are those of
nkibook/facts/nki_api_nki.json, the text is the simulator's docstring, else that file's; since when
a name is there is in `nkisim.frontends.nki.releases`. Then come the pages whose cells use the name,
and of those that kernels use most an example that is run here (nkibook/figures/nki_examples.py).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference_neuronxcc import MOST_PAGES, _described, _literal, short_name, uses
from sphinx.application import Sphinx

MARKER = "<!-- reference-nki -->"
PAGE = "book/api_nki"
SHORT = {"nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}
ENGINES = {"DMA": "DMA", "Tensor": "Tensor Engine", "Vector": "Vector Engine"}
ENGINES |= {"Scalar": "Scalar Engine", "GpSimd": "GpSimd"}
OTHERS = "registers, and what is not an engine's alone"
TYPES = "types and constants"
MOST_LIMITS = 3  # in a line; more are a list


def reference(root: Path, pages: list[str]) -> str:
    """The entries of all names, as MyST."""
    import kernels  # noqa: F401  (settles the backend of nki)
    from nkibook import facts
    from nkibook.facts.coverage import coverage
    from nkibook.figures import judges

    older = {short_name(entry.module, entry.name) for entry in coverage()}
    used = uses(root, [page for page in pages if page != PAGE], "nki")
    documented = facts.documented("nki")
    tried = judges.tried(documented)
    parts = []
    for (module, group), names in _groups(documented).items():
        parts += [f"### `{module}`{': ' * bool(group)}{group}", "", "````{eval-rst}"]
        home = importlib.import_module(module)
        by_use = sorted(names, key=lambda short: -tried[f"{module}.{short}"].kernels)
        for short in by_use:
            name, known = f"{module}.{short}", names[short]
            called = known["kind"] in ("function", "decorator")
            text = _described(getattr(home, short, None)) if called else []
            text = text or [_literal(known.get("semantics") or "")]
            text += _said(known, judges.said(tried[name]), getattr(home, short, None))
            text += _releases(f"{SHORT.get(module, module)}.{short}")
            text += _links(used.get(f"{SHORT.get(module, module)}.{short}", []))
            text += _examples(name)
            kind, parameters = ("function", known["signature"]) if called else ("data", "")
            # An object has one entry, and the older reference has those of both dialects.
            index = ["   :no-index:"] if name in older else []
            parts += [f".. py:{kind}:: {name}{parameters}", *index, ""]
            parts += [*(f"   {line}".rstrip() for line in text), ""]
        parts += ["````", ""]
    return "\n".join(parts)


def _groups(modules: dict[str, dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The names by module and what they are: what kernels are written with comes first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for module, names in modules.items():
        for name, known in names.items():
            group = ""
            if known["kind"] in ("dtype", "constant", "class"):
                group = TYPES if module in ("nki.language", "nki.isa") else ""
            elif module == "nki.isa":
                group = ENGINES.get((known.get("engines") or ("",))[0], OTHERS)
            found.setdefault((module, group), {})[name] = known
    modules_in_order, groups_in_order = list(modules), ["", *ENGINES.values(), OTHERS, TYPES]
    return dict(
        sorted(
            found.items(),
            key=lambda item: (
                modules_in_order.index(item[0][0]),
                groups_in_order.index(item[0][1]),
            ),
        )
    )


def _said(known: dict[str, Any], who: str, value: Any) -> Iterator[str]:
    """What is documented of a name beside its text, and who has tried it."""
    yield ""
    if engines := known.get("engines"):
        either = " or ".join(filter(None, (", ".join(engines[:-1]), engines[-1])))
        yield f"*Engine:* {known.get('engine', either)}."
    if generation := known.get("generation"):
        cores = f", on {known['cores']} cores" if "cores" in known else ""
        yield f"*Chips:* NeuronCore-{generation} and later{cores}."
    limits = [_literal(limit) for limit in known.get("constraints") or ()]
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
                f"- ``{name}{_signature(value, name)}``: {_literal(text)}"
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
    return "".join(f"``{part}``" if n % 2 else _literal(part) for n, part in enumerate(parts))


def _signature(cls: Any, name: str) -> str:
    """Names and defaults of a method's parameters, "" of what is no method."""
    method = getattr(cls, name, None)
    if name.startswith("__") or not inspect.isfunction(method):
        return ""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    plain = [each.replace(annotation=each.empty) for each in parameters]
    return str(inspect.Signature(plain))


def _links(pages: list[str]) -> Iterator[str]:
    if pages:
        links = ", ".join(f":doc:`/{page}`" for page in pages[:MOST_PAGES])
        yield from ("", f"Used in {links}{' and others' * (len(pages) > MOST_PAGES)}.")


def _examples(name: str) -> Iterator[str]:
    from nkibook.figures.nki_examples import EXAMPLES

    for example in EXAMPLES.get(name, ()):
        yield from ("", f"*Example.* {example.notice}", "", ".. code-block:: python", "")
        yield from (f"   {line}" for line in example.text().split("\n"))
        if example.large:
            yield from ("", example.modelled(name.rpartition(".")[2]))


def insert(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the entries in the place of the marker."""
    if MARKER not in source[0]:
        return
    from sphinx_external_toc.parsing import parse_toc_yaml

    root = Path(app.srcdir)
    pages = list(parse_toc_yaml(root / "_toc.yml"))
    source[0] = source[0].replace(MARKER, reference(root, pages))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
