"""Device time of a kernel on a Neuron instance, told apart from what a framework's call adds.

``python -m nkibook.device --json measured.json`` measures the book's kernels on an inf2 or trn1
instance. ``python -m nkibook.device --all measured.json`` measures, on any instance, what the
pages show beside the model; in `import nki` these are whole calls.
``python -m nkibook.device --compare measured.json``, on any machine, holds those of ``--json``
against the cost model. Without a device nothing is measured, and the command says so.
"""

from __future__ import annotations

import argparse
import datetime
import html
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

import kernels
from kernels.arrays import frameworks_of_device, from_numpy, torch_device
from kernels.logical_core import cores, instance
from kernels.logical_core import cores_per_launch as cores_per_launch  # for the pages
from nkibook import bench
from nkibook.bench import Kind, Record
from nkibook.options import input_file, output_file

MEASURED = "measured.json"
"""What the pages show beside the model: in the current folder, else in that of the book."""

BOOK = Path(__file__).resolve().parents[1]


class NoDeviceError(RuntimeError):
    """There is no Neuron device to measure on, or nothing that tells its time."""


NO_BENCHMARK = (
    "`import nki` has no nki.benchmark, so a program cannot read the device time of its launches. "
    "`python -m nkibook.device --all measured.json` times whole calls; nrtpy and "
    'neuron-explorer time a compiled kernel: see the page "Set up".'
)


def on_device(op: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call an operator on PyTorch's device with tensors from the CPU, and fetch its result.

    The device is that of the dialect: `kernels.arrays.torch_device`.

    Args:
        op: a kernel, or any function of tensors.
        *args, **options: its arguments; tensors among `args` are moved to the device. Autograd
            goes through: gradients of tensors on the CPU arrive on the CPU.

    Returns:
        What `op` returns, with its tensors on the CPU; of several a tuple.
    """
    import torch

    device = torch_device()
    moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]
    result = op(*moved, **options)
    if isinstance(result, tuple | list):
        return tuple(r.cpu() for r in result)
    return result.cpu()


def _need_device() -> None:
    if kernels.backend != "neuronxcc":
        raise NoDeviceError(
            "no Neuron SDK on this machine, so there is no device time to measure. Run this on an "
            "inf2, trn1 or trn2 instance; nkibook.bench.modelled(label, nkisim.profile(kernel, "
            "...)) gives what the cost model says."
        )


def measure(
    kernel: Callable[..., Any],
    *args: Any,
    grid: tuple[int, ...] | int = (),
    label: str | None = None,
    warmup: int = 5,
    iters: int = 20,
) -> Record:
    """Measure the device time of a kernel on a NeuronCore.

    `nki.benchmark` is a runtime of its own: a process that measures uses no framework on the
    device.

    Args:
        kernel: an `nki.jit` kernel.
        *args: its arguments; tensors as NumPy arrays, of which only shape and dtype matter.
        grid: launch grid; empty for none.
        label: name of the record, before ": device"; the kernel's by default.
        warmup: launches before the first that counts.
        iters: launches that count.

    Returns:
        Device time, as `nki.benchmark` reports it (nc_latency: 10th, 50th and 90th percentile).

    Raises:
        NoDeviceError: the Neuron SDK is not there, so the kernel would run on the simulator; or it
            is one whose kernels are in `import nki`, which has no `nki.benchmark`.
    """
    _need_device()
    if kernels.dialect == "nki":
        raise NoDeviceError(NO_BENCHMARK)
    from neuronxcc import nki

    name = label or getattr(kernel, "__name__", type(kernel).__name__)
    timed = nki.benchmark(warmup=warmup, iters=iters)(kernel)
    timed = timed[grid] if grid else timed
    timed(*args)
    latency = timed.benchmark_result.nc_latency
    found = tuple(latency.get_latency_percentile(p) / 1e6 for p in (10, 50, 90))
    how = (
        f"nki.benchmark, 10th, 50th and 90th percentile of {iters} launches after {warmup} for "
        "warm-up, launch included"
    )
    return _record(f"{name}: device", Kind.CORE, found, how)


def measure_calls(
    launch: Launch, framework: Literal["numpy", "torch", "jax"], iters: int = 20
) -> list[Record]:
    """Measure what a call takes in a framework, by the wall clock, until its result is there.

    Args:
        launch: the kernel, its arguments and its grid.
        framework: "torch" or "jax".
        iters: calls that count.

    Returns:
        The first call (trace, compile, load and run), and later calls.

    Raises:
        NoDeviceError: the Neuron SDK is not there.
    """
    _need_device()
    args = [from_numpy(a, framework) for a in launch.args]
    kernel = launch.kernel[launch.grid] if launch.grid else launch.kernel
    start = time.perf_counter()
    bench.wait(kernel(*args))
    first = time.perf_counter() - start
    how = "one call: trace, compile, load and run"
    record = _record(f"{launch.label}: first call, {framework}", Kind.DEVICE, (first,), how)
    label = f"{launch.label}: later call, {framework}"
    return [record, bench.benchmark(kernel, *args, label=label, iters=iters)]


def measure_launches() -> list[Record]:
    """The device time of every launch, in this process. Raises NoDeviceError as `measure`."""
    return [
        measure(kernel, *args, grid=grid, label=label) for label, kernel, args, grid in launches()
    ]


def measure_all() -> list[Record]:
    """Measure every launch: device time, and each framework's calls and dispatch; and model them.

    Each runtime has a process of its own. Dispatch is a later call less the median device time;
    where the kernels are in `import nki`, there is neither, as `NO_BENCHMARK` says.
    """
    records = _from_process("times") if kernels.dialect == "neuronxcc" else []
    core = {r.label.removesuffix(": device"): r.median for r in records}
    for framework in frameworks_of_device()[1:]:
        calls = _from_process("calls", framework)
        for record in calls:
            name, _, what = record.label.rpartition(": ")
            if what.startswith("later") and core:
                beyond = tuple(max(0.0, sample - core[name]) for sample in record.samples)
                how = "a later call less the median device time"
                records.append(_record(f"{name}: dispatch, {framework}", Kind.DEVICE, beyond, how))
            else:
                records.append(record)
    return [*records, *_from_process("model", **model_environment())]


def model_environment() -> dict[str, str]:
    """Environment variables of a process that models what this machine runs, in the simulator."""
    here = {"NEURON_PLATFORM_TARGET_OVERRIDE": instance()} if instance() else {}
    return here | {
        "NKI_BACKEND": "nkisim",
        "NKI_DIALECT": kernels.dialect,
        "NEURON_LOGICAL_NC_CONFIG": str(cores()),
        "PJRT_DEVICE": "CPU",
        "JAX_PLATFORMS": "cpu",
    }


def _from_process(*arguments: str, **environment: str) -> list[Record]:
    """Records that a step of a report prints as JSON in another process."""
    command = [sys.executable, "-m", "nkibook.instance.step", *arguments]
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return bench.from_json(done.stdout.strip().splitlines()[-1])


class NotMeasured:
    """What stands in the place of a plot where nothing was measured."""

    def __init__(self) -> None:
        instance = "a trn2 or trn3" if kernels.dialect == "nki" else "an inf2 or trn1"
        self.text = (
            f"Nothing was measured: there is no {MEASURED} in the current folder. On {instance} "
            f"instance, `python -m nkibook.device --all {MEASURED}` writes it."
        )

    def __repr__(self) -> str:
        return "\n".join(textwrap.wrap(self.text, 76))

    def _repr_html_(self) -> str:
        text = re.sub(r"`(.+?)`", r"<code>\1</code>", html.escape(self.text))
        return f"<p><em>{text}</em></p>"


def measured(label: str) -> Any:
    """Measured times of a launch beside the model's: a plot, or a note where there are none.

    Args:
        label: of the launch, as `launches` has it.
    """
    path = next((p for p in (Path(MEASURED), BOOK / MEASURED) if p.is_file()), None)
    if path is None:
        return NotMeasured()
    from nkibook import plots

    records = [r for r in bench.read_json(path) if r.label.partition(": ")[0] == label]
    return plots.timing(records) if records else NotMeasured()


def _record(label: str, kind: Kind, samples: tuple[float, ...], how: str) -> Record:
    return Record(
        label=label,
        kind=kind,
        samples=samples,
        how=how,
        backend=bench.describe_backend(),
        machine=bench.describe_machine(),
        versions=bench.describe_versions(),
        date=datetime.date.today().isoformat(),
    )


class Launch(NamedTuple):
    """What the command measures: a kernel, its arguments, and its launch grid, if any."""

    label: str
    kernel: Any
    args: tuple
    grid: tuple[int, ...] | int = ()


def launches() -> Iterator[Launch]:
    """What the command measures, one at a time: the arguments are large.

    In `import nki` all are launched on as many cores as the runtime joins.
    """
    from kernels.add import nki_tensor_add_kernel
    from kernels.add.arguments import TILE_COLS, TILE_ROWS
    from kernels.attention import nki_attention_kernel
    from kernels.giou import nki_giou_kernel
    from kernels.matmul import nki_matmul_kernel
    from kernels.rmsnorm import nki_rms_norm_kernel
    from kernels.tiles import ceil_div

    in_nki = kernels.dialect == "nki"
    joined: tuple[int, ...] | int = cores() if in_nki else ()

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    for rows, columns in ((256, 1024), (4096, 4096)):
        pair = (zeros(rows, columns), zeros(rows, columns))
        tiles = (ceil_div(rows, TILE_ROWS), ceil_div(columns, TILE_COLS))
        grid = joined if in_nki else tiles
        yield Launch(f"add, {rows} x {columns}", nki_tensor_add_kernel, pair, grid)
    if not in_nki:
        from nkibook.validation.vector_add import add_tiles

        yield Launch("add in tiles of 128 x 1000", add_tiles, (zeros(256000), zeros(256000), 1000))
    boxes = zeros(1024 * 256, 4)
    yield Launch("GIOU, 1024 x 256 boxes", nki_giou_kernel, (boxes, boxes, 1e-7, False), joined)
    # A kernel in `import nki` gets its tiles as numbers, one in `neuronxcc.nki` the windows.
    if in_nki:
        from kernels.avgpool.geometry import pooling
        from kernels.avgpool.nki import nki_avg_pool2d_kernel
        from kernels.avgpool.plan import forward_plan

        pooled: tuple = (zeros(128, 112, 112), forward_plan(pooling(2), 112, 112))
    else:
        from kernels.avgpool.neuronxcc import nki_avg_pool2d_kernel

        pooled = (zeros(128, 112, 112), 2)
    yield Launch("average pooling, 128 x 112 x 112", nki_avg_pool2d_kernel, pooled, joined)
    rows_and_weight = (zeros(4096, 4096), zeros(1, 4096), 1e-5)
    yield Launch("RMSNorm, 4096 x 4096", nki_rms_norm_kernel, rows_and_weight, joined)
    square = np.zeros((2048, 2048), ml_dtypes.bfloat16)
    yield Launch("matmul, 2048 x 2048, bfloat16", nki_matmul_kernel, (square, square), joined)
    head = np.zeros((1, 4096, 128), ml_dtypes.bfloat16)
    heads = (head, head, head, 128**-0.5, False)
    yield Launch("attention, 4096 x 128, bfloat16", nki_attention_kernel, heads, joined)


def model() -> dict[str, Record]:
    """What the cost model says of the launches, by label. Needs the simulator as backend."""
    import nkisim

    found = {}
    for label, kernel, args, grid in launches():
        timeline = nkisim.profile(kernel[grid] if grid else kernel, *args)
        found[label] = bench.modelled(label, timeline)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the book's kernels on a NeuronCore, or hold such measurements against the model."""
    parser = argparse.ArgumentParser(prog="python -m nkibook.device", description=main.__doc__)
    file = parser.add_mutually_exclusive_group()
    file.add_argument("--json", metavar="FILE", type=output_file, help="write what was measured")
    file.add_argument(
        "--compare", metavar="FILE", type=input_file, help="measurements to hold against the model"
    )
    file.add_argument(
        "--all",
        metavar="FILE",
        type=output_file,
        help="write device time, first calls, dispatch and the model's times, for the pages",
    )
    options = parser.parse_args(argv)
    if options.compare:
        try:
            records = bench.read_json(options.compare)
        except (AttributeError, KeyError, TypeError, ValueError):
            parser.error(f"{options.compare} is no list of records, as --json writes it")
        measured = {r.label.removesuffix(": device"): r for r in records}
        modelled = model()
        for label in (name for name in modelled if name in measured):
            ratio = modelled[label].median / measured[label].median
            print(f"{measured[label]}\n{modelled[label]}\nmodelled over measured: {ratio:.2f}\n")
        return 0
    try:
        if options.all:
            _need_device()
            bench.write_json(measure_all(), options.all)
            return 0
        records = measure_launches()
    except NoDeviceError as error:
        print(f"Nothing was measured: {error}\n")
        for record in model().values() if kernels.backend == "nkisim" else ():
            print(record)
        return 1
    for record in records:
        print(record)
    if options.json:
        bench.write_json(records, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
