"""NKI kernels on JAX arrays and tracers.

A kernel call becomes a real XLA custom call, built with :func:`jax.ffi.ffi_call`, in eager code and
under every JAX transformation. XLA's CPU runtime executes it through
:mod:`nkisim.runtime.frameworks.xla_ffi`. Output shapes come from tracing the kernel without data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import source_info_util

import nkisim
from nkisim.frontends.nki.ranks import this_rank
from nkisim.ir import dtypes
from nkisim.runtime.by_data import ProgramByData
from nkisim.runtime.frameworks import xla_ffi
from nkisim.runtime.frameworks.base import FrameworkKernel
from nkisim.runtime.kernel import Kernel, Specialization

# The metadata of a custom call names the line that calls the kernel, not one in the simulator.
source_info_util.register_exclusion(str(Path(nkisim.__file__).parent) + os.sep)
if (_torch := find_spec("torch")) is not None and _torch.origin:  # `frameworks.opaque`
    source_info_util.register_exclusion(str(Path(_torch.origin).parent / "_dynamo") + os.sep)


class JaxKernel(FrameworkKernel):
    """A NKI kernel seen from JAX.

    NumPy arrays count as tensors, as they do in ``jax.numpy``, and so does the
    ``jax.ShapeDtypeStruct`` of one.
    """

    def is_framework_tensor(self, t: Any) -> bool:
        return isinstance(t, jax.Array | np.ndarray | jax.ShapeDtypeStruct)

    def map_framework_tensor(self, t: Any) -> tuple[Sequence[int], np.dtype]:
        return t.shape, t.dtype

    def translate_to_neuron_dtype(self, _dtype: Any) -> np.dtype:
        """Raises nkisim.errors.DTypeError for a dtype that the kernel's dialect does not have."""
        if np.dtype(_dtype).name in self.kernel.dialect.wide:
            return np.dtype(_dtype)
        return dtypes.as_dtype(_dtype, f"kernel `{self.func_name}` got a tensor whose dtype")


def call(kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call ``kernel(*args, **kwargs)`` on JAX arrays or tracers.

    Args:
        kernel: the kernel, bound to its grid.
        args: positional arguments; at least one is a JAX array.
        kwargs: keyword arguments.

    Returns:
        What the kernel returns, with JAX arrays. An argument that the kernel writes and returns
        comes back as a new array.

    Raises:
        TypeError: a NumPy array is among them, the kernel writes an argument and does not return
            it, or (later, under ``grad``) the kernel is differentiated.
        ValueError: an array on a device that is not a CPU.
        nkisim.errors.KernelError: the kernel does what the hardware or compiler rejects.
    """
    bridge = JaxKernel(kernel)
    specialization, tensors = bridge.specialize(args, kwargs)
    for tensor in tensors:
        if isinstance(tensor, np.ndarray):
            raise TypeError(
                f"kernel `{bridge.func_name}` got both JAX arrays and a NumPy array of shape "
                f"{tensor.shape}, which an instance refuses. Convert it with jnp.asarray(x)."
            )
    program = specialization.program
    if isinstance(program, ProgramByData) and this_rank() is not None:
        raise TypeError(
            f"kernel `{bridge.func_name}` got JAX arrays in nkisim.run_ranks, whose ranks take "
            "NumPy arrays. Ranks of JAX are its devices: call the kernel under jax.shard_map."
        )
    returned = jax.tree.leaves(specialization.rebuild(list(range(len(program.outputs)))))
    for output, source in program.aliases.items():
        if output not in returned:
            raise TypeError(
                f"kernel `{bridge.func_name}` writes its argument `{program.inputs[source].name}` "
                "and does not return it. JAX arrays cannot be changed in place. Return it, or "
                "make the output in the kernel with nl.ndarray(..., buffer=nl.shared_hbm), or "
                "call jax_neuronx.nki_call(kernel, *inputs, out_shape=...)."
            )
    aliases = {source: output for output, source in program.aliases.items()}
    return specialization.rebuild(_custom_call(bridge, specialization, tensors, aliases))


def nki_call(
    kernel: Callable[..., Any],
    *args: Any,
    grid: Sequence[Any] = (),
    out_shape: Any = None,
    **kwargs: Any,
) -> Any:
    """Call a kernel of the old style, which takes its outputs as its last arguments.

    Args:
        kernel: a function ``kernel(*inputs, *outputs, **kwargs)``, or what ``nki.jit`` makes of it.
        args: the inputs.
        grid: the SPMD launch grid; an integer is a grid of one axis.
        out_shape: a ``jax.ShapeDtypeStruct``, or a pytree of them, one for each output argument.
            With None the kernel must return its outputs.
        kwargs: further keyword arguments of the kernel.

    Returns:
        The outputs, as arrays in the structure of ``out_shape``.

    Raises:
        TypeError: the kernel writes one of the inputs, or out_shape is something else.
        ValueError: the kernel never writes one of the outputs.
        nkisim.errors.KernelError: the kernel does what the hardware or compiler rejects.
    """
    bridge = JaxKernel(kernel, grid=grid if isinstance(grid, Sequence) else (grid,))
    if out_shape is None:
        return call(bridge.kernel, args, kwargs)
    leaves, structure = jax.tree.flatten(out_shape)
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(
                f"out_shape is {out_shape!r}, with a {type(leaf).__name__} in it. It has the shape "
                "and the dtype of each output. Pass jax.ShapeDtypeStruct(shape, dtype), or a tuple "
                "of them."
            )
    outputs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    specialization, tensors = bridge.specialize((*args, *outputs), kwargs)
    program = specialization.program
    is_output = [isinstance(tensor, jax.ShapeDtypeStruct) for tensor in tensors]
    written = {source: output for output, source in program.aliases.items()}
    for source, spec in enumerate(program.inputs):
        if is_output[source] and source not in written:
            raise ValueError(
                f"kernel `{bridge.func_name}` never writes its output argument `{spec.name}`. "
                "nki_call passes the inputs first, then one argument for each out_shape. Store "
                "into it, or leave it out of out_shape."
            )
        if source in written and not is_output[source]:
            raise TypeError(
                f"kernel `{bridge.func_name}` writes its input `{spec.name}`. JAX arrays cannot be "
                "changed in place. Write to an output argument and list it in out_shape."
            )
    operands = [t for t, output in zip(tensors, is_output, strict=True) if not output]
    results = _custom_call(bridge, specialization, operands, {})
    in_order = [results[written[i]] for i, output in enumerate(is_output) if output]
    return jax.tree.unflatten(structure, in_order)


def _custom_call(
    bridge: JaxKernel,
    specialization: Specialization,
    operands: Sequence[Any],
    aliases: dict[int, int],
) -> Sequence[jax.Array]:
    """One XLA custom call. ``aliases`` maps operands to the outputs that replace them."""
    program = specialization.program
    xla_ffi.register()
    for operand in operands:
        _check_device(bridge.func_name, operand)
    foreign_call = jax.ffi.ffi_call(
        xla_ffi.TARGET,
        [jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in program.outputs],
        vmap_method="sequential",
        input_output_aliases=aliases,
    )
    config = bridge.backend_config(specialization)

    def run(*tensors: Any) -> Sequence[jax.Array]:
        with jax.named_scope(bridge.func_name):  # for the metadata of the instruction
            return foreign_call(*tensors, config=config)

    if any(isinstance(operand, jax.core.Tracer) for operand in operands):
        run = _without_gradient(run, bridge.func_name)
    return run(*operands)


def _check_device(name: str, operand: Any) -> None:
    if isinstance(operand, np.ndarray | jax.core.Tracer):
        return
    platforms = {device.platform for device in operand.devices()}
    if platforms != {"cpu"}:
        raise ValueError(
            f"kernel `{name}` got an array on {', '.join(sorted(platforms))}. Without the Neuron "
            "SDK, kernels run in a CPU simulator. Use "
            "jax.device_put(x, jax.devices('cpu')[0]), or set JAX_PLATFORMS=cpu."
        )


def _without_gradient(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Replace JAX's own message for an opaque call by one that names the kernel and the fix."""

    @jax.custom_jvp
    def nki_kernel(*tensors: Any) -> Any:
        return run(*tensors)

    @nki_kernel.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise TypeError(
            f"NKI kernel `{name}` cannot be differentiated: JAX cannot see into it. Wrap the call "
            "in a function with jax.custom_vjp and define its backward pass."
        )

    return nki_kernel
