"""`neuronxcc.nki.compiler`: where on-chip tensors are placed, and decorators that steer it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc import names as _names
from nkisim.ir.memory import Allocation, Space
from nkisim.runtime.kernel import Kernel, as_kernel
from nkisim.trace.tracer import current, tracing

Place = Callable[[tuple[int, ...], int, int], tuple[int, ...]]


class _Memory(Allocation):
    """A buffer kind that can also make allocations: `ncc.sbuf` and `ncc.psum`."""

    def alloc(self, func: Place) -> Allocation:
        """Place each tile where `func` says.

        Args:
            func: returns the place of a tile: in SBUF (start partition, byte address), in PSUM
                (bank, start partition, byte address). Its arguments are `idx`, the block index (a
                tuple), `pdim_size`, the partitions, and `fdim_size`, the bytes a partition. They
                are passed by name if it has these names, so functools.partial may fix its other
                parameters; else by position, in this order.
        """
        if not callable(func):
            raise ParameterError(
                f"ncc.{self.space.value}.alloc({func!r})",
                rule="it takes a function from a block index to a place",
                fix="pass a function of (idx, pdim_size, fdim_size)",
            )
        return Allocation(self.space, _by_name(func))

    def auto_alloc(self) -> Allocation:
        """Leave the place to the compiler, as nl.sbuf and nl.psum do."""
        return Allocation(self.space)


class _Sbuf(_Memory):
    def mod_alloc(
        self,
        *,
        base_addr: int,
        base_partition: int = 0,
        num_par_tiles: tuple[int, ...] = (),
        num_free_tiles: tuple[int, ...] = (),
    ) -> Allocation:
        """Rotate the tiles of a tensor over a few places in SBUF.

        Args:
            base_addr: byte address, in each partition, of the first place.
            base_partition: its first partition; must be 0.
            num_par_tiles: for each block axis, places side by side along partitions.
            num_free_tiles: for each block axis, places one after the other along the free axis.

        A tile's place is its block index modulo these counts.
        """
        _zero("sbuf", base_partition=base_partition)

        def place(idx: tuple[int, ...], partitions: int, size: int) -> tuple[int, int]:
            return (
                base_partition + _rotate("num_par_tiles", num_par_tiles, idx) * partitions,
                base_addr + _rotate("num_free_tiles", num_free_tiles, idx) * size,
            )

        return Allocation(Space.SBUF, place)


class _Psum(_Memory):
    def mod_alloc(
        self,
        *,
        base_bank: int,
        base_addr: int = 0,
        base_partition: int = 0,
        num_bank_tiles: tuple[int, ...] = (),
        num_par_tiles: tuple[int, ...] = (),
        num_free_tiles: tuple[int, ...] = (),
    ) -> Allocation:
        """Rotate the tiles of a tensor over a few PSUM banks.

        Args:
            base_bank: the first bank.
            base_addr, base_partition: must be 0: a tile has its bank for itself.
            num_bank_tiles: for each block axis, the banks to rotate over.
            num_par_tiles, num_free_tiles: empty, or all 1.
        """
        _zero("psum", base_addr=base_addr, base_partition=base_partition)
        for name, counts in (("num_par_tiles", num_par_tiles), ("num_free_tiles", num_free_tiles)):
            if any(n != 1 for n in counts):
                raise ParameterError(
                    f"ncc.psum.mod_alloc with {name}={counts!r}",
                    rule="a PSUM bank holds one tile at a time",
                    fix=f"leave {name} out and rotate over banks with num_bank_tiles",
                )

        def place(idx: tuple[int, ...], partitions: int, size: int) -> tuple[int, int, int]:
            return base_bank + _rotate("num_bank_tiles", num_bank_tiles, idx), 0, 0

        return Allocation(Space.PSUM, place)


_NAMES = ("idx", "pdim_size", "fdim_size")


def _by_name(func: Callable) -> Place:
    """`func` with its three parameters in this order, whichever order it has them in."""
    if not set(_NAMES) <= inspect.signature(func).parameters.keys():
        return func
    return lambda *values: func(**dict(zip(_NAMES, values, strict=True)))


def _zero(memory: str, **values: int) -> None:
    for name, value in values.items():
        if value != 0:
            raise ParameterError(
                f"ncc.{memory}.mod_alloc with {name}={value!r}",
                rule=f"{name} must be 0 (a limit of the compiler)",
                fix="leave it out",
            )


def _rotate(name: str, counts: tuple[int, ...], idx: tuple[int, ...]) -> int:
    """The place of block `idx` among `counts` places. A tensor without blocks takes the first."""
    counts = (tuple(counts) or (1,) * len(idx)) if idx else ()
    if len(counts) != len(idx):
        raise ParameterError(
            f"{name}={counts!r} for a tensor with {len(idx)} block axes",
            rule=f"{name} has one entry for each block axis, or is empty",
            fix="count the axes before the partition axis",
        )
    place = 0
    for axis, (i, n) in enumerate(zip(idx, counts, strict=True)):
        place += i % n * prod(counts[axis + 1 :])
    return place


sbuf = _Sbuf(Space.SBUF)
psum = _Psum(Space.PSUM)


def _option(name: str, func: Callable | Kernel | None) -> Any:
    if func is None:
        return lambda f: _option(name, f)
    return as_kernel(func).with_options(name)


def skip_middle_end_transformations(func: Callable | None = None) -> Any:
    """Keep the compiler's middle end off a kernel. The simulator has none."""
    return _option("skip_middle_end_transformations", func)


def enable_stack_allocator(func: Callable | None = None, log_level: int = 50) -> Any:
    """Allocate a kernel's tiles with a stack allocator.

    In the simulator tiles share memory by liveness either way.

    Raises:
        ParameterError: the decorator is not above `skip_middle_end_transformations`.
    """
    if func is None:
        return lambda f: enable_stack_allocator(f, log_level)
    kernel = as_kernel(func)
    if "skip_middle_end_transformations" not in kernel.options:
        raise ParameterError(
            f"ncc.enable_stack_allocator of kernel {kernel.__name__} without "
            "ncc.skip_middle_end_transformations below it",
            rule="the two go together, and enable_stack_allocator is the outermost decorator",
            fix="write @ncc.enable_stack_allocator, @ncc.skip_middle_end_transformations and "
            "@nki.jit above the kernel, in this order",
        )
    return _option("enable_stack_allocator", func)


def force_auto_alloc(func: Callable | None = None) -> Any:
    """Ignore the places that a kernel gives its tiles: all of it is allocated automatically."""
    return _option("force_auto_alloc", func)


@contextlib.contextmanager
def allocation_scope() -> Iterator[None]:
    """A scope for managing allocations. Tiles are allocated by liveness, so it changes nothing."""
    yield


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Run what is in the block in the order in which it is written."""
    if tracing():
        with current().in_order():
            yield
    else:
        yield


def multi_buffer(factor: int = 2) -> int:
    """Ask for `factor` buffers for a tensor. A hint for speed; it changes no result."""
    return factor


__all__ = [
    "allocation_scope",
    "enable_stack_allocator",
    "force_auto_alloc",
    "multi_buffer",
    "no_reorder",
    "psum",
    "sbuf",
    "skip_middle_end_transformations",
]

__getattr__ = _names.missing("ncc")
