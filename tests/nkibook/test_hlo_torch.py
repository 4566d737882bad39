"""nkibook.hlo.torch_hlo: what torch_xla makes of a function, read back from XLA's text."""

from __future__ import annotations

import collections
import os
import re

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_xla")

from kernels.add.torch_op import add  # noqa: E402
from nkibook.hlo import NKI_TARGET, HloUnavailable, torch_hlo  # noqa: E402


def opcodes(hlo) -> dict[str, int]:
    counts = collections.Counter(i.opcode for i in hlo.instructions)
    return {name: counts[name] for name in ("parameter", "multiply", "add", "custom-call")}


def dims(hlo) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter by the name torch_hlo gives it."""
    return {hlo.labels[p.parameter_number]: p.shape.dims for p in hlo.entry.parameters}


def test_nki_kernel_is_a_custom_call_in_true_hlo():
    a, b = torch.rand(256, 1024), torch.rand(256, 1024)
    hlo = torch_hlo(lambda a, b: a * b * add(a, b), a, b)
    assert f'custom_call_target="{NKI_TARGET}"' in str(hlo)
    assert opcodes(hlo) == {"parameter": 2, "multiply": 2, "add": 0, "custom-call": 1}
    (call,) = hlo.custom_calls
    assert call.target == NKI_TARGET
    assert [s.dims for s in (*call.operand_shapes, *call.result_shapes)] == [(256, 1024)] * 3
    assert call.config["func_name"] in call.kernel_name
    assert hlo.origin.startswith("torch_xla ")


def test_framework_add_has_no_custom_call():
    hlo = torch_hlo(lambda a, b: a * b * (a + b), torch.rand(4, 5), torch.rand(4, 5))
    assert hlo.custom_calls == ()
    assert opcodes(hlo)["add"] == 1


def test_training_graph_with_the_kernel():
    def train(a, b):
        out = a * b * add(a, b)
        return out, *torch.autograd.grad(out.sum(), (a, b))

    a, b = (torch.rand(128, 512, requires_grad=True) for _ in range(2))
    hlo = torch_hlo(train, a, b)
    assert [s.dims for s in hlo.entry.root.shape.elements] == [(128, 512)] * 3
    assert len(hlo.custom_calls) == 1  # the backward pass needs no second kernel
    assert opcodes(hlo)["multiply"] > 2


def test_backward_in_fn_leaves_the_callers_gradients_alone():
    def train(a):
        (a * a).sum().backward()
        return a.grad

    a = torch.rand(3, 4, requires_grad=True)
    assert torch_hlo(train, a).entry.root.shape.elements[0].dims == (3, 4)
    assert a.grad is None


def test_parameters_carry_the_names_of_the_arguments():
    def fn(x, weight, *rest):
        return (x @ weight.t() + rest[0]) * rest[1]["s"]

    shapes = {"x": (2, 3), "weight": (5, 3), "rest[0]": (5,), "rest[1]['s']": (2, 1)}
    tensors = [torch.rand(shape) for shape in shapes.values()]
    hlo = torch_hlo(fn, *tensors[:3], {"s": tensors[3]})
    assert dims(hlo) == shapes
    # torch_xla numbers them as it meets them; the text to read has them in the arguments' order.
    read = re.findall(r"parameter\((\d)\) /\*(.*?)\*/", hlo.text(short=True))
    assert [name for _, name in sorted(read)] == list(shapes)
    assert list(hlo.labels) != sorted(hlo.labels)
    assert "ENTRY IrToHlo (p0: f32[2,3], p1: f32[5,3], p2: f32[5], p3: f32[2,1])" in hlo.text(
        short=True
    )


def test_same_tensor_twice_is_one_parameter_and_namedtuples_survive():
    Pair = collections.namedtuple("Pair", "left right")
    x = torch.rand(3)
    assert opcodes(torch_hlo(lambda a, b: a * b, x, x))["parameter"] == 1
    hlo = torch_hlo(lambda p: p.left * p.right, Pair(torch.rand(2, 3), torch.rand(3)))
    assert dims(hlo) == {"p.left": (2, 3), "p.right": (3,)}


def test_other_arguments_pass_through_and_results_may_nest():
    hlo = torch_hlo(
        lambda a, axis, keep: {"s": [a.sum(axis, keepdim=keep)]}, torch.rand(2, 3), 1, True
    )
    assert hlo.entry.root.shape.elements[0].dims == (2, 1)


def test_module_becomes_parameters_and_stays_on_the_cpu():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    hlo = torch_hlo(model, torch.rand(5, 3))
    weights = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert dims(hlo) == {"input": (5, 3), **weights}
    assert {p.device.type for p in model.parameters()} == {"cpu"}


def test_xla_tensors_are_parameters_even_when_pending():
    import torch_xla

    x = torch.rand(4, 3, device=torch_xla.device())  # pending: drawn only when needed
    hlo = torch_hlo(lambda x: x * x, x)
    assert [i.opcode for i in hlo.instructions] == ["parameter", "multiply", "tuple"]
    assert torch.isfinite(x.cpu()).all()


def test_a_backward_before_torch_xla_is_explained(run_python):
    run_python(
        """
        import pytest
        import torch
        from nkibook.hlo import HloUnavailable, torch_hlo

        x = torch.ones(3, requires_grad=True)
        (x * x).sum().backward()
        with pytest.raises(HloUnavailable, match="before the first backward"):
            torch_hlo(lambda x: torch.autograd.grad((x * x).sum(), x), x)
        torch_hlo(lambda x: x * x, x)  # what needs no gradient still works
        """
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_dtypes_and_strided_views(dtype):
    x = torch.ones(6, 8, dtype=dtype)[::2, 1::3]
    (parameter,) = torch_hlo(lambda x: x * x, x).entry.parameters
    assert parameter.shape.dims == (3, 3)
    assert parameter.dtype == {"bfloat16": "bf16", "float16": "f16", "int32": "s32"}[str(dtype)[6:]]


def test_short_text_is_the_same_whatever_was_traced_before():
    def fn(a, b):
        return a * b * add(a, b)

    args = torch.rand(16, 32), torch.rand(16, 32)
    first = torch_hlo(fn, *args).text(short=True)
    torch_hlo(lambda a: a.exp().softmax(0), torch.rand(7))
    assert torch_hlo(fn, *args).text(short=True) == first
    assert torch_hlo(fn, *args, metadata=True).text(short=True) == first


def test_metadata_names_the_torch_operation():
    hlo = torch_hlo(lambda a: a.tanh(), torch.rand(3), metadata=True)
    (tanh,) = (i for i in hlo.instructions if i.opcode == "tanh")
    assert tanh.metadata["op_type"] == "aten__tanh"
    assert os.path.basename(__file__) in tanh.metadata["source_file"]
    assert not torch_hlo(lambda a: a.tanh(), torch.rand(3)).instructions[1].metadata


def test_what_torch_xla_cannot_show_is_an_error():
    hlo = torch_hlo(lambda a: a * a, torch.rand(3))
    assert hlo.before is hlo
    with pytest.raises(HloUnavailable, match="jax_hlo"):
        _ = hlo.stablehlo
    hlo = torch_hlo(lambda a: a.real, torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(HloUnavailable, match="c64"):
        _ = hlo.after


def test_after_is_what_xla_makes_of_the_module():
    def step(rows, scale, columns):
        return torch.tanh(add(rows, rows) * scale - columns) + 1

    hlo = torch_hlo(step, torch.rand(6, 5), torch.tensor(0.5), torch.rand(5))
    after = hlo.after
    assert (after.stage, after.before) == ("after", hlo)
    assert "XLA backend cpu" in after.origin
    # The kernel is a call still, and what is around it has become one loop.
    assert [str(c.operand_shapes[0].dims) for c in after.custom_calls] == ["(6, 5)"]
    assert after.custom_calls[0].backend_config == hlo.custom_calls[0].backend_config
    assert (hlo.count("fusion"), after.count("fusion")) == (0, 1)
    assert dims(after) == dims(hlo) == {"rows": (6, 5), "scale": (), "columns": (5,)}


def test_results_that_are_not_in_the_graph_are_refused():
    with pytest.raises(TypeError, match="fn returned NoneType"):
        torch_hlo(lambda a: None, torch.rand(3))
    with pytest.raises(ValueError, match=r"shape \(2,\) on cpu"):
        torch_hlo(lambda a: (a, torch.ones(2)), torch.rand(3))
    with pytest.raises(ValueError, match="a tensor on meta"):
        torch_hlo(lambda a: a, torch.ones(3, device="meta"))


def test_an_error_in_fn_leaves_tracing_off():
    import torch_xla

    def fails(a):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        torch_hlo(fails, torch.rand(3), metadata=True)
    assert torch_xla._XLAC._get_ir_debug() is False
    a = torch.rand(4, 4)
    on_device = a.to(torch_xla.device())
    torch.testing.assert_close(add(on_device, on_device).cpu(), a + a)


def test_without_pjrt_device_there_is_no_warning(run_python):
    environment = {"PJRT_DEVICE": ""}
    done = run_python(
        """
        import os
        os.environ.pop("PJRT_DEVICE")
        import torch
        from nkibook.hlo import torch_hlo
        print(torch_hlo(lambda a: a * a, torch.ones(2)).text(short=True))
        """,
        env=environment,
    )
    assert "multiply(p0, p0)" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("missing", "said"), [("torch", "needs PyTorch"), ("torch_xla", "Linux on x86-64")]
)
def test_missing_packages_are_named(run_python, missing, said):
    done = run_python(
        f"""
        import sys
        sys.modules[{missing!r}] = None
        from nkibook.hlo import torch_hlo
        try:
            torch_hlo(lambda: None)
        except ImportError as error:
            print(error)
        """
    )
    assert said in done.stdout
    assert "nki-book[torch]" in done.stdout


def test_next_to_the_sdk_nothing_of_the_simulator_is_imported(run_python, tmp_path):
    """A made-up SDK: the package is all that torch_hlo needs to know."""
    nki = tmp_path / "sdk" / "neuronxcc" / "nki"
    nki.mkdir(parents=True)
    for folder in (nki.parent, nki):
        (folder / "__init__.py").write_text("__version__ = '2.23'\n")
    done = run_python(
        """
        import sys, torch, kernels
        from nkibook.hlo import jax_hlo, torch_hlo
        print(kernels.backend)
        print(torch_hlo(lambda a: a * a, torch.ones(2)).count("multiply"))
        print([name for name in sys.modules if name.startswith("nkisim")])
        """,
        path=(tmp_path / "sdk",),
    )
    assert done.stdout.splitlines() == ["neuronxcc", "1", "[]"]
