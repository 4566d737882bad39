"""The largest values of a group of partitions, on GpSimd."""

from __future__ import annotations

from nkisim.errors import DTypeError, ParameterError, ShapeError
from nkisim.frontends.nki.operands import check_on_chip
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.surface.isa.gpsimd import check_sbuf
from nkisim.frontends.nki.surface.isa.vector.checks import rows_of
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.numerics.ops.search import TopK

_GROUP = 16  # partitions that hold one row of values


def topk(
    val_dst: NkiTensor,
    idx_dst: NkiTensor,
    src: NkiTensor,
    n: int,
    name: str | None = None,
) -> NkiInstruction:
    """The K largest values and their places, of each group of 16 partitions.

    A group is one row of values, laid out as a snake: value i is in partition i % 16 of the group,
    column i // 16. So are the results, in ascending order: result j is in partition j % 16, column
    j // 16. AWS documents the snake of the source; public kernels that were run on devices
    rely on the snake of the results. The elements of the results behind the K-th are undefined
    (NaN and all ones here). Of equal values, the one in the lower place counts as larger, which
    is this simulator's choice.

    Args:
        val_dst: a bfloat16 SBUF tile (P, K), 1 <= K <= n, K < 32768.
        idx_dst: a uint32 SBUF tile (P, K): places in the row, from 0.
        src: a bfloat16 SBUF tile (P, >= ceil(n / 16)), P a multiple of 16.
        n: how many values a group holds, 8 to 65535.
        name: of the instruction.

    It takes 4 n + K cycles of GpSimd (published: the API reference of NKI 0.6).

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand that is not in SBUF.
        ShapeError: src, val_dst and idx_dst that do not go together.
        DTypeError: src and val_dst that are not bfloat16, or idx_dst that is not uint32.
        ParameterError: an n outside of 8 to 65535, or a K that is above n or 32767.
    """
    call = "nisa.topk"
    _check(call, val_dst, idx_dst, src, n)
    used = src[:, 0 : -(-n // _GROUP)]

    def lower() -> Recipe:
        return Recipe(
            "topk",
            Engine.GPSIMD,
            [rows_of(val_dst), rows_of(idx_dst)],
            [rows_of(used)],
            None,
            TopK(n=n),
        )

    return NkiInstruction(current().issue(("topk", n), (val_dst, idx_dst, used), lower))


def _check(call: str, val_dst: NkiTensor, idx_dst: NkiTensor, src: NkiTensor, n: int) -> None:
    tiles = {"val_dst": val_dst, "idx_dst": idx_dst, "src": src}
    check_on_chip(call, **tiles)
    check_sbuf(call, **tiles)
    for which, t in tiles.items():
        wanted = "uint32" if which == "idx_dst" else "bfloat16"
        if t.dtype != wanted:
            raise DTypeError(
                f"{call}: {which} is {t.describe()}",
                rule="src and val_dst are bfloat16, idx_dst is uint32",
                fix=f"declare it nl.{wanted}, and copy into it",
            )
        if t.ndim != 2 or t.shape[0] % _GROUP:
            raise ShapeError(
                f"{call}: {which} is {t.describe()}",
                rule=f"each group of {_GROUP} partitions holds one row: tiles have two axes, and "
                f"partitions by the {_GROUP}",
                fix=f"declare it with {-(-t.shape[0] // _GROUP) * _GROUP} partitions",
            )
        if t.shape != (src.shape if which == "src" else val_dst.shape) or (
            t.shape[0] != src.shape[0]
        ):
            raise ShapeError(
                f"{call}: {which} is {t.describe()}, src {src.describe()}",
                rule="val_dst and idx_dst have one shape, and the partitions of src",
                fix=f"declare both ({src.shape[0]}, K)",
            )
    k = val_dst.shape[1]
    if isinstance(n, bool) or not isinstance(n, int) or not 8 <= n < 65536:
        raise ParameterError(
            f"{call}: n={n!r}",
            rule="a group holds 8 to 65535 values",
            fix="pad a short row with the least value of bfloat16",
        )
    if not 1 <= k < 32768 or k > n:
        raise ParameterError(
            f"{call}: val_dst is {val_dst.describe()}, n={n}",
            rule="K, the columns of val_dst, is at least 1, below 32768 and not above n",
            fix=f"declare it ({val_dst.shape[0]}, {min(max(k, 1), n, 32767)})",
        )
    if src.shape[1] * _GROUP < n:
        raise ShapeError(
            f"{call}: src is {src.describe()}, n={n}",
            rule=f"a group of {_GROUP} partitions holds n values: ceil(n / {_GROUP}) columns",
            fix=f"declare it ({src.shape[0]}, {-(-n // _GROUP)})",
        )


__all__ = ["topk"]
