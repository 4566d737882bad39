"""Runs the examples in AWS's docstrings of `import nki` that assert something, on the simulator.

    git clone https://github.com/aws-neuron/aws-neuron-sdk
    python tools/aws/aws_docstrings.py PATH_TO_AWS_NEURON_SDK

Each code block of `nki/api/nki/**/*.py` with an `assert nl.` becomes the body of a kernel. Only the
assertions change: what they assert, a tile of ones and zeros, is stored in HBM and looked at here,
since a kernel has no values while it is traced. A name that an example takes from its surroundings
is an argument of the kernel; the only one that is read, `expected_tensor`, is the identity matrix.
Prints a line an example, and exits 1 if one failed or there is none. On trn3 unless `--target` says
otherwise (`abs_max` and `abs_min` are not on earlier chips).
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import os
import re
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)\.\. code-block:: python\n((?:\n|\1 +.*\n?)+)", re.MULTILINE)
PRELUDE = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"
GIVEN = {
    "expected_tensor": lambda: np.eye(128, dtype=np.float32),
    "actual_tensor": lambda: np.zeros((128, 128), np.float32),
}


def examples(sdk: Path) -> Iterator[tuple[str, str]]:
    """The code blocks with an assertion: the documented name, numbered, and the text."""
    for file in sorted((sdk / "nki/api/nki").rglob("*.py")):
        module = ".".join(file.relative_to(sdk / "nki/api").with_suffix("").parts)
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            found = [
                textwrap.dedent(block[2])
                for block in BLOCK.finditer((ast.get_docstring(node) or "") + "\n")
            ]
            held = [text for text in found if re.search(r"^\s*assert nl\.", text, re.MULTILINE)]
            for i, text in enumerate(held):
                name = f"{module.removesuffix('.__init__')}.{node.name}"
                yield name + (f" ({i + 1})" if len(held) > 1 else ""), text


class Asserted(ast.NodeTransformer):
    """Makes `assert test` the call `held.append(_stored(test))`."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        stored = ast.Call(ast.Name("_stored", ast.Load()), [node.test], [])
        call = ast.Call(ast.Attribute(ast.Name("held", ast.Load()), "append"), [stored], [])
        return ast.copy_location(ast.Expr(call), node)


STORED = """
def _stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
"""


def program(text: str) -> str:
    """The module that holds an example as the kernel `example`."""
    body = ast.unparse(ast.fix_missing_locations(Asserted().visit(ast.parse(text))))
    # `import` is for the module: a kernel's body has none.
    lines = [line for line in body.splitlines() if not line.startswith("import ")]
    arguments = ", ".join(name for name in GIVEN if re.search(rf"\b{name}\b", text))
    kernel = [f"def example({arguments}):", "    held = []", *(f"    {line}" for line in lines)]
    return "\n".join([PRELUDE, STORED, "\n", *kernel, "    return tuple(held)", ""])


def run(name: str, text: str, file: Path) -> bool:
    """Run one example; print how it went."""
    import nki

    try:
        file.write_text(program(text))
        spec: Any = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module  # messages quote the line
        spec.loader.exec_module(module)
        given = [GIVEN[n]() for n in inspect.signature(module.example).parameters]
        held = nki.simulate(module.example)(*given)
    except Exception:
        print(f"failed  {name}\n{textwrap.indent(traceback.format_exc(limit=-3), '    ')}")
        return False
    held = held if isinstance(held, tuple) else (held,)
    wrong = [i + 1 for i, tile in enumerate(held) if not np.asarray(tile).all()]
    print(f"{'failed' if wrong else 'passed'}  {name}, {len(held)} assertions", flush=True)
    if wrong:
        print(f"    assertions that do not hold: {wrong}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Run AWS's docstring examples with assertions.")
    parser.add_argument("sdk", type=Path, help="a checkout of aws-neuron/aws-neuron-sdk")
    parser.add_argument("--target", default="trn3", help="the chip, trn3 unless given")
    given = parser.parse_args()
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = given.target
    sys.path.insert(0, str(ROOT))
    import nkisim

    nkisim.install()
    with tempfile.TemporaryDirectory() as made:
        results = [
            run(name, text, Path(made) / f"example_{i}.py")
            for i, (name, text) in enumerate(examples(given.sdk))
        ]
    if not results:
        parser.error(f"{given.sdk} has no example with an assertion in nki/api/nki")
    print(f"{sum(results)} of {len(results)} examples passed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
