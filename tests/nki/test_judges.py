"""What is recorded of tests and kernels of others goes with the documented names."""

import ast
import importlib
import re

import nki_names
import pytest

from nkibook.facts import documented
from nkibook.figures import judges

DOCUMENTED = documented("nki")


@pytest.mark.parametrize("facts", ["nki_usage", "nki_names"])
def test_names_that_kernels_and_suites_use_are_there(facts):
    for path in judges._facts(facts)["names"]:
        module, _, name = path.rpartition(".")
        assert name in DOCUMENTED[module]
        assert hasattr(importlib.import_module(module), name)


def test_every_name_is_in_one_group():
    names = [name for group in judges.groups(DOCUMENTED).values() for name in group]
    documented = {f"{module}.{name}" for module, found in DOCUMENTED.items() for name in found}
    assert len(names) == len(documented)
    assert set(names) == documented


def test_a_group_is_a_table_by_use_with_columns_for_the_suites_that_tried():
    text = judges.names(DOCUMENTED, "later chips")
    link = '<a href="api_nki_isa.html#nki.isa.sendrecv"><code>nisa.<wbr>sendrecv</code></a>'
    assert link in text
    assert "<small>Trainium2, 3</small>" in text
    columns = [">name<", ">kernels<", ">docs<", ">trnsci<", ">library<"]
    assert [text.count(column) for column in columns] == [1] * 5
    counts = [int(n) for n in re.findall(r"</th><td>(\d+)</td>", text)]
    assert counts == sorted(counts, reverse=True)
    untried = judges.names(DOCUMENTED, "our tests only")
    assert ">library<" not in untried
    assert "nki.isa.topk" in untried


def test_an_entry_says_who_has_tried_the_name():
    tried = judges.tried(DOCUMENTED)
    total = judges._facts("nki_usage")["kernels"]
    copy = tried["nki.isa.dma_copy"]
    assert judges.said(copy).startswith(
        f"by {copy.kernels} of {total} public kernels, and by suites"
    )
    assert "nki-library" in judges.said(copy)
    assert judges.said(tried["nki.isa.topk"]) == (
        f"by none of {total} public kernels, and by no suite of others that runs here."
    )
    assert tried["nki.language.NkiTensor"] == tried["nki.language.ndarray"]


def test_names_are_counted_through_what_imports_call_them():
    text = """
import nki.isa as nisa
import nki.language as nl
from nki.isa.constants import oob_mode as mode
from nki.language import add
import numpy as nl2

def kernel(x):
    nisa.dma_copy(x, x, oob_mode=mode.skip)
    return nl.tile_size.pmax, add, nl2.exp, x.nl.store
"""
    found = nki_names.named(ast.parse(text), nki_names.documented())
    names = {"isa.dma_copy", "isa.oob_mode", "language.tile_size", "language.add"}
    assert found == {f"nki.{name}" for name in names}


def test_a_suite_is_its_tests_and_what_they_import(tmp_path):
    for name, text in {
        "tests/test_a.py": "import numpy\nfrom package.kernels import b",
        "package/__init__.py": "",
        "package/kernels/__init__.py": "from . import c",
        "package/kernels/b.py": "from ..tools.d import something",
        "package/kernels/c.py": "",
        "package/tools/d.py": "import package.kernels",
        "package/other.py": "",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = nki_names.reached([tmp_path / "tests/test_a.py"], [tmp_path])
    assert {file.stem for file in found} - {"__init__"} == {"test_a", "b", "c", "d"}


def test_every_suite_that_was_run_has_a_result():
    for suite, chip, passed, failed, skipped, how in judges.results():
        assert chip in ("trn2", "trn3"), suite
        assert passed + failed + skipped > 0, suite
        assert how, suite
