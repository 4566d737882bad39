"""The table of opcodes holds all that tells an opcode from another one."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import re
from pathlib import Path

import numpy as np
import pytest

import nkisim
from nkisim.ir.instruction import OPCODES, Engine, OpKind, TransferKind, opcode
from nkisim.machine import GEN3
from nkisim.numerics.ops.cycles import one_cycle

ROOT = Path(nkisim.__file__).parent

# The families, the front ends, the report's advice, and the tables of generations, some of which
# have instructions of their own.
NAMING = ("frontends/", "numerics/ops/", "machine/")

# Names elsewhere, and why they are there.
EXCEPTIONS = {
    ("compiler/moves.py", "tensor_copy"): "the label of a copy that the compiler adds",
    ("compiler/moves.py", "partition_broadcast"): "the label of a broadcast that it adds",
    ("compiler/build.py", "reciprocal"): "the label of a reciprocal that it makes of a division",
    ("trace/tracer.py", "barrier"): "emitted for both dialects",
    ("numerics/alu.py", "reciprocal"): "the operator, not the opcode",
    ("numerics/ranges.py", "reciprocal"): "the operator, not the opcode",
}


def test_no_other_module_names_an_opcode():
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(NAMING) or name.endswith("_findings.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in OPCODES:
                found.add((name, node.value))
    assert found == EXCEPTIONS.keys()
    assert len(EXCEPTIONS) < 10


def test_an_opcode_without_a_kind_or_a_cost_is_refused(monkeypatch):
    monkeypatch.setattr("nkisim.ir.instruction.OPCODES", {})

    def enter(engine, kind, cost, **facts):
        opcode("new", engine, kind, cost=cost, **facts)(lambda instr: None)

    with pytest.raises(TypeError, match="cost"):
        opcode("new", Engine.VECTOR, OpKind.ELEMENTWISE)
    with pytest.raises(ValueError, match="cost"):
        enter(Engine.VECTOR, OpKind.ELEMENTWISE, None)
    with pytest.raises(ValueError, match="cost"):
        enter(Engine.DMA, OpKind.TRANSFER, one_cycle)
    with pytest.raises(ValueError, match="kind"):
        enter(Engine.DMA, OpKind.ELEMENTWISE, TransferKind.SUM)
    with pytest.raises(ValueError, match="kind"):
        enter(Engine.VECTOR, None, one_cycle)
    with pytest.raises(ValueError, match="operations"):
        enter(Engine.TENSOR, OpKind.PRODUCT, one_cycle)
    enter(Engine.TENSOR, OpKind.PRODUCT, one_cycle, flops=lambda instr, ins, outs: 0)


def test_settings_are_those_of_the_opcode():
    for made in (
        OPCODES["memset"].settings.of({"value": 0.0}),
        OPCODES["nc_matmul"].settings.of({"fresh": np.arange(4) < 2}),
    ):
        assert made.of(made.given) is made  # equal ones are one object
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, next(iter(made.given)), 1)
    fill = OPCODES["memset"].settings
    given = [0, 0.0, -0.0, False, float("nan"), np.float32(0)]
    assert len({fill.of({"value": x}) for x in [*given, *given]}) == len(given)
    masks = [np.arange(5000) == at for at in (0, 2500, 2500)]
    a, b, c = (OPCODES["nc_matmul"].settings.of({"fresh": mask}) for mask in masks)
    assert a is not b
    assert b is c
    with pytest.raises(TypeError, match="accumulated"):
        OPCODES["nc_matmul"].settings.of({"accumulated": True})
    with pytest.raises(TypeError, match="value"):
        fill.of({})


def test_sums_by_dma_move_all_of_their_sources(monkeypatch):
    """Two sources of 4 MiB in HBM are read, and 4 MiB are written: three times what one copy has
    on one side, in twice the time of a copy, which reads one."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")

    @nki.jit
    def added(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(out, (a, b), reduce_op=nl.add)
        return out

    @nki.jit
    def copied(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    x = nkisim.TensorSpec((1024, 1024), np.dtype(np.float32))
    both, one = nkisim.profile(added, x, x), nkisim.profile(copied, x)
    assert one.hbm_bytes == 2 * 4 * 2**20
    assert both.hbm_bytes == 3 * 4 * 2**20
    assert both.body_us == pytest.approx(2 * one.body_us, rel=0.1)
    # AWS: the only mode of dma_compute is that of descriptors made before the kernel runs.
    (task,) = [t for t in both._core.work.tasks if t.transfer is not None]
    assert task.costs[0][1].busy == GEN3.timing.dma.static_trigger_ns


def test_products_of_microscaled_operands_count_their_operations(monkeypatch):
    """Contraction of 128 partitions of 4 packed elements each: 2 x 512 x 128 x 256 operations."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @nki.jit
    def product(a, b, scales_a, scales_b):
        def loaded(x, dtype, shape):
            tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x)
            return tile

        left = loaded(a, nl.float8_e4m3fn_x4, (128, 128))
        right = loaded(b, nl.float8_e4m3fn_x4, (128, 256))
        left_scale = loaded(scales_a, nl.uint8, (128, 128))
        right_scale = loaded(scales_b, nl.uint8, (128, 256))
        sums = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(sums, left, right, left_scale, right_scale)
        result = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(result, sums)
        out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=result)
        return out

    given = [
        nkisim.TensorSpec((128, n), np.dtype(t)) for t in (np.uint32, np.uint8) for n in (128, 256)
    ]
    timeline = nkisim.profile(product, *given)
    copied = 128 * 256
    assert timeline.flops - copied == 2 * 512 * 128 * 256


@functools.cache
def definitions():
    """(file, node) for all modules, classes and functions of nkisim."""
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
    ]


def test_a_class_name_means_one_thing():
    """Names that AWS gives in both dialects aside, which are lower-case."""
    places = collections.defaultdict(set)
    for path, node in definitions():
        if isinstance(node, ast.ClassDef) and not node.name.islower():
            places[node.name].add(path)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_docstrings_name_their_subject():
    """A docstring that begins with a pronoun is a riddle to readers who do not see the body."""
    pronoun = re.compile(r"(Those|They|It|Its)\b|(What|How|Where|Whether) (it|its|they|those)\b")
    found = [
        (path, ast.get_docstring(node))
        for path, node in definitions()
        if pronoun.match(ast.get_docstring(node) or "")
    ]
    assert found == []
