"""Build the book into _build/html, then check the site. Exits non-zero on any warning or error.

Notebooks are executed first, as many at a time as there are processors; then the pages are written.
Only executed notebooks are reused between builds, and only while the code they run is the same
(executed.py). Pages are always read and written anew, since an incremental
Sphinx build forgets the warnings of pages it does not read. When no input changed at all, there
is nothing to do. On a machine without a C++ compiler or torch_xla, the pages that need it show
stored results, and say so (tools/stored_results.py).
"""

import argparse
import glob
import itertools
import json
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
import executed
import executing
import stored_results
import yaml
from executed import CACHE, EXECUTED, ROOT
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from sphinx_external_toc.parsing import parse_toc_yaml

BUILD = ROOT / "_build"
SITE = BUILD / "html"
MERGED = BUILD / "merged"  # pages in both dialects, as Sphinx is to read them: book/_ext/dialect.py
DOWNLOAD = BUILD / "download"  # goes into the site as it is: html_extra_path in _config.yml
BUILT = BUILD / ".built"
LOG = BUILD / "sphinx.log"

# What kernels are to find in their environment, wherever they are started from.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "IPYTHONDIR": str(ROOT / "tools/.ipython"),
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),  # validation/
}

RENDERED = (*EXECUTED, "book", "notebooks", "_config.yml", "_toc.yml", "tools")
# What else is in the archive that readers download.
PACKED = ("tests", ".ci", "Makefile", "MANIFEST.in", "pyproject.toml", "README.md")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def prepare_cache() -> None:
    """Forget executed notebooks unless they ran the code that is here now; add stored results."""
    if executed.forget_what_is_old(map(str, parse_toc_yaml(ROOT / "_toc.yml"))):
        print("==> kernels, nkisim or requirements changed: executing every notebook", flush=True)
    for page, need in stored_results.stored_pages(ROOT).items():
        print(f"==> no {need}: {page} shows stored results, and says so", flush=True)
        stored_results.put_into_cache(ROOT / f"{page}.md", CACHE)
        for dialect in dialects.runs(ROOT / f"{page}.md")[1:]:
            stored_results.put_into_cache(ROOT / f"{page}.md", executed.cache_of(dialect), dialect)
    for page, dialect in stored_results.stored_runs(ROOT):
        print(f"==> no SDK for {dialects.MARKS[dialect]}: {page} shows stored results of it")
        stored_results.put_into_cache(ROOT / f"{page}.md", executed.cache_of(dialect), dialect)


def execute_pages(names: Iterable[str], record: bool = False) -> dict[str, str]:
    """Execute the pages that are not in the cache; return the traceback of each that raised.

    With `record`, keep how long each took for the guesses of later builds.
    """
    caches = {d: get_cache(executed.cache_of(d)) for d in (dialects.NEURONXCC, dialects.NKI)}
    runs = []
    for name in names:
        page = ROOT / f"{name}.md"
        if "{code-cell}" not in _read(page):
            continue
        for dialect in dialects.runs(page):
            cache = caches[dialect]
            cache.add_nb_to_project(str(page), read_data={"name": "myst_nb_md", "type": "plugin"})
            runs.append(executing.Run(str(name), dialect, cache))
    timeout = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]["timeout"]
    results = executing.execute(runs, ROOT, timeout)
    if record:
        executing.record(results)
    return {result.run: result.error for result in results if result.error}


def merge_pages(names: Iterable[str]) -> None:
    """Make one page of the two results of each page in both dialects: into MERGED and the cache."""
    shutil.rmtree(MERGED, ignore_errors=True)
    for name in names:
        source = ROOT / f"{name}.md"
        if dialects.NKI not in dialects.runs(source):
            continue
        results = [executed.result(source, executed.cache_of(d)) for d in dialects.runs(source)]
        text, notebook = dialects.merge(_read(source), *results, whole=name in dialects.SHOWN_WHOLE)
        target = MERGED / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        bundle = CacheBundleIn(notebook, str(target), data={"execution_seconds": 0.0})
        get_cache(CACHE).cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def error_streams() -> dict[str, str]:
    """What the cells of each page wrote to standard error: the build takes it for a warning."""
    found: dict[str, str] = {}
    for cache in (get_cache(executed.cache_of(d)) for d in (dialects.NEURONXCC, dialects.NKI)):
        for project in cache.list_project_records():
            match = cache.get_cached_project_nb(project.pk)
            if match is None:
                continue
            texts = [
                output.text
                for cell in cache.get_cache_bundle(match.pk).nb.cells
                for output in cell.get("outputs", [])
                if output.output_type == "stream" and output.name == "stderr"
            ]
            if texts:
                page = Path(project.uri).relative_to(ROOT).as_posix()
                found[page] = found.get(page, "") + "".join(texts)
    return found


ANSI = re.compile(r"\x1b\[[0-9;]*m")
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
    environment = os.environ | {
        "NKI_BOOK_STORED": json.dumps(stored_results.stored_pages(ROOT)),
    }
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", ROOT, *arguments]
    problems: list[str] = []
    run = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, errors="replace", bufsize=1,
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


def prepare_pages(names: Sequence[str], record: bool = False) -> bool:
    """Execute pages and merge those in both dialects; say what raised, and whether none did."""
    failed = execute_pages(names, record)
    for page, error in failed.items():
        print(f"\n==> {page}\n{ANSI.sub('', error).strip()}", file=sys.stderr)
    if failed:
        print(f"\nerror: a cell raised in {', '.join(failed)}: see above", file=sys.stderr)
        return False
    merge_pages(names)
    return True


def build_book(clean: bool, record: bool = False) -> int:
    """Build and check every page; return an exit status."""
    if clean:
        shutil.rmtree(BUILD, ignore_errors=True)
    inputs = executed.state((*RENDERED, *PACKED))
    if _read(BUILT) == inputs and SITE.is_dir():
        print(f"==> nothing changed: {(SITE / 'index.html').relative_to(ROOT)}")
        return 0
    BUILT.unlink(missing_ok=True)
    prepare_cache()
    start = time.monotonic()
    if not prepare_pages(list(map(str, parse_toc_yaml(ROOT / "_toc.yml"))), record):
        return 1
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
        BUILT.write_text(inputs)
        index = (SITE / "index.html").relative_to(ROOT)
        print(f"==> built in {executing.duration(time.monotonic() - start)}: {index}")
    return status


def report_problems(problems: str) -> None:
    """Say, as the last thing of a build, why it failed: a log is often cut but for its end."""
    print(
        f"\n==> the book did not build cleanly; all is in {LOG.relative_to(ROOT)}, and this is why:"
    )
    print(problems or "".join(_read(LOG).splitlines(keepends=True)[-30:]))
    if "mystnb.stderr" in problems:
        for page, text in error_streams().items():
            print(f"\n==> {page} wrote to standard error:\n{text.strip()}")
    print(f"\nerror: warnings: {problems.count('WARNING: ')}, see above", flush=True)


def build_page(page: str) -> int:
    """Build one page of the book, with links to other pages left open; return an exit status."""
    source = page.removesuffix(".md").removesuffix(".ipynb")
    if not (ROOT / f"{source}.md").is_file():
        print(f"error: no page {source}.md; name one as _toc.yml does", file=sys.stderr)
        return 2
    prepare_cache()
    if not prepare_pages([source]):
        return 1
    DOWNLOAD.mkdir(parents=True, exist_ok=True)
    output = BUILD / "page"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    toc = output / "_toc.yml"
    toc.write_text(f"format: jb-book\nroot: {source}\n")
    return jupyter_book("--toc", str(toc), "--path-output", str(output))[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", help="build only this page, without failing on warnings")
    parser.add_argument("--clean", action="store_true", help="reuse nothing, as CI does")
    parser.add_argument("--record", action="store_true", help="keep how long each page took")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    if not glob.glob("/dev/neuron*"):
        os.environ.setdefault("PJRT_DEVICE", "CPU")  # torch_xla warns when it chooses by itself
    if arguments.page:
        return build_page(arguments.page)
    return build_book(arguments.clean, arguments.record)


if __name__ == "__main__":
    sys.exit(main())
