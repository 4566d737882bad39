"""Two tensors over the same memory: one on the CPU, one on the `neuron` device.

PyTorch takes tensors of other libraries by DLPack, a struct with an address and a kind of device.
For the kind "external device" it makes an ordinary strided tensor of the backend that has the
dispatch key PrivateUse1, which is `neuron` here. Nothing is copied, either way.
"""

from __future__ import annotations

import ctypes
import functools

import torch

_CPU, _EXTERNAL = 1, 12  # DLDeviceType: kDLCPU, kDLExtDev
_UNSIGNED = 1  # DLDataTypeCode: kDLUInt


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    # No deleter: it may run while an exception is in flight, where ctypes cannot call Python.
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_capsule = ctypes.pythonapi["PyCapsule_New"]  # not the attribute, which other libraries change
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_BYTE = _DType(_UNSIGNED, 8, 1)
# The CPU's own code, which looks at strides and storage only, serves tensors of any device.
_set = functools.partial(
    torch.ops.aten.set_.source_Storage_storage_offset._op_dk, torch._C.DispatchKey.CPU
)
_empty: dict[int, torch.Tensor] = {}  # by device, bytes


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of one on the device. It has no autograd history."""
    return _alias(tensor, _CPU)


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the device over the memory of one on the CPU. It has no autograd history."""
    if tensor.layout is not torch.strided:
        raise NotImplementedError(
            f"an operator gives a tensor of layout {tensor.layout}, and those on the neuron device "
            "are dense. Use x.cpu() before the operator."
        )
    return _alias(tensor, _EXTERNAL)


def _alias(tensor: torch.Tensor, device: int) -> torch.Tensor:
    storage = tensor.untyped_storage()
    if device not in _empty:
        _empty[device] = _bytes(0, 0, device)
    whole = _bytes(storage.data_ptr(), storage.nbytes(), device).untyped_storage()
    # PyTorch keeps the Python object of a storage as long as the storage.
    whole._owner = storage  # type: ignore[attr-defined]
    with torch._C._AutoDispatchBelowADInplaceOrView():  # else autograd takes it for a view
        new = torch.ops.aten.view.dtype(_empty[device], tensor.dtype)
        return _set(new, whole, tensor.storage_offset(), tensor.shape, tensor.stride())


def _bytes(address: int, size: int, device: int) -> torch.Tensor:
    """The bytes at an address."""
    shape, strides = (ctypes.c_int64 * 1)(size), (ctypes.c_int64 * 1)(1)
    managed = _Managed()
    described = managed.tensor
    described.data = address or None
    described.device.type = device
    described.ndim, described.dtype = 1, _BYTE
    described.shape, described.strides = shape, strides
    new = torch._C._from_dlpack(_capsule(ctypes.addressof(managed), b"dltensor", None))
    described_by = managed, shape, strides
    new.untyped_storage()._described = described_by  # type: ignore[attr-defined]
    return new
