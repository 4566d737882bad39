"""How a documented constraint is tested: broken once and refused, or shown to hold.

`CASES` has one case for each (name, constraint) of the table in
`nkibook.facts.coverage`. The modules beside this one fill it. A case is one of three:

* `refused`: code that breaks the rule, the error it gets, and the code mended as the error's fix
  line says;
* `holds`: the text is a default or a promise that no kernel can break; code that checks it;
* `exempt`: neither is possible, with the reason. Hints about speed are of this kind.

The modules are tables, which ruff does not format: a line is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

Action = Callable[..., Any]
Break = tuple[Action, type[Exception], str, str, Action | str]


@dataclass(frozen=True)
class Refused:
    """Each of `breaks` is (code, the error it raises, what the message matches, what its fix line
    holds, the code mended as that line says); `kept` is more code that raises nothing, of the
    first one mended in another way. Code is given the API function, and is run as the body of a
    kernel if `inside`. Where a message has no fix line, the reason stands in the place of the
    mended code."""

    breaks: tuple[Break, ...]
    kept: Action | None
    inside: bool
    target: str | None


@dataclass(frozen=True)
class Holds:
    """`show` is given the API function, and asserts."""

    show: Action


@dataclass(frozen=True)
class Exempt:
    """Nothing to test, for this reason."""

    reason: str


Case = Refused | Holds | Exempt
CASES: dict[tuple[str, str], Case] = {}

_MODULES = {
    "nki": "neuronxcc.nki",
    "nl": "neuronxcc.nki.language",
    "nisa": "neuronxcc.nki.isa",
    "ncc": "neuronxcc.nki.compiler",
    "nt": "neuronxcc.nki.typing",
}


def refused(
    names: str | Iterable[str],
    constraint: str,
    *breaks: Break,
    kept: Action | None = None,
    inside: bool = True,
    target: str | None = None,
) -> None:
    """Enter a rule, with a way to break it, or several for a text with several parts.
    `inside=False`: the actions are not kernel bodies. `target`: the platform."""
    _enter(names, constraint, Refused(breaks, kept, inside, target))


def holds(names: str | Iterable[str], constraint: str, show: Action) -> None:
    """Enter a default or a promise, with code that checks it."""
    _enter(names, constraint, Holds(show))


def exempt(names: str | Iterable[str], constraint: str, reason: str) -> None:
    """Enter a text that says nothing that can be tested."""
    _enter(names, constraint, Exempt(reason))


def _enter(names: str | Iterable[str], constraint: str, case: Case) -> None:
    for name in names.split() if isinstance(names, str) else names:
        key = (full(name), constraint)
        if key in CASES:
            raise ValueError(f"two cases for {key}")
        CASES[key] = case


def full(name: str) -> str:
    """`nl.load` as `neuronxcc.nki.language.load`."""
    module, _, rest = name.partition(".")
    return f"{_MODULES[module]}.{rest}"


# -- what cases are made of


def run(body: Action, *args: Any, grid: tuple = (), target: str | None = None) -> Any:
    """What `body()` gives in a kernel without arguments: a tile or several, as arrays."""
    options = {} if target is None else {"platform_target": target}

    @nki.jit(**options)
    def kernel():
        result = body(*args)
        outs = []
        for tile in result if isinstance(result, tuple) else (result,):
            if not isinstance(tile, nki.tensor):
                continue
            if tile.buffer.space.on_chip:
                out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
                nl.store(out, tile)
                outs.append(out)
            else:
                outs.append(tile)
        return tuple(outs)

    outs = (kernel[grid] if grid else kernel)()
    return outs[0] if len(outs) == 1 else outs


def values(*shape: int, dtype: Any = nl.float32) -> np.ndarray:
    """Small positive whole numbers, exact in every type."""
    return (np.arange(np.prod(shape)) % 5 + 1).reshape(shape).astype(dtype)


def hbm(*shape: int, dtype: Any = nl.float32) -> nki.tensor:
    """A tensor in HBM with `values`."""
    return nl.shared_constant(values(*shape, dtype=dtype))


def tile(*shape: int, dtype: Any = nl.float32) -> nki.tensor:
    """An SBUF tile with `values`."""
    return nl.load(hbm(*shape, dtype=dtype))


def psum(*shape: int, dtype: Any = nl.float32) -> nki.tensor:
    """A PSUM tile with `values`."""
    made = nl.ndarray(shape, dtype=dtype, buffer=nl.psum)
    made[...] = nisa.tensor_copy(tile(*shape, dtype=dtype))
    return made


def placed(*shape: int, address: int = 0, dtype: Any = nl.float32) -> nki.tensor:
    """An SBUF tile that the kernel places, with `values`."""
    made = nl.ndarray(shape, dtype=dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
    made[...] = nl.load(hbm(*shape, dtype=dtype))
    return made


def cut(x: nki.tensor, n: int) -> tuple[nki.tensor, nki.tensor]:
    """The first `n` columns, and the others."""
    return x[:, 0:n], x[:, n : x.shape[1]]


def exchanged(x: nki.tensor) -> nki.tensor:
    """The first two free axes exchanged, by an index."""
    shape = [x.shape[d] for d in (0, 2, 1, *range(3, x.ndim))]
    i, k, j, *rest = nl.mgrid[tuple(slice(0, n) for n in shape)]
    return x[(i, j, k, *rest)]


def opcodes(body: Action, *args: Any) -> list[str]:
    """The labels of the instructions of a kernel that only runs `body`."""

    @nki.jit
    def kernel():
        body(*args)
        out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, 0.0)
        return out

    return [i.label for i in kernel.specialize((), {}).program.instructions][:-2]
