"""What profiles refuse, where they say it, and what they leave behind."""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import TensorSpec
from nkisim.report.files import write_whole

F32 = np.dtype(np.float32)
X = TensorSpec((128, 64), F32)


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


async def waits(x):
    return x


def yields(x):
    yield x


@pytest.mark.parametrize(
    "shape",
    [128, None, ("128", "64"), (128, None), ((128,), 64), (-128, 64), (128.0, 64), (True, 64)],
)
def test_a_shape_that_no_tensor_has_is_refused_at_the_call(shape):
    with pytest.raises(nkisim.KernelError, match="has the shape") as caught:
        nkisim.profile(double, TensorSpec(shape, F32))
    assert caught.value.location.function.startswith("test_")  # not the kernel's line


@pytest.mark.parametrize(
    ("argument", "said"),
    [(TensorSpec, "the class TensorSpec"), (TensorSpec((128, 64), None), "dtype None")],
)
def test_what_is_no_tensor_is_refused(argument, said):
    with pytest.raises(nkisim.KernelError, match=said):
        nkisim.profile(double, argument)


def test_a_spec_takes_a_type_of_torch_and_sizes_of_numpy():
    torch = pytest.importorskip("torch")
    spec = TensorSpec([np.int64(128), 64], torch.bfloat16)
    same = nkisim.profile(double, TensorSpec((128, 64), nl.bfloat16))
    assert nkisim.profile(double, spec).latency_us == same.latency_us
    with pytest.raises(nkisim.KernelError, match=r"write nl\.bfloat16"):
        nkisim.profile(lambda x: nl.ndarray((128, 64), torch.bfloat16, buffer=nl.shared_hbm), X)


def test_a_type_that_does_not_exist_is_called_by_its_name():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(nkisim.KernelError, match="float8_e4m3fn'"):
        nkisim.profile(double, TensorSpec((128, 64), np.dtype(ml_dtypes.float8_e4m3fn)))


@pytest.mark.parametrize("kernel", [dict, len, 5])
def test_what_is_no_function_is_no_kernel(kernel):
    with pytest.raises(nkisim.KernelError, match="is not a kernel"):
        nkisim.profile(kernel, X)


@pytest.mark.parametrize("kernel", [waits, yields])
def test_a_function_whose_body_would_not_run_is_no_kernel(kernel):
    with pytest.raises(nkisim.KernelError, match="runs nothing of it"):
        nkisim.profile(kernel, X)


def test_arguments_that_do_not_fit_name_the_kernel():
    with pytest.raises(TypeError, match=r"kernel double\(x\): missing"):
        nkisim.profile(double)
    with pytest.raises(TypeError, match=r"kernel double\(x\): got an unexpected"):
        nkisim.profile(double, X, y=1)


def test_a_parameter_may_be_called_kernel():
    def copied(kernel):
        out = nl.ndarray(kernel.shape, kernel.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(kernel))
        return out

    assert nkisim.profile(copied, kernel=X).instructions == 2


@pytest.mark.parametrize("call", [double, nki.baremetal(double)])
def test_a_call_needs_values(call):
    with pytest.raises(nkisim.KernelError, match=r"no values.*\n(.*\n)*.*nkisim\.profile"):
        call(X)


def test_parts_and_rows_that_are_not_there_are_refused():
    t = nkisim.profile(double, X)
    for part in ({"start_us": 5, "end_us": 1}, {"start_us": 1000}):
        with pytest.raises(nkisim.KernelError, match="the part to show"):
            t.plot(**part)
    with pytest.raises(nkisim.KernelError, match="rows"):
        t.table(-1)
    with pytest.raises(nkisim.KernelError, match="compared with another"):
        t.compare(5)


BAD = [
    (nki.benchmark, {"iters": 0}),
    (nki.benchmark, {"iters": "a"}),
    (nki.benchmark, {"warmup": -1}),
    (nki.benchmark, {"save_neff_name": 3}),
    (functools.partial(nki.profile, working_directory="/tmp"), {"profile_nth": 0}),
    (functools.partial(nki.profile, working_directory="/tmp"), {"overwrite": "x"}),
    (nki.baremetal, {"artifacts_dir": 3}),
    (nki.baremetal, {"artifacts_dir": __file__}),
]


@pytest.mark.parametrize(("decorator", "options"), BAD)
def test_values_that_an_option_cannot_have_are_refused(decorator, options):
    with pytest.raises(nkisim.KernelError, match=next(iter(options))):
        decorator(**options)


@pytest.mark.parametrize("decorator", [nki.benchmark, nki.baremetal])
def test_an_option_that_is_not_documented_is_told(decorator):
    with pytest.warns(nkisim.NkiWarning, match="ignores save_nef_name=") as caught:
        decorator(save_nef_name="file.neff")(double)
    assert "write save_neff_name" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_artifacts_of_another_profile_are_kept(tmp_path):
    def profiled(**options):
        return nki.profile(working_directory=str(tmp_path), **options)(double.func)

    x = np.zeros((128, 64), np.float32)
    kernel = profiled()
    kernel(x)
    kernel(np.zeros((128, 128), np.float32))  # its own
    before = {p.name: p.read_text() for p in tmp_path.iterdir()}
    assert len(before) == 2
    with pytest.raises(nkisim.KernelError, match="overwrite=True"):
        profiled()(x)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == before
    profiled(overwrite=True)(x)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} != before


def test_a_trace_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    t, path = nkisim.profile(double, X), tmp_path / "trace.json"
    t.to_perfetto(path)
    before, mode = path.read_text(), path.stat().st_mode

    def full(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", full)
        with pytest.raises(OSError, match="no space"):
            nkisim.profile(double, TensorSpec((128, 128), F32)).to_perfetto(path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
    t.to_perfetto(path)
    assert path.stat().st_mode == mode
    assert json.loads(path.read_text())["traceEvents"]


def test_what_is_no_file_is_written_to_as_it_is():
    write_whole(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()


def test_a_figure_shows_itself_in_a_notebook_and_takes_a_background():
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    import io

    figure = nkisim.profile(double, X).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")

    def corner(**options):
        data = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            figure.savefig(data, format="png", **options)
        return image.open(data).convert("RGBA").getpixel((1, 1))

    assert corner()[3] == 0
    assert corner(facecolor="white") == (255, 255, 255, 255)
