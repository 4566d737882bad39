"""`python -m kernels`: each operator in each framework, forward and backward."""

from __future__ import annotations

import importlib.util

import pytest

from kernels import __main__ as command
from kernels import operators
from kernels.arrays import FRAMEWORKS

PACKAGES = sorted({operator.package for operator in operators.operators()})


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("package", PACKAGES)
def test_every_operator_is_right(package, framework, capsys):
    pytest.importorskip(framework)
    assert command.main([package, "--framework", framework]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{package}")
    assert f" in {framework}, kernels run by " in said
    assert said.count("right") >= 2
    assert "WRONG" not in said


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ("reference", "result (300, 257): WRONG"),
        ("gradients", "gradient 1 (300, 257): WRONG"),
    ],
)
def test_a_wrong_value_and_a_wrong_gradient_are_found(changed, wrong, monkeypatch, capsys):
    import dataclasses

    def off(*arrays):
        *rest, last = arrays
        return (*rest, 1.001 * last) if changed == "gradients" else sum(arrays) * 1.001

    (add,) = (o for o in operators.operators() if o.name == "add")
    functions = (
        {"reference": off} if changed == "reference" else {"gradients": lambda g, a, b: off(g, g)}
    )
    monkeypatch.setattr(command, "operators", lambda: [dataclasses.replace(add, **functions)])
    assert command.main(["add"]) == 1
    assert wrong in capsys.readouterr().out


def test_numpy_is_all_that_it_needs(run_python):
    """Where neither framework is installed: importing one is an error."""
    code = """
        import runpy, sys
        sys.modules["torch"] = sys.modules["jax"] = None
        for name in {names!r}:
            sys.argv = ["kernels", name]
            try:
                runpy.run_module("kernels", run_name="__main__")
            except SystemExit as end:
                assert end.code == 0, end
    """
    said = run_python(code.format(names=PACKAGES)).stdout
    assert said.count(" in numpy, kernels run by nkisim") == len(operators.operators())
    assert "WRONG" not in said


def test_a_missing_framework_is_named_with_its_extra(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        command.main(["add", "--framework", "jax"])
    assert "pip install '.[jax]'" in capsys.readouterr().err
