"""What is recorded of tests and kernels of others goes with the documented names."""

import importlib
import json
from pathlib import Path

from figures import judges

import nkisim.frontends.nki as dialect

DOCUMENTED = json.loads((Path(dialect.__file__).parent / "nki_api_0.6.json").read_text())["modules"]


def test_instructions_that_kernels_use_are_there():
    for name in judges._facts("nki_usage")["names"]:
        module, _, instruction = name.rpartition(".")
        assert instruction in DOCUMENTED[module]
        assert callable(getattr(importlib.import_module(module), instruction))


def test_the_table_has_every_instruction_once():
    rows = judges.instructions(DOCUMENTED).rows
    functions = [n for n, known in DOCUMENTED["nki.isa"].items() if known["kind"] == "function"]
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names)
    assert {f"nisa.{n}" for n in functions} <= set(names)
    counts = [int(row[3]) for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert all(
        files <= 326 and kernels <= 251 for kernels, files in (map(int, r[3:]) for r in rows)
    )


def test_every_suite_that_was_run_has_a_result():
    for suite, chip, passed, failed, skipped, how in judges.results():
        assert chip in ("trn2", "trn3"), suite
        assert passed + failed + skipped > 0, suite
        assert how, suite
