#!/bin/sh
# Make the virtual environment $1, with uv $2, and install this checkout into it and what $3 needs:
#   book   what renders the book from stored results (requirements-book.txt): Python 3.11 to 3.14
#   all    the frameworks, JupyterLab and the tests, too (requirements.txt): Python 3.11 to 3.13
# Called by the Makefile, from the root of the repository. PYTHON names an interpreter to prefer.
# TORCH=cpu takes PyTorch's build without CUDA, of the same version: about 2 GB in place of 8.
set -eu

venv=$1
uv_version=$2
what=$3
say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

case $what in
book) newest=14 ;;
all) newest=13 ;;
*) die "the third argument is '$what': it is book or all" ;;
esac
supported="import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $newest))"

# Sets $python to the first interpreter that is supported and can make an environment; fails if none.
find_python() {
    without_venv=
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
        "$python" -c "$supported" >/dev/null 2>&1 || continue
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
        without_venv="$without_venv $python"
    done
    return 1
}

# Sets $python to Python 3.13 of uv, which downloads it where it is not there yet. The uv is that of
# the environment that renders the book, which is made with a newer Python and replaced then.
find_python_of_uv() {
    [ -x "$venv/bin/uv" ] || return 1
    say "PyTorch/XLA and JAX have no wheels for $("$venv/bin/python" --version): uv gets Python 3.13"
    "$venv/bin/uv" python install --quiet 3.13 && python=$("$venv/bin/uv" python find 3.13)
}

if ! "$venv/bin/python" -c "$supported" >/dev/null 2>&1; then
    find_python || find_python_of_uv || {
        [ -z "$without_venv" ] ||
            die "found$without_venv, but without the venv and ensurepip modules." \
                "On Debian and Ubuntu install them with: apt-get install python3-venv"
        die "needs a Python from 3.11 to 3.$newest, and found none on PATH" \
            "(python3 is $(python3 --version 2>&1 || echo 'not installed'))." \
            "Install one, as with: uv python install 3.13; or name it: make env PYTHON=/path/to/python3.13"
    }
    say "creating $venv with $("$python" --version) ($python)"
    "$python" -m venv --clear "$venv"
fi

if [ "$("$venv/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" != "$uv_version" ]; then
    say "installing uv $uv_version into $venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
fi

# uv reads its own configuration, not pip's: hand over the index that pip was told to use.
if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    index=$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)
    index=${PIP_INDEX_URL:-$index}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
fi

export VIRTUAL_ENV="$PWD/$venv"
case $what,${TORCH:-} in
book,*)
    say "installing what renders the book (requirements-book.txt, about 0.5 GB)"
    "$venv/bin/uv" pip install --requirements requirements-book.txt
    ;;
all,cpu)
    say "installing the pinned packages of requirements.txt, PyTorch without CUDA (about 3 GB)"
    # What PyTorch needs for CUDA stays out. The CPU build is in an index of PyTorch's own, which uv
    # knows by name; all other packages come from yours.
    grep -Ev '^(nvidia-|triton)' requirements.txt > "$venv/requirements-cpu.txt"
    "$venv/bin/uv" pip install --torch-backend cpu --requirements "$venv/requirements-cpu.txt" ||
        die "TORCH=cpu needs PyTorch's index of CPU builds, beside your package index." \
            "Where that cannot be reached, leave TORCH out: 8 GB, and all the same works"
    ;;
all,)
    say "installing the pinned packages of requirements.txt (about 8 GB unpacked on Linux x86_64)"
    "$venv/bin/uv" pip install --requirements requirements.txt
    ;;
*) die "TORCH is '$TORCH': it is cpu, or not set" ;;
esac
say "installing this checkout (editable)"
"$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation --editable .
