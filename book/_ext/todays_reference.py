"""Sphinx extension: a reference entry for every documented name of `import nki`.

A page holds the line `<!-- todays-reference -->`; in its place come the names, by module and
engine, each as an object of Sphinx's Python domain. Parameters, engine and limits are those of
nki_api_0.6.json, the text is the simulator's docstring, else that file's. Then come the pages
whose cells use the name, and of those that kernels use most an example that is run here
(figures/nki_examples.py).
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nki_reference import MOST_PAGES, _described, _literal, in_todays_dialect, short_name, uses
from sphinx.application import Sphinx

MARKER = "<!-- todays-reference -->"
FACTS = "nkisim/frontends/nki/nki_api_0.6.json"
SHORT = {"nki": "nki", "nki.language": "nl", "nki.isa": "nisa"}
ENGINES = {"Tensor": "Tensor Engine", "Vector": "Vector Engine", "Scalar": "Scalar Engine"}
ENGINES |= {"GpSimd": "GpSimd", "DMA": "DMA"}


def facts(root: Path) -> dict[str, dict[str, Any]]:
    """What is documented of each name, by module."""
    return json.loads((root / FACTS).read_text())["modules"]


def reference(root: Path, pages: list[str]) -> str:
    """The entries of all names, as MyST."""
    sys.path.insert(0, str(root / "book"))
    import kernels  # noqa: F401  (settles the backend of nki)
    from nkisim.frontends.neuronxcc.coverage import coverage

    older = {short_name(entry.module, entry.name) for entry in coverage()}
    used = uses(root, [page for page in pages if in_todays_dialect(root, page)])
    parts = []
    for (module, group), names in _groups(facts(root)).items():
        parts += [f"### `{module}`{': ' * bool(group)}{group}", "", "````{eval-rst}"]
        home = importlib.import_module(module)
        for name, known in names.items():
            found = getattr(home, name, None)
            parts += _entry(module, name, known, found, used, older)
        parts += ["````", ""]
    return "\n".join(parts)


def _groups(modules: dict[str, dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for module, names in modules.items():
        for name, known in names.items():
            group = ""
            if known["kind"] in ("dtype", "constant", "class"):
                group = "types and constants" if module in ("nki.language", "nki.isa") else ""
            elif module == "nki.isa":
                first = (known.get("engine") or "").split(" ")[0].rstrip(",")
                group = ENGINES.get(first, "registers, and what is not an engine's alone")
            found.setdefault((module, group), {})[name] = known
    return found


def _entry(
    module: str,
    name: str,
    known: dict[str, Any],
    found: Any,
    used: dict[str, list[str]],
    older: set[str] | None = None,
) -> Iterator[str]:
    called = known["kind"] in ("function", "decorator")
    signature = f"({', '.join(map(_parameter, known.get('params') or ()))})" if called else ""
    yield f".. py:{'function' if called else 'data'}:: {module}.{name}{signature}"
    if f"{module}.{name}" in (older or ()):
        yield "   :no-index:"  # an object has one entry, and the older reference has this one
    yield ""
    text = (_described(found) if called else []) or [_literal(known.get("semantics") or "")]
    said = []
    if known.get("engine"):
        said.append(f"*Engine:* {known['engine']}.")
    if limits := known.get("constraints"):
        said.append(f"*Limits:* {_literal('; '.join(limits))}.")
    text += ["", " ".join(said)]
    if pages := used.get(f"{SHORT.get(module, module)}.{name}", []):
        links = ", ".join(f":doc:`/{page}`" for page in pages[:MOST_PAGES])
        text += ["", f"Used in {links}{' and others' * (len(pages) > MOST_PAGES)}."]
    text += _examples(f"{module}.{name}")
    yield from (f"   {line}".rstrip() for line in text)
    yield ""


def _examples(name: str) -> Iterator[str]:
    from figures.nki_examples import EXAMPLES

    for example in EXAMPLES.get(name, ()):
        yield from ("", f"*Example.* {example.notice}", "", ".. code-block:: python", "")
        yield from (f"   {line}" for line in example.text().split("\n"))
        if example.large:
            yield from ("", example.modelled(name.rpartition(".")[2]))


def _parameter(known: dict[str, Any]) -> str:
    stars = {"var_keyword": "**", "var_positional": "*"}.get(known["kind"], "")
    default = known.get("default")
    return f"{stars}{known['name']}" + (f"={default}" if default is not None else "")


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
