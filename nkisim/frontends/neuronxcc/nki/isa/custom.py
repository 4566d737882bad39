"""Operators that the SDK brings compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from nkisim.errors import UnsupportedError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor


def builtin_custom_op(
    function_name: str,
    lib_file_name: str,
    ulib_to_ucode_version: Any,
    ulib_to_isa_version: Any,
    srcs: Sequence[Tensor],
    dsts: Sequence[Tensor],
    **kwargs: Any,
) -> NoReturn:
    """Call a compiled operator of the SDK. Not simulated: the documentation has its signature only,
    and the operators are in the SDK.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        f"nisa.builtin_custom_op({function_name!r}, {lib_file_name!r}, ...)",
        rule="it calls an operator compiled for the GpSimd Engine, in a library of the SDK; only "
        "its signature is documented, so the simulator cannot know what the operator computes",
        fix="write the operator with nki.isa instructions, or in C++ for torch_neuronx's "
        "custom_op, which nkisim.customop runs",
    )


__all__ = ["builtin_custom_op"]
