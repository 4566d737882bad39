"""nkibook.hlo without a framework: what it finds in a module, and how it shows."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from bs4 import BeautifulSoup
from hlo_texts import COMPILED_STYLE, CONFIG, ENCODED, TORCH_STYLE

from nkibook.hlo import HloModule, HloParseError, HloUnavailable, parse_module
from nkibook.hlo.calls import decode_backend_config
from nkibook.hlo.parse import Shape
from nkibook.hlo.shorten import without_source


def module(text: str, **keywords) -> HloModule:
    return HloModule(text, origin="a test", **keywords)


# Custom calls and collectives.


def test_custom_call_with_its_decoded_config():
    (call,) = module(TORCH_STYLE).custom_calls
    assert call.target == "AwsNeuronCustomNativeKernel"
    assert call.config == CONFIG
    assert call.kernel_name == "nki_tensor_add"
    assert [s.dims for s in call.operand_shapes] == [(256, 1024)] * 2
    assert call.result_shapes == (Shape("f32", (256, 1024), "1,0"),)
    assert (call.name, call.computation) == ("custom-call.3", "IrToHlo.7")
    assert call.summary().splitlines() == [
        "nki_tensor_add",
        "  operands f32[256,1024], f32[256,1024]",
        "  results  f32[256,1024]",
    ]


@pytest.mark.parametrize(
    ("printed", "meaning"),
    [
        (f'"{ENCODED}"', CONFIG),
        (f'{{config = "{ENCODED}"}}', CONFIG),
        (f'{{config = "{ENCODED}", n = 3 : i64}}', {"config": CONFIG, "n": 3}),
        (
            "{uplo = 76 : ui8, eps = 1.0e-06 : f32, on = true}",
            {"uplo": 76, "eps": 1e-6, "on": True},
        ),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"known_trip_count":{"n":"3"}}', {"known_trip_count": {"n": "3"}}),
        ('"abcd"', "abcd"),  # base64 of no JSON
        ('"1234"', "1234"),
        ('"{not json"', "{not json"),
        ('{name = "lapack", mode = #mode<x>}', {"name": "lapack", "mode": "#mode<x>"}),
        ("", None),
    ],
)
def test_decode_backend_config(printed, meaning):
    assert decode_backend_config(printed) == meaning


def test_collectives_count_a_pair_once_and_know_their_bytes():
    gather, reduce = module(COMPILED_STYLE).collectives
    assert (gather.opcode, gather.group_size) == ("all-gather", 8)
    assert (gather.operand_bytes, gather.result_bytes) == (16 * 128 * 2, 128 * 128 * 2)
    assert gather.bytes_moved == 7 * 16 * 128 * 2  # each device passes on 7 of 8 shards
    assert (reduce.opcode, reduce.group_size) == ("all-reduce", 4)
    assert reduce.bytes_moved == 3  # 2 bytes, twice, 3/4 of them
    assert "4 devices" in str(reduce)


@pytest.mark.parametrize(
    ("line", "size", "moved"),
    [
        ("f32[4] all-reduce(p), replica_groups={}, to_apply=r", 6, 2 * 16 * 5 / 6),
        ("f32[2] reduce-scatter(p), replica_groups={{0,1}}, dimensions={0}", 2, 8),
        ("f32[4] all-to-all(p), replica_groups={{0,1,2,3}}, dimensions={0}", 4, 12),
        ("f32[4] collective-permute(p), source_target_pairs={{0,1},{1,2},{2,0}}", 3, 16),
        ("(f32[4], f32[4], u32[]) collective-permute-start(p), source_target_pairs={{0,1}}", 2, 16),
        ("f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=r", 2, 16),
        ("f32[4] all-gather(p), replica_groups={{0},{1}}, dimensions={0}", 1, 0),
    ],
)
def test_bytes_each_device_sends(line, size, moved):
    text = (
        "HloModule m, replica_count=2, num_partitions=3\n"
        "r { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT a = f32[] add(x, y)\n}\n"
        f"ENTRY e {{\n p = f32[4] parameter(0)\n ROOT c = {line}\n}}\n"
    )
    (found,) = module(text).collectives
    assert found.group_size == size
    assert found.bytes_moved == int(np.ceil(moved))


def test_count_looks_into_every_computation():
    compiled = module(COMPILED_STYLE)
    assert compiled.count("tanh") == 1
    assert compiled.count("parameter") == 5
    assert compiled.count("custom-call") == 0


# Short text.


def test_short_text_of_the_tensor_add():
    assert (
        module(TORCH_STYLE, labels={0: "b", 1: "a"}).text(short=True)
        == f"""\
HloModule IrToHlo

ENTRY IrToHlo (p0: f32[256,1024], p1: f32[256,1024]) -> (f32[256,1024]) {{
  p1 = f32[256,1024] parameter(1) /*a*/
  p0 = f32[256,1024] parameter(0) /*b*/
  multiply.1 = f32[256,1024] multiply(p1, p0)
  custom-call = f32[256,1024] custom-call(p1, p0), \
custom_call_target="AwsNeuronCustomNativeKernel", backend_config="{ENCODED[:12]}…"
  multiply.2 = f32[256,1024] multiply(multiply.1, custom-call)
  ROOT tuple = (f32[256,1024]) tuple(multiply.2)
}}
"""
    )


def test_short_text_keeps_the_graph_and_drops_the_rest():
    short = module(COMPILED_STYLE).text(short=True)
    for gone in ("metadata", "/somewhere", "channel_id", "{1,0", "partitions", "%"):
        assert gone not in short
    for kept in ("to_apply=region_0", "calls=fused_computation", "dimensions={0,1}", "[1,8]<=[8]"):
        assert kept in short
    full, again = parse_module(COMPILED_STYLE), parse_module(short)
    for before, after in zip(full.computations, again.computations, strict=True):
        number = {i.name: n for n, i in enumerate(before.instructions)}
        position = {i.name: n for n, i in enumerate(after.instructions)}
        for old, new in zip(before.instructions, after.instructions, strict=True):
            assert old.opcode == new.opcode
            assert [number[o] for o in old.operands] == [position[o] for o in new.operands]


def test_short_text_does_not_depend_on_ids():
    other = TORCH_STYLE
    for old, new in [("IrToHlo.7", "IrToHlo.91"), ("multiply.4", "multiply.12"), (".3", ".1007")]:
        other = other.replace(old, new)
    assert other != TORCH_STYLE
    assert module(other).text(short=True) == module(TORCH_STYLE).text(short=True)


def test_full_text_is_untouched_even_when_it_cannot_be_parsed():
    assert str(module(COMPILED_STYLE)) == module(COMPILED_STYLE).text() == COMPILED_STYLE
    strange = module("an HLO dialect of the future")
    assert str(strange) == "an HLO dialect of the future"
    with pytest.raises(HloParseError):
        _ = strange.instructions


def test_without_source_drops_paths_and_keeps_the_rest():
    clean = without_source(COMPILED_STYLE)
    assert "/somewhere" not in clean
    assert "source_line" not in clean
    assert 'metadata={op_name="jit(step)/sum"}' in clean
    assert len(parse_module(clean).computations) == 3


def test_labels_default_to_the_metadata():
    assert module(COMPILED_STYLE).labels == {0: "state['w']"}


def test_forms_that_do_not_exist_say_so():
    hlo = module(TORCH_STYLE)
    assert hlo.before is hlo
    with pytest.raises(HloUnavailable, match="after optimisation"):
        _ = hlo.after
    with pytest.raises(HloUnavailable, match="StableHLO"):
        _ = hlo.stablehlo


# Notebook display.


class Printer:
    def text(self, text: str) -> None:
        self.shown = text


def test_plain_text_is_the_short_text_before_and_a_summary_after():
    printer = Printer()
    module(TORCH_STYLE)._repr_pretty_(printer, False)
    assert printer.shown.startswith("HloModule IrToHlo\n")
    compiled = module(COMPILED_STYLE, stage="after")
    compiled._repr_pretty_(printer, False)
    assert printer.shown == repr(compiled)
    assert printer.shown.splitlines() == [
        "HLO module jit_step, after optimisation",
        "  all-gather-start: all-gather over 8 devices (bf16[16,128]) -> (bf16[128,128]), "
        "28672 bytes sent by each",
        "  all-reduce: all-reduce over 4 devices (bf16[]) -> (bf16[]), 3 bytes sent by each",
    ]


def test_html_highlights_the_custom_call_and_folds_the_rest():
    page = BeautifulSoup(module(TORCH_STYLE, labels={1: "a<b>"})._repr_html_(), "html.parser")
    (line,) = page.select(".nki-call")
    assert "AwsNeuronCustomNativeKernel" in line.get_text()
    assert [d.summary.get_text() for d in page.select("details")] == [
        "backend_config of nki_tensor_add, decoded",
        "full text (source paths left out)",
    ]
    config, full = page.select("details code")
    assert json.loads(config.get_text()) == CONFIG
    assert f'backend_config="{ENCODED}"' in full.get_text()
    assert "/*a<b>*/" in page.select_one("pre").get_text()
    assert page.find("b") is None  # the label is text, not markup
    visible = page.select_one("pre").get_text()
    shown = module(TORCH_STYLE, labels={1: "a<b>"}).text(short=True)
    assert visible == shown


def test_html_marks_collectives_and_hides_source_paths():
    html = module(COMPILED_STYLE)._repr_html_()
    assert "/somewhere" not in html
    page = BeautifulSoup(html, "html.parser")
    assert [line.get_text().split()[0] for line in page.select(".nki-coll")] == [
        "all-gather-start",
        "all-reduce",
    ]


@pytest.mark.parametrize("colour", [":black", ":white", '"black', '"white', "#000", "#fff"])
def test_html_and_graph_follow_the_page_colours(colour):
    hlo = module(TORCH_STYLE)
    assert colour not in hlo._repr_html_()
    assert colour not in hlo.graph()._repr_html_()


PLAIN_ADD = TORCH_STYLE.replace(
    re.search(r"  %custom-call\.3 = .*", TORCH_STYLE)[0],
    "  %multiply.9 = f32[256,1024]{1,0} multiply(f32[256,1024]{1,0} %p1.2, "
    "f32[256,1024]{1,0} %p1.2)\n"
    "  %add.3 = f32[256,1024]{1,0} add(f32[256,1024]{1,0} %p0.1, f32[256,1024]{1,0} %multiply.9)",
).replace("%custom-call.3", "%add.3")


def test_diff_marks_what_only_one_module_has():
    diff = module(PLAIN_ADD).diff(module(TORCH_STYLE), captions=("with +", "with the kernel"))
    signs = {sign: [] for sign in "-+ "}
    for sign, text, _ in diff.lines():
        signs[sign].append(text.split(" = ")[0].strip())
    # multiply.3 of the one is multiply.2 of the other: numbers alone are no difference.
    # Names are the second module's, which has a multiply.2; what it lacks is numbered after them.
    assert signs["-"] == ["multiply.3", "add", "multiply.4"]
    assert signs["+"] == ["custom-call", "multiply.2"]
    assert "multiply.1" in signs[" "]
    page = BeautifulSoup(diff._repr_html_(), "html.parser")
    heads = [head.get_text().strip() for head in page.select(".nki-head")]
    counts, *captions = heads
    assert captions == ["- with +", "+ with the kernel"]
    assert counts == ("Instructions: 7 → 6. Arrays that they compute: 4 → 3, 4.0 MiB → 3.0 MiB.")
    marked = [line.get_text() for line in page.select("pre .nki-line.nki-plus")]
    assert len(marked) == 2
    assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in marked[0]
    assert "+   custom-call = " in repr(diff)


def test_lines_of_a_diff_name_values_of_the_same_listing():
    gated = """HloModule gated
ENTRY %main.1 (p0.1: f32[4,6]) -> f32[4,6] {
  %p0.1 = f32[4,6]{1,0} parameter(0)
  %reshape.2 = f32[24]{0} reshape(f32[4,6]{1,0} %p0.1)
REPLACED  %reshape.7 = f32[3,8]{1,0} reshape(f32[4,6]{1,0} %p0.1)
  %reshape.8 = f32[24]{0} reshape(f32[3,8]{1,0} %reshape.7)
  ROOT %add.9 = f32[24]{0} add(f32[24]{0} %reshape.2, f32[24]{0} %reshape.8)
}
"""
    gate = "  %logistic.3 = f32[24]{0} logistic(f32[24]{0} %reshape.2)\n"
    other = (
        "  %reshape.3 = f32[2,12]{1,0} reshape(f32[24]{0} %reshape.2)\n"
        "  %reshape.4 = f32[6,4]{1,0} reshape(f32[2,12]{1,0} %reshape.3)\n"
    )
    use = "  %multiply.9 = f32[24]{0} multiply(f32[24]{0} %reshape.8, f32[24]{0} %logistic.3)\n"
    old = gated.replace("REPLACED", gate).replace("  ROOT", f"{use}  ROOT")
    new = gated.replace("REPLACED", other)
    diff = module(old).diff(module(new), captions=("a", "b"))
    shapes: dict[str, str] = {}
    for _, text, instruction in diff.lines():
        if instruction is not None:
            name, rest = text.strip().removeprefix("ROOT ").split(" = ")
            assert name not in shapes
            shapes[name] = rest.split()[0]
            if instruction.opcode == "multiply":
                operands = re.search(r"multiply\((.*?), (.*?)\)", rest).groups()
                assert [shapes[each] for each in operands] == ["f32[24]", "f32[24]"]
                assert operands == ("reshape.5", "logistic")
    assert "multiply" in shapes


def test_a_scalar_in_every_place_is_no_computed_array():
    lines = (
        "  %one.6 = f32[] constant(1)\n"
        "  %ones.6 = f32[256,1024]{1,0} broadcast(f32[] %one.6), dimensions={}\n"
        "  %flat.6 = f32[262144]{0} reshape(f32[256,1024]{1,0} %p1.2)\n"
    )
    longer = module(PLAIN_ADD.replace("  %add.3 =", f"{lines}  %add.3 ="))
    assert len(longer.instructions) == len(module(PLAIN_ADD).instructions) + 3
    assert longer.computed == module(PLAIN_ADD).computed


def test_diff_leaves_open_what_the_text_names():
    lines = "\n".join(
        f"  %{op}.{n} = f32[256,1024]{{1,0}} {op}(f32[256,1024]{{1,0}} %p1.2)"
        for n, op in enumerate(["negate"] * 20 + ["exponential"] + ["negate"] * 20, 50)
    )
    longer = PLAIN_ADD.replace("  %add.3 =", f"{lines}\n  %add.3 =")
    diff = module(longer).diff(module(PLAIN_ADD), captions=("a", "b"), focus=["exponential"])
    page = BeautifulSoup(diff._repr_html_(), "html.parser")
    folded = "".join(each.get_text() for each in page.select("details"))
    assert folded.count("negate(") == 40
    assert "exponential(" not in folded
    assert "exponential(" in page.get_text()


def test_diff_of_equal_modules_marks_nothing():
    diff = module(TORCH_STYLE).diff(module(TORCH_STYLE), captions=("a", "b"))
    assert {sign for sign, _, _ in diff.lines()} == {" "}


def test_diff_of_optimised_modules_stores_no_lines():
    after = module(COMPILED_STYLE, stage="after")
    assert repr(after.diff(after, captions=("a", "b"))) == "- a\n+ b"


# Graph.


def test_graph_draws_every_instruction_and_every_use():
    graph = module(TORCH_STYLE, labels={0: "b", 1: "a"}).graph()
    svg = ElementTree.fromstring(graph.svg)
    space = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f"{space}g")) == 6
    uses = 2 + 2 + 2 + 1
    assert len(svg.findall(f"{space}path")) == len(svg.findall(f"{space}polygon")) == uses
    texts = [text.text for text in svg.iter(f"{space}text")]
    for expected in ("a", "b", "custom-call: nki_tensor_add", "result (ROOT)", "custom call"):
        assert expected in texts
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == graph.alt == (
        "dataflow graph of IrToHlo in HLO module IrToHlo, 6 instructions: multiply.1 takes a, b; "
        "custom-call (nki_tensor_add) takes a, b; "
        "multiply.2 takes multiply.1, custom-call (nki_tensor_add); tuple takes multiply.2."
    )  # fmt: skip
    assert repr(graph) == f"Figure: {graph.alt}"


def test_graph_keeps_everything_inside_the_picture():
    for text in (TORCH_STYLE, COMPILED_STYLE):
        svg = ElementTree.fromstring(module(text).graph().svg)
        width, height = float(svg.get("width")), float(svg.get("height"))
        for box in svg.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(box.get(k)) for k in ("x", "y", "width", "height"))
            assert x >= 0
            assert y >= 0
            assert x + w <= width
            assert y + h <= height


def test_graph_of_another_computation_and_of_a_fusion():
    compiled = module(COMPILED_STYLE)
    assert "fusion: tanh" in compiled.graph().svg
    assert "add takes x, y" in compiled.graph("region_0.12").alt
    assert "add takes x, y" in compiled.graph("%region_0.12").alt
    with pytest.raises(KeyError, match="fused_computation"):
        compiled.graph("nowhere")


def test_graph_refuses_what_nobody_could_read():
    with pytest.raises(ValueError, match=r"6 instructions.*more than 5.*max_nodes"):
        module(TORCH_STYLE).graph(max_nodes=5)


TRAFFIC = """\
HloModule m, entry_computation_layout={(bf16[4,8]{1,0}, f32[8,2]{1,0})->f32[4,2]{1,0}}

%inner (Arg_0.1: f32[4,8]) -> f32[4,8] {
  %Arg_0.1 = f32[4,8]{1,0} parameter(0)
  ROOT %exponential.2 = f32[4,8]{1,0} exponential(%Arg_0.1)
}

ENTRY %main (a: bf16[4,8], b: f32[8,2]) -> f32[4,2] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = f32[8,2]{1,0} parameter(1)
  %wide = f32[4,8]{1,0} convert(%a), metadata={op_name="jit(f)/part/convert"}
  %called = f32[4,8]{1,0} call(%wide), to_apply=%inner
  %row = f32[8]{0} iota(), iota_dimension=0
  %column = f32[4]{0} slice(%wide)
  %reshaped = f32[4,1]{1,0} reshape(%column)
  %spread = f32[4,8]{1,0} broadcast(%reshaped), dimensions={0,1}
  %rows = f32[4,8]{1,0} broadcast(%row), dimensions={1}
  %sum = f32[4,8]{1,0} add(%called, %spread)
  %less = f32[4,8]{1,0} subtract(%sum, %rows)
  %picked = f32[4]{0} gather(%less, %row)
  ROOT %dot = f32[4,2]{1,0} dot(%less, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_operations_count_what_goes_through_memory() -> None:
    found = HloModule(TRAFFIC, origin="a test").operations
    assert [(o.opcode, o.read, o.written, o.flops) for o in found] == [
        ("convert", 64, 128, 0),
        ("exponential", 128, 128, 0),  # of the called computation, once
        ("slice", 128, 16, 0),
        ("add", 128 + 16, 128, 0),  # the column before it is spread
        ("subtract", 128, 128, 0),  # an iota is no array
        ("gather", 16, 16, 0),
        ("dot", 128 + 64, 32, 2 * 4 * 8 * 2),
    ]
    assert (found[0].moved, found[0].op_name) == (192, "jit(f)/part/convert")
