"""Processes that judged kernels run in: each is forked from a clean one, and has limits.

The clean process has imported the simulator and nothing else: no judged kernel, no reference, no
PyTorch or JAX with threads of their own. A stage of judging is a function of a JSON header and
blobs of bytes, and so is what it gives: nothing that a judged process writes is unpickled here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from nkisim.runtime.limiting import limit_memory

Message = tuple[dict[str, Any], list[bytes]]
Stage = Callable[[dict[str, Any], list[bytes]], Message]

RELEASE = "NKISIM_NKI"
"""The variable that names the release of `import nki`, for judged kernels, too. Others that change
a kernel do not reach them."""

IDLE = 10
"""How much longer a process may take on the clock than of the processor: others may have that, and
one that waits for ever uses none of it."""

PRINTED = 2000
"""Characters of what a judged process prints that are kept."""


def pack(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """A message: lengths, the header as JSON, the blobs."""
    parts = [json.dumps(header).encode(), *blobs]
    return struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts)) + b"".join(parts)


def unpack(data: bytes) -> Message:
    """The header and the blobs of a message. Raises ValueError for anything else."""
    try:
        (count,) = struct.unpack_from("<I", data)
        lengths = struct.unpack_from(f"<{count}Q", data, 4)
        at, parts = 4 + 8 * count, []
        if at + sum(lengths) != len(data) or not count:
            raise ValueError("a message of another length")
        for length in lengths:
            parts.append(data[at : at + length])
            at += length
        header = json.loads(parts[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(header, dict):
        raise ValueError("a header that is no dictionary")
    return _printable(header), parts[1:]


def _printable(x: Any) -> Any:
    """Data of JSON without characters that no file takes, or that a terminal obeys."""
    if isinstance(x, str):
        return x if x.isprintable() else "".join(map(_character, x))
    if isinstance(x, dict):
        return {_printable(key): _printable(value) for key, value in x.items()}
    return [_printable(value) for value in x] if isinstance(x, list) else x


def _character(c: str) -> str:
    return c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}"


def _write(file: BinaryIO, message: bytes) -> None:
    file.write(struct.pack("<Q", len(message)) + message)
    file.flush()


def _read(file: BinaryIO) -> bytes | None:
    size = file.read(8)
    if len(size) < 8:
        return None
    return file.read(struct.unpack("<Q", size)[0])


class NurseryEnded(RuntimeError):
    """The clean process is gone, as when a judged one has killed it."""


class Nursery:
    """The clean process, from the side of the judge. A context manager."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == RELEASE or not name.startswith(("NEURON_", "NKI_", "NKISIM_"))
        }
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([root, *([before] if before else [])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nkisim.judging.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the clean process is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the clean process."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe and pipe.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run(self, stage: str, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> Message:
        """Run a stage in a process of its own.

        Args:
            stage: its name.
            header: for the stage; of "limits" are `seconds` of the processor, and `memory_mb`,
                which is also the most that it may give.
            blobs: for the stage.

        Returns:
            What the stage gives, with "printed" and "seconds" in the header. Where it gave nothing,
            the header says why: {"ended": "time" | "memory" | "signal 9" | "exit 3"}.

        Raises:
            NurseryEnded: the clean process is gone.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            _write(stdin, pack({"stage": stage, **header}, blobs))  # type: ignore[arg-type]
            reply = _read(stdout)  # type: ignore[arg-type]
        except OSError:
            reply = None
        if reply is None:
            self._process.wait()
            raise NurseryEnded("the process from which judged ones are forked has ended")
        return unpack(reply)


def serve(stages: dict[str, Stage]) -> None:
    """Be the clean process: fork one for each request, until there are no more.

    Args:
        stages: by name.
    """
    # Out of the way of what a judged process takes for its standard streams.
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    while (request := _read(requests)) is not None:
        header, blobs = unpack(request)
        found = _forked(stages[header.pop("stage")], header, blobs, [requests, replies])
        _write(replies, pack(*found))


def _forked(
    stage: Stage, header: dict[str, Any], blobs: list[bytes], private: list[BinaryIO]
) -> Message:
    """Run a stage in a child of this process, which it cannot outlive."""
    limits = header["limits"]
    begun = time.monotonic()
    out, into = os.pipe()
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if not child:
            os.close(out)
            for file in private:
                os.close(file.fileno())
            _be_the_child(stage, header, blobs, into, printed.fileno())
        os.close(into)
        deadline = begun + IDLE * limits["seconds"]
        data, late = _all_of(out, deadline, limits["memory_mb"] << 20)
        os.close(out)
        with contextlib.suppress(OSError):
            os.killpg(child, signal.SIGKILL)  # it, and what it has started
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        printed.seek(0)
        said = printed.read(4 * PRINTED).decode(errors="replace")[:PRINTED]
    try:
        found, parts = unpack(data)
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        late = late or code == -signal.SIGXCPU or used.ru_utime + used.ru_stime > limits["seconds"]
        ended = "time" if late else f"signal {-code}" if code < 0 else f"exit {code}"
        found, parts = {"ended": ended}, []
    return {**found, "printed": said, "seconds": time.monotonic() - begun}, parts


def _all_of(pipe: int, deadline: float, most: int) -> tuple[bytes, bool]:
    """What is written to a pipe until it is closed, and whether that took too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return b"", True
        part = os.read(pipe, 1 << 20)
        if not part:
            return b"".join(parts), False
        size += len(part)
        if size > most:
            return b"", False
        parts.append(part)


def _be_the_child(
    stage: Stage, header: dict[str, Any], blobs: list[bytes], into: int, printed: int
) -> NoReturn:
    """Run the stage, write what it gives, and end without exit handlers."""
    import resource  # which Windows does not have, nor os.fork

    code = 1
    try:
        os.setsid()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        limits = header["limits"]
        limit_memory(limits["memory_mb"])
        seconds = math.ceil(limits["seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        written = limits["memory_mb"] << 20  # of one file, such as what it prints
        resource.setrlimit(resource.RLIMIT_FSIZE, (written, written))
        try:
            reply = pack(*stage(header, blobs))
        except MemoryError:
            reply = pack({"ended": "memory"})
        sys.stdout.flush()
        sys.stderr.flush()
        at = 0
        while at < len(reply):
            at += os.write(into, reply[at : at + (1 << 20)])
        code = 0
    finally:
        os._exit(code)
