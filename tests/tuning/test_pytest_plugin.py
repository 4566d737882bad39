"""The plugin of pytest, in a suite that knows nothing of it."""

import json
import textwrap

import pytest

KERNEL = """
    import nki, nki.isa as nisa, nki.language as nl


    @nki.jit
    def scaled(x, width=512):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(x.shape[1] // width):
            t = nl.ndarray((x.shape[0], width), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[:, i * width : (i + 1) * width])
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[:, i * width : (i + 1) * width], src=t)
        return out
    """
VALUES = """
    import nki.isa, numpy as np
    from kernel import scaled


    def test_values():
        assert (scaled(np.ones((4, 1024), np.float32)) == 2).all()


    def test_chip():
        print("chip", nki.isa.get_nc_version().name)
    """
TIMES = """
    import numpy as np, pytest
    from kernel import scaled


    @pytest.mark.parametrize("width", [128, 512])
    def test_time(modelled_time, width):
        modelled_time(scaled, np.ones((128, 4096), np.float32), width)


    def test_limit(modelled_time):
        found = modelled_time(
            scaled[1], np.ones((128, 4096), np.float32), at_most_us=1e6, bound="DMA queues"
        )
        assert found.instructions
    """


@pytest.fixture
def suite(tmp_path, run_python):
    """Runs pytest on files in a folder of their own."""
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")

    def run(*words, **files):
        for name, text in files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        return run_python(
            *["-m", "pytest", "-p", "pytest_nkisim", "-rA", "-p", "no:cacheprovider"],
            *["--rootdir", str(folder), "-c", str(folder / "pytest.ini"), str(folder), *words],
            env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            path=(folder,),
            check=False,
        )

    run.folder = folder
    return run


def test_a_suite_runs_unmodified_on_the_chip_that_is_named(suite):
    done = suite(
        *("--nkisim-target", "trn2", "--nkisim-nki", "0.6"), kernel=KERNEL, test_values=VALUES
    )
    assert "2 passed" in done.stdout
    assert "chip gen3" in done.stdout
    assert "nkisim: NeuronCore-v3 by NEURON_PLATFORM_TARGET_OVERRIDE=trn2" in done.stdout
    assert "import nki as NKI 0.6" in done.stdout
    wrong = suite("--nkisim-target", "trn9")
    assert wrong.returncode != 0
    assert "trn9" in wrong.stderr


def test_one_line_of_settings_suffices(suite):
    (suite.folder / "pytest.ini").write_text("[pytest]\nnkisim = true\nnkisim_target = trn3\n")
    done = suite("-p", "xdist", "-n", "1", kernel=KERNEL, test_values=VALUES)
    assert "2 passed" in done.stdout
    assert "chip gen4" in done.stdout


def test_without_being_asked_it_does_nothing(suite):
    done = suite(test_x="import sys\ndef test(): assert 'nkisim' not in sys.modules")
    assert "1 passed" in done.stdout


def test_strict_makes_errors_of_warnings(suite):
    code = """
    import warnings, nkisim
    from nkisim.checking.settings import current_modes

    def test_checks():
        assert set(current_modes().values()) == {"error"}

    def test_warning():
        warnings.warn("slow", nkisim.NkiWarning)
    """
    assert "1 failed, 1 passed" in suite("--nkisim-strict", test_x=code).stdout
    assert "2 failed" not in suite("--nkisim", test_x=code).stdout


def test_times_are_stored_and_compared(suite):
    options = ["--nkisim-target", "trn2"]
    done = suite(*options, kernel=KERNEL, test_times=TIMES)
    assert "2 failed, 1 passed" in done.stdout
    assert "pytest --nkisim-store test_times.py" in done.stdout
    assert "3 passed" in suite(*options, "--nkisim-store").stdout
    stored = json.loads((suite.folder / "modelled_times.json").read_text())
    assert set(stored) == {"test_times.py::test_time[128]", "test_times.py::test_time[512]"}
    assert "3 passed" in suite(*options).stdout
    # One loop more is not within the tolerance, and the message says what was stored.
    slower = KERNEL.replace("nisa.tensor_scalar(", "for _ in range(9): nisa.tensor_scalar(")
    done = suite(*options, kernel=slower)
    assert "2 failed, 1 passed" in done.stdout or "3 failed" in done.stdout
    assert f"stored {stored['test_times.py::test_time[512]']['latency_us']:.1f} µs" in done.stdout
    # Nor are times of another chip compared.
    assert "the stored time is of NeuronCore-v3" in suite("--nkisim-target", "trn3").stdout


def test_a_kernel_is_judged_in_processes_of_its_own(suite):
    code = """
    import nkisim.judging

    TASK = nkisim.judging.Task({"x": "float32[n, 512]"}, [{"n": 7}], lambda x: x * 2)

    def test_right(judged):
        assert judged("kernel.py:scaled", TASK, seed=1).launches[0].latency_us > 1

    def test_wrong(judged):
        judged("cheat.py:scaled", TASK)
    """
    cheat = KERNEL.replace("x.shape[1] // width", "0")
    done = suite("--nkisim", kernel=KERNEL, cheat=cheat, test_x=code)
    assert "1 failed, 1 passed" in done.stdout
    assert "scaled of cheat.py: refused" in done.stdout
