"""What the Neuron SDK refuses and the simulator does not, each rule with its source.

None of this was seen on a device: `make neuron-report` on an instance says what is so.
Numbers in brackets are the sources:

[1] a third-party description of neuronx-cc 2.24: how `nki.jit` finds out the framework, and that a
    launch grid with `nl.nc(2)` needs a NeuronCore v3.
[2] AWS Neuron documentation v2.28.1, nki/guides/framework_custom_op.rst: kernels are given tensors
    on the XLA device; NumPy arrays go to the baremetal mode.
[3] torch_xla 2.9.0: a custom call on a CPU tensor raises the message below (tried).
[4] a public package's workaround: `nki.jit` on a tensor before torch_xla was imported raises
    KeyError('torch_neuronx').
[5] AWS Neuron documentation v2.28.1, neuron-runtime/nrt-developer-guide.rst: nrt_init gives the
    NeuronCores to the process, once. That a second client in the same process fails is what users
    of inf2.xlarge report.
[6] AWS Neuron documentation v2.28.1, nki/api/nki.errors.rst: what the compiler refuses, by name.
[7] AWS Neuron documentation v2.28.1, nki/api: the names there are (nki_api_neuronxcc.json); of
    `import nki` those of the documentation of SDK 2.33 (nki_api_nki.json).
[8] AWS Neuron documentation of SDK 2.32, release-notes/components/nki.rst (NKI 0.4.0) and
    nki/migration/index.rst: a kernel in `neuronxcc.nki` is a compile error from SDK 2.30 on.
[9] nki-samples issue 134, a third party's inf2.xlarge with SDK 2.32: `neuronxcc.nki` still imports,
    and what `neuronxcc.nki.baremetal` runs ends without an error, with zeros in every element.
[10] AWS Neuron documentation of SDK 2.33, compiler/error-codes/EVRF066.rst: the kernel and the
    compiler must agree on the cores of a logical core; a kernel's are those of `kernel[n]`, else
    of NEURON_LOGICAL_NC_CONFIG, else 1, and the compiler's are of that variable, by default 2 on
    Trainium2.
[11] AWS's torch_neuronx (nki_hop.py and nki_op_impl.py of its beta): `nki_op(name, fn,
    mutates_args)` and `wrap_nki`; all tensors of a kernel must be on the device, "NKI kernel
    execution failed: ...".
[12] a third party, of torch-neuronx 2.11: `wrap_nki(kernel[2])` is launched on one core.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import stand_in_nkisim

stand_in_nkisim.install()

INSTANCE = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "inf2")
_NO_CORES_TOGETHER = ("inf2", "trn1")
_DOCUMENTED = {
    module: names
    for path in Path(__file__).parent.glob("nki_api_*.json")
    for module, names in json.loads(path.read_text())["modules"].items()
}

# The stand-in for SDK 2.30 or later has a package `nki`, and takes no kernel of the older dialect.
HAS_NKI = Path(__file__).with_name("nki").is_dir()
# In its environment for PyTorch that has a `neuron` device, which rehearsal_neuron.py makes.
HAS_NEURON = HAS_NKI and Path(__file__).with_name("torch_neuronx").is_dir()


def joined() -> int:
    """Physical cores that the runtime joins in a logical core, when it starts [10]."""
    said = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    return int(said or (1 if INSTANCE in _NO_CORES_TOGETHER else 2))


def simulated(name: str):
    """The simulator's module of one of the SDK's names."""
    package, dot, rest = name.partition(".")
    home = "stand_in_nkisim.frontends.nki.surface" if package == "nki" else f"stand_in_{package}"
    return importlib.import_module(home + dot + rest)


def take_documented(module: str, namespace: dict) -> None:
    """Give a module the names that the documentation lists for it, and no other [7]."""
    source = simulated(module)
    for name in _DOCUMENTED[module]:
        if "." not in name:
            try:
                namespace[name] = getattr(source, name)
            except Exception:  # documented, and not in the simulator: absent, with its message
                continue


# What the documentation calls undefined, without an error that names it. Other misuse breaks a
# documented constraint of an instruction, which the SDK checks while it traces.
_RUNS = (
    "AccumulationError",
    "CounterError",
    "LoopError",
    "PlacementError",
    "RaceError",
    "RangeError",
    "UninitializedReadError",
)


class WouldRun(BaseException):
    """A kernel that the simulator refuses and the SDK's compiler is not known to refuse: on a
    device it would run, with undefined results. Not an Exception, so that no cell expects it."""


class CompilerError(Exception):
    """What the SDK's compiler refuses, under the name its documentation gives the error [6]."""


def as_on_a_device(launch):
    """Run a launch of the simulator, and say of its complaints only what the SDK would."""
    from stand_in_nkisim import KernelError, NkiWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = launch()
        except KernelError as error:
            if error.code is None and type(error).__name__ in _RUNS:
                _write_down(refused=str(error))
                raise WouldRun(str(error)) from None
            message = f"{error.code or 'refused'} at {error.location}"
        else:
            message = None
    for warning in caught:
        if not issubclass(warning.category, NkiWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        elif "never written" in str(warning.message):
            _write_down(refused=str(warning.message))
            raise WouldRun(str(warning.message))
    if message is not None:
        raise CompilerError(message)
    return result


# -- one runtime a process [5]

_state = {"runtimes": [], "programs": {}, "launches": 0, "refused": []}


def claim(runtime: str) -> None:
    """Take the NeuronCores for a runtime: "torch", "jax" or "numpy" (baremetal, benchmark).

    Raises:
        RuntimeError: another one has them.
    """
    for other in {*_state["runtimes"], *_initialised()}:
        if other != runtime:
            raise RuntimeError(
                f"NRT: nrt_init failed: Logical Neuron Core(s) not available: {runtime} asks for "
                f"the NeuronCores that {other} has in this process"
            )
    if runtime not in _state["runtimes"]:
        _write_down(runtime=runtime)


def _initialised() -> list[str]:
    """Which frameworks have a client, whether or not they launched a kernel."""
    found = []
    xla_bridge = sys.modules.get("jax._src.xla_bridge")
    if xla_bridge is not None and xla_bridge._backends:
        found.append("jax")
    torch_xla = sys.modules.get("torch_xla")
    if torch_xla is not None and torch_xla._XLAC._xla_runtime_is_initialized():
        found.append("torch")
    neuron = sys.modules.get("rehearsal_neuron")
    if neuron is not None and neuron.used():
        found.append("torch")
    return found


# -- what a process did, for the rehearsal's own tests


def _write_down(runtime=None, refused=None) -> None:
    if runtime:
        _state["runtimes"].append(runtime)
    if refused:
        _state["refused"].append(refused)
    _save()


def count_launch() -> None:
    """A kernel runs."""
    _state["launches"] += 1


def count_program(runtime: str) -> None:
    """A runtime compiles a program."""
    _state["programs"][runtime] = _state["programs"].get(runtime, 0) + 1


def _save(*_) -> None:
    folder = os.environ.get("REHEARSAL_LOG")
    if folder:
        torch_xla = sys.modules.get("torch_xla")
        if torch_xla is not None:
            from torch_xla.debug import metrics

            found = metrics.metric_data("CompileTime")
            _state["programs"]["torch"] = found[0] if found else 0
        runtimes = sorted({*_state["runtimes"], *_initialised()})
        state = {**_state, "runtimes": runtimes, "argv": sys.argv}
        path = Path(folder, f"{os.getpid()}.json")
        path.write_text(json.dumps(state))


atexit.register(_save)
if "IPython" in sys.modules:  # a notebook's process is killed, so it writes after each cell
    from IPython import get_ipython

    if get_ipython() is not None:
        get_ipython().events.register("post_run_cell", _save)


def _count_jax_programs() -> None:
    """Count what XLA compiles for JAX, on as many devices as the instance has NeuronCores."""
    try:
        import jax
    except ModuleNotFoundError:  # an environment for PyTorch
        return
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = [f for f in flags if not f.startswith("--xla_force_host_platform_device_count")]
    os.environ["XLA_FLAGS"] = " ".join(kept)  # which the Neuron plugin does not know
    cores = int(os.environ.get("REHEARSAL_CORES", 2))
    jax.config.update("jax_num_cpu_devices", cores // joined() if HAS_NKI else cores)

    def listen(event: str, duration: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            count_program("jax")

    jax.monitoring.register_event_duration_secs_listener(listen)


_count_jax_programs()


# -- kernels


def _hide_configs() -> None:
    """Have custom calls carry a text that says nothing: the SDK's format is its own."""
    from stand_in_nkisim.runtime.frameworks import programs
    from stand_in_nkisim.runtime.frameworks.base import FrameworkKernel

    prefix = "opaque:"
    FrameworkKernel._make_config = lambda self, special: prefix + special.program.digest
    programs._digest = lambda config: (
        config.decode() if isinstance(config, bytes) else config
    ).removeprefix(prefix)


_hide_configs()


def inner(kernel):
    """What the simulator knows of a kernel; a function as it is."""
    return kernel._Kernel__inner if isinstance(kernel, Kernel) else kernel


class Kernel:
    """A kernel of the SDK, opaque: it is called, on a grid or without one, and nothing else [7]."""

    __slots__ = ("__inner", "__mode", "__name__", "__weakref__")

    def __init__(self, of_simulator, mode):
        self.__inner = of_simulator
        self.__mode = mode
        self.__name__ = getattr(of_simulator, "__name__", "kernel")

    def __getitem__(self, grid):
        for entry in grid if isinstance(grid, tuple) else (grid,):
            if INSTANCE in _NO_CORES_TOGETHER and not isinstance(entry, int) and _cores(entry) > 1:
                raise CompilerError(
                    f"grid {grid}: several NeuronCores in one launch need a NeuronCore v3, and "
                    f"the target is {INSTANCE}"  # [1]
                )
        return type(self)(self.__inner[grid], self.__mode)

    @property
    def benchmark_result(self):
        if self.__mode != "benchmark":
            raise AttributeError("benchmark_result")
        return self.__inner.benchmark_result

    def __call__(self, *args, **kwargs):
        if _tracing():
            return self.__inner(*args, **kwargs)
        if HAS_NKI and not isinstance(self, NkiKernel):
            return self.__on_a_later_sdk(args, kwargs)
        runtime = check_arguments(self.__mode, args, kwargs)
        if runtime != "simulation":
            self._check_launch()
            claim(runtime)
        count_launch()
        if runtime == "numpy":
            count_program("numpy")
        if runtime == "torch":
            from rehearsal_torch import launch

            return as_on_a_device(lambda: launch(self.__inner, args, kwargs))
        return as_on_a_device(lambda: self.__inner(*args, **kwargs))

    def _check_launch(self):
        """Refuse a grid that the runtime would refuse."""

    def __on_a_later_sdk(self, args, kwargs):
        if self.__mode != "baremetal":
            raise CompilerError(f"{self.__name__}: neuronxcc.nki is not supported")  # [8]
        claim("numpy")
        result = self.__inner(*args, **kwargs)
        several = isinstance(result, tuple | list)
        return tuple(map(np.zeros_like, result)) if several else np.zeros_like(result)  # [9]


class NkiKernel(Kernel):
    """A kernel of `import nki`: `kernel(...)`, or `kernel[lnc](...)` on the cores of a logical
    core."""

    __slots__ = ()

    def _check_launch(self):
        check_cores(self.__name__, inner(self)._on_cores().grid.size)


def check_cores(name: str, cores: int) -> None:
    """Refuse a kernel of `import nki` on other cores than the compiler's [10]."""
    if cores != joined():
        raise RuntimeError(
            f"NCC_EVRF066: NKI kernel '{name}' is configured with LNC={cores}, but neuronx-cc is "
            f"using LNC={joined()}."
        )


def _cores(entry) -> int:
    """How many NeuronCores a dimension of a grid is spread over."""
    return max((_cores(part) for part in getattr(entry, "parts", ())), default=0) or getattr(
        entry, "count", 1
    )


def _tracing() -> bool:
    from stand_in_nkisim.trace.tracer import tracing

    return tracing()


def check_arguments(mode: str, args, kwargs) -> str:
    """Find out whose tensors the arguments are, and so who runs the kernel.

    Returns:
        "torch", "jax", "numpy", or "simulation", which needs no device.
    """
    from stand_in_nkisim.trace.arguments import leaves

    values = leaves((args, kwargs))
    numpy = any(isinstance(v, np.ndarray) for v in values)
    torch = sys.modules.get("torch")
    jax = sys.modules.get("jax")
    if torch is not None and any(isinstance(v, torch.Tensor) for v in values):
        found = "torch"
    elif jax is not None and any(isinstance(v, jax.Array) for v in values):
        found = "jax"
    else:
        found = "numpy"
    if mode == "simulation":
        return mode
    if mode in ("baremetal", "benchmark") and found != "numpy":
        raise TypeError(f"nki.{mode} takes NumPy arrays, and got tensors of {found}")  # [2]
    if found == "numpy":
        return found
    if numpy:
        raise TypeError(f"NumPy arrays among the tensors of {found}")  # [1]
    if found == "torch" and HAS_NKI:  # with the device, rehearsal_neuron.py takes them
        raise RuntimeError("NKI kernel execution failed: a tensor on the CPU")  # [11]
    if found == "torch":
        if "torch_xla" not in sys.modules:
            raise KeyError("torch_neuronx")  # [4]
        at = next(
            (
                i
                for i, v in enumerate(v for v in values if isinstance(v, torch.Tensor))
                if v.device.type != "xla"
            ),
            None,
        )
        if at is not None:
            raise RuntimeError(  # [3]
                "Expected all tensors in the given list to be XLA tensors. Element at index "
                f"{at} is not an XLA tensor. Got: torch.FloatTensor"
            )
    return found
