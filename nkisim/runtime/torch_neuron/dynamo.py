"""``torch.compile(backend="neuron")``: PyTorch's graphs, which here run operator by operator."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from nkisim.runtime import frameworks
from nkisim.runtime.torch_neuron import graph

_OPTIONS = ("model_name", "fallback_execution")


def register_when_imported() -> None:
    """Register with PyTorch's compiler once it is there: its import takes seconds."""
    frameworks.record, frameworks.takes = graph.call, graph.takes
    frameworks.numbered = graph.numbered
    frameworks.compiling = torch.compiler.is_dynamo_compiling
    if "torch._dynamo" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _WhenImported())


class _WhenImported(importlib.abc.MetaPathFinder):
    """Registers when Dynamo has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch._dynamo":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            _register()

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    from torch._dynamo import trace_rules
    from torch._dynamo.backends import registry

    registry.register_backend(compile_for_neuron, name="neuron")
    graph.register_with_dynamo()
    for module in ("memory", "operators"):  # Dynamo would read them where a graph is broken
        trace_rules.add(f"nkisim.runtime.torch_neuron.{module}")


def compile_for_neuron(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend: a graph of Dynamo becomes one of AOTAutograd for each of forward and backward.

    A device compiles each of them to a program. Here their operators run one after the other, and
    kernels in the simulator.

    Raises:
        RuntimeError: shapes that are not known, as with ``dynamic=True``.

    Warns:
        UserWarning: a mode, or an option, that changes nothing.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    if not torch._dynamo.config.assume_static_by_default:
        raise RuntimeError(
            "torch.compile(backend='neuron', dynamic=True): a program of a NeuronCore has fixed "
            "shapes. Leave dynamic out: another shape is compiled when it comes."
        )
    for size in inputs:
        if isinstance(size, torch.SymInt):
            int(size)  # Dynamo would make a second shape a variable: this one is a constant
    told = [f"mode={mode!r}"] if mode not in (None, "default") else []
    told += [f"options[{key!r}]" for key in options or () if key not in _OPTIONS]
    if told:
        warnings.warn(f"torch.compile(backend='neuron') ignores {', '.join(told)}.", stacklevel=2)

    def compiler(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(module.forward)

    return aot_autograd(fw_compiler=compiler, bw_compiler=compiler)(graph, inputs)
