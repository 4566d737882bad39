"""What AWS documents of each name of NKI: `nki_api_neuronxcc.json` and `nki_api_nki.json`, a name a
line, in one form. The fields are described at the top of each file."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
Documented = dict[str, dict[str, dict[str, Any]]]  # module, name, facts


@functools.cache
def documented(dialect: str) -> Documented:
    """What is documented of each name, by module.

    Args:
        dialect: "neuronxcc" or "nki".
    """
    path = FOLDER / f"nki_api_{dialect}.json"
    return json.loads(path.read_text(encoding="utf-8"))["modules"]


def signature(text: str, names: dict[str, Any]) -> inspect.Signature:
    """The signature that `(x, dtype=None)` describes.

    Args:
        text: as in the files.
        names: what its defaults are made of.
    """
    space = dict(names)
    exec(f"def function{text}: ...", space)
    return inspect.signature(space["function"])
