"""The releases of `import nki` that run here, and one table of what differs between them.

`import nki` is NKI 0.7. With NKISIM_NKI=0.6 in the environment it is NKI 0.6: kernels run as they
did there, and what 0.7 adds is not there. The reference, the page on the dialects and the guide for
moving show this table (`nkibook.releases`).

NKI 0.7 specialises a kernel by running it as Python. NKI 0.6 read its syntax tree, and AWS's 0.7
still does with NKI_COMPILER_FRONTEND=custom: `tracing` tells which.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Literal, NamedTuple

from nkisim.errors import ParameterError, UnknownNameError, UnsupportedError, warn

VARIABLE = "NKISIM_NKI"
FRONT_END = "NKI_COMPILER_FRONTEND"  # AWS's
SDK = {"0.6": "2.32", "0.7": "2.33"}  # by release of NKI
NEWEST = "0.7"

Kind = Literal["new", "changed", "deprecated", "removed"]


class Change(NamedTuple):
    """What a release has in another way than the one before it.

    Attributes:
        name: what kernels write, as `nl.tiles`; or, of the language, words. In words, as in all
            that follows, code stands between backticks.
        kind: "new", "changed", "deprecated" (runs, and should be replaced) or "removed".
        before: in NKI 0.6.
        now: in NKI 0.7.
        instead: what to write in a kernel of 0.6; empty where it stays as it is.
        unpublished: what no page of AWS says, and what the simulator does then; empty where the
            pages say all.
    """

    name: str
    kind: Kind
    before: str
    now: str
    instead: str = ""
    unpublished: str = ""


_UNROLLED = "`range`, unrolled", "`range`; deprecated", "`range`"
_GRID = "a view of a tensor as a grid of tiles, or of blocks of tiles"
_WIDE = "AWS's table of types does not list it: here DMA moves it, and other instructions refuse it"

# Sources: AWS's pages of SDK 2.33 (announcement of the change of specialisation of October 2026;
# nki.jit, nki.compiler, nki-loops, nki-scalar, EVRF066, and the page of each name).
CHANGES: tuple[Change, ...] = (
    Change(
        "Python in a kernel",
        "changed",
        "a subset: no `try`, `raise`, `with`, `is`, `match`, generators, keyword-only arguments",
        "all of Python: the kernel is run once, and each call of NKI is recorded",
    ),
    Change(
        "`==` on classes of your own",
        "changed",
        "`nl.NKIObject`: equal where the type and all fields are",
        "as Python has it: identity, unless a dataclass or `__eq__` says more",
        "`@dataclass`, or `__eq__`",
    ),
    Change("nl.affine_range", "deprecated", *_UNROLLED),
    Change("nl.sequential_range", "deprecated", *_UNROLLED),
    Change("nl.static_range", "deprecated", *_UNROLLED),
    Change(
        "nl.dynamic_range",
        "removed",
        "a loop of the device; deprecated",
        "a `TypeError`",
        "`nl.fori_loop(lower, upper, body)`",
    ),
    Change(
        "while register:",
        "removed",
        "a loop of the device; deprecated",
        "a `TypeError`",
        "`nl.while_loop(register, body)`",
    ),
    Change(
        "nl.fori_loop",
        "changed",
        "bounds are integers or registers; `body(i)` gets a register",
        "bounds may be scalars of int32; `body(i)` gets a scalar, unless a bound is a register",
        "`nisa.scalar_store(t, i)` for `nisa.register_store(t, i)`",
    ),
    Change(
        "nl.while_loop",
        "changed",
        "the condition is a register",
        "the same; no page shows a scalar",
        unpublished="AWS's page names registers alone; here a scalar runs as a register of its "
        "value would",
    ),
    Change(
        "nisa.NkiScalar",
        "new",
        "",
        "an integer of the device, int32 or int64, that computes with `+`, `-` and `*`",
        unpublished="AWS's pages show no operators but +, -, * and comparisons; others are refused",
    ),
    Change(
        "registers",
        "changed",
        "the integers of the device: `nisa.register_load` and others",
        "still there; AWS calls `NkiScalar` what will replace them",
        "`nisa.scalar_load`, `nisa.scalar_store`",
    ),
    Change("nisa.scalar_load", "new", "", "a 1x1 tensor as a scalar"),
    Change("nisa.scalar_store", "new", "", "a scalar into a 1x1 tensor"),
    Change(
        "t.ap(scalar_offset=)",
        "changed",
        "a register, or a tile of one element",
        "a scalar, too: of int32, in HBM also of int64",
    ),
    Change("nl.int64", "new", "", "a type of scalars and their tensors", unpublished=_WIDE),
    Change("nl.uint64", "new", "", "a type", unpublished=_WIDE),
    Change("nl.tiles", "new", "", _GRID),
    Change("nl.blocks", "new", "", _GRID),
    Change("nl.alloc_tiles", "new", "", "a new tensor, as a grid of tiles"),
    Change("nl.alloc_blocks", "new", "", "a new tensor, as a grid of blocks of tiles"),
    Change("nl.NkiGrid", "new", "", "the class of grids"),
    Change(
        "nl.NkiTileGrid",
        "new",
        "",
        "a grid of tiles",
        unpublished="AWS's page does not say what `.data` is where a selection on chip has several "
        "rows of tiles; it is refused",
    ),
    Change("nl.NkiBlockGrid", "new", "", "a grid of blocks of tiles"),
    Change("t.data", "new", "", "the tensor itself, as the operand of an instruction"),
    Change(
        "nki.jit",
        "changed",
        "options have no meaning",
        "`compile_config=` and `specialization_config=`",
    ),
    Change(
        "nki.compiler.CompileConfig",
        "new",
        "",
        "what the compiler does with a kernel",
        unpublished="the simulator checks the settings; they change no result and no modelled time",
    ),
    Change("nki.compiler.SpecializationConfig", "new", "", "what specialising a kernel allows"),
    Change(
        "nki.compiler.AddressRotation",
        "new",
        "",
        "a setting of `CompileConfig`",
        unpublished="AWS's pages do not name its members",
    ),
    Change(
        "a kernel in a kernel",
        "changed",
        "inlined, whatever its options",
        "an error if its configuration or its cores are not those of the outer kernel; a warning "
        "with `allow_nested_config_override`",
        "one configuration, on the outer kernel",
    ),
    Change(
        "kernel(...)",
        "changed",
        "on one core",
        "on `NEURON_LOGICAL_NC_CONFIG` cores, or on one",
        "`kernel[1](...)`, or set the variable",
    ),
    Change(
        "kernel[2](...)",
        "deprecated",
        "on two cores",
        "on two cores; deprecated",
        "`kernel(...)`, and set `NEURON_LOGICAL_NC_CONFIG=2`",
    ),
    Change(
        "cores in a graph",
        "changed",
        "not compared",
        "`NCC_EVRF066` if kernel and compiler are for different numbers of cores",
        "`NEURON_LOGICAL_NC_CONFIG` for both",
    ),
    Change("collectives", "changed", "return `None`", "return an `NkiInstruction`"),
    Change("ncc.all_gather_v_prepare", "new", "", "the first half of `ncc.all_gather_v`"),
    Change("ncc.all_gather_v_trigger", "new", "", "the second half"),
    Change("ncc.all_to_all_v_prepare", "new", "", "the first half of `ncc.all_to_all_v`"),
    Change("ncc.all_to_all_v_trigger", "new", "", "the second half"),
    Change("ncc.ReplicaGroup.from_partition_op", "new", "", "groups of ranks by a formula"),
    Change("ncc.rg_partition_op", "new", "", "its formulas: `bitwise_and`, `div`, `mod`"),
)
BY_NAME = {change.name: change for change in CHANGES}


def release() -> str:
    """The release that the environment names: "0.7" or "0.6".

    Raises:
        ParameterError: it names none that runs here.
    """
    return _named(os.environ.get(VARIABLE, ""))


@functools.lru_cache(maxsize=8)
def _named(said: str) -> str:
    found = ".".join(said.split(".")[:2]) or NEWEST
    if found not in SDK:
        raise ParameterError(
            f"{VARIABLE}={said}",
            rule="the simulator has NKI " + " and ".join(SDK),
            fix=f"set {VARIABLE}=0.6, or unset it for {NEWEST}",
        )
    return found


def tracing(of: str = "") -> bool:
    """Whether a kernel is specialised by running it as Python, as NKI 0.7 does unless
    NKI_COMPILER_FRONTEND names the front end before that (custom, parser).

    Args:
        of: the release, where it is known.
    """
    named = os.environ.get(FRONT_END, "")
    if named in ("custom", "parser"):
        return False
    return named == "tracer" or (of or release()) != "0.6"


def has(name: str) -> bool:
    """Whether a name of the newest release is in the one that runs."""
    change = BY_NAME.get(name)
    return change is None or change.kind != "new" or release() != "0.6"


def later(namespace: dict[str, Any], short: str) -> dict[str, Any]:
    """Take the names out of a module that not every release has; `names.missing` gives them where
    the release has them.

    Args:
        namespace: of the module, which is changed.
        short: what kernels call it, as "nl".
    """
    new = [c.name.removeprefix(f"{short}.") for c in CHANGES if c.kind == "new"]
    return {name: namespace.pop(name) for name in new if name in namespace}


def too_new(name: str) -> UnknownNameError:
    """The error for a name that a later release has."""
    return UnknownNameError(
        f"{name} is not in NKI 0.6",
        rule=f"{name} is new in NKI 0.7, and {VARIABLE}=0.6 chooses NKI 0.6",
        fix=f"unset {VARIABLE}, or write the kernel without it",
    )


def tell_unpublished(name: str) -> None:
    """Warns that AWS's pages leave something open of a name that a kernel uses."""
    warn(
        UnsupportedError(
            f"{name}: a part of what it does is not published",
            rule=BY_NAME[name].unpublished,
            fix="try it on a device before you rely on it",
        )
    )
