"""Run notebooks against the stand-in for the SDK, as `make test-neuron` does on an instance.

    python tests/rehearsal/rehearse.py [--instance trn2] notebooks/neuronxcc/add_torch.ipynb ...
    python tests/rehearsal/rehearse.py --instance trn2 notebooks/nki/add_torch.ipynb

The dialect of a notebook and its framework say with which SDK. For each it says which cells raise,
how many programs were compiled, and what was launched that a device would run with undefined
results.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools")]

import neuron_tests  # noqa: E402
import stand_in  # noqa: E402

from nkibook.exercises.running import framework_of  # noqa: E402


@dataclass(frozen=True)
class Rehearsal:
    """A notebook's result, and what its process did.

    Attributes:
        result: see tools/neuron_tests.py.
        programs: what was compiled: programs of XLA, graphs and kernels of PyTorch's `neuron`
            device, kernels launched on NumPy arrays.
        runtimes: who used the NeuronCores.
        refused: launches of kernels that a device would run with undefined results.
        launches: how many launches there were.
    """

    result: neuron_tests.Result
    programs: int
    runtimes: tuple[str, ...]
    refused: tuple[str, ...]
    launches: int


def rehearse(
    sdk: Path, notebook: Path, instance: str, log: Path, forking: Path | None = None
) -> Rehearsal:
    """Run one notebook on the instance that the stand-in plays; `log` is an empty folder."""
    settings = {
        "PYTHONHASHSEED": "0",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "IPYTHONDIR": str(stand_in.ROOT / "tools/.ipython"),
    }
    environment = stand_in.environment(sdk, instance, log, forking) | settings
    result = neuron_tests.run_notebook(notebook, environment, stand_in.python(sdk))
    notes = [n for n in stand_in.read_log(log) if "ipykernel" in " ".join(n["argv"])]
    note = max(notes, key=lambda n: n["launches"], default=None)
    if note is None:
        return Rehearsal(result, 0, (), (), 0)
    return Rehearsal(
        result,
        sum(note["programs"].values()),
        tuple(note["runtimes"]),
        tuple(note["refused"]),
        note["launches"],
    )


def sdk_of(notebook: Path) -> str:
    """The SDK of stand_in.SDKS that runs a notebook, by its dialect and framework."""
    if notebook.resolve().parent.name != "nki":
        return "2.28.1"
    return stand_in.TORCH if framework_of(notebook.stem) == "torch" else stand_in.JAX


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--instance", default="inf2", choices=sorted(stand_in.CORES))
    parser.add_argument("--sdk", choices=stand_in.SDKS, help="default: that of the notebook")
    parser.add_argument("--verbose", action="store_true", help="what pytest prints, in any case")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for at, path in enumerate(options.notebooks):
            name = options.sdk or sdk_of(path)
            sdk = Path(folder, name)
            if not sdk.exists():
                stand_in.build(sdk, name)
            log = Path(folder, f"log{at}")
            log.mkdir()
            found = rehearse(sdk, path.resolve(), options.instance, log)
            failed |= not found.result.right
            if options.verbose or not found.result.right:
                print(found.result.output)
            print(found.result)
            print(f"  {found.programs} programs, runtimes: {', '.join(found.runtimes)}")
            for text in found.refused:
                print("  would run with undefined results:", *text.splitlines()[:3])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
