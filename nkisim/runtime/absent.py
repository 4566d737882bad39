"""Modules of the SDK that the simulator does not have: what an import of one says."""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import sys
from collections.abc import Callable, Iterable

from nkisim.errors import UnknownNameError

_COLLECTIVES = (
    "use nki.collectives, of `import nki` (SDK 2.28 and later), which the simulator runs on "
    "several ranks with nkisim.run_ranks; within a launch of `neuronxcc.nki`, nl.all_reduce"
)
_KERNELS = (
    "take the kernel's source from github.com/aws-neuron/nki-samples (`neuronxcc.nki`) or "
    "nki-library (`import nki`), or one of the package `kernels`"
)
_INTERNAL = "use nki.language and nki.isa: it is internal to the SDK, and not documented"
_INSTEAD = {
    "neuronxcc.nki.nccl": _COLLECTIVES,
    "neuronxcc.nki.collectives": _COLLECTIVES,
    "nki.nccl": "use nki.collectives",
    "neuronxcc.nki.kernels": _KERNELS,
    "neuronxcc.nki._private_kernels": _KERNELS,
    "neuronxcc.nki._pre_prod_kernels": _KERNELS,
    "nki.kernels": _KERNELS,
    "neuronxcc.nki._private": _INTERNAL,
    "nki.dtype": "take types from nki.language: nl.bfloat16, nl.float8_e4m3",
    "nki.simulator": "use nki.simulate(kernel)(*args)",
    "nki.meta": "annotate tensors with nl.NkiTensor, or nki.typing.tensor",
    "nki.experimental": "use nl.fori_loop and nl.while_loop of nki.language",
}


class Absent(importlib.abc.MetaPathFinder):
    """The last finder. It refuses modules of some packages, which none before it has found.

    Args:
        known: the modules that there are, by their full names.
        stands_in: whether a package is the simulator's.
    """

    def __init__(self, known: Iterable[str], stands_in: Callable[[str], bool]) -> None:
        self.known = sorted(known)
        self.stands_in = stands_in

    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        of_ours = any(k.partition(".")[0] == package for k in self.known)
        # importlib.util.find_spec only asks whether there is one.
        asks = sys._getframe(2).f_code.co_name != "_find_and_load_unlocked"
        if not of_ours or asks or not self.stands_in(package):
            return None
        # With its name, `from package import module` would say "cannot import name" instead.
        raise ModuleNotFoundError(self._told(name))

    def _told(self, name: str) -> str:
        package, _, last = name.rpartition(".")
        for of in _parents(name):
            if of in _INSTEAD:
                return _sentence(
                    of, "releases of the SDK have had it, and the simulator does not", _INSTEAD[of]
                )
        if package in sys.modules:
            try:
                getattr(sys.modules[package], last)
            except UnknownNameError as error:  # which may say how a name is written here
                if error.fix and not error.fix.startswith(("did you mean", "see the reference")):
                    return _sentence(name, error.rule, error.fix)
            except AttributeError:
                pass
        there = [k for k in self.known if k.partition(".")[0] == name.partition(".")[0]]
        names = [*(k for k in there if "." in k), *self._names(package)]
        near = difflib.get_close_matches(name, names, 1, 0.8)
        fix = f"write {near[0]}, if that is meant" if near else "use one of these modules"
        return _sentence(name, "of the SDK, the simulator has " + ", ".join(there), fix)

    def _names(self, package: str) -> list[str]:
        if package not in self.known:
            return []
        module = importlib.import_module(package)
        return [f"{package}.{n}" for n in getattr(module, "__all__", ())]


def _parents(name: str) -> Iterable[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _sentence(name: str, rule: str, fix: str) -> str:
    return f"no module {name} in nkisim\n  rule: {rule}\n  fix:  {fix}"
