"""SPMD launch grids: how many instances of a kernel run, and on which NeuronCore each one does."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from nkisim.errors import ParameterError
from nkisim.ir.integers import as_int

MAX_CORES = 2  # logical NeuronCores that share HBM and can be named with nl.nc (Trn2)


@dataclass(frozen=True)
class NeuronCores:
    """`nl.nc(n)`: a grid dimension spread over `n` physical NeuronCores."""

    count: int

    def __post_init__(self) -> None:
        if as_int(self.count) is None or not 1 <= self.count <= MAX_CORES:
            raise ParameterError(
                f"nl.nc({self.count!r})",
                rule=f"a kernel is launched on 1 to {MAX_CORES} NeuronCores that share HBM",
                fix="use nl.nc(1) or nl.nc(2)",
            )

    def __mul__(self, other: int) -> SpmdDim:
        return SpmdDim((self, other))

    def __rmul__(self, other: int) -> SpmdDim:
        return SpmdDim((other, self))


@dataclass(frozen=True)
class SpmdDim:
    """`nl.spmd_dim(...)`: one grid dimension made of sub-dimensions, the last varying fastest."""

    parts: tuple[int | NeuronCores, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ParameterError(
                "nl.spmd_dim() of nothing",
                rule="a grid dimension is made of one sub-dimension or more",
                fix="name them, e.g. nl.spmd_dim(nl.nc(2), 4)",
            )
        if sum(isinstance(p, NeuronCores) for p in self.parts) > 1:
            raise ParameterError(
                f"nl.spmd_dim{self.parts!r} names NeuronCores twice",
                rule="a grid dimension is spread over NeuronCores once",
                fix="keep one nl.nc(n)",
            )


@dataclass(frozen=True)
class Grid:
    """A launch grid.

    Attributes:
        shape: instances along each dimension; () for a single instance.
        dims: the dimensions as given.
    """

    shape: tuple[int, ...]
    dims: tuple[int | NeuronCores | SpmdDim, ...]

    @classmethod
    def of(cls, spec: object) -> Grid:
        """The grid that `kernel[spec]` launches.

        Raises:
            ParameterError: an entry is not a positive integer, nl.nc or nl.spmd_dim.
        """
        entries = spec if isinstance(spec, tuple | list) else (spec,)
        dims = tuple(_dimension(e) for e in entries)
        if sum(len(_cores_of(d)) for d in dims) > 1:
            raise ParameterError(
                f"launch grid {spec!r} names NeuronCores in several dimensions",
                rule="a launch grid is spread over NeuronCores along one dimension",
                fix="keep one nl.nc(n)",
            )
        return cls(tuple(_extent(d) for d in dims), dims)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def cores(self) -> int:
        """NeuronCores the grid is spread over."""
        return max((nc.count for d in self.dims for nc in _cores_of(d)), default=1)

    def coordinates(self, program: int) -> tuple[int, ...]:
        """The program ids of instance `program`, numbered row-major."""
        ids = []
        for extent in reversed(self.shape):
            program, i = divmod(program, extent)
            ids.append(i)
        return tuple(reversed(ids))

    def core(self, program: int) -> int:
        """The NeuronCore that instance `program` runs on."""
        for i, dim in zip(self.coordinates(program), self.dims, strict=True):
            parts = dim.parts if isinstance(dim, SpmdDim) else (dim,)
            for part in reversed(parts):
                extent = _extent(part)
                i, at = divmod(i, extent)
                if isinstance(part, NeuronCores):
                    return at
        return 0

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) if self.shape else "1"


SINGLE = Grid((), ())


def _cores_of(dim: int | NeuronCores | SpmdDim) -> list[NeuronCores]:
    parts = dim.parts if isinstance(dim, SpmdDim) else (dim,)
    return [p for p in parts if isinstance(p, NeuronCores)]


def _extent(dim: int | NeuronCores | SpmdDim) -> int:
    if isinstance(dim, NeuronCores):
        return dim.count
    if isinstance(dim, SpmdDim):
        return prod(_extent(p) for p in dim.parts)
    return dim


def _dimension(entry: object) -> int | NeuronCores | SpmdDim:
    if isinstance(entry, NeuronCores):
        return entry
    if isinstance(entry, SpmdDim):
        for part in entry.parts:
            _dimension(part)
        return entry
    number = as_int(entry)
    if number is None or number < 1:
        raise ParameterError(
            f"launch grid entry {entry!r}",
            rule="a launch grid is made of positive integers, nl.nc(n) and nl.spmd_dim(...)",
            fix="compute the number of tiles with a ceiling division, -(-n // 128), and reject "
            "empty arrays before launching",
        )
    return number
