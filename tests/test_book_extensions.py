"""What the Sphinx extensions of the book make of its pages: links, downloads, the reference."""

from __future__ import annotations

import inspect
import re
import warnings
from itertools import chain
from pathlib import Path

import notebook_download
import numpy as np
import pages
import pytest
import reference
import reference_neuronxcc
import reference_nki  # noqa: F401  here, since another test may import a file of that name
import reference_own  # noqa: F401
import text_outputs
from bs4 import BeautifulSoup
from docutils import nodes, utils
from reading_paths import following

import nkisim
import notebooks
import results
from kernels.operators import operators
from nkibook.facts import documented

ROOT = Path(__file__).resolve().parent.parent
PAGES = pages.in_order()
ON_PAGES = reference.documented_on(ROOT, PAGES)
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


Entries = dict[str, reference.Entry]


def all_entries(package: str, pages_of: list[str]) -> Entries:
    """The entries of a package's modules, by the name."""
    modules = [m for m in chain(*ON_PAGES.values()) if m.partition(".")[0] == package]
    made = [entry for m in modules for entry in reference.entries(ROOT, pages_of, m)]
    assert len({entry.name for entry in made}) == len(made)
    return {entry.name: entry for entry in made}


def text(entry: reference.Entry) -> str:
    return "\n".join(entry.text)


@pytest.fixture(scope="module")
def entries() -> Entries:
    return all_entries("neuronxcc", ["notebooks/add_torch", "book/patterns"])


def test_the_reference_has_every_name_with_its_parameters(entries: Entries) -> None:
    from nkibook.facts.coverage import documented as by_module

    names = {
        reference_neuronxcc.shown_name(module, name): facts
        for module, found in by_module().items()
        for name, facts in found.items()
    }
    assert set(entries) == set(names)
    for name, facts in names.items():
        if "signature" in facts:
            assert entries[name].parameters == facts["signature"]


def test_an_entry_tells_what_readers_ask(entries: Entries) -> None:
    assert "from HBM; at most 128 partitions" in text(entries["nl.load"])
    assert ":doc:`/notebooks/add_torch`" in text(entries["nl.load"])
    assert "which elements of ``src`` to load" in text(entries["nl.load_transpose2d"])
    assert "# out: [[14.0], [126.0]]" in text(entries["nisa.activation_reduce"])


def test_functions_without_a_page_have_an_example(entries: Entries) -> None:
    """Those that compute: what needs a grid, a device or places by hand has none."""
    without = {
        "nl.all_reduce", "nl.atomic_rmw", "nl.gemm_grid", "nl.gemm_stationary_grid",
        "nl.num_programs", "nl.par_dim", "nl.program_ndim", "nl.random_seed",
        "nisa.builtin_custom_op", "nisa.get_nc_version", "nisa.local_gather", "nisa.select_reduce",
    }  # fmt: skip
    used = reference.uses(
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
        for name, entry in entries.items()
        if name.startswith(("nl.", "nisa.")) and entry.kind == "function"
        if "code-block" not in text(entry) and name not in used
    }
    assert bare <= without


@pytest.fixture(scope="module")
def nki_entries() -> Entries:
    return all_entries("nki", ["notebooks/add_torch", "notebooks/dialects"])


def test_the_reference_of_nki_has_every_name(nki_entries: Entries) -> None:
    modules = documented("nki")
    names = {f"{module}.{name}" for module, found in modules.items() for name in found}
    assert set(nki_entries) == names
    copy = nki_entries["nki.isa.tensor_copy"]
    assert copy.parameters.startswith("(dst, src, ")
    assert "*Engine:* Vector, Scalar or GpSimd." in text(copy)
    assert ":doc:`/notebooks/dialects`" in text(copy)
    assert "add_torch" not in text(copy)
    tensor = text(nki_entries["nki.language.NkiTensor"])
    assert "- ``slice(dim, start, end, step=1)``: " in tensor


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


def test_names_that_are_links_lead_to_the_page_with_their_entry() -> None:
    from nkibook.figures import judges

    facts = documented("nki")
    tables = "".join(judges.names(facts, group) for group in judges.GROUPS)
    found = re.findall(r'href="(\w+)\.html#([^"]+)\.(\w+)"', tables)
    assert len(found) == sum(map(len, facts.values()))
    assert all(module in ON_PAGES[f"book/{page}"] for page, module, _ in found)


def test_the_operators_and_the_simulator_are_in_the_reference() -> None:
    found = all_entries("kernels", [])
    for operator in operators():
        assert f"kernels.{operator.package}" in chain(*ON_PAGES.values())
    assert found["kernels.add.torch_op.add"].parameters == "(a, b)"
    assert "gradients are the" not in text(found["kernels.add.torch_op.add"])  # of _both
    assert {"kernels.add.nki.nki_tensor_add_kernel", "kernels.add.nki_tensor_add"} <= set(found)
    own = all_entries("nkisim", [])
    for name in nkisim.__all__:
        value = getattr(nkisim, name)
        if inspect.isfunction(value):
            assert own[f"nkisim.{name}"].kind == "function"
            named = re.findall(r"(?:^|, )\**(\w+)", own[f"nkisim.{name}"].parameters[1:-1])
            assert set(inspect.signature(value).parameters) >= set(named) - {"None", "True"}
    assert own["nkisim.Timeline.latency_us"].kind == "property"  # of the class that it is made from
    assert own["nkisim.Timeline.table"].parameters == "(rows=12)"


def test_a_list_of_names_has_a_line_and_a_link_for_each() -> None:
    made = reference.names(ROOT, PAGES, ["nki"])
    assert "| {py:obj}`nisa.nc_matmul <nki.isa.nc_matmul>` | " in made
    assert r"x \* y" in made
    for module, found in documented("nki").items():
        assert f"### `{module}`" in made
        for name in found:
            assert f"<{module}.{name}>" in made


URLS = """\
[project]
name = "a"
version = "1.0"
[project.urls]
Homepage = "https://book.example/"
Repository = "https://github.com/someone/somewhere"
"""


class App:
    """What the extension asks of Sphinx."""

    def __init__(self, folder: Path) -> None:
        self.srcdir, self.outdir = str(folder), str(folder / "out")


def test_a_page_offers_the_notebook_of_each_dialect(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/page.md").write_text("# A\n\n```{code-cell} python\n1\n```\n")
    for dialect in ("neuronxcc", "nki"):
        (tmp_path / f"notebooks/{dialect}").mkdir(parents=True)
        (tmp_path / f"notebooks/{dialect}/page.ipynb").write_text(dialect)
    context: dict = {"header_buttons": []}
    app = App(tmp_path)
    notebook_download.offer_notebook(app, "book/page", "", context, object())
    notebook_download.add_colab(app, "book/page", "", context, object())
    for dialect in ("neuronxcc", "nki"):
        assert (tmp_path / f"out/_sources/notebooks/{dialect}/page.ipynb").read_text() == dialect
    assert context["ipynb_source"] == "notebooks/nki/page.ipynb"
    assert 'content="neuronxcc nki"' in context["metatags"]  # which dialect.js reads
    assert context["header_buttons"] == []


def test_addresses_come_from_one_place(tmp_path: Path) -> None:
    assert (pages.site(tmp_path), pages.repository(tmp_path)) == (None, None)
    folder = tmp_path / "named"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(URLS)
    assert pages.site(folder) == "https://book.example"
    opened = "https://colab.research.google.com/github/someone/somewhere"
    colab = f"{opened}/blob/main/notebooks/nki/a.ipynb"
    assert pages.colab("notebooks/nki/a.ipynb", folder) == colab
    context: dict = {"header_buttons": [], "ipynb_source": "notebooks/nki/a.ipynb"}
    notebook_download.add_colab(App(folder), "book/a", "", context, object())
    assert [button["url"] for button in context["header_buttons"]] == [colab]


def test_a_notebook_leads_to_the_site_where_that_has_an_address(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(URLS)
    toc = "format: jb-book\nroot: book/page\nchapters:\n- file: book/setup\n"
    (tmp_path / "_toc.yml").write_text(toc)
    (tmp_path / "book").mkdir()
    (tmp_path / "book/setup.md").write_text("# Set up\n")
    text = "# A\n\n{doc}`setup`, {term}`launch overhead`.\n\n```{code-cell} python\n1\n```\n"
    (tmp_path / "book/page.md").write_text(text)
    result = results.Result("", [[]])
    cells = notebooks.make("book/page", "nki", result, tmp_path).cells
    opening, setup, *_ = (cell.source for cell in cells)
    assert "[Set up](https://book.example/book/setup.html)" in opening
    assert "(https://book.example/book/glossary.html#term-launch-overhead)" in opening
    assert "(https://book.example/book/page.html?dialect=nki)" in opening
    assert "(../neuronxcc/page.ipynb)" in opening
    assert "in Colab](https://colab.research.google.com/github/someone/" in opening
    wheel = "https://book.example/nki_book-1.0-py3-none-any.whl"
    assert f'%pip install --quiet "nki-book[notebook] @ {wheel}"' in setup


PRINTED = """\
nl.mean: axis=0 of 'x' (float32[100, 64] in SBUF)
  rule: an engine reduces the last free axes, in a row, and never axis 0,
        which lies across partitions; of this tile: [1]
  fix:  transpose it

line    busy
7      12.25
12      3.50"""


def test_what_was_broken_for_the_page_is_one_item_for_a_phone() -> None:
    lines = PRINTED.split("\n")
    found = text_outputs.items(PRINTED)
    assert [line for item in found for line in item] == lines
    assert [len(item) for item in found] == [1, 2, 1, 1, 1, 1, 1]
    assert text_outputs.in_columns("\n".join(lines[-3:]))
    assert not text_outputs.in_columns("\n".join(lines[:3]))


def test_items_leave_a_text_as_it_was() -> None:
    block = nodes.literal_block(PRINTED, PRINTED, classes=["output", "stream"])
    page = utils.new_document("a page")
    page += block
    text_outputs.replace(object(), page)
    html = page.astext()
    assert "columns" in html.split(">")[0]
    assert "--hang:8ch" in html  # what wraps of a rule begins below its first word
    assert BeautifulSoup(html, "html.parser").get_text() == f"{PRINTED}\n"


def test_a_notebook_says_where_the_names_are(tmp_path: Path) -> None:
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    (tmp_path / "book").mkdir()
    text = "# A\n\n## Names\n\n<!-- names: nki -->\n\n```{code-cell} python\n1\n```\n"
    (tmp_path / "book/page.md").write_text(text)
    cells = notebooks.make("book/page", "nki", results.Result("", [[]]), tmp_path).cells
    said = "The site of the book lists all names here, with an entry for each."
    assert any(said in cell.source for cell in cells)
    assert "<!--" not in "".join(cell.source for cell in cells)
