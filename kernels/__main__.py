"""Run an operator once, forward and backward, and compare it with the framework's own expression.

    python -m kernels add --framework torch
    python -m kernels rmsnorm --framework jax

On a Neuron instance the kernels run on the device, elsewhere in the simulator. The exit status is 1
when a value or a gradient is off by more than the tolerance, which is that of float32 on a device.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import kernels

RTOL = ATOL = 1e-3


def _boxes(rng: np.random.Generator) -> np.ndarray:
    low = rng.uniform(0, 100, (300, 2))
    return np.concatenate([low, low + rng.uniform(1, 50, (300, 2))], 1)


def _inputs(operator: str) -> list[np.ndarray]:
    """Arguments of odd sizes, the same in every run."""
    rng = np.random.default_rng(0)
    makers: dict[str, Callable[[], Any]] = {
        "add": lambda: rng.standard_normal((2, 300, 700)),
        "avgpool": lambda: rng.standard_normal((1, 2, 5, 17, 19)),
        "giou": lambda: [_boxes(rng), _boxes(rng)],
        "rmsnorm": lambda: [rng.standard_normal((300, 700)), rng.standard_normal(700)],
    }
    return [np.asarray(array, np.float32) for array in makers[operator]()]


def _apply(operator: str, module: Any) -> Callable:
    """The operator of the package; the window of the pooling is 3 x 3 with stride 2."""
    operators: dict[str, Callable] = {
        "add": lambda a, b: module.add(a, b),
        "avgpool": lambda x: module.avg_pool2d(x, 3, 2),
        "giou": lambda a, b: module.giou(a, b),
        # torch.nn.functional.rms_norm takes the normalised shape, too, and so does ours.
        "rmsnorm": lambda x, weight: (
            module.rms_norm(x, weight.shape, weight)
            if module.__name__.endswith("torch_op")
            else module.rms_norm(x, weight)
        ),
    }
    return operators[operator]


def _plain(operator: str, xp: Any) -> Callable:
    """The same in the operators of torch or jax.numpy."""

    def avgpool(x: Any) -> Any:
        height, width = (1 + (size - 3) // 2 for size in x.shape[-2:])
        parts = [
            x[..., v : v + 2 * height - 1 : 2, u : u + 2 * width - 1 : 2]
            for v in range(3)
            for u in range(3)
        ]
        return sum(parts) / 9

    def giou(p: Any, q: Any) -> Any:
        def area(low: Any, high: Any) -> Any:
            sides = (high - low) * (high > low)
            return sides[:, 0] * sides[:, 1]

        both = area(xp.maximum(p[:, :2], q[:, :2]), xp.minimum(p[:, 2:], q[:, 2:]))
        hull = area(xp.minimum(p[:, :2], q[:, :2]), xp.maximum(p[:, 2:], q[:, 2:]))
        union = area(p[:, :2], p[:, 2:]) + area(q[:, :2], q[:, 2:]) - both
        return both / union - (hull - union) / hull

    operators: dict[str, Callable] = {
        "add": lambda a, b: a + b,
        "avgpool": avgpool,
        "giou": giou,
        "rmsnorm": lambda x, w: x / xp.sqrt((x * x).mean(-1)[:, None] + 1e-5) * w,
    }
    return operators[operator]


def _in_torch(function: Callable, inputs: list[np.ndarray], device: Any) -> list[np.ndarray]:
    """The result and the gradients of the sum of its squares, on the device named."""
    import torch

    leaves = [torch.tensor(array, device=device).requires_grad_() for array in inputs]
    result = function(*leaves)
    gradients = torch.autograd.grad((result * result).sum(), leaves)
    return [tensor.detach().cpu().numpy() for tensor in (result, *gradients)]


def _in_jax(function: Callable, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The result and the gradients of the sum of its squares."""
    import jax

    def loss(*arrays: Any) -> tuple[Any, Any]:
        result = function(*arrays)
        return (result * result).sum(), result

    step = jax.jit(jax.value_and_grad(loss, tuple(range(len(inputs))), has_aux=True))
    (_, result), gradients = step(*inputs)
    return [np.asarray(array) for array in (result, *gradients)]


def compare(operator: str, framework: str) -> dict[str, float]:
    """The largest error of the result and of each gradient, relative to RTOL and ATOL.

    Args:
        operator: add, avgpool, giou or rmsnorm.
        framework: torch or jax.

    Returns:
        What was compared, and its error in tolerances: up to 1 is right.
    """
    inputs = _inputs(operator)
    module = importlib.import_module(f"kernels.{operator}.{framework}_op")
    ours, plain = _apply(operator, module), None
    if framework == "torch":
        import torch

        device: Any = "cpu"
        if kernels.backend != "nkisim":
            import torch_xla

            device = torch_xla.device()
        plain = _in_torch(_plain(operator, torch), inputs, "cpu")
        found = _in_torch(ours, inputs, device)
    else:
        import jax.numpy as jnp

        plain = _in_jax(_plain(operator, jnp), inputs)
        found = _in_jax(ours, inputs)
    names = ["result", *(f"gradient {number}" for number in range(len(inputs)))]
    return {
        f"{name} {got.shape}": float((np.abs(got - want) / (ATOL + RTOL * np.abs(want))).max())
        for name, got, want in zip(names, found, plain, strict=True)
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels", description=__doc__.splitlines()[0])
    parser.add_argument("operator", choices=["add", "avgpool", "giou", "rmsnorm"])
    parser.add_argument("--framework", choices=["torch", "jax"], default="torch")
    chosen = parser.parse_args(arguments)
    errors = compare(chosen.operator, chosen.framework)
    print(f"{chosen.operator} in {chosen.framework}, kernels run by {kernels.backend}")
    for what, error in errors.items():
        print(f"  {what}: {'right' if error <= 1 else 'WRONG'}, {error:.2g} of the tolerance")
    return 0 if max(errors.values()) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
