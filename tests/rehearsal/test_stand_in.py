"""The stand-in for the SDK refuses what its sources say the SDK refuses, and takes the rest.

Three scripts, for NumPy, PyTorch and JAX, since a process has one runtime and starting one takes
seconds, and one for SDK 2.33.1. They try things and print what happened; each test looks at some of
that.
"""

from __future__ import annotations

import importlib.util
import subprocess

import pytest
import stand_in

ATTEMPT = """
import sys
import numpy as np
import kernels
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
from kernels.add import nki_tensor_add_kernel as add

def attempt(name, f):
    try:
        result = f()
    except BaseException as error:
        result = f"{type(error).__name__}: {error}"
    print(name, "|", " ".join(str(result).split())[:300])

array = np.ones((3, 5), np.float32)
"""

NUMPY = """
from importlib.metadata import version
attempt("backend", lambda: kernels.backend)
attempt("version", lambda: version("neuronx-cc"))
attempt("imports", lambda: [n for n in sys.modules if n.split(".")[0] == "nkisim"])
attempt("on NumPy", lambda: add[1, 1](array, array).sum())

for name in ("specialize", "cache_info", "func", "signature", "grid", "body", "on"):
    attempt(f"attribute {name}", lambda: getattr(add, name))
import nkisim, torch_neuronx
attempt("profile", lambda: nkisim.profile(add[1, 1], array, array))
attempt("a kernel of nkisim", lambda: isinstance(add, nkisim.Kernel))
attempt("name MGrid", lambda: nl.MGrid)
attempt("name explain", lambda: nki.explain)
attempt("name nki_jit", lambda: torch_neuronx.nki_jit)

@nki.jit
def copied(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.load(x))
    return y

@nki.jit
def racing(x):
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.load(x) + nl.program_id(0))
    return y

@nki.jit
def half(x):
    y = nl.ndarray((3, 5), x.dtype, buffer=nl.shared_hbm)
    nl.store(y[:, 0:4], value=nl.load(x[:, 0:4]))
    return y

attempt("too many partitions", lambda: copied(np.ones((200, 5), np.float32)))
attempt("a race", lambda: racing[2](array))
attempt("half written", lambda: half(array))
attempt("right", lambda: copied(array).sum())
attempt("simulate_kernel", lambda: nki.simulate_kernel(copied, array).sum())
timed = nki.benchmark(warmup=2, iters=3)(copied)
timed(array)
percentile = timed.benchmark_result.nc_latency.get_latency_percentile
attempt("benchmark", lambda: percentile(50) > 0)

tall = np.ones((300, 5), np.float32)
attempt("two cores", lambda: add[nl.spmd_dim(2, nl.nc(2)), 1](tall, tall).sum())
attempt("one core", lambda: add[nl.spmd_dim(3, nl.nc(1)), 1](tall, tall).sum())
"""

TORCH = """
import jax, torch
cpu = torch.ones(3, 5)
attempt("before torch_xla", lambda: add[1, 1](cpu, cpu))
import torch_xla
from torch_xla.debug import metrics
attempt("on the CPU", lambda: add[1, 1](cpu, cpu))
x = cpu.to(torch_xla.device())
attempt("one on the CPU", lambda: add[1, 1](x, cpu))
attempt("with NumPy", lambda: add[1, 1](x, array))
attempt("on the device", lambda: add[1, 1](x, x).cpu().sum().item())

def programs(sync):
    y = torch.full((3, 5), 0.5 + sync).to(torch_xla.device())
    torch_xla.sync()
    before = metrics.metric_data("CompileTime")[0]
    for step in range(6):
        y = add[1, 1](y, y) * (0.5 + sync / 1024)
        if sync:
            torch_xla.sync()
    y.cpu()
    return metrics.metric_data("CompileTime")[0] - before

attempt("programs with sync", lambda: programs(1))
attempt("is lazy", lambda: programs(0))

from nkibook.hlo import torch_hlo
call, = torch_hlo(add[1, 1], x, x).custom_calls
attempt("target", lambda: call.target)
attempt("config", lambda: type(call.config).__name__)
attempt("then NumPy", lambda: add[1, 1](array, array))
y = jax.numpy.ones((3, 5))
attempt("then JAX", lambda: add[1, 1](y, y))
attempt("now torch", lambda: add[1, 1](x, x))
"""

JAX = """
import jax, torch, torch_xla
x = jax.numpy.ones((3, 5))
attempt("with NumPy", lambda: add[1, 1](x, array))
attempt("on the device", lambda: add[1, 1](x, x).sum())
attempt("in jit", lambda: jax.jit(add[1, 1])(x, array).sum())
attempt("devices", lambda: len(jax.devices()))
attempt("then NumPy", lambda: add[1, 1](array, array))
y = torch.ones(3, 5).to(torch_xla.device())
attempt("then torch", lambda: add[1, 1](y, y))
"""

NKI_SDK = (
    ATTEMPT.partition("import kernels")[0]
    + ATTEMPT[ATTEMPT.index("def attempt") :]
    + """
from importlib.metadata import version
import os
import sys
import numpy as np
import kernels
import nki, nki.isa, nki.language as nl
from kernels.add import nki_tensor_add, nki_tensor_add_kernel as add

attempt("backend", lambda: (kernels.backend, kernels.dialect))
for name in ("neuronx-cc", "nki", "jax-neuronx", "libneuronxla"):
    attempt(name, lambda: version(name))
attempt("imports", lambda: [n for n in sys.modules if n.split(".")[0] == "nkisim"])
for name in ("func", "lnc", "signature", "cache_info", "on"):
    attempt(f"attribute {name}", lambda: getattr(add, name))
for module, name in ((nki, "baremetal"), (nki, "simulate_kernel"), (nl, "arange"), (nl, "mgrid")):
    attempt(f"name {name}", lambda: getattr(module, name))

@nki.jit
def copied(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, value=nl.load(x))
    return y

@nki.jit
def half(x):
    y = nl.ndarray((3, 5), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y[:, 0:4], value=nl.load(x[:, 0:4]))
    return y

attempt("operator", lambda: nki_tensor_add(array, array).sum())
for lnc in (1, 2):
    attempt(f"on {lnc}", lambda: add[lnc](array, array).sum())
attempt("no number", lambda: add(array, array).sum())
def with_the_variable():
    os.environ["NEURON_LOGICAL_NC_CONFIG"] = "2"
    try:
        return add(array, array).sum()
    finally:
        del os.environ["NEURON_LOGICAL_NC_CONFIG"]

attempt("no number, but the variable", with_the_variable)
attempt("a grid", lambda: add[3, 1](array, array))
attempt("too many partitions", lambda: copied(np.ones((200, 5), np.float32)))
attempt("half written", lambda: half(array))
attempt("simulate", lambda: nki.simulate(copied)(array).sum())
attempt("simulate two", lambda: nki.simulate(add[2])(array, array).sum())
attempt("target", lambda: nki.jit(lambda x: x, platform_target="trn2"))

import neuronxcc.nki as older
import neuronxcc.nki.language as older_nl

@older.jit
def older_copied(x):
    y = older_nl.ndarray(x.shape, x.dtype, buffer=older_nl.shared_hbm)
    older_nl.store(y, value=older_nl.load(x))
    return y

attempt("older", lambda: older_copied(array))
attempt("older baremetal", lambda: older.baremetal(older_copied)(array).sum())

import jax
attempt("devices", lambda: len(jax.devices()))
"""
)

NEURON = """
import importlib.util
import sys
from importlib.metadata import version

def attempt(name, f):
    try:
        result = f()
    except BaseException as error:
        result = f"{type(error).__name__}: {error}"
    print(name, "|", " ".join(str(result).split())[:900])

for name in ("torch_xla", "jax", "jax_neuronx", "libneuronxla"):
    attempt(f"import {name}", lambda: importlib.import_module(name))
    attempt(f"find {name}", lambda: importlib.util.find_spec(name))
attempt("metadata", lambda: version("torch_xla"))
attempt("version", lambda: version("torch-neuronx"))

import kernels, torch, nki
from kernels.add import nki_tensor_add_kernel as add
cpu = torch.ones(3, 5)
attempt("backend", lambda: (kernels.backend, kernels.dialect))
attempt("before torch_neuronx", lambda: add[2](cpu, cpu))
import torch_neuronx
from torch_neuronx import nki_op, wrap_nki
from torch_neuronx.nki_hop import nki_op as at_home
attempt("marks", lambda: (hasattr(torch_neuronx, "__nkisim__"), nki_op is at_home))
attempt("nki_jit", lambda: torch_neuronx.nki_jit)
attempt("imports", lambda: [n for n in sys.modules if n.split(".")[0] == "nkisim"])
x = cpu.to("neuron")
attempt("bare", lambda: add(x, x))
attempt("wrapped", lambda: wrap_nki(add)[2](x, x).sum().item())
attempt("wrapped too late", lambda: wrap_nki(add[2])(x, x))
inside = torch.compile(lambda x: add[2](x, x) + 1, backend="neuron", fullgraph=True)
attempt("compiled", lambda: inside(x).sum().item())
wrong = torch.compile(lambda x: add[1](x, x) + 1, backend="neuron", fullgraph=True)
attempt("compiled on one core", lambda: wrong(x))

import rehearsal_rules as rules
attempt("programs", lambda: rules._state["programs"])
attempt("launches", lambda: rules._state["launches"])
"""

needs_torch_xla = pytest.mark.skipif(
    importlib.util.find_spec("torch_xla") is None, reason="needs: torch_xla"
)


def found(text: str) -> dict[str, str]:
    split = (line.partition(" | ") for line in text.splitlines())
    return {name: result for name, _, result in split}


@pytest.fixture(scope="module")
def in_numpy(on_instance):
    return found(on_instance(ATTEMPT + NUMPY))


@pytest.fixture(scope="module")
def in_torch(on_instance):
    return found(on_instance(ATTEMPT + TORCH))


@pytest.fixture(scope="module")
def in_jax(on_instance):
    return found(on_instance(ATTEMPT + JAX))


@pytest.fixture(scope="module")
def on_a_later_sdk(on_instance):
    """On an inf2, whose runtime joins no cores."""
    return found(on_instance(NKI_SDK, "inf2", stand_in.JAX))


def test_it_is_the_sdk_to_the_book(in_numpy):
    assert in_numpy["backend"] == "neuronxcc"
    assert in_numpy["version"] == "2.23.6484.0"
    assert in_numpy["imports"] == "[]"


def test_it_runs_right_kernels(in_numpy):
    assert in_numpy["on NumPy"] == "30.0"
    assert in_numpy["right"] == in_numpy["simulate_kernel"] == "15.0"
    assert in_numpy["benchmark"] == "True"


def test_kernels_have_no_attribute_that_is_not_documented(in_numpy):
    attributes = [v for name, v in in_numpy.items() if name.startswith("attribute ")]
    assert len(attributes) == 7
    assert all(v.startswith("AttributeError") for v in attributes)
    assert "Error" in in_numpy["profile"]
    assert in_numpy["a kernel of nkisim"] == "False"


def test_names_that_are_not_documented_are_absent(in_numpy):
    for name in ("MGrid", "explain", "nki_jit"):
        assert in_numpy[f"name {name}"].startswith("AttributeError")


def test_documented_errors_have_their_names_and_others_would_run(in_numpy):
    said = in_numpy["too many partitions"]
    assert said.startswith("CompilerError: err_num_partition_exceed_arch_limit")
    assert in_numpy["a race"].startswith("WouldRun")
    assert in_numpy["half written"].startswith(("WouldRun", "CompilerError: err_tensor_output"))


def test_cores_together_need_trn2(in_numpy, on_instance):
    assert in_numpy["two cores"].startswith("CompilerError: grid")
    assert in_numpy["one core"] == "3000.0"
    code = ATTEMPT + NUMPY[NUMPY.index("tall = ") :]
    assert found(on_instance(code, "trn2"))["two cores"] == "3000.0"


def test_a_later_sdk_is_one_to_the_book(on_a_later_sdk):
    assert on_a_later_sdk["backend"] == "('neuronxcc', 'nki')"
    versions = {name: version for name, version, _ in stand_in.SDKS[stand_in.JAX]}
    assert versions["nki"] == "0.7.0"
    assert {name: on_a_later_sdk[name] for name in versions} == versions
    assert on_a_later_sdk["imports"] == "[]"


def test_what_is_not_in_nki_is_absent(on_a_later_sdk):
    absent = [v for name, v in on_a_later_sdk.items() if name.startswith(("attribute ", "name "))]
    assert len(absent) == 9
    assert all(v.startswith("AttributeError") for v in absent)
    assert on_a_later_sdk["target"].startswith("ParameterError")


def test_a_launch_is_on_as_many_cores_as_the_runtime_joins(on_a_later_sdk, on_instance):
    assert on_a_later_sdk["operator"] == on_a_later_sdk["on 1"] == "30.0"
    assert on_a_later_sdk["no number"] == "30.0"
    assert on_a_later_sdk["on 2"].startswith("RuntimeError")
    assert "Error" in on_a_later_sdk["a grid"]
    assert on_a_later_sdk["simulate two"].startswith("CompilerError")
    assert on_a_later_sdk["devices"] == "2"
    on_trn2 = found(on_instance(NKI_SDK, "trn2", stand_in.JAX))
    assert on_trn2["operator"] == on_trn2["on 2"] == on_trn2["simulate two"] == "30.0"
    assert on_trn2["on 1"].startswith("RuntimeError")
    assert on_trn2["no number"].startswith("RuntimeError: NCC_EVRF066")
    assert on_trn2["no number, but the variable"] == "30.0"
    assert on_trn2["devices"] == "4"  # eight physical cores


def test_wrong_kernels_of_nki(on_a_later_sdk):
    assert on_a_later_sdk["too many partitions"].startswith("CompilerError")
    assert on_a_later_sdk["half written"].startswith("WouldRun")
    assert on_a_later_sdk["simulate"] == "15.0"


def test_the_older_dialect_ended(on_a_later_sdk):
    """AWS documents a compile error, and an issue of nki-samples tells of zeros."""
    assert on_a_later_sdk["older"].startswith("CompilerError")
    assert on_a_later_sdk["older baremetal"] == "0.0"


def test_the_environment_for_pytorchs_neuron_device(on_instance):
    pytest.importorskip("torch")
    got = found(on_instance(NEURON, "trn2", stand_in.TORCH))
    for name in ("torch_xla", "jax", "jax_neuronx", "libneuronxla"):
        assert got[f"import {name}"].startswith("ModuleNotFoundError")
        assert got[f"find {name}"] == "None"
    assert got["metadata"].startswith("PackageNotFoundError")
    assert (
        got["version"] == dict((n, v) for n, v, _ in stand_in.SDKS[stand_in.TORCH])["torch-neuronx"]
    )
    assert got["backend"] == "('neuronxcc', 'nki')"
    assert got["marks"] == "(False, True)"
    assert got["imports"] == "[]"
    assert got["nki_jit"].startswith("AttributeError")
    assert got["before torch_neuronx"].startswith("RuntimeError: NKI kernel execution failed")
    for name in ("bare", "wrapped too late", "compiled on one core"):
        assert "NCC_EVRF066" in got[name]
    assert got["wrapped"] == "30.0"
    assert got["compiled"] == "45.0"
    # A kernel by itself, and a graph, in which the kernel is the same.
    assert got["programs"] == "{'torch': 2}"
    assert got["launches"] == "2"


@needs_torch_xla
def test_pytorch_tensors_must_be_on_the_device(in_torch):
    assert in_torch["before torch_xla"] == "KeyError: 'torch_neuronx'"
    refused = "RuntimeError: Expected all tensors in the given list to be XLA tensors. Element at "
    assert in_torch["on the CPU"].startswith(refused + "index 0")
    assert in_torch["one on the CPU"].startswith(refused + "index 1")
    assert in_torch["with NumPy"].startswith("TypeError")
    assert in_torch["on the device"] == "30.0"


@needs_torch_xla
def test_pytorch_programs_are_those_of_a_device(in_torch):
    """Kernels are recorded in the graph, and not run one by one."""
    assert int(in_torch["programs with sync"]) == 1
    assert int(in_torch["is lazy"]) == 1
    assert in_torch["target"] == "AwsNeuronCustomNativeKernel"
    assert in_torch["config"] == "str"  # in a format that the book does not know


@needs_torch_xla
def test_jax_arrays(in_jax):
    assert in_jax["with NumPy"].startswith("TypeError")
    assert in_jax["on the device"] == in_jax["in jit"] == "30.0"
    assert in_jax["devices"] == "2"  # an inf2.xlarge has two NeuronCores


@needs_torch_xla
def test_a_process_has_one_runtime(in_torch, in_jax):
    said = ("RuntimeError: NRT: nrt_init failed", "not available")
    for result in (
        in_torch["then NumPy"],
        in_torch["then JAX"],
        in_torch["now torch"],  # JAX has started beside it
        in_jax["then NumPy"],
        in_jax["then torch"],
    ):
        assert all(part in result for part in said)


def test_a_forked_process_is_like_one_that_started(sdks, forkings, tmp_path):
    sdk, forking = sdks("2.28.1"), forkings("2.28.1")
    for arguments in (["environment"], ["nonsense"]):
        started, forked = (
            subprocess.run(
                [stand_in.python(sdk), "-m", "nkibook.instance.step", *arguments],
                env=stand_in.environment(sdk, "trn2", forking=socket) | {"NEURON_CC_FLAGS": "-O1"},
                cwd=tmp_path,
                capture_output=True,
                text=True,
            )
            for socket in (None, forking)
        )
        assert forked.returncode == started.returncode
        assert forked.stdout == started.stdout
        assert forked.stderr[-40:] == started.stderr[-40:]
    assert started.returncode == 1
    assert started.stderr.endswith("KeyError: 'nonsense'\n")
