"""PyTorch's `neuron` device, as TorchNeuron 2.14 has it: what it refuses, and what it has not.

Tensors, operators and `torch.compile` are those of the simulator's copy. Every kernel on tensors,
in eager code and in a compiled graph, passes `call` below.
"""

from __future__ import annotations

import rehearsal_rules as rules
import torch
from stand_in_nkisim.numerics.program import Program
from stand_in_nkisim.runtime.frameworks import torch as bridge
from stand_in_nkisim.runtime.kernel import as_kernel
from stand_in_nkisim.runtime.torch_neuron import device, dynamo, memory, operators, set_up
from stand_in_nkisim.runtime.torch_neuron import nki_op as of_simulator
from stand_in_nkisim.trace.arguments import leaves

operators._say_what_runs_where = lambda: None  # operators are the device's
device.NeuronModule.get_device_name = lambda self, device=None: "Trainium2"
set_up()

_call, _run, _compile = bridge.call, bridge._run, dynamo.compile_for_neuron
_compiled = set()


def _compiles(what) -> None:
    """Count what neuronx-cc would compile now: a kernel once for its arguments, a graph once."""
    if what not in _compiled:
        _compiled.add(what)
        rules.count_program("torch")


def call(kernel, args, kwargs):
    """A kernel on tensors, or what takes their place while a graph is recorded."""
    for value in leaves((args, kwargs)):
        if isinstance(value, torch.Tensor) and value.device.type not in ("neuron", "meta"):
            raise RuntimeError(
                f"NKI kernel execution failed: {kernel.__name__} got a tensor on {value.device}"
            )  # [11]
    rules.check_cores(kernel.__name__, kernel.grid.size)
    return rules.as_on_a_device(lambda: _call(kernel, args, kwargs))


def run(program: Program, tensors, where):
    """A launch: `bridge` asks it of tensors on the device, and then of those on the CPU."""
    if where.type == "neuron":
        rules.claim("torch")
        rules.count_launch()
        _compiles(program.digest)
    return _run(program, tensors, where)


def compile_for_neuron(graph, inputs, **options):
    """The backend, which compiles a graph for each set of shapes."""
    _compiles(object())
    return _compile(graph, inputs, **options)


def used() -> bool:
    """Whether the process has had a tensor on the device, and so the NeuronCores."""
    return memory._EXTERNAL in memory._empty


bridge.call, bridge._run, dynamo.compile_for_neuron = call, run, compile_for_neuron


_checked = rules.NkiKernel.__call__


def launch(kernel, *args, **kwargs):
    """A call of a kernel. PyTorch's compiler reads it: with tensors, so, it has no checks."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return rules.inner(kernel)(*args, **kwargs)
    return _checked(kernel, *args, **kwargs)


rules.NkiKernel.__call__ = launch


def nki_op(name, fn=None, mutates_args=()):
    """`torch_neuronx.nki_op`: `name`, `fn`, `mutates_args` [11]."""
    if fn is None:
        return lambda function: nki_op(name, function, mutates_args)
    return of_simulator.nki_op(name, fn, mutates_args)


synchronize = torch.neuron.synchronize  # as torch_neuronx has it, in many programs that time calls


def wrap_nki(kernel, **options):
    """`torch_neuronx.wrap_nki`. Cores that the kernel is bound to are lost: those of the wrapper
    count, by default one [12]."""
    return rules.NkiKernel(as_kernel(rules.inner(kernel), **options)[1], "auto")
