"""Sphinx extension: say on a page that its results are stored ones, where its cells did not run.

tools/build_book.py says which pages, and what they lack, in the environment variable
NKI_BOOK_STORED: a JSON object.
"""

import json
import os
import re

from sphinx.application import Sphinx

NOTE = """

```{{admonition}} Stored results
:class: warning stored-results
There was no {need} where this site was built, so the cells of this page did not run. Below each is
the text that it printed when the notebook was stored; of a figure, that is its description.
{remedy}
```
"""
_ANOTHER_SDK = "Another one was there. To run them, set NKI_BACKEND=nkisim, and build again."
REMEDIES = {
    "C++ compiler": "To run them, install one (on Debian and Ubuntu `apt-get install g++`), and "
    "build again.",
    "torch_xla": "To run them, build on Linux on x86_64: torch_xla has wheels for nothing else.",
    "JAX": "To run them, install it (`make env` does), and build again.",
    "simulator": "The Neuron SDK was there. To run them, set NKI_BACKEND=nkisim, and build again.",
    "SDK 2.29 or earlier (neuronxcc.nki)": _ANOTHER_SDK,
    "SDK 2.30 or later (import nki)": _ANOTHER_SDK,
}


def add_note(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the note below the page's title."""
    need = json.loads(os.environ.get("NKI_BOOK_STORED", "{}")).get(page)
    if need is not None:
        note = NOTE.format(need=need, remedy=REMEDIES[need])
        source[0] = re.sub(r"^# .*$", lambda m: m[0] + note, source[0], count=1, flags=re.M)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_note)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
