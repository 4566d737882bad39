"""Constraints of nki, nki.compiler and nki.typing: launching, allocation, parameters."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np

import nkisim
from constraints.neuronxcc.walk import exempt, hbm, holds, placed, refused, run, values
from nkisim.errors import (
    MemorySpaceError,
    OutputError,
    ParameterError,
    PlacementError,
    ShapeError,
    TileSizeError,
)
from nkisim.runtime.frameworks import xla_ffi

# fmt: off

X = values(4, 4)

def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out

def added(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.load(x)))
    return out

class ArrayKernel(nki.FrameworkKernel):
    """A framework whose tensors are NumPy arrays."""

    def is_framework_tensor(self, t):
        return isinstance(t, np.ndarray)

    def map_framework_tensor(self, t):
        return t.shape, t.dtype

    def translate_to_neuron_dtype(self, _dtype):
        return np.dtype(_dtype)

# -- FrameworkKernel

def _target(f):
    assert xla_ffi.TARGET == "AwsNeuronCustomNativeKernel"

holds("nki.FrameworkKernel", "custom_call_target is AwsNeuronCustomNativeKernel", _target)
refused("nki.FrameworkKernel",
    "subclass must implement translate_to_neuron_dtype, is_framework_tensor, map_framework_tensor",
    (lambda f: type("Bare", (f,), {})(double).dump_config(X), NotImplementedError,
     "must define is_framework_tensor", "", "a method that is missing: the message names it"),
    kept=lambda f: ArrayKernel(double).dump_config(X), inside=False)

def _configs(f, **options):
    kernel = ArrayKernel(double, **options)
    return [kernel.dump_config(np.zeros(s, np.float32))[0] for s in ((4, 4), (4, 5), (4, 4))]

def _specialised(f):
    first, other, again = _configs(f)
    assert first != other
    assert first == again

holds("nki.FrameworkKernel",
    "backend_config comes from dump_config(*args, **kwargs) and is specialized per input shapes",
    _specialised)

def _cached(f):
    first, _, again = _configs(f, enable_cache=True)
    assert first is again
    first, _, again = _configs(f, enable_cache=False)
    assert first == again
    assert first is not again

holds("nki.FrameworkKernel", "cached when enable_cache is True", _cached)

# -- tensors

exempt("nki.tensor", "a 'tile' is a tensor whose dim 0 is the partition dim",
    "the definition of a word")

def _views(f):
    def body():
        x = nl.zeros((4, 6), nl.float32)
        for view in (x.reshape((4, 3, 2)), x.view(nl.int32), x.broadcast_to((4, 6))):
            assert view.buffer is x.buffer
        assert x.expand_dims(2).buffer is x.buffer
        assert x.astype(nl.float32).buffer is not x.buffer
        x.reshape((4, 3, 2))[:, 1, :] = 5.0
        return x

    np.testing.assert_array_equal(run(body), np.tile([[0, 0, 5, 5, 0, 0]], (4, 1)))

holds("nki.tensor", "view/reshape/broadcast_to/expand_dims are views; astype always copies", _views)

# -- ways to run a kernel

RUNNERS = "nki.baremetal nki.benchmark nki.profile"

_FOLDERS = tempfile.TemporaryDirectory()
_TRACE = str(Path(_FOLDERS.name) / "profile.ntff")

def runner(f, **options):
    if f.__name__ == "profile_decorator":
        options.setdefault("working_directory", _folder("profiles"))
    return f(**options)(double)

def _jax_array():
    import jax.numpy as jnp

    return jnp.ones((4, 4))

def _folder(name: str, *files: str) -> str:
    folder = Path(tempfile.mkdtemp(dir=_FOLDERS.name)) / name
    folder.mkdir()
    for file in files:
        (folder / file).touch()
    return str(folder)

refused(RUNNERS, "numpy arrays in/out",
    (lambda f: runner(f)(_jax_array()), ParameterError, "NumPy arrays",
     "convert it with np.asarray(...), or call a kernel of",
     lambda f: (runner(f)(np.asarray(_jax_array())), nki.jit(double)(_jax_array()))),
    kept=lambda f: runner(f)(X), inside=False)

def _accepts(**options):
    def show(f):
        assert isinstance(runner(f, **options)(X), np.ndarray)

    return show

holds("nki.baremetal",
    "kwargs: save_neff_name, save_trace_name, additional_compile_opt, artifacts_dir",
    _accepts(save_neff_name="file.neff", save_trace_name="profile.ntff",
        additional_compile_opt="-O1", artifacts_dir=None))
refused("nki.baremetal", "artifacts_dir must be empty",
    (lambda f: runner(f, artifacts_dir=_folder("a", "old.neff"))(X), ParameterError, "is not empty",
     "name a folder of its own", lambda f: runner(f, artifacts_dir=_folder("a"))(X)),
    inside=False)
refused("nki.baremetal", "save_trace_name requires save_neff_name='file.neff'",
    (lambda f: runner(f, save_trace_name="profile.ntff"), ParameterError, r"file\.neff",
     "pass save_neff_name='file.neff', or drop save_trace_name",
     lambda f: (runner(f, save_trace_name=_TRACE, save_neff_name="file.neff")(X), runner(f)(X))),
    kept=lambda f: runner(f, save_trace_name="profile.ntff", save_neff_name="file.neff")(X),
    inside=False)
exempt("nki.benchmark", "needs a Trn/Inf host with NeuronDevice v2+ and aws-neuronx-tools",
    "the simulator models the latency where there is no device")
holds("nki.benchmark",
    "kwargs: warmup (10), iters (100), save_neff_name, save_trace_name, additional_compile_opt",
    _accepts(warmup=10, iters=100, save_neff_name="file.neff", save_trace_name=_TRACE,
        additional_compile_opt=None))

def tiles(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[2 * i : 2 * i + 2], nl.load(x[2 * i : 2 * i + 2]))
    return out

refused("nki.benchmark", "single NeuronCore only",
    (lambda f: f(tiles)[nl.nc(2)](X), ParameterError, "one NeuronCore",
     "launch without nl.nc, or look at",
     lambda f: (f(tiles)[2](X), nkisim.profile(nki.jit(tiles)[nl.nc(2)], X))),
    kept=lambda f: f(tiles)[2](X), inside=False)
refused("nki.benchmark", "if save_trace_name is set, save_neff_name must be unset or 'file.neff'",
    (lambda f: runner(f, save_trace_name="profile.ntff", save_neff_name="other.neff"),
     ParameterError, r"file\.neff", "pass save_neff_name='file.neff', or drop save_trace_name",
     lambda f: (runner(f, save_trace_name=_TRACE, save_neff_name="file.neff")(X),
         runner(f, save_neff_name="other.neff")(X))),
    kept=lambda f: runner(f, save_trace_name=_TRACE)(X), inside=False)

def _percentile(f, p):
    timed = f(double)
    timed(X)
    assert timed.benchmark_result.nc_latency.get_latency_percentile(p) > 0

refused("nki.benchmark",
    "result: fn.benchmark_result.nc_latency.get_latency_percentile(p), p in "
    "{0,1,10,25,50,90,99,100}, microseconds",
    (lambda f: _percentile(f, 95), ParameterError, "95", "ask for one of these",
     lambda f: _percentile(f, 90)),
    kept=lambda f: [_percentile(f, p) for p in (0, 1, 10, 25, 50, 90, 99, 100)], inside=False)
holds("nki.benchmark nki.profile", "actual input values are not used, so outputs are undefined",
    lambda f: _undefined(f))

def _undefined(f):
    assert np.isnan(runner(f)(X)).all()

refused("nki.profile", "working_directory is required and absolute",
    (lambda f: f(working_directory="profiles")(double), ParameterError, "absolute path",
     "pass e.g. working_directory=os.path.abspath('profiles')",
     lambda f: f(working_directory=os.path.abspath("profiles"))(double)),
    (lambda f: f()(double), ParameterError, "required",
     "pass e.g. working_directory=os.path.abspath('profiles')",
     lambda f: f(working_directory=os.path.abspath("profiles"))(double)),
    kept=lambda f: runner(f)(X), inside=False)
holds("nki.profile",
    "kwargs: save_neff_name (file.neff), save_trace_name (profile.ntff), additional_compile_opt, "
    "overwrite (False), profile_nth (1)",
    _accepts(save_neff_name="file.neff", save_trace_name="profile.ntff",
        additional_compile_opt=None, overwrite=False, profile_nth=1))
refused("nki.simulate_kernel", "all inputs/outputs are numpy.ndarray",
    (lambda f: f(double, _jax_array()), ParameterError, "NumPy arrays",
     "convert it with np.asarray(...), or call a kernel of",
     lambda f: (f(double, np.asarray(_jax_array())), nki.jit(double)(_jax_array()))),
    kept=lambda f: f(double, X), inside=False)

def _wide_bf16(f):
    @nki.jit(mode="simulation")
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x, dtype=nl.bfloat16))
        return out

    third = np.full((2, 2), 1 / 3, np.float32)
    np.testing.assert_array_equal(kernel(third), third)

holds("nki.simulate_kernel",
    "bfloat16/fp8/custom dtypes are simulated in fp32 precision (known issue)", _wide_bf16)

def _prints(f):
    import contextlib
    import io

    def kernel(x):
        nl.device_print("x = ", nl.load(x))
        return double(x)

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        f(kernel, X)
    assert printed.getvalue().startswith("x = [[")

holds("nki.simulate_kernel", "device_print works only here", _prints)

# -- jit

refused("nki.jit",
    "mode in {auto, jax, torchxla, baremetal, benchmark, simulation}; default auto detects the "
    "framework",
    (lambda f: f(double, mode="cpu"), ValueError, "cpu", "",
     "a ValueError, whose text lists the modes"),
    kept=lambda f: [f(double, mode=m)(X)
        for m in ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation")], inside=False)
refused("nki.jit",
    "mode='trace' and platform_target='trn2' are also used by the documentation's own "
    "samples/tests",
    (lambda f: f(double, platform_target="trn9"), ParameterError, "trn9",
     "pass one of these, or nothing", lambda f: (f(double, platform_target="trn2"), f(double))),
    kept=lambda f: (f(double, mode="trace"), f(double, platform_target="trn2")(X)), inside=False)

def _returned(f, make):
    @f
    def kernel(x):
        return make(x)

    kernel(X)

refused("nki.jit",
    "outputs are tensors created with buffer=shared_hbm and returned from the kernel",
    (lambda f: _returned(f, nl.load), OutputError, "shared_hbm",
     "make an output with nl.ndarray(...,", lambda f: _returned(f, double)),
    inside=False)
refused("nki.jit", "kernel inputs/outputs must live in HBM",
    (lambda f: _returned(f, lambda x: nl.add(x, x)), MemorySpaceError, "HBM is reached by DMA",
     "nl.load the tensor into SBUF first", lambda f: _returned(f, added)),
    kept=lambda f: _returned(f, double), inside=False)

def _launched(f):
    np.testing.assert_array_equal(f(tiles)[2](X), X)
    np.testing.assert_array_equal(f(tiles)[(2,)](X), X)

holds("nki.jit", "launch grid is given by indexing: kernel[grid](args)", _launched)

# -- decorators of nki.compiler

def in_order(_):
    @ncc.enable_stack_allocator
    @ncc.skip_middle_end_transformations
    @nki.jit
    def kernel(x):
        return double(x)

    kernel(X)

refused("ncc.enable_stack_allocator", "must be combined with skip_middle_end_transformations",
    (lambda f: f(nki.jit(double))(X), ParameterError, "skip_middle_end_transformations",
     "write @ncc.enable_stack_allocator,", in_order),
    kept=lambda f: f(ncc.skip_middle_end_transformations(nki.jit(double)))(X), inside=False)
refused("ncc.enable_stack_allocator", "outermost of the decorators, above nki.jit",
    (lambda f: ncc.skip_middle_end_transformations(f(nki.jit(double)))(X), ParameterError,
     "outermost", "write @ncc.enable_stack_allocator,", in_order),
    kept=lambda f: f(ncc.skip_middle_end_transformations(nki.jit(double)))(X), inside=False)
holds("ncc.multi_buffer", "factor = number of buffers, default 2", lambda f: _factor(f))

def _factor(f):
    assert (f(), f(3)) == (2, 3)

# -- direct allocation

def _filled(buffer, *shape):
    """A tile in `buffer`, written and read in a kernel that places all of its tiles."""
    made = nl.ndarray(shape, nl.float32, buffer=buffer)
    blocks = shape[0] if len(shape) == 3 else None
    parts = [made] if blocks is None else [made[i] for i in range(blocks)]
    for part in parts:
        part[...] = nisa.memset(part.shape, 2.0, nl.float32)
    if made.buffer.space is nl.sbuf:
        nl.device_print("", parts[0])

def block(n, *shape):
    return (n, nl.par_dim(shape[0]), *shape[1:])

refused("ncc.sbuf.alloc", "func(idx, pdim_size, fdim_size_bytes) -> (start_partition, byte_addr)",
    (lambda f: _filled(f(lambda idx, p, size: 0), 4, 4), PlacementError,
     r"returns \(start partition, byte\)", "return a tuple of these",
     lambda f: _filled(f(lambda idx, p, size: (0, 0)), 4, 4)),
    kept=lambda f: _filled(f(lambda idx, p, size: (0, idx[0] * size)), *block(3, 4, 4)))
refused("ncc.sbuf.alloc",
    "start_partition: 0 if 64<pdim<=128; {0,64} if 32<pdim<=64; {0,32,64,96} if pdim<=32",
    (lambda f: _filled(f(lambda idx, p, size: (32, 0)), 64, 4), PlacementError, r"one of \(0, 64\)",
     "start at one of these partitions", lambda f: _filled(f(lambda idx, p, size: (64, 0)), 64, 4)),
    (lambda f: _filled(f(lambda idx, p, size: (32, 0)), 65, 4), PlacementError, "one of \\(0,\\)",
     "start at one of these partitions", lambda f: _filled(f(lambda idx, p, size: (0, 0)), 65, 4)),
    (lambda f: _filled(f(lambda idx, p, size: (16, 0)), 4, 4), PlacementError,
     "one of \\(0, 32, 64, 96\\)", "start at one of these partitions",
     lambda f: _filled(f(lambda idx, p, size: (96, 0)), 4, 4)))
refused("ncc.sbuf.alloc", "NeuronCore-v2: 0 <= byte_addr < (192-16)*1024; 16KiB is reserved",
    (lambda f: _filled(f(lambda idx, p, size: (0, 176 * 1024)), 4, 4), PlacementError,
     "bytes 0..180223", "use fewer physical tiles (num_free_tiles), or a lower",
     lambda f: _filled(f(lambda idx, p, size: (0, 175 * 1024)), 4, 4)),
    kept=lambda f: _filled(f(lambda idx, p, size: (0, 176 * 1024 - 16)), 4, 4))
exempt("ncc.sbuf.alloc", "byte_addr aligned to sbuf_min_align",
    "AWS does not print the alignment; by the secondary source it is 1, which nothing breaks")

def _mixed(buffer, by_hand=True):
    _filled(buffer, 4, 4)
    return placed(4, 4, address=4096) if by_hand else nl.load(hbm(4, 4))

refused("ncc.sbuf.alloc", "cannot be mixed with automatic allocation in one kernel",
    (lambda f: _mixed(f(lambda idx, p, size: (0, 0)), by_hand=False), PlacementError,
     "all of its on-chip tensors directly, or none",
     "declare the tile with an allocation of nki.compiler and",
     lambda f: _mixed(f(lambda idx, p, size: (0, 0)), by_hand=True)),
    kept=lambda f: _mixed(f(lambda idx, p, size: (0, 0))))
refused("ncc.sbuf.mod_alloc", "no mixing with automatic allocation",
    (lambda f: _mixed(f(base_addr=0), by_hand=False), PlacementError,
     "all of its on-chip tensors directly, or none",
     "declare the tile with an allocation of nki.compiler and",
     lambda f: _mixed(f(base_addr=0), by_hand=True)),
    kept=lambda f: _mixed(f(base_addr=0)))
refused("ncc.psum.alloc", "no mixing with automatic allocation",
    (lambda f: _mixed(f(lambda idx, p, size: (0, 0, 0)), by_hand=False), PlacementError,
     "all of its on-chip tensors directly, or none",
     "declare the tile with an allocation of nki.compiler and",
     lambda f: _mixed(f(lambda idx, p, size: (0, 0, 0)), by_hand=True)),
    kept=lambda f: _mixed(f(lambda idx, p, size: (0, 0, 0))))

def _auto(memory):
    """The text is on auto_alloc: what is left to the compiler, beside a placed tile."""

    def broken(f):
        x = placed(4, 4)
        made = nl.ndarray((4, 4), nl.float32, buffer=f())
        made[...] = nisa.tensor_copy(x)
        return made if memory == "sbuf" else x

    def kept(f):
        made = nl.ndarray((4, 4), nl.float32, buffer=f())
        made[...] = nl.zeros((4, 4), nl.float32)
        return nl.copy(made)

    def mended(f):
        x = placed(4, 4)
        memory_of = ncc.sbuf if memory == "sbuf" else ncc.psum
        place = {"base_addr": 4096} if memory == "sbuf" else {"base_bank": 0}
        made = nl.ndarray((4, 4), nl.float32, buffer=memory_of.mod_alloc(**place))
        made[...] = nisa.tensor_copy(x)
        return made if memory == "sbuf" else x

    return broken, mended, kept

for memory in ("sbuf", "psum"):
    broken, mended, kept = _auto(memory)
    refused(f"ncc.{memory}.auto_alloc",
        "all on-chip tensors of a kernel are auto, or all are direct",
        (broken, PlacementError, "all of its on-chip tensors directly, or none",
         "declare the tile with an allocation of nki.compiler and", mended),
        kept=kept)

def _places(f, idx, blocks, **options):
    place = f(base_addr=100, **options).place
    return place(idx, 32, 64)

def _rotates(f):
    # Block (i, j) of free places (2, 3): (i % 2) * 3 + j % 3 sizes on.
    for i in range(4):
        for j in range(5):
            start, address = _places(f, (i, j), 2, num_free_tiles=(2, 3))
            assert (start, address) == (0, 100 + 64 * ((i % 2) * 3 + j % 3))

holds("ncc.sbuf.mod_alloc", "tile index per dim is taken modulo num_*_tiles, then linearised",
    _rotates)

def _addresses(f):
    start, address = _places(f, (3,), 1, num_par_tiles=(4,), num_free_tiles=(2,))
    assert start == 3 * 32
    assert address == 100 + (3 % 2) * 64

holds("ncc.sbuf.mod_alloc",
    "addr = base_addr + idx*fdim_size; partition = base_partition + idx*pdim_size", _addresses)
refused("ncc.sbuf.mod_alloc", "base_partition must be 0",
    (lambda f: f(base_addr=0, base_partition=32), ParameterError, "base_partition must be 0",
     "leave it out", lambda f: f(base_addr=0)),
    kept=lambda f: f(base_addr=0, base_partition=0), inside=False)
refused("ncc.sbuf.mod_alloc",
    "num_par_tiles/num_free_tiles empty (=all ones) or one entry per block dim",
    (lambda f: _filled(f(base_addr=0, num_free_tiles=(2, 2)), *block(3, 4, 4)), ParameterError,
     "one entry for each block axis", "count the axes before the partition axis",
     lambda f: _filled(f(base_addr=0, num_free_tiles=(3,)), *block(3, 4, 4))))
refused("ncc.psum.alloc",
    "func(idx, pdim_size, fdim_size_bytes) -> (bank_id, start_partition, byte_addr)",
    (lambda f: _filled(f(lambda idx, p, size: (0, 0)), 4, 4), PlacementError,
     r"returns \(bank, start partition, byte address\)", "return a tuple of these",
     lambda f: _filled(f(lambda idx, p, size: (0, 0, 0)), 4, 4)),
    kept=lambda f: _filled(f(lambda idx, p, size: (idx[0], 0, 0)), *block(3, 4, 4)))
refused("ncc.psum.alloc", "fdim_size <= 2KiB (one bank)",
    (lambda f: _filled(f(lambda idx, p, size: (0, 0, 0)), 4, 513), TileSizeError, "a PSUM bank",
     "divide the free axes into smaller tiles, or use a narrower",
     lambda f: [_filled(f(lambda idx, p, size: (0, 0, 0)), 4, n) for n in (512, 1)]),
    kept=lambda f: _filled(f(lambda idx, p, size: (0, 0, 0)), 4, 512))
refused("ncc.psum.alloc", "start_partition and byte_addr must be 0",
    (lambda f: _filled(f(lambda idx, p, size: (0, 32, 0)), 4, 4), PlacementError,
     "partition 0 and byte 0", "return (bank, 0, 0) with a bank of 0..7; to rotate over",
     lambda f: _filled(f(lambda idx, p, size: (0, 0, 0)), 4, 4)),
    (lambda f: _filled(f(lambda idx, p, size: (0, 0, 64)), 4, 4), PlacementError,
     "partition 0 and byte 0", "return (bank, 0, 0) with a bank of 0..7; to rotate over",
     lambda f: _filled(f(lambda idx, p, size: (1, 0, 0)), 4, 4)),
    (lambda f: _filled(f(lambda idx, p, size: (8, 0, 0)), 4, 4), PlacementError, "one of 8 banks",
     "return (bank, 0, 0) with a bank of 0..7; to rotate over",
     lambda f: _filled(f(lambda idx, p, size: (7, 0, 0)), 4, 4)),
    kept=lambda f: _filled(f(lambda idx, p, size: (7, 0, 0)), 4, 4))
for option in ("base_addr", "base_partition"):
    refused("ncc.psum.mod_alloc", f"{option} must be 0",
        (lambda f, option=option: f(base_bank=0, **{option: 32}), ParameterError,
         f"{option} must be 0", "leave it out", lambda f: f(base_bank=0)),
        kept=lambda f, option=option: f(base_bank=0, **{option: 0}), inside=False)

def _banks(f):
    place = f(base_bank=1, num_bank_tiles=(2, 3)).place
    for i in range(3):
        for j in range(4):
            assert place((i, j), 128, 64) == (1 + (i % 2) * 3 + j % 3, 0, 0)

holds("ncc.psum.mod_alloc", "num_bank_tiles = banks rotated over", _banks)
refused("ncc.psum.mod_alloc", "num_par_tiles and num_free_tiles empty or all ones",
    (lambda f: f(base_bank=0, num_free_tiles=(2,)), ParameterError, "one tile at a time",
     "leave num_free_tiles out and rotate over banks with",
     lambda f: f(base_bank=0, num_bank_tiles=(2,))),
    kept=lambda f: f(base_bank=0, num_free_tiles=(1,), num_par_tiles=()), inside=False)

# -- nki.typing

@nki.jit
def rightly_annotated(x):
    loaded: nt.tensor[4, 4] = nl.load(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, loaded)
    return out

@nki.jit
def wrongly_annotated(x):
    loaded: nt.tensor[4, 5] = nl.load(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, loaded)
    return out

refused("nt.tensor",
    "an annotated assignment whose shape differs raises err_annotation_shape_mismatch",
    (lambda f: wrongly_annotated(X), ShapeError, "err_annotation_shape_mismatch",
     "correct the annotation, or the shape", lambda f: rightly_annotated(X)),
    inside=False)
exempt("nt.tensor", "no stub file; facts from nki.errors.rst and the documentation samples",
    "a remark about the sources")
exempt("nt.mutable_tensor", "no stub file; facts from nki.errors.rst", "a remark about the sources")

def _updated(f, mutable, returned=True):
    def kernel(x):
        nl.store(x, nl.load(x) + 1)
        return x if returned else double(x)

    kernel.__annotations__["x"] = f if mutable else nt.tensor
    nki.jit(kernel)(values(4, 4))

refused("nt.mutable_tensor", "parameters are immutable by default",
    (lambda f: _updated(f, mutable=False), ParameterError, "err_cannot_update_immutable_parameter",
     "write to an nl.shared_hbm tensor, or annotate the",
     lambda f: (_updated(f, mutable=True), nki.jit(double)(values(4, 4)))),
    kept=lambda f: _updated(f, mutable=True), inside=False)
refused("nt.mutable_tensor", "a mutable parameter must be among the returned values",
    (lambda f: _updated(f, mutable=True, returned=False), ParameterError,
     "err_mutable_parameter_not_returned", "add x to the return statement",
     lambda f: _updated(f, mutable=True, returned=True)),
    kept=lambda f: _updated(f, mutable=True), inside=False)
