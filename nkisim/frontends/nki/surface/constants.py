"""Types and constants of `nki.language`: element types, memory regions, limits of the hardware."""

from __future__ import annotations

import inspect
from typing import Any

from nkisim.frontends.nki import releases, target
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor

__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiTensor",
    "bfloat16",
    "bool_",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "hbm",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "private_hbm",
    "psum",
    "sbuf",
    "shared_hbm",
    "tfloat32",
    "tile_size",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

DType = str

bool_ = "bool"
int8, int16, int32, int64 = "int8", "int16", "int32", "int64"
uint8, uint16, uint32, uint64 = "uint8", "uint16", "uint32", "uint64"
float16, float32, bfloat16, tfloat32 = "float16", "float32", "bfloat16", "tfloat32"
float8_e4m3, float8_e4m3fn, float8_e5m2 = "float8_e4m3", "float8_e4m3fn", "float8_e5m2"
float8_e8m0fnu = "float8_e8m0fnu"
float8_e5m2_x4, float8_e4m3fn_x4 = "float8_e5m2_x4", "float8_e4m3fn_x4"
float4_e2m1fn_x4 = "float4_e2m1fn_x4"

sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
private_hbm, shared_hbm = MemoryRegion.private_hbm, MemoryRegion.shared_hbm
hbm = private_hbm


class NKIObject:
    """Base of classes whose objects kernels use: configurations, dataclasses.

    An annotated field of a class below this one that has no default has None, as AWS's compiler
    has it: `x: int` in the class body means `x: int = None`. So `@dataclass` asks for no field,
    and fields with and without a default may stand in any order. `x = 3` without an annotation
    makes a field, too, after those that have one.

    Args:
        **kwargs: attributes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = inspect.get_annotations(cls)
        for name in fields:
            if not hasattr(cls, name):
                setattr(cls, name, None)  # which `@dataclass` takes as the default
        for name, value in vars(cls).items():
            if not (name.startswith("__") or callable(value) or hasattr(value, "__get__")):
                fields.setdefault(name, Any)
        cls.__annotations__ = fields

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        """As Python has it; in NKI 0.6, whether the type and all fields are equal."""
        if releases.tracing() or type(other) is not type(self):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = object.__hash__


class _TileSize:
    """Limits of the hardware that the kernel is compiled for. In elements, but for bytes."""

    @property
    def pmax(self) -> int:
        """Partitions."""
        return target.current_machine().partitions

    @property
    def psum_bank_fmax(self) -> int:
        """fp32 elements in a partition of a bank of PSUM."""
        return target.current_machine().psum_fmax

    psum_fmax = psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes in a partition of a bank of PSUM."""
        return target.current_machine().psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        machine = target.current_machine()
        return machine.psum_bytes // machine.psum_bank_bytes

    @property
    def gemm_stationary_fmax(self) -> int:
        """Columns of the stationary operand of a matmul."""
        return target.current_machine().gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Columns of the moving operand of a matmul."""
        return target.current_machine().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Elements of a partition that nisa.bn_stats takes."""
        return target.current_machine().bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Bytes that addresses in PSUM are multiples of."""
        return target.current_machine().psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Bytes that addresses in SBUF are multiples of."""
        return target.current_machine().sbuf_min_align

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of a partition of SBUF that kernels can use."""
        return target.current_machine().sbuf_usable_bytes

    sbuf_fmax_bytes = total_available_sbuf_size

    @property
    def sbuf_fmax(self) -> int:
        """fp32 elements of a partition of SBUF that kernels can use."""
        return target.current_machine().sbuf_usable_bytes // 4

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, over all partitions."""
        machine = target.current_machine()
        return machine.sbuf_bytes * machine.partitions


tile_size = _TileSize()


def is_hbm(buffer: MemoryRegion) -> bool:
    """Whether a memory region is HBM."""
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Whether a memory region is SBUF or PSUM."""
    return buffer in (MemoryRegion.sbuf, MemoryRegion.psum)


def is_psum(buffer: MemoryRegion) -> bool:
    """Whether a memory region is PSUM."""
    return buffer is MemoryRegion.psum


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Whether a memory region is SBUF."""
    return buffer is MemoryRegion.sbuf
