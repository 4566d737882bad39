"""Run an operator once, forward and backward, and compare it with NumPy.

    python -m kernels add
    python -m kernels rmsnorm --framework torch

The kernels are launched on NumPy arrays, which needs no framework; with ``--framework`` the
package's operator of PyTorch or JAX is called, and differentiated by it. On a Neuron instance the
kernels run on the device, elsewhere in the simulator. The exit status is 1 when a value or a
gradient is off by more than the tolerance of float32.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Iterator

import numpy as np

import kernels
from kernels.arrays import FRAMEWORKS, Framework, error_in_tolerances
from kernels.installed import check_alone
from kernels.operators import Operator, backward, forward, operators

check_alone()


def compared(
    operator: Operator, framework: Framework
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Run an operator in float32.

    Yields:
        What was computed, "result" or "gradient 0" and so on, its value, and NumPy's. The backward
        kernel gets what the forward kernel keeps for it.
    """
    arrays = operator.arrays("float32")
    expected = operator.reference(*arrays)
    # The gradient of half the sum of squares: not constant.
    wanted = (expected, *operator.gradients(expected, *arrays))
    with warnings.catch_warnings():
        # Windows of 2 leave out the last one of an odd number of rows, as in every framework.
        warnings.filterwarnings("ignore", ".* are never read")
        found = (
            forward(operator, framework, arrays),
            *backward(operator, framework, arrays, expected),
        )
    names = ["result", *(f"gradient {number}" for number in range(len(arrays)))]
    yield from zip(names, found, wanted, strict=True)


def errors(operator: Operator, framework: Framework) -> dict[str, float]:
    """What was compared, and its largest error in tolerances: up to 1 is right."""
    return {
        f"{name} {got.shape}": error_in_tolerances(got, want, np.float32)
        for name, got, want in compared(operator, framework)
    }


def main(arguments: list[str] | None = None) -> int:
    known = operators()
    names = list(dict.fromkeys(operator.package for operator in known))
    parser = argparse.ArgumentParser(prog="python -m kernels", description=__doc__.splitlines()[0])
    parser.add_argument("operator", choices=names)
    parser.add_argument("--framework", choices=FRAMEWORKS, default="numpy")
    chosen = parser.parse_args(arguments)
    framework = chosen.framework
    if importlib.util.find_spec(framework) is None:
        parser.error(
            f"--framework {framework}: the package {framework} is not installed. Install this one "
            f"with its extra, pip install '.[{framework}]' in a checkout, or leave the option out: "
            "the kernels run on NumPy arrays."
        )
    runs = "the Neuron SDK" if kernels.backend == "neuronxcc" else kernels.backend
    worst = 0.0
    for operator in known:
        if operator.package != chosen.operator:
            continue
        print(f"{operator.name} in {framework}, kernels run by {runs}")
        for what, error in errors(operator, framework).items():
            print(f"  {what}: {'right' if error <= 1 else 'WRONG'}, {error:.2g} of the tolerance")
            worst = max(worst, error)
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
