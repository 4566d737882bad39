"""Sphinx extension: say on a page that its results are stored ones, where its cells did not run.

tools/build_book.py names the pages in the environment variable NKI_BOOK_STORED.
"""

import os
import re

from sphinx.application import Sphinx

NOTE = """

```{admonition} Stored results
:class: warning stored-results
There was no C++ compiler where this site was built, so the cells of this page did not run. Below
each is the text that it printed when the notebook was stored; of a figure, that is its description.
To run them, install a compiler (on Debian and Ubuntu `apt-get install g++`) and build again.
```
"""


def add_note(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the note below the page's title."""
    if page in os.environ.get("NKI_BOOK_STORED", "").split():
        source[0] = re.sub(r"^# .*$", lambda m: m[0] + NOTE, source[0], count=1, flags=re.M)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_note)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
