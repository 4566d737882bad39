"""Open JupyterLab with the notebooks of one dialect, as `make lab` does.

    python tools/lab.py [nki|neuronxcc]

Without an argument it is asked once, and remembered in lab/dialect. The notebooks are copied into
lab/, a folder for a reader's own changes, which git ignores: a copy that is there stays as it is.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pages import DIALECTS, ROOT

LAB = ROOT / "lab"
CHOSEN = LAB / "dialect"
QUESTION = (
    "Which dialect? nki (import nki, for trn2 and trn3; choose it without a device) or "
    "neuronxcc (neuronxcc.nki, for inf2 and trn1): "
)


def dialect(asked: str) -> str:
    """The reader's dialect: what was asked for, else what was chosen before, else the answer."""
    chosen = asked or (CHOSEN.read_text().strip() if CHOSEN.is_file() else "")
    if not chosen and sys.stdin.isatty():
        chosen = input(QUESTION).strip()
    chosen = chosen or "nki"
    if chosen not in DIALECTS:
        raise SystemExit(f"error: DIALECT is {chosen!r}: it is one of {', '.join(DIALECTS)}")
    CHOSEN.parent.mkdir(parents=True, exist_ok=True)
    CHOSEN.write_text(f"{chosen}\n")
    return chosen


def copied(chosen: str) -> Path:
    """A folder with the notebooks of a dialect; those that are there already stay as they are."""
    folder = LAB / chosen
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted((ROOT / "notebooks" / chosen).glob("*.ipynb")):
        if not (folder / notebook.name).exists():
            shutil.copyfile(notebook, folder / notebook.name)
    return folder


def main() -> None:
    chosen = dialect(sys.argv[1] if len(sys.argv) > 1 else "")
    folder = copied(chosen)
    print(f"==> {folder.relative_to(ROOT)} is yours to change. To have a notebook anew, delete it.")
    sys.stdout.flush()
    command = [sys.executable, "-m", "jupyter", "lab", f"--ServerApp.root_dir={folder}"]
    command.append("--LabApp.default_url=/lab/tree/intro.ipynb")
    os.chdir(folder)
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
