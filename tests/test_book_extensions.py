"""What the Sphinx extensions of the book make of its pages: links, downloads, the reference."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import nbformat
import notebook_download
import numpy as np
import pytest
import reference_neuronxcc
import reference_nki
import stored_note
import stored_results
from reading_paths import following

from nkibook.facts import documented

ROOT = Path(__file__).resolve().parent.parent
ORDER = ["intro", "add_torch", "add_jax", "timing", "giou_torch", "giou_jax", "api"]


@pytest.mark.parametrize(
    ("page", "after"),
    [
        ("intro", ["add_torch", "add_jax"]),
        ("add_torch", ["timing"]),
        ("add_jax", ["timing"]),
        ("timing", ["giou_torch", "giou_jax"]),
        ("giou_jax", ["api"]),
        ("api", []),
    ],
)
def test_next_stays_with_the_framework(page: str, after: list[str]) -> None:
    assert following(page, ORDER) == after


def test_next_passes_over_the_other_framework() -> None:
    assert following("a_torch", ["a_torch", "a_jax", "b_jax", "b_torch"]) == ["b_torch"]
    assert following("b_jax", ["a_torch", "a_jax", "b_torch", "b_jax"][::-1]) == ["a_jax"]


def test_two_pages_of_one_framework_are_no_pair() -> None:
    assert following("trn2", ["trn2", "call_jax", "primitives_jax", "cpp"]) == ["call_jax"]
    assert following("cpp", ["cpp", "primitives_jax", "call_jax"]) == ["primitives_jax"]


def read(text: str) -> str:
    return notebook_download.plain(text, ROOT / "notebooks/add_torch.md", {"timing": "Time"}.get)


def test_roles_become_words() -> None:
    assert read("See {doc}`timing`, {doc}`this </book/x>`.") == "See *Time*, *this*."
    assert read("A {term}`tile`, {term}`tiles <tile>` {cite}`aws`.") == "A tile, tiles [aws]."


def test_included_sources_are_written_out() -> None:
    path = "../kernels/add/neuronxcc.py"
    text = read(
        f"````{{dropdown}} Solution\n```{{literalinclude}} {path}\n"
        ":pyobject: nki_tensor_add_kernel\n:emphasize-lines: 2\n```\n````"
    )
    assert text.startswith("<details><summary>Solution</summary>\n\n```python\n@nki.jit\n")
    assert "nl.store(c_output[rows, cols]" in text


def test_no_downloaded_notebook_has_raw_markup() -> None:
    for twin in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(twin, as_version=4).cells:
            if cell.cell_type == "markdown":
                text = notebook_download.plain(cell.source, twin, str)
                assert not re.search(r"\{[\w-]+\}`|`{3,}\{|:{3,}", text), (twin.name, text)


@pytest.fixture(scope="module")
def entries() -> dict[str, str]:
    """The text of each entry of the reference, by the name."""
    text = reference_neuronxcc.reference(ROOT, ["notebooks/add_torch", "book/patterns"])
    parts = re.split(r"^\.\. py:(?:function|data):: ", text, flags=re.M)[1:]
    return {re.match(r"[\w.]+", part)[0]: part for part in parts}


def test_the_reference_has_every_name_with_its_parameters(entries: dict[str, str]) -> None:
    from nkibook.facts.coverage import documented as by_module

    names = {
        reference_neuronxcc.short_name(module, name): facts
        for module, found in by_module().items()
        for name, facts in found.items()
    }
    assert set(entries) == set(names)
    for name, facts in names.items():
        if "signature" in facts:
            assert entries[name].startswith(name + facts["signature"])


def test_an_entry_tells_what_readers_ask(entries: dict[str, str]) -> None:
    assert "from HBM; at most 128 partitions" in entries["nl.load"]
    assert ":doc:`/notebooks/add_torch`" in entries["nl.load"]
    assert "which elements of ``src`` to load" in entries["nl.load_transpose2d"]
    assert "# out: [[14.0], [126.0]]" in entries["nisa.activation_reduce"]


def test_functions_without_a_page_have_an_example(entries: dict[str, str]) -> None:
    """Those that compute: what needs a grid, a device or places by hand has none."""
    without = {
        "nl.all_reduce", "nl.atomic_rmw", "nl.gemm_grid", "nl.gemm_stationary_grid",
        "nl.num_programs", "nl.par_dim", "nl.program_ndim", "nl.random_seed",
        "nisa.builtin_custom_op", "nisa.get_nc_version", "nisa.local_gather", "nisa.select_reduce",
    }  # fmt: skip
    used = reference_neuronxcc.uses(
        ROOT,
        [
            path.relative_to(ROOT).with_suffix("").as_posix()
            for folder in ("book", "notebooks")
            for path in (ROOT / folder).glob("*.md")
        ],
        "neuronxcc",
    )
    bare = {
        name
        for name, text in entries.items()
        if name.startswith(("nl.", "nisa.")) and "(" in text.split("\n")[0]
        if "code-block" not in text and not set(used.get(name, [])) - {"book/api"}
    }
    assert bare <= without


@pytest.fixture(scope="module")
def nki_entries() -> dict[str, str]:
    """The text of each entry of the reference of `import nki`, by the name."""
    text = reference_nki.reference(ROOT, ["notebooks/add_torch", "notebooks/dialects"])
    assert "- ``slice(dim, start, end, step=1)``: " in text  # a method of tensors
    parts = re.split(r"^\.\. py:(?:function|data):: ", text, flags=re.M)[1:]
    return {re.match(r"[\w.]+", part)[0]: part for part in parts}


def test_the_reference_of_nki_has_every_name(nki_entries: dict[str, str]) -> None:
    modules = documented("nki")
    names = {f"{module}.{name}" for module, found in modules.items() for name in found}
    assert set(nki_entries) == names
    copy = nki_entries["nki.isa.tensor_copy"]
    assert copy.startswith("nki.isa.tensor_copy(dst, src, ")
    assert "*Engine:* Vector, Scalar or GpSimd." in copy
    assert ":doc:`/notebooks/dialects`" in copy
    assert "add_torch" not in copy


def test_no_function_of_nki_is_there_by_name_only() -> None:
    """None raises UnsupportedError whatever it gets."""
    import inspect

    import nki.collectives
    import nki.isa

    from nkisim import KernelError
    from nkisim.errors import UnsupportedError

    for module, found in (("nki.isa", nki.isa), ("nki.collectives", nki.collectives)):
        for name, known in documented("nki")[module].items():
            if known["kind"] != "function":
                continue
            function = getattr(found, name)
            needed = [
                None
                for p in inspect.signature(function).parameters.values()
                if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
            ]

            def kernel(x, function=function, needed=needed):
                function(*needed)

            try:
                with warnings.catch_warnings(action="ignore"):  # of kernels without a result
                    nki.jit(kernel)(np.zeros((128, 8), np.float32))
            except UnsupportedError:
                pytest.fail(name)
            except (KernelError, AttributeError, TypeError, ValueError):
                pass


def test_names_that_are_links_have_an_entry_to_go_to(nki_entries: dict[str, str]) -> None:
    from nkibook.figures import judges

    facts = documented("nki")
    tables = "".join(judges.names(facts, group) for group in judges.GROUPS)
    indexed = {name for name, text in nki_entries.items() if ":no-index:" not in text}
    assert set(re.findall(r'href="#([^"]+)"', tables)) <= indexed


def test_a_page_of_stored_results_says_what_to_do() -> None:
    assert set(stored_note.REMEDIES) == set(stored_results.NEEDS)
