"""Build the book into _build/html, then check the site. Exits non-zero on any warning or error.

The pages are rendered from stored results (results.py), so neither PyTorch nor JAX is needed. A
page whose code has changed since is executed, and its result and notebooks are stored. With --clean
all pages are executed, and the build fails where that gives something else than is stored; nothing
is written but the site. Pages are always read and written anew, since an incremental Sphinx build
forgets the warnings of pages it does not read. When no input changed at all, nothing is done.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import dialects
import digests
import executing
import needs
import pages
from executing import ANSI
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from pages import ROOT

import notebooks
import results

BUILD = ROOT / "_build"
SITE = BUILD / "html"
CACHE = BUILD / ".jupyter_cache"  # where MyST-NB finds what cells gave
MERGED = BUILD / "merged"  # pages with cells, as Sphinx is to read them: book/_ext/dialect.py
DOWNLOAD = BUILD / "download"  # goes into the site as it is: html_extra_path in _config.yml
BUILT = BUILD / ".built"
LOG = BUILD / "sphinx.log"

RENDERED = (*digests.EXECUTED, "book", "notebooks", "results", "_config.yml", "_toc.yml", "tools")
# What else is in the archive that readers download.
PACKED = ("tests", ".ci", "Makefile", "MANIFEST.in", "pyproject.toml", "README.md")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def execute_pages(names: Iterable[str]) -> list[str]:
    """Execute pages whose code has no result, and store what they give; return what was wrong."""
    runs = results.missing(names=names)
    if not runs:
        return []
    changed = ", ".join(dict.fromkeys(page for page, _ in runs))
    print(f"==> changed since they were executed: {changed}", flush=True)
    return store(runs)


def store(runs: Sequence[tuple[str, str]]) -> list[str]:
    """Execute pages in dialects, store results and notebooks; return what was wrong."""
    wrong = _cannot_run(runs) or notebooks.store(runs)
    if not wrong:
        notebooks.write(runs)
    return wrong


def _cannot_run(runs: Iterable[tuple[str, str]]) -> list[str]:
    absent = {page: need for page, _ in runs if (need := needs.missing(page))}
    return [f"==> {page} is to be executed, and needs {need}" for page, need in absent.items()]


def execute_all(record: bool) -> list[str]:
    """Execute every page that can run here, and compare; return what was wrong or differs."""
    runs = []
    for page, dialect in pages.runs():
        if need := needs.missing(page, dialect):
            print(f"==> no {need} here: {page} ({dialect}) is shown as it was stored", flush=True)
        else:
            runs.append((page, dialect))
    wrong, ended = [], []
    for run in executing.execute(runs):
        ended.append(run)
        if run.error:
            wrong.append(f"==> {run}\n{run.error}")
        else:
            stored = results.read(run.page, run.dialect)
            wrong += results.differences(stored, run.result, run.page, run.dialect)
    if record:
        executing.record(ended)
    if not wrong:
        wrong += [
            f"{path.relative_to(ROOT)} is not what its page and its result make"
            for path in notebooks.stale(pages.runs())
        ]
    if wrong:
        wrong.append("where this is meant: `make notebooks CLEAN=1` executes all and stores it")
    return wrong


def merge_pages(names: Iterable[str]) -> None:
    """Make of each page and its results what Sphinx is to read: in MERGED and in the cache."""
    shutil.rmtree(MERGED, ignore_errors=True)
    shutil.rmtree(CACHE, ignore_errors=True)
    cache = get_cache(CACHE)
    for page in names:
        found = dict(results.executed(page))
        if not found:
            continue
        text, notebook = dialects.merge(page, found)
        target = MERGED / f"{page}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        bundle = CacheBundleIn(notebook, str(target), data={"execution_seconds": 0.0})
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


# Sphinx's steps that take their time, a line a page; all else it says goes to the log.
STEP = re.compile(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\]")


# Its command has no option for the number of processes, its function has.
JUPYTER_BOOK = """
import functools, os
import jupyter_book.sphinx
build = jupyter_book.sphinx.build_sphinx
jupyter_book.sphinx.build_sphinx = functools.partial(build, jobs=os.cpu_count())
from jupyter_book.cli.main import main
main()
"""


def jupyter_book(*arguments: str) -> tuple[int, str]:
    """Run `jupyter-book build`; return its exit status and its warnings and errors.

    What it prints is in _build/sphinx.log; here come the share of pages done and the warnings.
    """
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", ROOT, *arguments]
    problems: list[str] = []
    # The extensions of book/_ext take from tools/ what they need to know of the pages.
    path = os.pathsep.join([str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, text=True, errors="replace",
        bufsize=1,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

    def collect() -> None:
        assert run.stderr is not None
        for line in run.stderr:
            problems.append(ANSI.sub("", line))
            print(problems[-1], end="", file=sys.stderr, flush=True)

    reader = threading.Thread(target=collect)
    reader.start()
    shown = ("", -1)
    with LOG.open("w") as log:
        assert run.stdout is not None
        for line in map(ANSI.sub, itertools.repeat(""), run.stdout):
            log.write(line)
            for step, percent in STEP.findall(line):
                if (step, int(percent) // 25) != shown:
                    shown = (step, int(percent) // 25)
                    print(f"    {step}: {percent} %", flush=True)
    reader.join()
    return run.wait(), "".join(problems).strip()


def _not_packed(folder: str, names: list[str]) -> set[str]:
    """What of a folder is no source: builds, caches and environments."""
    made = {"_build", "build", "dist", "__pycache__"}
    return {
        name
        for name in names
        if name in made
        or (name.startswith(".") and name not in (".ci", ".github", ".gitignore"))
        or Path(folder, name, "pyvenv.cfg").exists()
    }


def make_downloads() -> int:
    """Pack the source and the wheel into DOWNLOAD, for the site; return an exit status."""
    shutil.rmtree(DOWNLOAD, ignore_errors=True)
    DOWNLOAD.mkdir(parents=True)
    if not (ROOT / "pyproject.toml").is_file():
        return 0
    print("==> packing the source and the wheel for the site", flush=True)
    # From a copy: setuptools leaves build/ and egg-info behind in the tree it packs.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "nki-book")
        shutil.copytree(ROOT, copy, ignore=_not_packed, symlinks=True)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", DOWNLOAD, copy]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        print(f"error: packing failed\n{run.stdout}{run.stderr}", file=sys.stderr)
    return run.returncode


def _failed(wrong: Sequence[str]) -> int:
    print("\n".join(wrong), file=sys.stderr)
    print("error: the pages did not execute as they should: see above", file=sys.stderr)
    return 1


def build_book(clean: bool, record: bool = False) -> int:
    """Build and check every page; return an exit status."""
    if clean:
        shutil.rmtree(BUILD, ignore_errors=True)
    if _read(BUILT) == digests.digest((*RENDERED, *PACKED)) and SITE.is_dir():
        print(f"==> nothing changed: {(SITE / 'index.html').relative_to(ROOT)}")
        return 0
    BUILT.unlink(missing_ok=True)
    start = time.monotonic()
    names = pages.in_order()
    if wrong := execute_all(record) if clean else execute_pages(names):
        return _failed(wrong)
    merge_pages(names)
    for old in (SITE, BUILD / ".doctrees", BUILD / "jupyter_execute"):
        shutil.rmtree(old, ignore_errors=True)
    status = make_downloads()
    if status:
        return status
    print("==> writing the pages", flush=True)
    status, problems = jupyter_book("-W", "-n", "--keep-going")
    if status:
        report_problems(problems)
        return status
    status = subprocess.run([sys.executable, ROOT / "tools/check_book.py", SITE]).returncode
    if status == 0:
        BUILT.write_text(digests.digest((*RENDERED, *PACKED)))
        index = (SITE / "index.html").relative_to(ROOT)
        print(f"==> built in {executing.duration(time.monotonic() - start)}: {index}")
    return status


def report_problems(problems: str) -> None:
    """Say, as the last thing of a build, why it failed: a log is often cut but for its end."""
    print(
        f"\n==> the book did not build cleanly; all is in {LOG.relative_to(ROOT)}, and this is why:"
    )
    print(problems or "".join(_read(LOG).splitlines(keepends=True)[-30:]))
    print(f"\nerror: warnings: {problems.count('WARNING: ')}, see above", flush=True)


def build_page(page: str, clean: bool) -> int:
    """Build one page of the book, with links to other pages left open; return an exit status."""
    if clean:
        wrong = store([(page, dialect) for dialect in pages.dialects(page)])
    else:
        wrong = execute_pages([page])
    if wrong:
        return _failed(wrong)
    merge_pages([page])
    DOWNLOAD.mkdir(parents=True, exist_ok=True)
    output = BUILD / "page"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    toc = output / "_toc.yml"
    toc.write_text(f"format: jb-book\nroot: {page}\n")
    return jupyter_book("--toc", str(toc), "--path-output", str(output))[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="only this page, without failing on warnings")
    parser.add_argument("--clean", action="store_true", help="execute all, as CI does")
    parser.add_argument("--record", action="store_true", help="keep how long each page took")
    parser.add_argument("--changed", action="store_true", help="list what is to be executed")
    arguments = parser.parse_args()
    os.environ.update(executing.environment())
    try:
        chosen = [pages.named(arguments.page)] if arguments.page else pages.in_order()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.changed:
        print(*dict.fromkeys(page for page, _ in results.missing(names=chosen)))
        return 0
    if arguments.page:
        return build_page(chosen[0], arguments.clean)
    return build_book(arguments.clean, arguments.record)


if __name__ == "__main__":
    sys.exit(main())
