"""Makes PyTorch's XLA device, where there is one. To be imported before any backward pass: autograd
knows only the devices that exist when it first runs."""

import contextlib

with contextlib.suppress(ImportError):
    import torch_xla

    torch_xla.device()
