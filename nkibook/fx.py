"""The graphs that `torch.compile` gives to a backend: what runs forward, and what backward.

PyTorch's compiler makes them on any machine and for any device, so a cell shows the same graphs on
a laptop and on an instance. A kernel is one node: the `nki_kernel_wrapper` of a call, or an
operator that a library registered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

_KERNELS = ("nki_kernel_wrapper", "nki_kernels.")


class Graph:
    """One graph. Its text has the counts first: what calls kernels, then the other operators.

    Attributes:
        name: "forward" or "backward".
        module: the graph itself, a ``torch.fx.GraphModule``.
    """

    def __init__(self, name: str, module: torch.fx.GraphModule) -> None:
        self.name = name
        self.module = module

    @property
    def counts(self) -> dict[str, int]:
        """How often each operator stands in the graph, the most frequent first."""
        called = (n for n in self.module.graph.nodes if n.op == "call_function")
        found = Counter(_name(node) for node in called)
        found.pop("getitem", None)  # one of several results of a node
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def kernels(self) -> dict[str, int]:
        """Those of `counts` that call kernels: calls are named after the kernel."""
        called = [n for n in self.module.graph.nodes if _calls_kernel(n)]
        return dict(Counter(_name(node) for node in called))

    def code(self) -> str:
        """The graph as Python, one operator a line, with shapes and dtypes."""
        lines = self.module.print_readable(print_output=False).splitlines()
        kept = [x.split(";  ")[0].rstrip() for x in lines if x.strip() and "# " not in x]
        return "\n".join(kept[1:]).replace("torch.ops.", "")

    def __repr__(self) -> str:
        others = sum(n for name, n in self.counts.items() if name not in self.kernels)
        told = ", ".join(f"{n} {name}" for name, n in self.kernels.items()) or "none"
        return f"{self.name}: kernels: {told}; other operators: {others}\n{self.code()}"


def _calls_kernel(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and str(node.target).startswith(_KERNELS)


def _name(node: torch.fx.Node) -> str:
    target = str(node.target)
    if target.startswith("nki_kernel_wrapper"):
        return node.name.partition("_proxy")[0]
    return getattr(node.target, "__name__", target).removesuffix(".default").partition(".")[0]


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

    def keep(name: str) -> Callable[..., Any]:
        def compiler(module: torch.fx.GraphModule, _: Any) -> Any:
            found.append(Graph(name, module))
            return make_boxed_func(module.forward)

        return compiler

    backend = aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward"))
    torch._dynamo.reset()
    leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    results = torch.compile(function, backend=backend, fullgraph=True)(*args)
    for result in results if isinstance(results, tuple | list) else [results]:
        if leaves and isinstance(result, torch.Tensor) and result.requires_grad:
            torch.autograd.grad(result.sum(), leaves, retain_graph=True, allow_unused=True)
    torch._dynamo.reset()
    return found
