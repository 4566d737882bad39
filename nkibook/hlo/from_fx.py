"""A PyTorch function as one graph of ATen operators, counted by the rules for HLO.

PyTorch on the `neuron` device makes no HLO that one could read. So its graph, forward and backward
pass together, is put in HLO's words: an operator of ATen becomes the opcode that reads and writes
the same arrays. What the graph moves is then counted as for XLA: see `nkibook.hlo.traffic` and
`nkibook.hlo.fusion`. It is made of shapes alone, on any machine, for any device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernels import launch
from nkibook.hlo.calls import NKI_TARGET, CustomCall
from nkibook.hlo.fusion import fused_operations
from nkibook.hlo.parse import Computation, Instruction, ParsedModule, Shape
from nkibook.hlo.traffic import Operation, operations

_DTYPES = {
    torch.bool: "pred",
    torch.uint8: "u8",
    torch.int8: "s8",
    torch.int16: "s16",
    torch.int32: "s32",
    torch.int64: "s64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}

_OPCODES = {
    **dict.fromkeys(("mm", "bmm"), "dot"),
    **dict.fromkeys(("view", "_unsafe_view", "squeeze", "unsqueeze", "alias", "detach"), "reshape"),
    **dict.fromkeys(("permute", "transpose", "t"), "transpose"),
    **dict.fromkeys(("slice", "select", "split", "split_with_sizes"), "slice"),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "any", "prod"), "reduce"),
    **dict.fromkeys(("full", "full_like", "scalar_tensor", "zeros", "ones", "empty"), "constant"),
    **dict.fromkeys(("empty_permuted", "empty_like", "zeros_like", "ones_like"), "constant"),
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty", "new_full"), "constant"),
    **dict.fromkeys(("index", "gather", "embedding", "index_select"), "gather"),
    **dict.fromkeys(("index_put", "scatter", "scatter_add", "index_add"), "scatter"),
    "_to_copy": "convert",
    "arange": "iota",
    "cat": "concatenate",
    "clone": "copy",
    "copy_": "copy",
    "constant_pad_nd": "pad",
    "expand": "broadcast",
    "where": "select",
}
_LISTS = ("split", "split_with_sizes")
_WRITTEN_OUT = (
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "native_group_norm",
)


class FxModule:
    """The graph of a PyTorch function in the words of HLO.

    What `nkibook.pays.payoff` and `nkibook.steps` want of a module is here under the same names.

    Attributes:
        name: of the function.
        graph: PyTorch's own graph, a ``torch.fx.GraphModule``.
        parsed: the same in HLO's opcodes. An element-wise operator is a `map`.
        custom_calls: the launches of this book's kernels, in order.
    """

    def __init__(self, name: str, graph: torch.fx.GraphModule) -> None:
        self.name = name
        self.graph = graph
        entry, self.custom_calls = _translated(graph)
        self.parsed = ParsedModule(name, (entry,))

    @property
    def before(self) -> FxModule:
        """Itself: nothing has optimised it."""
        return self

    @property
    def entry(self) -> Computation:
        """The whole graph."""
        return self.parsed.entry

    @functools.cached_property
    def operations(self) -> tuple[Operation, ...]:
        """What each operator reads and writes alone: `nkibook.hlo.traffic.operations`."""
        return tuple(operations(self.parsed))

    @functools.cached_property
    def fused(self) -> tuple[Operation, ...]:
        """What is left when all that can be fused is: `nkibook.hlo.fusion.fused_operations`."""
        return tuple(fused_operations(self.parsed))

    def count(self, opcode: str) -> int:
        """How many operators have this opcode of HLO."""
        return sum(i.opcode == opcode for i in self.entry.instructions)


def torch_graph(function: Callable[..., Any], *args: torch.Tensor) -> FxModule:
    """The graph of a function of tensors, from shapes and dtypes alone: nothing is computed.

    Args:
        function: returns a tensor or several. For a training step it calls
            ``torch.autograd.grad`` and returns the gradients as well.
        args: its arguments, on any device: "meta" needs no memory. Gradients are for those that
            require one.

    Returns:
        The graph, its operators decomposed to PyTorch's core ATen operators, and softmax further.
        An operator of this book is a custom call for each kernel that it launches.
    """
    from torch._decomp import core_aten_decompositions, get_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx

    named = [getattr(torch.ops.aten, name) for name in _WRITTEN_OUT]
    table = {**core_aten_decompositions(), **get_decompositions(named)}
    shapes = [x.detach().to("meta").requires_grad_(x.requires_grad) for x in args]
    graph = make_fx(function, tracing_mode="fake", decomposition_table=table)(*shapes)
    return FxModule(getattr(function, "__name__", "step"), graph)


def _translated(graph: torch.fx.GraphModule) -> tuple[Computation, tuple[CustomCall, ...]]:
    found: list[Instruction] = []
    calls: list[CustomCall] = []
    now: dict[torch.fx.Node, str] = {}  # the instruction that holds a node's value
    parameters = 0

    def add(node: torch.fx.Node, opcode: str, operands: tuple[str, ...], **more: Any) -> None:
        instruction = Instruction(node.name, opcode, _shape(node), operands, **more)
        found.append(instruction)
        now[node] = node.name

    for node in graph.graph.nodes:
        operands = tuple(dict.fromkeys(now[n] for n in node.all_input_nodes if n in now))
        if node.op == "placeholder":
            add(node, "parameter", (), literal=str(parameters))
            parameters += 1
        elif node.op == "get_attr":
            add(node, "constant", ())
        elif node.op == "output":
            shape = Shape("tuple", elements=tuple(_shape(n) for n in node.all_input_nodes))
            found.append(Instruction(node.name, "tuple", shape, operands, is_root=True))
        elif (name := _name(node)) == "getitem":
            of = node.args[0]
            if _name(of) in _LISTS:
                add(node, "slice", (now[of.all_input_nodes[0]],))
            else:
                add(node, "get-tuple-element", operands)
        elif name in _LISTS:
            now[node] = operands[0]  # its elements are the slices
        elif str(node.target).startswith("nki_kernels."):
            add(node, "custom-call", operands)
            calls += _launches(node)
        else:
            attributes = {"metadata": f'{{op_name="{name}"}}'}
            opcode = _opcode(node, name)
            if opcode == "dot":
                axis = len(_value(node.args[0]).shape) - 1
                attributes["lhs_contracting_dims"] = f"{{{axis}}}"
                operands = tuple(now[n] for n in node.args)
            if name == "copy_":
                operands = (now[node.args[1]],)
            add(node, opcode, operands, attributes=attributes)
            if name.endswith("_"):  # it changes its first argument in place
                now[node.args[0]] = node.name
    return Computation("main", tuple(found), is_entry=True), tuple(calls)


def _opcode(node: torch.fx.Node, name: str) -> str:
    opcode = _OPCODES.get(name)
    if opcode == "transpose" and _only_products(node):
        return "reshape"  # a product reads an operand along either axis
    target: Any = node.target
    if opcode is None and torch.Tag.pointwise in target.tags:
        return "map"
    return opcode or name


def _only_products(node: torch.fx.Node) -> bool:
    """Whether only products use a node, if need be as a view."""
    return (
        bool(node.users)
        and all(
            _OPCODES.get(_name(user)) == "dot"
            or (_OPCODES.get(_name(user)) == "reshape" and _only_products(user))
            for user in node.users
            if user.op != "output"
        )
        and not any(user.op == "output" for user in node.users)
    )


def _name(node: torch.fx.Node) -> str:
    """Of an operator without its namespace and overload."""
    name = getattr(node.target, "__name__", str(node.target))
    return name.partition(".")[0]


def _value(node: torch.fx.Node) -> Any:
    return node.meta["val"]


def _shape(node: torch.fx.Node) -> Shape:
    return _shape_of(_value(node))


def _shape_of(value: Any) -> Shape:
    if isinstance(value, list | tuple):
        return Shape("tuple", elements=tuple(map(_shape_of, value)))
    return Shape(_DTYPES[value.dtype], tuple(value.shape))


def _launches(node: torch.fx.Node) -> Iterator[CustomCall]:
    """The launches of an operator of this book, by running it on tensors without values."""
    from torch._library.custom_ops import OPDEFS

    args = [
        torch.empty_like(_value(a), device="meta") if isinstance(a, torch.fx.Node) else a
        for a in node.args
    ]
    with launch.recorded() as seen:
        OPDEFS[str(node.target).replace(".", "::", 1).partition(".")[0]]._init_fn(*args)
    for kernel, inputs, constants in seen:
        config = {
            "func_name": kernel.__name__,
            "inputs": [[n, list(x.shape), str(x.dtype).removeprefix("torch.")] for n, x in inputs],
            "constants": constants,
        }
        yield CustomCall(
            name=node.name,
            target=NKI_TARGET,
            operand_shapes=tuple(_shape_of(x) for _, x in inputs),
            result_shapes=tuple(_shape(node).leaves()),
            backend_config="",
            config=config,
            computation="main",
            instruction=Instruction(node.name, "custom-call", _shape(node)),
        )
