"""Arrays of NumPy, PyTorch and JAX: from one to another, and how closely results must agree."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import kernels

if TYPE_CHECKING:
    import torch

Framework = Literal["numpy", "torch", "jax"]
FRAMEWORKS: tuple[Framework, ...] = ("numpy", "torch", "jax")

MAKES_TORCH_DEVICE = {"neuronxcc": "torch_xla", "nki": "torch_neuronx"}
"""The package that gives PyTorch its device (:func:`torch_device`), by dialect."""

# Relative and absolute tolerance: of float32 as a kernel needs it that adds in another order than
# NumPy, of the others as in torch.testing.assert_close (float8: half a step).
_TOLERANCES = {
    "float64": (1e-5, 1e-6),
    "float32": (1e-5, 1e-6),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float8_e4m3": (6.3e-2, 1e-5),
    "float8_e5m2": (1.3e-1, 1e-5),
}

# On a device activation functions are piecewise polynomials, and a division is a multiplication by
# a reciprocal (NKI API reference, nki.api.shared): float32 results are compared to about 3 digits.
_ON_A_DEVICE = (1e-3, 1e-4)


def tolerance(dtypes: Iterable[Any]) -> tuple[float, float]:
    """The default relative and absolute tolerance: that of the coarsest dtype among these.

    Args:
        dtypes: of the data and of the expected result, NumPy's; integers have no tolerance. Where
            the Neuron SDK runs the kernels, it is at least that of a device.
    """
    found = [_TOLERANCES[d.name] for d in map(np.dtype, dtypes) if d.name in _TOLERANCES]
    if kernels.backend != "nkisim":
        found.append(_ON_A_DEVICE)
    return max(found, default=(0.0, 0.0))


def error_in_tolerances(got: np.ndarray, expected: np.ndarray, dtype: Any) -> float:
    """The largest difference between two results, in units of the tolerance: up to 1 is right.

    Absolute differences are measured by the largest value, since a sum that cancels has the
    rounding of its terms.

    Args:
        got, expected: arrays of one shape.
        dtype: of the arguments, NumPy's.

    Returns:
        The difference; infinity where one is NaN or infinite and the other is not.
    """
    return float(_in_tolerances(got, expected, dtype).max(initial=0.0))


def first_wrong(got: np.ndarray, expected: np.ndarray, dtype: Any) -> str:
    """Where two results differ first by more than the tolerance, and what is there.

    Args:
        got, expected, dtype: as for :func:`error_in_tolerances`; the shapes may differ.

    Returns:
        Such as "first wrong at [128, 0]: 0.13, should be 0.52, ..."; "" where all is right.
    """
    if got.shape != expected.shape:
        return f"of shape {got.shape}, should be {expected.shape}"
    errors = _in_tolerances(got, expected, dtype)
    wrong = np.argwhere(errors > 1)
    if not len(wrong):
        return ""
    at = tuple(map(int, wrong[0]))
    one, other = float(got[at]), float(expected[at])
    return (
        f"first wrong at {list(at)}: {one:.6g}, should be {other:.6g}; {len(wrong):,} of "
        f"{got.size:,} are wrong, by up to {errors.max():.2g} times the tolerance"
    )


def _in_tolerances(got: np.ndarray, expected: np.ndarray, dtype: Any) -> np.ndarray:
    rtol, atol = tolerance([dtype, expected.dtype])
    found, wide = got.astype(np.float64), expected.astype(np.float64)
    largest = np.abs(wide[np.isfinite(wide)]).max(initial=1.0)
    with np.errstate(invalid="ignore", divide="ignore"):  # infinities, and integers' tolerance 0
        errors = np.abs(found - wide) / (max(atol, rtol * largest) + rtol * np.abs(wide))
    same = (found == wide) | (np.isnan(found) & np.isnan(wide))
    bad = ~np.isfinite(wide) | np.isnan(errors)
    return np.where(same, 0.0, np.where(bad, np.inf, errors))


def torch_device() -> torch.device:
    """PyTorch's device for the kernels of ``kernels.dialect``.

    Returns:
        In ``neuronxcc.nki`` the device of PyTorch/XLA; in ``import nki`` ``neuron``, which
        torch_neuronx makes: the SDK's, or the simulator's in its place.

    Raises:
        ImportError: the package that makes it is not installed.
    """
    if kernels.dialect == "nki":
        import torch
        import torch_neuronx  # noqa: F401  makes the device

        return torch.device("neuron")
    import torch_xla

    return torch_xla.device()


def frameworks_of_device() -> tuple[Framework, ...]:
    """NumPy, and those frameworks that are installed with what takes them to a device."""
    needs = {"torch": ("torch", MAKES_TORCH_DEVICE[kernels.dialect]), "jax": ("jax",)}
    return tuple(f for f in FRAMEWORKS if all(map(find_spec, needs.get(f, ()))))


def from_numpy(value: Any, framework: Framework) -> Any:
    """`value` as an array of the framework, if it is a NumPy array.

    Tensors of PyTorch are on its device (:func:`torch_device`) where the Neuron SDK runs the
    kernels, and on the CPU where the simulator does.
    """
    if framework == "numpy" or not isinstance(value, np.ndarray):
        return value
    if framework == "torch":
        import torch

        if value.dtype.name == "bfloat16":  # which torch.from_numpy does not know
            tensor = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(value)
        return tensor if kernels.backend == "nkisim" else tensor.to(torch_device())
    import jax.numpy as jnp

    return jnp.asarray(value)


def to_numpy(value: Any) -> Any:
    """A NumPy array of an array of any framework; containers element by element; numbers too."""
    if isinstance(value, tuple | list):
        return tuple(to_numpy(v) for v in value)
    if hasattr(value, "detach"):  # torch, also on another device
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes

            return value.float().numpy().astype(ml_dtypes.bfloat16)
        return value.numpy()
    return np.asarray(value)
