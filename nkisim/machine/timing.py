"""What the cost model knows about time: one table a NeuronCore generation.

Each number carries where it comes from:

* [A] AWS Neuron SDK 2.26 documentation: the architecture guide of the generation.
* [I] the same: cost formulas in the docstrings of `nki.isa`.
* [P] the same: the NKI performance guide and its figures.
* [BW] the same, later releases: the DMA bandwidth guide and the DMA overview.
* [CC] the same: the deep dive on overlapping computation and communication, "packet size".
* [DGE] the same: the deep dive on descriptor generation.
* [N] decoded hardware traces (NTFF files) that students of Stanford's CS149 published.
* [V] the inf2.xlarge microbenchmark suite of triton-viz.
* [U] profiles of a depthwise convolution on trn1 in a UC Berkeley blog on Autocomp (2025).
* [W] latency limits in the tests of AWS's nki-samples.
* [K] engine activity that NKIBench publishes with its latencies on trn1.
* [C] per-instruction profiles on trn2 of allenkchau/trainium-kernel-fusion.
* [fit] set here, to agree with published kernel latencies; the sources leave it open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EngineTiming:
    """A compute engine that processes one element a lane and cycle.

    Attributes:
        ghz: clock, in cycles a nanosecond.
        issue_cycles: cycles between two instructions beyond those that their elements take; as
            many again where Vector reads a second operand after the first.
        latency_cycles: cycles from the start of an instruction until others see its result,
            beyond those that its elements take.
    """

    ghz: float
    issue_cycles: float
    latency_cycles: float


@dataclass(frozen=True)
class TensorTiming:
    """The Tensor Engine.

    Attributes:
        ghz: clock of the array.
        pass_ns: time of one pass beyond that of its moving columns.
        latency_ns: from the last column in to the result in PSUM.
        fp32_passes: passes over an fp32 operand; other types take one.
        transpose_passes: the same for a transpose, whose products are exact.
        min_columns: fewer moving columns take as long as this many, or as the stationary ones.
        tflops: dense bf16 peak.
    """

    ghz: float
    pass_ns: float
    latency_ns: float
    fp32_passes: int
    transpose_passes: int
    min_columns: int
    tflops: float


@dataclass(frozen=True)
class DmaTiming:
    """The DMA engines of one NeuronCore.

    Attributes:
        engines: how many, each with a queue.
        hbm_rate: bytes a nanosecond of the HBM that two NeuronCores share.
        load_rate, store_rate: bytes a nanosecond and engine, from HBM and to HBM or within SBUF.
        load_descriptor_ns, store_descriptor_ns: time for each contiguous run beyond its bytes.
        short_write_ns: more for a run of fewer bytes than `write_granule`, for which HBM is read,
            changed and written back.
        write_granule: see above.
        packet_bytes: the most of a run from HBM to HBM that is moved in one piece.
        transpose_factor: rate of a DMA transpose against a copy.
        trigger_ns: time of the instruction that starts a transfer, on the engine that issues it.
        static_trigger_ns, static_start_ns: the same, and `start_ns`, of transfers whose descriptors
            are in HBM before the kernel runs (`dge_mode.none`).
        software_ns: time for GpSimd to write the descriptors of a transfer whose addresses are
            known (`dge_mode.swdge`).
        spill_trigger_ns: `trigger_ns` of transfers that the compiler puts in to load again what it
            had no room to keep. They have queues of their own, with descriptors made in advance.
        start_ns: from the trigger to the first activity of the queue.
        load_latency_ns, store_latency_ns: from the last byte's turn to its arrival.
        semaphore_ns: for the queue to signal the end.
        wake_ns: from that signal to the start of an engine that waits for it.
        in_flight: transfers that one instruction of the kernel's text has under way at a time.
        ordered_in_flight: the same in a loop over nl.sequential_range.
        single_in_flight: the same of those that use one DMA engine only, as a row does.
        indirect_ns: time for GpSimd to write the descriptors of a transfer whose addresses
            are in a tile.
    """

    engines: int
    hbm_rate: float
    load_rate: float
    store_rate: float
    load_descriptor_ns: float
    store_descriptor_ns: float
    short_write_ns: float
    write_granule: int
    packet_bytes: int
    transpose_factor: float
    trigger_ns: float
    static_trigger_ns: float
    static_start_ns: float
    software_ns: float
    spill_trigger_ns: float
    start_ns: float
    load_latency_ns: float
    store_latency_ns: float
    semaphore_ns: float
    wake_ns: float
    in_flight: int
    ordered_in_flight: int
    single_in_flight: int
    indirect_ns: float


@dataclass(frozen=True)
class Timing:
    """All of a generation.

    Attributes:
        vector, scalar, gpsimd, tensor, dma: the engines; Scalar for copies and for functions that
            need no table.
        activation: Scalar for functions that are in a table, and for reciprocals.
        semaphore_ns: from the end of one engine's instruction to the start of another's.
        least_cycles: least between two instructions of Vector, Scalar or GpSimd.
        two_input_cycles: cycles an element of a Vector instruction with two tile inputs.
        scan_cycles: the same for tensor_tensor_scan.
        select_cycles: the same for a select, which is a copy and a predicated copy.
        reciprocal_cycles: the same for a reciprocal on Vector.
        table_reciprocal_elements: elements a partition from which the compiler computes a
            reciprocal from a table, on Scalar, where the kernel leaves the engine open.
        vector_reciprocals: whether it leaves nisa.reciprocal on Vector, of however many elements.
        bn_aggr_cycles: cycles for each element of bn_aggr.
        accumulator_cycles: to read an accumulator out, after a reduction on the side.
        dynamic_cycles: least for an instruction whose address is in a register.
        gpsimd_rsqrt_cycles: cycles an element of rsqrt on GpSimd.
        wide_stride_bytes: an innermost stride of this and more halves the memory interface.
        interface_ghz: elements a lane and nanosecond of the memory interface.
        bf16_pairs: whether two-input bf16 instructions in SBUF run at one cycle an element.
        performance_mode: whether Vector is up to four times as fast for some 16-bit operands; see
            `nkisim.cost.compute`.
        shared_port: whether Vector and GpSimd exclude each other from SBUF, and Vector and
            Scalar from PSUM.
        table_load_ns: for Scalar to load the table of another activation function.
        before_ns, after_ns: launch overhead before the first and after the last instruction.
        kept_operand_bytes: bytes a partition of the newest matmul operands that the compiler keeps
            for later iterations, of whatever loop, which load the same again.
        joined_elements: elements a partition up to which the compiler makes one instruction of the
            iterations of a loop; see `nkisim.compiler.joining`.
    """

    vector: EngineTiming
    scalar: EngineTiming
    activation: EngineTiming
    gpsimd: EngineTiming
    tensor: TensorTiming
    dma: DmaTiming
    semaphore_ns: float
    least_cycles: float
    two_input_cycles: float
    scan_cycles: float
    select_cycles: float
    reciprocal_cycles: float
    table_reciprocal_elements: int
    vector_reciprocals: bool
    bn_aggr_cycles: float
    accumulator_cycles: float
    dynamic_cycles: float
    gpsimd_rsqrt_cycles: float
    wide_stride_bytes: int
    interface_ghz: float
    bf16_pairs: bool
    performance_mode: bool
    shared_port: bool
    table_load_ns: float
    before_ns: float
    after_ns: float
    kept_operand_bytes: int
    joined_elements: int

    def shared_by(self, cores: int) -> Timing:
        """The table of one of so many cores that move data to and from the same HBM at once: each
        has DMA engines of its own, and its part of the HBM's rate."""
        most = self.dma.hbm_rate / cores / self.dma.engines
        rates = min(self.dma.load_rate, most), min(self.dma.store_rate, most)
        return replace(self, dma=replace(self.dma, load_rate=rates[0], store_rate=rates[1]))


V2 = Timing(
    # [A] clock, and about 60 cycles for an access. [U] tensor_tensor of 3 elements, one operand in
    # PSUM: 66 cycles; tensor_reduce of 12: 70. [K] tensor_tensor of 512 in SBUF: 1132, which is
    # 2 (512 + 54). [N][P] durations of fp32 tensor_tensor of 1000, 2000 and 8192 elements, both
    # operands in SBUF, fit 238 + 2.02 N cycles; 56 of them are the second access.
    vector=EngineTiming(ghz=1.12, issue_cycles=56, latency_cycles=182),
    # [A] clock, and about 60 cycles for an access. No source for the latency: that of a function
    # from a table, less what the table adds to the issue.
    scalar=EngineTiming(ghz=1.4, issue_cycles=60, latency_cycles=158),
    # [V] exp of 2048 elements: 88 ns beyond the elements when independent, 158 ns in a dependent
    # chain.
    activation=EngineTiming(ghz=1.4, issue_cycles=123, latency_cycles=221),
    # [A] clock. [I] "150 + N" of iota and affine_select. No source for the latency: Vector's.
    gpsimd=EngineTiming(ghz=1.4, issue_cycles=150, latency_cycles=238),
    tensor=TensorTiming(
        ghz=2.8,  # [A]
        pass_ns=26,  # [P] matmul starts 26 ns after its weights; [V] 209 ns for 512 columns
        latency_ns=173,  # [P] a matmul of 128 columns takes 219 ns
        fp32_passes=4,  # [I]
        # [fit] to convolution and attention in fp32; [I] gives transposes one cycle a column.
        transpose_passes=2,
        min_columns=64,  # [I]
        tflops=91.75,  # profiler constant
    ),
    dma=DmaTiming(
        engines=16,  # [A] 32 of a device of two cores
        hbm_rate=820,  # [A] of a device of two cores: more than their DMA engines move
        load_rate=17.0,  # [BW][N]; the architecture guide's 27 GiB/s was never measured
        store_rate=17.9,  # [N] 17.4-19.0
        # [fit] to adds in tiles of 8 B rows; [P] 7 ns for 4 B. It fits [V], too: four reads, with
        # one start, of runs of 128 B at 41 GB/s, of 2 KiB at 208, of 32 KiB at 271.
        load_descriptor_ns=14,
        store_descriptor_ns=10,  # [V] writes: 128 B runs at 6.6 B/ns an engine. [fit]
        short_write_ns=79,  # [V] stride-2 stores of 4 B; [N] 4 B semaphore writes take 90 ns
        # [fit] adds in tiles of 128 x 1 take 0.94 us each, of 128 x 2 0.34 us: 8 B is long enough.
        write_granule=8,
        packet_bytes=4096,  # [CC]
        transpose_factor=0.58,  # [V] 114.6 against 198.2 GB/s
        trigger_ns=81,  # [N]
        static_trigger_ns=81,  # as others: these descriptors are in HBM anyway
        static_start_ns=279,
        software_ns=1000,  # no source: as `indirect_ns`
        spill_trigger_ns=81,  # as others
        start_ns=279,  # [N]
        load_latency_ns=600,  # [N]
        store_latency_ns=350,  # [N]
        semaphore_ns=91,  # [N]
        wake_ns=155,  # [N] 151-164
        in_flight=4,  # [fit]
        # [fit] to narrow loads in a loop over nl.sequential_range: 0.60 us each; one takes 1.2 us
        # from its start to its signal. Two is double buffering.
        ordered_in_flight=2,
        # [fit] adds of one element, of which two measurements are published: 1.07 and 1.31 us each,
        # where adds of 128 rows take 0.94 and 0.64. A load takes 81 + 279 + 14 + 600 + 91 ns.
        single_in_flight=1,
        indirect_ns=1000,  # [V] 2267 ns a dependent indexed load, less the latency of a load
    ),
    semaphore_ns=30,  # [N] 27-33
    least_cycles=64,  # [I] MIN_II
    two_input_cycles=2,  # [I][N]
    scan_cycles=2,  # [I]
    select_cycles=3,  # [I] tensor_copy and tensor_copy_predicated
    reciprocal_cycles=8,  # [I]
    # [I] N cycles on Scalar from 64 elements, else 8 N. [K] SiLU and AdamW leave no time for 8 N.
    table_reciprocal_elements=64,
    vector_reciprocals=False,
    bn_aggr_cycles=13 / 3,  # [I]
    accumulator_cycles=64,  # [I][P]
    dynamic_cycles=600,  # [I]
    gpsimd_rsqrt_cycles=4,  # [I]
    wide_stride_bytes=16,  # [A]
    interface_ghz=1.4,  # [A]
    bf16_pairs=True,  # [I]
    performance_mode=False,  # [A]
    shared_port=True,  # [A]
    table_load_ns=368,  # [P] profile of the exp kernel
    before_ns=10_900,  # [N]
    after_ns=4_700,  # [N]
    # [P] Tutorials for this generation load less by loading outside of loops. (HBM counters of some
    # of [K] say that the compiler did that, too; of others, that it did not.)
    kept_operand_bytes=0,
    # [U] 128 iterations of 3 elements become one. [fit] to attention in steps of 128 columns. As
    # many fp32 fit a PSUM bank.
    joined_elements=512,
)

V3 = Timing(
    # [C][N3] tensor_tensor fp32: 152 + N cycles at 0.96 GHz. Issue: [P] about 100 cycles.
    vector=EngineTiming(ghz=0.96, issue_cycles=100, latency_cycles=152),
    # [C] Copies from PSUM of 128 and of 512 elements take 157 ns beyond these. Issue: no source, as
    # v2.
    scalar=EngineTiming(ghz=1.2, issue_cycles=60, latency_cycles=188),
    # [C] exp of 512 elements: 143 ns beyond these between two, 259 ns until the result.
    activation=EngineTiming(ghz=1.2, issue_cycles=172, latency_cycles=311),
    gpsimd=EngineTiming(ghz=1.2, issue_cycles=150, latency_cycles=238),  # [A]; the rest as v2
    tensor=TensorTiming(
        ghz=2.4,  # [A]
        pass_ns=2,  # [C] 215 ns for 512 columns, 55 for 128
        latency_ns=163,  # [C] 379 ns for 512 columns
        fp32_passes=4,  # [C] two passes at half rate
        transpose_passes=4,  # [fit] to attention in fp32
        min_columns=64,  # [I]
        tflops=79,  # [A]
    ),
    dma=DmaTiming(
        engines=16,  # [A] 128 of a device of eight cores
        # [A] 2.9 TB/s of four banks; the page on logical NeuronCores: two cores share each.
        hbm_rate=725,
        load_rate=23.1,  # decoded trn2 traces
        store_rate=22.5,  # decoded trn2 traces
        load_descriptor_ns=10,  # [BW] 2 KiB runs take 97 ns
        store_descriptor_ns=10,  # no source: as loads
        short_write_ns=79,  # no source: as v2
        write_granule=8,  # no source: as v2
        packet_bytes=4096,  # [CC]
        transpose_factor=0.9,  # [A]
        # Hardware writes the descriptors while the engine waits: [DGE] about 600 ns, [C] 517-620.
        trigger_ns=560,
        # No source: a start takes what it does on v2, and the transfer begins as late as the other.
        static_trigger_ns=81,
        static_start_ns=919,
        software_ns=580,  # [C] GpSimd starts transfers so often
        # [P] Spills and reloads have queues of their own, such as qSyncSpillReload0. [fit] to [C]:
        # a product and GELU of 2048 x 4096 x 4096 in bf16, of whose 4864 transfers 3840 load
        # weights again, takes 1554 us: what the bytes take. No source for the time: v2's, whose
        # descriptors are made in advance, too.
        spill_trigger_ns=81,
        start_ns=440,  # [BW] 0.74-1.0 us from the start of the trigger
        load_latency_ns=0,  # within start_ns
        store_latency_ns=240,  # [BW] completion 0.33 us after the data
        semaphore_ns=91,  # no source: as v2
        wake_ns=300,  # [BW]
        in_flight=4,  # no source: as v2
        # [fit] to profiles of a convolution whose rows are loaded in a loop over
        # nl.sequential_range: its DMA engines have no gaps, as with four, and with two a third.
        ordered_in_flight=4,
        # As others: adds of one element take 1.46 us each, less than three starts. Adds of 128 rows
        # take 1.8 us.
        single_in_flight=4,
        indirect_ns=1000,  # as v2
    ),
    semaphore_ns=36,  # [C] 33-38
    least_cycles=64,  # [I] MIN_II
    two_input_cycles=1,  # decoded trn2 traces
    scan_cycles=2,  # no source: as v2
    select_cycles=2,  # no source
    reciprocal_cycles=8,  # [C] rows of 4 and of 8 elements
    table_reciprocal_elements=64,  # [I]
    # [C] RECIPROCAL takes 8 N on Vector; nothing that is published has one on Scalar.
    vector_reciprocals=True,
    bn_aggr_cycles=13 / 3,  # [I]
    accumulator_cycles=64,  # [I]
    dynamic_cycles=600,  # [I]
    gpsimd_rsqrt_cycles=4,  # [I]
    wide_stride_bytes=16,  # as v2
    interface_ghz=1.2,  # no source: Scalar's clock, as on v2
    bf16_pairs=True,  # [I]
    performance_mode=True,  # [A]; [C] for fp32
    shared_port=False,  # [A]
    table_load_ns=1283,  # [C]
    before_ns=10_000,  # total less active time 12.4-12.8 us
    after_ns=2_600,
    # [fit] to [C]: a product and GELU of 1024 x 2048 x 4096 in bf16 takes 288 us; loading each tile
    # where the text does would take 1236 us to start and 480 to move. Three quarters of SBUF.
    kept_operand_bytes=144 * 1024,
    joined_elements=512,  # no source: as v2
)

# With the compiler's option --disable-dge, which students profiled kernels with: descriptors are in
# memory before the kernel runs, as they always are on v2.
V3_STATIC = replace(
    V3,
    dma=replace(V3.dma, trigger_ns=V3.dma.static_trigger_ns, start_ns=V3.dma.static_start_ns),
)

# NeuronCore-v4: clocks of the architecture guide of trn3 ([A], SDK 2.32), everything else as v3. No
# published latency has been compared with it.
V4 = replace(
    V3,
    vector=replace(V3.vector, ghz=1.2),
)
