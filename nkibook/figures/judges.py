"""Tables of what tests of others say of `import nki` on the simulator, and of what kernels use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nkibook import validation
from nkibook.figures.coverage import Html
from nkibook.figures.validation import LONG, Table

GROUPS = ("all chips", "later chips", "our tests only", "results, no modelled time")
# Kernels do not name these classes: they get their objects from other names.
GOT_FROM = {
    "NkiTensor": "ndarray",
    "MemoryRegion": "sbuf",
    "DType": "float32",
    "_TileSize": "tile_size",
    "VirtualRegister": "register_alloc",
}

COLUMNS = {"docs": ("docstrings", "guides"), "trnsci": ("trnsci",), "library": ("nki-library",)}

Documented = dict[str, dict[str, dict[str, Any]]]  # module, name, facts

_FOLDER = Path(validation.__file__).parent
_CHIPS = {"v3": "Trainium2, 3", "v4": "Trainium3"}
# The pages of the reference with the entries of a module, beside the page with these tables.
_PAGES = {f"nki.{module}": f"api_nki_{module}" for module in ("language", "isa", "collectives")}
_OTHERS = "api_nki_others"
_SHORT = {"nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}


def _facts(name: str) -> dict[str, Any]:
    return json.loads((_FOLDER / f"{name}.json").read_text())


def results() -> Iterator[tuple[str, str, int, int, int, str]]:
    """Suite, chip, passed, failed, skipped, and how it was run, of every suite that was run."""
    for suite, chip, passed, failed, skipped, command, reason in _facts("nki_suites")["suites"]:
        yield suite, chip, passed, failed, skipped, reason or command
    library = _facts("nki_library_tests")
    for chip in ("trn2", "trn3"):
        for group, (passed, failed, skipped) in library[chip].items():
            yield f"nki-library 2.29, {group}", chip, passed, failed, skipped, "whole"
    for group, (passed, failed, skipped) in library["stopped early, of many more"].items():
        chip, _, rest = group.partition(" ")
        name, sample = re.split(r", (?=\d+ (?:s|of))", rest, maxsplit=1)
        yield f"nki-library 2.29, {name}", chip, passed, failed, skipped, f"stopped after {sample}"


def suites() -> Table:
    """A row for each suite and chip."""
    head = ["suite", "chip", "passed", "failed", "skipped", "how, or why"]
    rows = ([*map(str, r)] for r in results())
    return Table("suites of others on the simulator", head, rows, style="stacked")


def rates() -> str:
    """What share of the tests that were run passed, as a line for each chip."""
    lines = []
    for chip in ("trn2", "trn3"):
        rows = [r for r in results() if r[1] == chip]
        passed, failed = sum(r[2] for r in rows), sum(r[3] for r in rows)
        lines.append(
            f"{chip}: {passed:,} passed, {failed} failed: {passed / (passed + failed):.1%}"
        )
    return "\n".join(lines)


def releases() -> Table:
    """What passes as NKI 0.7 and as NKI 0.6, of suites that were run as both."""
    head = ["suite", "chip", "tests", "passed in 0.7", "passed in 0.6", "why not all"]
    rows = ([*map(str, row)] for row in _facts("nki_suites")["releases"])
    return Table("suites of others in two releases of NKI", head, rows, style="stacked")


def reasons() -> Table:
    """Why tests of nki-library fail."""
    rows = _facts("nki_library_tests")["reasons"].items()
    return Table("failures of nki-library's tests", ["tests", "why"], rows, style="stacked")


class Tried(NamedTuple):
    """Who has tried a name of nki before the reader does.

    Attributes:
        kernels: public kernels that use it.
        suites: of each suite that names it, in how many files or examples.
        chips: those that have it, where not all have.
    """

    kernels: int
    suites: dict[str, int]
    chips: str


def tried(documented: Documented) -> dict[str, Tried]:
    """Who has tried each documented name, as `nki.isa.dma_copy`."""
    usage, named = _facts("nki_usage")["names"], _facts("nki_names")
    found = {}
    for module, names in documented.items():
        for name, known in names.items():
            seen_as = f"{module}.{GOT_FROM.get(name, name)}"
            kernels, _ = usage.get(seen_as, (0, 0))
            counts = zip(named["suites"], named["names"].get(seen_as, ()), strict=False)
            chips = next((c for v, c in _CHIPS.items() if v in known.get("generation", "")), "")
            found[f"{module}.{name}"] = Tried(kernels, {s: n for s, n in counts if n}, chips)
    return found


def said(known: Tried) -> str:
    """Who has tried a name, as a sentence."""
    total = _facts("nki_usage")["kernels"]
    kernels = f"by {known.kernels or 'none'} of {total} public kernels"
    suites = f"by suites of others that run here: {', '.join(known.suites)}"
    return f"{kernels}, and {suites if known.suites else 'by no suite of others that runs here'}."


def groups(documented: Documented) -> dict[str, dict[str, Tried]]:
    """All names by what a reader should expect of them, each once, and the most used first."""
    found: dict[str, dict[str, Tried]] = {group: {} for group in GROUPS}
    for name, known in sorted(tried(documented).items(), key=lambda item: -item[1].kernels):
        module, _, short = name.rpartition(".")
        if module == "nki.collectives" and documented[module][short]["kind"] == "function":
            group = "results, no modelled time"
        elif not known.suites:
            group = "our tests only"
        else:
            group = "later chips" if known.chips else "all chips"
        found[group][name] = known
    return found


def names(documented: Documented, group: str) -> Html:
    """A row for each name of one of GROUPS; columns of suites where one has tried any."""
    chosen = groups(documented)[group]
    columns = {title: set(parts) for title, parts in COLUMNS.items()}
    if not any(known.suites for known in chosen.values()):
        columns = {}
    head = "".join(f'<th scope="col">{title}</th>' for title in ("name", "kernels", *columns))
    rows = "".join(_row(name, known, columns.values()) for name, known in chosen.items())
    table = f'<table class="names"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    if len(chosen) <= LONG:
        return Html(table)
    return Html(f"<details><summary>All {len(chosen)} names</summary>{table}</details>")


def _row(name: str, known: Tried, columns: Iterable[set[str]]) -> str:
    module, _, short = name.rpartition(".")
    code = f"<code>{_SHORT.get(module, module)}.<wbr>{short}</code>"
    link = f'<a href="{_PAGES.get(module, _OTHERS)}.html#{name}">{code}</a>'
    chips = f" <small>{known.chips}</small>" if known.chips else ""
    of_suites = (sum(n for s, n in known.suites.items() if s in parts) for parts in columns)
    cells = "".join(f"<td>{count or ''}</td>" for count in (known.kernels, *of_suites))
    return f'<tr><th scope="row">{link}{chips}</th>{cells}</tr>'
