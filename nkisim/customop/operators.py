"""Makes operators of a loaded library callable: ``torch.ops.my_ops.giou`` on CPU, Meta and XLA.

The public operator is defined once. What it executes is looked up in each call, so that loading a
new version of a library replaces the old one in the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from nkisim.customop.runtime import KernelFunction
from nkisim.errors import ParameterError

TARGET = "AwsNeuronCustomOp"
"""Custom-call target by which the Neuron compiler knows custom C++ operators."""


@dataclass(frozen=True)
class CustomOperator:
    """An operator of a library.

    Attributes:
        name: "namespace::operator".
        schema: arguments and result, "(Tensor _0, Tensor _1) -> Tensor".
        shape: the shape function, a PyTorch operator.
        kernel: the compiled kernel function.
        kernel_name: the C++ name of it.
        digest: names the build.
    """

    name: str
    schema: str
    shape: Callable[..., torch.Tensor]
    kernel: KernelFunction
    kernel_name: str
    digest: str

    def output_like(self, arguments: tuple[Any, ...]) -> torch.Tensor:
        """A tensor without data, of the shape and dtype of the output.

        The shape function gets tensors without data too: on a device it has no others.
        """
        bare = [
            torch.empty_like(x, device="meta") if isinstance(x, torch.Tensor) else x
            for x in arguments
        ]
        shaped = self.shape(*bare)
        return torch.empty(shaped.shape, dtype=shaped.dtype, device="meta")

    def run(self, *arguments: Any) -> torch.Tensor:
        """On CPU tensors: the processors, simulated."""
        output = torch.empty_like(self.output_like(arguments), device="cpu")
        ready = [x.contiguous() if isinstance(x, torch.Tensor) else x for x in arguments]
        self.kernel.run(ready, output)
        return output

    def lower(self, *arguments: Any) -> torch.Tensor:
        """On XLA tensors: fetched, run and sent back; a custom call where HLO is wanted."""
        import torch_xla

        from nkisim.runtime.frameworks import torch as bridge

        device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
        if not bridge.is_lowering():
            host = [x.cpu() if isinstance(x, torch.Tensor) else x for x in arguments]
            return self.run(*host).to(device)
        like = self.output_like(arguments)
        # Numbers travel as tensors, as in the SDK.
        operands = [
            x if isinstance(x, torch.Tensor) else torch.tensor(x, device=device) for x in arguments
        ]
        (result,) = torch_xla._XLAC._xla_custom_call(
            operands, TARGET, [list(like.shape)], [like.dtype], False, self.config, 0, {}
        )
        return result

    @property
    def config(self) -> str:
        """The call's ``backend_config``: text in the SDK's form.

        The SDK adds the paths of the device libraries and two versions of its toolchain, which
        there are none of here.
        """
        return f"version=1.0;name={self.kernel_name};hash={self.digest};"


_current: dict[str, CustomOperator] = {}
_libraries: dict[str, tuple[str, torch.library.Library]] = {}


def register(operator: CustomOperator) -> None:
    """Make an operator callable as ``torch.ops.<namespace>.<name>``, in place of an older one.

    Raises:
        ParameterError: another library has an operator of this name with other arguments.
    """
    known = _libraries.get(operator.name)
    if known is None:
        _libraries[operator.name] = operator.schema, _define(operator)
    elif known[0] != operator.schema:
        raise ParameterError(
            f"operator {operator.name} is loaded already, as {known[0]}, and is now "
            f"{operator.schema}.",
            rule="within a process an operator keeps its arguments.",
            fix="restart Python, or register it under another name in NEURON_LIBRARY.",
        )
    _current[operator.name] = operator


def _define(operator: CustomOperator) -> torch.library.Library:
    namespace, _, name = operator.name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(name + operator.schema)
    key = operator.name

    def on_cpu(*arguments: Any) -> torch.Tensor:
        return _current[key].run(*arguments)

    def on_meta(*arguments: Any) -> torch.Tensor:
        return _current[key].output_like(arguments)

    def on_xla(*arguments: Any) -> torch.Tensor:
        return _current[key].lower(*arguments)

    library.impl(name, on_cpu, "CPU")
    library.impl(name, on_meta, "Meta")
    library.impl(name, on_xla, "XLA")
    return library
