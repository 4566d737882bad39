"""Verdicts: what they say of right, wrong, refused, slow and limited kernels, and where."""

import json
import sys
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nkisim
from nkisim.errors import ParameterError
from nkisim.judging import Limits, Task, judge, judge_all, read
from nkisim.judging.command import run
from nkisim.judging.comparing import compared
from nkisim.judging.task import for_framework, function_named
from nkisim.judging.transport import UntrustedTrace, loads

KERNELS = """
    import neuronxcc.nki as neuronxcc_nki
    import neuronxcc.nki.language as neuronxcc_nl
    import numpy as np
    import nki, nki.isa as nisa, nki.language as nl


    @nki.jit
    def scaled(x, w, tile=128):
        n, d = x.shape
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        weights = nl.ndarray((128, d), dtype=w.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=weights, src=w.ap([[0, 128], [1, d]]))
        for first in range(0, n, tile):
            size = min(tile, n - first)
            t = nl.ndarray((size, d), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[first : first + size])
            nisa.tensor_tensor(dst=t, data1=t, data2=weights[:size], op=nl.multiply)
            nisa.dma_copy(dst=out[first : first + size], src=t)
        return out


    @nki.jit
    def whole_tiles(x, w):
        out = scaled(x, w)
        n, d = x.shape
        if n % 128:
            t = nl.zeros((1, d), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=out[n - 1 : n], src=t)
        return out


    @nki.jit
    def between(x, factor, w):
        return scaled(x, w, factor)


    @nki.jit
    def swapped(w, x):
        return scaled(x, w)


    @nki.jit
    def shared_out(x, w):
        n, d = x.shape
        half = n // nl.num_programs(0)
        rows = slice(half * nl.program_id(0), half * (nl.program_id(0) + 1))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        weights = nl.ndarray((half, d), dtype=w.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=weights, src=w.ap([[0, half], [1, d]]))
        t = nl.load(x[rows])
        nisa.tensor_tensor(dst=t, data1=t, data2=weights, op=nl.multiply)
        nl.store(out[rows], value=t)
        return out


    @nki.jit
    def loses_rows(x):
        out = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x[0:128]))
        return out


    @nki.jit
    def in_place(x):
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nl.store(x, value=t)
        return x


    @nki.jit
    def too_high(x, w):
        t = nl.ndarray((300, 4), dtype=x.dtype, buffer=nl.sbuf)
        return scaled(x, w)


    @nki.jit
    def sums(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)

        def body(i):
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)

        nl.fori_loop(0, nisa.scalar_load(n), body)
        nl.store(out, value=tile)
        return out


    @neuronxcc_nki.jit
    def by_program(x):
        out = neuronxcc_nl.ndarray(x.shape, dtype=x.dtype, buffer=neuronxcc_nl.shared_hbm)
        i = neuronxcc_nl.program_id(0)
        print("program", i)
        i_p, i_f = neuronxcc_nl.mgrid[0:128, 0 : x.shape[1]]
        rows = i * 128 + i_p
        tile = neuronxcc_nl.load(x[rows, i_f], mask=rows < x.shape[0])
        neuronxcc_nl.store(out[rows, i_f], tile * 2, mask=rows < x.shape[0])
        return out
    """
INPUTS = {"x": "float32[n, d]", "w": "float32[d]"}
CASES = [{"n": 128, "d": 64}, {"n": 300, "d": 5, "hidden": True}]


def product(x, w):
    return x * w


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "kernels_of_this_test.py"
    path.write_text(textwrap.dedent(KERNELS))
    return str(path)


def test_a_right_kernel_has_times_for_each_chip_and_number_of_cores(file):
    calls = []

    def reference(*arrays):
        calls.append(arrays[0].shape)
        return product(*arrays)

    task = Task(INPUTS, CASES, reference, chips=("trn2", "trn3"), baseline=f"{file}:scaled")
    found = judge(f"{file}:scaled", task, seed=0)
    assert found.right
    assert len(calls) == len(set(calls)) == len(CASES)  # once for both chips
    assert found.exit_code == 0
    assert [x.title for x in found.launches][:2] == ["n=128 d=64, trn2", "n=128 d=64, trn3"]
    assert [x.hidden for x in found.launches] == [False, False, True, True]
    assert {x.of_baseline for x in found.launches} == {1.0}
    said = json.loads(json.dumps(found.as_data()))
    assert said["form"] == "nkisim.verdict/1"
    profile = said["launches"][0]["profile"]
    assert profile["machine"] == "NeuronCore-v3"
    assert profile["kind"] == "modelled by nkisim, not measured"
    assert said["launches"][0]["result"]["outputs"][0]["worst"]["times"] == "0.0"


def test_a_wrong_kernel_has_its_worst_element_and_the_smallest_sizes(file):
    found = judge(f"{file}:whole_tiles", Task(INPUTS, CASES, product), seed=3)
    assert found.status == "wrong"
    assert [x.status for x in found.launches] == ["right", "wrong"]
    (output,) = found.launches[1].result["outputs"]
    assert output["wrong"] == 5
    assert output["worst"]["index"][0] == 299
    assert found.smallest.sizes == {"n": 1, "d": 1}
    assert "299" in str(found)


def test_a_refused_kernel_has_its_line_its_rule_and_a_fix(file):
    found = judge(f"{file}:too_high", Task(INPUTS, CASES[:1], product))
    assert (found.status, found.exit_code) == ("refused", 3)
    error = found.launches[0].error
    assert error["line"]["text"].startswith("t = nl.ndarray((300, 4)")
    assert error["rule"]
    assert error["fix"] in str(found)


def test_time_alone_is_asked_without_a_reference_and_without_values(file):
    big = [{"n": 128 * 64, "d": 4096}]  # 128 MiB, that nobody draws
    found = judge(f"{file}:scaled", Task(INPUTS, big))
    assert found.right
    assert found.launches[0].result is None
    assert found.launches[0].seed is None
    spec = nkisim.TensorSpec((300, 5), np.float32), nkisim.TensorSpec((5,), np.float32)
    again = judge(f"{file}:scaled", Task(INPUTS, CASES[1:]))
    assert again.latency_us == pytest.approx(_profiled(file, "scaled", *spec))


def _profiled(file, name, *specs):
    from nkisim.machine import GEN3

    space = {}
    exec(compile(Path(file).read_text(), file, "exec"), space)
    return nkisim.profile(space[name].on(GEN3), *specs).latency_us


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"budget_us": 1.0}, "slow"),
        ({"at_most": 0.99}, "slow"),
        ({"at_most": 1.01}, "right"),
        ({"limits": Limits(instructions=3)}, "limit"),
    ],
)
def test_times_and_limits(file, more, status):
    task = Task(INPUTS, CASES[:1], product, baseline=f"{file}:scaled", **more)
    if status == "limit":  # of which the baseline has none
        task = Task(INPUTS, CASES[:1], product, **more)
    found = judge(f"{file}:scaled", task)
    assert found.status == status
    assert bool(found.launches[0].why) is (status != "right")


def test_registers_read_the_inputs_that_the_task_names_and_see_no_others(file):
    inputs = {"x": "float32[8, 5]", "n": "int32[1, 1]"}
    task = Task(inputs, reference=lambda x, n: x + n[0, 0], registers=["n"])
    assert judge(f"{file}:sums", task).right
    refused = judge(f"{file}:sums", Task(inputs, reference=lambda x, n: x + n[0, 0]))
    assert "registers" in refused.launches[0].error["fix"]


def test_cores_share_a_launch(file):
    found = judge(f"{file}:shared_out", Task(INPUTS, CASES[:1], product, cores=(1, 2)))
    assert [x.status for x in found.launches] == ["right", "right"], str(found)
    assert found.launches[1].title == "n=128 d=64, trn2 on 2 cores"
    assert found.launches[1].profile["cores"] == 2


def test_an_input_is_written_where_the_task_allows_it(file):
    task = Task({"x": "float32[7, 5]"}, reference=lambda x: x * 2, in_place=["x"])
    assert judge(f"{file}:in_place", task).right
    found = judge(f"{file}:in_place", Task({"x": "float32[7, 5]"}, reference=lambda x: x * 2))
    assert "in_place" in found.launches[0].why


def test_a_strict_task_refuses_what_gives_a_warning(file):
    task = Task(INPUTS, [{"n": 129, "d": 5}], strict=True)
    assert judge(f"{file}:scaled", task).right
    (tail,) = judge(f"{file}:whole_tiles", task).launches
    assert tail.status == "right"  # it reads and writes all
    loses = Task({"x": "float32[129, 5]"}, strict=True)
    (lost,) = judge(f"{file}:loses_rows", loses).launches
    assert lost.status == "refused"
    assert "never read" in lost.why


def test_a_launch_grid_constants_dtypes_and_what_is_printed(file):
    task = Task(
        {"x": "kind[n, 7]"},
        [{"n": 300, "kind": "bfloat16"}],
        lambda x: x.astype(np.float32) * 2,
        grid="(n + 127) // 128",
        chips=["trn1"],
    )
    found = judge(f"{file}:by_program", task)
    assert found.right, str(found)
    assert found.launches[0].printed == "program 0\nprogram 1\nprogram 2\n"
    assert judge(f"{file}:scaled", Task(INPUTS, CASES, product, constants={"tile": 100})).right


def test_a_constant_between_the_inputs_and_inputs_in_another_order(file):
    task = Task(INPUTS, CASES[:1], product, constants={"factor": 64})
    assert judge(f"{file}:between", task).right
    found = judge(f"{file}:swapped", Task(INPUTS, CASES[:1], product))
    assert found.status == "refused"
    assert "the order of the task" in found.launches[0].error["fix"]


def test_references_get_the_arrays_of_their_framework(file):
    torch = pytest.importorskip("torch")
    inputs = {"x": "bfloat16[n, d]", "w": "bfloat16[d]"}

    def reference(x, w):
        assert x.dtype is torch.bfloat16
        return x * w

    assert judge(f"{file}:scaled", Task(inputs, CASES[:1], reference, "torch")).right


def test_a_search_goes_on_whatever_becomes_of_a_candidate(file):
    class Executor:
        def submit(self, call, *args, **kwargs):
            from concurrent.futures import Future

            future = Future()
            if "whole" in args[0]:
                future.set_exception(BrokenPipeError("a worker was killed"))
            else:
                future.set_result(call(*args, **kwargs))
            return future

    names = [f"{file}:scaled", f"{file}:whole_tiles", f"{file}:nothing"]
    found = judge_all(names, Task(INPUTS, CASES[:1], product), executor=Executor())
    assert [x.status for x in found] == ["right", "error", "refused"]
    assert "a worker was killed" in str(found[1])
    assert "scaled" in found[2].launches[0].error["fix"]


TOML = """
kernel = "scaled"
name = "Scaled rows"
reference = "kernel_reference.py:product"
chips = ["trn2"]
[inputs]
x = "float32[n, d]"
w = "float32[d]"
[[cases]]
n = 128
d = 64
points = 60
[[cases]]
n = 300
d = 5
hidden = true
[limits]
seconds = 30
"""


@pytest.fixture
def task_file(tmp_path):
    (tmp_path / "kernel_reference.py").write_text("def product(x, w):\n    return x * w\n")
    (tmp_path / "task.toml").write_text(TOML)
    return tmp_path / "task.toml"


def test_a_task_in_a_file(task_file):
    task, more = read(task_file)
    assert task.limits == Limits(seconds=30)
    assert more == {"kernel": "scaled", "name": "Scaled rows"}
    task_file.write_text(TOML.replace("chips", "chip"))
    with pytest.raises(ParameterError, match="the key 'chip'"):
        read(task_file)
    task_file.write_text(TOML.replace("n = 300\n", ""))
    with pytest.raises(ParameterError, match="the size 'n'"):
        read(task_file)
    task_file.write_text('reference = "kernel_reference.py:product"\n')
    with pytest.raises(ParameterError, match="no \\[inputs\\]"):
        read(task_file)
    task_file.write_text(TOML.replace("kernel_reference.py", "task.toml"))
    with pytest.raises(ParameterError, match="no file of Python"):
        read(task_file)


@pytest.mark.parametrize("words", [["--cores=1,x"], ["--time-limit=0"], ["--memory-limit=-1"]])
def test_a_wrong_option_is_a_wrong_word(words, file, capsys):
    with pytest.raises(SystemExit) as ended:
        run([f"{file}:scaled", "x=float32[n,d]", "w=float32[d]", "n=1", "d=1", *words])
    assert ended.value.code == 2
    assert words[0].partition("=")[2] in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float16", "int32"])
def test_a_reference_in_torch_gets_the_same_values(dtype):
    given = np.arange(-3, 4).astype(dtype)
    (tensor,) = for_framework("torch", [given])
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.float().tolist() == given.astype(np.float32).tolist()


def test_the_command_and_its_exit_codes(task_file, file, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run([file, str(task_file), "--seed=1", "--json", "verdict.json"]) == 0
    assert "2 of 2 launches right" in capsys.readouterr().out
    assert json.loads((tmp_path / "verdict.json").read_text())["status"] == "right"
    options = ["--reference", "kernel_reference.py:product", "x=float32[n,d]", "w=float32[d]"]
    assert run([f"{file}:whole_tiles", *options, "n=128,129", "d=1"]) == 1
    assert "n=129 d=1, trn2: wrong" in capsys.readouterr().out
    (tmp_path / "kernel_reference.py").write_text("def product(x, w):\n    raise OSError\n")
    assert run([file, str(task_file)]) == 6, "the reference is at fault, and not the kernel"
    with pytest.raises(SystemExit) as ended:
        run([f"{file}:scaled", "x=float33[2]"])
    assert ended.value.code == 2
    assert "float33" in capsys.readouterr().err


def test_a_trace_is_data():
    import pickle

    for forged in (b"", b"x", pickle.dumps(print), pickle.dumps([1])):
        with pytest.raises(UntrustedTrace):
            loads(forged)


@pytest.mark.parametrize(
    ("found", "wanted", "right"),
    [
        (1.0 + 5e-5, 1.0, True),
        (1.0 + 5e-4, 1.0, False),
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (3e38, np.inf, False),
    ],
)
def test_which_elements_are_right(found, wanted, right):
    f, w = np.float32([[0.0, found]]), np.float32([[0.0, wanted]])
    said = compared([f], ["y"], [w], [f], None, None)
    assert said["right"] is right
    assert right or said["outputs"][0]["worst"]["index"] == [0, 1]


def test_tolerance_follows_the_type_and_integers_are_equal():
    x = np.ones(4, ml_dtypes.bfloat16)
    assert compared([x], [""], [np.full(4, 1.01)], [x], None, None)["right"]
    n = np.arange(4, dtype=np.int32)
    assert not compared([n], [""], [n + (n == 3)], [], None, None)["right"]
    assert compared([n], [""], [n + (n == 3)], [], 1.0, 0.0)["right"]


def test_the_norm_of_a_whole_result():
    wanted = np.float32([3.0, 4.0, 0.0])  # of the norm 5
    found = wanted + np.float32([0, 0, 0.04])
    assert compared([found], [""], [wanted], [found], None, None, 0.01)["right"]
    wrong = compared([found], [""], [wanted], [found], None, None, 0.007)
    assert "0.008 of the result's" in wrong["why"]
    found[0] = np.nan
    assert not compared([found], [""], [wanted], [found], None, None, 9.0)["right"]


def test_a_file_of_a_task_has_its_neighbours_and_leaves_no_folder_to_import_from(tmp_path):
    (tmp_path / "beside_the_task.py").write_text("FACTOR = 3\n")
    (tmp_path / "its_functions.py").write_text(
        "from beside_the_task import FACTOR\n\n\ndef triple(x):\n    return FACTOR * x\n"
    )
    before = list(sys.path)
    assert function_named("its_functions.py:triple", tmp_path)(2) == 6
    assert sys.path == before
