"""What the pages need that not every machine has: a framework, a compiler, the simulator.

What their cells import or call says it. Only the pages that are all about the simulator are listed:
on a device nothing of them is left.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pages
from pages import ROOT

import kernels
from nkibook import doctor
from nkibook.cells import MARKS, needs_simulator

COMPILER = "C++ compiler"
TORCH = "PyTorch"
TORCH_NEURON = "PyTorch's neuron device"  # PyTorch 2.13, or an older one and a C++ compiler
TORCH_XLA = "torch_xla"  # has wheels for Linux on x86_64 only
JAX = "JAX"
TRANSFORMERS = "transformers"  # an extra of its own
SIMULATOR = "simulator"

USES = {
    COMPILER: re.compile(r"custom_op\.load\(|cpp_extension|kernels\.rmsnorm\.ffi"),
    TORCH: re.compile(r"^\s*(?:import|from) torch\b", re.MULTILINE),
    TORCH_NEURON: re.compile(r"(?:import|from) torch_neuronx"),
    TORCH_XLA: re.compile(r"torch_hlo\(|import torch_xla|from torch_xla"),
    JAX: re.compile(r"jax_hlo\(|^\s*(?:import|from) jax\b", re.MULTILINE),
    TRANSFORMERS: re.compile(r"^\s*(?:import|from) transformers\b", re.MULTILINE),
}

ABOUT_THE_SIMULATOR = (
    "notebooks/attention_fast",
    "notebooks/giou_cpp",
    "notebooks/giou_optimisation",
    "notebooks/matmul_fast",
    "notebooks/rmsnorm_ffi",
    "notebooks/rmsnorm_optimisation",
    "notebooks/tuning",
)


def of(page: str, dialect: str, root: Path = ROOT) -> tuple[str, ...]:
    """What the cells of a page need in a dialect, those that run here."""
    cells = (cell.source for cell in pages.code(page, dialect, root))
    on_device = kernels.backend != "nkisim"
    code = "\n".join(cell for cell in cells if not (on_device and needs_simulator(cell)))
    found = [need for need, used in USES.items() if used.search(code)]
    if page in ABOUT_THE_SIMULATOR or page.startswith("book/"):
        found.append(SIMULATOR)
    return tuple(found)


def _there(need: str) -> bool:
    modules = {TORCH: "torch", TORCH_XLA: "torch_xla", JAX: "jax", TRANSFORMERS: "transformers"}
    if need in modules:
        return find_spec(modules[need]) is not None
    if need == COMPILER:
        # $CXX, else c++, as nkisim.customop.compiling and kernels.rmsnorm.ffi.building look.
        return shutil.which(os.environ.get("CXX", "c++").split()[0]) is not None
    if need == TORCH_NEURON:
        return doctor.neuron_backend().state is doctor.State.OK
    return kernels.backend == "nkisim"


def missing(page: str, dialect: str | None = None, root: Path = ROOT) -> str:
    """What a page needs in a dialect, or in any of its own, and this machine lacks; "" if nothing.

    An SDK compiles one dialect; the simulator runs both.
    """
    for own in [dialect] if dialect else pages.dialects(page, root):
        if kernels.backend != "nkisim" and own != kernels.dialect:
            return f"SDK for {MARKS[own]}"
        for need in of(page, own, root):
            if not _there(need):
                return need
    return ""
