"""Kernels of `neuronxcc.nki`: how a call is traced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nkisim.checking import Checker
from nkisim.errors import ParameterError
from nkisim.frontends.dialect import Call, Dialect, Traced
from nkisim.frontends.neuronxcc.rules import compatibility
from nkisim.frontends.neuronxcc.rules.annotations import check_parameters
from nkisim.frontends.neuronxcc.rules.dialect import RULES
from nkisim.frontends.neuronxcc.rules.outputs import check_outputs
from nkisim.frontends.neuronxcc.rules.python_range import check_ranges
from nkisim.frontends.neuronxcc.rules.rewriting import rewritten
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.grid import SINGLE, Grid
from nkisim.numerics.emulated import keep_fp32
from nkisim.trace.arguments import leaves, map_leaves
from nkisim.trace.tracer import Tracer


def _trace(call: Call) -> Traced:
    as_sdk = call.mode == "simulation"
    # Without the middle end nobody reorders what is written down.
    as_written = "skip_middle_end_transformations" in call.options
    checker = Checker(as_sdk, as_written)
    machine, source = call.target
    if source and call.grid.cores > machine.abilities.cores:
        raise ParameterError(
            f"kernel {call.name} is launched on {call.grid.cores} cores of a {machine.name}, by "
            f"{source}",
            rule="a launch on two cores needs Trainium2 or later, whose logical cores have two",
            fix="launch it on one core, without nl.nc(2), or for trn2",
            location=call.place,
        )
    tracer = Tracer(call.name, call.grid, checker, machine, RULES)
    tracer.trace.target = source
    tracer.direct = "force_auto_alloc" not in call.options
    tracer.data = call.data
    check_parameters(call.func, call.bound.arguments)
    for error in check_ranges(call.func):
        checker.report("counter", error)

    def declare(name: str, leaf: Any) -> AccessPattern:
        return tracer.argument(name, tuple(leaf.shape), as_dtype(leaf.dtype, f"{name}.dtype"))

    given = call.declared(declare)

    def body() -> Any:
        result = call.body(*given.args, **given.kwargs)
        if not as_sdk:
            return result
        return map_leaves(lambda leaf: compatibility.returned_in_hbm(tracer, leaf), result)

    trace = tracer.run(body)
    tracer.data = None
    if as_sdk:
        keep_fp32(trace)
    returned = [leaf for leaf in leaves(trace.result) if isinstance(leaf, Tensor)]
    check_outputs(call, returned, trace, checker)
    return Traced(trace, [*returned], _returned, by_data=tracer.values_seen)


def _returned(leaf: Any, values: Iterator[Any]) -> Any:
    return next(values) if isinstance(leaf, Tensor) else leaf


def _grid(name: str, entries: object) -> Grid:
    return Grid.of(entries)


def _check_inside(name: str, grid: Grid, config: object) -> None:
    if grid is not SINGLE:
        raise ParameterError(
            f"kernel {name}[{grid}] is launched on a grid inside a kernel",
            rule="a kernel called from another kernel becomes a part of it, and has no grid",
            fix=f"call {name}(...) without a grid, in a loop if need be",
            code="err_nested_kernel_with_spmd_grid",
        )


NEURONXCC = Dialect("neuronxcc.nki", _trace, _grid, rewritten, check_inside=_check_inside)
