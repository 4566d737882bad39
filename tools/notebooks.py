"""Execute notebooks/*.md and write the .ipynb beside each; or check that the pairs agree.

    python tools/notebooks.py [NAME.md ...]      execute and rewrite what changed
    python tools/notebooks.py --check            compare, execute nothing
    python tools/notebooks.py --built            compare with what the book's build executed
    python tools/notebooks.py --not-built        list those that it has not executed as they are

A page that the build of the book has executed with the code that is here is not executed again.

The .md (MyST) is the reviewed source. The .ipynb is what readers download, and what nbval and
--built compare with: it has text outputs only, and nothing in it changes unless its content does.
Cell ids are hashes of the cells; pictures, HTML, standard error and timestamps are dropped; what
tools/nbval.ini lists is replaced. A cell tagged `nbval-ignore-output` stores no output.

A page in both dialects is executed once for each, and has a second .ipynb, in notebooks/import_nki:
tools/dialects.py.
"""

import argparse
import difflib
import hashlib
import os
import re
import sys
from pathlib import Path

import dialects
import executed
import jupytext
import nbformat
from executed import ROOT
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbval.plugin import get_sanitize_patterns

NOTEBOOKS = ROOT / "notebooks"
CELL_TIMEOUT = 300  # seconds, as in the Makefile and _config.yml

METADATA = {
    "jupytext": {"formats": "ipynb,md:myst"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read_source(path: Path) -> NotebookNode:
    """Return the notebook that a MyST file describes, with stable cell ids and no outputs."""
    notebook = jupytext.read(path, fmt="md:myst")
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return name_cells(notebook)


def name_cells(notebook: NotebookNode) -> NotebookNode:
    """Give the cells of a notebook, in place, ids that depend on their content alone; return it."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        digest = hashlib.sha256(f"{cell.cell_type}\0{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    return notebook


def _sanitized(text: str, patterns: list[tuple[str, str]]) -> str:
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text)
    return text


def _stored_output(output: NotebookNode, patterns: list[tuple[str, str]]) -> NotebookNode | None:
    """Return what is kept of an output: its standard output or its text/plain, or None."""
    if output.output_type == "stream" and output.name == "stdout":
        text = _sanitized(output.text, patterns)
        return nbformat.v4.new_output("stream", name="stdout", text=text)
    text = output.get("data", {}).get("text/plain")
    if text is None:
        return None
    data = {"text/plain": _sanitized(text, patterns)}
    return nbformat.v4.new_output(output.output_type, data=data)


def sanitize(notebook: NotebookNode) -> NotebookNode:
    """Drop from an executed notebook, in place, all that is not its content; return it."""
    patterns = get_sanitize_patterns((ROOT / "tools/nbval.ini").read_text())
    notebook.metadata = nbformat.from_dict(METADATA)
    count = 0
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        count += 1
        # nbval compares no output of a cell that has no execution count.
        cell.execution_count = count
        kept = [_stored_output(output, patterns) for output in cell.outputs]
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            kept = []
        cell.outputs = _merge_streams([output for output in kept if output is not None])
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
    return notebook


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring pieces of standard output: where they are cut is chance."""
    merged: list[NotebookNode] = []
    for output in outputs:
        if merged and output.output_type == merged[-1].output_type == "stream":
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def execute(source: Path, dialect: str = dialects.NEURONXCC) -> NotebookNode:
    """Execute a MyST notebook in its own folder, in a dialect, and return it, sanitized.

    Raises:
        CellExecutionError: if a cell raises.
    """
    notebook = read_source(source)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(source.parent)}},
        store_widget_state=False,
    )
    with dialects.started_in(dialect):
        client.execute()
    return sanitize(notebook)


def write_if_changed(notebook: NotebookNode, path: Path) -> bool:
    """Write `notebook` to `path` unless the file already says the same; tell which."""
    text = nbformat.writes(notebook) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def _cells(notebook: NotebookNode) -> list[str]:
    """Return each cell as text: its type, its tags and other metadata, its source."""
    lines = []
    for cell in notebook.cells:
        metadata = {key: value for key, value in cell.metadata.items() if key != "execution"}
        lines += [f"--- {cell.cell_type} {metadata}", *cell.source.splitlines()]
    return lines


def check_pair(source: Path) -> list[str]:
    """Return how the .ipynb of `source` differ from what `make notebooks` would store.

    Outputs are not recomputed here: nbval does that. An empty list means that all agree.
    """
    paths = [dialects.stored(source, dialect) for dialect in dialects.runs(source)]
    problems = [problem for path in paths for problem in _check_stored(source, path)]
    other = dialects.stored(source, dialects.NKI)
    if other.exists() and other not in paths:
        problems.append(f"{dialects.FOLDER}/{other.name} is stored, and no cell has a mark for it")
    return problems


def _check_stored(source: Path, path: Path) -> list[str]:
    if not path.exists():
        return [f"{path.name} is missing"]
    stored = nbformat.read(path, as_version=4)
    expected = read_source(source)
    drift = difflib.unified_diff(
        _cells(expected), _cells(stored), source.name, path.name, lineterm="", n=1
    )
    problems = list(drift)
    if not problems:
        for cell, other in zip(expected.cells, stored.cells, strict=True):
            if cell.id != other.get("id"):
                problems.append(f"{path.name}: cell id {other.get('id')!r}, expected {cell.id!r}")
    clean = nbformat.writes(sanitize(nbformat.from_dict(stored))) + "\n"
    if clean != path.read_text(encoding="utf-8"):
        problems.append(f"{path.name} stores more than its content: pictures, HTML, times, …")
    return problems


def of_the_book(source: Path, result: NotebookNode) -> NotebookNode:
    """Return what `execute` would, out of what the build of the book has executed."""
    notebook = read_source(source)
    for cell, ran in zip(_code(notebook), _code(result), strict=True):
        cell.outputs = ran.outputs
    return sanitize(notebook)


def drift(source: Path, result: NotebookNode, dialect: str = dialects.NEURONXCC) -> list[str]:
    """Return how what is stored of `source` differs from what the build has executed: a diff."""
    wanted = (nbformat.writes(of_the_book(source, result)) + "\n").splitlines()
    path = dialects.stored(source, dialect)
    stored = path.read_text(encoding="utf-8").splitlines()
    names = f"{path.relative_to(source.parent)}, stored", f"{source.name}, executed"
    return list(difflib.unified_diff(stored, wanted, *names, lineterm="", n=3))


def check_built(sources: list[Path], folder: Path) -> int:
    """Compare what the build of the book has executed with what is stored; return an exit status.

    Args:
        sources: MyST notebooks.
        folder: the build's cache of executed notebooks.
    """
    failed = 0
    for source, dialect in _runs(sources):
        result = executed.result(source, executed.cache_of(dialect, folder))
        if result is None:
            print(f"{source.name}: the book has not executed it; run `make book`")
            failed += 1
            continue
        found = drift(source, result, dialect)
        print("\n".join(found), end="\n" if found else "")
        failed += bool(found)
    if failed:
        print("error: results differ from those stored; run `make notebooks`", file=sys.stderr)
    return 1 if failed else 0


def _runs(sources: list[Path]) -> list[tuple[Path, str]]:
    return [(source, dialect) for source in sources for dialect in dialects.runs(source)]


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def check_all(sources: list[Path]) -> int:
    """Print every difference between the pairs; return an exit status."""
    orphans = {path.with_suffix(".md") for path in NOTEBOOKS.glob("*.ipynb")}
    seconds = (NOTEBOOKS / dialects.FOLDER).glob("*.ipynb")
    orphans |= {NOTEBOOKS / f"{path.stem}.md" for path in seconds}
    orphans -= set(NOTEBOOKS.glob("*.md"))
    problems = [f"{path.with_suffix('.ipynb').name} has no .md" for path in sorted(orphans)]
    for source in sources:
        problems += check_pair(source)
    for problem in problems:
        print(problem)
    if problems:
        print("error: notebook pairs disagree; run `make notebooks`", file=sys.stderr)
    return 1 if problems else 0


def write_all(sources: list[Path]) -> int:
    """Execute and store every notebook; return an exit status."""
    failed = 0
    built = {d: executed.current(sources, d) for d in (dialects.NEURONXCC, dialects.NKI)}
    for source, dialect in _runs(sources):
        path = dialects.stored(source, dialect)
        print(f"==> {path.relative_to(source.parent)} ", end="", flush=True)
        try:
            if source in built[dialect]:
                print("as the book has executed it: ", end="", flush=True)
                notebook = of_the_book(source, built[dialect][source])
            else:
                notebook = execute(source, dialect)
            changed = write_if_changed(notebook, path)
        except CellExecutionError as error:
            failed += 1
            print(f"failed, .ipynb left as it was\n{error}")
        else:
            print("written" if changed else "unchanged")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the pairs, write nothing")
    parser.add_argument("--built", action="store_true", help="compare with what was executed")
    parser.add_argument("--not-built", action="store_true", help="list what was not executed")
    parser.add_argument("sources", nargs="*", type=Path, help="default: all of notebooks/*.md")
    arguments = parser.parse_args()
    # validation/ is not installed: as in the Makefile, for the notebooks' processes.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    sources = [path.resolve().with_suffix(".md") for path in arguments.sources]
    for path in sources:
        if path.parent != NOTEBOOKS or not path.exists():
            print(f"error: no {path}; name a page as notebooks/add_jax", file=sys.stderr)
            return 2
    sources = sources or sorted(NOTEBOOKS.glob("*.md"))
    if arguments.built:
        return check_built(sources, executed.CACHE)
    if arguments.not_built:
        built = {d: executed.current(sources, d) for d in (dialects.NEURONXCC, dialects.NKI)}
        missing = (dialects.stored(*run) for run in _runs(sources) if run[0] not in built[run[1]])
        print(*(path.relative_to(ROOT) for path in missing))
        return 0
    return check_all(sources) if arguments.check else write_all(sources)


if __name__ == "__main__":
    sys.exit(main())
