"""NKI kernels on PyTorch tensors.

Tensors on the CPU, and on the `neuron` device of :mod:`nkisim.runtime.torch_neuron`, go to the
simulator without a copy. torch_xla tensors are fetched to the host, run, and
sent back, because torch_xla cannot register a custom-call target for its CPU client. Inside
:func:`lowering` they become an HLO custom call instead, as the Neuron SDK does it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from nkisim.errors import caller
from nkisim.numerics.arguments import run_in_place
from nkisim.numerics.program import Program
from nkisim.runtime import frameworks
from nkisim.runtime.frameworks.base import FrameworkKernel
from nkisim.runtime.frameworks.xla_ffi import TARGET
from nkisim.runtime.kernel import Kernel, Specialization
from nkisim.trace.arguments import leaves

_NEURON_DTYPES: dict[torch.dtype, np.dtype] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.float16: np.dtype(np.float16),
    torch.float32: np.dtype(np.float32),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
}
_WIDE: dict[torch.dtype, np.dtype] = {  # of some dialects
    torch.int64: np.dtype(np.int64),
    torch.uint64: np.dtype(np.uint64),
}
_TORCH_DTYPES = {neuron: dtype for dtype, neuron in (_NEURON_DTYPES | _WIDE).items()}

# What tensor.numpy() cannot convert travels as integers of the same size.
_BITS = {torch.bfloat16: torch.int16, torch.float8_e5m2: torch.uint8}

_INSTEAD = {
    torch.float64: "The NeuronCore has no 64-bit types. Use x.to(torch.float32).",
    torch.int64: "The NeuronCore has no 64-bit types. Use x.to(torch.int32).",
    torch.uint64: "The NeuronCore has no 64-bit types. Use x.to(torch.uint32).",
    torch.float8_e4m3fn: (
        "PyTorch's float8_e4m3fn has no infinity and goes to 448; nl.float8_e4m3 has infinity and "
        "goes to 240, so the same bits are other numbers. Use float8_e5m2 or bfloat16."
    ),
}


class TorchKernel(FrameworkKernel):
    """A NKI kernel seen from PyTorch."""

    def is_framework_tensor(self, t: Any) -> bool:
        return isinstance(t, torch.Tensor)

    def map_framework_tensor(self, t: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
        # A size that torch.compile left open becomes that of this call: programs have fixed shapes.
        return tuple(int(size) for size in t.shape), t.dtype

    def translate_to_neuron_dtype(self, _dtype: torch.dtype) -> np.dtype:
        """Raises TypeError for a dtype that the kernel's dialect does not have."""
        wide = _WIDE.get(_dtype)
        if wide is not None and wide.name in self.kernel.dialect.wide:
            return wide
        try:
            return _NEURON_DTYPES[_dtype]
        except KeyError:
            hint = _INSTEAD.get(_dtype, "Cast the tensor to one of them.")
            raise TypeError(
                f"kernel `{self.func_name}` got a tensor of {_dtype}. Kernels take "
                f"{', '.join(str(dtype) for dtype in _NEURON_DTYPES)}. {hint}"
            ) from None


# The lowering() contexts that are open, of the whole process: autograd runs the backward pass of
# XLA tensors in a thread of its own, which sees no context variable.
_lowering: list[object] = []


@contextlib.contextmanager
def lowering() -> Iterator[None]:
    """In this context, kernels on XLA tensors become HLO custom calls and are not run.

    The tensors they return can be printed as HLO, not fetched: XLA's CPU client in torch_xla does
    not know the target.
    """
    context = object()
    _lowering.append(context)
    try:
        yield
    finally:
        _lowering.remove(context)


def is_lowering() -> bool:
    """Whether a :func:`lowering` context is open, in any thread."""
    return bool(_lowering)


def call(kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run ``kernel(*args, **kwargs)`` on PyTorch tensors.

    Args:
        kernel: the kernel, bound to its grid.
        args: positional arguments; at least one is a tensor. All tensors are on one device: the
            CPU, neuron, an XLA device, or meta.
        kwargs: keyword arguments.

    Returns:
        What the kernel returns, with PyTorch tensors on the device of the arguments. Arguments
        that the kernel writes are changed in place. Of tensors without values, those on meta and
        PyTorch's fake ones, results have shape and dtype. While PyTorch records a graph of neuron
        tensors, the call becomes a node of it.

    Raises:
        TypeError: a dtype NKI does not have, NumPy arrays among the tensors, a tensor that is not
            dense or stands for others (in ``torch.func``, in a graph that is recorded).
        ValueError: tensors on several devices, or on one that cannot run kernels.
        nkisim.errors.KernelError: the kernel does what the hardware or compiler rejects.

    Warns:
        UserWarning: a tensor requires grad and autograd is recording.
    """
    values = leaves((args, kwargs))
    _refuse_numpy(kernel.__name__, values)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    device = _common_device(kernel.__name__, tensors)
    if device.type == "neuron" and _are_recorded(tensors):
        return frameworks.record(kernel, tuple(args), kwargs)
    _refuse_stand_ins(kernel.__name__, tensors)
    _warn_of_lost_gradient(kernel.__name__, tensors)
    bridge = TorchKernel(kernel)
    specialization, tensors = bridge.specialize(args, kwargs)
    if device.type == "meta" or any(isinstance(tensor, FakeTensor) for tensor in tensors):
        results = _shapes(specialization.program, tensors)
    elif device.type == "xla" and is_lowering():
        results = _custom_call(bridge, specialization, tensors)
    else:
        results = _run(specialization.program, tensors, device)
    return specialization.rebuild(results)


def _refuse_numpy(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            raise TypeError(
                f"kernel `{name}` got both PyTorch tensors and a NumPy array of shape "
                f"{value.shape}. Convert the array with torch.from_numpy(x), or the tensors with "
                "x.numpy()."
            )


def _are_recorded(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether PyTorch records a graph by these tensors."""
    return get_proxy_mode() is not None or any(isinstance(t, FunctionalTensor) for t in tensors)


def _is_traced() -> bool:
    """Whether torch.jit.trace records this call. What an autograd.Function calls, where there are
    no gradients, it records as that function."""
    return torch.jit.is_tracing() and torch.is_grad_enabled()


def _refuse_stand_ins(name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse tensors without memory of their own, and calls that a graph would take for constants.

    PyTorch shows neither to code that computes with NumPy, and has no public name for some.
    """
    functorch = torch._C._functorch
    fake = active_fake_mode() is not None and not all(isinstance(t, FakeTensor) for t in tensors)
    if get_proxy_mode() is not None or fake or _is_traced():
        raise TypeError(_recorded(name, "is called while PyTorch records a graph"))
    for tensor in tensors:
        kind = type(tensor).__name__
        # Those of torch_xla are functional and hold values.
        functional = torch._is_functional_tensor(tensor) and tensor.device.type != "xla"
        if functional or isinstance(tensor, FunctionalTensor):
            raise TypeError(_recorded(name, f"got a {kind}, by which PyTorch records a graph"))
        if functorch.is_batchedtensor(tensor):
            raise TypeError(
                f"kernel `{name}` got a batch of torch.func.vmap: PyTorch has no rule for a kernel "
                "and one more axis. Call the kernel in the forward of a torch.autograd.Function "
                "with a static method vmap, or once for each element of the batch."
            )
        if functorch.is_legacy_batchedtensor(tensor):
            raise TypeError(
                f"kernel `{name}` got a batch of gradients (is_grads_batched=True, or "
                "vectorize=True): that way knows no rule of a torch.autograd.Function. Use "
                "torch.func.jacrev or torch.func.vmap, or one gradient at a time."
            )
        if functorch.is_functorch_wrapped_tensor(tensor):
            raise TypeError(
                f"kernel `{name}` got a tensor that torch.func differentiates: PyTorch cannot see "
                "into a NKI kernel. Call the kernel in the forward of a torch.autograd.Function "
                "with setup_context, and write its backward."
            )
        own = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        if own and not isinstance(tensor, FakeTensor):
            raise TypeError(
                f"kernel `{name}` got a {kind}, a subclass with operators of its own. A kernel "
                "reads memory. Pass the plain tensor in it."
            )
        if tensor.layout != torch.strided:
            raise TypeError(
                f"kernel `{name}` got a tensor of layout {tensor.layout}. A kernel reads dense "
                "tensors. Use x.to_dense()."
            )


def _recorded(name: str, found: str) -> str:
    return (
        f"kernel `{name}` {found} (make_fx, torch.export, torch.jit.trace, fake tensors). A kernel "
        "computes outside of PyTorch, so the graph would hold its results as constants. Wrap the "
        "call with torch.library.custom_op, give it register_fake, and record that."
    )


def _common_device(name: str, tensors: Sequence[torch.Tensor]) -> torch.device:
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        raise ValueError(
            f"kernel `{name}` got tensors on {', '.join(sorted(str(d) for d in devices))}. "
            "All tensors of a call must be on one device. Move them with x.to(device)."
        )
    device = devices.pop()
    if device.type not in ("cpu", "neuron", "xla", "meta"):
        raise ValueError(
            f"kernel `{name}` got tensors on {device}. NKI kernels run on NeuronCores, which "
            "PyTorch reaches as neuron or XLA devices, or here in a CPU simulator. Use x.cpu(), "
            "x.to('neuron') after import torch_neuronx, or x.to(torch_xla.device())."
        )
    if device.type == "neuron" and not frameworks.has_device():
        raise ValueError(
            f"kernel `{name}` runs in the simulator, and got tensors on the SDK's neuron device. "
            "Import nkisim (or set NKI_BACKEND=nkisim and import kernels) before PyTorch, with "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0, or use x.cpu()."
        )
    return device


def _warn_of_lost_gradient(name: str, tensors: Sequence[torch.Tensor]) -> None:
    # A warning and not an error, because on hardware the same call works too.
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        place = caller()
        assert place is not None  # a kernel is called from somewhere
        warnings.warn_explicit(
            f"kernel `{name}` got a tensor that requires grad. Autograd cannot see into a NKI "
            "kernel: the kernel's result does not require grad. Call the kernel in the forward of "
            "a torch.autograd.Function and write its backward, or use torch.no_grad().",
            UserWarning,
            place.f_code.co_filename,
            place.f_lineno,
            registry=place.f_globals.setdefault("__warningregistry__", {}),
        )


def _shapes(program: Program, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results without values."""
    results = [
        tensors[0].new_empty(spec.shape, dtype=_torch_dtype(spec.dtype)) for spec in program.outputs
    ]
    for o, i in program.aliases.items():
        results[o] = tensors[i]
    return results


def _run(
    program: Program, tensors: Sequence[torch.Tensor], device: torch.device
) -> list[torch.Tensor]:
    """Simulate. What the kernel writes in place is in the caller's tensors afterwards."""
    if device.type == "neuron":
        from nkisim.runtime.torch_neuron.memory import on_device, on_host

        hosts = {id(tensor): on_host(tensor.detach()) for tensor in tensors}
        given = {id(hosts[id(tensor)]): tensor for tensor in tensors}
        found = _run(program, [hosts[id(t)] for t in tensors], torch.device("cpu"))
        for i in set(program.aliases.values()):
            if program.writes_input(i):
                torch.autograd.graph.increment_version(tensors[i].detach())
        return [given[id(t)] if id(t) in given else on_device(t) for t in found]
    inputs = [_shown(tensor) for tensor in tensors]
    outputs = run_in_place(program, inputs)
    results = [to_torch(output).to(device) for output in outputs]
    for o, i in program.aliases.items():
        tensor = tensors[i]
        if device.type != "cpu":
            shared = any(tensors[k] is tensor for k in program.aliases.values() if k != i)
        else:
            shared = outputs[o] is not inputs[i]
        if program.writes_input(i):
            if device.type != "cpu":
                tensor.detach().copy_(results[o])
            else:
                torch.autograd.graph.increment_version(tensor.detach())
        if not shared:  # else the tensor holds what another argument got
            results[o] = tensor
    return results


def _custom_call(
    bridge: TorchKernel, specialization: Specialization, tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Put the kernel into the XLA graph as a custom call."""
    import torch_xla

    program = specialization.program
    results = torch_xla._XLAC._xla_custom_call(
        # An argument that is only an output is none of the instruction's operands.
        [tensors[i] for i in program.needed_inputs],
        TARGET,
        [list(spec.shape) for spec in program.outputs],
        [_torch_dtype(spec.dtype) for spec in program.outputs],
        False,  # has_side_effect
        bridge.backend_config(specialization),
        0,  # api_version: unspecified, as the Neuron compiler expects
        {},  # frontend attributes
    )
    for i, source in program.aliases.items():
        tensors[source].detach().copy_(results[i])
        results[i] = tensors[source]
    return results


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    try:
        return _TORCH_DTYPES[dtype]
    except KeyError:
        raise TypeError(
            f"the kernel returns a tensor of {dtype}, which PyTorch does not have. Give the output "
            f"one of {', '.join(str(d) for d in _TORCH_DTYPES)} with dtype= in nl.ndarray."
        ) from None


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A NumPy array of the tensor: the same memory if it is contiguous and on the CPU."""
    return _shown(tensor.detach().cpu().contiguous())


def _shown(tensor: torch.Tensor) -> np.ndarray:
    """A NumPy array of the tensor: the same memory, in any layout, if it is on the CPU."""
    host = tensor.detach().cpu()
    bits = _BITS.get(host.dtype)
    if bits is None:
        return host.numpy()
    return host.view(bits).numpy().view(_NEURON_DTYPES[host.dtype])


def to_torch(array: np.ndarray) -> torch.Tensor:
    """A CPU tensor over the array's memory."""
    dtype = _torch_dtype(array.dtype)
    bits = _BITS.get(dtype)
    if bits is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_NEURON_DTYPES[bits])).view(dtype)
