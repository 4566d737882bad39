"""Tables of what tests of others say of `import nki` on the simulator, and of what kernels use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import validation
from figures.validation import Table

_FOLDER = Path(validation.__file__).parent
_CHIPS = {"v3": "Trainium2, 3", "v4": "Trainium3"}


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
    return Table("suites of others on the simulator", head, ([*map(str, r)] for r in results()))


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


def reasons() -> Table:
    """Why tests of nki-library fail."""
    rows = _facts("nki_library_tests")["reasons"].items()
    return Table("failures of nki-library's tests", ["tests", "why"], rows)


def instructions(documented: dict[str, dict[str, Any]]) -> Table:
    """The instructions by how many kernels use them.

    Args:
        documented: of each module, what is documented of each name.
    """
    usage = _facts("nki_usage")
    rows = []
    for module, short in (("nki.isa", "nisa"), ("nki.collectives", "ncc")):
        for name, known in documented[module].items():
            if known["kind"] != "function":
                continue
            kernels, files = usage["names"].get(f"{module}.{name}", (0, 0))
            chips = next((c for v, c in _CHIPS.items() if v in (known["platforms"] or "")), "all")
            rows.append((kernels, files, f"{short}.{name}", known["engine"] or "", chips))
    rows.sort(key=lambda row: (-row[0], -row[1], row[2]))
    head = ["instruction", "engines", "chips", f"of {usage['kernels']} kernels", "files"]
    return Table("instructions by use", head, ([n, e, c, str(k), str(f)] for k, f, n, e, c in rows))
