"""Runs three guides of AWS's SDK 2.32, as they are, on the simulator.

    git clone https://github.com/aws-neuron/aws-neuron-sdk
    python tools/aws/aws_guides.py PATH_TO_AWS_NEURON_SDK

Average pooling (a script each for NumPy, PyTorch and JAX), tensor addition (the kernel's file), and
"custom operator" (the code blocks of its page for PyTorch and for JAX, in the page's order). The
scripts of pooling compare with a reference themselves; of the others, results are compared here.
Each runs in a process of its own, for trn2. Prints a line a program, and exits 1 if one failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = "nki/examples"
ADDITION = f"{EXAMPLES}/tensor_addition/tensor_addition_nki_kernels.py"
GUIDE = "nki/guides/framework_custom_op.rst"
POOLING = "average_pool2d_nki_kernels.py", "average_pool2d_torch.py", "average_pool2d_jax.py"

ADDED = """
import numpy as np
rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, 256, 1024), np.float32)
np.testing.assert_array_equal(nki_tensor_add(x, y), x + y)
"""
IN_TORCH = "torch.testing.assert_close(out, a * b * (a + b))\n"
IN_JAX = """
import numpy as np
np.testing.assert_allclose(jax_customop_tutorial(a, b), a * b * (a + b), rtol=1e-5)
"""
# The variables tell PyTorch/XLA where to write its graphs, the listings are no programs.
LEFT_OUT = re.compile(r"NEURON_FRAMEWORK_DEBUG|^\[ScheduleSync|^HloModule", re.MULTILINE)


def blocks(page: str) -> Iterator[str]:
    """The literal blocks of a page in reStructuredText that are programs."""
    for found in re.finditer(
        r"^(?:::|\.\. code-block::.*)\n((?:\n|[ \t]+.*\n)+)", page, re.MULTILINE
    ):
        text = textwrap.dedent(re.sub(r"^\s*:\w+:.*\n", "", found[1]))
        if not LEFT_OUT.search(text):
            yield text


def programs(sdk: Path) -> Iterator[tuple[str, str]]:
    """Each program of the guides: its name and its text."""
    for name in POOLING:
        yield f"average pooling, {name}", (sdk / EXAMPLES / "average_pool2d" / name).read_text()
    addition = (sdk / ADDITION).read_text()
    yield "tensor addition, NumPy", addition + ADDED
    for framework, check in (("torch", IN_TORCH), ("jax", IN_JAX)):
        parts = []
        for text in blocks((sdk / GUIDE).read_text()):
            if ("jax" in text) == (framework == "jax"):
                parts.append(text)
                parts += [check] if "out" in text and "nki_tensor_add(a, b)" in text else []
        yield f"custom operator, {framework}", "\n".join([addition, *parts])


def run(name: str, text: str, folder: Path) -> bool:
    """Run one program after `import kernels`, which provides `nki`; print how it went."""
    file = folder / "program.py"
    file.write_text(f"import kernels\n{text}")
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"},
    )
    # The scripts of pooling print whether they match, and end with 0 if they do not.
    good = ended.returncode == 0 and "differ" not in ended.stdout
    print(f"{'passed' if good else 'failed'}  {name}", flush=True)
    if not good:
        lines = (ended.stdout + ended.stderr).splitlines()
        print(textwrap.indent("\n".join(lines[-12:]), "    "))
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="Run AWS's guides of SDK 2.32 on the simulator.")
    parser.add_argument("sdk", type=Path, help="a checkout of aws-neuron/aws-neuron-sdk")
    sdk = parser.parse_args().sdk
    missing = [f for f in (ADDITION, GUIDE, f"{EXAMPLES}/average_pool2d") if not (sdk / f).exists()]
    if missing:
        parser.error(f"{sdk} has no {missing[0]}: give a checkout of aws-neuron-sdk at SDK 2.32")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in POOLING:  # the scripts of the frameworks import the kernel's file
            (folder / name).write_text((sdk / EXAMPLES / "average_pool2d" / name).read_text())
        results = [run(name, text, folder) for name, text in programs(sdk)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
