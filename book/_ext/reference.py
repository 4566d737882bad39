"""Sphinx extension: the reference, a page for each module and a page with all names.

    <!-- reference: nki.isa -->        the entries of the names of these modules
    <!-- names: nki -->                the names of the modules of a package, a line each

An entry is an object of Sphinx's Python domain, so that the search finds it and pages link to it.
What an entry holds is in `reference_neuronxcc`, `reference_nki` and `reference_own`, by the package
that a name is of; what they share is here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config as NapoleonConfig
from sphinx.ext.napoleon import GoogleDocstring

MARKER = re.compile(r"<!-- (reference|names): ([\w. ]+) -->")
RESULTS = "Results"  # the heading of several results, each with a name, in a docstring
MOST_PAGES = 4  # linked from an entry: the first ones of the table of contents


class Entry(NamedTuple):
    """A name of the reference.

    Attributes:
        module: what has the name, e.g. "nki.isa".
        group: the heading that it stands below; "" where its module has one group only.
        name: what it is known by in the whole book, e.g. "nki.language.load".
        short: what a list calls it, e.g. "nl.load".
        kind: of Sphinx's Python domain: function, data, class, method or property.
        parameters: of what is called, e.g. "(x, y)"; else "".
        summary: a line of Markdown; "" where nothing is documented.
        text: reStructuredText.
    """

    module: str
    group: str
    name: str
    short: str
    kind: str
    parameters: str
    summary: str
    text: list[str]


def summary(text: str | None) -> str:
    """The first sentence of a docstring, as Markdown."""
    first = " ".join((text or "").strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.])\.(?:\s|$)|:$", first)[0]
    code = re.sub(r":\w+:(`[^`]+`)", r"\1", sentence).replace("``", "`").split("`")
    return "`".join(part if n % 2 else part.replace("*", "\\*") for n, part in enumerate(code))


def described(docstring: str | None) -> list[str]:
    """A docstring as reStructuredText."""
    if not docstring:
        return []
    lines = docstring.expandtabs().strip().split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    cut = min(indents, default=0)
    text = "\n".join([lines[0], *(line[cut:] for line in lines[1:])])
    text = re.sub(r":\w+:(`[^`]+`)", r"\1", text.replace("\\", "\\\\"))
    text = re.sub(r"(?<![`:])`([^`\n]+)`(?!`)(?=(\w?))", _as_literal, text)
    text = _STAR.sub(lambda match: match[1] or "\\*", text)
    config = NapoleonConfig(
        napoleon_use_param=False,
        napoleon_use_rtype=False,
        # Several names may stand before one text.
        napoleon_custom_sections=[(RESULTS, "params_style"), ("Attributes", "params_style")],
    )
    return [*str(GoogleDocstring(text, config)).split("\n")]


# Code, which stays as it is; else a star that would begin an emphasis: in "(*shape, 4)".
_STAR = re.compile(r"(``.*?``)|(?:(?<=[(\[])|(?<=, ))\*(?=\w)")


def _as_literal(match: re.Match[str]) -> str:
    """Code, kept apart from a letter behind it."""
    return f"``{match[1]}``" + ("\\ " if match[2] else "")


def literal(text: str) -> str:
    """Text as reStructuredText that shows it as it is."""
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("_", "\\_").replace("`", "\\`")


def used_in(pages: list[str]) -> Iterator[str]:
    """A paragraph that names the pages which use a name."""
    if pages:
        links = ", ".join(f":doc:`/{page}`" for page in pages[:MOST_PAGES])
        yield from ("", f"Used in {links}{' and others' * (len(pages) > MOST_PAGES)}.")


CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?:---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)*)(.*?)^```", re.S | re.M
)


def uses(root: Path, pages: Iterable[str], dialect: str) -> dict[str, list[str]]:
    """The pages whose code cells in a dialect use each name, in the order of `pages`.

    A page without marks (nkibook/cells.py) is in `import nki` where it imports that. The pages of
    the reference itself do not count.
    """
    from nkibook.cells import dialect_of

    found: dict[str, list[str]] = {}
    for page in pages:
        path = root / f"{page}.md"
        text = path.read_text() if path.is_file() else ""
        if MARKER.search(text):
            continue
        cells = CELL.findall(text)
        of_page = "nki" if "\nimport nki\n" in text else "neuronxcc"
        marked = any(map(dialect_of, cells))
        of_cells = [dialect_of(cell) or (dialect if marked else of_page) for cell in cells]
        read = "\n".join(cell for cell, of in zip(cells, of_cells, strict=True) if of == dialect)
        for name in set(re.findall(r"\b(?:nl|nisa|nki)(?:\.[A-Za-z_]\w*)+", read)):
            found.setdefault(name, []).append(page)
    return found


# -- pages


def entries(root: Path, pages: list[str], module: str) -> list[Entry]:
    """The entries of a module, in the order of its page."""
    import reference_neuronxcc
    import reference_nki
    import reference_own

    package = module.partition(".")[0]
    home = {"neuronxcc": reference_neuronxcc, "nki": reference_nki}.get(package, reference_own)
    return home.entries(root, pages, module)


def of_modules(root: Path, pages: list[str], modules: list[str]) -> str:
    """The entries of some modules, as MyST, below headings."""
    parts: list[str] = []
    for module in modules:
        heading = "##"
        if len(modules) > 1:
            parts += [f"## `{module}`", ""]
            heading = "###"
        group = ""
        block: list[str] = []
        for entry in entries(root, pages, module):
            if entry.group != group:
                parts += [*_block(block), f"{heading} {entry.group}", ""]
                block, group = [], entry.group
            block += [f".. py:{entry.kind}:: {entry.name}{entry.parameters}", ""]
            block += [*(f"   {line}".rstrip() for line in entry.text), ""]
        parts += _block(block)
    return "\n".join(parts)


def _block(lines: list[str]) -> list[str]:
    return ["````{eval-rst}", *lines, "````", ""] if lines else []


def names(root: Path, pages: list[str], packages: list[str]) -> str:
    """The names of some packages, a line each, by module, as MyST; methods are with their class."""
    parts: list[str] = []
    for page, modules in documented_on(root, pages).items():
        for module in modules:
            if module.partition(".")[0] not in packages:
                continue
            found = [e for e in entries(root, pages, module) if e.kind in _LISTED]
            parts += [f"### `{module}`", "", f"On {{doc}}`/{page}`.", ""]
            told = [entry for entry in found if entry.summary]
            if told:
                parts += ["| name | what it is |", "|---|---|"]
                parts += [f"| {_link(e)} | {e.summary.replace('|', chr(92) + '|')} |" for e in told]
                parts += [""]
            if bare := [_link(entry) for entry in found if not entry.summary]:
                parts += [f"{'Also ' if told else ''}{', '.join(bare)}.", ""]
    return "\n".join(parts)


_LISTED = ("function", "data", "class")


def _link(entry: Entry) -> str:
    return f"{{py:obj}}`{entry.short} <{entry.name}>`"


def documented_on(root: Path, pages: Iterable[str]) -> dict[str, list[str]]:
    """The modules whose entries each page of the reference holds."""
    found: dict[str, list[str]] = {}
    for page in pages:
        path = root / f"{page}.md"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for kind, named in MARKER.findall(text):
            if kind == "reference":
                found.setdefault(page, []).extend(named.split())
    return found


def insert(app: Sphinx, page: str, source: list[str]) -> None:
    """Put entries and lists of names in the place of the markers."""
    if not MARKER.search(source[0]):
        return
    from sphinx_external_toc.parsing import parse_toc_yaml

    import kernels  # noqa: F401  (settles the backends of neuronxcc.nki and nki)

    root = Path(app.srcdir)
    pages = list(parse_toc_yaml(root / "_toc.yml"))

    def made(match: re.Match[str]) -> str:
        if match[1] == "names":
            return names(root, pages, match[2].split())
        return of_modules(root, pages, match[2].split())

    source[0] = MARKER.sub(made, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
