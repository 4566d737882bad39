"""Entries of the reference (reference.py) for every documented name of `neuronxcc.nki`.

Parameters are those of nkibook/facts/nki_api_neuronxcc.json, or of the simulator's function; the
text is the simulator's docstring, status and limits are the coverage table's. Then come the pages
whose cells use the name, and an example that is run here (nkibook/figures/api_examples.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference import Entry, described, literal, summary, used_in, uses

SHORT = {"neuronxcc.nki": "nki", "neuronxcc.nki.language": "nl", "neuronxcc.nki.isa": "nisa"}


def short_name(module: str, name: str) -> str:
    """What kernels call a name: `nl.load`."""
    return f"{SHORT.get(module, module.removeprefix('neuronxcc.'))}.{name}"


def shown_name(module: str, name: str) -> str:
    """What the reference calls a name: `nl.load`; whole where `import nki` has such a name, too."""
    return f"{SHORT[module]}.{name}" if module in list(SHORT)[1:] else f"{module}.{name}"


def entries(root: Path, pages: list[str], module: str) -> list[Entry]:
    """The entries of a module, by group."""
    used = _uses(root, tuple(pages))
    return [
        Entry(
            module=module,
            group=group,
            name=shown_name(module, known.name),
            short=shown_name(module, known.name),
            kind="data" if _parameters(known) is None else "function",
            parameters=_parameters(known) or "",
            summary=summary(_docstring(known)),
            text=[*_text(known, used)],
        )
        for group, found in _groups(module).items()
        for known in found
    ]


_uses = functools.cache(functools.partial(uses, dialect="neuronxcc"))


def _groups(module: str) -> dict[str, list[Any]]:
    from nkibook.facts.coverage import coverage
    from nkibook.figures import coverage as groups

    found = groups.groups(entry for entry in coverage() if entry.module == module)
    titles = {title: title.partition(": ")[2] for title in found}
    return {_capital(titles[title]): group for title, group in found.items()}


def _capital(title: str) -> str:
    return f"{title[:1].upper()}{title[1:]}"


def _parameters(known: Any) -> str | None:
    from nkibook.facts.coverage import documented, find
    from nkibook.figures import api_examples

    facts = documented()[known.module][known.name]
    if facts.get("params") is None and facts.get("signature") is None:
        return None
    return facts.get("signature") or api_examples.signature(find(known.module, known.name))


def _docstring(known: Any) -> str | None:
    """The docstring of what the simulator has; of a NumPy type or a constant, none."""
    from nkibook.facts.coverage import find

    return docstring(find(known.module, known.name))


def docstring(found: Any) -> str | None:
    """The docstring of a function or class of the simulator; of a constant, none."""
    module = getattr(found, "__module__", "") or ""
    own = module.startswith("nkisim.") and not hasattr(found, "value")
    return found.__doc__ if own else None


def _text(known: Any, used: dict[str, list[str]]) -> Iterator[str]:
    from nkibook.figures import api_examples

    name = short_name(known.module, known.name)
    yield from described(_docstring(known))
    yield from _facts(known)
    yield from used_in(used.get(name, []))
    if name in api_examples.EXAMPLES:
        yield from ("", ".. code-block:: python", "")
        yield from (f"   {line}" for line in api_examples.run(name).split("\n"))


def _facts(entry: Any) -> Iterator[str]:
    """Engine, SDK, status and limits, as one paragraph."""
    said = []
    if entry.engines:
        said.append(f"*Engine:* {', '.join(entry.engines)}.")
    if entry.since:
        said.append(f"*Since* SDK {entry.since}.")
    if entry.generation:
        said.append(f"*Needs* NeuronCore-{entry.generation}.")
    if entry.status != "simulated":
        said.append(f"**{entry.status.capitalize()}:** {literal(entry.reason)}.")
    if entry.limits:
        said.append(f"*Limits:* {literal(entry.limits)}.")
    yield ""
    yield " ".join(said)
