"""What breaks a documented constraint of NKI 0.7, and a neighbour that keeps it.

Each constraint of `nki_api_nki.json`, "module.name#position", is in one of three tables:

    BROKEN    (target, code that breaks it, code that keeps it, what the message says)
    SHOWN     (target, code with assertions that it holds)
    EXEMPT    why there is nothing to break or to show

Code is run in a kernel. `s`, `p`, `h` and `sh` make a tile in SBUF, in PSUM, in HBM and in shared
HBM, filled with ones; `z` one of zeros in SBUF, `q` one in PSUM that nothing has written. `v(t)`
are the values of a tensor; `refused(call, text)` and `warns(text)` are checks. With the target
HOST, code is run outside of a kernel, for trn2; with CORES, on the two cores of trn2;
with OLD, on one of NKI 0.6.
"""

from __future__ import annotations

from nkibook.facts import documented

# fmt: off

TRN1, TRN2, TRN3, HOST, CORES = "trn1", "trn2", "trn3", "host", "cores"
OLD = "NKI 0.6"

DOCUMENTED: dict[str, str] = {
    f"{module.removeprefix('nki.')}.{name}#{at}": sentence
    for module, names in documented("nki").items()
    for name, entry in names.items()
    for at, sentence in enumerate(entry.get("constraints") or ())
}

BROKEN: dict[str, tuple[str, str, str, str]] = {
    "isa.dma_copy#0": (TRN2, "nisa.dma_copy(s(8, 4), p(8, 4))", "nisa.dma_copy(s(8, 4), h(8, 4))",
        "PSUM"),
    "isa.dma_copy#1": (TRN2, "nisa.dma_copy(s(8, 4), h(8, 5))", "nisa.dma_copy(s(8, 4), h(8, 4))",
        "element"),
    "isa.dma_copy#2": (TRN2,
        "nisa.dma_copy(s(8, 4, nl.bfloat16), h(8, 4), dge_mode=nisa.dge_mode.hwdge)",
        "nisa.dma_copy(s(8, 4, nl.bfloat16), h(8, 4))", "hwdge"),
    "isa.dma_copy#6": (TRN2, "nisa.dma_copy(s(8, 4), h(8, 4), priority=1)",
        "nisa.dma_copy(s(8, 4), h(8, 4))", "priority"),
    "isa.dma_copy#7": (TRN1, "nisa.dma_copy(s(8, 4), h(8, 4), dge_mode=nisa.dge_mode.hwdge)",
        "nisa.dma_copy(s(8, 4), h(8, 4), dge_mode=nisa.dge_mode.swdge)", "hwdge"),
    "isa.tensor_copy#0": (TRN2, "nisa.tensor_copy(s(8, 4), s(8, 5))",
        "nisa.tensor_copy(s(8, 4), s(8, 4))", "as many elements in each"),
    "isa.tensor_copy#1": (TRN2, "nisa.tensor_copy(s(8, 4), p(8, 4), engine=nisa.engine.gpsimd)",
        "nisa.tensor_copy(s(8, 4), p(8, 4), engine=nisa.engine.vector)", "PSUM"),
    "isa.tensor_copy#2": (TRN1, "nisa.tensor_copy(s(8, 4), s(8, 4), engine=nisa.engine.scalar)",
        "nisa.tensor_copy(s(8, 4), s(8, 4), engine=nisa.engine.vector)", "[Ss]calar"),
    "isa.memset#0": (TRN2, "nisa.memset(s(8, 4, nl.int32), 1.5)",
        "nisa.memset(s(8, 4, nl.int32), 1)", "the type of the tensor"),
    "isa.tensor_copy_predicated#0": (TRN2, "nisa.tensor_copy_predicated(s(8, 4), s(8, 4), s(8, 4))",
        "nisa.tensor_copy_predicated(s(8, 4), s(8, 4), s(8, 4, nl.uint8))", "predicate"),
    "isa.tensor_copy_predicated#1": (TRN2,
        "nisa.tensor_copy_predicated(s(8, 4), s(8, 4, nl.bfloat16), s(8, 4, nl.uint8))",
        "nisa.tensor_copy_predicated(s(8, 4), s(8, 4), s(8, 4, nl.uint8))", "dtype"),
    "isa.nc_matmul#0": (TRN2, "nisa.nc_matmul(s(8, 8), s(8, 8), s(8, 8))",
        "nisa.nc_matmul(q(8, 8), s(8, 8), s(8, 8))", "PSUM"),
    "isa.nc_matmul#1": (TRN2, "nisa.nc_matmul(q(8, 8), s(8, 8), s(16, 8))",
        "nisa.nc_matmul(q(8, 8), s(16, 8), s(16, 8))", "contraction on the partitions"),
    "isa.nc_matmul#2": (TRN2, "nisa.nc_matmul(q(8, 513), s(8, 8), s(8, 513))",
        "nisa.nc_matmul(q(8, 512), s(8, 8), s(8, 512))", "one bank"),
    "isa.nc_matmul#3": (TRN2, "nisa.nc_matmul(q(8, 8, nl.bfloat16), s(8, 8), s(8, 8))",
        "nisa.nc_matmul(q(8, 8), s(8, 8), s(8, 8))", "float32"),
    "isa.nc_matmul#4": (TRN2, "nisa.nc_matmul(q(8, 8), s(8, 8), s(8, 8, nl.bfloat16))",
        "nisa.nc_matmul(q(8, 8), s(8, 8, nl.bfloat16), s(8, 8, nl.bfloat16))", "float32"),
    "isa.nc_matmul#5": (TRN2, "nisa.nc_matmul(q(8, 8), s(8, 8), s(8, 8), accumulate=True)",
        "nisa.nc_matmul(q(8, 8), s(8, 8), s(8, 8), accumulate=False)", "nothing wrote"),
    "isa.nc_matmul_mx#0": (TRN3,
        "nisa.nc_matmul_mx(q(32, 32), *2 * [s(32, 32)], *2 * [s(32, 32, nl.uint8)])",
        "nisa.nc_matmul_mx(q(32, 32), *2 * [z(32, 32, nl.float8_e5m2_x4)], *2 * [s(32, 32, "
        "nl.uint8)])", "stationary is one of"),
    "isa.nc_transpose#1": (TRN2,
        "nisa.nc_transpose(s(8, 8, nl.bfloat16), s(8, 8), engine=nisa.engine.vector)",
        "nisa.nc_transpose(s(8, 8), s(8, 8), engine=nisa.engine.vector)", "dtype"),
    "isa.nc_transpose#0": (TRN2,
        "nisa.nc_transpose(s(64, 64), s(64, 64), engine=nisa.engine.vector)",
        "nisa.nc_transpose(s(32, 32), s(32, 32), engine=nisa.engine.vector)", "32"),
    "isa.dma_transpose#1": (TRN2, "nisa.dma_transpose(s(4, 16), h(16, 4, nl.bfloat16))",
        "nisa.dma_transpose(s(4, 16), h(16, 4))", "dtype"),
    "isa.tensor_tensor#0": (TRN2, "nisa.tensor_tensor(s(8, 4), p(8, 4), p(8, 4), nl.add)",
        "nisa.tensor_tensor(s(8, 4), p(8, 4), s(8, 4), nl.add)", "PSUM"),
    "isa.tensor_tensor#2": (TRN2, "nisa.tensor_tensor(s(8, 4), p(8, 4), s(8, 4), nl.power)",
        "nisa.tensor_tensor(s(8, 4), s(8, 4), s(8, 4), nl.power)", "PSUM"),
    "isa.tensor_scalar#0": (TRN2, "nisa.tensor_scalar(s(8, 4), s(8, 4), nl.add, s(8, 2))",
        "nisa.tensor_scalar(s(8, 4), s(8, 4), nl.add, s(8, 1))", "operand0"),
    "isa.tensor_scalar#1": (TRN2,
        "nisa.tensor_scalar(s(8, 4, nl.int32), s(8, 4, nl.int32), nl.add, 1.0, "
        "op1=nl.bitwise_and, operand1=1)",
        "nisa.tensor_scalar(s(8, 4, nl.int32), s(8, 4, nl.int32), nl.bitwise_or, 1, "
        "op1=nl.bitwise_and, operand1=1)", "both are arithmetic"),
    "isa.tensor_scalar#3": (TRN2,
        "nisa.tensor_scalar(s(8, 4), s(8, 4), nl.add, 1.0, engine=nisa.engine.gpsimd)",
        "nisa.tensor_scalar(s(8, 4), s(8, 4), nl.add, 1.0)", "rsqrt"),
    "isa.tensor_reduce#0": (TRN2, "nisa.tensor_reduce(s(8, 2), nl.add, s(8, 4, 2), axis=1)",
        "nisa.tensor_reduce(s(8, 4), nl.add, s(8, 4, 2), axis=2)", "axis"),
    "isa.tensor_partition_reduce#0": (TRN2,
        "nisa.tensor_partition_reduce(s(1, 4), nl.multiply, s(8, 4))",
        "nisa.tensor_partition_reduce(s(1, 4), nl.add, s(8, 4))", "op"),
    "isa.activation#1": (TRN2,
        "nisa.activation(s(8, 4), nl.exp, s(8, 4), scale=s(8, 1, nl.bfloat16))",
        "nisa.activation(s(8, 4), nl.exp, s(8, 4), scale=s(8, 1))", "scale"),
    "isa.activation#2": (TRN2,
        "nisa.activation(s(8, 4), nl.exp, s(8, 4), reduce_op=nl.maximum, reduce_res=s(8, 1))",
        "nisa.activation(s(8, 4), nl.exp, s(8, 4), reduce_op=nl.add, reduce_res=s(8, 1), "
        "reduce_cmd=nisa.reduce_cmd.reset_reduce)", "reduce_op"),
    "isa.activation#3": (TRN2,
        "nisa.activation(s(8, 4), nl.exp, s(8, 4), reduce_op=nl.add, reduce_res=s(8, 2), "
        "reduce_cmd=nisa.reduce_cmd.reset_reduce)",
        "nisa.activation(s(8, 4), nl.exp, s(8, 4), reduce_op=nl.add, reduce_res=s(8, 1), "
        "reduce_cmd=nisa.reduce_cmd.reset_reduce)", "reduce_res"),
    "isa.iota#0": (TRN2, "nisa.iota(s(8, 4, nl.int32), [[1, 5]], 0)",
        "nisa.iota(s(8, 4, nl.int32), [[1, 4]], 0)", "pattern"),
    "isa.iota#2": (TRN2, "nisa.iota(q(8, 4, nl.int32), [[1, 4]], 0)",
        "nisa.iota(s(8, 4, nl.int32), [[1, 4]], 0)", "SBUF"),
    "isa.bn_stats#0": (TRN2, "nisa.bn_stats(s(8, 6), s(8, 513))",
        "nisa.bn_stats(s(8, 6), s(8, 512))", "512"),
    "isa.bn_stats#1": (TRN2, "nisa.bn_stats(s(8, 5), s(8, 64))", "nisa.bn_stats(s(8, 6), s(8, 64))",
        "6"),
    "isa.bn_aggr#0": (TRN2, "nisa.bn_aggr(s(8, 2), s(8, 7))", "nisa.bn_aggr(s(8, 2), s(8, 6))",
        "3"),
    "isa.bn_aggr#1": (TRN2, "nisa.bn_aggr(s(8, 3), s(8, 6))", "nisa.bn_aggr(s(8, 2), s(8, 6))",
        "2"),
    "isa.tensor_tensor_scan#0": (TRN2,
        "nisa.tensor_tensor_scan(s(8, 4), p(8, 4), p(8, 4), 0.0, nl.multiply, nl.add)",
        "nisa.tensor_tensor_scan(s(8, 4), p(8, 4), s(8, 4), 0.0, nl.multiply, nl.add)", "PSUM"),
    "isa.nc_stream_shuffle#0": (TRN2, "nisa.nc_stream_shuffle(s(32, 4), s(32, 4), [0] * 31)",
        "nisa.nc_stream_shuffle(s(32, 4), s(32, 4), [0] * 32)", "32"),
    "isa.nc_stream_shuffle#1": (TRN2,
        "nisa.nc_stream_shuffle(s(32, 4, nl.bfloat16), s(32, 4), [0] * 32)",
        "nisa.nc_stream_shuffle(s(32, 4), s(32, 4), [0] * 32)", "dtype"),
    "isa.max8#0": (TRN2, "nisa.max8(s(8, 8), s(8, 7))", "nisa.max8(s(8, 8), s(8, 8))", "8"),
    "isa.max8#1": (TRN2, "nisa.max8(s(8, 4), s(8, 16))", "nisa.max8(s(8, 8), s(8, 16))", "8"),
    "isa.scalar_tensor_tensor#1": (TRN2,
        "nisa.scalar_tensor_tensor(s(8, 4), p(8, 4), nl.add, 1.0, nl.add, p(8, 4))",
        "nisa.scalar_tensor_tensor(s(8, 4), p(8, 4), nl.add, 1.0, nl.add, s(8, 4))", "PSUM"),
    "isa.nc_find_index8#0": (TRN2, "nisa.nc_find_index8(s(8, 8, nl.uint32), s(8, 16), s(8, 7))",
        "nisa.nc_find_index8(s(8, 8, nl.uint32), s(8, 16), s(8, 8))", "8"),
    "isa.nc_find_index8#1": (TRN2, "nisa.nc_find_index8(s(8, 8), s(8, 16), s(8, 8))",
        "nisa.nc_find_index8(s(8, 8, nl.uint32), s(8, 16), s(8, 8))", "uint"),
    "isa.nc_n_gather#1": (TRN2, "nisa.nc_n_gather(s(8, 4), s(8, 16), s(8, 4, nl.int32))",
        "nisa.nc_n_gather(s(8, 4), s(8, 16), s(8, 4, nl.uint32))", "uint32"),
    "isa.rng#0": (TRN2, "nisa.rng(s(8, 4))", "nisa.rng(s(8, 4, nl.uint32))", "integer"),
    "isa.core_barrier#0": (CORES, "nisa.core_barrier(sh(8, 4), (0, 2))",
        "nisa.core_barrier(nl.ndarray((8, 4), nl.float32, buffer=nl.shared_hbm), (0, 1))",
        "both cores wait"),
    "isa.dma_compute#0": (TRN2,
        "nisa.dma_compute(s(8, 4), [h(8, 4), h(8, 4)], [1.0, 1.0], nl.multiply)",
        "nisa.dma_compute(s(8, 4), [h(8, 4), h(8, 4)], [1.0, 1.0], nl.add)", "add"),
}
