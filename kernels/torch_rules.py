"""What the operators' PyTorch functions share: registering with PyTorch, ``vmap``, autocast."""

from __future__ import annotations

import functools
import importlib.util
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode

NAMESPACE = "nki_kernels"
"""Of the operators: ``torch.ops.nki_kernels.softmax``."""


def _register() -> Callable[..., Any]:
    """What makes an operator: TorchNeuron's `nki_op` where the Neuron SDK has one, whose compiler
    looks into the operator for its kernels; else PyTorch's `custom_op`."""
    if importlib.util.find_spec("torch_neuronx") is not None:
        import torch_neuronx

        if not getattr(torch_neuronx, "__nkisim__", False) and hasattr(torch_neuronx, "nki_op"):
            return torch_neuronx.nki_op
    return torch.library.custom_op


def operator(
    name: str,
    *,
    fake: Callable[..., Any],
    backward: Callable[..., Any],
    keep: Callable[..., None] | None = None,
    vmap: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Make an operator of PyTorch from a function that launches kernels. A decorator.

    ``torch.compile`` and ``torch.export`` take it as one node; on neuron tensors the nodes are its
    kernels. The function's annotations are its
    schema: ``torch.Tensor``, ``int``, ``float``, ``bool``, lists, and tuples of tensors as results.

    Args:
        name: of the operator.
        fake: takes what the function takes, and returns empty tensors as it would return, which
            are contiguous.
        backward: ``backward(ctx, *grads)``: a gradient, or None, for each input.
        keep: ``keep(ctx, inputs, output)``: what the gradient needs of the forward pass.
        vmap: ``vmap(op, info, in_dims, *inputs)``: what ``torch.library.register_vmap`` wants, with
            the operator in front. By default a batch is one more axis in front of all tensors, and
            one launch.

    Returns:
        The operator, to be called as the function.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def launch(*args: Any) -> Any:
            # A result may be a view of what the kernel returned: a detached tensor is none, so
            # that autograd lets it be changed in place.
            result = function(*args)
            if isinstance(result, torch.Tensor):
                return result.detach()
            return tuple(x.detach() for x in result)

        def shapes(*args: Any) -> Any:
            devices = {x.device for x in args if isinstance(x, torch.Tensor)}
            if len(devices) > 1:
                raise ValueError(
                    f"{name} got tensors on {', '.join(sorted(map(str, devices)))}. All tensors of "
                    "a call must be on one device. Move them with x.to(device)."
                )
            return fake(*args)

        # PyTorch reads annotations as they are, and those of this package are text.
        launch.__annotations__ = typing.get_type_hints(function)
        make = _register()
        op = make(f"{NAMESPACE}::{name}", launch, mutates_args=())
        op.register_fake(shapes)
        op.register_autograd(backward, setup_context=keep)
        overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        if make is torch.library.custom_op:
            _show_kernels(op, overload, launch)

        def mapped(info: Any, in_dims: Any, *inputs: Any) -> Any:
            return (vmap or _more_rows)(call, info, in_dims, *inputs)

        op.register_vmap(mapped)
        # A gradient in a vmap, or in another gradient, is more than PyTorch does for an operator.
        differentiable: Any = type(
            f"{name}_function",
            (torch.autograd.Function,),
            {
                "forward": staticmethod(lambda *args: overload(*args)),
                "setup_context": staticmethod(keep or _keep_nothing),
                "backward": staticmethod(backward),
                "vmap": staticmethod(mapped),
                "jvp": staticmethod(_no_forward_mode(name)),
            },
        )

        def call(*args: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():
                return overload(*args)
            if torch._C._are_functorch_transforms_active():
                return differentiable.apply(*args)
            return overload(*args)

        return call

    return decorate


def _show_kernels(op: Any, overload: Any, launch: Callable[..., Any]) -> None:
    """Have graphs of neuron tensors show the kernels of an operator, as those of a TorchNeuron's
    `nki_op` do. On other devices the operator is a node."""

    def look_inside(mode: Any, _op: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        if any(isinstance(x, torch.Tensor) and x.device.type == "neuron" for x in args):
            with mode:
                return launch(*args)
        return mode.__torch_dispatch__(overload, types, args, kwargs or {})

    op.register_torch_dispatch(FunctionalTensorMode, look_inside)


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    pass


def batched(size: int, dims: Sequence[int | None], inputs: Sequence[Any]) -> list[Any]:
    """All tensors with the batch as their first axis; those without one are repeated.

    Args:
        size: elements of the batch.
        dims: which axis of each input is the batch; None for none, and for constants.
        inputs: tensors and constants, which stay as they are.
    """
    return [
        x
        if not isinstance(x, torch.Tensor)
        else x.expand(size, *x.shape)
        if dim is None
        else x.movedim(dim, 0)
        for x, dim in zip(inputs, dims, strict=True)
    ]


def _more_rows(op: Any, info: Any, in_dims: Sequence[int | None], *inputs: Any) -> Any:
    results = op(*batched(info.batch_size, in_dims, inputs))
    return results, 0 if isinstance(results, torch.Tensor) else (0,) * len(results)


def one_by_one(
    function: Callable[..., Any], size: int, dims: Sequence[int | None], inputs: Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Call a function for each element of a batch, and stack what it returns.

    Args:
        function: returns a tensor, or a tuple of them.
        size, dims, inputs: as for :func:`batched`.
    """
    pairs = list(zip(inputs, dims, strict=True))
    elements = [[x if d is None else x.select(d, i) for x, d in pairs] for i in range(size)]
    if size == 0:  # the sum over no elements has the shape and the graph of one
        elements = [[x if d is None else x.sum(d) for x, d in pairs]]
    results = [function(*element) for element in elements]
    results = [r if isinstance(r, tuple) else (r,) for r in results]
    return tuple(torch.stack(parts)[:size] for parts in zip(*results, strict=True))


def no_second_derivative(name: str, instead: str) -> Callable[..., NoReturn]:
    """The ``backward`` of an operator that computes a gradient.

    Args:
        name: of the operator.
        instead: what can be differentiated twice.

    Returns:
        A function that raises NotImplementedError.
    """

    def backward(ctx: Any, *grads: torch.Tensor) -> NoReturn:
        raise NotImplementedError(
            f"{name} is differentiated twice, and its NKI kernels have no second derivative. Use "
            f"{instead} where you need one."
        )

    return backward


def _no_forward_mode(name: str) -> Callable[..., NoReturn]:
    """The ``jvp`` of an operator: its kernels have a backward pass only."""

    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name} is differentiated in forward mode, and its NKI kernels have a backward pass "
            "only. Use torch.func.vjp or torch.func.jacrev."
        )

    return jvp


def require_tensors(**arguments: Any) -> None:
    """Refuse an argument that is no tensor, by its name, with TypeError."""
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}. Pass a PyTorch tensor.")


def autocast(dtype: torch.dtype | None, *tensors: Any) -> tuple[Any, ...]:
    """The tensors as ``torch.autocast`` gives them to an operator, in a region of it.

    Args:
        dtype: what PyTorch computes the operator in there; None for the dtype of the region.
        tensors: floating point ones but float64 are cast, if they are on the region's kind of
            device; anything else stays, and tensors on "meta".

    Returns:
        The tensors. Outside of a region, the same objects.
    """
    return tuple(
        x.to(dtype or torch.get_autocast_dtype(x.device.type))
        if isinstance(x, torch.Tensor)
        and x.is_floating_point()
        and x.dtype is not torch.float64
        and x.device.type != "meta"
        and torch.is_autocast_enabled(x.device.type)
        else x
        for x in tensors
    )
