"""Important lines, each with a fault that tests must see.

A module has the tests that are to kill its mutations, those that most likely do first, and for each
mutation the file, a text that stands there, and what replaces it. Of a text that stands there
several times the first is meant. Tests that are only named beside one mutation run before the
module's.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """A fault: `new` in the place of `old` in a file, and tests to run first."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()


class Module(NamedTuple):
    """Faults that the same tests are to find."""

    tests: tuple[str, ...]
    mutations: tuple[Mutation, ...]


def _module(folder: str, tests: str, *rows: tuple[str, ...]) -> Module:
    """Files are given from `folder`, tests from `tests/`."""
    return Module(
        tuple(f"tests/{t}" for t in tests.split()),
        tuple(
            Mutation(f"{folder}/{file}.py", old, new, tuple(f"tests/{t}" for t in more))
            for file, old, new, *more in rows
        ),
    )


# fmt: off
MODULES = {
    "machine": _module("nkisim/machine",
        "nkisim/test_target.py nkisim/test_capacity.py cost/test_instruction_times.py "
        "nkisim/test_isa_matmul.py cost/test_validation_limits.py",
        ("__init__", "psum_fmax=512", "psum_fmax=500", "nkisim/test_language.py"),
        ("__init__", "gemm_stationary_fmax=128", "gemm_stationary_fmax=120",
         "nkisim/test_language.py"),
        ("__init__", "gemm_moving_fmax=512", "gemm_moving_fmax=500", "nkisim/test_language.py"),
        ("__init__", "bn_stats_fmax=512", "bn_stats_fmax=500", "nkisim/test_language.py"),
        ("__init__", "sbuf_reserved_bytes=16 * _KIB", "sbuf_reserved_bytes=8 * _KIB"),
        ("__init__", "psum_bank_bytes=2 * _KIB", "psum_bank_bytes=4 * _KIB"),
        ("__init__", "sbuf_bytes=224 * _KIB", "sbuf_bytes=192 * _KIB",
         "nkisim/test_capacity.py"),
        ("target", '"trn2": GEN3', '"trn2": GEN4'),
        ("target", "found = value or following", "found = found or value or following"),
        ("timing", "load_rate=17.0", "load_rate=15.3", "cost/test_validation.py"),
        ("timing", "two_input_cycles=2", "two_input_cycles=1"),
        ("timing", "fp32_passes=4", "fp32_passes=2")),
    "compute": _module("nkisim",
        "cost/test_instruction_times.py cost/test_engines.py nki/test_topk.py "
        "cost/test_findings.py cost/test_timeline.py",
        ("cost/compute", "busy = data + passes * pe.pass_ns", "busy = data + pe.pass_ns"),
        ("numerics/ops/matmul", "F32 in (stationary.dtype, moving.dtype)", "moving.dtype == F32"),
        ("numerics/ops/matmul", "max(moving.n // rows,", "max(moving.n,"),
        ("cost/compute", "slow = 2 * n / timing.interface_ghz", "slow = n / timing.interface_ghz"),
        ("cost/compute", "(rate.issue_cycles + extra) / rate.ghz, timing.least_cycles",
         "(rate.issue_cycles + extra) / rate.ghz, 0.0 * timing.least_cycles"),
        ("numerics/ops/chain", "== 1:", ">= 1:"),
        ("numerics/ops/chain", " and tiles[0].n % 2 == 0", ""),
        ("numerics/ops/reduce", "0.5 if fast and on.timing.bf16_pairs else 1.0", "1.0"),
        ("numerics/ops/reduce", "ins[0].rows // 8", "ins[0].rows // 16"),
        ("numerics/ops/select", "return Cycles(1.0) if one", "return Cycles(1.0) if not one"),
        ("numerics/ops/search", '4 * on.instr.settings.n', 'on.instr.settings.n'),
        ("numerics/ops/gather", "max(0.0, on.timing.dynamic_cycles - n)", "0.0")),
    "dma": _module("nkisim/cost",
        "cost/test_instruction_times.py cost/test_alike.py cost/test_timeline.py "
        "cost/test_findings.py cost/test_validation.py nki/test_collectives.py",
        ("dma", "strides[d] != run or d == axis", "strides[d] != run"),
        ("dma", "np.count_nonzero(rows[:, 0]) + ", ""),
        ("dma", "min(partitions, timing.engines, descriptors)", "min(partitions, timing.engines)"),
        ("dma", "run_bytes < timing.write_granule", "run_bytes <= timing.write_granule"),
        ("dma", " * len(sources) / len(each)", ""),
        ("dma", "timing.load_rate * timing.transpose_factor", "timing.load_rate"),
        ("dma", "each * -(-descriptors // engines)", "each * (descriptors // engines)"),
        ("dma", "max(1, run_bytes // 4096)", "1"),
        ("dma", "timing.load_latency_ns if from_hbm", "timing.store_latency_ns if from_hbm"),
        ("dma", "max(1, moved.size // picks)", "moved.size"),
        ("dma", "item = max(out.itemsize, source.itemsize)", "item = out.itemsize"),
        ("dma", "source.itemsize * from_hbm),", "out.itemsize * from_hbm),")),
    "capacity": _module("nkisim/checking",
        "nkisim/test_capacity.py nkisim/test_checks_chip.py cost/test_spilling.py "
        "cost/test_overflow.py",
        ("capacity", "if used[at] <= room:", "if used[at] < room:"),
        ("capacity", "np.subtract.at(change, lives.last + 1, sizes)",
         "np.subtract.at(change, lives.last, sizes)"),
        ("capacity", "4 if space is Space.PSUM else -(-shape[par_axis] // _QUARTER)", "4"),
        ("capacity", "total = made[scope] = made.get(scope, 0) + size",
         "total = made[scope] = size"),
        ("capacity", "if t.form.size == prod(t.buffer.shape[t.buffer.par_axis :]):", "if True:"),
        ("capacity", "last[tile] = at", "last.setdefault(tile, at)"),
        ("capacity", "if largest * 4 * _MOST_OPERANDS <= room:", "if largest * 4 <= room:"),
        ("capacity", "min(free * t.itemsize, whole)", "whole"),
        ("capacity", "machine.sbuf_usable_bytes if", "machine.sbuf_bytes if"),
        ("capacity", "max(needed.get(number, 0), _part_size(t))",
         "needed.get(number, 0) + _part_size(t)"),
        ("capacity", "if d and any([row[d] for row in t.coefs])", "if d")),
    "memory_state": _module("nkisim/checking",
        "nkisim/test_written.py nkisim/test_checking.py nkisim/test_cells.py "
        "nkisim/test_checks_loops.py nkisim/test_unread_results.py nkisim/test_meetings.py "
        "nki/test_partial_exchange.py",
        ("memory_state", "missing &= where", "pass"),
        ("memory_state", "(useless and not instr.spec.elementwise)", "useless"),
        ("memory_state", "undefined.all() and not self.written.touched(buffer)", "undefined.all()"),
        ("memory_state", "if buffer.program is None and instr.program in self.fenced:",
         "if False:"),
        ("memory_state", "self.fenced.clear()", "pass"),
        ("memory_state", "return open_ | self.scattered", "return open_"),
        ("written", "box[apart[0]][1] + 1 != other[apart[0]][0]",
         "box[apart[0]][1] + 2 < other[apart[0]][0]"),
        ("written", "return all(_hold(boxes[at + 1 :], rest) for",
         "return any(_hold(boxes[at + 1 :], rest) for"),
        ("written", "if high < b:", "if high < b - 1:"),
        ("written", "self.whole.discard(buffer.number)", "pass"),
        ("written", "return groups.all(axis=1) if all_ else groups.any(axis=1)",
         "return groups.any(axis=1)"),
        ("written", "value = fresh if self.written else np.logical_not(fresh)", "value = fresh")),
    "races": _module("nkisim/checking",
        "nkisim/test_grid.py nkisim/test_checking.py nki/test_shared_writes.py "
        "nkisim/test_meetings.py nki/test_repeated_destinations.py nkisim/test_checks_chip.py "
        "nki/test_collectives.py",
        ("races", "clash = (view >= 0) & (view != instr.program)",
         "clash = (view > 0) & (view != instr.program)"),
        ("races", "clash = view > instr.program", "clash = view > instr.program + 1"),
        ("races", "if owner[cell] >= 0:", "if owner[cell] > 0:"),
        ("races", "any(owner[cell] > instr.program for cell in place)",
         "any(owner[cell] > instr.program + 1 for cell in place)"),
        ("races", "passed[instr.program] += 1", "pass"),
        ("races", "simulated and not trace.tells_apart and harmless", "simulated and harmless"),
        ("races", "clash &= where", "pass"),
        ("races",
         "clash &= ~(view_of(shared, tensor) & (view_of(latest, tensor) == instr.program))",
         "clash &= ~view_of(shared, tensor)"),
        ("races", "trace.rules.alike_is_harmless and not trace.tells_apart",
         "trace.rules.alike_is_harmless"),
        ("races", "np.copyto(view, instr.program, where=True if where is None else where)",
         "view[...] = instr.program")),
    "alu": _module("nkisim/numerics",
        "nkisim/test_alu.py nkisim/test_dtypes.py properties/test_elementwise.py "
        "nkisim/test_isa_elementwise.py",
        ("alu", "np.trunc(np.divide(x, y))", "np.floor(np.divide(x, y))"),
        ("alu", "np.abs(x) > np.abs(y)", "np.abs(x) >= np.abs(y)", "nki/test_instructions.py"),
        ("alu", "np.right_shift(x.view(bits), y.astype(bits)).view(x.dtype)",
         "np.right_shift(x, y.astype(x.dtype))"),
        ("alu", "np.where(y >= 0, whole, rounded)", "whole", "nki/test_instructions.py"),
        ("alu", 'if op.kind == "compare" and ins[0] in WIDE:', "if False:"),
        ("alu", "same = out == F32 and all(dt == F32 for dt in ins)", "same = out == F32"),
        ("alu", "all(dt == ins[0] for dt in ins) else np.dtype(np.int64)", "True else np.int64",
         "nki/test_instructions.py"),
        ("alu", "if compute_dtype(*dtypes) == F32:", "if False:"),
        ("alu", ' and not any(dt in FLOATS for dt in ins):', ":"),
        ("alu", '_integer_power if name == "power" else fn', "fn")),
    "ops": _module("nkisim/numerics/ops",
        "nkisim/test_isa_select.py nkisim/test_isa_reduce.py nkisim/test_isa_elementwise.py "
        "nkisim/test_isa_matmul.py nkisim/test_indirect.py properties/test_elementwise.py "
        "properties/test_reductions.py",
        ("select", "coefs, offset) >= 0", "coefs, offset) > 0"),
        ("select", "first(index, bound0) & second(index, bound1)",
         "first(index, bound0) | second(index, bound1)"),
        ("select", "chosen = pred == 0 if reverse else pred != 0", "chosen = pred != 0"),
        ("search", "same = (rows == value[:, None]) & ~given", "same = rows == value[:, None]"),
        ("search", "for i in reversed(range(wanted.shape[1])):",
         "for i in range(wanted.shape[1]):"),
        ("search", "nan=-np.inf", "nan=0.0"),
        ("search", "np.where(padding, -1, last)", "last"),
        ("reduce", "2 * first.reshape(kept)", "first.reshape(kept)", "nkisim/test_isa_reduce.py"),
        ("reduce", "if swap1:", "if swap0:", "nkisim/test_isa_reduce.py"),
        ("reduce", "-total if negate else total", "total", "nkisim/test_isa_reduce.py"),
        ("chain", "total = merge(start, total)", "pass", "nkisim/test_isa_reduce.py"),
        ("statistics", "spread + count * np.square", "spread + np.square",
         "nkisim/test_isa_reduce.py"),
        ("gather", "if counted.any() and not self.skip:", "if bad.any() and not self.skip:",
         "nkisim/test_indirect.py"),
        ("gather", "np.add.at(place, tuple(index), x)", "place[tuple(index)] += x",
         "nkisim/test_indirect.py"),
        ("matmul", ' and not instr.settings.starts', "", "nkisim/test_accumulate.py"),
        ("elementwise", "choices[0] & choices[1]", "choices[0] | choices[1]",
         "nkisim/test_checking.py")),
    "neuronxcc": _module("nkisim/frontends/neuronxcc",
        "nkisim/test_index.py nkisim/test_tensor.py nkisim/test_views.py nkisim/test_language.py "
        "nkisim/test_dense_indices.py nkisim/test_alu.py nkisim/test_checking.py "
        "nkisim/test_isa_reduce.py",
        ("tensors/index", "reach = coef * (size - 1)", "reach = coef * size"),
        ("tensors/index", "a.offset + sign * b.offset", "a.offset + b.offset"),
        ("tensors/indexing", "if low < 0 or high >= size:", "if low < 0 or high > size:"),
        ("tensors/indexing", "together = fixed == list(range(fixed[0], fixed[-1] + 1))",
         "together = True"),
        ("tensors/indexing", "if left.dense is not None:", "if False:"),
        ("tensors/bounds", "start += extent if start < 0 else 0", "pass"),
        ("tensors/bounds", "max(0, -((start - stop) // step))", "max(0, (stop - start) // step)"),
        ("lowering/elementwise", "if not any(t.dtype == np.uint32 for t in tiles):", "if True:"),
        ("lowering/elementwise", "if default is not None and engine is None:", "if False:"),
        ("lowering/reduce", "if left.dense is None or x.escape() is None:", "if True:"),
        ("lowering/reduce", "None if seen is None or seen.all() else seen", "None"),
        ("lowering/reduce", "alike = 0 in kept and bool((true == true[:1]).all())",
         "alike = 0 in kept")),
    "nki": _module("nkisim/frontends/nki",
        "nki/test_constraints.py nki/test_instructions.py nki/test_reference_examples.py "
        "nki/test_objects.py nki/test_by_data.py fuzz/test_fuzz.py",
        ("tensors/indexing", "if not -n <= at < n:", "if not -n <= at <= n:"),
        ("tensors/indexing", "return low, -(-(high - low) // step), step",
         "return low, (high - low) // step, step"),
        ("tensors/indexing", "strides.append(stride * every)", "strides.append(stride)"),
        ("tensors/indexing", "if not (0 <= low <= high <= n):", "if not (0 <= low <= high):"),
        ("tensors/views", "self.offset + start * own.strides[dim]", "self.offset + start"),
        ("tensors/views", "if own.on_chip and dims[0] != 0:", "if False:"),
        ("tensors/views", "last % new == 0 and (self.offset * old) % new == 0", "last % new == 0"),
        ("tensors/layout", "if sizes and steps[-1] == n * step:", "if sizes:"),
        ("tensors/layout", "if any(shape[-1] % n for shape, _ in left):", "if False:"),
        ("surface/isa/vector/checks", "axes != tuple(range(n - len(axes), n)) or axes[0] <= 0",
         "axes[0] <= 0"),
        ("surface/isa/vector/elementwise", "on_gpsimd = (whole and not psum) or",
         "on_gpsimd = whole or")),
    "guards": _module("nkisim/trace",
        "nkisim/test_guards.py nkisim/test_remembered.py",
        ("guards", "if now is not then and not _equal(now, then):", "if False:"),
        ("guards", "now = _content(cell)", "now = then"),
        ("guards", "return function.__code__, function.__defaults__, function.__kwdefaults__",
         "return (function.__code__,)"),
        ("guards", "if tuple(space) != names:", "if False:"),
        ("guards", "return kind, value", "return value"),
        ("guards", "return kind, repr(value)", "return kind, value"),
        ("guards", "hashlib.blake2b(data).digest()", "data[:_HASHED]"),
        ("guards", "if name in _IMPURE:", "if False:"),
        ("guards", 'attribute in _IMPURE_NUMPY or "random" in module.__name__',
         "attribute in _IMPURE_NUMPY"),
        ("guards", "if self.reason is None and not self.hold():", "if False:"),
        ("guards", "if self._asks_by_name and self._modules:", "if False:")),
    "schedule": _module("nkisim/schedule",
        "cost/test_schedule.py cost/test_cores.py cost/test_engines.py cost/test_timeline.py "
        "cost/test_touches.py nkisim/test_regions.py",
        ("scheduler", "read[0] if same else read[1], at", "read[1], at"),
        ("scheduler", "self._arrive(follower, end, at, \"data\")",
         "self._arrive(follower, done, at, \"data\")"),
        ("scheduler", "max(0.0, self.free[e] + self.timing.table_load_ns - now)", "0.0"),
        ("scheduler", "if held > opens and self.engine[held[1]] != e:", "if held > opens:"),
        ("scheduler", "chosen = (free.index(min(free)),)", "chosen = (0,)"),
        ("scheduler", "read if read > done else done", "done"),
        ("scheduler", "if count == len(free) and (self.level is not None or begin >= self.latest):",
         "if count == len(free):"),
        ("engines", "if e in (_VECTOR, _GPSIMD):", "if e == _VECTOR:"),
        ("engines", "if e in (_VECTOR, _SCALAR) and kind.psum:", "if e in (_VECTOR, _SCALAR):"),
        ("dependences", "same = most[order[apart:]] == apart", "same = most[order[apart:]] > 0"),
        ("dependences", "why[some[matmuls]] = ORDER", "pass"),
        ("cores", "other.core != use.core or other.fence or use.fence", "other.core != use.core"),
        ("regions", "for reader in readers[count:] if known is readers else readers:",
         "for reader in readers[count:]:")),
    "kernels": _module("kernels",
        "",
        ("attention/nki_kernels", "at + n - 1 > shift", "at + n > shift",
         "kernels/test_attention.py"),
        ("attention/nki_kernels", "size - 1 > shift", "size > shift", "kernels/test_attention.py"),
        ("attention/nki_kernels", "at + n > start", "at + n >= start", "kernels/test_attention.py"),
        ("attention/nki_kernels", "shift - at, NEVER", "shift, NEVER", "kernels/test_attention.py"),
        ("rmsnorm/nki_kernels", "operand0=-1 / n_cols", "operand0=-1 / (n_cols + 1)",
         "kernels/test_rmsnorm.py"),
        ("rmsnorm/nki_kernels", "mask=in_rows & (cols < n_cols),", "mask=in_rows,",
         "kernels/test_rmsnorm.py"),
        ("softmax/nki_kernels", "now = nl.minimum(now, least)", "pass", "kernels/test_softmax.py"),
        ("softmax/nki_kernels", "op0=nl.subtract,", "op0=nl.add,", "kernels/test_softmax.py"),
        ("matmul/nki_kernels", "k_size % (tile_k * k_tiles) or size % width",
         "k_size % (tile_k * k_tiles)", "kernels/test_matmul.py"),
        ("avgpool/geometry", "(count - 1) * self.stride >= self.size",
         "(count - 1) * self.stride > self.size", "kernels/test_avgpool.py"),
        ("avgpool/geometry", "self.start(i) + self.kernel, self.size + self.padding",
         "self.start(i) + self.kernel, self.size", "kernels/test_avgpool.py"),
        ("avgpool/geometry", "Run(0, axis.kernel - axis.stride * q)", "Run(0, axis.kernel)",
         "kernels/test_avgpool.py"),
        ("giou/backward", "meets = nl.greater_equal(narrow, 0,", "meets = nl.greater(narrow, 0,",
         "kernels/test_giou.py"),
        ("giou/backward", "to_hull = _psum(nl.multiply, nl.greater_equal(hull_area, eps",
         "to_hull = _psum(nl.multiply, nl.greater_equal(union, eps", "kernels/test_giou.py")),
}
