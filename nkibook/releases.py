"""What NKI 0.7 changes for kernels in `import nki`: tables for pages."""

from __future__ import annotations

from nkisim.frontends.nki.releases import CHANGES, Change, Kind


def _code(name: str) -> str:
    """A name as code; words as they are."""
    return f"`{name}`" if any(c in name for c in ".(:") else name


def _row(change: Change, action: bool) -> str:
    cells = [_code(change.name), change.before or "-", change.now]
    if action:
        cells.append(change.instead)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(*kinds: Kind, action: bool = False) -> str:
    """The changes from NKI 0.6 to 0.7, as Markdown.

    Args:
        kinds: "new", "changed", "deprecated", "removed"; all of them without any.
        action: only those that a kernel has to follow, with what to write.
    """
    chosen = [c for c in CHANGES if (not kinds or c.kind in kinds) and (c.instead or not action)]
    head = ["", "NKI 0.6", "NKI 0.7"] + ["write"] * action
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(_row(change, action) for change in chosen)])


def new() -> str:
    """The names that NKI 0.7 adds, as a list in Markdown."""
    return "\n".join(f"- {_code(c.name)}: {c.now}" for c in CHANGES if c.kind == "new")


def unpublished() -> str:
    """What AWS's pages leave open, as a list in Markdown."""
    return "\n".join(f"- {_code(c.name)}: {c.unpublished}" for c in CHANGES if c.unpublished)
