"""What differs between NeuronCore generations, as data: one table a generation.

Sizes and limits are here, times in `nkisim.machine.timing`. Each number carries its source.
Nothing else in the simulator holds a hardware constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import SupportsIndex

from nkisim.machine.timing import V2, V3, V3_STATIC, V4, Timing

_KIB = 1024


@dataclass(frozen=True)
class Machine:
    """A NeuronCore generation.

    Sizes are bytes a partition unless they say otherwise. Source of all of them: the AWS
    architecture guides for the generation and the NKI programming model (SDK 2.26).
    """

    name: str
    instances: str
    partitions: int
    sbuf_bytes: int
    sbuf_reserved_bytes: int
    psum_bytes: int
    psum_bank_bytes: int
    psum_fmax: int
    gemm_stationary_fmax: int
    gemm_moving_fmax: int
    bn_stats_fmax: int
    timing: Timing
    # AWS names these two, and the usable bytes of SBUF on v3, without their values; these are the
    # ones in the KLR tracer (leanprover/KLR), a secondary source.
    sbuf_min_align: int = 1
    psum_min_align: int = 4

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple:
        """One of this module's is pickled by its name: it stays the same object."""
        for name, value in globals().items():
            if value is self:
                return name
        return super().__reduce_ex__(protocol)

    @property
    def sbuf_usable_bytes(self) -> int:
        """What a kernel can allocate in a partition: on v2 all but 16 KiB (direct allocation
        guide), on v3 212,984 bytes, nl.tile_size.total_available_sbuf_size in the KLR tracer."""
        return self.sbuf_bytes - self.sbuf_reserved_bytes


GEN2 = Machine(
    name="NeuronCore-v2",
    instances="Trn1, Inf2",
    partitions=128,
    sbuf_bytes=192 * _KIB,
    sbuf_reserved_bytes=16 * _KIB,
    psum_bytes=16 * _KIB,
    psum_bank_bytes=2 * _KIB,
    psum_fmax=512,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    bn_stats_fmax=512,
    timing=V2,
)

GEN3 = Machine(
    name="NeuronCore-v3",
    instances="Trn2",
    partitions=128,
    sbuf_bytes=224 * _KIB,
    sbuf_reserved_bytes=16 * _KIB + 8,
    psum_bytes=16 * _KIB,
    psum_bank_bytes=2 * _KIB,
    psum_fmax=512,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    bn_stats_fmax=512,
    timing=V3,
)

# [trainium3_arch] SBUF 32 MiB, PSUM 2 MiB. Usable bytes of SBUF: 245,752 in the KLR tracer, a
# secondary source. A matmul may fill all of PSUM: 8192 bf16 elements, 4096 of fp32
# (nki.isa.nc_matmul of NKI 0.6).
GEN4 = Machine(
    name="NeuronCore-v4",
    instances="Trn3",
    partitions=128,
    sbuf_bytes=256 * _KIB,
    sbuf_reserved_bytes=16 * _KIB + 8,
    psum_bytes=16 * _KIB,
    psum_bank_bytes=2 * _KIB,
    psum_fmax=512,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    bn_stats_fmax=512,
    timing=V4,
)

GEN3_STATIC = replace(GEN3, timing=V3_STATIC)  # compiled with --disable-dge
