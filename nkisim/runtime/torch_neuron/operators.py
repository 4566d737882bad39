"""PyTorch's operators on the device: each runs on the CPU, on tensors over the same memory."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from nkisim.errors import caller
from nkisim.runtime.torch_neuron.memory import on_device, on_host

_libraries: list[torch.library.Library] = []  # what is registered ends with them

# Operators that take indices or numbers from the CPU beside tensors on a device, as on any device.
_FROM_THE_CPU = ("aten::index", "aten::index_put", "aten::_index_put_impl_", "aten::index_put_")
# Those that torch.autocast computes in its dtype on the devices that PyTorch has.
_LOWER = (
    "matmul", "mm", "bmm", "mv", "addmm", "addbmm", "baddbmm", "addmv", "linear", "einsum",
    "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention",
)  # fmt: skip
_FLOAT32 = (
    "exp", "log", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "rsqrt", "layer_norm", "group_norm",
    "nll_loss", "mse_loss", "l1_loss", "logsumexp", "softmax.int", "log_softmax.int", "sum",
    "sum.dim_IntList", "cumsum", "prod", "binary_cross_entropy_with_logits",
)  # fmt: skip


def register() -> None:
    """Register all operators for the device, and those that autocast casts."""
    anything = torch.library.Library("_", "IMPL")
    anything.fallback(_on_the_cpu, "PrivateUse1")
    anything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("empty.memory_format", _empty, "PrivateUse1")
    aten.impl("empty_strided", _empty_strided, "PrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    aten.impl("_local_scalar_dense", lambda x: on_host(x).item(), "PrivateUse1")
    # What PyTorch calls on a backend of somebody else's, in the place of an operator's usual code.
    aten.impl("convolution_overrideable", _convolution, "PrivateUse1")
    aten.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
    for cell in ("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"):
        aten.impl(cell, _no_recurrent_cell, "PrivateUse1")
    for names, dtype in ((_LOWER, None), (_FLOAT32, torch.float32)):
        for name in names:
            aten.impl(name, _cast(name, dtype), "AutocastPrivateUse1")
    _libraries.extend([anything, aten])


@functools.cache
def _say_what_runs_where() -> None:
    place = caller()
    if place is not None:
        warnings.warn_explicit(
            "PyTorch's device `neuron` is nkisim's: NKI kernels run in the simulator, and other "
            "operators run on the CPU, in its precision and time.",
            UserWarning,
            place.f_code.co_filename,
            place.f_lineno,
        )


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "neuron"


def _on_the_cpu(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run any operator. What it changes in place is changed; an argument that it returns is that
    argument."""
    _say_what_runs_where()
    schema = op._schema
    if schema.name == "aten::resize_":
        return _resize(*args)
    if schema.name == "aten::set_" or any(_is_view(result) for result in schema.returns):
        # The CPU's own code looks at strides and storage only, and shares the storage.
        return op._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)
    leaves, spec = _pytree.tree_flatten((args, kwargs))
    if schema.name not in _FROM_THE_CPU:
        _check_devices(leaves)
    hosts = [_host(leaf) for leaf in leaves]
    args_there, kwargs_there = _pytree.tree_unflatten(hosts, spec)
    outs = [
        a.name for a in schema.arguments if a.kwarg_only and a.alias_info is not None
        and a.name in kwargs
    ]  # fmt: skip
    if outs:
        return _into(op, outs, args_there, kwargs_there, kwargs)
    given = {id(host): leaf for host, leaf in zip(hosts, leaves, strict=True)}

    def back(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        return given[id(result)] if id(result) in given else on_device(result)

    return _pytree.tree_map(back, op(*args_there, **kwargs_there))


def _is_view(result: Any) -> bool:
    return result.alias_info is not None and not result.alias_info.is_write


def _host(leaf: Any) -> Any:
    if _is_ours(leaf):
        return on_host(leaf)
    if isinstance(leaf, torch.device) and leaf.type == "neuron":
        return torch.device("cpu")
    return leaf


def _check_devices(leaves: list[Any]) -> None:
    """As on any device: only a number, a tensor without axes, may be on the CPU."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.ndim and not _is_ours(leaf):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"neuron:0 and {leaf.device}! Move them with x.to(device)."
            )


def _into(
    op: torch._ops.OpOverload, outs: list[str], args: Any, kwargs: dict[str, Any], given: Any
) -> Any:
    """An operator with ``out=``, which may change the size of what it is given."""
    fresh = {name: torch.empty(0, dtype=given[name].dtype) for name in outs}
    op(*args, **{**kwargs, **fresh})
    for name, result in fresh.items():
        _resize(given[name], result.shape)
        on_host(given[name]).copy_(result)
    results = tuple(given[name] for name in outs)
    return results[0] if len(results) == 1 else results


def _resize(x: torch.Tensor, size: Any, memory_format: Any = None) -> torch.Tensor:
    if tuple(x.shape) != tuple(size):
        old = on_host(x).reshape(-1)
        new = torch.empty(size, dtype=x.dtype)
        kept = min(new.numel(), old.numel())
        new.view(-1)[:kept] = old[:kept]
        x.data = on_device(new)
    return x


def _check_index(device: torch.device | None) -> None:
    torch.neuron.set_device(device if device is not None else 0)  # type: ignore[attr-defined]


def _empty(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:
    _check_index(device)
    order = {} if memory_format is None else {"memory_format": memory_format}
    return on_device(torch.empty(size, dtype=dtype, layout=layout, device="cpu", **order))


def _empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:
    _check_index(device)
    return on_device(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
    _host(target).copy_(_host(source))
    return target


def _convolution(*args: Any) -> torch.Tensor:
    return on_device(torch.ops.aten.convolution(*map(_host, args)))


def _convolution_backward(grad: Any, x: Any, weight: Any, *settings: Any) -> tuple[Any, ...]:
    *_, transposed, _, groups, _ = settings
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    tensors = map(_host, (grad, x, weight))
    grads = torch.ops.aten.convolution_backward(*tensors, [channels], *settings)
    return tuple(None if g is None else on_device(g) for g in grads)


def _no_recurrent_cell(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        "the simulator's neuron device has no LSTM and no GRU: PyTorch asks a device for a fused "
        "cell. Write the cell with matmul, sigmoid and tanh, or run the module on the CPU."
    )


def _cast(name: str, dtype: torch.dtype | None) -> Callable[..., Any]:
    """The operator on arguments in a dtype; None for that of `torch.autocast`."""
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    autocast = torch._C.DispatchKeySet(key)

    def run(*args: Any, **kwargs: Any) -> Any:
        to = dtype or torch.get_autocast_dtype("neuron")

        def cast(x: Any) -> Any:
            floats = _is_ours(x) and x.is_floating_point() and x.dtype is not torch.float64
            return x.to(to) if floats else x

        with torch._C._ExcludeDispatchKeyGuard(autocast):
            return op(*_pytree.tree_map(cast, args), **_pytree.tree_map(cast, kwargs))

    return run
