"""`python -m nkisim`: any NKI program, unmodified."""

from __future__ import annotations

import textwrap

import pytest

PROGRAM = """
    import os
    import sys
    import numpy as np
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl


    @nki.jit
    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out


    if __name__ == "__main__":
        rows = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 2
        print(os.path.basename(sys.argv[0]), sys.argv[1:])
        print(double(np.ones((rows, 3), np.float32)).sum())
    """


@pytest.fixture
def program(tmp_path):
    """A script, and the same as a module of a package, with a neighbour that it could import."""
    text = textwrap.dedent(PROGRAM)
    folder = tmp_path / "somewhere"
    folder.mkdir()
    (folder / "program.py").write_text(text)
    (folder / "neighbour.py").write_text("VALUE = 7\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "program.py").write_text(text)
    return folder / "program.py"


@pytest.mark.parametrize("arguments", [[], ["4"], ["--help"], ["-m", "x"], ["--", "a b", "-v"]])
def test_a_script_with_its_own_arguments(run_python, program, arguments):
    done = run_python("-m", "nkisim", str(program), *arguments)
    rows = 4 if arguments == ["4"] else 2
    assert done.stdout == f"program.py {arguments}\n{rows * 6.0}\n"
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [[], ["3"], ["--help"]])
def test_a_module_with_its_own_arguments(run_python, program, arguments):
    done = run_python("-m", "nkisim", "-m", "package.program", *arguments)
    rows = 3 if arguments == ["3"] else 2
    assert done.stdout == f"program.py {arguments}\n{rows * 6.0}\n"


def test_a_script_finds_its_neighbours(run_python, program):
    program.write_text("import sys, neighbour\nprint(neighbour.VALUE, sys.path[0])\n")
    done = run_python("-m", "nkisim", str(program))
    assert done.stdout == f"7 {program.parent}\n"


def test_the_script_is_the_main_module(run_python, program):
    program.write_text(
        "import sys\nprint(__name__, sys.modules['__main__'].__file__ == __file__)\n"
    )
    done = run_python("-m", "nkisim", str(program))
    assert done.stdout == "__main__ True\n"


SCRIPT = "from nkisim.__main__ import main; main()"  # what pip makes of the console script


@pytest.mark.parametrize("command", [("-m", "nkisim"), ("-c", SCRIPT)], ids=["module", "script"])
def test_a_diagnosed_error_ends_the_program(run_python, program, command):
    done = run_python(*command, str(program), "200", check=False)
    assert done.returncode == 1
    assert "TileSizeError" in done.stderr
    assert "partition axis of 200" in done.stderr
    assert "at:   program.py:12 in double" in done.stderr
    assert "fix:" in done.stderr
    assert done.stderr.count('  File "') == 2  # the call and the kernel line


def test_other_errors_keep_the_frames_below_the_program(run_python, program):
    program.write_text(program.read_text().replace("nl.load", "int.reall"))
    done = run_python("-m", "nkisim", str(program), check=False)
    assert done.returncode == 1
    assert "Did you mean: 'real'?" in done.stderr
    assert "kernel.py" in done.stderr
    assert "runpy" not in done.stderr
    assert "__main__.py" not in done.stderr


def test_a_name_that_nki_does_not_have_is_told_at_the_line_of_the_kernel(run_python, program):
    program.write_text(program.read_text().replace("nl.load", "nl.loadd"))
    done = run_python("-m", "nkisim", str(program), check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("  fix:  write nl.load, if that is meant\n")
    assert "kernel.py" not in done.stderr
    assert "During handling" not in done.stderr


@pytest.mark.parametrize(("statement", "code"), [("sys.exit(3)", 3), ("raise SystemExit", 0)])
def test_exit_codes_are_the_programs(run_python, program, statement, code):
    program.write_text(f"import sys\n{statement}\n")
    assert run_python("-m", "nkisim", str(program), check=False).returncode == code


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "target"),
        (["no_such_script.py"], "no file 'no_such_script.py'; for a module use -m"),
        (["-m", "no_such_module"], "no_such_module"),
    ],
)
def test_what_cannot_be_run(run_python, arguments, says):
    done = run_python("-m", "nkisim", *arguments, check=False)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["profile", "--help"]])
def test_help(run_python, arguments):
    text = run_python("-m", "nkisim", *arguments).stdout
    assert "unmodified" in text
    assert "modelled timeline" in text
    assert "NKISIM_CHECKS" in text
    assert "placement" in text


def test_a_real_sdk_is_used(run_python, tmp_path, program):
    nki = tmp_path / "sdk" / "neuronxcc" / "nki"
    nki.mkdir(parents=True)
    (nki.parent / "__init__.py").write_text("")
    (nki / "__init__.py").write_text("WHOSE = 'SDK'\n")
    program.write_text("import neuronxcc.nki as nki\nprint(nki.WHOSE)\n")
    done = run_python("-m", "nkisim", str(program), path=(tmp_path / "sdk",))
    assert done.stdout == "SDK\n"
    assert "running on it" in done.stderr


def test_pytest_takes_no_kernel_for_a_test(run_python, tmp_path):
    path = tmp_path / "test_named.py"
    path.write_text(
        "import neuronxcc.nki as nki\n\n\n"
        "@nki.jit\ndef test_kernel(x):\n    return x\n\n\n"
        "def test_function():\n    assert test_kernel.func is not None\n"
    )
    done = run_python("-m", "nkisim", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path))
    assert "1 passed" in done.stdout
    assert "error" not in done.stdout


def test_programs_that_a_program_starts_run_on_the_simulator(run_python, program, monkeypatch):
    hidden = program.parent / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('hidden')\n")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    program.write_text(
        "import subprocess, sys\n"
        "code = 'import sys, neuronxcc.nki as nki; print(nki.jit.__module__, *sys.path)'\n"
        "print(subprocess.check_output([sys.executable, '-c', code], text=True))\n"
    )
    done = run_python("-m", "nkisim", str(program))
    # Once in the program itself, once in what it starts.
    first, second, module, *path = done.stdout.split()
    assert (first, second, module) == ("hidden", "hidden", "nkisim.frontends.neuronxcc.nki")
    assert str(hidden) in path
    assert not any(folder.endswith("children") for folder in path)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit('enough')", 1),
        ("raise ValueError('no more')", 1),
        ("double(np.ones((200, 3), np.float32))", 1),  # a diagnosed error
        ("import unittest; unittest.main(argv=['program'])", None),
    ],
)
def test_a_profile_is_printed_however_the_program_ends(run_python, program, ending, code):
    with program.open("a") as file:
        file.write(f"    {ending}\n")
    plain = run_python("-m", "nkisim", str(program), check=False)
    done = run_python("-m", "nkisim", "profile", str(program), check=False)
    assert done.stdout.startswith(plain.stdout)
    assert done.stdout.count("double on NeuronCore-v2") == 1
    assert done.returncode == plain.returncode
    assert code in (plain.returncode, None)
    if "unittest" not in ending:  # whose report has a time
        assert done.stderr == plain.stderr


def test_a_profile_of_what_a_test_runner_launches(run_python, program):
    test = program.parent / "test_program.py"
    test.write_text(
        "import numpy as np\nfrom program import double\n\n\n"
        "def test_double():\n    assert double(np.ones((2, 3), np.float32)).sum() == 12\n"
    )
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))
    out = run_python("-m", "nkisim", "profile", *words).stdout
    assert out.index("1 passed") < out.index("double on NeuronCore-v2")


@pytest.mark.parametrize(
    ("ending", "notice"), [("sys.exit()", True), ("pass", True), ("double(1)", False)]
)
def test_a_profile_without_a_launch_says_so_unless_an_error_does(
    run_python, program, ending, notice
):
    program.write_text(program.read_text().split("if __name__")[0] + ending + "\n")
    done = run_python("-m", "nkisim", "profile", str(program), check=False)
    assert done.stdout == ""
    assert ("launched no kernel" in done.stderr) == notice


def test_a_profile_has_each_kernel_grid_and_shapes_once(run_python, program):
    text = program.read_text().split("@nki.jit")
    program.write_text(
        text[0] + "TIMES = 1\n\n\n"
        "@nki.jit\n"
        "def rows(x):\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    at = nl.ds(nl.program_id(0), x.shape[0] // nl.num_programs(0))\n"
        "    tile = nl.load(x[at])\n"
        "    for _ in range(TIMES):\n"
        "        tile = tile * 2\n"
        "    nl.store(out[at], tile)\n"
        "    return out\n\n\n"
        "x = np.ones((2, 3), np.float32)\n"
        "rows[1](x), rows[1](x)\n"
        "nki.simulate_kernel(rows[1], x)\n"
        "nki.baremetal(rows)[1](x)\n"
        "nki.benchmark(warmup=1, iters=1)(rows)[1](x)\n"
        "rows[2](x)\n"
        "rows[1](np.ones((4, 3), np.float32))\n"
        "TIMES = 2  # another model of the first\n"
        "rows[1](x)\n"
    )
    out = run_python("-m", "nkisim", "profile", str(program)).stdout
    found = [line for line in out.splitlines() if "instructions" in line and "overhead" in line]
    assert [line.split()[-2] for line in found] == ["3", "6", "3", "4"]
