"""Copies and checkpoints. PyTorch makes a device's storage by an allocator, which this one has not.

So a deep copy is a clone, and what is saved is the tensor's values and the name of its device, as
PyTorch saves tensors of XLA devices.
"""

from __future__ import annotations

from typing import Any

import torch

from nkisim.runtime.torch_neuron.memory import on_device

_deepcopy = torch.Tensor.__deepcopy__
_reduce = torch.Tensor.__reduce_ex__


def register() -> None:
    """Teach `copy.deepcopy`, `torch.save` and `pickle` the device's tensors."""
    torch.Tensor.__deepcopy__ = _copied  # type: ignore[method-assign]
    torch.Tensor.__reduce_ex__ = _reduced  # type: ignore[method-assign]
    torch.serialization.register_package(0, lambda storage: None, _loaded)


def _copied(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if self.device.type != "neuron" or not self.is_leaf or id(self) in memo:
        return _deepcopy(self, memo)  # which refuses what is no leaf
    new = memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
    new.__dict__.update(self.__dict__)
    if self.grad is not None:
        new.grad = _copied(self.grad, memo)
    return new


def _reduced(self: torch.Tensor, protocol: Any) -> Any:
    if self.device.type != "neuron":
        return _reduce(self, protocol)
    rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
    return rebuild, (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)


def _loaded(storage: Any, location: str) -> torch.UntypedStorage | None:
    """What torch.load read, on the device that its map_location names; None for another."""
    if not location.startswith("neuron"):
        return None
    values = torch.empty(0, dtype=torch.uint8).set_(storage)
    return on_device(values).untyped_storage()
