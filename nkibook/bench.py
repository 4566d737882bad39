"""Wall-clock timing of a call, in a record that says where and how it was measured.

Nothing here returns a bare float, but a :class:`~nkibook.records.Record`; what that module makes of
other times is here, too. On a machine without a Neuron device every measurement is of the host,
also when the call runs an NKI kernel: then the time is that of the simulator, and the record says
so.

``python -m nkibook.bench`` compares the simulated operators with their references in NumPy.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import kernels
from kernels.arrays import MAKES_TORCH_DEVICE, error_in_tolerances
from kernels.logical_core import instance_type
from nkibook.options import output_file, positive
from nkibook.records import (
    Kind,
    Record,
    bound,
    dma_bound,
    format_seconds,
    from_json,
    modelled,
    published,
    read_json,
    write_json,
)

__all__ = [
    "Kind",
    "Record",
    "benchmark",
    "bound",
    "describe_backend",
    "describe_machine",
    "describe_versions",
    "dma_bound",
    "format_seconds",
    "from_json",
    "interleave",
    "modelled",
    "published",
    "read_json",
    "wait",
    "write_json",
]

_BACKENDS = {
    "nkisim": "NKI kernels run on nkisim here: the simulator's time, not a NeuronCore's",
    "neuronxcc": "NKI kernels run on the Neuron SDK here",
}


def benchmark(
    f: Callable[..., Any],
    *args: Any,
    label: str | None = None,
    warmup: int = 3,
    iters: int = 20,
) -> Record:
    """Time ``f(*args)`` by the wall clock, until its result is ready.

    Warm-up calls come first and are not counted: they trace a kernel, fill caches and compile.
    Each timed call ends when its result exists, also on frameworks that return before the work
    is done: JAX arrays, and PyTorch tensors on neuron, XLA and CUDA devices are waited for.

    Args:
        f: what to time.
        *args: passed to ``f``.
        label: name of the record; ``f.__name__`` by default.
        warmup: calls before the first timed one, 1 or more. The first call of a kernel traces it.
        iters: timed calls, 1 or more.

    Raises:
        ValueError: when warmup or iters is below 1.
    """
    label = str(label or getattr(f, "__name__", type(f).__name__))
    return interleave({label: functools.partial(f, *args)}, warmup=warmup, iters=iters)[label]


def interleave(
    calls: Mapping[str, Callable[[], Any]], *, warmup: int = 3, iters: int = 20
) -> dict[str, Record]:
    """Time several calls in turns, so that a disturbance of the machine meets all of them.

    One round calls each of them once. The order moves on by one from round to round, so none
    always runs after the same other.

    Args:
        calls: what to time, by its label; called without arguments.
        warmup: rounds before the first timed one, 1 or more.
        iters: timed rounds, 1 or more.

    Returns:
        A record for each label, with ``iters`` samples, in the order of ``calls``.

    Raises:
        ValueError: when calls is empty, or warmup or iters is below 1.
    """
    for name, value in (("warmup", warmup), ("iters", iters)):
        if value < 1:
            raise ValueError(f"{name} is {value}: it must be 1 or more.")
    if not calls:
        raise ValueError("calls is empty: interleave needs at least one thing to time.")
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    kinds: dict[str, Kind] = {}
    for _ in range(warmup):
        for name in names:
            result = calls[name]()
            wait(result)
            kinds[name] = Kind.DEVICE if _on_neuron(result) else Kind.HOST
            del result
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn in range(iters):
            for shift in range(len(names)):
                name = names[(turn + shift) % len(names)]
                start = time.perf_counter()
                result = calls[name]()
                wait(result)
                samples[name].append(time.perf_counter() - start)
                # Freeing the result is not part of the call.
                del result
    finally:
        if collecting:
            gc.enable()
    others = len(names) - 1
    turns = f", in turns with {others} other{'s' * (others > 1)}" if others else ""
    how = f"median of {iters} calls after {warmup} for warm-up{turns}, 20th to 80th percentile"
    backend, where, versions = describe_backend(), describe_machine(), describe_versions()
    today = datetime.date.today().isoformat()
    return {
        name: Record(
            label=name,
            kind=kinds[name],
            samples=tuple(samples[name]),
            how=how + (", dispatch included" if kinds[name] is Kind.DEVICE else ""),
            backend=backend,
            machine=where,
            versions=versions,
            date=today,
        )
        for name in names
    }


def describe_machine() -> str:
    """Return the processor, its core count and the operating system of this host."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        processor = names[0].split(":", 1)[1].strip() if names else processor
    where = f"{instance_type()}, " if instance_type() else ""
    return f"{where}{processor}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"


def describe_versions() -> dict[str, str]:
    """Return the version of Python, of the NKI backend, and of each framework in use."""
    versions = {"Python": platform.python_version(), kernels.backend: kernels.backend_version}
    for name in ("numpy", "torch", MAKES_TORCH_DEVICE[kernels.dialect], "jax"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def describe_backend() -> str:
    """Return a sentence on what runs NKI kernels in this process."""
    return _BACKENDS[kernels.backend]


def _leaves(result: Any) -> Iterable[Any]:
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for part in result:
            yield from _leaves(part)
    else:
        yield result


def wait(result: Any) -> None:
    """Return when the arrays in a result exist, on frameworks that compute in the background.

    Args:
        result: an array of any framework, or a list, tuple or mapping of them, nested at will.
    """
    device_types = set()
    for leaf in _leaves(result):
        if hasattr(leaf, "block_until_ready"):  # a JAX array
            leaf.block_until_ready()
        elif _is_torch_tensor(leaf):
            device_types.add(leaf.device.type)
    if "xla" in device_types:
        import torch_xla
        import torch_xla.core.xla_model as xm

        torch_xla.sync(wait=True)
        xm.wait_device_ops()
    for kind in device_types & {"cuda", "neuron"}:
        getattr(sys.modules["torch"], kind).synchronize()


def _on_neuron(result: Any) -> bool:
    """Say whether an array in a result lives on a Neuron device."""
    for leaf in _leaves(result):
        if _is_torch_tensor(leaf):
            if leaf.device.type == "neuron":
                return kernels.backend != "nkisim"
            if leaf.device.type == "xla":
                import torch_xla.runtime as runtime

                return runtime.device_type() == "NEURON"
        elif hasattr(leaf, "block_until_ready"):
            return any(device.platform == "neuron" for device in leaf.devices())
    return False


def _is_torch_tensor(value: Any) -> bool:
    # A tensor can only exist once torch is imported, so torch need not be imported to ask.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare simulated kernels, forward and after their first call, with plain NumPy."""
    parser = argparse.ArgumentParser(prog="python -m nkibook.bench", description=main.__doc__)
    parser.add_argument(
        "--iters", type=positive, default=30, help="timed rounds (default %(default)s)"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=output_file, help="also write every sample as JSON"
    )
    options = parser.parse_args(argv)

    from nkibook.bench_cases import cases

    records: list[Record] = []
    for case in cases():
        plain, kernel = case.names
        expected, actual = np.asarray(case.plain()), np.asarray(case.kernel())
        if error_in_tolerances(actual, expected, expected.dtype) > 1:
            raise RuntimeError(f"{kernel} differs from {plain}.")
        pair = interleave({plain: case.plain, kernel: case.kernel}, iters=options.iters)
        ratio = pair[kernel].median / pair[plain].median
        print(f"{pair[plain]}\n{pair[kernel]}\nratio of the medians: {ratio:.2f}\n")
        records.extend(pair.values())
    print(records[0].caption)
    if options.json:
        write_json(records, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
