"""Stand in for the Neuron SDK's Python packages when they are not installed.

`install` makes `neuronxcc.nki`, `nki`, the framework entry points `torch_neuronx.nki_jit` (also in
`torch_neuronx.xla_impl.ops`), `torch_neuronx.nki_op` and `jax_neuronx.nki_call`,
`torch_neuronx.xla_impl.custom_op` and `torch_neuronx.utils` importable. A real SDK is never
shadowed. PyPI carries empty placeholder distributions of the same names; those do not count as an
SDK.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
from pathlib import Path
from types import ModuleType

from nkisim.runtime.absent import Absent

# Package -> files or folders of which the real one has one, and a placeholder none.
_EVIDENCE = {
    "neuronxcc": ("nki",),
    "nki": ("isa",),
    "torch_neuronx": ("xla_impl", "nki_hop"),  # for PyTorch/XLA, and for PyTorch's neuron device
    "jax_neuronx": ("core",),
}
_SURFACE = "nkisim.frontends.neuronxcc.nki"
_STAND_INS = "nkisim.frontends.neuronxcc.shims"
_SHIMS = {
    "torch_neuronx": _STAND_INS + ".torch_neuronx",
    "torch_neuronx.nki_hop": _STAND_INS + ".torch_neuronx.nki_hop",
    "torch_neuronx.utils": _STAND_INS + ".torch_neuronx.utils",
    "torch_neuronx.xla_impl": _STAND_INS + ".torch_neuronx.xla_impl",
    "torch_neuronx.xla_impl.custom_op": _STAND_INS + ".torch_neuronx.xla_impl.custom_op",
    "torch_neuronx.xla_impl.ops": _STAND_INS + ".torch_neuronx.xla_impl.ops",
    "jax_neuronx": _STAND_INS + ".jax_neuronx",
}
_TODAY = "nkisim.frontends.nki.surface"
_NKI = {
    "neuronxcc.nki": _SURFACE,
    "neuronxcc.nki.language": _SURFACE + ".language",
    "neuronxcc.nki.language.constants": _SURFACE + ".constants",
    "neuronxcc.nki.isa": _SURFACE + ".isa",
    "neuronxcc.nki.isa.constants": _SURFACE + ".isa.constants",
    "neuronxcc.nki.compiler": _SURFACE + ".compiler",
    "neuronxcc.nki.compiler.backends": _STAND_INS,
    "neuronxcc.nki.compiler.backends.neuron": _STAND_INS,
    "neuronxcc.nki.compiler.backends.neuron.indexing": _STAND_INS + ".compiler_internals",
    "neuronxcc.nki.compiler.backends.neuron.tensor": _STAND_INS + ".compiler_internals",
    "neuronxcc.nki.typing": _SURFACE + ".typing",
    "nki": _TODAY,
    "nki.language": _TODAY + ".language",
    "nki.isa": _TODAY + ".isa",
    "nki.isa.constants": _TODAY + ".isa.enums",
    "nki.collectives": _TODAY + ".collectives",
    "nki.compiler": _TODAY + ".compiler",
    "nki.typing": _TODAY + ".typing",
    "neuronxcc.starfish": _STAND_INS,
    "neuronxcc.starfish.support": _STAND_INS,
    "neuronxcc.starfish.support.dtype": _STAND_INS + ".compiler_dtype",
}


def sdk_installed(package: str = "neuronxcc") -> bool:
    """Whether the Neuron SDK's own `package` is installed. Imports nothing.

    Args:
        package: "neuronxcc", "torch_neuronx" or "jax_neuronx".
    """
    loaded = sys.modules.get(package)
    if loaded is not None and getattr(loaded, "__nkisim__", False):
        return False
    for finder in sys.meta_path:
        if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(package, None)
        if spec is None:
            continue
        evidence = _EVIDENCE[package]
        return any(
            path.stem in evidence
            for folder in spec.submodule_search_locations or ()
            if Path(folder).is_dir()
            for path in Path(folder).iterdir()
        )
    return False


def install(in_place_of_sdk: bool = False) -> bool:
    """Make the NKI packages importable if the SDK does not provide them.

    Args:
        in_place_of_sdk: do so even where the SDK is installed, if nothing imported it yet. PyTorch,
            unless it is imported before, then leaves the SDK's device to the simulator.

    Returns:
        True when `neuronxcc.nki` is now this simulator, False when the SDK is installed and is
        left alone.
    """
    if sdk_installed("neuronxcc") and not in_place_of_sdk:
        return False
    if in_place_of_sdk:  # else `import torch` imports the SDK's torch_neuronx
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    for package in _EVIDENCE:
        if package != "neuronxcc" and sdk_installed(package):
            continue
        for name in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
            if not getattr(sys.modules[name], "__nkisim__", name.startswith("neuronxcc.nki")):
                del sys.modules[name]  # a placeholder that was imported before us
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        finder = _Finder(in_place_of_sdk)
        sys.meta_path.insert(0, finder)
        sys.meta_path.append(Absent(["neuronxcc", *_NKI, *_SHIMS], finder.stands_in))
    return True


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves the SDK's names to this package's modules."""

    def __init__(self, in_place_of_sdk: bool) -> None:
        self.in_place_of_sdk = in_place_of_sdk

    def find_spec(self, name, path=None, target=None):
        is_nki = name.partition(".")[0] == "nki"
        if is_nki and not self.in_place_of_sdk and sdk_installed("nki"):
            return None
        if name == "neuronxcc" or name in _NKI:
            return importlib.machinery.ModuleSpec(name, self, is_package=name.count(".") < 2)
        package = name.partition(".")[0]
        if name in _SHIMS and (self.in_place_of_sdk or not sdk_installed(package)):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def stands_in(self, package: str) -> bool:
        """Whether a package of the SDK is this one's."""
        return package == "neuronxcc" or self.find_spec(package) is not None

    def create_module(self, spec):
        if spec.name == "neuronxcc":
            module = ModuleType("neuronxcc", "Stand-in for the Neuron compiler: nkisim.")
            module.__nkisim__ = True
            module.__path__ = []
            module.__version__ = "0+nkisim"
            return module
        source = _NKI.get(spec.name) or _SHIMS[spec.name]
        real = importlib.import_module(source)
        # A module object of its own: import machinery writes __spec__ and __name__ on it.
        module = _Alias(spec.name, real.__doc__)
        module.__dict__["_real"] = real
        # Kernels look names up all the time. Those made on demand come later (__getattr__).
        module.__dict__.update({k: v for k, v in vars(real).items() if not k.startswith("__")})
        module.__nkisim__ = True
        module.__path__ = []
        return module

    def exec_module(self, module):
        # The SDK's import leaves a level in `logging` that public test harnesses use (CS149's
        # assignment on Trainium, say): logging.disable(logging.OFF).
        if module.__name__ == "neuronxcc" and not hasattr(logging, "OFF"):
            logging.OFF = logging.CRITICAL + 10


class _Alias(ModuleType):
    """A module that shows another module's contents under the SDK's name."""

    def __getattr__(self, name: str):
        return getattr(self.__dict__["_real"], name)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self.__dict__["_real"])})
