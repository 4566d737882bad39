"""What an HLO module asks of others: custom calls, and collectives between devices.

Both are views of parsed instructions. A custom call adds the decoded `backend_config`, which is
where an NKI kernel travels; a collective adds how many devices take part and how many bytes each
one sends.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from nkibook.hlo.parse import (
    Computation,
    Instruction,
    ParsedModule,
    Shape,
    split_top_level,
    unquote,
)

NKI_TARGET = "AwsNeuronCustomNativeKernel"

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)

_IOTA_GROUPS = re.compile(r"\[(\d+),(\d+)\]<=")


@dataclasses.dataclass(frozen=True)
class CustomCall:
    """A `custom-call` instruction: code that XLA calls by the name of its target.

    `backend_config` is the text XLA printed, `config` what it means: decoded as described at
    `decode_backend_config`.
    """

    name: str
    target: str
    operand_shapes: tuple[Shape, ...]
    result_shapes: tuple[Shape, ...]
    backend_config: str
    config: Any
    computation: str
    instruction: Instruction = dataclasses.field(repr=False)

    @property
    def kernel_name(self) -> str:
        """Name of the kernel inside the call when its config tells it, else the target."""
        name = self.config.get("func_name") if isinstance(self.config, Mapping) else None
        return str(name or self.target)

    def summary(self) -> str:
        """Three lines, narrow enough for a page: the kernel, its operands and its results."""
        out = [self.kernel_name]
        for what, shapes in (("operands", self.operand_shapes), ("results", self.result_shapes)):
            listed = ", ".join(str(s.without_layout()) for s in shapes)
            out.append(textwrap.fill(f"  {what:8} {listed}", 76, subsequent_indent=11 * " "))
        return "\n".join(out)

    def __str__(self) -> str:
        operands = ", ".join(str(s.without_layout()) for s in self.operand_shapes)
        results = ", ".join(str(s.without_layout()) for s in self.result_shapes)
        kernel = "" if self.kernel_name == self.target else f" [{self.kernel_name}]"
        return f"{self.name}: {self.target}{kernel} ({operands}) -> ({results})"


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective instruction, such as an all-gather, and what it costs in traffic.

    An asynchronous pair (`all-gather-start`, `all-gather-done`) is one collective; its opcode is
    given without the suffix.

    `group_size` is how many devices take part together, `operand_bytes` and `result_bytes` are
    the sizes of its data on one device. `bytes_moved` is what one device sends to others when the
    collective runs around a ring of n devices, the usual lower bound ("How to Scale Your Model",
    jax-ml.github.io/scaling-book, part 3): all-gather (n-1)/n of the result, reduce-scatter and
    all-to-all (n-1)/n of the operand, all-reduce twice that, a permute or broadcast the operand.
    A count of bytes, not a time.
    """

    name: str
    opcode: str
    operand_shapes: tuple[Shape, ...]
    result_shapes: tuple[Shape, ...]
    group_size: int
    computation: str
    instruction: Instruction = dataclasses.field(repr=False)

    @property
    def operand_bytes(self) -> int:
        return sum(shape.nbytes for shape in self.operand_shapes)

    @property
    def result_bytes(self) -> int:
        return sum(shape.nbytes for shape in self.result_shapes)

    @property
    def bytes_moved(self) -> int:
        n = self.group_size
        if n == 1:
            return 0
        if self.opcode in ("collective-permute", "collective-broadcast"):
            return self.operand_bytes
        total = self.result_bytes if self.opcode == "all-gather" else self.operand_bytes
        rounds = 2 if self.opcode == "all-reduce" else 1
        return math.ceil(rounds * total * (n - 1) / n)

    def __str__(self) -> str:
        operands = ", ".join(str(s.without_layout()) for s in self.operand_shapes)
        results = ", ".join(str(s.without_layout()) for s in self.result_shapes)
        return (
            f"{self.name}: {self.opcode} over {self.group_size} devices "
            f"({operands}) -> ({results}), {self.bytes_moved} bytes sent by each"
        )


def find_custom_calls(module: ParsedModule) -> tuple[CustomCall, ...]:
    """Every custom call of the module, also those inside fusions and loops, in printed order."""
    return tuple(
        _custom_call(instruction, computation)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "custom-call"
    )


def find_collectives(module: ParsedModule) -> tuple[Collective, ...]:
    """Every collective of the module, in printed order. One in a loop is listed once."""
    return tuple(
        _collective(instruction, computation, module)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode.removesuffix("-start") in COLLECTIVES
    )


def decode_backend_config(text: str) -> Any:
    """The meaning of a `backend_config` attribute.

    A string is base64 of JSON (what NKI writes), or JSON, or else plain text. XLA prints the
    attributes of a typed FFI call as `{config = "...", count = 3 : i64}`: they become a dict, with
    strings decoded in turn; when `config` is the only one, as in an NKI kernel called from JAX,
    its own value is returned. JSON that XLA prints without quotes is read as JSON. An absent
    attribute ("") gives None.
    """
    text = text.strip()
    if not text:
        return None
    if text.startswith('"'):
        return _decode_string(unquote(text))
    try:
        return json.loads(text)
    except ValueError:
        pass
    if not (text.startswith("{") and text.endswith("}")):
        return text
    attributes = {}
    for item in split_top_level(text[1:-1]):
        key, _, value = item.partition("=")
        attributes[key.strip().strip('"')] = _decode_attribute(value.strip())
    return attributes["config"] if list(attributes) == ["config"] else attributes


def _decode_string(text: str) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    try:
        decoded = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return text
    # Short words are base64 by accident; a config is an object or a list.
    return decoded if isinstance(decoded, (dict, list)) else text


def _decode_attribute(value: str) -> Any:
    """An MLIR attribute: a string, or a number or boolean with its type after a colon."""
    if value.startswith('"'):
        return _decode_string(unquote(value))
    number = value.split(":")[0].strip()
    try:
        return json.loads(number)
    except ValueError:
        return value


def _custom_call(instruction: Instruction, computation: Computation) -> CustomCall:
    backend_config = instruction.attributes.get("backend_config", "")
    return CustomCall(
        name=instruction.name,
        target=unquote(instruction.attributes.get("custom_call_target", "")),
        operand_shapes=computation.operand_shapes(instruction),
        result_shapes=tuple(instruction.shape.leaves()),
        backend_config=backend_config,
        config=decode_backend_config(backend_config),
        computation=computation.name,
        instruction=instruction,
    )


def _collective(
    instruction: Instruction, computation: Computation, module: ParsedModule
) -> Collective:
    operands = computation.operand_shapes(instruction)
    result = instruction.shape
    opcode = instruction.opcode.removesuffix("-start")
    if instruction.opcode != opcode and opcode != "all-reduce":
        # Other starts return (operands, results, contexts); that of an all-reduce the results.
        result = result.elements[1]
    return Collective(
        name=instruction.name,
        opcode=opcode,
        operand_shapes=operands,
        result_shapes=tuple(result.leaves()),
        group_size=_group_size(instruction, module),
        computation=computation.name,
        instruction=instruction,
    )


def _group_size(instruction: Instruction, module: ParsedModule) -> int:
    pairs = instruction.attributes.get("source_target_pairs")
    if pairs is not None:
        return len(set(re.findall(r"\d+", pairs)))
    groups = instruction.attributes.get("replica_groups", "{}")
    iota = _IOTA_GROUPS.match(groups)
    if iota:  # [groups, size]<=[...]: the devices laid out in a grid
        return int(iota[2])
    listed = re.findall(r"\{([\d,\s]+)\}", groups)
    if listed:
        return max(len(group.split(",")) for group in listed)
    # No groups: every device of the program takes part.
    counts = [int(module.attributes.get(key, 1)) for key in ("replica_count", "num_partitions")]
    return math.prod(counts)
