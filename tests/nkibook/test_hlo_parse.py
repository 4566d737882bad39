"""The parser of HLO: what it reads, prints again and refuses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hlo_texts import COMPILED_STYLE, ENCODED, TORCH_STYLE
from hypothesis import given, settings
from hypothesis import strategies as st

from nkibook.hlo import HloParseError, parse_module
from nkibook.hlo.parse import (
    DTYPE_BITS,
    Computation,
    Instruction,
    ParsedModule,
    Shape,
    split_top_level,
    unquote,
)


def test_reads_torch_style_operands_with_shapes():
    entry = parse_module(TORCH_STYLE).entry
    assert [i.opcode for i in entry.instructions] == [
        "parameter", "parameter", "multiply", "custom-call", "multiply", "tuple",
    ]  # fmt: skip
    call = entry["custom-call.3"]
    assert call.operands == ("p1.2", "p0.1")
    assert call.shape == Shape("f32", (256, 1024), "1,0")
    assert (call.dtype, call.layout) == ("f32", "1,0")
    assert call.attributes["custom_call_target"] == '"AwsNeuronCustomNativeKernel"'
    assert entry.root.name == "tuple.6"
    assert [p.name for p in entry.parameters] == ["p0.1", "p1.2"]


def test_reads_every_oddity_of_a_compiled_module():
    parsed = parse_module(COMPILED_STYLE)
    assert parsed.attributes["num_partitions"] == "8"
    assert parsed.attributes["frontend_attributes"] == '{mesh="a, {b}"}'
    names = ["region_0.12", "fused_computation", "main.20_spmd"]
    assert [c.name for c in parsed.computations] == names
    region, fused, entry = parsed.computations
    assert [c.is_entry for c in parsed.computations] == [False, False, True]
    assert region.root.metadata == {
        "op_name": "jit(step)/sum",
        "source_file": "/somewhere/step.py",
        "source_line": "4",
    }
    assert fused["param_0"].layout == "1,0:T(8,128)(2,1)S(1)"
    assert entry["param.3"].op_name == "state['w']"
    assert entry["param.4"].shape.elements[1] == Shape("pred", (5,), "0", dynamic=(True,))
    assert entry["constant.5"].literal.split() == [
        "{",
        "{",
        "1,",
        "2",
        "},",
        "{",
        "3,",
        "4",
        "}",
        "}",
    ]
    assert entry["fusion"].called_computations == ("fused_computation",)
    assert entry["all-reduce.7"].called_computations == ("region_0.12",)
    assert entry.root.operands == ("all-gather-done.1", "all-reduce.7")
    assert entry.operand_shapes(entry["reduce.2"]) == (
        Shape("bf16", (128, 128), "1,0"),
        Shape("bf16"),
    )


@pytest.mark.parametrize("text", [TORCH_STYLE, COMPILED_STYLE])
def test_xla_reads_the_parsed_module_back_as_the_same(text):
    """XLA's own parser is the judge: it gets the original and what we print of the parsed one."""
    jaxlib = pytest.importorskip("jaxlib._jax")
    # What this jaxlib prints or another prints, and this one does not read.
    original = text.replace(" api_version=API_VERSION_UNSPECIFIED,", "")
    if "FileNames" in text:
        original = text[: text.index("FileNames")] + text[text.index("%region") :]
    options = jaxlib.HloPrintOptions.canonical()

    def through_xla(hlo: str) -> str:
        return jaxlib.hlo_module_from_text(hlo).to_string(options)

    assert through_xla(str(parse_module(original))) == through_xla(original)


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.\-]{0,10}", fullmatch=True)
quoted = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=20)
arrays = st.builds(
    Shape,
    st.sampled_from(sorted(DTYPE_BITS.keys() - {"token", "opaque"})),
    st.lists(st.integers(0, 4096), max_size=4).map(tuple),
    st.sampled_from([None, "0", "1,0", "1,0:T(8,128)(2,1)", "0:S(5)"]),
)
shapes = st.recursive(
    arrays,
    lambda inner: st.lists(inner, max_size=3).map(lambda e: Shape("tuple", elements=tuple(e))),
    max_leaves=6,
)
values = st.one_of(
    names,
    quoted.map(lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'),
    st.sampled_from(["{0,1}", "{{0,1},{2,3}}", "[2,4]<=[4,2]T(1,0)", "{[0:2], [1:3:2]}", "b01f->"]),
)


@st.composite
def computations(draw, name: str, is_entry: bool) -> Computation:
    count = draw(st.integers(1, 6))
    found: list[Instruction] = []
    unique = draw(st.lists(names, min_size=count, max_size=count, unique=True))
    for position, instruction in enumerate(unique):
        attributes = draw(st.dictionaries(st.sampled_from(["a", "dims", "x.y"]), values))
        kind = draw(st.sampled_from(["parameter", "constant", "add", "all-gather-start"]))
        before = [i.name for i in found]
        literal, operands = "", ()
        if kind == "parameter":
            literal = str(draw(st.integers(0, 99)))
        elif kind == "constant":
            literal = draw(st.sampled_from(["1", "-1.5e-07", "nan", "{ { 1, 2 }, { 3, 4 } }"]))
        elif before:
            operands = tuple(draw(st.lists(st.sampled_from(before), max_size=3)))
        root = position == count - 1
        shape = draw(shapes)
        found.append(Instruction(instruction, kind, shape, operands, attributes, literal, root))
    return Computation(name, tuple(found), is_entry)


@st.composite
def modules(draw) -> ParsedModule:
    unique = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    entry = draw(st.integers(0, len(unique) - 1))
    parts = tuple(draw(computations(name, i == entry)) for i, name in enumerate(unique))
    return ParsedModule(draw(names), parts, draw(st.dictionaries(st.just("k"), values)))


@settings(deadline=None)
@given(modules())
def test_parsing_what_was_printed_gives_the_same_module(parsed):
    assert parse_module(str(parsed)) == parsed


@given(quoted)
def test_unquote_undoes_quoting(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
    assert unquote(f'"{escaped}"') == text


def test_unquote_reads_bytes_of_utf8():
    assert unquote('"\\303\\251t\\xc3\\xa9\\n"') == "été\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('a="x,y", b={1,2}, c=[3,4]', ['a="x,y"', "b={1,2}", "c=[3,4]"]),
        (r'"a\",b",c', [r'"a\",b"', "c"]),
        ("", []),
    ],
)
def test_split_top_level(text, parts):
    assert split_top_level(text) == parts


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("hello", "line 1: expected 'HloModule'"),
        (TORCH_STYLE.replace("ENTRY ", ""), "exactly one ENTRY"),
        (TORCH_STYLE.replace("ROOT ", ""), "exactly one ROOT"),
        (TORCH_STYLE.replace(" %multiply.4,", " %multiply.99,"), "operand 'multiply.99'"),
        (TORCH_STYLE.replace("parameter(1)", "parameter(x)"), "line 4: expected a parameter num"),
        (TORCH_STYLE.replace("f32[256,1024]{1,0} custom-call(", "f32[?,2] custom-call("), "'?'"),
        (TORCH_STYLE.replace("tuple(f32", "tuple(f32{"), "line 9: expected brackets to match"),
        (TORCH_STYLE.replace(f'{ENCODED}"', ENCODED), "line 7: expected a closing quote"),
        (TORCH_STYLE.rstrip()[:-1], "an instruction or '}'"),
        (TORCH_STYLE.replace("%p0.1 = ", "%p1.2 = "), "the name 'p1.2' only once"),
    ],
)
def test_text_that_is_not_hlo_is_refused_with_a_place(broken, message):
    assert broken != TORCH_STYLE
    with pytest.raises(HloParseError) as caught:
        parse_module(broken)
    assert message in str(caught.value)


NUMPY_DTYPES = {
    "pred": np.bool_, "s8": np.int8, "u16": np.uint16, "s32": np.int32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("dims", [(), (7,), (3, 5), (128, 0)])
def test_nbytes_is_numpys(dtype, dims):
    assert Shape(dtype, dims).nbytes == np.zeros(dims, NUMPY_DTYPES[dtype]).nbytes


def test_nbytes_of_tuples_packed_types_and_unknown_ones():
    inner = Shape("tuple", elements=(Shape("u8", (5,)), Shape("token")))
    assert Shape("tuple", elements=(Shape("f32", (2, 3)), inner)).nbytes == 29
    assert Shape("s4", (3,)).nbytes == 2
    with pytest.raises(KeyError, match="f9"):
        _ = Shape("f9", (2,)).nbytes
