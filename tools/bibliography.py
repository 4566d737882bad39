"""The works that the pages cite, as a notebook lists them: book/references.bib."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from pybtex.database import Entry, parse_file
from pybtex.richtext import Text


@dataclass(frozen=True)
class Work:
    """A work that is cited: who wrote what, where it is."""

    said: str
    url: str | None

    def __str__(self) -> str:
        return f"{self.said} <{self.url}>" if self.url else self.said


def _plain(text: str) -> str:
    """A field of BibTeX, which is LaTeX, as text."""
    return " ".join(Text.from_latex(text).render_as("text").split())


def _work(entry: Entry) -> Work:
    fields = entry.fields
    people = [_plain(str(person)) for person in entry.persons.get("author", [])]
    names = [" ".join(reversed(name.split(", ", 1))) for name in people]
    shown = names[0] + " et al." if len(names) > 3 else ", ".join(names)
    places = ("howpublished", "journal", "booktitle", "note", "year")
    where = [_plain(fields[place]) for place in places if place in fields]
    said = [shown, f"*{_plain(fields['title'])}*", ", ".join(where)]
    url = fields.get("url") or (f"https://doi.org/{fields['doi']}" if "doi" in fields else None)
    return Work(". ".join(part.rstrip(".") for part in said if part) + ".", url)


@functools.cache
def entries(root: Path) -> dict[str, Work]:
    """The works of book/references.bib, by their keys."""
    found = parse_file(str(root / "book/references.bib")).entries
    return {key: _work(entry) for key, entry in found.items()}
