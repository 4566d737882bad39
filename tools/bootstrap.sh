#!/bin/sh
# Make the virtual environment $1 and install requirements.txt and this checkout into it.
# Called by the Makefile, from the root of the repository. PYTHON names an interpreter to prefer.
# TORCH=cpu takes PyTorch's build without CUDA, of the same version: about 2 GB in place of 8.
set -eu

venv=$1
uv_version=$2
say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'

# Sets $python to the first interpreter that is 3.11-3.14 and can make an environment.
find_python() {
    without_venv=
    for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        "$python" -c "$supported" >/dev/null 2>&1 || continue
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
        without_venv="$without_venv $python"
    done
    [ -z "$without_venv" ] ||
        die "found$without_venv, but without the venv and ensurepip modules." \
            "On Debian and Ubuntu install them with: apt-get install python3-venv"
    die "needs Python 3.11, 3.12, 3.13 or 3.14; none of python3, python3.13, python3.12, python3.11" \
        "on PATH is one (python3 is $(python3 --version 2>&1 || echo 'not installed'))." \
        "Install one, or name it: make env PYTHON=/path/to/python3.12"
}

if ! "$venv/bin/python" -c "$supported" >/dev/null 2>&1; then
    find_python
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
case ${TORCH:-} in
cpu)
    say "installing the pinned packages of requirements.txt, PyTorch without CUDA (about 3 GB)"
    # What PyTorch needs for CUDA stays out. The CPU build is in an index of PyTorch's own, which uv
    # knows by name; all other packages come from yours.
    grep -Ev '^(nvidia-|triton)' requirements.txt > "$venv/requirements-cpu.txt"
    "$venv/bin/uv" pip install --torch-backend cpu --requirements "$venv/requirements-cpu.txt" ||
        die "TORCH=cpu needs PyTorch's index of CPU builds, beside your package index." \
            "Where that cannot be reached, leave TORCH out: 8 GB, and all the same works"
    ;;
"")
    say "installing the pinned packages of requirements.txt (about 8 GB unpacked on Linux x86_64)"
    "$venv/bin/uv" pip install --requirements requirements.txt
    ;;
*) die "TORCH is '$TORCH': it is cpu, or not set" ;;
esac
say "installing this checkout (editable)"
"$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation --editable .
