"""Published measurements of a kernel and of what the Neuron compiler does for the same operation.

Each pair was measured by one author, on one machine, with one clock. Pairs of two kernels are in
`nkibook.validation.pairs`.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "nki-autotune": "github.com/awslabs/nki-autotune at d57bcc3, kernel_library/README.md",
    "nki-llama#23": "github.com/aws-neuron/nki-llama, issue 23: clock of the host around calls "
    "that are waited for",
    "self-forcing": "github.com/guandeh17/Self-Forcing, pull request 93, 11 July 2026",
    "flux": "huggingface.co/Jingya/custom-nki-kernels, README",
    "aim414": "AWS re:Invent 2025, session AIM414, as transcribed",
}


@dataclass(frozen=True)
class Pair:
    """One operation, done by a kernel and by the compiler.

    Attributes:
        name: what was computed, with its sizes.
        chip: of the machine; "?" where the source does not say.
        kernel, compiler: what was measured.
        unit: of both. More is better for "% of peak" and "prompts/s", less for others.
        source: a key of SOURCES.
        whole: whether the numbers are of a whole model that calls the kernel, not of it alone.
    """

    name: str
    chip: str
    kernel: float
    compiler: float
    unit: str
    source: str
    whole: bool = False

    @property
    def gain(self) -> float:
        """How many times as fast the kernel is; below 1 it lost."""
        if self.unit in ("% of peak", "prompts/s"):
            return self.kernel / self.compiler
        return self.compiler / self.kernel


_SIZES = [(m, k, n) for m in (4096, 8192) for k in (4096, 8192) for n in (4096, 8192)]
_KERNEL_MS = (2.694, 3.538, 3.539, 6.991, 3.876, 7.516, 7.476, 14.72)
_COMPILER_MS = (2.106, 3.94, 3.872, 8.224, 3.884, 7.936, 7.375, 14.656)

PAIRS = (
    Pair("aT @ b, 2048³, bf16", "trn2", 90.92, 86.65, "% of peak",
         "nki-autotune"),
    Pair("a @ b, 2048³, bf16", "trn2", 89.26, 83.84, "% of peak", "nki-autotune"),
    *(Pair(f"a @ b, {m} x {k} x {n}", "?", ours, theirs, "ms", "nki-llama#23")
      for (m, k, n), ours, theirs in zip(_SIZES, _KERNEL_MS, _COMPILER_MS, strict=True)),
    Pair("attention, Qwen3 0.6B", "?", 2.99, 0.35, "prompts/s", "aim414", whole=True),
    Pair("attention, video model", "trn2", 958.449, 931.839, "s",
         "self-forcing", whole=True),
    Pair("fused QKV, FLUX.2 klein", "trn1", 14.86, 0.824, "s/step", "flux",
         whole=True),
)  # fmt: skip
