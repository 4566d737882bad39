"""The Tensor Engine: products into PSUM, and transposes."""

from __future__ import annotations

from nkisim.errors import (
    DTypeError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
    TileSizeError,
    locate,
    warn,
)
from nkisim.frontends.nki import dtypes
from nkisim.frontends.nki.matmuls import opened
from nkisim.frontends.nki.operands import check_on_chip, free_of
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.copies import settled_pair, wrong_engine
from nkisim.frontends.nki.surface.isa.enums import (
    NkiInstruction,
    engine,
    matmul_perf_mode,
)
from nkisim.frontends.nki.surface.isa.vector.checks import rows_of
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.machine import Machine
from nkisim.numerics.ops.matmul import Product, TileTranspose

_INPUTS = frozenset({"float8_e4m3", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32"})
_FULL = frozenset({"float32", "tfloat32"})


def nc_matmul(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[int, int] = (),
    tile_size: tuple[int, int] = (),
    perf_mode: matmul_perf_mode = matmul_perf_mode.none,
    name: str | None = None,
) -> NkiInstruction:
    """dst = stationary.T @ moving, or dst += it, in PSUM.

    Args:
        dst: a PSUM tile (M, N), float32 (also bfloat16 on NeuronCore-v4), in one bank.
        stationary: an SBUF tile (K, M), K and M at most 128.
        moving: an SBUF tile (K, N), N at most 512 (more on NeuronCore-v4).
        is_stationary_onezero, is_moving_onezero: promise that a float32 operand holds ones and
            zeros only, which makes the matmul faster.
        is_transpose: whether one operand is an identity; dst has the type of the other one.
        accumulate: False overwrites, True adds; None adds to the elements that a matmul wrote last,
            and overwrites the others.
        tile_position, tile_size: (row, column) of the part of the array that is used; both or none.
        perf_mode: double_row contracts two rows a partition of fp8 operands (K, 2, M), (K, 2, N).
        name: of the instruction.

    Raises:
        TileSizeError: more rows or columns than the array has, or a product that is larger than a
            bank of PSUM.
        MemorySpaceError: operands that are not in SBUF, or dst not in PSUM.
        ShapeError: another contraction in stationary and moving, or a dst that is not their
            product.
        DTypeError: operands of types that do not go together, or a dst of a type that products are
            not accumulated in.
        UninitializedReadError: accumulate=True where nothing wrote dst.
        ParameterError: a part of the array that there is not, or double_row with other operands
            than fp8.
    """
    session = current()
    if (
        dst._indirect is not None
        or stationary._indirect is not None
        or moving._indirect is not None
    ):
        dst, stationary, moving = settled_pair(session, dst, stationary, moving)
    kind, fresh = opened(session, dst, accumulate, "nisa.nc_matmul")
    key = (
        "nc_matmul",
        kind,
        is_stationary_onezero,
        is_moving_onezero,
        is_transpose,
        tile_position,
        tile_size,
        perf_mode,
    )
    tensors = (dst, stationary, moving) if kind == "overwrite" else (dst, stationary, moving, dst)

    def lower() -> Recipe:
        recipe = _matmul(dst, stationary, moving, key[1:])
        if fresh is not None:
            recipe.model.settings = recipe.model.settings.but(fresh=fresh)
        return recipe

    name_of = key if fresh is None else (*key, fresh.tobytes())
    return NkiInstruction(session.issue(name_of, tensors, lower))


def _matmul(dst, stationary, moving, settings: tuple) -> Recipe:
    kind, st_ones, mv_ones, transposes, position, size, mode = settings
    call = "nisa.nc_matmul"
    machine = current().trace.machine
    check_on_chip(call, dst=dst, stationary=stationary, moving=moving)
    for which, t in (("stationary", stationary), ("moving", moving)):
        if t._layout.space is not Space.SBUF:
            raise MemorySpaceError(
                f"{call}: {which} is {t.describe()}",
                rule="the Tensor Engine reads SBUF",
                fix="copy it to SBUF: a DMA from HBM, nisa.tensor_copy from PSUM",
            )
        allowed = _INPUTS | ({"float8_e4m3fn"} if machine.abilities.e4m3fn_products else set())
        if t.dtype not in allowed and not (transposes and t.dtype in dtypes.FLOATS):
            raise DTypeError(
                f"{call}: {which} is {t.describe()}",
                rule="operands are one of " + ", ".join(sorted(allowed)),
                fix="convert it with nisa.tensor_copy",
            )
    _check_dst(call, dst, machine, stationary.dtype if transposes else None)
    pair = {stationary.dtype, moving.dtype}
    if pair & _FULL and not pair <= _FULL:
        raise DTypeError(
            f"{call}: {stationary.dtype} with {moving.dtype}",
            rule="float32 and tfloat32 go with float32 and tfloat32",
            fix="convert one of them",
        )
    if pair == {"float8_e4m3", "float8_e4m3fn"}:
        raise DTypeError(
            f"{call}: float8_e4m3 with float8_e4m3fn",
            rule="the two formats do not mix in a product",
            fix="convert one of them",
        )
    rows = 2 if mode is matmul_perf_mode.double_row else 1
    if rows == 2:
        _check_double(call, stationary, moving, machine)
        if size and size[1] != 128:
            raise ParameterError(
                f"{call}: double_row with tile_size={tuple(size)}",
                rule="double_row uses all 128 columns of the array",
                fix="pass a tile_size of 128 columns, or leave perf_mode out",
            )
    check_product(call, dst, stationary, moving, rows, position, size, machine)
    adds = kind != "overwrite"
    made = Product(
        rows=rows,
        accumulate=adds,
        transpose=bool(transposes),
        exact=bool(transposes) and machine.abilities.exact_transposes and not adds,
        onezero=(bool(st_ones), bool(mv_ones)),
        tile=(tuple(position), tuple(size)) if size else None,
    )
    walks = [rows_of(stationary), rows_of(moving)]
    out = rows_of(dst)
    if adds:
        walks.append(out)
    return Recipe("nc_matmul", Engine.TENSOR, [out], walks, None, made)


def _check_dst(call: str, dst: NkiTensor, machine: Machine, passed: str | None) -> None:
    if dst._layout.space is not Space.PSUM:
        raise MemorySpaceError(
            f"{call}: dst is {dst.describe()}",
            rule="the Tensor Engine writes PSUM",
            fix="declare dst with buffer=nl.psum, and copy it to SBUF with nisa.tensor_copy",
        )
    if passed is not None:
        if dst._layout.type.itemsize < dtypes.TYPES[passed].itemsize:
            raise DTypeError(
                f"{call}: dst is {dst.describe()}",
                rule=f"a transpose passes {passed} on",
                fix=f"declare dst with dtype nl.{passed}",
            )
        return
    allowed = machine.abilities.sums
    if dst.dtype not in allowed:
        raise DTypeError(
            f"{call}: dst dtype {dst.dtype} must be {' or '.join(allowed)} on {_gen(machine)}",
            rule="products are accumulated in " + " or ".join(allowed),
            fix="declare dst with dtype=nl.float32, and convert when copying it to SBUF",
        )


def _gen(machine: Machine) -> str:
    return f"gen{machine.version}"


def _check_double(call: str, stationary: NkiTensor, moving: NkiTensor, machine: Machine) -> None:
    for which, t in (("stationary", stationary), ("moving", moving)):
        pairs = t.dtype in dtypes.FP8 and t.ndim >= 3 and t.shape[1] == 2
        if not (pairs and machine.abilities.fp8_pairs):
            raise ParameterError(
                f"{call}: double_row with {which} {t.describe()} on {machine.name}",
                rule="double_row takes fp8 operands (K, 2, M) and (K, 2, N), on NeuronCore-v3 and "
                "later",
                fix="reshape the operands so, or leave perf_mode out",
            )


def check_product(
    call: str,
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    rows: int,
    position: tuple,
    size: tuple,
    machine: Machine,
) -> None:
    """Raises ShapeError, TileSizeError or ParameterError where sizes do not fit."""
    k, m, n = stationary.shape[0], free_of(stationary) // rows, free_of(moving) // rows
    if moving.shape[0] != k:
        raise ShapeError(
            f"{call}: stationary is {stationary.describe()}, moving {moving.describe()}",
            rule="both have the contraction on the partitions, of one size",
            fix="slice one of them, or transpose it",
        )
    if dst.shape[0] != m or free_of(dst) != n:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, the product ({m}, {n})",
            rule="dst has a partition for each column of stationary, and an element for each "
            "column of moving",
            fix=f"use a ({m}, {n}) tile or part",
        )
    most_k, most_m = _array(call, position, size, machine)
    if k > most_k or m > most_m:
        raise TileSizeError(
            f"{call}: stationary is {stationary.describe()}",
            rule=f"the array takes {most_k} rows and {most_m} columns",
            fix="divide the contraction and the columns into tiles",
        )
    if machine.abilities.products_cross_banks:
        most = machine.psum_bytes // dst._layout.type.itemsize
    else:
        most = machine.psum_bank_bytes // 4
    if n > most:
        raise TileSizeError(
            f"{call}: moving is {moving.describe()}",
            rule=f"it has at most {most} elements a partition (nl.tile_size.gemm_moving_fmax)",
            fix="divide it into tiles of that size",
        )


def _array(call: str, position: tuple, size: tuple, machine: Machine) -> tuple[int, int]:
    if not size and not position:
        return 128, 128
    if not size or not position:
        raise ParameterError(
            f"{call}: tile_position={position} and tile_size={size}",
            rule="a part of the array has a position and a size",
            fix="pass both",
        )
    steps = machine.abilities.array_tiles
    if any(s not in steps for s in size) or any(
        p % s or p + s > 128 for p, s in zip(position, size, strict=True)
    ):
        raise ParameterError(
            f"{call}: tile_position={position}, tile_size={size} on {machine.name}",
            rule=f"sizes are {', '.join(map(str, steps))}; a position is a multiple of its size, "
            "in the 128 x 128 array",
            fix="use such a part",
        )
    return size[0], size[1]


def nc_transpose(
    dst: NkiTensor, data: NkiTensor, engine: engine = engine.unknown, name: str | None = None
) -> NkiInstruction:
    """dst = data transposed: partitions become elements, elements become partitions.

    Args:
        dst: a tile (F, P) of data's dtype, in PSUM for the Tensor Engine.
        data: a tile (P, F): up to 128 x 128 in SBUF on the Tensor Engine, 32 x 32 on the Vector
            Engine.
        engine: tensor or vector; unknown chooses by the memory of dst.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 x 128, or on the Vector Engine more than 32 x 32.
        MemorySpaceError: on the Tensor Engine, data that is not in SBUF or dst that is not in PSUM.
        ShapeError: dst is not the transposed shape.
        DTypeError: dst and data of two types.
        ParameterError: another engine than Tensor and Vector.
    """
    session = current()
    if dst._indirect is not None or data._indirect is not None:
        dst, data = settled_pair(session, dst, data)
    key = ("nc_transpose", engine)
    instr = session.issue(key, (dst, data), lambda: _transpose(dst, data, engine))
    return NkiInstruction(instr)


def _transpose(dst: NkiTensor, data: NkiTensor, where: engine) -> Recipe:
    call = "nisa.nc_transpose"
    machine = current().trace.machine
    check_on_chip(call, dst=dst, data=data)
    if where is engine.unknown:
        where = engine.tensor if dst._layout.space is Space.PSUM else engine.vector
    if where not in (engine.tensor, engine.vector):
        raise wrong_engine(call, where, "tensor, vector")
    if dst._layout.type.stored != data._layout.type.stored:
        error = DTypeError(
            f"{call}: dst is {dst.describe()}, data {data.describe()}",
            rule="a transpose does not convert: dst has the type of data",
            fix=f"declare dst with dtype=nl.{data.dtype}",
            location=locate(),
        )
        # There it is a product, which adds up in float32: public kernels ran so on trn1.
        product = where is engine.tensor and not machine.abilities.exact_transposes
        if not product or dst.dtype != "float32":
            raise error
        warn(error)
    p, f = data.shape[0], free_of(data)
    if dst.shape[0] != f or free_of(dst) != p:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, data {data.describe()}",
            rule=f"dst is the transpose, ({f}, {p})",
            fix="declare or slice it so",
        )
    if where is engine.tensor:
        if data._layout.space is not Space.SBUF or dst._layout.space is not Space.PSUM:
            raise MemorySpaceError(
                f"{call} on the Tensor Engine: dst is {dst.describe()}, data {data.describe()}",
                rule="the Tensor Engine reads SBUF and writes PSUM",
                fix="declare dst with buffer=nl.psum",
            )
        if max(p, f) > 128:
            raise TileSizeError(
                f"{call}: data is {data.describe()}",
                rule="the Tensor Engine transposes up to 128 x 128",
                fix="divide it into tiles",
            )
    elif max(p, f) > 32:
        raise TileSizeError(
            f"{call} on the Vector Engine: data is {data.describe()}",
            rule="the Vector Engine transposes up to 32 x 32",
            fix="divide it into tiles, or transpose into PSUM on the Tensor Engine",
        )
    at = Engine.TENSOR if where is engine.tensor else Engine.VECTOR
    exact = at is not Engine.TENSOR or machine.abilities.exact_transposes
    settings = TileTranspose(spreads=not exact)
    return Recipe("nc_transpose", at, [rows_of(dst)], [rows_of(data)], None, settings, True)


__all__ = ["nc_matmul", "nc_transpose"]
