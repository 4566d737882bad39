"""Bytes of fused programs, counted by hand, and verdicts on operations whose answer is known."""

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from nkibook import pays  # noqa: E402
from nkibook.chip import Chip  # noqa: E402
from nkibook.hlo import jax_hlo  # noqa: E402
from nkibook.pays import DISPATCH_US, payoff  # noqa: E402
from nkisim.machine import GEN2, GEN3  # noqa: E402

BF16 = 2


def struct(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype)


def mean_square_norm(x):
    f = x.astype(jnp.float32)
    return (f * jax.lax.rsqrt((f * f).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def gelu(x):
    return x * jax.nn.sigmoid(1.702 * x)


def attention(q, k, v):
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32)
    return jax.nn.softmax(scores).astype(q.dtype) @ v


N, M = 512, 384
SQUARE = N * M * BF16

COUNTED = {
    "a chain reads and writes once": (lambda x: jnp.exp(x) * 2 + x, [struct(N, M)], 2 * SQUARE),
    "a call is inlined": (lambda x, y: jax.nn.silu(x) * y, [struct(N, M)] * 2, 3 * SQUARE),
    # The sum of squares reads, the product with its root reads again and writes: 512 numbers more.
    "a reduction in the middle": (mean_square_norm, [struct(N, M)], 3 * SQUARE + 2 * 4 * N),
    # Maximum, sum of exponentials, quotient: each reads all.
    "softmax": (
        lambda x: jax.nn.softmax(x.astype(jnp.float32)),
        [struct(N, M)],
        3 * SQUARE + 2 * SQUARE + 5 * 4 * N,
    ),
    # gelu(a @ b) is written once; gelu uses the product twice.
    "what follows a product": (
        lambda a, b, c: gelu(a @ b) @ c,
        [struct(N, N), struct(N, M), struct(M, N)],
        BF16 * (N * N + N * M + N * M) + BF16 * (N * M + M * N + N * N),
    ),
    "columns are parts of one array": (
        lambda x: x[:, 0] * x[:, 1] - jnp.exp(x[:, 2]),
        [struct(N, 4)],
        N * 4 * BF16 + N * BF16,
    ),
    # The zeros are written, and the rows that change are read, with their new part, and written.
    "a scatter is in place": (
        lambda rows, new: jnp.zeros((50_000, M), jnp.bfloat16).at[rows].add(new),
        [struct(7, dtype=jnp.int32), struct(7, M)],
        50_000 * M * BF16 + 3 * 7 * M * BF16,
    ),
    # An argument stays as it is: the result is another array.
    "a scatter into an argument": (
        lambda x, rows, new: x.at[rows].add(new),
        [struct(50_000, M), struct(7, dtype=jnp.int32), struct(7, M)],
        2 * 50_000 * M * BF16 + 7 * M * BF16,
    ),
    "a table is not read whole": (
        lambda table, rows: table[rows] * 2,
        [struct(50_000, M), struct(7, dtype=jnp.int32)],
        None,
    ),
}


# 128 lanes, at the clocks that AWS publishes: 1.4 GHz, and 1.2 on a NeuronCore-v3.
@pytest.mark.parametrize(("machine", "ghz"), [(GEN2, 1.4), (GEN3, 1.2)])
def test_exponentials_bound_attention(machine, ghz):
    args = [struct(8, 2048, 64)] * 3
    found = payoff(jax_hlo(attention, *args), on=Chip(machine))
    exponentials = 8 * 2048**2 / 128 / ghz / 1e3
    assert found.least_us == pytest.approx(exponentials)
    said = f"since its exponentials take the Scalar Engine {exponentials:.0f} µs"
    assert f"up to {found.fused_us / exponentials:.1f} times, {said}" in found.verdict


def test_a_sum_of_exponentials_of_no_array_does_not_pay():
    """What is exponentiated is never in memory: no fusion and no kernel is faster."""

    def total(a, b):
        return jnp.exp(a[:, None] - b[None]).sum()

    found = payoff(jax_hlo(total, *[struct(4099, dtype=jnp.float32)] * 2))
    assert found.gain == 1
    assert "does not pay: the exponentials take the Scalar Engine" in found.verdict


@pytest.mark.parametrize("what", COUNTED)
def test_bytes_of_a_fused_program(what):
    function, args, expected = COUNTED[what]
    moved = sum(op.moved for op in jax_hlo(function, *args).fused)
    if expected is None:
        assert moved < 20 * 7 * M * BF16
    else:
        assert moved == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        (lambda a, b: a + b, [struct(4096, 4096)] * 2, "does not pay: fused"),
        (gelu, [struct(1024, 4096)], "does not pay: fused"),
        (lambda a, b: a @ b, [struct(4096, 4096)] * 2, "does not pay: the products"),
        (mean_square_norm, [struct(4096, 4096)], "can pay, up to 1.5 times"),
        (attention, [struct(8, 2048, 64)] * 3, "also as a program of its own"),
        (attention, [struct(1, 256, 64)] * 3, "not as a program of its own"),
    ],
)
@pytest.mark.parametrize("machine", [GEN2, GEN3])
def test_verdicts(function, args, says, machine):
    found = payoff(jax_hlo(function, *args), on=Chip(machine))
    assert says in found.verdict
    assert found.least_us <= found.fused_us * 1.001 <= found.apart_us * 1.002
    assert ("also" in found.verdict) == (found.saves_us > DISPATCH_US)


def test_the_command(run_python, tmp_path):
    (tmp_path / "mine.py").write_text("def twice(x):\n    return x + x\n")
    done = run_python("-m", "nkibook.pays", "mine.py", "twice", "float32[300,70]")
    assert "does not pay: fused, the operations move 0.2 MB" in done.stdout
    done = run_python("-m", "nkibook.pays", "mine.py", "twice", "300 by 70", check=False)
    assert "write one as 'bfloat16[1024,4096]'" in done.stderr


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_dtype_that_a_framework_lacks_is_named(framework, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    command = ["pays", str(tmp_path / "mine.py"), "double", "bf16[4,4]", "--framework", framework]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        pays.main()
    assert ended.value.code == 2
    assert f"{framework} has no dtype 'bf16': write one as" in capsys.readouterr().err
