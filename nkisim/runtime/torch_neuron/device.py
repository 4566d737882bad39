"""The device: its name, what `torch.neuron` has, and that it is set up once in a process."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
from torch.utils import backend_registration

NAME = "neuron"
_UNNAMED = "privateuseone"


class NeuronModule:
    """What `torch.neuron` is here: one device, which is done whenever Python goes on."""

    def is_available(self) -> bool:
        """Whether there is a device. Here that is the simulator."""
        return True

    def is_initialized(self) -> bool:
        """Whether the device can be used."""
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """One device a process, as on an instance: there a process has one logical core."""
        return 1

    def current_device(self) -> int:
        """The index of the only device."""
        return 0

    def set_device(self, device: Any) -> None:
        """Raises RuntimeError for another device than the only one."""
        index = device if isinstance(device, int) else torch.device(device).index
        if index not in (None, 0):
            raise RuntimeError(
                f"neuron:{index} is asked for, and a process has one device: neuron:0."
            )

    def device(self, device: Any) -> contextlib.AbstractContextManager[None]:
        """A context in which a device is the current one: the only one."""
        self.set_device(device)
        return contextlib.nullcontext()

    def get_device_name(self, device: Any = None) -> str:
        """Says that it is simulated."""
        return "NeuronCore, simulated by nkisim"

    def synchronize(self, device: Any = None) -> None:
        """Nothing to wait for: operators here return when they are done."""

    def current_stream(self, device: Any = None) -> None:
        """There are no streams."""

    def empty_cache(self) -> None:
        """Nothing is kept."""

    def manual_seed(self, seed: int) -> None:
        """Nothing: random numbers are the CPU generator's."""

    def manual_seed_all(self, seed: int) -> None:
        """Nothing: random numbers are the CPU generator's."""

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """The CPU generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Set the CPU generator's state."""
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """What `torch.autocast("neuron")` may cast to."""
        return [torch.bfloat16, torch.float16]


@functools.cache
def set_up() -> None:
    """Make ``torch.device("neuron")``. A second call does nothing.

    It must be called before the first backward pass of the process: PyTorch's autograd starts a
    thread for each device that there is then.

    Raises:
        RuntimeError: another library has made a device of its own in this process, and PyTorch has
            room for one.
        nkisim.runtime.torch_neuron.guard.NoCompilerError: torch 2.9, and no C++ compiler.
    """
    there = torch._C._get_privateuse1_backend_name()
    if there not in (_UNNAMED, NAME) or hasattr(torch, there):
        raise RuntimeError(
            f"this process has a PyTorch device {there!r} that another library made, and PyTorch "
            "has room for one. Import torch_neuronx in a process of its own."
        )
    prepare = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if prepare is not None:
        module = NeuronModule()
        prepare(NAME, backend_module=module)
        torch.accelerator.synchronize = module.synchronize  # a guard in Python has none
    else:
        from nkisim.runtime.torch_neuron import guard

        guard.load()
        torch.utils.rename_privateuse1_backend(NAME)
        torch._register_device_module(NAME, NeuronModule())
        torch.utils.generate_methods_for_privateuse1_backend()
    from nkisim.runtime.torch_neuron import copying, dynamo, operators

    operators.register()
    copying.register()
    dynamo.register_when_imported()
