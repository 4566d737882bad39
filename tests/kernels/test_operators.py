"""What every operator promises, in PyTorch and in JAX: the contract of `kernels.operators`.

What is special about one operator stands in its own files. Data are small and odd; the kernels are
held against NumPy over many shapes in test_add.py, test_avgpool.py and so on.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import itertools
import warnings

import numpy as np
import pytest

from kernels import operators
from kernels.arrays import error_in_tolerances, to_numpy
from kernels.giou.reference import random_boxes
from kernels.rope.reference import rotations
from nkisim.runtime import watch

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import torch_devices  # noqa: E402, F401
import torch_neuronx  # noqa: E402, F401
from jax.test_util import check_grads  # noqa: E402

from nkibook.hlo import jax_hlo, torch_hlo  # noqa: E402

OPERATORS = {operator.name: operator for operator in operators.operators()}


def grouped_heads(rng):
    """Four query heads that share two heads of keys and values."""
    return tuple(rng.standard_normal(shape, np.float32) for shape in HEADS)


HEADS = ((4, 70, 33), (2, 131, 33), (2, 131, 33))
OPERATORS["attention grouped"] = dataclasses.replace(
    OPERATORS["attention"], name="attention grouped", data=grouped_heads
)
NAMES = pytest.mark.parametrize("name", OPERATORS)
FRAMEWORKS = pytest.mark.parametrize("framework", ["torch", "jax"])

# For finite differences: shapes of the arguments, the step and the tolerance. float32 leaves 1e-7
# of the values over the step, and curvature the step squared times a third derivative.
SMALL = {
    "add": (((3, 5), (3, 5)), 0.125, 1e-4),
    "avgpool 2": (((2, 5, 6),), 0.125, 1e-4),
    "avgpool 3, 2, 1": (((2, 5, 6),), 0.125, 1e-4),
    "giou": ((), 1 / 64, 2e-3),
    "rmsnorm": (((3, 5), (5,)), 1e-2, 5e-3),
    "matmul": (((3, 4), (4, 5)), 1e-2, 1e-2),
    "softmax": (((3, 5),), 1e-2, 2e-3),
    "attention": (((3, 4), (5, 4), (5, 4)), 1e-2, 5e-3),
    "attention grouped": (((4, 3, 4), (2, 5, 4), (2, 5, 4)), 1e-2, 5e-3),
    "rope": (((2, 3, 4),), 1e-2, 1e-3),
    "swiglu": (((3, 5), (3, 5)), 1e-2, 1e-3),
    "cross_entropy": (((3, 5),), 1e-2, 2e-3),
}
LAUNCHES = {"add": 1, "matmul": 3}  # forward and backward; 2 of the others


def small(name):
    """Arguments that are far from where the operator has no derivative."""
    if name == "giou":  # overlapping, contained and disjoint, no two coordinates within half a unit
        a = [[0, 0, 4, 5], [1, 1, 3, 2], [0, 0, 2, 2], [2, 1, 6, 4]]
        b = [[1, 2, 6, 7], [0, 0, 5, 6], [4, 3, 7, 6], [0.5, 2, 4, 3]]
        return [np.array(boxes, np.float32) for boxes in (a, b)]
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in SMALL[name][0]]


def op_of(name, framework):
    return OPERATORS[name].call(framework)


def given(arrays, framework):
    convert = torch.tensor if framework == "torch" else jnp.asarray
    return [convert(x) for x in arrays]


def cubed(op, framework):
    """A loss whose gradient is not constant, as a function of the operator's arguments."""
    return lambda *args: (op(*args) ** 3).sum()


def gradients(loss, framework, args):
    which = tuple(range(len(args)))
    transform = torch.func.grad if framework == "torch" else jax.grad
    return transform(loss, which)(*args)


def vmap(function, dims, framework):
    return torch.func.vmap(function, dims) if framework == "torch" else jax.vmap(function, dims)


def assert_close(ours, theirs, tolerance=2e-5):
    ours, theirs = (x if isinstance(x, tuple | list) else (x,) for x in (ours, theirs))
    for one, other in zip(ours, theirs, strict=True):
        one, other = to_numpy(one), to_numpy(other)
        assert one.dtype == other.dtype
        scale = max(1.0, float(np.abs(other).max(initial=0.0)))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


@FRAMEWORKS
@NAMES
@pytest.mark.parametrize("dtype", operators.DTYPES)
def test_values_and_gradients_are_those_of_numpy(name, framework, dtype):
    operator = OPERATORS[name]
    arrays = operator.arrays(dtype)
    expected = operator.reference(*arrays)
    rng = np.random.default_rng(1)
    grad = rng.standard_normal(expected.shape, np.float32).astype(expected.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are never read")  # windows of 2 in odd images
        found = operators.forward(operator, framework, arrays)
        grads = operators.backward(operator, framework, arrays, grad)
    for got, wanted in zip(
        (found, *grads), (expected, *operator.gradients(grad, *arrays)), strict=True
    ):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        assert error_in_tolerances(got, wanted, operators.DTYPES[dtype]) <= 1


# No rows, no elements of a row, one element, more axes in front: what an operator must take.
SHAPES = [
    ("add", (1, 1), (1, 1)),
    ("add", (7,), (7,)),
    ("add", (2, 3, 5), (2, 3, 5)),
    ("add", (2, 0, 3), (2, 0, 3)),
    ("avgpool 2", (0, 3, 6, 5)),
    ("avgpool 3, 2, 1", (2, 3, 7, 8)),
    ("giou", (2, 3, 4), (2, 3, 4)),
    ("giou", (0, 4), (0, 4)),
    ("rmsnorm", (7,), (7,)),
    ("rmsnorm", (2, 3, 5, 4), (5, 4)),
    ("rmsnorm", (3, 0, 6), (6,)),
    ("matmul", (7,), (7, 5)),
    ("matmul", (2, 3, 7), (7, 5)),
    ("matmul", (3, 0), (0, 5)),
    ("matmul", (0, 7), (7, 5)),
    ("softmax", (7,)),
    ("softmax", (2, 3, 5)),
    ("softmax", (0, 5)),
    ("attention", (3, 4), (5, 4), (5, 4)),
    ("attention", (2, 0, 3, 4), (2, 0, 5, 4), (2, 0, 5, 4)),
    ("attention", (2, 0, 4), (2, 3, 4), (2, 3, 4)),
    ("attention", (2, 4, 3, 4), (2, 1, 5, 4), (2, 1, 5, 4)),
    ("attention", (0, 4, 3, 4), (0, 2, 5, 4), (0, 2, 5, 4)),
    ("attention", (4, 0, 4), (2, 3, 4), (2, 3, 4)),
    ("rope", (1, 2)),
    ("rope", (2, 0, 3, 4)),
    ("swiglu", (7,), (7,)),
    ("swiglu", (2, 0, 3), (2, 0, 3)),
    ("cross_entropy", (7,)),
    ("cross_entropy", (2, 3, 5)),
    ("cross_entropy", (0, 5)),
]


@FRAMEWORKS
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes(case, framework):
    name, *shapes = case
    rng = np.random.default_rng(0)
    arrays = [
        random_boxes(rng, shape[:-1]) if name == "giou" else rng.standard_normal(shape, np.float32)
        for shape in shapes
    ]
    operator = OPERATORS[name]
    expected = operator.reference(*arrays)
    found = operators.forward(operator, framework, tuple(arrays))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert_close(found, expected)
    grads = operators.backward(operator, framework, tuple(arrays), np.ones_like(expected))
    for grad, x in zip(grads, arrays, strict=True):
        assert (grad.shape, grad.dtype) == (x.shape, x.dtype)
    if 0 in expected.shape:  # the sum over no elements
        assert not any(grad.any() for grad in grads)


@FRAMEWORKS
@NAMES
def test_gradient_by_finite_differences(name, framework):
    """Of every order that there is; a gradient that is 5 % off is found."""
    op, args = op_of(name, framework), given(small(name), framework)
    _, step, tolerance = SMALL[name]
    options = {"eps": step, "atol": tolerance, "rtol": tolerance}
    twice = OPERATORS[name].orders is None
    if framework == "jax":
        check_grads(op, args, order=1 + twice, modes=["rev"], **options)

        def wrong(*args):
            return op(*args) + 0.05 * op(*map(jax.lax.stop_gradient, args))

        with pytest.raises(AssertionError):
            check_grads(wrong, args, order=1, modes=["rev"], **options)
        return
    leaves = [x.requires_grad_() for x in args]
    with warnings.catch_warnings():
        # gradcheck wants float64, which a NeuronCore does not have.
        warnings.filterwarnings("ignore", ".*not a double precision.*")
        assert torch.autograd.gradcheck(op, leaves, **options)
        if twice:
            assert torch.autograd.gradgradcheck(op, leaves, **options)

        def wrong(*args):
            return op(*args) + 0.05 * op(*(x.detach() for x in args)).detach() * 1

        # What is detached has no gradient, and moves with the arguments all the same.
        assert not torch.autograd.gradcheck(wrong, leaves, raise_exception=False, **options)


@FRAMEWORKS
@pytest.mark.parametrize("name", [n for n in OPERATORS if OPERATORS[n].orders == 1])
def test_second_derivative_is_refused(name, framework):
    op, args = op_of(name, framework), given(small(name), framework)
    if framework == "jax":
        first = jax.grad(cubed(op, framework))
        with pytest.raises(NotImplementedError, match="no second derivative"):
            jax.grad(lambda *args: first(*args).sum())(*args)
        return
    leaves = [x.requires_grad_() for x in args]
    grads = torch.autograd.grad(cubed(op, framework)(*leaves), leaves, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        grads[0].sum().backward()


@NAMES
def test_forward_mode_is_refused(name):
    args = given(small(name), "jax")
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(op_of(name, "jax"), args, args)
    tensors = tuple(given(small(name), "torch"))
    with pytest.raises(NotImplementedError, match="in forward mode"):
        torch.func.jvp(op_of(name, "torch"), tensors, tensors)


def batches(name):
    """Which axis of each argument is the batch: all, each alone, and the last axis of all."""
    n = len(small(name))
    alone = [tuple(0 if i == j else None for i in range(n)) for j in range(n)]
    return dict.fromkeys([(0,) * n, (-1,) * n, *alone])


@FRAMEWORKS
@pytest.mark.parametrize(
    ("name", "dims"), [(name, dims) for name in OPERATORS for dims in batches(name)], ids=str
)
def test_vmap(name, dims, framework):
    """Values and gradients are those of one element after the other; one launch where it can be."""
    op = op_of(name, framework)
    arrays = [
        x if dim is None else np.stack([x, x + 1, 2 * x], dim)
        for x, dim in zip(small(name), dims, strict=True)
    ]
    args = given(arrays, framework)
    each = [
        given(
            [x if d is None else x.take(i, d) for x, d in zip(arrays, dims, strict=True)], framework
        )
        for i in range(3)
    ]
    stack = torch.stack if framework == "torch" else jnp.stack
    assert_close(vmap(op, dims, framework)(*args), stack([op(*one) for one in each]))
    loss = cubed(op, framework)
    per_element = vmap(lambda *one: gradients(loss, framework, one), dims, framework)(*args)
    expected = [gradients(loss, framework, one) for one in each]
    assert_close(per_element, [stack(parts) for parts in zip(*expected, strict=True)], 1e-4)

    allowed = zip(dims, OPERATORS[name].batches, strict=True)
    if not all(may or dim is None for dim, may in allowed):
        return
    # The gradients too, but where each element has a sum of its own.
    steps = {op: 1}
    if all(OPERATORS[name].batches) or name == "rmsnorm":
        steps[lambda *one: gradients(loss, framework, one)] = LAUNCHES.get(name, 2)
    for step, count in steps.items():
        mapped = vmap(step, dims, framework)
        if framework == "torch":
            with watch.launches(each=True) as launched:
                mapped(*args)
            assert len(launched) == count
        else:
            module = jax_hlo(jax.jit(mapped), *args).after
            assert 1 <= len(module.custom_calls) <= count  # XLA drops a forward that is not read
            assert "while" not in module.text()


@FRAMEWORKS
@NAMES
def test_vmap_of_no_elements(name, framework):
    op, arrays = op_of(name, framework), small(name)
    shape = tuple(op(*given(arrays, framework)).shape)
    loss = cubed(op, framework)

    def both(*one):
        return op(*one), *gradients(loss, framework, one)

    n = len(arrays)
    for dims in [(0,) * n, *(tuple(0 if i == j else None for i in range(n)) for j in range(n))]:
        batch = [x if d is None else x[None][:0] for x, d in zip(arrays, dims, strict=True)]
        found = vmap(both, dims, framework)(*given(batch, framework))
        shapes = [tuple(x.shape) for x in found]
        assert shapes == [(0, *shape), *((0, *x.shape) for x in arrays)]


@FRAMEWORKS
@NAMES
def test_nested_vmap(name, framework):
    op = op_of(name, framework)
    dims = tuple(0 if may else None for may in OPERATORS[name].batches)
    arrays = [
        np.stack([x, 2 * x]) if may else x
        for x, may in zip(small(name), OPERATORS[name].batches, strict=True)
    ]
    twice = [
        np.stack([x, x + 1]) if may else x
        for x, may in zip(arrays, OPERATORS[name].batches, strict=True)
    ]
    ours = vmap(vmap(op, dims, framework), dims, framework)(*given(twice, framework))
    for i, j in itertools.product(range(2), range(2)):
        one = [x[i, j] if may else x for x, may in zip(twice, OPERATORS[name].batches, strict=True)]
        assert_close(ours[i][j], op(*given(one, framework)))


# Dynamo does what PyTorch warns of: it makes an instance of each Function, and asks for .grad.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@FRAMEWORKS
@NAMES
def test_the_compiler_leaves_the_kernel_alone(name, framework):
    """`jax.jit`, with rematerialisation and a loop, and `torch.compile`: same values, same
    gradients."""
    op, args = op_of(name, framework), given(small(name), framework)

    def loss(*args):
        return (2 * op(*args) + 1).sum() ** 2

    value, expected = loss(*args), gradients(loss, framework, args)
    if framework == "jax":
        which = tuple(range(len(args)))
        assert_close(jax.jit(loss)(*args), value)
        assert_close(jax.jit(jax.grad(loss, which))(*args), expected)

        def again(*args):
            step = jax.checkpoint(loss)
            return jax.lax.scan(lambda total, _: (total + step(*args), None), 0.0, length=2)[0]

        assert_close(jax.jit(jax.grad(again, which))(*args), [2 * x for x in expected], 1e-4)
        return
    leaves = [x.clone().requires_grad_() for x in args]
    found = torch.compile(loss, backend="aot_eager", fullgraph=True)(*leaves)
    assert_close(found.detach(), value)
    found.backward()
    assert_close([x.grad for x in leaves], expected)
    torch._dynamo.reset()


@FRAMEWORKS
@NAMES
def test_a_training_step_is_one_custom_call_for_each_launch(name, framework):
    op, args = op_of(name, framework), given(small(name), framework)
    count = LAUNCHES.get(name, 2)
    if framework == "jax":
        step = jax.jit(jax.value_and_grad(cubed(op, framework), tuple(range(len(args)))))
        assert len(jax_hlo(step, *args).after.custom_calls) == count
        return

    def step(*leaves):
        loss = cubed(op, framework)(*leaves)
        return loss, *torch.autograd.grad(loss, leaves)

    pytest.importorskip("torch_xla")
    module = torch_hlo(step, *(x.requires_grad_() for x in args))
    assert len(module.custom_calls) == count


@FRAMEWORKS
@NAMES
def test_new_data_use_the_same_trace(name, framework, monkeypatch):
    import nkisim.runtime.kernel as kernel

    loss = cubed(op_of(name, framework), framework)
    gradients(loss, framework, given(small(name), framework))
    monkeypatch.setattr(kernel, "Specialization", None)
    gradients(loss, framework, given([x + 1 for x in small(name)], framework))


@FRAMEWORKS
@NAMES
def test_other_dtypes_and_what_is_no_array_are_refused(name, framework):
    op, arrays = op_of(name, framework), small(name)
    for at in range(len(arrays)):
        *front, odd = given(arrays[: at + 1], framework)
        back = given(arrays[at + 1 :], framework)
        if framework == "torch":
            with pytest.raises(TypeError, match="float64"):
                op(*front, odd.double(), *back)
        if name != "giou":  # which takes integers to float32
            whole = odd.int() if framework == "torch" else odd.astype(jnp.int32)
            with pytest.raises(TypeError, match="int32"):
                op(*front, whole, *back)
        if not (name == "rmsnorm" and framework == "torch"):  # whose shape is asked first
            with pytest.raises((TypeError, ValueError), match="is a list"):
                op(*front, [1.0], *back)


# -- PyTorch only


@NAMES
def test_views_are_read_as_they_are(name):
    """Transposed, cut with a step, and repeated without a copy."""
    op = op_of(name, "torch")
    for view in (
        lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
        lambda x: torch.stack([x, x + 1], -1)[..., 0],
        lambda x: x.flip(0).flip(0)[: len(x)],
    ):
        args = given(small(name), "torch")
        assert_close(op(*(view(x) for x in args)), op(*args))
    first = [x[:1].expand(x.shape) for x in given(small(name), "torch")]
    assert_close(op(*first), op(*(x.contiguous() for x in first)))


@NAMES
def test_only_what_needs_a_gradient_gets_one(name):
    op = op_of(name, "torch")
    expected = gradients(cubed(op, "torch"), "torch", given(small(name), "torch"))
    for at in range(len(expected)):
        args = given(small(name), "torch")
        args[at].requires_grad_()
        cubed(op, "torch")(*args).backward()
        assert_close(args[at].grad, expected[at])
        assert all(x.grad is None for i, x in enumerate(args) if i != at)
    args = [x.requires_grad_() for x in given(small(name), "torch")]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        assert not op(*args).requires_grad


CHANGES = [
    lambda y: torch.nn.ReLU(inplace=True)(y),
    lambda y: torch.nn.functional.dropout(y, 1.0, inplace=True),
    lambda y: y.add_(1),
    lambda y: y.__setitem__((..., 0), 0) or y,
]


GUARDED = ["softmax", "attention", "attention grouped"]


@pytest.mark.parametrize("name", GUARDED)
def test_a_result_that_the_gradient_needs_is_guarded(name):
    """As `torch.softmax` guards its own: a change in place is an error, and no wrong gradient."""
    leaves = [x.requires_grad_() for x in given(small(name), "torch")]
    y = op_of(name, "torch")(*leaves)
    y.add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in GUARDED])
def test_results_and_gradients_can_be_changed_in_place(name):
    op = op_of(name, "torch")
    for change in CHANGES:
        both = []
        for function in (op, lambda *args: op(*args).clone()):
            leaves = [x.requires_grad_() for x in given(small(name), "torch")]
            loss = change(function(*leaves)).pow(2).sum()
            both.append(torch.autograd.grad(loss, leaves, create_graph=True))
        assert_close(*([x.detach() for x in grads] for grads in both))
        for grad in both[0]:
            grad.mul_(2)
    loss = lambda *args: torch.relu_(op(*args)).sum()  # noqa: E731
    whole = lambda *args: torch.relu(op(*args)).sum()  # noqa: E731
    batch = [torch.stack([x, x + 1]) for x in given(small(name), "torch")]
    ours, theirs = (
        torch.vmap(lambda *one, f=f: gradients(f, "torch", one))(*batch) for f in (loss, whole)
    )
    assert_close(ours, theirs)


@NAMES
def test_a_result_without_gradient_can_be_changed_in_place(name):
    with torch.no_grad():
        y = op_of(name, "torch")(*(x.requires_grad_() for x in given(small(name), "torch")))
    y += torch.ones_like(y).requires_grad_()
    assert y.requires_grad


@NAMES
def test_on_an_xla_device(name):
    """The values of the CPU, to the last bit; the gradients too, but for sums of other operators'
    making."""
    xla = pytest.importorskip("torch_xla")
    op = op_of(name, "torch")
    here = [x.requires_grad_() for x in given(small(name), "torch")]
    there = [x.detach().to(xla.device()).requires_grad_() for x in here]
    on_cpu, on_device = op(*here), op(*there)
    assert on_device.device.type == "xla"
    assert torch.equal(on_device.detach().cpu(), on_cpu.detach())
    ours = torch.autograd.grad(on_device.pow(3).sum(), there)
    theirs = torch.autograd.grad(on_cpu.pow(3).sum(), here)
    assert_close([x.cpu() for x in ours], theirs)
    if len(here) > 1:
        with pytest.raises((ValueError, RuntimeError), match=r"cpu|device"):
            op(here[0], *there[1:])


@NAMES
@pytest.mark.filterwarnings("ignore:.*other operators run on the CPU")
def test_on_a_neuron_device(name):
    """The values of the CPU, to the last bit; eager, and compiled with its backward pass."""
    op = op_of(name, "torch")
    here = given(small(name), "torch")
    there = [x.to("neuron").requires_grad_() for x in here]
    expected = gradients(cubed(op, "torch"), "torch", here)
    assert torch.equal(op(*there).detach().cpu(), op(*here))
    for function in (op, torch.compile(op, backend="neuron", fullgraph=True)):
        found = function(*there)
        assert found.device.type == "neuron"
        assert_close(found.detach().cpu(), op(*here))
        ours = torch.autograd.grad(found.pow(3).sum(), there)
        assert_close([x.cpu() for x in ours], expected)
    torch._dynamo.reset()
    if len(here) > 1:
        with pytest.raises((ValueError, RuntimeError), match=r"cpu"):
            op(here[0], *there[1:])


def registered(name, *args):
    """The operators that a gradient of the function calls, with their arguments."""
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            if op.namespace == "nki_kernels":
                calls.append((op, args))
            return op(*args, **(kwargs or {}))

    leaves = [x.clone().requires_grad_() for x in args]
    with Calls():
        op_of(name, "torch")(*leaves).sum().backward()
    return calls


@NAMES
def test_operators_pass_opcheck(name):
    """PyTorch's own test of an operator: its schema, its gradient, its shapes without values, and
    all of it compiled with shapes left open. Those that compute a gradient have no gradient."""
    args = [x.bfloat16() if name != "giou" else x for x in given(small(name), "torch")]
    (forward, inputs), *others = registered(name, *args)
    leaves = [
        x.detach().clone().requires_grad_()
        if isinstance(x, torch.Tensor) and x.is_floating_point() and "rope" not in forward.name()
        else x
        for x in inputs
    ]
    torch.library.opcheck(forward, tuple(leaves))
    for op, inputs in others:
        detached = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
        torch.library.opcheck(op, tuple(detached), test_utils=("test_schema", "test_faketensor"))


@NAMES
def test_an_exported_program_has_the_operator_as_a_node(name):
    op, args = op_of(name, "torch"), given(small(name), "torch")

    class Module(torch.nn.Module):
        def forward(self, *args):
            return 2 * op(*args)

    program = torch.export.export(Module(), tuple(args))
    nodes = [n for n in program.graph.nodes if str(n.target).startswith("nki_kernels.")]
    assert len(nodes) == 1
    assert_close(program.module()(*args), 2 * op(*args))


@NAMES
def test_tensors_without_values_give_shapes(name):
    op, args = op_of(name, "torch"), given(small(name), "torch")
    for dtype in (torch.float32, torch.bfloat16):
        expected = op(*(x.to(dtype) for x in args))
        found = op(*(x.to("meta", dtype) for x in args))
        assert found.is_meta
        assert (found.shape, found.dtype, found.stride()) == (
            expected.shape,
            expected.dtype,
            expected.stride(),
        )


def giou_of_torch(a, b):
    """As torchvision's loss, whose boxes are float32."""
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    overlap = (high - low).clamp(min=0).prod(1)
    union = sum((x[:, 2:] - x[:, :2]).prod(1) for x in (a, b)) - overlap
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    return overlap / union - (hull - union) / hull


def rope_of_torch(x, cos, sin):
    """As Llama's, which casts the tables."""
    cos, sin = (torch.from_numpy(t).to(x.dtype) for t in (cos, sin))
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


# What stands in the place of the operator in PyTorch.
THEIRS = {
    "add": torch.add,
    "avgpool 2": lambda x: torch.nn.functional.avg_pool2d(x, 2),
    "avgpool 3, 2, 1": lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1),
    "rmsnorm": lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, 1e-5),
    "matmul": torch.matmul,
    "softmax": lambda x: torch.softmax(x, -1),
    "attention": torch.nn.functional.scaled_dot_product_attention,
    "attention grouped": functools.partial(
        torch.nn.functional.scaled_dot_product_attention, enable_gqa=True
    ),
    "giou": lambda a, b: giou_of_torch(a.float(), b.float()),
    "rope": lambda x: rope_of_torch(x, *rotations(x.shape[-2], x.shape[-1])),
    "swiglu": lambda gate, up: torch.nn.functional.silu(gate) * up,
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(
        x, torch.arange(len(x)) * 7 % x.shape[-1], reduction="none"
    ),
}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_is_pytorchs(name, dtype):
    """The dtype of results and gradients; gradients arrive in the dtype of their leaves."""
    args = [x.to(dtype) for x in given(small(name), "torch")]
    found = []
    for op in (op_of(name, "torch"), THEIRS[name]):
        leaves = [x.clone().requires_grad_() for x in args]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = op(*leaves)
        result.float().sum().backward()
        assert torch.isfinite(result).all()
        found.append([result.dtype, *(x.grad.dtype for x in leaves)])
    assert found[0] == found[1]


# The arguments of the function in PyTorch, and what those of another name are called here.
ARGUMENTS = {
    "add.add": ("input=a", "other=b", "alpha", "out"),
    "avgpool.avg_pool2d": (
        *("input=x", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"),
        "divisor_override",
    ),
    "giou.generalized_box_iou_loss": ("boxes1", "boxes2", "reduction", "eps"),
    "rmsnorm.rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "matmul.matmul": ("input", "other", "out"),
    "softmax.softmax": ("input", "dim", "dtype", "out"),
    "attention.attention": (
        *("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
    ),
    "cross_entropy.cross_entropy": (
        *("input=logits", "target=targets", "weight", "size_average", "ignore_index", "reduce"),
        *("reduction", "label_smoothing"),
    ),
}


@pytest.mark.parametrize("where", ARGUMENTS)
def test_every_argument_of_pytorchs_is_there_or_said_not_to_be(where):
    package, name = where.split(".")
    function = getattr(importlib.import_module(f"kernels.{package}.torch_op"), name)
    ours = inspect.signature(function).parameters
    differs = function.__doc__.partition("Not as ")[2]
    for argument in ARGUMENTS[where]:
        _, _, here = argument.rpartition("=")
        assert here in ours or f"``{here}``" in differs, argument
    if name in ("rms_norm", "cross_entropy"):  # those of PyTorch that are written in Python
        theirs = inspect.signature(getattr(torch.nn.functional, name)).parameters
        assert [argument.partition("=")[0] for argument in ARGUMENTS[where]] == list(theirs)


@NAMES
def test_several_devices_and_arrays_of_numpy_are_refused(name):
    op, args = op_of(name, "torch"), given(small(name), "torch")
    if len(args) == 1:
        return
    with pytest.raises((ValueError, RuntimeError), match=r"on cpu, meta|device"):
        op(args[0], *(x.to("meta") for x in args[1:]))
    with pytest.raises((TypeError, ValueError), match=r"torch|PyTorch"):
        op(args[0], *(x.numpy() for x in args[1:]))
