"""HLO of a PyTorch function, through torch_xla. The only HLO module with torch in it.

torch_xla traces lazily: operations on XLA tensors record a graph, and the graph becomes HLO. The
private torch_xla names this takes are all in this file.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import glob
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

import kernels
from nkibook.hlo import compiled_torch
from nkibook.hlo.module import HloModule, HloUnavailable
from nkibook.hlo.parse import parse_module


def torch_hlo(fn: Callable[..., Any], *args: Any, metadata: bool = False) -> HloModule:
    """The HLO module that torch_xla makes of `fn(*args)`. Nothing is executed.

    Args:
        fn: a function of tensors, or a `torch.nn.Module`. It returns the tensors to compute: one,
            or a tuple, list or dict of them. NKI kernels in it appear as custom calls. For a
            training graph, call `torch.autograd.grad` (or `backward`) in `fn` and return the
            gradients as well.
        *args: tensors, on the CPU or on the XLA device, possibly inside tuples, lists or dicts;
            anything else is passed on as it is. Each tensor becomes a parameter of the module,
            with its `requires_grad`. `fn` gets copies, so `.grad` of your tensors stays as it is.
        metadata: have torch_xla write which torch operation, in which source line, each
            instruction came from.

    Returns:
        The module. `.after` is what XLA's CPU backend makes of it, compiled in a process of its
        own, which takes seconds; neuronx-cc takes the module *before* optimisation, and makes
        something else. `.stablehlo` raises HloUnavailable.

    Raises:
        ImportError: when torch or torch_xla is not installed; it says what to do.
        TypeError: when `fn` returns no tensor.
        ValueError: when a result is not on the XLA device, so that it is not part of the graph.
        HloUnavailable: `fn` runs a backward pass, and autograd was first used before torch_xla.
    """
    torch, torch_xla = _import()
    device = torch_xla.device()
    copies = _Copies(torch, torch_xla, device)
    if isinstance(fn, torch.nn.Module):
        module = copy.deepcopy(fn).to(device)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            copies.label(tensor, name)
        fn = module
    names = _argument_names(fn, len(args))
    args = tuple(copies.convert(arg, name) for arg, name in zip(args, names, strict=True))
    with _tracing(torch_xla, metadata):
        with _explained_backward():
            results = fn(*args)
        results = _tensors(torch, results)
        text = torch_xla._XLAC._get_xla_tensors_hlo(results)
        proto = torch_xla._XLAC._get_xla_tensors_hlo_proto(results)
    labels = copies.parameter_labels(results)
    return HloModule(
        text,
        origin=f"torch_xla {torch_xla.__version__}",
        stage="before",
        labels=labels,
        after=functools.partial(_compile, text, proto, labels),
    )


def _compile(text: str, proto: bytes, labels: dict[int, str]) -> tuple[str, str, dict[int, str]]:
    """Text of the optimised module, the backend that made it, and what its parameters are."""
    shapes = [(p.shape.dtype, p.shape.dims) for p in parse_module(text).entry.parameters]
    try:
        optimized, order = compiled_torch.optimized(proto, shapes)
    except compiled_torch.NotCompiled as error:
        raise HloUnavailable(f"XLA did not compile the module: {error}") from error
    numbers = {old: number for number, old in enumerate(order)}
    found = {numbers[old]: name for old, name in labels.items() if old in numbers}
    return optimized, "cpu", found


class _Copies:
    """Copies arguments to the XLA device, and remembers what each is called."""

    def __init__(self, torch: Any, torch_xla: Any, device: Any) -> None:
        self.torch = torch
        self.xla = torch_xla._XLAC
        self.device = device
        self.copied: dict[int, Any] = {}
        self.names: dict[int, str] = {}

    def convert(self, value: Any, name: str) -> Any:
        if isinstance(value, self.torch.Tensor):
            # A tensor passed twice is one parameter.
            if id(value) not in self.copied:
                self.copied[id(value)] = self.copy(value)
                self.label(self.copied[id(value)], name)
            return self.copied[id(value)]
        if isinstance(value, dict):
            return {k: self.convert(v, f"{name}[{k!r}]") for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            pairs = zip(value, value._fields, strict=True)
            return type(value)(*(self.convert(v, f"{name}.{k}") for v, k in pairs))
        if isinstance(value, (tuple, list)):
            return type(value)(self.convert(v, f"{name}[{i}]") for i, v in enumerate(value))
        return value

    def copy(self, tensor: Any) -> Any:
        if tensor.device.type == "xla":
            # What is pending on the tensor is the caller's, not a part of this graph. By way of the
            # host: a copy on the device would be one more program to compile.
            moved = tensor.detach().cpu().to(self.device)
        elif tensor.device.type == "cpu":
            moved = tensor.detach().to(self.device)
        else:
            raise ValueError(
                f"torch_hlo got a tensor on {tensor.device}: tensors must be on the CPU or on "
                f"the XLA device ({self.device}). Move it with .cpu()."
            )
        return moved.requires_grad_(tensor.requires_grad)

    def label(self, tensor: Any, name: str) -> None:
        self.names[self.xla._xla_get_tensor_id(tensor)] = name

    def parameter_labels(self, results: list[Any]) -> dict[int, str]:
        """The names of the parameters that are arguments, in the order of the arguments."""
        # torch_xla numbers the parameters in the order of this list.
        ids, _ = self.xla._get_tensors_xla_device_data_node(results)
        numbers = {i: number for number, i in enumerate(ids)}
        return {numbers[i]: name for i, name in self.names.items() if i in numbers}


def _import() -> tuple[Any, Any]:
    if "PJRT_DEVICE" not in os.environ and not glob.glob("/dev/neuron*"):
        os.environ["PJRT_DEVICE"] = "CPU"  # what torch_xla falls back to, without its warning
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            "torch_hlo needs PyTorch and torch_xla, and torch is not installed: "
            "pip install 'nki-book[torch]' (or run `make env`)."
        ) from error
    try:
        import torch_xla
    except ModuleNotFoundError as error:
        if error.name != "torch_xla":
            raise
        raise ImportError(
            "torch_hlo needs torch_xla, which is not installed. It exists for Linux on x86-64 "
            f"only. There, install the version of your torch ({torch.__version__}): "
            "pip install 'nki-book[torch]' (or run `make env`). Elsewhere, read the HLO in the "
            "rendered book, or use jax_hlo."
        ) from error
    return torch, torch_xla


@contextlib.contextmanager
def _tracing(torch_xla: Any, metadata: bool) -> Iterator[None]:
    """A context in which NKI kernels put a custom call into the graph instead of running."""
    debug = torch_xla._XLAC._get_ir_debug()
    with contextlib.ExitStack() as stack:
        if kernels.backend == "nkisim":  # the SDK's kernels do this by themselves
            from nkisim.runtime.frameworks.torch import lowering

            stack.enter_context(lowering())
        torch_xla._XLAC._set_ir_debug(metadata)
        try:
            yield
        finally:
            torch_xla._XLAC._set_ir_debug(debug)


@contextlib.contextmanager
def _explained_backward() -> Iterator[None]:
    """Say what is wrong when autograd does not know the XLA device.

    The first backward pass of a process starts a thread for each device that there is. torch_xla's
    device is there from the first `torch_xla.device()` on (github.com/pytorch/xla/issues/4174).
    """
    try:
        yield
    except RuntimeError as error:
        if "device_ready_queues_" not in str(error):
            raise
        raise HloUnavailable(
            "autograd does not know the XLA device, because a backward pass ran in this process "
            "before torch_xla was first used, and autograd counts devices only once. Restart "
            "Python, and call torch_xla.device() (or torch_hlo) before the first backward()."
        ) from error


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """What `fn` calls its positional arguments; `arg0`, `arg1`, ... where it does not say."""
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):  # a builtin without a signature
        signature = inspect.signature(getattr(fn, "forward", fn))
        for parameter in signature.parameters.values():
            if parameter.kind == parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
            elif parameter.kind != parameter.KEYWORD_ONLY:
                names.append(parameter.name)
    return [*names, *(f"arg{i}" for i in range(len(names), count))][:count]


def _tensors(torch: Any, result: Any) -> list[Any]:
    """The tensors of a result, checked."""

    def flatten(value: Any) -> Iterator[Any]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            for item in value.values():
                yield from flatten(item)
        elif isinstance(value, (tuple, list)):
            for item in value:
                yield from flatten(item)

    tensors = list(flatten(result))
    if not tensors:
        raise TypeError(
            f"torch_hlo needs the tensors to compute, and fn returned {type(result).__name__}: "
            "return them from fn, for example `return loss, x.grad`."
        )
    for tensor in tensors:
        if tensor.device.type != "xla":
            raise ValueError(
                f"fn returned a tensor of shape {tuple(tensor.shape)} on {tensor.device}, which "
                "is not part of the XLA graph: compute results from the arguments, and keep "
                "them on the XLA device (no .cpu(), .numpy() or new CPU tensors)."
            )
    return tensors
