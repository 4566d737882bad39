"""The tool that runs AWS's docstring examples finds them, and fails those that are wrong."""

from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/aws/aws_docstrings.py"

DOCUMENTED = '''
def add(x, y):
    r"""Sums.

    .. code-block:: python

        import nki.language as nl

        a = nl.full((128, 8), 3.0, dtype=nl.float32, buffer=nl.sbuf)
        b = nl.add(a, 2.0)
        assert nl.equal(b, nl.full((128, 8), 5.0, dtype=nl.float32, buffer=nl.sbuf))
        assert nl.equal(b, nl.full((128, 8), {expected}, dtype=nl.float32, buffer=nl.sbuf))

    .. code-block:: python

        a = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)  # asserts nothing

    Text after it."""
    ...

def unknown():
    r"""One that cannot run.

    .. code-block:: python

        {call}
        assert nl.equal(a, a)"""
    ...
'''


def checkout(folder, expected="5.0", call="a = nl.full((8, 8), 0, nl.float32)"):
    home = folder / "sdk" / "nki" / "api" / "nki" / "language"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text(DOCUMENTED.format(expected=expected, call=call))
    return str(folder / "sdk")


def test_examples_that_hold(run_python, tmp_path):
    done = run_python(str(TOOL), checkout(tmp_path))
    assert done.stdout.splitlines() == [
        "passed  nki.language.add, 2 assertions",
        "passed  nki.language.unknown, 1 assertions",
        "2 of 2 examples passed",
    ]


def test_an_assertion_that_does_not_hold_and_a_name_that_is_not_there(run_python, tmp_path):
    sdk = checkout(tmp_path, "6.0", "a = nl.no_such_name((8, 8))")
    done = run_python(str(TOOL), sdk, check=False)
    assert done.returncode == 1
    assert "failed  nki.language.add" in done.stdout
    assert "assertions that do not hold: [2]" in done.stdout
    assert "failed  nki.language.unknown" in done.stdout
    assert "nl.no_such_name does not exist" in done.stdout
    assert done.stdout.endswith("0 of 2 examples passed\n")


def test_a_folder_without_examples(run_python, tmp_path):
    done = run_python(str(TOOL), str(tmp_path), check=False)
    assert done.returncode == 2
    assert "has no example" in done.stderr
