"""What the operators' JAX functions share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def vary_alike(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Mark all arrays as varying over every mesh axis that one of them varies over.

    Inside ``jax.shard_map`` JAX keeps, for each array, the mesh axes over which its values differ
    between devices. A function with ``custom_vjp`` must return gradients that vary as its arguments
    do. That of a weight which all devices share, and which meets rows that they do not, varies as
    the rows. The derivative of the mark is the sum over the devices that is missing then.

    Args:
        arrays: JAX arrays, tracers or NumPy arrays.

    Returns:
        The same values. Outside ``shard_map``, and with ``check_vma=False``, the same objects.
    """
    axes = [jax.typeof(array).vma for array in arrays]
    every = frozenset().union(*axes)
    return tuple(
        jax.lax.pvary(array, tuple(sorted(every - own))) if every - own else array
        for array, own in zip(arrays, axes, strict=True)
    )


def batched(size: int, in_batched: list[bool], arrays: tuple[Any, ...]) -> tuple[jax.Array, ...]:
    """All arrays with the batch as their first axis; those without one are broadcast.

    Args:
        size: elements of the batch.
        in_batched: which arrays have it already.
        arrays: JAX arrays or tracers.
    """
    return tuple(
        x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
        for x, is_batched in zip(arrays, in_batched, strict=True)
    )


def of_no_elements(function: Callable, in_batched: list[bool], arrays: tuple[Any, ...]) -> Any:
    """What a batch of no elements gives, for which there is nothing to launch.

    Args:
        function: of one element.
        in_batched: which arrays have the batch as their first axis.
        arrays: JAX arrays or tracers.

    Returns:
        As the function, with a first axis of no elements.
    """
    one = [
        jax.ShapeDtypeStruct(x.shape[1:] if is_batched else x.shape, x.dtype)
        for x, is_batched in zip(arrays, in_batched, strict=True)
    ]
    return jax.tree.map(
        lambda like: jnp.zeros((0, *like.shape), like.dtype), jax.eval_shape(function, *one)
    )


def batchable(function: Callable, rule: str) -> Callable:
    """Let each device work on its own part, and ``vmap`` add a leading axis: still one launch.

    Args:
        function: takes arrays with the same leading axes, any number of them, and returns such.
        rule: as for :func:`shardable`.

    Returns:
        The function, compiled once for each shape and dtype.
    """
    on_devices = shardable(function, rule)

    @custom_vmap
    def mapped(*arrays: jax.Array) -> Any:
        return on_devices(*arrays)

    @mapped.def_vmap
    def batch(size: int, in_batched: list[bool], *arrays: jax.Array) -> Any:
        if size:
            result = mapped(*batched(size, in_batched, arrays))
        else:
            result = of_no_elements(mapped, in_batched, arrays)
        return result, jax.tree.map(lambda _: True, result)

    return compiled_once(mapped)


def no_second_derivative(
    function: Callable, name: str, instead: str, language: str = "NKI"
) -> Callable:
    """Let the derivative of a function, which is part of a first derivative, be refused.

    Args:
        function: takes and returns arrays.
        name: of the operator.
        instead: what can be differentiated twice.
        language: what the kernels are written in.

    Returns:
        The function; its derivative raises NotImplementedError.
    """
    guarded = jax.custom_jvp(function)

    @guarded.defjvp
    def refuse(primals: Any, tangents: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name} is differentiated twice, and its {language} kernels have no second "
            f"derivative. Use {instead} where you need one."
        )

    return guarded


def compiled_once(function: Callable) -> Callable:
    """Compile a function once for each shape and dtype, also where its caller has no ``jit``.

    JAX would compile ``custom_vmap`` and ``custom_partitioning`` anew in each such call. In a
    caller's ``jit`` nothing is left to see of this one.
    """
    return jax.jit(function, inline=True)


def shardable(function: Callable, rule: str) -> Callable:
    """Let each device run a function on its own part of the leading axes, under ``jit``.

    Args:
        function: takes arrays, and returns one or a tuple of them. No element along the leading
            axes needs another.
        rule: the axes of operands and results in the spelling of ``einsum``, with spaces, such as
            "... c, c -> ... c". "..." are the leading axes, the same in all arrays that have them.
            All others are gathered where they are sharded. A result without "..." is a sum over
            the leading axes; those of the devices are added up.

    Returns:
        The function, with rules for both of XLA's partitioners. Where a result is such a sum, it
        raises NotImplementedError under a mesh with axes of ``AxisType.Explicit``.
    """
    operands, results = ([array.split() for array in side.split(",")] for side in rule.split("->"))

    def shardings(mesh: Any, lead: tuple, arrays: list[list[str]]) -> tuple[NamedSharding, ...]:
        specs = ([*lead] if names[0] == "..." else [] for names in arrays)
        return tuple(
            NamedSharding(mesh, PartitionSpec(*spec, *(None for n in names if n != "...")))
            for spec, names in zip(specs, arrays, strict=True)
        )

    def lead_of(mesh: Any, arrays: list[list[str]], shapes: list[Any]) -> tuple:
        """Entries of a PartitionSpec: those of the array that most devices share the work on."""
        found = []
        for names, array in zip(arrays, shapes, strict=True):
            if names[0] == "..." and array.sharding is None:  # GSPMD does not know yet
                found.append((None,) * (len(array.shape) - len(names) + 1))
            elif names[0] == "...":
                spec = (*array.sharding.spec, *(None for _ in array.shape))
                found.append(spec[: len(array.shape) - len(names) + 1])
        return max(found, key=lambda lead: math.prod(mesh.shape[axis] for axis in _axes(lead)))

    def of_results(found: tuple) -> Any:
        return found if len(results) > 1 else found[0]

    def infer(mesh: Any, args: Any, result: Any) -> Any:
        """The results' shardings, given those of the arguments (used without Shardy)."""
        if unnamed := _without_axis_names(args):
            return jax.tree.map(lambda _: unnamed, result)
        return of_results(shardings(mesh, lead_of(mesh, operands, args), results))

    def partition(mesh: Any, args: Any, result: Any) -> Any:
        if unnamed := _without_axis_names([*args, *jax.tree.leaves(result)]):
            if all(names == ["..."] for names in operands + results):
                unnamed = result.sharding  # every element is on its own, so any will do
            return mesh, function, *jax.tree.map(lambda _: unnamed, (result, args))
        lead = lead_of(mesh, operands + results, [*args, *jax.tree.leaves(result)])

        def on_each_device(*arrays: jax.Array) -> Any:
            values = function(*arrays)
            if not _axes(lead) or all(names[0] == "..." for names in results):
                return values
            return of_results(
                tuple(
                    value if names[0] == "..." else jax.lax.psum(value, _axes(lead))
                    for value, names in zip(jax.tree.leaves(values), results, strict=True)
                )
            )

        return (
            mesh,
            on_each_device,
            of_results(shardings(mesh, lead, results)),
            shardings(mesh, lead, operands),
        )

    def with_rules(**options: Any) -> Callable:
        partitioned = custom_partitioning(function)
        partitioned.def_partition(partition, infer, sharding_rule=rule, **options)
        return partitioned

    usual = with_rules()
    # In a shard_map that has some axes of a mesh, XLA speaks of the devices that share the others.
    # To take that for a sharding over the mesh, were one set, would abort the process.
    among_some = with_rules(decode_shardings=False)

    def on_devices(*arrays: jax.Array) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if AxisType.Explicit in mesh.axis_types and any(names[0] != "..." for names in results):
            raise NotImplementedError(
                "the gradient of a weight that all rows share is a sum over devices, and JAX does "
                "not compile that sum in a rule for sharding while the mesh in force has axes of "
                f"AxisType.Explicit ({mesh}). Use AxisType.Auto, or leave jax.sharding.use_mesh "
                "out."
            )
        some = 0 < len(mesh.manual_axes) < len(mesh.axis_names)
        return (among_some if some else usual)(*arrays)

    return on_devices


def _without_axis_names(arrays: Any) -> Any:
    """None if the arrays' shardings name axes of a mesh, else the sharding "whole on each device".

    They name none in a ``jax.shard_map`` that has some axes of its mesh, and XLA the others.
    """
    for sharding in (array.sharding for array in arrays):
        if sharding is not None and not isinstance(sharding, NamedSharding):
            return sharding.get_replicated(sharding._device_assignment)
    return None


def _axes(lead: tuple) -> tuple[str, ...]:
    """The mesh axes in entries of a PartitionSpec: each is None, a name or a tuple of names."""
    return tuple(
        axis
        for entry in lead
        if entry is not None
        for axis in (entry if isinstance(entry, tuple) else (entry,))
    )
