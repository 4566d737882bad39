"""The graphs that `torch.compile` gives to a backend: what runs forward, and what backward.

    forward, = graphs(function, a, b)     # or forward, backward, where a gradient is wanted
    print(forward)                        # counts, and the graph as Python
    forward.kernels, forward.counts       # how often each kernel and operator is called
    forward.diff(other, captions=(…, …))  # both as one listing, with the lines that differ marked
    forward.graph()                       # the dataflow graph, as inline SVG

PyTorch's compiler makes them on any machine and for any device, so a cell shows the same graphs on
a laptop and on an instance. A kernel is one node: the `nki_kernel_wrapper` of a call, or, on the
CPU, an operator that a library registered.
"""

from __future__ import annotations

import functools
import html
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

import kernels
from nkibook.hlo import html as listing
from nkibook.hlo.calls import decode_backend_config
from nkibook.hlo.graph import Box, Drawing, cut, draw_boxes
from nkibook.hlo.html import Diff
from nkibook.hlo.parse import split_top_level

_WRAPPER = "nki_kernel_wrapper"
_KERNELS = (_WRAPPER, "nki_kernels.")
_NUMBER = re.compile(r"(?<=[A-Za-z])_\d+\b")

# A listing of more than _LONG lines is folded but for its kernels; of other lines that follow one
# another, _SHOWN stay open.
_LONG, _SHOWN = 24, 6


class Operator(NamedTuple):
    """What a line of a graph's listing calls.

    Attributes:
        opcode: as it stands there, such as "aten.mul.Tensor".
        name: "mul", or the name of a kernel.
        is_kernel: whether it calls one.
    """

    opcode: str
    name: str
    is_kernel: bool


class KernelCall(NamedTuple):
    """A call of a kernel in a graph.

    Attributes:
        kernel_name: of its function.
        config: what the simulator's custom call would carry for it: ``grid``, the ``inputs`` (name,
            shape and dtype of each), the ``constants``, and others.
    """

    kernel_name: str
    config: Mapping[str, Any]


class Graph:
    """One graph. Its text has the counts first: what calls kernels, then the other operators.

    Attributes:
        name: "forward" or "backward".
        module: the graph itself, a ``torch.fx.GraphModule``.
        labels: what its inputs are called in the function, by their names in the graph.
        returned: what it returns, as the legend of a drawing calls it.
    """

    def __init__(
        self,
        name: str,
        module: torch.fx.GraphModule,
        labels: Mapping[str, str] | None = None,
        returned: str = "result",
    ) -> None:
        self.name = name
        self.module = module
        self.labels = dict(labels or {})
        self.returned = returned

    # What is in it.

    @functools.cached_property
    def _called(self) -> list[torch.fx.Node]:
        """The nodes that call something; those that take one of several results are left out."""
        called = [n for n in self.module.graph.nodes if n.op == "call_function"]
        return [node for node in called if _name(node) != "getitem"]

    @property
    def counts(self) -> dict[str, int]:
        """How often each operator stands in the graph, the most frequent first."""
        found = Counter(map(_name, self._called))
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def kernels(self) -> dict[str, int]:
        """Those of `counts` that call kernels: calls are named after the kernel."""
        return dict(Counter(_name(node) for node in self._called if _calls_kernel(node)))

    @property
    def views(self) -> int:
        """How many of the operators show the elements of another tensor, and compute nothing."""
        return sum(map(_is_view, self._called))

    @property
    def computed(self) -> list[torch.Tensor]:
        """What the operators compute, as tensors without values, in their order.

        These are what a device writes to its memory with one operator at a time.
        """
        return [
            tensor for node in self._called if not _is_view(node) for tensor in _tensors_of(node)
        ]

    @property
    def calls(self) -> list[KernelCall]:
        """The calls of kernels, which `nkibook.steps.modelled` takes. In the simulator only.

        Raises:
            RuntimeError: a device runs the kernels.
            ValueError: an operator of the kernels that is one node, as on the CPU.
        """
        if kernels.backend != "nkisim":
            raise RuntimeError(
                "the SDK's graphs do not say what a kernel is, beyond its name in Graph.kernels. "
                "Model them in the simulator: mark the cell '# simulator only'."
            )
        from nkisim.runtime.frameworks.torch import TorchKernel
        from nkisim.runtime.torch_neuron.graph import kernel_numbered

        found = []
        for node in filter(_calls_kernel, self._called):
            if not str(node.target).startswith(_WRAPPER):
                raise ValueError(
                    f"{_name(node)} is one node in this graph, which does not show its kernels. "
                    "Make the graph of tensors on the neuron device: x.to('neuron')."
                )
            given: Any = torch.fx.map_arg(node.kwargs, lambda n: n.meta["val"])
            bridge = TorchKernel(kernel_numbered(given["kernel_idx"]))
            special, _ = bridge.specialize(given["args"], given["kwargs"])
            config = decode_backend_config(f'"{bridge.backend_config(special)}"')
            found.append(KernelCall(_name(node), config))
        return found

    # Text.

    def summary(self) -> str:
        """The counts, in one line."""
        told = ", ".join(f"{n} {name}" for name, n in self.kernels.items()) or "none"
        others = len(self._called) - sum(self.kernels.values()) - self.views
        views = f"; views: {self.views}" if self.views else ""
        return f"{self.name}: kernels: {told}; other operators: {others}{views}"

    def short_lines(self) -> list[listing.Line]:
        """The graph as Python, as PyTorch prints it: each line, and the operator in it or None.

        What PyTorch prints besides is left out: where in the source an operator stands, and which
        tensors are freed.
        """
        lines = self.module.print_readable(print_output=False).splitlines()
        kept = [x.split(";  ")[0].rstrip() for x in lines if x.strip() and "# " not in x]
        head, *body = textwrap.dedent("\n".join(kept[1:])).replace("torch.ops.", "").splitlines()
        inside = head[head.index("(") + 1 : head.rindex(")")]
        inputs = split_top_level(inside)[1:]  # the first is self
        found: list[listing.Line] = [("def forward(", None)]
        for text in inputs:
            label = self.labels.get(text.partition(":")[0].strip())
            found.append((f"    {text.strip()}," + (f"  # {label}" if label else ""), None))
        found.append(("):", None))
        nodes = {node.name: node for node in self._called}
        for line in body:
            node = nodes.get(re.split(r"[:=]", line, maxsplit=1)[0].strip())
            found.append((line, None if node is None else _operator(node)))
        return found

    def code(self) -> str:
        """The graph as Python, one operator a line, with shapes and dtypes."""
        return "\n".join(line for line, _ in self.short_lines())

    def __repr__(self) -> str:
        return f"{self.summary()}\n{self.code()}"

    def _calls_kernel(self, line: listing.Line) -> bool:
        return line[1] is not None and self.stands_out(line[1], ())

    def _repr_html_(self) -> str:
        lines = self.short_lines()
        parts = []
        for is_kernel, run in itertools.groupby(lines, key=self._calls_kernel):
            shown = [
                listing.line_html(listing.marked_up(*line), " nki-call" if is_kernel else "")
                for line in run
            ]
            n_open = len(shown)
            if len(lines) > _LONG and not is_kernel and n_open > 2 * _SHOWN:
                n_open = _SHOWN
            parts.append(listing.pre("".join(shown[:n_open])))
            if shown[n_open:]:
                title = f"{len(shown) - n_open} more lines"
                parts.append(listing.folded(title, "".join(shown[n_open:])))
        return (
            f'<style>{listing.CSS}</style><div class="nki-hlo nki-diff">'
            f'<div class="nki-head">{html.escape(self.summary())}</div>{"".join(parts)}</div>'
        )

    # Two graphs.

    is_portable = True

    def diff(self, other: Graph, *, captions: tuple[str, str], focus: Sequence[str] = ()) -> Diff:
        """Shows what changes from this graph to `other`: both as one listing, lines marked.

        Args:
            other: the second graph.
            captions: what each of the two is, for example `("with +", "with the kernel")`.
            focus: operators, such as "mul", whose lines stay open where a long listing is folded,
                as do those of kernels: what the text names.
        """
        return Diff(self, other, captions, tuple(focus))

    def changes(self, other: Graph) -> str:
        """What changes from this graph to `other`, in numbers."""
        pair = (self, other)
        kernels = [sum(graph.kernels.values()) for graph in pair]
        others = [len(g._called) - n - g.views for g, n in zip(pair, kernels, strict=True)]
        sizes = [sum(x.nbytes for x in graph.computed) for graph in pair]
        return (
            f"Kernels: {listing.change(kernels)}. Other operators: {listing.change(others)}. "
            f"Arrays that they compute: {listing.change([len(g.computed) for g in pair])}, "
            f"{listing.change(map(listing.in_units, sizes))}."
        )

    def plain(self, line: str) -> str:
        """A line of the listing without the numbers of names."""
        return _NUMBER.sub("", line)

    def numbered(self, name: str, number: int) -> str:
        """A name with this number in the place of its own."""
        return f"{self.plain(name)}_{number}"

    def stands_out(self, operation: Any, focus: Sequence[str]) -> bool:
        """Whether a line stays open in a folded listing: that of a kernel, or of `focus`."""
        return operation.is_kernel or operation.name in focus

    # Picture.

    def graph(self, *, max_nodes: int = 60) -> Drawing:
        """Draws the dataflow: operators, and who uses whose result.

        Views are left out, and so are inputs that are not used. What is returned has a thick
        outline; a forward pass also returns what the backward pass needs of it.

        Args:
            max_nodes: the most boxes to draw.

        Raises:
            ValueError: there are more.
        """
        nodes = [n for n in self.module.graph.nodes if n.op == "placeholder" and n.users]
        nodes += [node for node in self._called if not _is_view(node)]
        if len(nodes) > max_nodes:
            raise ValueError(
                f"the {self.name} graph has {len(nodes)} inputs and operators, and a drawing of "
                f"more than {max_nodes} is hard to read: print it, or pass a larger max_nodes."
            )
        number = {node: n for n, node in enumerate(nodes)}
        (output,) = (n for n in self.module.graph.nodes if n.op == "output")
        returned = {_source(node) for node in output.all_input_nodes}
        details = {re.split(r"[:=]", x, maxsplit=1)[0].strip(): x for x, _ in self.short_lines()}
        takes = {node: [_source(operand) for operand in node.all_input_nodes] for node in nodes}
        boxes = [
            Box(
                _kind(node),
                (self._title(node), cut(", ".join(map(_shape, _tensors_of(node))), 36)),
                details.get(node.name, node.name).strip(),
                [number[operand] for operand in takes[node] if operand in number],
                node in returned,
            )
            for node in nodes
        ]
        called = {n: self.labels.get(n.name, n.name.partition("_proxy")[0]) for n in nodes}
        steps = [
            f"{called[node]} takes {', '.join(called[x] for x in takes[node] if x in called)}"
            for node in nodes
            if takes[node]
        ]
        alt = f"dataflow graph. {self.summary()}"
        alt += f". {'; '.join(steps)}." if len(steps) <= 12 else "."
        return draw_boxes(boxes, alt, self.returned)

    def _title(self, node: torch.fx.Node) -> str:
        """What stands in the box of a node: its name, and numbers that it is called with."""
        if node.op == "placeholder":
            return self.labels.get(node.name, node.name)
        numbers = (
            [] if _calls_kernel(node) else [x for x in node.args if isinstance(x, int | float)]
        )
        return cut(" ".join([_name(node), *map(str, numbers)]), 44)


def _calls_kernel(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and str(node.target).startswith(_KERNELS)


def _name(node: torch.fx.Node) -> str:
    target = str(node.target)
    if target.startswith(_WRAPPER):
        return node.name.partition("_proxy")[0]
    return getattr(node.target, "__name__", target).removesuffix(".default").partition(".")[0]


def _operator(node: torch.fx.Node) -> Operator:
    target: Any = node.target
    in_text = str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        in_text = f"higher_order.{in_text}"
    return Operator(in_text, _name(node), _calls_kernel(node))


def _kind(node: torch.fx.Node) -> str:
    if node.op == "placeholder":
        return "parameter"
    return "kernel" if _calls_kernel(node) else "operator"


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node's result shares the memory of what it takes."""
    schema = getattr(node.target, "_schema", None)
    aliases = [] if schema is None else [result.alias_info for result in schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _source(node: torch.fx.Node) -> torch.fx.Node:
    """Where the elements of a node come from: past views, and one of several results."""
    while node.op == "call_function" and (_is_view(node) or _name(node) == "getitem"):
        node = node.all_input_nodes[0]
    return node


def _tensors_of(node: torch.fx.Node) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _shape(tensor: torch.Tensor) -> str:
    from torch.fx.graph import dtype_abbrs

    return f"{dtype_abbrs[tensor.dtype]}{list(tensor.shape)}"


def _label(source: str) -> str:
    """What an input is called: PyTorch's name of it, `L['model']._parameters['weight']`, in short.

    >>> _label("L['model']._modules['norm']._parameters['weight']")
    'model.norm.weight'
    """
    text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", source)
    return re.sub(r"\.?_?(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text)


def graphs(function: Callable[..., Any], *args: Any) -> list[Graph]:
    """The graphs of a function of tensors: one, or two where an argument wants a gradient.

    Args:
        function: returns a tensor, or several. Whole: what PyTorch cannot trace is an error.
        args: its arguments. Those that require a gradient get none.

    Raises:
        torch._dynamo.exc.Unsupported: the function has a part that PyTorch cannot trace.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    found: list[Graph] = []
    inputs: list[str] = []  # what Dynamo calls them
    labels: dict[str, str] = {}

    def keep(name: str, returned: str = "result") -> Callable[..., Any]:
        def compiler(module: torch.fx.GraphModule, _: Any) -> Any:
            if name == "forward":
                names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
                if len(names) == len(inputs):
                    labels.update(zip(names, inputs, strict=True))
            found.append(Graph(name, module, labels, returned))
            return make_boxed_func(module.forward)

        return compiler

    to_graphs = aot_autograd(
        fw_compiler=keep("forward", "result, or kept for backward"),
        bw_compiler=keep("backward"),
        inference_compiler=keep("forward"),
    )

    def backend(module: torch.fx.GraphModule, examples: Any) -> Any:
        for node in module.graph.nodes:
            if node.op == "placeholder":
                source = getattr(node, "_dynamo_source", None)
                inputs.append(node.name if source is None else _label(_text_of(source)))
        return to_graphs(module, examples)

    torch._dynamo.reset()
    leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    results = torch.compile(function, backend=backend, fullgraph=True)(*args)
    for result in results if isinstance(results, tuple | list) else [results]:
        if leaves and isinstance(result, torch.Tensor) and result.requires_grad:
            torch.autograd.grad(result.sum(), leaves, retain_graph=True, allow_unused=True)
    torch._dynamo.reset()
    return found


def _text_of(source: Any) -> str:
    """PyTorch's name of an input: a method until torch 2.9, an attribute later."""
    return source.name() if callable(source.name) else source.name
