"""`nkisim.tune`: every combination has the time that a profile of it has."""

import json
import pickle
import sys
import textwrap
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import KernelError, ParameterError
from nkisim.report.data import of_timeline

X = nkisim.TensorSpec((128, 4096), np.float32)


@nki.jit
def scaled(x, width=512, engine="vector"):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    assert x.shape[1] % width == 0, f"tiles of {width} do not fill the rows"
    for i in range(x.shape[1] // width):
        t = nl.ndarray((x.shape[0], width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[:, i * width : (i + 1) * width])
        if engine == "vector":
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        else:
            nisa.activation(dst=t, op=nl.copy, data=t, scale=2.0)
        nisa.dma_copy(dst=out[:, i * width : (i + 1) * width], src=t)
    return out


@nki.jit
def shared(x):
    """Two launches of the grid share out the columns."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1] // nl.num_programs(0)
    at = nl.program_id(0) * width
    t = nl.ndarray((x.shape[0], width), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[:, at : at + width])
    nisa.dma_copy(dst=out[:, at : at + width], src=t)
    return out


@pytest.fixture(autouse=True)
def _on_trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def test_times_are_those_of_profiles():
    choices = {"width": [128, 512, 4096], "engine": ["vector", "scalar"]}
    found = nkisim.tune(scaled, choices, X, jobs=1, cache=False)
    assert [t.parameters for t in found.trials] == [
        {"width": w, "engine": e} for w in choices["width"] for e in choices["engine"]
    ]
    for trial in found.trials:
        assert trial.figures == of_timeline(nkisim.profile(scaled, X, **trial.parameters))
    times = [t.latency_us for t in found.ranked]
    assert times == sorted(times)
    assert found.best.parameters["width"] != 128


def test_what_does_not_fit_is_kept_with_the_reason():
    found = nkisim.tune(scaled, {"width": [300, 512, 65536]}, X, jobs=1, cache=False)
    wide = nkisim.TensorSpec((128, 65536), np.float32)
    assert [t.refused["message"].partition("\n")[0] for t in found.refused] == [
        "tiles of 300 do not fill the rows",
        "tiles of 65536 do not fill the rows",
    ]
    found = nkisim.tune(scaled, {"width": [65536, 512]}, wide, jobs=1, cache=False)
    (refused,) = found.refused
    assert refused.refused["type"] == "TileSizeError"
    assert "bytes a partition" in found.table()
    with pytest.raises(ParameterError, match="was refused"):
        _ = refused.latency_us


def test_nothing_fits():
    with pytest.raises(AssertionError, match="tiles of 300"):
        nkisim.tune(scaled, {"width": [300, 301]}, X, jobs=1, cache=False)
    with pytest.raises(KernelError, match="bytes a partition"):
        nkisim.tune(
            scaled, {"width": [65536]}, nkisim.TensorSpec((128, 65536), np.float32), cache=False
        )


def test_forms_of_a_kernel_and_launch_grids():
    @nki.jit
    def whole(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    found = nkisim.tune([shared, whole], {"grid": [1, 2]}, X, jobs=1, cache=False)
    assert [t.parameters["kernel"] for t in found.trials] == ["shared", "shared", "whole", "whole"]
    two = nkisim.profile(shared[2], X)
    assert found.trials[1].figures["cores"] == 2
    assert found.trials[1].latency_us == two.latency_us


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"wide": [1]}, "has no argument 'wide'"),
        ({"width": []}, "tries no values of 'width'"),
        ({"width": 128}, "tries no values of 'width'"),
        ({"engine": "vector"}, "tries no values of 'engine'"),
        ({}, "with the parameters {}"),
        ([128], "with the parameters"),
    ],
)
def test_wrong_parameters(parameters, says):
    with pytest.raises(ParameterError, match=says):
        nkisim.tune(scaled, parameters, X, cache=False)
    with pytest.raises(ParameterError, match="as an argument and as a parameter"):
        nkisim.tune(scaled, {"width": [128]}, X, width=512, cache=False)


def test_two_processes_find_what_one_finds(run_python):
    """In a process without JAX or PyTorch: with one of them loaded there is no second process."""
    code = """
    import os
    import kernels
    import nki, nki.isa as nisa, nki.language as nl
    import numpy as np
    import nkisim

    @nki.jit
    def scaled(x, width):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        print(os.getpid(), file=open("processes", "a"))
        for i in range(x.shape[1] // width):
            t = nl.load(x[:, i * width : (i + 1) * width])
            nisa.dma_copy(dst=out[:, i * width : (i + 1) * width], src=t)
        if width == 1:
            undefined_name
        return out

    X = nkisim.TensorSpec((128, 4096), np.float32)
    one, two = (
        nkisim.tune(scaled, {"width": [128, 512, 4096]}, X, jobs=n, cache=False).as_data()
        for n in (1, 2)
    )
    assert one == two
    assert str(os.getpid()) in open("processes").read().split()
    assert len(set(open("processes").read().split())) > 1
    found = nkisim.tune(scaled, {"width": [1, 4096]}, X, jobs=2, cache=False)
    assert "undefined_name" in found.trials[0].refused["message"]
    assert found.best.parameters == {"width": 4096}
    """
    run_python(code, env={"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"})


def test_an_error_of_the_kernels_own_python_is_raised():
    @nki.jit
    def broken(x, n):
        return undefined_name  # noqa: F821

    with pytest.raises(Exception, match="undefined_name"):
        nkisim.tune(broken, {"n": [1, 2]}, X, jobs=1, cache=False)


FACTOR = 1


def test_the_cache_follows_the_kernel_and_not_its_source(tmp_path, monkeypatch):
    @nki.jit
    def repeated(x, times):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        for _ in range(times * FACTOR):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out, src=t)
        return out

    def search():
        return nkisim.tune(repeated, {"times": [1, 4]}, X, jobs=1, cache=tmp_path).as_data()

    first = search()
    assert len(list(tmp_path.iterdir())) == 2
    assert search() == first  # from the files
    file = min(tmp_path.iterdir())
    file.write_text("not JSON")
    assert search() == first
    monkeypatch.setattr("nkisim.tuning.search.timeline", None)
    assert search() == first  # nothing is modelled
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "FACTOR", 40)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    slower = search()
    assert all(
        new["figures"]["latency_us"] > old["figures"]["latency_us"]
        for new, old in zip(slower["trials"], first["trials"], strict=True)
    )


@pytest.mark.parametrize(("chip", "error"), [("trn1", 0.095), ("trn2", 0.194)])
def test_what_is_close_is_not_told_apart(monkeypatch, chip, error):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", chip)
    choices = {"width": [128, 2048], "engine": ["vector", "scalar"]}
    found = nkisim.tune(scaled, choices, X, jobs=1, cache=False)
    best = found.best.latency_us
    assert found.resolution == error
    near = [t for t in found.ranked[1:] if t.latency_us <= best * (1 + error)]
    assert near
    assert found.close == near
    assert f"within {100 * error:.2g}% of the best" in " ".join(found.why().split())
    text = str(found)
    for trial in found.trials:
        assert f"{trial.latency_us:.1f} µs" in text
    assert text.count("best: ") == 1
    assert "width=128" in found.why()
    assert f"<td>{found.best.parameters['width']}</td>" in found._repr_html_()


def test_the_picture_has_a_bar_for_each_that_fits():
    found = nkisim.tune(scaled, {"width": [300, 512, 4096]}, X, jobs=1, cache=False)
    figure = found.plot()
    (axes,), (legend,) = figure.axes, figure.legends
    assert [bar.get_width() for bar in axes.patches] == [t.latency_us for t in found.ranked]
    assert "modelled" in figure.get_suptitle()
    figure.draw_without_rendering()
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


PROGRAM = """
    import warnings
    import nki, nki.isa as nisa, nki.language as nl
    import numpy as np


    @nki.jit
    def scaled(x, width=512):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(x.shape[1] // width):
            t = nl.ndarray((x.shape[0], width), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[:, i * width : (i + 1) * width])
            nisa.dma_copy(dst=out[:, i * width : (i + 1) * width], src=t)
        return out


    if __name__ == "__main__":
        scaled(np.ones((128, 2048), np.float32))
        scaled(np.ones((129, 2048), np.float32))
    """


def test_the_command(run_python, tmp_path):
    script, file = tmp_path / "own.py", tmp_path / "found.json"
    script.write_text(textwrap.dedent(PROGRAM))
    words = ["scaled", "float32[128, 2048]", "width=256,1024,65536", "--no-cache"]
    done = run_python("-m", "nkisim", "tune", str(script), *words, "--json", str(file))
    found = json.loads(file.read_text())
    assert found["form"] == "nkisim.tune/1"
    assert [t["parameters"]["width"] for t in found["trials"]] == [256, 1024, 65536]
    best = found["trials"][found["best"]]
    assert f"best: width={best['parameters']['width']}, " in done.stdout
    wrong = run_python("-m", "nkisim", "tune", str(script), "scale", check=False)
    assert wrong.returncode == 2
    assert "it has scaled" in wrong.stderr


def test_profile_as_json(run_python, tmp_path):
    script, file = tmp_path / "own.py", tmp_path / "found.json"
    script.write_text(textwrap.dedent(PROGRAM))
    done = run_python("-m", "nkisim", "profile", "--json", str(file), str(script), check=False)
    assert done.returncode == 1
    found = json.loads(file.read_text())
    (launch,) = found["launches"]
    assert launch["kernel"] == "scaled"
    assert launch["inputs"] == [{"name": "x", "shape": [128, 2048], "dtype": "float32"}]
    assert f"{launch['latency_us']:.1f} µs" in done.stdout
    assert found["error"]["type"] == "TileSizeError"
    assert found["error"]["fix"]
    assert found["error"]["line"]["text"].startswith("t = nl.ndarray")


class Elsewhere(Executor):
    """Runs what it is sent in this process, on a copy, as another machine would; and loses one."""

    def submit(self, call, /, *args, **kwargs):
        future = Future()
        try:
            if {"width": 256} in args:
                raise BrokenProcessPool("a process was killed")
            future.set_result(pickle.loads(pickle.dumps(call))(*pickle.loads(pickle.dumps(args))))
        except Exception as error:
            future.set_exception(error)
        return future


def test_an_executor_models_the_combinations_and_may_lose_one():
    widths = {"width": [128, 256, 512, 999]}
    found = nkisim.tune(scaled, widths, X, executor=Elsewhere(), cache=False)
    alone = nkisim.tune(scaled, widths, X, jobs=1, cache=False)
    assert [t.parameters for t in found.trials] == [t.parameters for t in alone.trials]
    lost = found.trials[1]
    assert "a process was killed" in lost.refused["message"]
    for here, there in zip(alone.trials, found.trials, strict=True):
        for trial in (here, there):  # the chip is sent, and not what chose it
            (trial.figures or {}).pop("target", None)
        assert there is lost or there == here


FAILURES = {
    "ZeroDivisionError": lambda: 1 // 0,
    "IndexError": lambda: [][0],
    "TypeError": lambda: 1 + "",
    "MemoryError": lambda: np.empty(1 << 60, np.uint8),
    "RecursionError": lambda: FAILURES["RecursionError"](),
    "ParameterError": lambda: sys.exit(3),
}


@nki.jit
def failing(x, how=""):
    if how:
        FAILURES[how]()
    return scaled.func(x)


def test_no_failure_of_a_combination_ends_the_search():
    how = ["", *FAILURES]
    found = nkisim.tune(failing, {"how": how}, X, jobs=1, cache=False)
    assert found.best.parameters == {"how": ""}
    assert [t.refused["type"] for t in found.trials[1:]] == how[1:]
    assert "sys.exit()" in found.trials[-1].refused["fix"]


def test_neither_does_a_process_that_is_killed(run_python):
    code = """
        import os, signal, nkisim
        nkisim.install()
        import nki, nki.isa as nisa, nki.language as nl, numpy as np

        @nki.jit
        def kernel(x, how):
            if how:
                os.kill(os.getpid(), signal.SIGKILL)
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=x)
            return out

        x = np.ones((4, 4), np.float32)
        found = nkisim.tune(kernel, {"how": [0, 1, 0]}, x, jobs=2, cache=False)
        print([t.refused and t.refused["type"] for t in found.trials])
        try:
            nkisim.tune(kernel, {"how": [1, 1]}, x, jobs=2, cache=False)
        except nkisim.KernelError as error:
            print(error.problem)
    """
    out = run_python(textwrap.dedent(code), env={"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"})
    assert out.stdout.splitlines() == [
        "[None, 'BrokenProcessPool', None]",
        "nkisim.tune: each of 2 processes was killed",
    ]


def test_a_launch_grid_that_does_not_exist_is_refused():
    found = nkisim.tune(shared, {"grid": [1, 2, 3]}, X, jobs=1, cache=False)
    assert [bool(t.refused) for t in found.trials] == [False, False, True]


@pytest.mark.parametrize("text", ["{}", "[]", "null", "", '{"figures": {"latency_us": 1}}'])
def test_a_file_of_the_cache_that_was_not_written_so_is_not_used(tmp_path, text):
    search = partial(nkisim.tune, scaled, {"width": [256]}, X, jobs=1, cache=tmp_path)
    want = search().best
    (path,) = tmp_path.glob("*.json")
    path.write_text(text)
    assert search().best == want
    path.write_text(path.read_text().replace('"instructions": ', '"instructions": 1'))
    assert search().best == want
