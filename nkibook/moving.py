"""Pairs of kernels, one in each dialect, that do the same: the rows of "Moving a kernel".

A line that ends with `# <-` is what a row of the table shows. `check` runs both kernels of each
pair on the same data, so no row is in the table that does not run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kernels  # noqa: F401  makes both dialects importable

# isort: split
import neuronxcc.nki as old_nki
import neuronxcc.nki.compiler as old_ncc
import neuronxcc.nki.isa as old_nisa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

_MARK = "# <-"


@dataclass(frozen=True)
class Pair:
    """Two kernels of one meaning.

    Attributes:
        topic: what the row is about.
        old, new: the kernels, in `neuronxcc.nki` and in `import nki`.
        shapes: of the float32 arguments.
        expected: the result, in NumPy.
    """

    topic: str
    old: Callable[..., Any]
    new: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    expected: Callable[..., np.ndarray]

    def data(self) -> list[np.ndarray]:
        """The arguments: standard normal numbers, the same every time."""
        rng = np.random.default_rng(0)
        return [rng.standard_normal(shape, dtype=np.float32) for shape in self.shapes]

    def check(self) -> bool:
        """Run both kernels; whether their results are equal to the last bit.

        Raises:
            AssertionError: a result differs from NumPy's by more than rounding.
        """
        data = self.data()
        results = [np.asarray(self.old(*data)), np.asarray(self.new(*data))]
        for result in results:
            np.testing.assert_allclose(
                result, self.expected(*data), rtol=1e-4, atol=1e-4, err_msg=self.topic
            )
        return results[0].tobytes() == results[1].tobytes()


def lines_of(kernel: Any) -> list[str]:
    """The lines of a kernel that its row shows, in the names that readers import."""
    source = inspect.getsource(getattr(kernel, "func", kernel))
    shown = [line for line in source.splitlines() if line.rstrip().endswith(_MARK)]
    return [line.replace(_MARK, "").strip().replace("old_n", "n") for line in shown]


def table() -> str:
    """The pairs as a Markdown table. Every pair is run first; see `Pair.check`."""
    rows = ["| `neuronxcc.nki` | `import nki` |", "|---|---|"]
    for pair in PAIRS:
        same = "same bits" if pair.check() else "up to rounding"
        old, new = (
            "<br>".join(f"`{line}`" for line in lines_of(k)).replace("|", "\\|")
            for k in (pair.old, pair.new)
        )
        # The topic has no column of its own: on a phone two of code fill the screen.
        rows.append(f"| **{pair.topic}**<br>{old} | *{same}*<br>{new} |")
    return "\n".join(rows)


def _load(x: Any) -> Any:
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def _store(tile: Any) -> Any:
    y = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tile)
    return y


def _old_store(tile: Any) -> Any:
    y = old_nl.ndarray(tile.shape, tile.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(y, value=tile)
    return y


@old_nki.jit
def _old_move(x):
    t = old_nl.load(x)  # <-
    y = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(y, value=t)  # <-
    return y


@nki.jit
def _new_move(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)  # <-
    nisa.dma_copy(dst=t, src=x)  # <-
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=t)  # <-
    return y


@old_nki.jit
def _old_columns(x):
    rows, cols = old_nl.mgrid[0:100, 0:20]  # <-
    even, odd = old_nl.load(x[rows, 2 * cols]), old_nl.load(x[rows, 2 * cols + 1])  # <-
    return _old_store(old_nl.add(even, odd))


@nki.jit
def _new_columns(x):
    even, odd = nl.load(x[:, 0::2]), nl.load(x[:, 1::2])  # <-
    nisa.tensor_tensor(dst=even, data1=even, data2=odd, op=nl.add)
    return _store(even)


@old_nki.jit
def _old_windows(x):
    t = old_nl.load(x)
    p, i, j = old_nl.mgrid[0:64, 0:9, 0:3]  # <-
    y = old_nisa.tensor_reduce(old_nl.max, t[p, i + j], axis=[2])  # <-
    return _old_store(y)


@nki.jit
def _new_windows(x):
    t = _load(x)
    w = t.ap([[11, 64], [1, 9], [1, 3]])  # <-
    y = nl.ndarray((64, 9), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=y, op=nl.maximum, data=w, axis=2)  # <-
    return _store(y)


@old_nki.jit
def _old_two_axes(x):
    t = old_nl.load(x)
    p, i, j, di, dj = old_nl.mgrid[0:64, 0:4, 0:5, 0:3, 0:3]  # <-
    w = t[p, i + di, j + dj]  # <-
    y = old_nisa.tensor_reduce(old_nl.max, w, axis=[3, 4])  # <-
    return _old_store(y)


@nki.jit
def _new_two_axes(x):
    t = _load(x)  # 64 x 6 x 7: a partition holds 42 elements
    w = t.ap([[6 * 7, 64], [7, 4], [1, 5], [7, 3], [1, 3]])  # <-
    y = nl.ndarray((64, 4, 5), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=y, op=nl.maximum, data=w, axis=[3, 4])  # <-
    return _store(y)


@old_nki.jit
def _old_edge(x):
    y = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
    for i in old_nl.affine_range(2):
        rows = i * 128 + old_nl.arange(128)[:, None]  # <-
        cols = old_nl.arange(x.shape[1])[None, :]
        t = old_nl.load(x[rows, cols], mask=rows < x.shape[0])  # <-
        old_nl.store(y[rows, cols], value=t, mask=rows < x.shape[0])
    return y


@nki.jit
def _new_edge(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        rows = slice(i * 128, min((i + 1) * 128, x.shape[0]))  # <-
        t = nl.ndarray(x[rows].shape, dtype=x.dtype, buffer=nl.sbuf)  # <-
        nisa.dma_copy(dst=t, src=x[rows])
        nisa.dma_copy(dst=y[rows], src=t)
    return y


@old_nki.jit
def _old_result(x):
    t = old_nl.load(x)
    u = old_nisa.tensor_scalar(t, old_nl.multiply, 3.0, dtype=old_nl.bfloat16)  # <-
    y = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(y, value=old_nl.copy(u, dtype=x.dtype))
    return y


@nki.jit
def _new_result(x):
    t = _load(x)
    u = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)  # <-
    nisa.tensor_scalar(dst=u, data=t, op0=nl.multiply, operand0=3.0)  # <-
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=u)
    return _store(y)


def _tripled(x: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return (x * np.float32(3)).astype(ml_dtypes.bfloat16).astype(np.float32)


@old_nki.jit
def _old_operator(a, b):
    x, y = old_nl.load(a), old_nl.load(b)
    z = x - y  # <-
    return _old_store(z)


@nki.jit
def _new_operator(a, b):
    x, y = _load(a), _load(b)
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.subtract)  # <-
    return _store(z)


@old_nki.jit
def _old_divide(a, b):
    x, y = old_nl.load(a), old_nl.load(b)
    x, y = old_nl.exp(x), old_nl.exp(y)
    z = x / y  # <-
    return _old_store(z)


@nki.jit
def _new_divide(a, b):
    x, y = _load(a), _load(b)
    nisa.activation(dst=x, op=nl.exp, data=x)
    nisa.activation(dst=y, op=nl.exp, data=y)
    nisa.reciprocal(dst=y, data=y)  # <-
    z = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.multiply)  # <-
    return _store(z)


@old_nki.jit
def _old_fill(x):
    t = old_nisa.memset(x.shape, 2.0, x.dtype)  # <-
    return _old_store(old_nl.add(t, old_nl.load(x)))


@nki.jit
def _new_fill(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=t, value=2.0)  # <-
    nisa.tensor_tensor(dst=t, data1=t, data2=_load(x), op=nl.add)
    return _store(t)


@old_nki.jit
def _old_sum(w, m):
    total = old_nl.zeros((100, 60), old_nl.float32, buffer=old_nl.psum)  # <-
    for k in old_nl.affine_range(2):
        rows = old_nl.ds(k * 128, 128)
        left, right = old_nl.load(w[rows]), old_nl.load(m[rows])
        total += old_nisa.nc_matmul(left, right)  # <-
    return _old_store(old_nl.copy(total))


@nki.jit
def _new_sum(w, m):
    total = nl.ndarray((100, 60), dtype=nl.float32, buffer=nl.psum)  # <-
    for k in range(2):
        left, right = (_load(t[k * 128 : (k + 1) * 128]) for t in (w, m))
        nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=k > 0)  # <-
    y = nl.ndarray((100, 60), dtype=w.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=y, src=total)
    return _store(y)


@old_nki.jit
def _old_blocks(x):
    tiles = old_nl.ndarray((2, old_nl.par_dim(128), 8), x.dtype, buffer=old_nl.sbuf)  # <-
    for i in old_nl.affine_range(2):
        tiles[i] = old_nl.load(x[old_nl.ds(i * 128, 128)])
    return _old_store(old_nl.add(tiles[0], tiles[1]))


@nki.jit
def _new_blocks(x):
    tiles = [nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]  # <-
    for i in range(2):
        nisa.dma_copy(dst=tiles[i], src=x[i * 128 : (i + 1) * 128])
    nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
    return _store(tiles[0])


@old_nki.jit
def _old_address(x):
    place = old_ncc.sbuf.mod_alloc(base_addr=4096)  # <-
    t = old_nl.ndarray((old_nl.par_dim(128), 8), x.dtype, buffer=place)  # <-
    t[...] = old_nl.load(x)
    return _old_store(t)


@nki.jit
def _new_address(x):
    t = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf, address=(0, 4096))  # <-
    nisa.dma_copy(dst=t, src=x)
    return _store(t)


@old_nki.jit
def _old_select(x):
    t = old_nl.load(x)
    p, f = old_nl.mgrid[0:50, 0:40]  # <-
    y = old_nisa.affine_select(pred=p >= f, on_true_tile=t, on_false_value=0.0)  # <-
    return _old_store(y)


@nki.jit
def _new_select(x):
    t = _load(x)
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.affine_select(  # <-
        dst=y,  # <-
        pattern=[[-1, 40]],  # <-
        channel_multiplier=1,  # <-
        cmp_op=nl.greater_equal,  # <-
        on_true_tile=t,  # <-
        on_false_value=0.0,  # <-
    )  # <-
    return _store(y)


@old_nki.jit
def _old_gather(x):
    which = old_nisa.iota(99 - old_nl.arange(100)[:, None], dtype=old_nl.int32)  # <-
    t = old_nl.load(x[which, old_nl.arange(40)[None, :]])  # <-
    return _old_store(t)


@nki.jit
def _new_gather(x):
    which = nl.ndarray((100, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=which, pattern=[[0, 1]], offset=99, channel_multiplier=-1)  # <-
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x.ap([[40, 100], [1, 40]], vector_offset=which))  # <-
    return _store(t)


@old_nki.jit
def _old_register(x):
    y = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
    for i in old_nl.static_range(2):
        row = old_nisa.iota(old_nl.arange(1)[:, None] + 1 - i, dtype=old_nl.int32)
        t = old_nl.load(x[row, old_nl.arange(40)[None, :]])  # <-
        old_nl.store(y[i : i + 1], value=t)
    return y


@nki.jit
def _new_register(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(2):
        row = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=row, pattern=[[0, 1]], offset=1 - i)
        number = nisa.register_alloc()  # <-
        nisa.register_load(number, row)  # <-
        t = nl.ndarray((1, 40), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x.ap([[40, 1], [1, 40]], scalar_offset=number))  # <-
        nisa.dma_copy(dst=y[i : i + 1], src=t)
    return y


@old_nki.jit
def _old_loop(x):
    t = old_nl.load(x)
    for _ in old_nl.sequential_range(3):  # <-
        t[...] = old_nl.multiply(t, 0.5)  # <-
    return _old_store(t)


@nki.jit
def _new_loop(x):
    t = _load(x)
    for _ in range(3):  # <-
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=0.5)  # <-
    return _store(t)


def _new_run_time_body(x):
    t = _load(x)

    def halve(i):  # <-
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=0.5)  # <-

    nl.fori_loop(0, 3, halve)  # <-
    return _store(t)


_new_run_time = nki.jit(_new_run_time_body)


@old_nki.jit
def _old_launch(x):
    y = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
    rows = old_nl.ds(old_nl.program_id(0) * 128, 128)  # <-
    old_nl.store(y[rows], value=old_nl.load(x[rows]))
    return y


@nki.jit
def _new_launch(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(nl.program_id(0), 4, nl.num_programs(0)):  # <-
        rows = slice(i * 128, (i + 1) * 128)  # <-
        nisa.dma_copy(dst=y[rows], src=_load(x[rows]))
    return y


@old_nki.jit
def _old_mean(x):
    t = old_nl.load(x)
    mean = old_nl.mean(t, axis=1, keepdims=True)  # <-
    return _old_store(mean)


@nki.jit
def _new_mean(x):
    t = _load(x)
    mean = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=mean, data=t, op=nl.add, axis=1, keepdims=True)  # <-
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1 / x.shape[1])  # <-
    return _store(mean)


@old_nki.jit
def _old_function(x):
    t = old_nl.load(x)
    y = old_nl.exp(t * 0.5)  # <-
    return _old_store(y)


@nki.jit
def _new_function(x):
    t = _load(x)
    nisa.activation(dst=t, data=t, op=nl.exp, scale=0.5)  # <-
    return _store(t)


@old_nki.jit
def _old_row(x, row):
    t = old_nl.load(x)
    every = old_nl.load(row).broadcast_to((x.shape[0], row.shape[1]))  # <-
    return _old_store(old_nl.multiply(t, every))


@nki.jit
def _new_row(x, row):
    t = _load(x)
    every = nl.ndarray(x.shape, dtype=row.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=every, src=row.ap([[0, x.shape[0]], [1, row.shape[1]]]))  # <-
    nisa.tensor_tensor(dst=t, data1=t, data2=every, op=nl.multiply)
    return _store(t)


@old_nki.jit
def _old_reshape(x):
    rows = x.reshape((x.shape[0] * x.shape[1], x.shape[2]))  # <-
    return _old_store(old_nl.load(rows))


@nki.jit
def _new_reshape(x):
    rows = x.reshape((x.shape[0] * x.shape[1], x.shape[2]))  # <-
    return _store(_load(rows))


def _windows(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, 3, axis=1).max(-1)


def _planes(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2)).max((3, 4))


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])


PAIRS = (
    Pair("load, store", _old_move, _new_move, ((100, 40),), _same),
    Pair(
        "indices to slices",
        _old_columns,
        _new_columns,
        ((100, 40),),
        lambda x: x[:, ::2] + x[:, 1::2],
    ),
    Pair("windows", _old_windows, _new_windows, ((64, 11),), _windows),
    Pair("windows, two axes", _old_two_axes, _new_two_axes, ((64, 6, 7),), _planes),
    Pair("mask to slice", _old_edge, _new_edge, ((200, 30),), _same),
    Pair("result and dtype", _old_result, _new_result, ((50, 7),), _tripled),
    Pair("operator", _old_operator, _new_operator, ((50, 7), (50, 7)), np.subtract),
    Pair(
        "division",
        _old_divide,
        _new_divide,
        ((50, 7), (50, 7)),
        lambda a, b: np.exp(a - b),
    ),
    Pair("mean of a row", _old_mean, _new_mean, ((50, 8),), lambda x: x.mean(1, keepdims=True)),
    Pair("function", _old_function, _new_function, ((50, 7),), lambda x: np.exp(x / 2)),
    Pair("a row on all partitions", _old_row, _new_row, ((50, 7), (1, 7)), np.multiply),
    Pair("shape of an argument", _old_reshape, _new_reshape, ((5, 10, 7),), _rows),
    Pair("fill", _old_fill, _new_fill, ((50, 7),), lambda x: x + np.float32(2)),
    Pair("sum in PSUM", _old_sum, _new_sum, ((256, 100), (256, 60)), lambda w, m: w.T @ m),
    Pair("block dimension", _old_blocks, _new_blocks, ((256, 8),), lambda x: x[:128] + x[128:]),
    Pair("address", _old_address, _new_address, ((128, 8),), _same),
    Pair("select by position", _old_select, _new_select, ((50, 40),), np.tril),
    Pair("gather", _old_gather, _new_gather, ((100, 40),), lambda x: x[::-1]),
    Pair("row by a register", _old_register, _new_register, ((2, 40),), lambda x: x[::-1]),
    Pair("loop", _old_loop, _new_loop, ((50, 7),), lambda x: x / 8),
    Pair("loop at run time", _old_loop, _new_run_time, ((50, 7),), lambda x: x / 8),
    Pair("launch", _old_launch[4], _new_launch[2], ((512, 20),), _same),
)
