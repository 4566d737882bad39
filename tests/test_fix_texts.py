"""What errors say to write exists: each name of NKI in a fix is one of its dialect, and each call
in one fits the function that it calls."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import nkisim

nkisim.install()

ROOT = Path(nkisim.__file__).parent
MODULES = {
    "neuronxcc": {
        "nl": "neuronxcc.nki.language",
        "nisa": "neuronxcc.nki.isa",
        "nki": "neuronxcc.nki",
    },
    "nki": {"nl": "nki.language", "nisa": "nki.isa", "nki": "nki"},
}


FILLED = "x__"  # for what an f-string puts in
TABLES = frozenset(
    {"ELSEWHERE", "_METHODS", "_IN_NEURONXCC"}
)  # of what to write in another's place


def texts(path):
    """(line, text) of each fix in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        named = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        given = isinstance(node, ast.keyword) and node.arg == "fix"
        if not given and (TABLES | {"fix", "instead"}).isdisjoint(named):
            continue
        for part in ast.walk(node.value):
            if isinstance(part, ast.JoinedStr):
                yield (
                    part.lineno,
                    "".join(
                        v.value if isinstance(v, ast.Constant) else FILLED for v in part.values
                    ),
                )
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, re.sub(r"\{\w*\}", FILLED, part.value)


def dialects(path):
    """Those that a module is of: one of the frontends', else both."""
    parts = path.relative_to(ROOT).parts
    return [parts[1]] if parts[0] == "frontends" and parts[1] in MODULES else [*MODULES]


def written(text):
    """(module, dotted name, the call's text or "") of each name of NKI in a fix."""
    for found in re.finditer(r"\b(nl|nisa|nki)((?:\.[A-Za-z_]\w*)+)", text):
        end = found.end()
        if text[end : end + 1] == "(":
            depth = 0
            for at in range(end, len(text)):
                depth += (text[at] == "(") - (text[at] == ")")
                if depth == 0:
                    break
            yield found[1], found[2][1:], text[found.start() : at + 1]
        else:
            yield found[1], found[2][1:], ""


def misfit(function, text):
    """Why a call's text does not fit a function; None where it does, or is no whole call."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:  # words within: nl.load(a part of x)
        return None
    if not isinstance(call, ast.Call) or not callable(function):
        return None
    if any(isinstance(a, ast.Starred) or getattr(a, "value", 0) is ... for a in call.args):
        return None
    try:
        inspect.signature(function).bind_partial(
            *call.args, **{k.arg: k.value for k in call.keywords if k.arg}
        )
    except (TypeError, ValueError) as error:
        return str(error)
    return None


MODULES_WITH_FIXES = sorted(p for p in ROOT.rglob("*.py") if "fix=" in p.read_text("utf-8"))


@pytest.mark.parametrize("path", MODULES_WITH_FIXES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_and_calls_of_fixes_exist(path):
    wrong = []
    for line, text in texts(path):
        for module, name, call in written(text):
            if FILLED in name:
                continue
            reasons = []
            for dialect in dialects(path):
                found = importlib.import_module(MODULES[dialect][module])
                try:
                    for part in name.split("."):
                        found = getattr(found, part)
                except AttributeError:
                    reasons.append(f"no {module}.{name} in {dialect}")
                    continue
                reason = misfit(found, call) if call else None
                if reason is None:
                    break
                reasons.append(f"{call}: {reason}")
            else:
                wrong.append((line, reasons))
    assert not wrong


def test_many_fixes_are_looked_at():
    found = [w for p in MODULES_WITH_FIXES for _, text in texts(p) for w in written(text)]
    assert len(found) > 300
    assert sum(bool(call) for *_, call in found) > 100
