"""`nki.language`: types, memory, tensors, loops and functions on tiles."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nkisim.errors import MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki import declare, releases, target
from nkisim.frontends.nki.arguments import check_methods, checked_settings
from nkisim.frontends.nki.dtypes import type_of
from nkisim.frontends.nki.grids import (
    NkiBlockGrid,
    NkiGrid,
    NkiTileGrid,
    alloc_blocks,
    alloc_tiles,
    blocks,
    tiles,
)
from nkisim.frontends.nki.loops import dynamic_range, fori_loop, while_loop
from nkisim.frontends.nki.registers import RunTimeInteger
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface import isa
from nkisim.frontends.nki.surface.functions import (
    all,
    broadcast_to,
    dropout,
    expand_dims,
    gather_flattened,
    matmul,
    max,
    mean,
    min,
    prod,
    rms_norm,
    softmax,
    sum,
    transpose,
    var,
    where,
)
from nkisim.frontends.nki.surface.isa.random import uniform
from nkisim.frontends.nki.surface.names import missing
from nkisim.frontends.nki.surface.operators import (
    abs,
    abs_max,
    abs_min,
    add,
    arctan,
    average,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    bypass,
    ceil,
    copy,
    cos,
    divide,
    equal,
    erf,
    erf_dx,
    exp,
    floor,
    fmod,
    gelu,
    gelu_apprx_sigmoid,
    gelu_apprx_sigmoid_dx,
    gelu_apprx_tanh,
    gelu_dx,
    greater,
    greater_equal,
    invert,
    left_shift,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mish,
    mod,
    multiply,
    negative,
    not_equal,
    power,
    prelu,
    reciprocal,
    relu,
    right_shift,
    rsqrt,
    sigmoid,
    sign,
    silu,
    silu_dx,
    sin,
    softplus,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from nkisim.frontends.nki.tensors.indexing import DynamicSlice
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.numerics.ops.movement import Print

__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiBlockGrid",
    "NkiGrid",
    "NkiTensor",
    "NkiTileGrid",
    "abs",
    "abs_max",
    "abs_min",
    "add",
    "affine_range",
    "all",
    "alloc_blocks",
    "alloc_tiles",
    "arctan",
    "average",
    "bfloat16",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "blocks",
    "bool_",
    "broadcast_to",
    "bypass",
    "ceil",
    "copy",
    "cos",
    "device_print",
    "divide",
    "dropout",
    "ds",
    "dynamic_range",
    "empty_like",
    "equal",
    "erf",
    "erf_dx",
    "exp",
    "expand_dims",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "floor",
    "fmod",
    "fori_loop",
    "full",
    "gather_flattened",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "greater",
    "greater_equal",
    "hbm",
    "int8",
    "int16",
    "int32",
    "int64",
    "invert",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "left_shift",
    "less",
    "less_equal",
    "load",
    "load_transpose2d",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "multiply",
    "ndarray",
    "negative",
    "no_reorder",
    "not_equal",
    "num_programs",
    "ones",
    "power",
    "prelu",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "reciprocal",
    "relu",
    "right_shift",
    "rms_norm",
    "rsqrt",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "sin",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "static_range",
    "store",
    "subtract",
    "sum",
    "tan",
    "tanh",
    "tfloat32",
    "tile_size",
    "tiles",
    "transpose",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]

DType = str

bool_ = "bool"
int8, int16, int32, int64 = "int8", "int16", "int32", "int64"
uint8, uint16, uint32, uint64 = "uint8", "uint16", "uint32", "uint64"
float16, float32, bfloat16, tfloat32 = "float16", "float32", "bfloat16", "tfloat32"
float8_e4m3, float8_e4m3fn, float8_e5m2 = "float8_e4m3", "float8_e4m3fn", "float8_e5m2"
float8_e8m0fnu = "float8_e8m0fnu"
float8_e5m2_x4, float8_e4m3fn_x4 = "float8_e5m2_x4", "float8_e4m3fn_x4"
float4_e2m1fn_x4 = "float4_e2m1fn_x4"

sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
private_hbm, shared_hbm = MemoryRegion.private_hbm, MemoryRegion.shared_hbm
hbm = private_hbm


class NKIObject:
    """Base of classes whose objects kernels use: configurations, dataclasses.

    An annotated field of a class below this one that has no default has None, as AWS's compiler
    has it: `x: int` in the class body means `x: int = None`. So `@dataclass` asks for no field,
    and fields with and without a default may stand in any order. `x = 3` without an annotation
    makes a field, too, after those that have one.

    Args:
        **kwargs: attributes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = inspect.get_annotations(cls)
        for name in fields:
            if not hasattr(cls, name):
                setattr(cls, name, None)  # which `@dataclass` takes as the default
        for name, value in vars(cls).items():
            if not (name.startswith("__") or callable(value) or hasattr(value, "__get__")):
                fields.setdefault(name, Any)
        cls.__annotations__ = fields

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        """As Python has it; in NKI 0.6, whether the type and all fields are equal."""
        if releases.tracing() or type(other) is not type(self):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = object.__hash__


class _TileSize:
    """Limits of the hardware that the kernel is compiled for. In elements, but for bytes."""

    @property
    def pmax(self) -> int:
        """Partitions."""
        return target.current_machine().partitions

    @property
    def psum_bank_fmax(self) -> int:
        """fp32 elements in a partition of a bank of PSUM."""
        return target.current_machine().psum_fmax

    psum_fmax = psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes in a partition of a bank of PSUM."""
        return target.current_machine().psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        machine = target.current_machine()
        return machine.psum_bytes // machine.psum_bank_bytes

    @property
    def gemm_stationary_fmax(self) -> int:
        """Columns of the stationary operand of a matmul."""
        return target.current_machine().gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Columns of the moving operand of a matmul."""
        return target.current_machine().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Elements of a partition that nisa.bn_stats takes."""
        return target.current_machine().bn_stats_fmax

    @property
    def psum_min_align(self) -> int:
        """Bytes that addresses in PSUM are multiples of."""
        return target.current_machine().psum_min_align

    @property
    def sbuf_min_align(self) -> int:
        """Bytes that addresses in SBUF are multiples of."""
        return target.current_machine().sbuf_min_align

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of a partition of SBUF that kernels can use."""
        return target.current_machine().sbuf_usable_bytes

    sbuf_fmax_bytes = total_available_sbuf_size

    @property
    def sbuf_fmax(self) -> int:
        """fp32 elements of a partition of SBUF that kernels can use."""
        return target.current_machine().sbuf_usable_bytes // 4

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, over all partitions."""
        machine = target.current_machine()
        return machine.sbuf_bytes * machine.partitions


tile_size = _TileSize()


def is_hbm(buffer: MemoryRegion) -> bool:
    """Whether a memory region is HBM."""
    return buffer in (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Whether a memory region is SBUF or PSUM."""
    return buffer in (MemoryRegion.sbuf, MemoryRegion.psum)


def is_psum(buffer: MemoryRegion) -> bool:
    """Whether a memory region is PSUM."""
    return buffer is MemoryRegion.psum


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Whether a memory region is SBUF."""
    return buffer is MemoryRegion.sbuf


# -- tensors --------------------------------------------------------------------------------------


class _Tensors(type):
    """`nl.ndarray` makes a tensor, and stands for the type of tensors in annotations."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, NkiTensor)

    def __call__(
        cls,
        shape: tuple[int, ...],
        dtype: str,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        return declare.make(shape, dtype, buffer, name, address)


class ndarray(metaclass=_Tensors):
    """`nl.ndarray(shape, dtype, buffer=nl.sbuf, name="", address=None)`: a new tensor, with nothing
    in it.

    Args:
        shape: extents; on chip, axis 0 is laid over partitions.
        dtype: element type.
        buffer: the memory.
        name: for messages. Tensors in shared HBM with one name are one tensor for all cores.
        address: (start partition, byte) on chip. A kernel gives addresses to all of its tensors on
            chip, or to none.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        buffer: MemoryRegion = sbuf,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> None: ...


def _filled(
    shape: Sequence[int], value: float, dtype: Any, buffer: Any, name: str = ""
) -> NkiTensor:
    """A new tensor that holds one value."""
    made = declare.make(shape, dtype, buffer, name)
    if made._layout.on_chip:
        isa.memset(made, value)
        return made
    size = made.size
    lanes = next(n for n in range(128, 0, -1) if size % n == 0)
    tile = declare.make((lanes, 1), dtype, MemoryRegion.sbuf)
    isa.memset(tile, value)
    isa.dma_copy(made.reshape((lanes, size // lanes)), tile.broadcast(1, size // lanes))
    return made


def zeros(shape: tuple, dtype: str, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of zeros.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(shape, 0.0, dtype, buffer, name)


def ones(shape: tuple, dtype: str, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of ones.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(shape, 1.0, dtype, buffer, name)


def full(
    shape: tuple, fill_value: float, dtype: str, buffer: MemoryRegion = sbuf, name: str = ""
) -> NkiTensor:
    """A new tensor of one value.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(shape, fill_value, dtype, buffer, name)


def zeros_like(
    x: NkiTensor, dtype: str | None = None, buffer: MemoryRegion | None = None, name: str = ""
) -> NkiTensor:
    """A new tensor of zeros with the shape of x, in SBUF unless `buffer` says otherwise.

    Raises:
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(x.shape, 0.0, dtype or x.dtype, buffer or sbuf, name)


def empty_like(
    x: NkiTensor, dtype: str | None = None, buffer: MemoryRegion | None = None, name: str = ""
) -> NkiTensor:
    """A new tensor with the shape, type and memory of x, with nothing in it.

    Raises:
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return declare.make(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def load(src: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """A tensor in HBM, in a new SBUF tile. One axis becomes a column.

    Raises:
        MemorySpaceError: src is not in HBM.
        TileSizeError: more than 128 partitions.
    """
    _require_hbm("nl.load from", src)
    shape = src.shape if src.ndim > 1 else (src.shape[0], 1)
    dst = declare.make(shape, dtype or src.dtype, sbuf)
    isa.dma_copy(dst, src)
    return dst


def load_transpose2d(src: NkiTensor, dtype: str | None = None) -> NkiTensor:
    """A two-dimensional tensor in HBM, transposed in a new SBUF tile.

    Raises:
        MemorySpaceError: src is not in HBM.
        ShapeError: src has not two axes.
    """
    _require_hbm("nl.load_transpose2d from", src)
    if src.ndim != 2:
        raise ShapeError(
            f"nl.load_transpose2d from {src.describe()}", rule="it takes two axes", fix="reshape"
        )
    dst = declare.make((src.shape[1], src.shape[0]), src.dtype, sbuf)
    isa.dma_transpose(dst, src)
    if dtype is None or type_of(dtype).name == src.dtype:
        return dst
    return copy(dst, dtype)


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """An SBUF tile into a tensor in HBM.

    Raises:
        MemorySpaceError: dst is not in HBM, or value is in PSUM.
        ShapeError: different numbers of elements.
    """
    _require_hbm("nl.store to", dst)
    if isinstance(value, NkiTensor) and value.buffer is MemoryRegion.psum:
        raise MemorySpaceError(
            f"nl.store of {value.describe()}",
            rule="a DMA moves data between HBM and SBUF",
            fix="copy it to SBUF first: nl.copy(tile)",
        )
    isa.dma_copy(dst, value)


def _require_hbm(call: str, t: NkiTensor) -> None:
    current()  # which tells of a kernel of the other dialect
    if not isinstance(t, NkiTensor) or t._layout.on_chip:
        given = t.describe() if isinstance(t, NkiTensor) else repr(t)
        raise MemorySpaceError(
            f"{call} {given}", rule="it takes a tensor in HBM", fix="use nl.copy on chip"
        )


def shared_constant(constant: Any) -> NkiTensor:
    """Data known when the kernel is compiled, in shared HBM.

    Args:
        constant: a NumPy array, or the path of a .npy file.

    Raises:
        DTypeError: a type that the NeuronCore does not have.
        FileNotFoundError: there is no such file.
        ParameterError: neither an array nor a path.
    """
    return declare.constant(constant)


def shared_identity_matrix(n: int, dtype: str = uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """The (n, n) identity matrix in SBUF, one for each type.

    Args:
        n: rows.
        dtype: element type.
        dst: an SBUF tile to write it to.

    Raises:
        TileSizeError: n is above 128.
        DTypeError: a type that the NeuronCore does not have.
    """
    session = current()
    kind = type_of(dtype)
    key = (session.program, "identity", n, kind.name)
    found = session.state.get(key)
    if dst is None and found is not None:
        return found
    made = declare.make((n, n), kind.name, sbuf) if dst is None else dst
    isa.dma_copy(
        made, session.fixed(np.identity(n, np.uint8).astype(kind.stored), kind, "identity")
    )
    if dst is None:
        session.state[key] = made
    return made


# -- loops and cores ------------------------------------------------------------------------------


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """range(start, stop, step); its iterations are unrolled in order. Deprecated: use range.

    Raises:
        ParameterError: a bound that is known at run time only, or a step of 0.
    """
    return _range("affine_range", start, stop, step)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """range(start, stop, step); its iterations are unrolled in order. Deprecated: use range.

    Raises:
        ParameterError: a bound that is known at run time only, or a step of 0.
    """
    return _range("sequential_range", start, stop, step)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """range(start, stop, step); its iterations are unrolled in order. Deprecated: use range.

    Raises:
        ParameterError: a bound that is known at run time only, or a step of 0.
    """
    return _range("static_range", start, stop, step)


def _range(name: str, start: Any, stop: Any, step: Any) -> range:
    for bound in (start, stop, step):
        if isinstance(bound, RunTimeInteger):
            raise ParameterError(
                f"nl.{name} up to {bound._what}",
                rule="it is unrolled while tracing, so its bounds are integers",
                fix="use nl.fori_loop(lower, upper, body)",
            )
    if step == 0:
        raise ParameterError(
            f"nl.{name}: step=0",
            rule="a loop has a step other than 0, as range has",
            fix="leave the step out, which is 1",
        )
    return range(0, start, step) if stop is None else range(start, stop, step)


def ds(start: Any, size: int) -> Any:
    """The slice start:start + size; `start` may be a scalar, a register or a one-element tile."""
    if isinstance(start, (RunTimeInteger, NkiTensor)):
        return DynamicSlice(start, size)
    return slice(start, start + size)


def program_id(axis: int = 0) -> int:
    """Which core of the logical core this is: 0 or 1.

    Raises:
        ParameterError: another axis than 0.
    """
    session = current()
    session.trace.tells_apart = True
    _check_axis("nl.program_id", axis)
    return session.program


def num_programs(axes: int = 0) -> int:
    """How many cores the kernel was launched on: 1 or 2.

    Raises:
        ParameterError: another axis than 0.
    """
    _check_axis("nl.num_programs", axes)
    return current().trace.grid.size


def program_ndim() -> int:
    """Axes of the launch grid: 0 without one, else 1.

    Raises:
        TraceContextError: no kernel is traced.
    """
    return len(current().trace.grid.shape)


def _check_axis(call: str, axis: Any) -> None:
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    if any(a not in (0, None) for a in given):
        raise ParameterError(
            f"{call}({axis!r})",
            rule="kernel[lnc] launches on one axis, of 1 or 2 cores",
            fix="use axis 0",
        )


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions in this block run in the order in which they are written, each after the one
    before. Results do not depend on it, modelled times do.

    Raises:
        ParameterError: a loop of the device in the block.
    """
    session = current()
    session.ordered += 1
    try:
        with session.in_order():
            yield
    finally:
        session.ordered -= 1


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor when the kernel runs.

    Args:
        print_prefix: a string known while tracing.
        tensor: in SBUF or HBM.

    Raises:
        ParameterError, MemorySpaceError: it is given something else.
    """
    session = current()
    if not isinstance(print_prefix, str) or not isinstance(tensor, NkiTensor):
        raise ParameterError(
            f"nl.device_print({print_prefix!r}, {tensor!r})",
            rule="it takes a string known while tracing, and a tensor",
            fix='write e.g. nl.device_print("tile", tile)',
        )
    if tensor.buffer is MemoryRegion.psum:
        raise MemorySpaceError(
            f"nl.device_print of {tensor.describe()}",
            rule="tensors in SBUF and HBM are printed",
            fix="copy it to SBUF first: nl.copy(tile)",
        )

    def lower() -> Recipe:
        own = tensor._layout
        settings = Print(prefix=print_prefix)
        return Recipe("device_print", None, [], [(own.shape, own.strides)], None, settings)

    session.issue(("device_print", print_prefix), (tensor,), lower)


def random_seed(seed: NkiTensor) -> None:
    """Seed the random number generator.

    Args:
        seed: a (1, 1) tile of a 32-bit type, in SBUF or PSUM.

    Raises:
        DTypeError: a seed that has not 32 bits.
        ParameterError: no (1, 1) tile in SBUF or PSUM.
    """
    isa.set_rng_seed(seed)


def rand(shape: tuple, dtype: str, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Uniform numbers in [0, 1), in a new tensor.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    dst = declare.make(shape, dtype, buffer, name)
    uniform(dst, 0.0, 1.0)
    return dst


globals().update(checked_settings(globals(), __all__, "nl"))
check_methods(NkiTensor)

__getattr__: Callable[[str], Any] = missing("nki.language", releases.later(globals(), "nl"))
