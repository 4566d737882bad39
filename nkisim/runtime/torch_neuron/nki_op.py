"""``nki_op`` and ``wrap_nki`` of `torch_neuronx`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._library.infer_schema import infer_schema
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.library import CustomOpDef
from torch.utils import _pytree

from nkisim.errors import ParameterError
from nkisim.runtime.kernel import Kernel, as_kernel


def nki_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    mutates_args: str | Iterable[str] = (),
) -> Any:
    """Make an operator of PyTorch from a function that calls kernels. A decorator, or a call.

    ``torch.compile`` looks into the function, whose kernels become nodes of the graph; shapes and
    dtypes of its results are found by running it on tensors without values. The result's
    ``register_autograd`` and ``register_vmap`` are those of ``torch.library.custom_op``.

    Args:
        name: "namespace::operator".
        fn: the function. Its parameters and results have annotations: torch.Tensor, int, float,
            bool, str, optional ones, and lists. It calls kernels and operators of PyTorch, and
            returns new tensors.
        mutates_args: names of the parameters that it changes in place, or "unknown".

    Returns:
        The operator, a ``torch.library.CustomOpDef``; without `fn`, a decorator.

    Raises:
        ValueError: an annotation that is missing or that PyTorch does not know; when called, a
            tensor that is not on the neuron device.
    """
    if fn is None:
        return lambda function: nki_op(name, function, mutates_args)
    if isinstance(fn, Kernel):
        raise ParameterError(
            f"nki_op({name!r}) is given the kernel {fn.__name__} itself",
            rule="an operator is a function with annotated parameters, which calls the kernel",
            fix=f"def op(x: torch.Tensor) -> torch.Tensor: return {fn.__name__}(x)",
        )
    function = fn

    def on_device(*args: Any, **kwargs: Any) -> Any:
        for leaf in _pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf.device.type not in ("neuron", "meta"):
                raise ValueError(
                    f"NKI kernel execution failed: {name} got a tensor of shape "
                    f"{tuple(leaf.shape)} on {leaf.device}. An nki_op takes tensors on the neuron "
                    "device. Use x.to('neuron')."
                )
        return function(*args, **kwargs)

    schema = infer_schema(function, mutates_args=mutates_args)
    op: CustomOpDef = torch.library.custom_op(
        name, on_device, mutates_args=mutates_args, schema=schema
    )
    op.register_fake(on_device)

    def look_inside(mode: Any, _op: Any, _types: Any, args: Any, kwargs: Any = None) -> Any:
        with mode:
            return on_device(*args, **(kwargs or {}))

    op.register_torch_dispatch(FunctionalTensorMode, look_inside)
    return op


def wrap_nki(kernel: Any, **kwargs: Any) -> Kernel:
    """A kernel as a graph of ``torch.compile`` takes it: ``wrap_nki(kernel)[cores](*tensors)``.

    Here, as in later releases of the SDK, a kernel can be called as it is, too.

    Args:
        kernel: the kernel. Cores are given to what this function returns: those of
            ``wrap_nki(kernel[2])`` are lost on an instance, so they are refused here.
        kwargs: options of nki.jit.

    Raises:
        ParameterError: a kernel that is bound to two cores.
    """
    found = as_kernel(kernel, **kwargs)
    if found.grid.size != 1:
        raise ParameterError(
            f"wrap_nki({found.__name__}[{found.grid.size}])",
            rule="torch_neuronx launches a wrapped kernel on the cores that the wrapper is given",
            fix=f"wrap_nki({found.__name__})[{found.grid.size}](...)",
        )
    return found
