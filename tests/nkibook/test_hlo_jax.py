"""nkibook.hlo.jax_hlo: HLO of JAX functions before and after XLA's optimisation."""

from __future__ import annotations

import re

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.add.jax_op import add  # noqa: E402
from nkibook.hlo import NKI_TARGET, HloUnavailable, jax_hlo  # noqa: E402

A = jnp.ones((256, 1024), jnp.float32)


def plain(a, b):
    return a * b * (a + b)


def with_kernel(a, b):
    return a * b * add(a, b)


def unknown_target(a):
    shape = jax.ShapeDtypeStruct(a.shape, a.dtype)
    return jax.ffi.ffi_call("no_such_target", shape)(a, config="eyJhIjogMX0=", n=3)


def test_nki_kernel_is_a_custom_call_before_and_after():
    before = jax_hlo(with_kernel, A, A)
    for hlo in (before, before.after):
        assert f'custom_call_target="{NKI_TARGET}"' in str(hlo)
        (call,) = hlo.custom_calls
        assert [s.dims for s in (*call.operand_shapes, *call.result_shapes)] == [(256, 1024)] * 3
        assert call.config["func_name"] in call.kernel_name
        assert call.config == before.custom_calls[0].config
    assert "stablehlo.custom_call @AwsNeuronCustomNativeKernel" in before.stablehlo
    assert (before.stage, before.after.stage) == ("before", "after")
    assert before.after.before is before
    assert before.after.after is before.after


def test_xla_fuses_the_plain_expression_into_one():
    hlo = jax_hlo(plain, A, A)
    assert [i.opcode for i in hlo.instructions] == [
        "parameter", "parameter", "multiply", "add", "multiply",
    ]  # fmt: skip
    assert hlo.count("fusion") == 0
    assert hlo.after.count("fusion") == 1


def test_optimized_is_after():
    hlo = jax_hlo(plain, A, A, optimized=True)
    assert hlo.stage == "after"
    assert hlo.text(short=True) == jax_hlo(plain, A, A).after.text(short=True)
    assert hlo.before.count("fusion") == 0
    assert "XLA backend cpu" in hlo.origin


def test_text_is_jaxs_own():
    """JAX's short print of the same module has the same instructions in the same order."""
    listed = jax.jit(plain).lower(A, A).as_text(dialect="hlo")
    names = re.findall(r"^ +(?:ROOT )?(\S+) =", listed, flags=re.MULTILINE)
    assert [i.name for i in jax_hlo(plain, A, A).instructions] == names
    assert jax_hlo(plain, A, A).stablehlo == jax.jit(plain).lower(A, A).as_text()


def test_xla_reads_the_short_text():
    jaxlib = pytest.importorskip("jaxlib._jax")
    for hlo in (jax_hlo(with_kernel, A, A), jax_hlo(jax.grad(lambda x: jnp.sum(jnp.tanh(x))), A)):
        again = jaxlib.hlo_module_from_text(hlo.text(short=True))
        count = sum(len(c.instructions) for c in hlo.computations)
        printed = re.findall(r"^ +(?:ROOT )?%\S+ =", again.to_string(), flags=re.MULTILINE)
        assert len(printed) == count


def test_gradient_and_vmap_of_the_kernel():
    grad = jax.grad(lambda a, b: with_kernel(a, b).sum(), argnums=(0, 1))
    assert len(jax_hlo(grad, A, A).custom_calls) == 1
    batched = jax_hlo(jax.vmap(with_kernel), jnp.ones((3, 8, 16)), jnp.ones((3, 8, 16)))
    assert len(batched.custom_calls) == 1


def test_jitted_functions_pytrees_keywords_and_static_arguments():
    jitted = jax.jit(plain)
    assert jax_hlo(jitted, A, A).text(short=True) == jax_hlo(plain, A, A).text(short=True)

    def step(state, *, rate):
        return jax.tree.map(lambda p: p * rate, state)

    hlo = jax_hlo(step, {"w": jnp.ones((2, 3)), "b": [jnp.ones(3)]}, rate=2.0)
    shapes = {hlo.labels[p.parameter_number]: p.shape.dims for p in hlo.entry.parameters}
    assert shapes == {"state['w']": (2, 3), "state['b'][0]": (3,), "rate": ()}

    hlo = jax_hlo(lambda x, n: x**n, jnp.ones(3), 3, static_argnums=1)
    assert len(hlo.entry.parameters) == 1
    with pytest.raises(ValueError, match="static_argnums=1"):
        jax_hlo(jitted, A, 3, static_argnums=1)


def test_abstract_arguments_need_no_data():
    spec = jax.ShapeDtypeStruct((1 << 20, 1 << 16), jnp.bfloat16)  # 128 GiB
    hlo = jax_hlo(plain, spec, spec)
    assert {str(p.shape.without_layout()) for p in hlo.entry.parameters} == {"bf16[1048576,65536]"}


def test_tracers_are_arguments_too():
    seen = []

    @jax.jit
    def outer(x):
        seen.append(jax_hlo(jnp.tanh, x))
        return x

    outer(jnp.ones((3, 4)))
    assert [p.shape.dims for p in seen[0].entry.parameters] == [(3, 4)]
    assert seen[0].count("tanh") == 1


def test_tuples_loops_and_linear_algebra_parse_after_optimisation():
    def fn(x):
        y = jax.lax.fori_loop(0, 3, lambda i, v: v @ v * i, x)
        return (
            jnp.linalg.cholesky(y),
            jnp.sort(x.ravel()),
            jax.random.normal(jax.random.key(0), (4,)),
        )

    hlo = jax_hlo(fn, jnp.eye(5))
    assert hlo.count("while") >= 1
    targets = [call.target for call in hlo.after.custom_calls]
    assert "lapack_spotrf_ffi" in targets
    cholesky = hlo.after.custom_calls[targets.index("lapack_spotrf_ffi")]
    assert cholesky.config == {"uplo": ord("L")}
    assert [str(s.without_layout()) for s in cholesky.result_shapes] == ["f32[5,5]", "s32[]"]


def test_module_xla_cannot_compile_has_no_after():
    hlo = jax_hlo(unknown_target, A)
    assert hlo.custom_calls[0].config == {"config": {"a": 1}, "n": 3}
    with pytest.raises(HloUnavailable, match="no_such_target"):
        _ = hlo.after


def test_short_text_and_html_have_no_source_paths():
    hlo = jax_hlo(with_kernel, A, A)
    assert "source_file" in str(hlo)
    for shown in (hlo.text(short=True), hlo._repr_html_(), repr(hlo), hlo.after._repr_html_()):
        assert ".py" not in shown
        assert "source_file" not in shown


def test_errors_in_fn_reach_the_caller():
    with pytest.raises(TypeError, match="mul got incompatible shapes"):
        jax_hlo(plain, jnp.ones(3), jnp.ones(4))


def test_collectives_of_a_sharded_matmul():
    """x is split by rows, w by its contracted axis: w must be gathered, and the mean reduced."""
    rows = NamedSharding(Mesh(jax.devices(), ("x",)), P("x", None))
    x = jax.device_put(jnp.ones((1024, 512)), rows)
    w = jax.device_put(jnp.ones((512, 64)), rows)
    hlo = jax_hlo(lambda x, w: (x @ w, (x * x).mean()), x, w)
    assert not hlo.collectives
    found = [
        (c.opcode, c.group_size, c.operand_bytes, c.result_bytes, c.bytes_moved)
        for c in sorted(hlo.after.collectives, key=lambda c: c.opcode)
    ]
    gathered = 512 * 64 * 4
    assert found == [
        ("all-gather", 8, gathered // 8, gathered, gathered * 7 // 8),
        ("all-reduce", 8, 4, 4, 7),
    ]


def test_missing_jax_is_named(run_python):
    done = run_python(
        """
        import sys
        sys.modules["jax"] = None
        from nkibook.hlo import jax_hlo
        try:
            jax_hlo(abs, 1)
        except ImportError as error:
            print(error)
        """
    )
    assert "needs JAX" in done.stdout
    assert "nki-book[jax]" in done.stdout
