"""A kernel as a node of PyTorch's graphs: the operator ``nki_kernel_wrapper``.

`torch.compile` cannot look into a kernel. It takes this operator as one node, named after the
kernel, with the kernel's number, its cores and the arguments of the call. TorchNeuron has one of
the same name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)
from torch.utils import _pytree

from nkisim.runtime.frameworks import torch as bridge
from nkisim.runtime.kernel import Kernel

_kernels: list[Kernel] = []
_numbers: dict[int, int] = {}  # of a kernel's id


class _KernelCall(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("nki_kernel_wrapper", cacheable=True)

    def __call__(
        self, *, kernel_idx: int, grid: list[int], args: Any, kwargs: Any, functional: bool
    ) -> Any:
        """Call a kernel.

        Args:
            kernel_idx: its number.
            grid: the cores that it is launched on.
            args, kwargs: tensors and constants of the call.
            functional: whether tensors that the kernel writes are copied first. The result is then
                a pair: what the kernel returns, and these copies.
        """
        return super().__call__(
            kernel_idx=kernel_idx, grid=grid, args=args, kwargs=kwargs, functional=functional
        )


nki_kernel_wrapper = _KernelCall()


def numbered(kernel: Kernel) -> tuple[int, tuple[int, ...]]:
    """The number of a kernel in this process, and the cores that it is launched on."""
    if id(kernel) not in _numbers:
        _numbers[id(kernel)] = len(_kernels)
        _kernels.append(kernel)
    return _numbers[id(kernel)], tuple(kernel.grid.shape)


def kernel_numbered(number: int) -> Kernel:
    """The kernel of a number, bound to the cores that it is launched on."""
    return _kernels[number]


def call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any = None) -> Any:
    """Call a kernel so that it becomes a node of a graph that is recorded, by Dynamo or below."""
    number, cores = kernel.numbered(grid)
    return nki_kernel_wrapper(
        kernel_idx=number, grid=list(cores), args=args, kwargs=kwargs, functional=False
    )


def takes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a tensor of the device is among the arguments. Dynamo reads this."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            return True
    return False


def register_with_dynamo() -> None:
    """Let Dynamo put calls into its graph."""
    torch._dynamo.allow_in_graph(nki_kernel_wrapper)


@nki_kernel_wrapper.py_impl(DispatchKey.CompositeExplicitAutograd)
def _run(*, kernel_idx: int, grid: list[int], args: Any, kwargs: Any, functional: bool) -> Any:
    kernel = _kernels[kernel_idx]
    if not functional:
        return bridge.call(kernel, args, kwargs)
    written = _written(kernel, args, kwargs)
    leaves, spec = _pytree.tree_flatten((args, kwargs))
    copies = [leaf.clone() if i in written else leaf for i, leaf in enumerate(leaves)]
    args, kwargs = _pytree.tree_unflatten(copies, spec)
    return bridge.call(kernel, args, kwargs), tuple(copies[i] for i in written)


@nki_kernel_wrapper.py_impl(FakeTensorMode)
def _shapes(mode: FakeTensorMode, **call: Any) -> Any:
    with mode:
        return _run(**call)


@nki_kernel_wrapper.py_impl(ProxyTorchDispatchMode)
def _node(mode: ProxyTorchDispatchMode, **call: Any) -> Any:
    with disable_proxy_modes_tracing():
        result = nki_kernel_wrapper(**call)
    tracer: Any = mode.tracer
    proxies = _pytree.tree_map(tracer.unwrap_proxy, call)
    node = tracer.create_proxy(
        "call_function",
        nki_kernel_wrapper,
        (),
        proxies,
        name=f"{_kernels[call['kernel_idx']].__name__}_proxy",
    )
    return track_tensor_tree(result, node, constant=None, tracer=tracer)


@nki_kernel_wrapper.py_functionalize_impl
def _functionalized(context: Any, **call: Any) -> Any:
    """Changes in place become results, by which the graph goes on."""
    unwrapped = {key: context.unwrap_tensors(call[key]) for key in ("args", "kwargs")}
    kernel = _kernels[call["kernel_idx"]]
    written = _written(kernel, unwrapped["args"], unwrapped["kwargs"])
    with context.redispatch_to_next():
        result = nki_kernel_wrapper(**{**call, **unwrapped, "functional": bool(written)})
    if not written:
        return context.wrap_tensors(result)
    result, copies = result
    changed = {}
    leaves = _pytree.tree_leaves((call["args"], call["kwargs"]))
    for i, copy in zip(written, copies, strict=True):
        changed[id(copy)] = leaves[i]
        context.replace(leaves[i], copy)
        context.commit_update(leaves[i])
        context.sync(leaves[i])

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return changed[id(leaf)] if id(leaf) in changed else context.wrap_tensors(leaf)

    return _pytree.tree_map(wrap, result)


def _written(kernel: Kernel, args: Any, kwargs: Any) -> list[int]:
    """Which leaves of a call's arguments are tensors that the kernel writes."""
    leaves, _ = _pytree.tree_flatten((args, kwargs))
    special, tensors = bridge.TorchKernel(kernel).specialize(args, kwargs)
    program = special.program
    ids = {id(tensors[i]) for i in program.aliases.values() if program.writes_input(i)}
    return [i for i, leaf in enumerate(leaves) if id(leaf) in ids]


for _key in (
    DispatchKey.AutogradPrivateUse1,
    DispatchKey.AutocastPrivateUse1,  # type: ignore[attr-defined]
    DispatchKey.AutogradCPU,
    DispatchKey.AutocastCPU,
    DispatchKey.ADInplaceOrView,
    DispatchKey.BackendSelect,
    DispatchKey.PythonDispatcher,
    DispatchKey.PythonTLSSnapshot,
):
    nki_kernel_wrapper.fallthrough(_key)
