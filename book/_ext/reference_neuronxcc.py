"""Sphinx extension: a reference entry for every documented name of `neuronxcc.nki`.

A page holds the line `<!-- nki-reference -->`; in its place come the names, by group, each as an
object of Sphinx's Python domain, so that the search finds it. Parameters are those of
nkibook/facts/nki_api_neuronxcc.json, or of the simulator's function; the text is the simulator's
docstring, status and limits are the coverage table's. Then come the pages whose cells use the name,
and an example that is run here (nkibook/figures/api_examples.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config as NapoleonConfig
from sphinx.ext.napoleon import GoogleDocstring

MARKER = "<!-- nki-reference -->"
SHORT = {
    "neuronxcc.nki": "nki",
    "neuronxcc.nki.language": "nl",
    "neuronxcc.nki.isa": "nisa",
    "neuronxcc.nki.compiler": "nki.compiler",
    "neuronxcc.nki.typing": "nki.typing",
}
MOST_PAGES = 4  # linked from an entry: the first ones of the table of contents


def short_name(module: str, name: str) -> str:
    """What kernels call a name: `nl.load`."""
    return f"{SHORT[module]}.{name}"


CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?:---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)*)(.*?)^```", re.S | re.M
)


def uses(root: Path, pages: list[str], dialect: str) -> dict[str, list[str]]:
    """The pages whose code cells in a dialect use each name, in the order of `pages`.

    A page without marks (nkibook/cells.py) is in `import nki` where it imports that.
    """
    from nkibook.cells import dialect_of

    found: dict[str, list[str]] = {}
    for page in pages:
        path = root / f"{page}.md"
        text = path.read_text() if path.is_file() else ""
        cells = CELL.findall(text)
        of_page = "nki" if "\nimport nki\n" in text else "neuronxcc"
        marked = any(map(dialect_of, cells))
        of_cells = [dialect_of(cell) or (dialect if marked else of_page) for cell in cells]
        read = "\n".join(cell for cell, of in zip(cells, of_cells, strict=True) if of == dialect)
        for name in set(re.findall(r"\b(?:nl|nisa|nki)(?:\.[A-Za-z_]\w*)+", read)):
            found.setdefault(name, []).append(page)
    return found


def reference(root: Path, pages: list[str]) -> str:
    """The entries of all names, as MyST."""
    import kernels  # noqa: F401  (settles the backend of neuronxcc.nki)
    from nkibook.facts.coverage import coverage
    from nkibook.figures import coverage as groups

    used = uses(root, pages, "neuronxcc")
    parts = []
    for title, entries in groups.groups(coverage()).items():
        module, _, kind = title.partition(": ")
        parts += [f"### `{module}`{': ' * bool(kind)}{kind}", "", "````{eval-rst}"]
        parts += [line for entry in entries for line in _entry(entry, used)]
        parts += ["````", ""]
    return "\n".join(parts)


def _entry(entry: Any, used: dict[str, list[str]]) -> Iterator[str]:
    from nkibook.facts.coverage import documented, find
    from nkibook.figures import api_examples

    name = short_name(entry.module, entry.name)
    found = find(entry.module, entry.name)
    facts = documented()[entry.module][entry.name]
    called = facts.get("params") is not None or facts.get("signature") is not None
    parameters = facts.get("signature") or (api_examples.signature(found) if called else "")
    yield f".. py:{'function' if called else 'data'}:: {name}{parameters}"
    yield ""
    text = [*_described(found), *_facts(entry)]
    pages = [page for page in used.get(name, []) if page != "book/api"]
    if pages:
        links = ", ".join(f":doc:`/{page}`" for page in pages[:MOST_PAGES])
        text += ["", f"Used in {links}{' and others' * (len(pages) > MOST_PAGES)}."]
    if name in api_examples.EXAMPLES:
        text += ["", ".. code-block:: python", ""]
        text += [f"   {line}" for line in api_examples.run(name).split("\n")]
    yield from (f"   {line}".rstrip() for line in text)
    yield ""


def _described(found: Any) -> list[str]:
    """The docstring as reStructuredText; of a NumPy type or a constant, nothing."""
    module = getattr(found, "__module__", "") or ""
    own = module.startswith("nkisim.") and not hasattr(found, "value")
    docstring = found.__doc__ if own else None
    if not docstring:
        return []
    lines = docstring.expandtabs().strip().split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    cut = min(indents, default=0)
    text = "\n".join([lines[0], *(line[cut:] for line in lines[1:])])
    text = re.sub(r":\w+:(`[^`]+`)", r"\1", text.replace("\\", "\\\\"))
    text = re.sub(r"(?<![`:])`([^`\n]+)`(?!`)(?=(\w?))", _as_literal, text)
    config = NapoleonConfig(napoleon_use_param=False, napoleon_use_rtype=False)
    return [*str(GoogleDocstring(text, config)).split("\n")]


def _as_literal(match: re.Match[str]) -> str:
    """Code, kept apart from a letter behind it."""
    return f"``{match[1]}``" + ("\\ " if match[2] else "")


def _facts(entry: Any) -> Iterator[str]:
    """Engine, SDK, status and limits, as one paragraph."""
    said = []
    if entry.engines:
        said.append(f"*Engine:* {', '.join(entry.engines)}.")
    if entry.since:
        said.append(f"*Since* SDK {entry.since}.")
    if entry.generation:
        said.append(f"*Needs* NeuronCore-{entry.generation}.")
    if entry.status != "simulated":
        said.append(f"**{entry.status.capitalize()}:** {_literal(entry.reason)}.")
    if entry.limits:
        said.append(f"*Limits:* {_literal(entry.limits)}.")
    yield ""
    yield " ".join(said)


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("_", "\\_").replace("`", "\\`")


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
