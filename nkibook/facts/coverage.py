"""What of the documented `neuronxcc.nki` API is simulated: the table, and each name's status.

`nki_api_neuronxcc.json` holds what the documentation says of each name. The status is found by
looking at what `neuronxcc.nki` offers here; what is here in part is written down, with the reason.
The conformance tests and the book's coverage page both read this module.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np

from nkibook import facts

Status = Literal["simulated", "partly", "not yet"]

# Documented names that are here, but whose use is an UnsupportedError, and why.
NOT_YET = {
    "neuronxcc.nki.isa.builtin_custom_op": "calls libraries of the SDK; undocumented",
    "neuronxcc.nki.language.tfloat32": "the name exists, but no tile can have this type",
}

# Names that exist, and what of them does not.
PARTLY = {
    "neuronxcc.nki.baremetal": "runs in the simulator, and writes no NEFF",
    "neuronxcc.nki.benchmark": "latencies are modelled, and the same at every percentile",
    "neuronxcc.nki.jit": "compiler options other than platform_target are ignored",
    "neuronxcc.nki.profile": "the profile is modelled",
    "neuronxcc.nki.compiler.allocation_scope": "accepted, no effect: no allocator to steer",
    "neuronxcc.nki.compiler.enable_stack_allocator": "accepted, no effect: no allocator to steer",
    "neuronxcc.nki.compiler.multi_buffer": "accepted, no effect: no allocator to steer",
    "neuronxcc.nki.compiler.no_reorder": "keeps the order in modelled times",
    "neuronxcc.nki.compiler.skip_middle_end_transformations": "accepted, no effect: no compiler",
    "neuronxcc.nki.isa.dropout": "its own generator: not the device's numbers",
    "neuronxcc.nki.language.all_reduce": "asynchronous=True is refused",
    "neuronxcc.nki.language.dropout": "its own generator: not the device's numbers",
    "neuronxcc.nki.language.gemm_grid": "documented in one sentence; read as an index grid",
    "neuronxcc.nki.language.gemm_stationary_grid": "documented in one sentence; an index grid",
    "neuronxcc.nki.language.rand": "its own generator: not the device's numbers",
    "neuronxcc.nki.language.random_seed": "its own generator: not the device's numbers",
}


@dataclass(frozen=True)
class Entry:
    """A documented name, and how far it is simulated.

    Attributes:
        module, name: where it is, e.g. "neuronxcc.nki.compiler" and "sbuf.alloc".
        engines: those that the documentation names; empty where it names none.
        since: the SDK whose release notes announce it, e.g. "2.22"; None where none does.
        generation: "v3" where it needs a NeuronCore-v3; None where it does not.
        limits: the main documented limits; empty where there are none of its own.
        status: "simulated", "partly" or "not yet".
        reason: why not simulated, or what is missing; empty for "simulated".
    """

    module: str
    name: str
    engines: tuple[str, ...]
    since: str | None
    generation: str | None
    limits: str
    status: Status
    reason: str

    @property
    def path(self) -> str:
        """The whole name."""
        return f"{self.module}.{self.name}"


def documented() -> facts.Documented:
    """The table: module to name to what the documentation says (see "about" in the file)."""
    return facts.documented("neuronxcc")


def documented_signature(module: str, name: str) -> inspect.Signature | None:
    """The documented signature with its defaults evaluated; None where the table has none."""
    text = documented()[module][name].get("signature")
    if text is None:
        return None
    isa = _module("neuronxcc.nki.isa")
    enumerations = ("engine", "reduce_cmd", "oob_mode", "dge_mode", "fp32")
    return facts.signature(text, {"np": np, **{n: getattr(isa, n) for n in enumerations}})


def find(module: str, name: str) -> Any:
    """What `neuronxcc.nki` has under a documented name.

    Raises:
        AttributeError: nothing.
    """
    return functools.reduce(getattr, name.split("."), _module(module))


def same_signature(found: inspect.Signature, wanted: inspect.Signature) -> bool:
    """Whether names, kinds and defaults of the parameters are equal. Annotations do not count."""
    return _bare(found) == _bare(wanted)


def coverage() -> tuple[Entry, ...]:
    """Every documented name, in the order of the table, with its status."""
    return tuple(
        _entry(module, name, known)
        for module, names in documented().items()
        for name, known in names.items()
    )


def _entry(module: str, name: str, known: dict[str, Any]) -> Entry:
    status, reason = _status(module, name)
    return Entry(
        module,
        name,
        tuple(known.get("engines", ())),
        known.get("since"),
        known.get("generation"),
        known.get("limits", ""),
        status,
        reason,
    )


def _status(module: str, name: str) -> tuple[Status, str]:
    path = f"{module}.{name}"
    try:
        found = find(module, name)
    except AttributeError:
        return "not yet", "missing"
    if path in NOT_YET:
        return "not yet", NOT_YET[path]
    wanted = documented_signature(module, name)
    if wanted is not None and not same_signature(inspect.signature(found), wanted):
        return "partly", "its parameters are not the documented ones"
    if path in PARTLY:
        return "partly", PARTLY[path]
    return "simulated", ""


def _bare(signature: inspect.Signature) -> list[tuple]:
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def _module(name: str) -> ModuleType:
    """The simulator's module of this name, whether or not the SDK is installed beside it."""
    return importlib.import_module(
        name.replace("neuronxcc.nki", "nkisim.frontends.neuronxcc.nki", 1)
    )
