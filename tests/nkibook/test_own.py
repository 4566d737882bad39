"""A reader's kernels: whose is launched, where, and what is said of one that is wrong."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import kernels
import nkisim
from kernels import launch
from kernels.matmul import nki_matmul, nki_matmul_backward
from kernels.swiglu import nki_swiglu
from nkibook import own
from nkisim.machine import GEN2


@pytest.fixture(autouse=True)
def _the_books_afterwards(monkeypatch):
    monkeypatch.setattr(launch, "instead", {})


pytestmark = pytest.mark.skipif(kernels.dialect != "neuronxcc", reason="kernels in neuronxcc.nki")


@nki.jit
def product(a, b):
    c = nl.ndarray((a.shape[0], b.shape[1]), a.dtype, buffer=nl.shared_hbm)
    for m in nl.static_range(0, a.shape[0], 128):
        rows = nl.ds(m, min(128, a.shape[0] - m))
        total = nl.zeros(c[rows].shape, nl.float32, buffer=nl.psum)
        for k in nl.static_range(0, a.shape[1], 128):
            part = nl.ds(k, min(128, a.shape[1] - k))
            total += nisa.nc_matmul(nl.load_transpose2d(a[rows, part]), nl.load(b[part]))
        nl.store(c[rows], value=nl.copy(total, dtype=c.dtype))
    return c


@nki.jit
def wrong_product(a, b):
    c = nl.ndarray((a.shape[0], b.shape[1]), a.dtype, buffer=nl.shared_hbm)
    for m in nl.static_range(0, a.shape[0], 128):
        rows = nl.ds(m, min(128, a.shape[0] - m))
        nl.store(c[rows], value=nl.zeros(c[rows].shape, c.dtype))
    return c


@nki.jit
def too_much(a, b, transpose_a, transpose_b, more):
    return a


def test_a_kernel_of_fewer_parameters_takes_the_calls_that_it_can():
    (choice,) = own.load("matmul", nki_matmul_kernel=product)
    assert choice.kernel is product
    assert choice.said == "yours, given here"
    a, b = np.random.default_rng(0).standard_normal((2, 65, 65), np.float32)
    with launch.recorded() as seen:
        c = nki_matmul(a, b)
        nki_matmul_backward(c, a, b)
    assert [call.kernel.__name__ for call in seen] == ["product", *["nki_matmul_kernel"] * 2]
    assert [name for name, _ in seen[0].inputs] == ["a", "b"]
    assert seen[2].constants == {"transpose_lhs": True, "transpose_rhs": False}
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_a_wrong_kernel_is_not_launched_and_its_line_says_so():
    (choice,) = own.load("matmul", nki_matmul_kernel=wrong_product)
    assert choice.kernel is None
    assert "the book's; yours (given here) is wrong: its result" in choice.said
    assert "nki_matmul_kernel" not in launch.instead
    assert repr(own.load("matmul")) == "nki_matmul_kernel  the book's"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [(too_much, "has 5 parameters, and the book's has 4"), (lambda a, b: a, r"@nki\.jit")],
)
def test_what_is_no_such_kernel_is_refused(kernel, message):
    with pytest.raises(TypeError, match=message):
        own.load("matmul", nki_matmul_kernel=kernel)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"nki_swiglu: no kernel of swiglu\. .*nki_swiglu_kernel"):
        own.load("swiglu", nki_swiglu=product)


def test_a_file_of_the_folder_is_launched(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert own.main(["swiglu"]) == 0
    assert "nki_swiglu_kernel and nki_swiglu_backward_kernel" in capsys.readouterr().out
    file = tmp_path / own.FOLDER / "swiglu.py"
    forward, backward = own.load("swiglu")
    assert forward.said == backward.said == f"yours, {own.FOLDER}/swiglu.py"
    gate, up = np.random.default_rng(0).standard_normal((2, 5, 7), np.float32)
    with launch.recorded() as seen:
        nki_swiglu(gate, up)
    assert seen[0].kernel is forward.kernel
    assert seen[0].kernel.__module__ == "swiglu"
    file.write_text(file.read_text().replace("nl.multiply", "nl.add"))
    assert all("is wrong" in choice.said for choice in own.load("swiglu"))
    with pytest.raises(SystemExit):
        own.main(["swiglu"])  # it is there, and stays
    assert "edit it, or remove it first" in capsys.readouterr().err


def test_the_step_models_the_readers_kernel_where_its_dialect_runs():
    jax = pytest.importorskip("jax")
    from kernels.matmul.jax_op import matmul
    from nkibook import steps
    from nkibook.hlo import jax_hlo

    specs = [jax.ShapeDtypeStruct(s, "float32") for s in ((129, 256), (256, 384))]
    book = jax_hlo(lambda a, b: 1 * matmul(a, b), *specs).custom_calls
    before = {chip: steps.modelled(book, chip)[0].microseconds for chip in steps.CHIPS}
    own.load("matmul", nki_matmul_kernel=product)
    specs = [jax.ShapeDtypeStruct(s, "float32") for s in ((130, 256), (256, 384))]
    mine = jax_hlo(lambda a, b: 1 * matmul(a, b), *specs).custom_calls
    assert [call.kernel_name for call in mine] == ["product"]
    after = {chip: steps.modelled(mine, chip)[0] for chip in steps.CHIPS}
    assert {part.operator for part in after.values()} == {"matmul"}
    tensors = [nkisim.TensorSpec(spec.shape, np.float32) for spec in specs]
    assert after["inf2"].microseconds == nkisim.profile(product.on(GEN2), *tensors).body_us
    for chip in ("trn2", "trn2 one core"):  # the book's in the other dialect, of one row more
        assert after[chip].microseconds == pytest.approx(before[chip], rel=0.02)
