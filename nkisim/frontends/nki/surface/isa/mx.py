"""Microscaling formats of NeuronCore-v4: quantising to them, and their products.

A group is 8 partitions by the 4 elements of a packed one; it shares one scale, a power of two.
Of each 32 partitions, the scales of the four groups are in partitions 0 to 3.
"""

from __future__ import annotations

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki.matmuls import opened
from nkisim.frontends.nki.operands import check_on_chip, free_of
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.surface.isa.vector.checks import rows_of
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.matmul import Product
from nkisim.numerics.ops.mx import Quantized

_FP8_X4 = ("float8_e5m2_x4", "float8_e4m3fn_x4")
_SCALES = ("float8_e8m0fnu", "uint8")


def _needs_v4(call: str) -> None:
    machine = current().trace.machine
    if not machine.abilities.microscaling:
        raise ParameterError(
            f"{call} on {machine.name}",
            rule="microscaling formats need NeuronCore-v4 (trn3)",
            fix="set NEURON_PLATFORM_TARGET_OVERRIDE=trn3",
        )


def _need(call: str, which: str, t: NkiTensor, types: tuple[str, ...], space: Space) -> None:
    if t._layout.space is not space:
        raise MemorySpaceError(
            f"{call}: {which} is {t.describe()}",
            rule=f"{which} is in {space.label}",
            fix="copy it there first",
        )
    if t.dtype not in types:
        raise DTypeError(
            f"{call}: {which} is {t.describe()}",
            rule=f"{which} is one of " + ", ".join(types),
            fix="use one of these, or view the bits as one",
        )


def quantize_mx(
    dst: NkiTensor, src: NkiTensor, dst_scale: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst, dst_scale = src in a microscaling format.

    The scale of a group is 2 ** (floor(log2(largest magnitude)) - (Emax - 1)), Emax being 8 for
    e4m3fn and 15 for e5m2; 2 ** -127 for a group of zeros.

    Args:
        dst: an SBUF tile (P, F / 4) of float8_e5m2_x4 or float8_e4m3fn_x4.
        src: an SBUF tile (P, F), bfloat16 or float16; P a multiple of 32, F of 4.
        dst_scale: a uint8 or float8_e8m0fnu SBUF tile with F / 4 elements a partition.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: src is not in SBUF or PSUM, or a result not in SBUF.
        ShapeError: partitions that are no multiple of 32, elements that are none of 4, or results
            that do not go with src.
        DTypeError: types that are not those of a microscaling format.
        ParameterError: on a NeuronCore before v4.
    """
    session = current()
    call = "nisa.quantize_mx"

    def lower() -> Recipe:
        _needs_v4(call)
        check_on_chip(call, dst=dst, src=src, dst_scale=dst_scale)
        _need(call, "dst", dst, _FP8_X4, Space.SBUF)
        _need(call, "src", src, ("bfloat16", "float16"), Space.SBUF)
        _need(call, "dst_scale", dst_scale, _SCALES, Space.SBUF)
        if src.shape[0] % 32 or free_of(src) % 4:
            raise ShapeError(
                f"{call}: src is {src.describe()}",
                rule="partitions are a multiple of 32, elements in each of 4",
                fix="pad it",
            )
        if dst.shape[0] != src.shape[0] or free_of(dst) * 4 != free_of(src):
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, src {src.describe()}",
                rule="four elements of src are one of dst",
                fix=f"declare dst ({src.shape[0]}, {free_of(src) // 4})",
            )
        check_scale(call, "dst_scale", dst_scale, src.shape[0], free_of(dst))
        return Recipe(
            "quantize_mx",
            Engine.VECTOR,
            [rows_of(dst), rows_of(dst_scale)],
            # The instruction leaves the partitions that hold no scale as they are.
            [rows_of(src)],
            None,
            Quantized(format=dst.dtype.removesuffix("_x4")),
        )

    return NkiInstruction(session.issue(("quantize_mx",), (dst, dst_scale, src), lower))


def check_scale(call: str, which: str, scale: NkiTensor, lanes: int, count: int) -> None:
    """Raises ShapeError for a tile of scales that does not go with data of some partitions."""
    last = (lanes - 1) // 32 * 32 + (lanes - 1) % 32 // 8
    if scale.shape[0] <= last or free_of(scale) != count:
        raise ShapeError(
            f"{call}: {which} is {scale.describe()}",
            rule=f"it has a scale for each of {count} packed elements, in partitions 0 to 3 of "
            f"each 32: at least {last + 1} partitions",
            fix=f"use a ({lanes}, {count}) tile",
        )


def _scales_of(scale: NkiTensor, lanes: int) -> list[NkiTensor]:
    """The parts that hold scales: partitions 0 to 3 of each 32."""
    return [scale[i : min(i + 4, scale.shape[0])] for i in range(0, lanes, 32)]


def nc_matmul_mx(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    stationary_scale: NkiTensor,
    moving_scale: NkiTensor,
    tile_position: tuple[int, int] | None = None,
    tile_size: tuple[int, int] | None = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst = stationary.T @ moving, or dst += it, of operands in microscaling formats.

    Args:
        dst: a PSUM tile (M, N), float32 or bfloat16.
        stationary, moving: SBUF tiles (K, M) and (K, N) of packed types: each partition holds four
            elements of the contraction. K is a multiple of 32, M even and at most 128.
        stationary_scale, moving_scale: uint8 or float8_e8m0fnu SBUF tiles of their scales.
        tile_position, tile_size: (row, column) of the part of the array: rows 32 or 64, columns
            128.
        accumulate: as for `nc_matmul`.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions, or a product that is larger than a bank of PSUM.
        MemorySpaceError: operands that are not in SBUF, or dst not in PSUM.
        ShapeError: operands, scales or dst that do not go together.
        DTypeError: types that are not those of a microscaling format.
        ParameterError: on a NeuronCore before v4, or a tile_position without its tile_size.
    """
    session = current()
    call = "nisa.nc_matmul_mx"
    _needs_v4(call)
    kind, fresh = opened(session, dst, accumulate, call)
    key = ("nc_matmul_mx", kind, tile_position, tile_size)
    ins = [stationary, moving]
    for which, t, s in (
        ("stationary", stationary, stationary_scale),
        ("moving", moving, moving_scale),
    ):
        check_scale(call, f"{which}_scale", s, t.shape[0], free_of(t))
        ins += _scales_of(s, t.shape[0])
    tensors = (dst, *ins) if kind == "overwrite" else (dst, *ins, dst)

    def lower() -> Recipe:
        check_on_chip(call, dst=dst, stationary=stationary, moving=moving)
        packed = (*_FP8_X4, "float4_e2m1fn_x4")
        for which, t, s in (
            ("stationary", stationary, stationary_scale),
            ("moving", moving, moving_scale),
        ):
            _need(call, which, t, packed, Space.SBUF)
            _need(call, f"{which}_scale", s, _SCALES, Space.SBUF)
        _need(call, "dst", dst, ("float32", "bfloat16"), Space.PSUM)
        k, m, n = stationary.shape[0], free_of(stationary), free_of(moving)
        if k % 32 or moving.shape[0] != k or m % 2 or m > 128:
            raise ShapeError(
                f"{call}: stationary is {stationary.describe()}, moving {moving.describe()}",
                rule="both have as many partitions, a multiple of 32; stationary has an even "
                "number of columns, at most 128",
                fix="pad or cut them",
            )
        most = 16384 // dst._layout.type.itemsize
        if n > most or dst.shape[0] != m or free_of(dst) != n:
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, the product ({m}, {n})",
                rule=f"dst is the product; moving has at most {most} columns",
                fix="cut moving in tiles",
            )
        if (tile_size is None) != (tile_position is None) or (
            tile_size and (tile_size[0] not in (32, 64, 128) or tile_size[1] != 128)
        ):
            raise ParameterError(
                f"{call}: tile_position={tile_position}, tile_size={tile_size}",
                rule="both or none; rows are 32, 64 or 128, columns 128",
                fix="pass such a part of the array",
            )
        walks = [rows_of(t) for t in ins]
        adds = kind != "overwrite"
        if adds:
            walks.append(rows_of(dst))
        formats = stationary.dtype.removesuffix("_x4"), moving.dtype.removesuffix("_x4")
        settings = Product(formats=formats, accumulate=adds, fresh=fresh)
        return Recipe("nc_matmul_mx", Engine.TENSOR, [rows_of(dst)], walks, None, settings)

    name_of = key if fresh is None else (*key, fresh.tobytes())
    return NkiInstruction(session.issue(name_of, tensors, lower))


__all__ = ["nc_matmul_mx", "quantize_mx"]
