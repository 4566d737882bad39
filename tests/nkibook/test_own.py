"""A reader's kernels: whose is launched, where, and what is said of one that is wrong."""

import re
from pathlib import Path
from types import SimpleNamespace

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
from nkibook import own, steps
from nkisim.errors import KernelError
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
    assert choice.said == "the book's: given here is wrong"
    assert "Its result is first wrong at [0, 0]: 0, should be " in choice.trouble
    assert "nki_matmul_kernel" not in launch.instead
    assert repr(own.load("matmul", folder=None)) == "nki_matmul_kernel  the book's"


@pytest.mark.parametrize(
    ("kernel", "message"),
    [(too_much, "has 5 parameters for .*, and the book's has 4"), (lambda a, b: a, r"@nki\.jit")],
)
def test_what_is_no_such_kernel_is_not_launched(kernel, message):
    found = own.load("matmul", nki_matmul_kernel=kernel)
    assert re.search(message, found[0].trouble)
    assert found[0].trouble.splitlines()[-1] in repr(found)
    assert not own.mine()


# A residual that is wrong, a constant that is left out, and the line that the message names.
EDITS = [
    (
        "attention",
        "nl.add(largest, logarithm)",
        "largest",
        "gradient 0, which the book's backward",
    ),
    ("rmsnorm", "value=invvar, mask", "value=total, mask", "gradient 0, which the book's backward"),
    (
        "rmsnorm",
        "eps_tile = nl.full((TILE_ROWS, 1), eps",
        "eps_tile = nl.full((TILE_ROWS, 1), 0.0",
        "result is first wrong at [0, 0]",
    ),
]


@pytest.mark.parametrize(("package", "old", "new", "message"), EDITS)
def test_residuals_and_eps_are_checked(package, old, new, message, tmp_path):
    file = own.copy(package, tmp_path)
    file.write_text(file.read_text().replace(old, new, 1))
    forward, backward = own.load(package, folder=tmp_path)
    assert message in forward.trouble
    assert forward.kernel is None
    assert backward.kernel is not None


@nki.jit
def narrow(gate, up):
    y = nl.ndarray(gate.shape, dtype=gate.dtype, buffer=nl.shared_hbm)
    for row in nl.static_range(0, gate.shape[0], 128):
        rows = nl.ds(row, min(128, gate.shape[0] - row))
        product = nl.multiply(nl.silu(nl.load(gate[rows])), nl.load(up[rows]), dtype=gate.dtype)
        nl.store(y[rows], value=product)
    return y


def test_a_kernel_that_raises_at_other_sizes_is_left_out_and_a_line_says_so(capsys):
    (forward, _) = own.load("swiglu", folder=None, nki_swiglu_kernel=narrow)
    assert forward.kernel is narrow
    wide = np.ones((3, 65_000), np.float32)
    with pytest.raises(KernelError):
        nki_swiglu(wide, wide)
    with own.where_they_run(), launch.recorded() as seen:
        for _ in range(2):
            y = nki_swiglu(wide, wide)
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-1.0)), rtol=1e-5)
    assert [call.kernel.__name__ for call in seen] == ["nki_swiglu_kernel"] * 2
    assert [name for name, _ in seen[0].inputs] == ["gate", "up"]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("narrow raises ")
    assert "for (3, 65000) and (3, 65000): " in line
    assert line.endswith("The book's nki_swiglu_kernel counts in its place.")
    with pytest.raises(KernelError):
        nki_swiglu(wide, wide)


def test_a_kernel_that_raises_on_the_chip_that_is_modelled_is_left_out(capsys):
    own.load("swiglu", folder=None, nki_swiglu_kernel=narrow)
    inputs = [(name, (3, 65_000), "float32") for name in ("gate", "up")]
    mine, book = (
        SimpleNamespace(kernel_name=name, config={"inputs": inputs, "constants": {}})
        for name in ("narrow", "nki_swiglu_kernel")
    )
    assert steps.modelled([mine], "inf2") == steps.modelled([book], "inf2")
    assert "The book's nki_swiglu_kernel counts" in capsys.readouterr().out


def test_what_a_file_lacks_is_said(tmp_path):
    (tmp_path / "swiglu.py").write_text("def nki_swiglu(gate, up):\n    return gate\n")
    (tmp_path / "rms_norm.py").write_text("")
    (tmp_path / "rope.py").write_text("def nki_rope_kernel(:\n")
    (tmp_path / "matmul.py").write_text("def nki_matmul_kernel(a, b):\n    return a\n")
    found = own.load("swiglu", "rope", "matmul", folder=tmp_path)
    assert not own.mine()
    assert (
        "swiglu.py has no nki_swiglu_kernel and no nki_swiglu_backward_kernel (it has nki_swiglu)"
        in repr(found)
    )
    assert "rms_norm.py is named after no operator" in repr(found)
    assert f"Looked in {tmp_path.resolve()}." in repr(found)
    said = {choice.name: choice.trouble for choice in found}
    assert 'rope.py", line 1' in said["nki_rope_kernel"]
    assert "decorate it with @nki.jit" in said["nki_matmul_kernel"]
    assert "There is no folder" in repr(own.load("rope", folder=tmp_path / "none"))


def test_the_whole_message_of_an_error_is_shown(tmp_path):
    file = own.copy("swiglu", tmp_path)
    file.write_text(file.read_text().replace("buffer=nl.shared_hbm", "buffer=nl.sbuf"))
    found = own.load("swiglu", folder=tmp_path)
    for part in ("swiglu.py:", "  rule: ", "  fix:  "):
        assert part in repr(found)


def test_functions_compiled_before_launch_the_kernels_that_were_loaded_last():
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    from kernels.matmul.jax_op import matmul

    compiled = []

    def backend(graph, examples):
        compiled.append(graph)
        return graph.forward

    in_jax, in_torch = jax.jit(matmul), torch.compile(lambda x: x + 1, backend=backend)
    a = np.ones((3, 4), np.float32)
    for _ in range(2):
        in_jax(a, a.T)
        in_torch(torch.ones(3))
    assert len(compiled) == 1
    with own.only("matmul", nki_matmul_kernel=product), launch.recorded() as seen:
        in_jax(a, a.T)
        in_torch(torch.ones(3))
        assert [call.kernel.__name__ for call in seen] == ["product"]
        assert len(compiled) == 2
    with launch.recorded() as seen:
        in_jax(a, a.T)
    assert [call.kernel.__name__ for call in seen] == ["nki_matmul_kernel"]


def test_a_file_edited_within_a_second_is_read_anew(tmp_path):
    file = own.copy("rope", tmp_path)
    text = file.read_text()
    for version in "12":
        file.write_text(f"{text}\nVERSION = {version}\n")
        (choice,) = own.load("rope", folder=tmp_path)
        assert choice.kernel.func.__globals__["VERSION"] == int(version)


def test_only_puts_back_what_was_there():
    own.load("matmul", nki_matmul_kernel=product)
    with own.only():
        assert own.mine() == []
    with own.only("swiglu") as found:
        assert [choice.said for choice in found] == ["the book's"] * 2
        assert own.mine() == []
    assert own.mine() == ["nki_matmul_kernel"]


def test_the_names_of_kernels_come_with_parameters_and_results():
    said = own.names("rmsnorm", "rope")
    assert "  nki_rms_norm_kernel(x_input, weight, eps)\n    -> y_output, invvar_output" in said
    assert "my_kernels/rope.py\n  nki_rope_kernel(x, cos, sin, inverse=False)\n    -> y" in said


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
    assert not own.mine()
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


def test_a_readers_kernel_is_modelled_on_the_cores_of_the_column(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from kernels.swiglu import nki as in_nki
    from nkibook import steps
    from nkisim.runtime.importing import import_file

    inputs = [(name, (515, 700), "float32") for name in ("gate", "up")]
    config = {"inputs": inputs, "constants": {}}
    call = SimpleNamespace(kernel_name="nki_swiglu_kernel", config=config)

    def times():
        return {c: steps.modelled([call], c)[0].microseconds for c in ("trn2 one core", "trn2")}

    book = times()
    assert book["trn2"] < 0.7 * book["trn2 one core"]
    monkeypatch.setattr(kernels, "dialect", "nki")
    source = Path(in_nki.__file__).read_text()
    (tmp_path / "shares.py").write_text(source)
    shared = "range(nl.program_id(0), len(tiles), nl.num_programs(0))"
    assert shared in source
    (tmp_path / "alone.py").write_text(source.replace(shared, "range(len(tiles))"))
    kernel = import_file(tmp_path / "shares.py").nki_swiglu_kernel
    for bound in kernel, kernel[2]:
        launch.instead["nki_swiglu_kernel"] = bound, 2
        assert times() == book
    alone = import_file(tmp_path / "alone.py").nki_swiglu_kernel
    launch.instead["nki_swiglu_kernel"] = alone, 2
    found = times()
    assert found["trn2"] == found["trn2 one core"] == pytest.approx(book["trn2 one core"])
