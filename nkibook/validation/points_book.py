"""Published latencies of what the book's own kernels compute, and these kernels.

They are not the kernels that were measured. They do the same on the same data, in blocks that were
chosen here, so that a point says less about the cost model than those of `points` do, and something
about the kernel. No point is counted with the others.
"""

from __future__ import annotations

from nkibook.validation.point import Point, bf16

SOURCES = {
    "matmul": "AWS Neuron SDK 2.26 documentation, NKI tutorial on matrix multiplication, last "
    "stage",
    "nki-autotune": "github.com/awslabs/nki-autotune at d57bcc3, kernel_library/README.md, best "
    "run of lhs_rhs",
}

BOOK = [
    Point("matmul 4096 x 8192 x 8192, left one transposed", 6970, "matmul", "latency",
          "kernels.matmul.nki_matmul_kernel", (bf16(8192, 4096), bf16(8192, 8192), True), "high",
          "matmul"),
    Point("matmul 2048 x 2048 x 2048", 244.2, "nki-autotune", "latency",
          "kernels.matmul.nki_matmul_kernel", (bf16(2048, 2048), bf16(2048, 2048)), "medium",
          "matmul", "v3"),
]  # fmt: skip
