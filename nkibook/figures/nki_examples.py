"""Kernels of a few lines for the names of `import nki` that kernels use most.

The reference of these names shows an example beside each: its source, what it prints, what to
notice, and the modelled time of the instruction on a larger tile. All of it is run when the book is
built (book/_ext/reference_nki.py).
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from nkibook.figures.example import Example


@nki.jit
def halves_swapped(x):
    half = x.shape[1] // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out[:, 0:half], src=tile[:, half:])
    nisa.dma_copy(dst=out[:, half:], src=tile[:, 0:half])
    return out


@nki.jit
def rounded(x):
    out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    whole = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=whole, src=tile)
    nisa.dma_copy(dst=out, src=whole)
    return out


@nki.jit
def product(x, y):
    shape = (x.shape[1], y.shape[1])
    left = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=y)
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    result = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def difference(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=y)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.subtract)
    nisa.dma_copy(dst=out, src=left)
    return out


@nki.jit
def padded(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns + 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    nisa.dma_copy(dst=tile[:, 1 : columns + 1], src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def exponential(x, shift):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    bias = nl.ndarray(shift.shape, dtype=shift.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=bias, src=shift)
    nisa.activation(dst=tile, op=nl.exp, data=tile, scale=0.5, bias=bias)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def standardised(x, mean):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    one_a_row = nl.ndarray(mean.shape, dtype=mean.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=one_a_row, src=mean)
    nisa.tensor_scalar(
        dst=tile, data=tile, op0=nl.subtract, operand0=one_a_row, op1=nl.multiply, operand1=0.5
    )
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def transposed(x):
    rows, columns = x.shape
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    turned = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=tile)
    result = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=turned)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def repeated(x):
    tile = nl.ndarray((32, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    nisa.dma_copy(dst=tile[0:1], src=x)
    nisa.nc_stream_shuffle(dst=tile, src=tile, shuffle_mask=[0] * 32)
    out = nl.ndarray((3, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile[0:3])
    return out


@nki.jit
def largest(x):
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    top = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1, keepdims=True)
    nisa.dma_copy(dst=out, src=top)
    return out


@nki.jit
def swapped(x):
    me = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    other = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=mine, src=x[me])
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(dst=out[me], src=other)
    return out


@nki.jit
def turned_on_the_way(x):
    rows, columns = x.shape
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def inverse(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.reciprocal(dst=tile, data=tile)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def positions(like):
    out = nl.ndarray(like.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.ndarray(like.shape, dtype=nl.int32, buffer=nl.sbuf)
    columns = [[1, like.shape[1]]]
    nisa.iota(dst=tile, pattern=columns, offset=5, channel_multiplier=10)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def scaled_sum(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=y)
    nisa.scalar_tensor_tensor(
        dst=left, data=left, op0=nl.multiply, operand0=10.0, op1=nl.add, operand1=right
    )
    nisa.dma_copy(dst=out, src=left)
    return out


@nki.jit
def framed(x):
    out = nl.ndarray((x.shape[0], 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile[:, 0:2], value=-1)
    nisa.dma_copy(dst=tile[:, 2:4], src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def window_sums(x):
    rows, height, width = x.shape
    out = nl.ndarray((rows, height // 2, width // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    sums = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    places = [[height * width, rows], [2 * width, height // 2], [2, width // 2]]
    windows = tile.ap([*places, [width, 2], [1, 2]])
    nisa.tensor_reduce(dst=sums, op=nl.add, data=windows, axis=(3, 4))
    nisa.dma_copy(dst=out, src=sums)
    return out


@nki.jit
def half_each(x):
    core, cores = nl.program_id(0), nl.num_programs(0)
    rows = slice(core * x.shape[0] // cores, (core + 1) * x.shape[0] // cores)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x[rows].shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[rows])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=100.0 * (core + 1))
    nisa.dma_copy(dst=out[rows], src=tile)
    return out


@nki.jit
def pair_sums(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    sums = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    pairs = tile.reshape((rows, columns // 2, 2))
    nisa.tensor_tensor(dst=sums, data1=pairs[:, :, 0], data2=tile[:, 1:columns:2], op=nl.add)
    nisa.dma_copy(dst=out, src=sums)
    return out


_TABLE = "x = np.arange(8, dtype=np.float32).reshape(2, 4)"
_PAIR = f"{_TABLE}\ny = np.array([[1, 1, 1, 1], [2, 2, 2, 2]], np.float32)"
_LARGE = (128, 512)


# By documented name, in the order of nki_usage.json.
@nki.jit
def first_rows_summed(x, count):
    out = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    row = nl.ndarray(total.shape, dtype=x.dtype, buffer=nl.sbuf)
    rows = nisa.scalar_load(count)

    def body(i):
        width = x.shape[1]
        nisa.dma_copy(dst=row, src=x.ap([[width, 1], [1, width]], scalar_offset=i))
        nisa.tensor_tensor(dst=total, data1=total, data2=row, op=nl.add)

    nl.fori_loop(0, rows, body)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def tile_numbers(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    grid = nl.tiles(out, tile_shape=(2, 3))
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            one = grid[i, j]
            tile = nl.ndarray(one.element_shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.memset(dst=tile, value=10.0 * i + j)
            nisa.dma_copy(dst=one.data, src=tile)
    return out


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "nki.language.ndarray": (
        Example(
            framed,
            "x = np.array([[1, 2], [3, 4]], np.float32)",
            "framed(x)",
            "A tile is uninitialised until an instruction writes to it, and reading it before that "
            "is an error in the simulator. A slice is a view of the same memory: both instructions "
            "write to ``tile``.",
        ),
    ),
    "nki.language.NkiTensor": (
        Example(
            window_sums,
            "x = np.arange(32, dtype=np.float32).reshape(2, 4, 4)",
            "window_sums(x)",
            "``.ap`` expects a pair ``[step, count]`` for each axis, in elements of a partition. "
            "The step of the first axis, the partitions, is the number of elements in each "
            "partition. The instruction reads the 2 x 2 windows in place: no data moves.",
        ),
        Example(
            pair_sums,
            _TABLE,
            "pair_sums(x)",
            "``.reshape`` regroups free axes, and a slice may have a step. Both are views: the "
            "instruction reads every second element.",
        ),
    ),
    "nki.language.program_id": (
        Example(
            half_each,
            _TABLE,
            "half_each[2](x)",
            "``[2]`` starts the kernel on both cores of a logical core; each computes its rows. "
            "``out`` is in shared HBM, so each writes its part of the same array.",
        ),
    ),
    "nki.isa.dma_copy": (
        Example(
            halves_swapped,
            _TABLE,
            "halves_swapped(x)",
            "Nothing is computed in HBM: data comes to SBUF and goes back by DMA. ``dst`` and "
            "``src`` have equally many elements. At an edge, use a slice: there is no mask.",
            large=(_LARGE,),
        ),
    ),
    "nki.isa.tensor_copy": (
        Example(
            rounded,
            "x = np.array([[0.5, 1.5, 2.5, -1.75]], np.float32)",
            "rounded(x)",
            "A copy casts to the type of ``dst``, and to integers it rounds half to even, as "
            "NumPy's ``rint`` does. It also brings results from PSUM to SBUF.",
            large=(_LARGE,),
        ),
    ),
    "nki.isa.nc_matmul": (
        Example(
            product,
            "x = np.array([[1, 0], [0, 2], [1, 1]], np.float32)\n"
            "y = np.arange(12, dtype=np.float32).reshape(3, 4)",
            "product(x, y)",
            "This is ``x.T @ y``: the sum runs over the partitions of both, 128 at most. The "
            "result is in PSUM, and has to be copied to SBUF before a DMA stores it. In bfloat16 "
            "the matmul takes a quarter of the time.",
            large=((128, 128), (128, 512)),
        ),
    ),
    "nki.isa.tensor_tensor": (
        Example(
            difference,
            _PAIR,
            "difference(x, y)",
            "Element by element, ``data1`` on the left of the operator. ``dst`` may be an "
            "operand. Shapes are equal; for one number a row, use ``nisa.tensor_scalar``.",
            large=(_LARGE, _LARGE),
        ),
    ),
    "nki.isa.memset": (
        Example(
            padded,
            "x = np.array([[1, 2], [3, 4]], np.float32)",
            "padded(x)",
            "To pad, set a tile to a value, and copy a smaller tile into it.",
            large=(_LARGE,),
        ),
    ),
    "nki.isa.activation": (
        Example(
            exponential,
            "x = np.array([[0, 1, 2, 3], [0, 1, 2, 3]], np.float32)\n"
            "shift = np.array([[0], [-1]], np.float32)",
            "exponential(x, shift).round(3)",
            "One instruction is ``op(data * scale + bias)``. ``bias`` has one number a partition, "
            "so subtracting the maximum of a row, as softmax does, costs nothing more.",
            large=(_LARGE, (128, 1)),
        ),
    ),
    "nki.isa.tensor_scalar": (
        Example(
            standardised,
            f"{_TABLE}\nmean = np.array([[1.5], [5.5]], np.float32)",
            "standardised(x, mean)",
            "Two operators in one pass, ``(data op0 operand0) op1 operand1``. An operand is a "
            "number, or a tile of one number a partition.",
            large=(_LARGE, (128, 1)),
        ),
    ),
    "nki.isa.nc_transpose": (
        Example(
            transposed,
            _TABLE,
            "transposed(x)",
            "Rows become columns on the Tensor Engine, so ``dst`` is in PSUM and has the type of "
            "``data``. This is how data moves between partitions and the free axis.",
            large=((128, 128),),
        ),
    ),
    "nki.isa.nc_stream_shuffle": (
        Example(
            repeated,
            "x = np.array([[7, 8]], np.float32)",
            "repeated(x)",
            "Partition ``i`` of ``dst`` gets partition ``shuffle_mask[i]`` of ``src``, 32 at a "
            "time. A mask of zeros repeats the first partition; most kernels use it for this.",
            large=((1, 512),),
        ),
    ),
    "nki.isa.tensor_reduce": (
        Example(
            largest,
            _TABLE,
            "largest(x)",
            "Reductions are along free axes only, and axis 0 is the partitions. To sum over "
            "partitions, multiply with ones (``nisa.nc_matmul``), or transpose first.",
            large=(_LARGE,),
        ),
    ),
    "nki.isa.sendrecv": (
        Example(
            swapped,
            "x = np.array([[[1, 2]], [[3, 4]]], np.float32)",
            "swapped[2](x)",
            "Both cores of a logical core call it, and each gets the tile of the other. A core "
            "whose partner does not call it is an error here.",
            large=((2, *_LARGE),),
            cores=2,
        ),
    ),
    "nki.isa.dma_transpose": (
        Example(
            turned_on_the_way,
            _TABLE,
            "turned_on_the_way(x)",
            "The transpose is made on the way from HBM, and no engine computes.",
            large=((128, 128),),
        ),
    ),
    "nki.isa.reciprocal": (
        Example(
            inverse,
            "x = np.array([[1, 2, 4, 8]], np.float32)",
            "inverse(x)",
            "Engines do not divide: to divide a row by a number, take the reciprocal of that one "
            "number, and multiply with ``nisa.tensor_scalar``.",
            large=((128, 1),),
        ),
    ),
    "nki.isa.iota": (
        Example(
            positions,
            "like = np.zeros((2, 4), np.float32)",
            "positions(like)",
            "Element ``j`` of partition ``i`` is ``offset + channel_multiplier * i + step * j``: "
            "positions, for masks and for indices. It reads nothing.",
            large=(_LARGE,),
        ),
    ),
    "nki.isa.scalar_tensor_tensor": (
        Example(
            scaled_sum,
            _PAIR,
            "scaled_sum(x, y)",
            "``(data op0 operand0) op1 operand1`` in one pass, where ``operand1`` is a tile. With "
            "two instructions the tile is read and written twice.",
            large=(_LARGE, _LARGE),
        ),
    ),
    "nki.language.fori_loop": (
        Example(
            first_rows_summed,
            "x, count = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([[3]], np.int32)",
            "first_rows_summed(x, count)",
            "The loop has as many rounds as the tensor ``count`` says. The scalar ``i`` moves the "
            "view: it counts rows of ``x``.",
        ),
    ),
    "nki.language.tiles": (
        Example(
            tile_numbers,
            "like = np.zeros((3, 7), np.float32)",
            "tile_numbers(like)",
            "Each tile is filled with its coordinates. Tiles at the edges are as long as the "
            "tensor is there, which ``element_shape`` says.",
        ),
    ),
}
