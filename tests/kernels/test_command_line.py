"""`python -m kernels`: each operator in each framework, forward and backward."""

from __future__ import annotations

import pytest

from kernels import __main__ as command


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("operator", ["add", "avgpool", "giou", "rmsnorm"])
def test_every_operator_agrees_with_its_framework(operator, framework, capsys):
    pytest.importorskip(framework)
    assert command.main([operator, "--framework", framework]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{operator} in {framework}, kernels run by ")
    assert said.count("right") >= 2
    assert "WRONG" not in said


def test_a_wrong_gradient_is_found(monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(command, "_apply", lambda *_: lambda a, b: a + 1.01 * b)
    assert torch is not None
    assert command.main(["add"]) == 1
    assert "gradient 1 (300, 700): WRONG" in capsys.readouterr().out
