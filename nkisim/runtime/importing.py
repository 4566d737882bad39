"""Importing a Python file that is named by its path."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType


class NotImportableError(Exception):
    """A path that names no Python file."""


def import_file(path: str | Path) -> ModuleType:
    """Run a Python file as the module of its name.

    It is read anew each time: bytecode may be of a file edited within the same second.
    Its folder goes to the front of ``sys.path`` and stays there, since functions of the file may
    import neighbours when they are called.

    Raises:
        NotImportableError: no such file, or its name does not end as one of Python's.
    """
    path = Path(path)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    if not path.is_file():
        raise NotImportableError(f"there is no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NotImportableError(f"{str(path)!r} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    if isinstance(spec.loader, SourceFileLoader):
        exec(spec.loader.source_to_code(path.read_bytes(), str(path)), module.__dict__)
    else:
        spec.loader.exec_module(module)
    return module
