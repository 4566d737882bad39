"""Programs written for the Neuron SDK run unmodified under ``python -m nkisim``.

Each script imports the SDK's names only. They are the shapes that AWS's tutorials take: an
old-style kernel with an output argument for each framework, and one that returns its output.
"""

from __future__ import annotations

import textwrap

import pytest

KERNELS = """
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    def add_into(a, b, c):
        rows = nl.program_id(0) * 128 + nl.arange(128)[:, None]
        cols = nl.program_id(1) * 512 + nl.arange(512)[None, :]
        nl.store(c[rows, cols], value=nl.load(a[rows, cols]) + nl.load(b[rows, cols]))

    @nki.jit
    def add(a, b):
        c = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        assert a.shape[0] <= nl.tile_size.pmax
        nl.store(c, value=nl.add(nl.load(a), nl.load(b)))
        return c
"""

SCRIPTS = {
    "numpy": """
        import numpy as np
        import neuronxcc.nki as nki
        from my_kernels import add, add_into

        if __name__ == "__main__":
            a, b = (np.random.rand(256, 1024).astype(np.float16) for _ in "ab")
            c = np.zeros_like(a)
            nki.baremetal(add_into)[2, 2](a, b, c)
            assert np.array_equal(c, a + b)
            assert np.array_equal(add(a[:4], b[:4]), c[:4])
            assert np.array_equal(nki.simulate_kernel(add, a[:4], b[:4]), c[:4])
            print("match")
    """,
    "torch": """
        import torch
        from torch_neuronx import nki_jit
        from torch_neuronx.xla_impl.ops import nki_jit as its_old_name
        from torch_xla.core import xla_model as xm
        from my_kernels import add, add_into

        device = xm.xla_device()
        a, b = (torch.rand(256, 1024).bfloat16().to(device=device) for _ in "ab")
        c = torch.zeros_like(a)
        assert its_old_name is nki_jit
        nki_jit(add_into)[2, 2](a, b, c)
        assert c.device.type == "xla" and torch.equal(c, a + b)

        @nki_jit(debug=True)
        def decorated(a, b, c):
            add_into(a, b, c)

        d = torch.zeros_like(a)
        decorated[2, 2](a, b, d)
        assert torch.equal(d, c)
        assert torch.equal(add(a[:4], b[:4]), c[:4])
        print("match")
    """,
    "jax": """
        import jax
        import jax.numpy as jnp
        from jax_neuronx import nki_call
        from my_kernels import add, add_into

        a, b = (jax.random.uniform(jax.random.key(i), (256, 1024), jnp.bfloat16) for i in (0, 1))
        out_shape = jax.ShapeDtypeStruct(a.shape, a.dtype)
        c = nki_call(add_into, a, b, grid=(2, 2), out_shape=out_shape)
        assert jnp.array_equal(c, a + b)
        assert jnp.array_equal(add(a[:4], b[:4]), c[:4])
        print("match")
    """,
    "jax, imported for its side effect": """
        import jax_neuronx
        import jax.numpy as jnp
        from my_kernels import add

        a = jnp.ones((4, 3))
        assert jnp.array_equal(add(a, a), a + a)
        print("match")
    """,
}


@pytest.mark.parametrize("framework", SCRIPTS)
def test_script(run_python, tmp_path, framework):
    pytest.importorskip({"torch": "torch_xla", "numpy": "numpy"}.get(framework, "jax"))
    (tmp_path / "my_kernels.py").write_text(textwrap.dedent(KERNELS))
    (tmp_path / "program.py").write_text(textwrap.dedent(SCRIPTS[framework]))
    assert run_python("-m", "nkisim", "program.py").stdout.endswith("match\n")


def test_importing_a_stand_in_loads_no_other_framework(run_python):
    code = """
        import sys
        import nkisim
        nkisim.install()
        import jax_neuronx
        loaded = {name.split(".")[0] for name in sys.modules}
        assert not loaded & {"torch", "torch_xla", "jax", "jaxlib"}, loaded
        import torch_neuronx  # makes PyTorch's neuron device
        loaded = {name.split(".")[0] for name in sys.modules}
        assert not loaded & {"torch_xla", "jax", "jaxlib"}, loaded
    """
    run_python(code)
