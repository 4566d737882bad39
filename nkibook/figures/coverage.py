"""Tables and groups of the page on the API, from `facts.coverage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from nkibook.facts.coverage import Entry, Status, documented

STATUSES: tuple[Status, ...] = ("simulated", "partly", "not yet")
COLUMNS = ("engine", "since", "status", "limits")


class Html(str):
    """HTML that a notebook shows as such."""

    def _repr_html_(self) -> str:
        return str(self)


def totals(entries: Iterable[Entry]) -> str:
    """The number of names by module and status, as lines of text."""
    counts: dict[str, Counter] = {}
    for entry in entries:
        for row in (entry.module, "all"):
            counts.setdefault(row, Counter())[entry.status] += 1
    counts["all"] = counts.pop("all")  # last
    lines = [f"{'':22}{'names':>6}" + "".join(f"{s:>11}" for s in STATUSES)]
    for row, count in counts.items():
        numbers = "".join(f"{count[s]:11}" for s in STATUSES)
        lines.append(f"{row:22}{count.total():6}{numbers}")
    return "\n".join(lines)


def groups(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The names in groups that fit a screen: isa by engine, language by kind, the rest by module.

    Every entry is in exactly one group.
    """
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(_group(entry), []).append(entry)
    return dict(sorted(found.items(), key=lambda item: (_rank(item[0]), item[0])))


def _rank(title: str) -> int:
    """Where a group stands: what kernels are written with comes first."""
    module = title.partition(":")[0]
    first = ("nki.language", "nki.isa")
    return first.index(module) if module in first else len(first)


def _group(entry: Entry) -> str:
    module = entry.module.removeprefix("neuronxcc.")
    facts = documented()[entry.module][entry.name]
    params = facts.get("params")
    if module == "nki.isa":
        if len(entry.engines) > 1:
            return f"{module}: a choice of engines"
        kind = f"{entry.engines[0]} Engine" if entry.engines else "no engine named, or constants"
        return f"{module}: {kind.replace('DMA Engine', 'DMA')}"
    if module != "nki.language":
        return module
    if params is None:
        return f"{module}: data types, memories, constants"
    if params == ["x", "dtype", "mask"]:
        return f"{module}: one operand, element by element"
    if params == ["x", "y", "dtype", "mask"]:
        return f"{module}: two operands, element by element"
    if "axis" in params and "dtype" in params:
        return f"{module}: along an axis"
    return f"{module}: tensors, indices, loops, data movement"


def table(entries: Iterable[Entry], columns: Sequence[str] = COLUMNS) -> Html:
    """Some entries, one a row, by the names that they have in `neuronxcc`.

    Args:
        entries: what to show.
        columns: which of COLUMNS.
    """
    titles = "".join(f'<th scope="col">{title}</th>' for title in ("name", *columns))
    rows = "".join(_row(entry, columns) for entry in entries)
    return Html(
        f'<table class="coverage"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(entry: Entry, columns: Sequence[str]) -> str:
    name = escape(entry.path.removeprefix("neuronxcc."))
    status: str = entry.status
    if entry.reason:
        status = f"<strong>{status}</strong>: {escape(entry.reason)}"
    cells = {
        "engine": ", ".join(entry.engines),
        "since": " ".join(
            filter(None, (entry.since, entry.generation and f"({entry.generation})"))
        ),
        "status": status,
        "limits": escape(entry.limits),
    }
    # data-name: on a narrow screen the cells stand below one another, each behind its name.
    rest = "".join(f'<td data-name="{column}">{cells[column]}</td>' for column in columns)
    return f'<tr><th scope="row"><code>{name}</code></th>{rest}</tr>'
