"""The operators on kernels in ``import nki``, in NumPy, PyTorch and JAX, against NumPy's results.

The dialect is chosen when ``kernels`` is imported, so this is one process that asks for it.
"""

from __future__ import annotations

from kernels import operators

OPERATORS = """
    import os
    import sys
    import numpy as np
    import kernels
    from kernels import operators
    from kernels.arrays import FRAMEWORKS, error_in_tolerances

    assert kernels.dialect == "nki"

    def compare(got, expected, dtype):
        assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
        error = error_in_tolerances(got, expected, operators.DTYPES[dtype])
        assert error <= 1, error

    # On one physical core of a trn2, and on the two that its runtime joins.
    for cores in "1", "2":
        os.environ["NEURON_LOGICAL_NC_CONFIG"] = cores
        if "jax" in sys.modules:
            sys.modules["jax"].clear_caches()  # they hold launches on one core
        rng = np.random.default_rng(1)
        for operator in operators.operators():
            for framework in FRAMEWORKS:
                for dtype in operators.DTYPES:
                    arrays = operator.arrays(dtype)
                    expected = operator.reference(*arrays)
                    compare(operators.forward(operator, framework, arrays), expected, dtype)
                    grad = rng.standard_normal(expected.shape, np.float32).astype(expected.dtype)
                    found = operators.backward(operator, framework, arrays, grad)
                    for got, wanted in zip(found, operator.gradients(grad, *arrays), strict=True):
                        compare(got, wanted, dtype)
            print(cores, operator.name)
"""


def test_operators_in_every_framework_and_dtype(run_python):
    target = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}
    done = run_python(OPERATORS, env={"NKI_DIALECT": "nki", **target})
    names = [operator.name for operator in operators.operators()]
    assert done.stdout.splitlines() == [f"{cores} {name}" for cores in "12" for name in names]


HLO = """
    import jax.numpy as jnp
    import numpy as np
    import torch
    from kernels.add.jax_op import add as jax_add
    from kernels.add.torch_op import add as torch_add
    from nkibook.hlo import jax_hlo, torch_hlo

    x = np.ones((130, 70), np.float32)
    tensor = torch.from_numpy(x)
    for hlo in jax_hlo(jax_add, x, x), torch_hlo(torch_add, tensor, tensor):
        call, = hlo.custom_calls
        print(call.target, len(call.operand_shapes))
"""


def test_the_kernel_is_a_custom_call_in_the_hlo(run_python):
    done = run_python(HLO, env={"NKI_DIALECT": "nki"})
    assert done.stdout.splitlines() == ["AwsNeuronCustomNativeKernel 2"] * 2
