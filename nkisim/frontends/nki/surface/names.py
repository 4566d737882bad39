"""Names that a module of `nki` does not have, and how to write them in this dialect."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nkisim.errors import UnknownNameError
from nkisim.frontends.nki import releases

# Names of `neuronxcc.nki` (SDK 2.26) and of the betas of `nki`, and what stands in their place.
ELSEWHERE = {
    "nki.language": {
        "arange": "slice with t[0:128, 0:512]; strides go to t.ap(pattern)",
        "mgrid": "slice with t[0:128, 0:512]; strides go to t.ap(pattern)",
        "par_dim": "axis 0 is the partition axis: write its size alone, without par_dim",
        "static_cast": "copy into a tensor of the type: nisa.tensor_copy(dst, src)",
        "cast": "copy into a tensor of the type: nisa.tensor_copy(dst, src)",
        "all_reduce": "use nki.collectives.all_reduce, or nisa.sendrecv between two cores",
        "atomic_rmw": "use nisa.dma_compute(dst, [dst, src], nl.add)",
        "loop_reduce": "accumulate with nisa.nc_matmul(dst, ...) or nisa.tensor_tensor",
        "spmd_dim": "launch with kernel[lnc](...), lnc 1 or 2",
        "nc": "launch with kernel[lnc](...), lnc 1 or 2",
        "finfo": "use numpy.finfo or ml_dtypes.finfo",
        "fp32": "use nl.tile_size and Python floats",
        "gemm_grid": "index with nl.program_id(0)",
        "bool": "nl.bool_",
        "invert_": "nl.invert",
        "bfp16": "nl.bfloat16",
        "tensor": "nl.NkiTensor",
    },
    "nki.isa": {
        "tensor_copy_dynamic_src": "nisa.tensor_copy(dst, t.ap(pattern, scalar_offset=index))",
        "tensor_copy_dynamic_dst": "nisa.tensor_copy(t.ap(pattern, scalar_offset=index), src)",
        "builtin_custom_op": "write the operation with nisa instructions",
        "fp32": "use Python floats",
    },
    "nki": {
        "baremetal": "call the kernel with NumPy arrays, or nki.simulate(kernel)(...)",
        "benchmark": "neuron-profile on the device; nkisim.profile(kernel, ...) here",
        "profile": "neuron-profile on the device; nkisim.profile(kernel, ...) here",
        "simulate_kernel": "nki.simulate(kernel)(*args)",
        "trace": "call the function undecorated from the kernel",
    },
    "nki.compiler": {
        name: "address= of nl.ndarray, and nl.no_reorder, stand in its place"
        for name in ("sbuf", "psum", "multi_buffer", "no_reorder", "enable_stack_allocator")
    },
    "nki.typing": {"mutable_tensor": "nt.tensor[shape]; a kernel may write any argument"},
    "nki.collectives": {
        "reduce_scatter_v": "use ncc.reduce_scatter: the beta's form has no page",
    },
}
_CALLS = {"nki": "nki", "nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}


def _public(module: str) -> list[str]:
    """The names that a module of this dialect gives kernels."""
    return [
        name
        for name, value in vars(sys.modules[_HOME[module]]).items()
        if not name.startswith("_")
        and (f"{module}.{name}" in _HOME or not isinstance(value, ModuleType))
    ]


def missing(module: str, later: dict[str, Any] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a module of this dialect, which tells of names that it does not have.

    Args:
        module: as "nki.language".
        later: what `releases.later` took out of it: names that not every release has.
    """

    def lookup(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        short = _CALLS.get(module, module)
        new = later or {}
        if name in new:
            if not releases.has(f"{short}.{name}"):
                raise releases.too_new(f"{short}.{name}")
            return new[name]
        instead = ELSEWHERE[module].get(name)
        version = releases.release()
        if instead is not None:
            raise UnknownNameError(
                f"{short}.{name} is not in `import nki`",
                rule=f"{short}.{name} is `neuronxcc.nki`, or of a beta; NKI {version} does not "
                "have it",
                fix=instead,
            )
        near = [
            f"{prefix}.{name}"
            for other, prefix in _CALLS.items()
            if other != module and name in _public(other)
        ] or [f"{short}.{n}" for n in difflib.get_close_matches(name, [*_public(module), *new], 3)]
        raise UnknownNameError(
            f"{short}.{name} does not exist",
            rule=f"kernels use what the reference of NKI {version} lists",
            fix=f"did you mean {' or '.join(near)}?"
            if near
            else f"see the reference of NKI {version}",
        )

    return lookup


_SURFACE = "nkisim.frontends.nki.surface"
_HOME = {
    "nki": _SURFACE,
    "nki.language": f"{_SURFACE}.language",
    "nki.isa": f"{_SURFACE}.isa",
    "nki.collectives": f"{_SURFACE}.collectives",
    "nki.compiler": f"{_SURFACE}.compiler",
    "nki.typing": f"{_SURFACE}.typing",
}
