"""The tables of the cheat sheet: numbers from `nkisim.machine`, idioms that a test runs."""

from __future__ import annotations

from collections.abc import Callable

from nkisim.machine import GENERATIONS, Machine

KIB = 1024
Row = tuple[str, Callable[[Machine], object]]

MEMORIES: list[Row] = [
    ("core", lambda m: m.name),
    ("SBUF", lambda m: f"{m.sbuf_bytes * m.partitions >> 20} MiB"),
    ("one partition of SBUF", lambda m: f"{m.sbuf_bytes // KIB} KiB"),
    ("usable by kernels", lambda m: f"{m.sbuf_usable_bytes:,} B{_inferred(m)}"),
    ("one partition of PSUM", lambda m: f"{m.psum_bytes // KIB} KiB"),
    ("one bank of PSUM", lambda m: f"{m.psum_bank_bytes // KIB} KiB, 512 float32"),
    ("HBM of a chip", lambda m: f"{m.hbm_bytes >> 30} GiB"),
    ("cores in a launch", lambda m: m.abilities.cores),
    ("`nc_matmul`: K, M, N", lambda m: _products(m)),
]

ENGINES: list[Row] = [
    ("Tensor", lambda m: f"{m.timing.tensor.ghz} GHz, {m.timing.tensor.tflops:g} TFLOP/s"),
    ("Vector", lambda m: f"{m.timing.vector.ghz} GHz, {m.timing.vector.issue_cycles:g} cycles"),
    ("Scalar", lambda m: f"{m.timing.scalar.ghz} GHz, {m.timing.activation.issue_cycles:g} cycles"),
    (
        "GpSimd, at an assumed rate",
        lambda m: f"{m.timing.gpsimd.ghz} GHz, {m.timing.gpsimd.issue_cycles:g} cycles",
    ),
]

COSTS: list[Row] = [
    ("load", lambda m: f"{m.timing.dma.engines * m.timing.dma.load_rate:.0f} GB/s"),
    (
        "store",
        lambda m: f"{m.timing.dma.engines * m.timing.dma.store_rate:.0f} GB/s",
    ),
    ("start of a transfer", lambda m: f"{m.timing.dma.trigger_ns:g} ns"),
    ("until it arrives", lambda m: f"{_until_loaded(m):.2g} µs"),
    ("a segment", lambda m: f"{m.timing.dma.load_descriptor_ns:g} ns"),
    ("segment at half bandwidth", lambda m: f"{_half_rate(m):.0f} B"),
    ("a wait for an engine", lambda m: f"{m.timing.semaphore_ns:g} ns"),
    (
        "two float32 tiles",
        lambda m: f"{m.timing.two_input_cycles:g} cycle{'s' * (m.timing.two_input_cycles > 1)}",
    ),
    ("product, bfloat16", lambda m: f"{_product_ns(m):.0f} ns"),
    ("in float32", lambda m: f"{m.timing.tensor.fp32_passes} times"),
    ("a function table", lambda m: f"{m.timing.table_load_ns / 1000:.2f} µs"),
    ("launch", lambda m: f"{(m.timing.before_ns + m.timing.after_ns) / 1000:.1f} µs"),
]


def table(rows: list[Row]) -> str:
    """A Markdown table: a row for each figure, a column for each generation of NeuronCores."""
    lines = [
        "| | " + " | ".join(m.instances.lower() for m in GENERATIONS) + " |",
        "|---" * (len(GENERATIONS) + 1) + "|",
    ]
    for name, value in rows:
        lines.append(f"| {name} | " + " | ".join(str(value(m)) for m in GENERATIONS) + " |")
    return "\n".join(lines)


def _inferred(m: Machine) -> str:
    """AWS documents the reserved bytes of NeuronCore-v2 only; see `Machine.sbuf_usable_bytes`."""
    return "" if m.version == 2 else ", inferred"


def _products(m: Machine) -> str:
    return f"{m.partitions}, {m.gemm_stationary_fmax}, {m.gemm_moving_fmax}"


def _until_loaded(m: Machine) -> float:
    dma = m.timing.dma
    return (dma.trigger_ns + dma.start_ns + dma.load_latency_ns + dma.semaphore_ns) / 1000


def _half_rate(m: Machine) -> float:
    """Bytes that take as long as the time each segment adds."""
    return m.timing.dma.load_descriptor_ns * m.timing.dma.load_rate


def _product_ns(m: Machine) -> float:
    return m.timing.tensor.pass_ns + m.gemm_moving_fmax / m.timing.tensor.ghz


# What is done, in `neuronxcc.nki` and in `import nki`. x, y are (128, 512) in HBM and w (1, 512),
# all float32; a, b are x, y as tiles. `c` is the result, `col` and `s` are (128, 1) tiles. In
# `import nki` the tiles c, s and t (128, 128), and p in PSUM, are declared before.
IDIOMS: list[tuple[str, str, str]] = [
    (
        "declare a tile",
        "c = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)",
        "c = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)",
    ),
    ("load", "c = nl.load(x)", "nisa.dma_copy(dst=c, src=x)"),
    ("store", "nl.store(out, value=c)", "nisa.dma_copy(dst=out, src=c)"),
    (
        "two tiles, element by element",
        "c = nl.add(a, b)",
        "nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add)",
    ),
    (
        "a tile, a number, a column: `(a * 2) + col`",
        "c = nisa.tensor_scalar(a, nl.multiply, 2.0, op1=nl.add, operand1=col)",
        "nisa.tensor_scalar(dst=c, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, "
        "operand1=col)",
    ),
    (
        "`(a * col) + b`, in one pass",
        "c = nisa.scalar_tensor_tensor(data=a, op0=nl.multiply, operand0=col, op1=nl.add, "
        "operand1=b)",
        "nisa.scalar_tensor_tensor(dst=c, data=a, op0=nl.multiply, operand0=col, op1=nl.add, "
        "operand1=b)",
    ),
    (
        "`exp(a * 2 + col)`",
        "c = nisa.activation(op=nl.exp, data=a, scale=2.0, bias=col)",
        "nisa.activation(dst=c, op=nl.exp, data=a, scale=2.0, bias=col)",
    ),
    (
        "the same exponential, and its sum along the row",
        "c = nisa.activation_reduce(op=nl.exp, data=a, scale=2.0, bias=col, reduce_op=nl.add, "
        "reduce_res=s)",
        "nisa.activation_reduce(dst=c, op=nl.exp, data=a, scale=2.0, bias=col, reduce_op=nl.add, "
        "reduce_res=s)",
    ),
    (
        "maximum along the row",
        "s = nisa.tensor_reduce(nl.max, a, axis=1, keepdims=True)",
        "nisa.tensor_reduce(dst=s, op=nl.maximum, data=a, axis=1, keepdims=True)",
    ),
    (
        "one row on all partitions",
        "c = nl.load(w).broadcast_to((128, 512))",
        "nisa.dma_copy(dst=c, src=w.ap([[0, 128], [1, 512]]))",
    ),
    (
        "product, sums over partitions: `a.T @ b`",
        "p = nisa.nc_matmul(stationary=a[:, 0:128], moving=b)",
        "nisa.nc_matmul(dst=p, stationary=a[:, 0:128], moving=b)",
    ),
    (
        "accumulate the product in PSUM",
        "p = nl.zeros((128, 512), nl.float32, buffer=nl.psum)\np += nisa.nc_matmul(a[:, 0:128], b)",
        "nisa.nc_matmul(dst=p, stationary=a[:, 0:128], moving=b, accumulate=True)",
    ),
    (
        "PSUM to SBUF",
        "c = nl.copy(p)",
        "nisa.tensor_copy(dst=c, src=p)",
    ),
    (
        "transpose, Tensor Engine",
        "t = nisa.nc_transpose(a[:, 0:128])",
        "nisa.nc_transpose(dst=t, data=a[:, 0:128])",
    ),
    (
        "column numbers",
        "c = nisa.iota(nl.arange(128)[:, None] * 0 + nl.arange(512)[None, :], dtype=nl.float32)",
        "nisa.iota(dst=c, pattern=[[1, 512]])",
    ),
    (
        "a last tile with fewer rows",
        "rows = i * 128 + nl.arange(128)[:, None]\n"
        "nl.load(x[rows, nl.arange(512)[None, :]], mask=rows < n)",
        "nisa.dma_copy(dst=c[0 : n - i * 128], src=x[i * 128 : n])",
    ),
    (
        "an unrolled loop; a loop with independent iterations",
        "for i in nl.static_range(4): ...\nfor i in nl.affine_range(4): ...",
        "for i in range(4): ...\nfor i in nl.affine_range(4): ...",
    ),
]


def idioms() -> str:
    """The idioms as an HTML table, with both dialects side by side."""
    from html import escape

    def code(text: str) -> str:
        lines = (escape(line).replace("(", "(<wbr>") for line in text.split("\n"))
        return "<br>".join(f"<code>{line}</code>" for line in lines)

    def words(text: str) -> str:
        parts = escape(text).split("`")
        return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))

    rows = "".join(
        f"<tr><td>{words(what)}</td><td>{code(a)}</td><td>{code(b)}</td></tr>"
        for what, a, b in IDIOMS
    )
    head = "<th></th><th><code>neuronxcc.nki</code></th><th><code>import nki</code></th>"
    return f'<table class="idioms"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
