"""Counts which documented names of `import nki` stand in the source of suites of tests of others.

    python tools/aws/nki_names.py PATH_TO_AWS_NEURON_SDK FOLDER_OF_TRNSCI PATH_TO_NKI_LIBRARY

The suites are those of nki_suites.json and nki_library_tests.json in nkibook/validation, where
something passed: the examples of AWS's docstrings and its guides (what aws_docstrings.py and
aws_guides.py run), the simulator tests of trnsci's packages, and nki-library's integration
tests. Of the last two it reads each test file and what that imports, directly or not, from its own
repository. A name counts once a file, or once an example. That it stands in a file says that the
suite can reach it, not that each test does. Writes nkibook/validation/nki_names.json.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/aws"))
import aws_docstrings  # noqa: E402
import aws_guides  # noqa: E402

OUT = ROOT / "nkibook/validation/nki_names.json"
FACTS = ROOT / "nkibook/facts/nki_api_nki.json"
SUITES = {
    "docstrings": "AWS's docs of SDK 2.32: examples in docstrings that assert something",
    "guides": "AWS's guides of SDK 2.32",
    "trnsci": "the simulator tests of trnfft, trnrand, trnsolver, trnsparse and trntensor",
    "nki-library": "the integration tests of nki-library 2.29 that were run, and passed in part",
}


def documented() -> set[str]:
    """The public names, as `nki.isa.dma_copy`."""
    modules = json.loads(FACTS.read_text())["modules"]
    return {f"{module}.{name}" for module, names in modules.items() for name in names}


def named(tree: ast.AST, public: set[str]) -> set[str]:
    """The public names that a program names, through whatever its imports call them."""
    local: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                local[name.asname or name.name.split(".")[0]] = (
                    name.name if name.asname else name.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for name in node.names:
                local[name.asname or name.name] = f"{node.module}.{name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            parts = _dotted(node)
            if parts and parts[0] in local:
                path = ".".join([local[parts[0]], *parts[1:]]).replace(".constants.", ".")
                found.add(path)
    return found & public


def _dotted(node: ast.expr) -> list[str]:
    """`nl.tile_size.pmax` as its parts; nothing of what is no chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def reached(files: Iterable[Path], roots: list[Path]) -> set[Path]:
    """These files, and those that they import from below `roots`, directly or not."""
    waiting, seen = list(files), set()
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            waiting += [found for name in _imports(node, file, roots) for found in _files(*name)]
    return seen


def _imports(node: ast.AST, file: Path, roots: list[Path]) -> Iterator[tuple[Path, str]]:
    """The folder and the dotted name of each module that an import may mean."""
    if isinstance(node, ast.Import):
        yield from ((root, name.name) for name in node.names for root in roots)
    elif isinstance(node, ast.ImportFrom):
        folders = [file.parents[node.level - 1]] if node.level else roots
        for folder in folders:
            module = node.module or ""
            yield folder, module
            yield from ((folder, f"{module}.{name.name}".strip(".")) for name in node.names)


def _files(folder: Path, module: str) -> list[Path]:
    path = folder.joinpath(*module.split(".")) if module else folder
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return [file.resolve() for file in candidates if file.is_file()]


def library_tests(library: Path) -> list[Path]:
    """The test files of nki-library of which tests passed."""
    results = json.loads((ROOT / "nkibook/validation/nki_library_tests.json").read_text())
    early = {
        re.sub(r"^trn\d ", "", group).split(",")[0]: counts
        for group, counts in results["stopped early, of many more"].items()
        if "experimental" not in group
    }
    core = library / "test/integration/nkilib/core"
    files: set[Path] = set()
    for groups in (results["trn2"], results["trn3"], early):
        for group, (passed, *_) in groups.items():
            path = core / group
            if passed:
                files.update([path] if path.is_file() else path.rglob("test_*.py"))
    return sorted(files)


def programs(sdk: Path, trnsci: Path, library: Path) -> Iterator[tuple[str, str]]:
    """Each program: its suite and its text."""
    for _, text in aws_docstrings.examples(sdk):
        yield "docstrings", aws_docstrings.PRELUDE + text
    for _, text in aws_guides.programs(sdk):
        yield "guides", text
    for test in sorted(trnsci.glob("*/tests/test_nki_sim.py")):
        for file in reached([test.resolve()], [test.resolve().parents[1]]):
            yield "trnsci", file.read_text()
    roots = [library.resolve(), library.resolve() / "src", library.resolve() / "src/nkilib_src"]
    for file in reached([f.resolve() for f in library_tests(library)], roots):
        yield "nki-library", file.read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the names of nki in suites of others.")
    parser.add_argument("sdk", type=Path, help="a checkout of aws-neuron/aws-neuron-sdk")
    parser.add_argument("trnsci", type=Path, help="a folder with checkouts of trnsci's packages")
    parser.add_argument("library", type=Path, help="a checkout of aws-neuron/nki-library, tag 2.29")
    given = parser.parse_args()
    public = documented()
    counts: dict[str, Counter[str]] = {suite: Counter() for suite in SUITES}
    sizes: Counter[str] = Counter()
    for suite, text in programs(given.sdk, given.trnsci, given.library):
        names = named(ast.parse(text), public)
        sizes[suite] += bool(names)
        counts[suite].update(names)
    missing = [suite for suite in SUITES if not sizes[suite]]
    if missing:
        parser.error(f"no program of {', '.join(missing)} names anything of nki: wrong folders?")
    rows = {
        name: [counts[suite][name] for suite in SUITES]
        for name in sorted(public)
        if any(counts[suite][name] for suite in SUITES)
    }
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    head = {
        "what": "how many files, or examples, of each suite name a public name of nki 0.6",
        "command": "python tools/aws/nki_names.py SDK TRNSCI NKI_LIBRARY",
        "date": datetime.now(UTC).date().isoformat(),
        "suites": {suite: [what, sizes[suite]] for suite, what in SUITES.items()},
    }
    text = json.dumps(head, indent=1).removesuffix("\n}")
    OUT.write_text(f'{text},\n "names": {{\n{body}\n }}\n}}\n')
    print(f"{len(rows)} of {len(public)} names; files and examples: {dict(sizes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
