"""Kernels that read values of their arguments to tell what to do, on tensors of PyTorch and JAX."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import KernelError

ROWS = np.arange(40, dtype=np.float32).reshape(8, 5)


def load(tensor):
    register = nisa.register_alloc()
    nisa.register_load(register, tensor)
    return register


def times(count, step):
    """Take a step so many times, in a loop of the device."""
    nl.fori_loop(0, count, lambda i: step())


@nki.jit
def counted(x, n):
    """x + n in a loop of n rounds."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    times(nisa.scalar_load(n), lambda: nisa.tensor_scalar(tile, tile, nl.add, 1.0) and None)
    nl.store(out, value=tile)
    return out


@nki.jit
def rows_by_fori(x, n):
    """The first n rows of x doubled; the rest is zero."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.zeros(x.shape, x.dtype, buffer=nl.sbuf))

    def body(i):
        row = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(row, x.ap([[x.shape[1], 1], [1, x.shape[1]]], scalar_offset=i))
        nisa.tensor_scalar(row, row, nl.multiply, 2.0)
        nisa.dma_copy(out.ap([[x.shape[1], 1], [1, x.shape[1]]], scalar_offset=i), row)

    nl.fori_loop(0, load(n), body)
    return out


@nki.jit
def until_zero(x, n):
    """x + n, while a counter in memory is not zero."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, left = nl.load(x), nl.load(n)

    def body(go):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        return load(left)

    nl.while_loop(load(left), body)
    nl.store(out, value=tile)
    return out


@nki.jit
def while_condition(x, n):
    """x + n by nl.while_loop. At least one round is run on hardware: n > 0."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, left = nl.load(x), nl.load(n)

    def body(go):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(go, left)
        return go

    nl.while_loop(load(left), body)
    nl.store(out, value=tile)
    return out


def doubled(x, n):
    return np.where(np.arange(len(x))[:, None] < n, 2 * x, 0)


KERNELS = {
    counted: np.add,
    rows_by_fori: doubled,
    until_zero: np.add,
    while_condition: np.add,
}


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.__name__)
def kernel(request):
    return request.param


def number(n):
    return np.array([[n]], np.int32)


def test_jax_under_jit_vmap_and_eagerly(kernel):
    jax = pytest.importorskip("jax")
    compiled = jax.jit(kernel)
    for n in (5, 0, 3, 5):
        expected = KERNELS[kernel](ROWS, n)
        np.testing.assert_array_equal(compiled(ROWS, number(n)), expected)
        np.testing.assert_array_equal(kernel(*map(jax.numpy.asarray, (ROWS, number(n)))), expected)
    counts = np.array([2, 0, 4], np.int32).reshape(3, 1, 1)
    found = jax.jit(jax.vmap(kernel, in_axes=(None, 0)))(ROWS, counts)
    np.testing.assert_array_equal(found, [KERNELS[kernel](ROWS, n) for n in (2, 0, 4)])
    shape = jax.eval_shape(kernel, ROWS, number(0))
    assert (shape.shape, shape.dtype) == (ROWS.shape, ROWS.dtype)


def test_torch(kernel):
    torch = pytest.importorskip("torch")
    for n in (4, 0):
        found = kernel(torch.from_numpy(ROWS), torch.tensor([[n]], dtype=torch.int32))
        np.testing.assert_array_equal(found, KERNELS[kernel](ROWS, n))


def test_torch_xla_runs_it_and_has_its_shapes_in_the_hlo(kernel):
    torch = pytest.importorskip("torch")
    torch_xla = pytest.importorskip("torch_xla")
    from nkisim.runtime.frameworks.torch import lowering

    given = torch.from_numpy(ROWS), torch.tensor([[3]], dtype=torch.int32)
    x, n = (t.to(torch_xla.device()) for t in given)
    np.testing.assert_array_equal(kernel(x, n).cpu(), KERNELS[kernel](ROWS, 3))
    with lowering():
        found = kernel(x, n)
    hlo = torch_xla._XLAC._get_xla_tensors_hlo([found])
    (line,) = [line for line in hlo.splitlines() if "custom-call(" in line]
    assert "f32[8,5]" in line
    assert "AwsNeuronCustomNativeKernel" in line


def test_one_jitted_function_holds_kernels_with_equal_first_rounds():
    """Their traces on shapes are equal, and what they do is not."""
    jax = pytest.importorskip("jax")

    def loop(step):
        @nki.jit
        def alike(x, n):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            tile = nl.load(x)

            def body(i):
                nisa.tensor_scalar(tile, tile, nl.add, 1.0)

            nl.fori_loop(0, nisa.scalar_load(n), body, step)
            nl.store(out, value=tile)
            return out

        return alike

    one, two = loop(1), loop(2)
    found = jax.jit(lambda x, n: (one(x, n), two(x, n)))(ROWS, number(6))
    np.testing.assert_array_equal(found, [ROWS + 6, ROWS + 3])


def test_arguments_that_are_written_in_the_loop():
    torch = pytest.importorskip("torch")

    @nki.jit
    def bump(x, n):
        def body(i):
            tile = nl.load(x)
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            nl.store(x, value=tile)

        nl.fori_loop(0, load(n), body)
        return x

    for n in (0, 3):
        x = torch.from_numpy(ROWS.copy())
        assert bump(x, torch.tensor([[n]], dtype=torch.int32)) is x
        np.testing.assert_array_equal(x, ROWS + n)
        jax = pytest.importorskip("jax")
        np.testing.assert_array_equal(jax.jit(bump)(ROWS, number(n)), ROWS + n)


def test_checks_run_on_the_data():
    """Row 8 of 8 is an error when it is reached, at the kernel's line."""
    jax = pytest.importorskip("jax")
    compiled = jax.jit(rows_by_fori)
    compiled(ROWS, number(8))
    with pytest.raises(Exception, match="dynamic offset of 8") as caught:
        jax.block_until_ready(compiled(ROWS, number(9)))
    assert "test_by_data.py" in str(caught.value)


def test_outputs_that_only_some_data_has():
    jax = pytest.importorskip("jax")

    @nki.jit
    def turned(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        shapes, rounds = [out.shape, (5, 8)], []
        times(nisa.scalar_load(n), lambda: rounds.append(1))
        return out.reshape(shapes[len(rounds) > 1])

    @nki.jit
    def marked(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        rounds = []
        times(nisa.scalar_load(n), lambda: rounds.append(1))
        if len(rounds) > 1:
            nl.store(n, value=nl.zeros((1, 1), nl.int32, buffer=nl.sbuf))
        return out

    for kernel, found in ((turned, r"returns float32\[5, 8\]"), (marked, "writes its argument n")):
        compiled = jax.jit(kernel)
        np.testing.assert_array_equal(compiled(ROWS, number(1)), ROWS)
        with pytest.raises(Exception, match=found):
            jax.block_until_ready(compiled(ROWS, number(2)))


def test_a_register_is_no_output_without_data():
    jax = pytest.importorskip("jax")

    @nki.jit
    def count(n):
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(n))
        return out, load(n)

    assert count(number(3))[1] == 3
    with pytest.raises(KernelError, match="returns a register or a scalar") as caught:
        jax.jit(count)(number(3))
    assert "nisa.register_store" in caught.value.fix


def test_times_follow_the_data(kernel):
    """More rounds take longer; a shape alone has no time."""
    torch = pytest.importorskip("torch")
    few, many = (nkisim.profile(kernel, ROWS, number(n)).latency_us for n in (1, 6))
    assert few < many
    given = torch.from_numpy(ROWS), torch.tensor([[6]], dtype=torch.int32)
    assert nkisim.profile(kernel, *given).latency_us == many
    spec = nkisim.TensorSpec(ROWS.shape, np.float32)
    for ask in (nkisim.profile, nkisim.explain):
        with pytest.raises(KernelError, match="is given shapes"):
            ask(kernel, spec, nkisim.TensorSpec((1, 1), np.int32))
    assert nkisim.profile(kernel, ROWS, number(6)).latency_us == many  # as the fix says


@nki.jit
def rows_of_cores(x, n):
    """Each core adds its number of n, or their one number, to its row."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    row = nl.load(x[core : core + 1])
    mine = core if n.shape[0] > 1 else 0
    count = nisa.scalar_load(n[mine : mine + 1])
    times(count, lambda: nisa.tensor_scalar(row, row, nl.add, 1.0) and None)
    nl.store(out[core : core + 1], value=row)
    return out


@nki.jit
def one_core_waits(x, n):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    row = nl.load(x[core : core + 1])
    if core == n.shape[0] - 2:
        count = nisa.scalar_load(n[0:1])
        times(count, lambda: nisa.tensor_scalar(row, row, nl.add, 1.0) and None)
    nl.store(out[core : core + 1], value=row)
    return out


def test_cores_of_a_logical_core_take_one_way():
    x = ROWS[:2]
    same = np.array([[3], [3]], np.int32)
    np.testing.assert_array_equal(rows_of_cores[2](x, same), x + 3)
    with pytest.raises(KernelError, match="3 rounds on core 1, and 1 round on core 0") as found:
        rows_of_cores[2](x, np.array([[1], [3]], np.int32))
    assert "one element that both cores read" in found.value.fix
    np.testing.assert_array_equal(rows_of_cores[2](x, same[:1]), x + 3)  # as the fix says
    for rows, says in ((2, "core 0 comes to"), (3, "core 1 comes to")):
        with pytest.raises(KernelError, match=f"{says} a run-time loop"):
            one_core_waits[2](x, np.ones((rows, 1), np.int32))


def test_no_loop_of_the_device_is_inside_no_reorder():
    @nki.jit
    def ordered(x, n):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        go = load(n)
        with nl.no_reorder():
            nl.while_loop(go, lambda go: load(nl.zeros((1, 1), nl.int32, buffer=nl.sbuf)))
        return out

    with pytest.raises(KernelError, match=r"nl.while_loop inside nl.no_reorder"):
        ordered(ROWS, number(1))


def test_what_a_body_declares_stays_in_its_round():
    def kernel(x, behind):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        made = [nl.load(x)] if behind == "before" else []

        def body(i):
            made.append(nl.load(x))
            identity = nl.shared_identity_matrix(8)  # one for the kernel, wherever it is made
            assert identity.shape == (8, 8)
            nisa.tensor_copy(made[0], made[-1])

        nl.fori_loop(0, 2 if behind == "next" else 1, body)
        nl.shared_identity_matrix(8)
        nl.copy(nl.shared_identity_matrix(8))
        nl.store(out, value=made[0] if behind else nl.load(x))
        return out

    for behind in ("next", "end"):
        with pytest.raises(KernelError, match="outside of the body that declares it") as found:
            nki.simulate(kernel)(ROWS, behind)
        assert found.value.location.filename == __file__
    for behind in ("", "before"):  # the latter as the fix says
        np.testing.assert_array_equal(nki.simulate(kernel)(ROWS, behind), ROWS)


@nki.jit
def fibonacci(x, n):
    """The first n Fibonacci numbers, each doubled; two tiles decide in turn how often to go on."""
    one, two = nl.load(x), nl.load(x)
    left, out = nl.load(n), nl.ndarray((1, 40), dtype=nl.int32, buffer=nl.shared_hbm)
    twice = nl.zeros((1, 40), nl.int32, buffer=nl.sbuf)
    value, columns = load(one), iter(range(40))

    def body(go):
        at = next(columns)
        next_ = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.tensor_tensor(next_, one, two, nl.add)
        nisa.tensor_copy(one, two)
        nisa.tensor_copy(two, next_)
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(value, one)  # what it held is in next_, of an earlier round
        nisa.tensor_scalar(twice[0:1, at : at + 1], one, nl.multiply, 2)
        return load(left)

    nl.while_loop(load(left), body)
    nisa.dma_copy(out, twice)
    return out


def test_what_a_register_is_loaded_from_runs_once(monkeypatch):
    """However often values are asked for, so that time is linear in the rounds."""
    from nkisim.frontends.nki.memory import Contents

    ran, run = [], Contents._run
    monkeypatch.setattr(
        Contents,
        "_run",
        lambda self, instrs: (ran.append((self.trace, len(instrs))), run(self, instrs)),
    )
    wanted = [1, 2]
    while len(wanted) < 30:
        wanted.append(wanted[-1] + wanted[-2])
    one = np.ones((1, 1), np.int32)
    for rounds in (3, 30):
        ran.clear()
        found = fibonacci(one, np.full((1, 1), rounds, np.int32))
        np.testing.assert_array_equal(found[0, :rounds], 2 * np.array(wanted[:rounds]))
        assert 0 < sum(n for _, n in ran) <= len(ran[0][0].instructions)
