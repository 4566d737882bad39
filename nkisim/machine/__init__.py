"""What differs between NeuronCore generations, as data: one table a generation.

Sizes and limits are here, times in `nkisim.machine.timing`. Each number carries its source.
What AWS documents of one instruction alone, such as its most indices, stands in the call of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import SupportsIndex

from nkisim.machine.timing import V2, V3, V3_STATIC, V4, Timing

_KIB = 1024
PARTITIONS = 128  # of SBUF and of PSUM, in all generations


@dataclass(frozen=True)
class Abilities:
    """Abilities of a generation's instructions that not all generations have. The defaults are
    those of NeuronCore-v2. Source of all of them: AWS's pages of the instructions that are named.

    Attributes:
        cores: physical cores of the largest logical core (nki.jit, "Logical NeuronCores").
        instructions: the instructions that not every generation has.
        operators: the ALU operators that not every generation has.
        hardware_descriptors: whether hardware generates descriptors of DMAs: dge_mode.hwdge of
            nisa.dma_copy, and nisa.dma_transpose by row numbers.
        dma_priorities: whether nisa.dma_copy takes a priority.
        scalar_copies: whether the Scalar Engine copies bits: nisa.tensor_copy.
        scalar_affine: whether it multiplies and adds without a table: nisa.tensor_scalar.
        reciprocal_bias: whether its reciprocal takes a bias: op=np.reciprocal of nisa.activation.
        number_as_bias: whether nisa.activation takes a number as bias.
        exact_transposes: whether transposes on the Tensor Engine pass bits on, where others are
            products by one that spread NaN and infinity: nisa.nc_transpose, nisa.nc_matmul.
        array_tiles: sides of the parts into which the 128 x 128 array can be cut: tile_size of
            nisa.nc_matmul.
        fp8_pairs: whether perf_mode double_row of nisa.nc_matmul takes fp8.
        e4m3fn_products: whether nisa.nc_matmul takes float8_e4m3fn.
        sums: the types in which products are accumulated: dst of nisa.nc_matmul.
        products_cross_banks: whether one product may fill all of a PSUM partition, and not a bank.
        microscaling: whether there are block-scaled formats: nisa.nc_matmul_mx, nisa.quantize_mx.
        random_engines: that fill a tile with random bits: nisa.rng.
        random_state_engines: whose generators can be set and read: nisa.rand_set_state.
        random_state_in_psum: whether the Vector Engine writes that state to PSUM.
        places_of_exchanges: whether nki.collectives.all_to_all_v chooses places in what it
            receives, and whose groups then are whole devices.
        beyond_pages: whether `neuronxcc.nki` takes two things that AWS's pages exclude: a tile in
            PSUM that is larger than a bank, and nisa.nc_transpose of more than 32 x 32 on the
            Vector Engine. Source: kernels that passed on a trn2; of others nothing is known.
    """

    cores: int = 1
    instructions: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()
    hardware_descriptors: bool = False
    dma_priorities: bool = False
    scalar_copies: bool = False
    scalar_affine: bool = False
    reciprocal_bias: bool = False
    number_as_bias: bool = False
    exact_transposes: bool = False
    array_tiles: tuple[int, ...] = (64, 128)
    fp8_pairs: bool = False
    e4m3fn_products: bool = False
    sums: tuple[str, ...] = ("float32",)
    products_cross_banks: bool = False
    microscaling: bool = False
    random_engines: tuple[str, ...] = ("vector",)
    random_state_engines: tuple[str, ...] = ()
    random_state_in_psum: bool = False
    places_of_exchanges: bool = False
    beyond_pages: bool = False


_V3 = Abilities(
    cores=2,
    instructions=frozenset({"nonzero_with_count", "range_select"}),
    hardware_descriptors=True,
    scalar_copies=True,
    scalar_affine=True,
    reciprocal_bias=True,
    number_as_bias=True,
    exact_transposes=True,
    array_tiles=(32, 64, 128),
    fp8_pairs=True,
    random_engines=("vector", "gpsimd"),
    random_state_engines=("gpsimd",),
    beyond_pages=True,
)
_V4 = replace(
    _V3,
    instructions=_V3.instructions | {"activate2", "exponential", "rand2"},
    operators=frozenset({"abs_max", "abs_min"}),
    dma_priorities=True,
    e4m3fn_products=True,
    sums=("float32", "bfloat16"),
    products_cross_banks=True,
    microscaling=True,
    random_state_engines=("gpsimd", "vector"),
    random_state_in_psum=True,
    places_of_exchanges=True,
    beyond_pages=False,
)


@dataclass(frozen=True)
class Machine:
    """A NeuronCore generation.

    Sizes are bytes a partition unless they say otherwise. Source of all of them: the AWS
    architecture guides for the generation and the NKI programming model (SDK 2.26).
    """

    name: str
    instances: str
    version: int
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
    hbm_bytes: int  # of a chip, for all of its cores
    chip_cores: int  # NeuronCores of a chip
    # Vector Engine cycles for each pair of float32 operands in SBUF: the formula 2 N of AWS's
    # nki.isa, written for v2, and 152 + N cycles in traces of trn2 (nkisim.machine.timing).
    pair_cycles: int
    # Median error of modelled latencies, relative to published ones that the model had not seen:
    # nearer times are not told apart. Source: nkibook/validation/first.json.
    error: float
    # AWS names these two, and the usable bytes of SBUF on v3, without their values; these are the
    # ones in the KLR tracer (leanprover/KLR), a secondary source.
    sbuf_min_align: int = 1
    psum_min_align: int = 4
    abilities: Abilities = Abilities()

    def __hash__(self) -> int:
        return hash(self.name)  # part of the key of every launch: of all fields it would be slow

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
    version=2,
    partitions=PARTITIONS,
    sbuf_bytes=192 * _KIB,
    sbuf_reserved_bytes=16 * _KIB,
    psum_bytes=16 * _KIB,
    psum_bank_bytes=2 * _KIB,
    psum_fmax=512,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    bn_stats_fmax=512,
    timing=V2,
    hbm_bytes=32 << 30,
    chip_cores=2,
    pair_cycles=2,
    error=0.095,  # 25 latencies of NKIBench and Autocomp
)

GEN3 = Machine(
    name="NeuronCore-v3",
    instances="Trn2",
    version=3,
    partitions=PARTITIONS,
    sbuf_bytes=224 * _KIB,
    sbuf_reserved_bytes=16 * _KIB + 8,
    psum_bytes=16 * _KIB,
    psum_bank_bytes=2 * _KIB,
    psum_fmax=512,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    bn_stats_fmax=512,
    timing=V3,
    abilities=_V3,
    hbm_bytes=96 << 30,
    chip_cores=8,
    pair_cycles=1,
    error=0.194,  # 109 latencies of nki-library
)

# [trainium3_arch] SBUF 32 MiB, PSUM 2 MiB. Usable bytes of SBUF: 245,752 in the KLR tracer, a
# secondary source. A matmul may fill all of PSUM: 8192 bf16 elements, 4096 of fp32
# (nki.isa.nc_matmul of NKI 0.6).
GEN4 = Machine(
    name="NeuronCore-v4",
    instances="Trn3",
    version=4,
    partitions=PARTITIONS,
    sbuf_bytes=256 * _KIB,
    sbuf_reserved_bytes=16 * _KIB + 8,
    psum_bytes=16 * _KIB,
    psum_bank_bytes=2 * _KIB,
    psum_fmax=512,
    gemm_stationary_fmax=128,
    gemm_moving_fmax=512,
    bn_stats_fmax=512,
    timing=V4,
    abilities=_V4,
    hbm_bytes=144 << 30,
    chip_cores=8,
    pair_cycles=1,
    error=0.194,  # as v3, at the least: no published latency has been compared
)

GENERATIONS = (GEN2, GEN3, GEN4)
GEN3_STATIC = replace(GEN3, timing=V3_STATIC)  # compiled with --disable-dge
