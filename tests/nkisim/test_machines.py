"""A generation is data: a table with other abilities is another generation, with no more code."""

from dataclasses import replace

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkibook.chip import Chip
from nkisim.errors import KernelError, ParameterError
from nkisim.machine import GEN2, GEN3, GEN4

X = np.linspace(-2, 2, 128 * 16, dtype=np.float32).reshape(128, 16)


def _on_chip(x, make):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    make(t)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def exponential(x):
    return _on_chip(x, lambda t: nisa.exponential(dst=t, src=t))


@nki.jit
def abs_max(x):
    return _on_chip(x, lambda t: nisa.tensor_scalar(dst=t, data=t, op0=nl.abs_max, operand0=1.0))


@nki.jit
def on_scalar(x):
    return _on_chip(
        x,
        lambda t: nisa.tensor_scalar(
            dst=t, data=t, op0=nl.multiply, operand0=2.0, engine=nisa.engine.scalar
        ),
    )


@nki.jit
def hardware_descriptors(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x, dge_mode=nisa.dge_mode.hwdge)
    return out


@nki.jit
def range_select(x):
    def make(t):
        bound = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        largest = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=bound, value=3.0)
        nisa.range_select(
            dst=t,
            on_true_tile=t,
            comp_op0=nl.less_equal,
            comp_op1=nl.less_equal,
            bound0=bound,
            bound1=bound,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_res=largest,
            reduce_op=nl.maximum,
        )

    return _on_chip(x, make)


KERNELS = (exponential, abs_max, on_scalar, hardware_descriptors, range_select)


def _what(kernel, machine):
    """The results and the modelled time, or the error with its machine's name left out."""
    try:
        return kernel.on(machine)(X), nkisim.profile(kernel.on(machine), X).latency_us
    except KernelError as error:
        return str(error).replace(machine.name, "NAME")


@pytest.mark.parametrize("machine", [GEN2, GEN3, GEN4])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_a_copy_behaves_as_the_generation(kernel, machine):
    np.testing.assert_equal(
        _what(kernel, replace(machine, name="a generation of its own")), _what(kernel, machine)
    )


def test_one_ability_more_is_one_field():
    own = replace(GEN3, abilities=replace(GEN3.abilities, operators=frozenset({"abs_max"})))
    with pytest.raises(ParameterError, match="needs NeuronCore-v4"):
        abs_max.on(GEN3)(X)
    assert own.name == GEN3.name  # traces and recipes are told apart all the same
    assert (abs_max.on(own)(X) == abs_max.on(GEN4)(X)).all()
    with pytest.raises(ParameterError, match="needs NeuronCore-v4"):
        abs_max.on(GEN3)(X)
    with pytest.raises(ParameterError, match="it needs NeuronCore-v4"):
        exponential.on(own)(X)
    own = replace(own, abilities=replace(own.abilities, instructions=GEN4.abilities.instructions))
    np.testing.assert_allclose(exponential.on(own)(X), np.exp(X), rtol=1e-3)


def test_no_other_package_asks_which_generation_it_is():
    import re
    from pathlib import Path

    root = Path(nkisim.__file__).parent
    found = [
        f"{path.relative_to(root)}:{number}"
        for path in root.rglob("*.py")
        if path.parent.name != "machine"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bis (not )?GEN\d|== GEN\d|!= GEN\d", line)
    ]
    assert found == []


def test_a_generation_without_a_name_of_aws():
    @nki.jit
    def version(x):
        nisa.get_nc_version()
        return x

    with pytest.raises(ParameterError, match="nc_version has gen2, gen3, gen4"):
        version.on(replace(GEN4, name="NeuronCore-v5", version=5))(X)


def test_the_chip_of_a_table_of_ones_own():
    own = Chip(replace(GEN3, name="NeuronCore-v5", sbuf_bytes=2 * GEN3.sbuf_bytes, chip_cores=4))
    assert (own.sbuf, own.cores, own.instances) == (2 * Chip(GEN3).sbuf, 4, "trn2")
    assert Chip(GEN2).instances == "inf2 and trn1"
