"""Stand-in for ``torch_neuronx.utils``."""

from nkisim.machine.target import platform


def get_platform_target() -> str:
    """The platform that programs are compiled for, such as "trn1", "inf2" or "trn2".

    On an instance it is that of the instance. Here it is what NEURON_PLATFORM_TARGET_OVERRIDE
    says, or --target in NEURON_CC_FLAGS, and else "trn1", for which kernels of `neuronxcc.nki` are
    traced.

    Raises:
        ParameterError: the environment names no platform.
    """
    return platform()


__all__ = ["get_platform_target"]
