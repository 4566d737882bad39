"""Build the book into _build/html, then check the site. Exits non-zero on any warning or error.

Notebooks are executed first, as many at a time as there are processors; then the pages are written.
Only executed notebooks are reused between builds, and only while the code they run is the same:
the execution cache is dropped when a module they import, requirements.txt or Python changes,
which jupyter-cache does not look at. Pages are always read and written anew, since an incremental
Sphinx build forgets the warnings of pages it does not read. When no input changed at all, there
is nothing to do. On a machine without a C++ compiler or torch_xla, the pages that need it show
stored results, and say so (tools/stored_results.py).
"""

import argparse
import glob
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import stored_results
import yaml
from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
SITE = BUILD / "html"
DOWNLOAD = BUILD / "download"  # goes into the site as it is: html_extra_path in _config.yml
CACHE = BUILD / ".jupyter_cache"
CACHE_KEY = CACHE / "nki-book-key"
BUILT = BUILD / ".built"

# What kernels are to find in their environment, wherever they are started from.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "IPYTHONDIR": str(ROOT / "tools/.ipython"),
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),  # validation/
}

EXECUTED = ("kernels", "nkibook", "nkisim", "validation", "book/figures", "requirements.txt")
RENDERED = (*EXECUTED, "book", "notebooks", "_config.yml", "_toc.yml", "tools")
# What else is in the archive that readers download.
PACKED = ("tests", ".ci", "Makefile", "MANIFEST.in", "pyproject.toml", "README.md")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name != "__pycache__" and not child.name.startswith("."):
                yield from _files(child)


def digest(names: tuple[str, ...], root: Path = ROOT) -> str:
    """Return the sha256 of this Python and of every file in `names`, with its path."""
    total = hashlib.sha256(sys.version.encode())
    for name in names:
        for file in _files(root / name):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{file.relative_to(root).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _state(names: tuple[str, ...]) -> str:
    """What a build depends on: the content of `names`, and which pages cannot run."""
    return " ".join([digest(names), *sorted(stored_results.stored_pages(ROOT))])


def prepare_cache() -> None:
    """Forget executed notebooks unless they ran the code that is here now; add stored results."""
    key = _state(EXECUTED)
    if _read(CACHE_KEY) != key:
        if CACHE.exists():
            print(
                "==> kernels, nkisim or requirements changed: executing every notebook", flush=True
            )
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        CACHE_KEY.write_text(key)
    for page, need in stored_results.stored_pages(ROOT).items():
        print(f"==> no {need}: {page} shows stored results, and says so", flush=True)
        stored_results.put_into_cache(ROOT / f"{page}.md", CACHE)


def execute_pages() -> None:
    """Execute the pages that are not in the cache, as many at a time as there are processors.

    One that fails stays out of the cache: the build executes it once more, and reports its error.
    """
    cache = get_cache(CACHE)
    for name in parse_toc_yaml(ROOT / "_toc.yml"):
        page = ROOT / f"{name}.md"
        if "{code-cell}" in _read(page):
            cache.add_nb_to_project(str(page), read_data={"name": "myst_nb_md", "type": "plugin"})
    log = logging.getLogger("jupyter_cache")
    log.setLevel(logging.INFO)
    timeout = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]["timeout"]
    load_executor("local-parallel", cache, log).run_and_cache(timeout=timeout)


def jupyter_book(*arguments: str) -> int:
    """Run `jupyter-book build` and return its exit status."""
    environment = os.environ | {
        "NKI_BOOK_STORED": json.dumps(stored_results.stored_pages(ROOT)),
    }
    script = Path(sys.executable).with_name("jupyter-book")
    command = [sys.executable, script, "build", ROOT, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


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


def build_book(clean: bool) -> int:
    """Build and check every page; return an exit status."""
    if clean:
        shutil.rmtree(BUILD, ignore_errors=True)
    inputs = _state((*RENDERED, *PACKED))
    if _read(BUILT) == inputs and SITE.is_dir():
        print(f"==> nothing changed: {(SITE / 'index.html').relative_to(ROOT)}")
        return 0
    BUILT.unlink(missing_ok=True)
    prepare_cache()
    execute_pages()
    for old in (SITE, BUILD / ".doctrees", BUILD / "jupyter_execute"):
        shutil.rmtree(old, ignore_errors=True)
    status = make_downloads()
    if status:
        return status
    status = jupyter_book("-W", "-n", "--keep-going")
    if status:
        print("error: the book did not build cleanly, see the warnings above", file=sys.stderr)
        return status
    status = subprocess.run([sys.executable, ROOT / "tools/check_book.py", SITE]).returncode
    if status == 0:
        BUILT.write_text(inputs)
    return status


def build_page(page: str) -> int:
    """Build one page of the book, with links to other pages left open; return an exit status."""
    source = page.removesuffix(".md").removesuffix(".ipynb")
    if not (ROOT / f"{source}.md").is_file():
        print(f"error: no page {source}.md; name one as _toc.yml does", file=sys.stderr)
        return 2
    prepare_cache()
    DOWNLOAD.mkdir(parents=True, exist_ok=True)
    output = BUILD / "page"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    toc = output / "_toc.yml"
    toc.write_text(f"format: jb-book\nroot: {source}\n")
    return jupyter_book("--toc", str(toc), "--path-output", str(output))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", help="build only this page, without failing on warnings")
    parser.add_argument("--clean", action="store_true", help="reuse nothing, as CI does")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    if not glob.glob("/dev/neuron*"):
        os.environ.setdefault("PJRT_DEVICE", "CPU")  # torch_xla warns when it chooses by itself
    return build_page(arguments.page) if arguments.page else build_book(arguments.clean)


if __name__ == "__main__":
    sys.exit(main())
