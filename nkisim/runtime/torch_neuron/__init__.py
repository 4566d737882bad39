"""PyTorch's `neuron` device on a machine without NeuronCores: a stand-in for TorchNeuron.

On a trn2 or trn3 with SDK 2.30 and later, `torch_neuronx` is a PyTorch backend: tensors are on
``torch.device("neuron")``, kernels take them, and ``torch.compile(backend="neuron")`` compiles what
is around the kernels. Here the same device keeps its tensors in the CPU's memory. Kernels run in
the simulator; all other operators of PyTorch run on the CPU, in the CPU's precision.

`set_up` makes the device. ``import torch_neuronx`` calls it, where the SDK's own is not installed.
"""

from nkisim.runtime.torch_neuron.device import set_up

__all__ = ["set_up"]
