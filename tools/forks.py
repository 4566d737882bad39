"""A process that has imported the frameworks, and forks for each process that is asked of it.

Importing PyTorch, torch_xla and JAX takes longer than most notebooks: here it is done once. They
are only imported: a fork finds no client of a framework, no thread and no kernel, and has the
arguments, variables, folder and files of the process that asked (`forked/sitecustomize.py`). It is
killed when that one ends, and this process ends with its standard input.

    python tools/forks.py SOCKET
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

# No plugin of pytest, which rewrites those while it imports them; not ipykernel, which takes from
# the environment who its parent is.
IMPORTED = (
    "torch",
    "torch._dynamo",
    "torch_xla",
    "jax",
    "IPython",
    "zmq",
    "nbformat",
    "jupyter_client",
    "matplotlib.backends.backend_svg",
    "pytest",
)
# What ipykernel sets. Matplotlib reads it when it is imported, which in a fork is earlier.
BACKEND = "module://matplotlib_inline.backend_inline"


@contextmanager
def serving(environment: Mapping[str, str], python: str = sys.executable) -> Iterator[Path]:
    """Have such a process while this block runs; yields its socket.

    Args:
        environment: its variables.
        python: whose packages it has.
    """
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is at most 107 long
        path = Path(folder, "socket")
        process = subprocess.Popen(
            [python, __file__, str(path)],
            env={**environment, "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a process that imports the frameworks has ended: see above")
            yield path
            process.stdin.close()


def asking(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables `environment`, for a process that the one with this socket is to fork."""
    paths = [str(Path(__file__).with_name("forked")), environment.get("PYTHONPATH", "")]
    return {
        **environment,
        "FORKS_SOCKET": str(path),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def serve(listener: socket.socket) -> dict:
    """Answer until standard input ends. Returns in the forks, with what is asked of each."""
    waiting: dict[int, socket.socket] = {}  # who asked, by the fork's process id
    while True:
        sources = [sys.stdin, listener, *waiting.values()]
        ready = select.select(sources, [], [], 0.05 if waiting else None)[0]
        for pid, asking in list(waiting.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                if asking not in ready:
                    asking.sendall(str(code if code >= 0 else 128 - code).encode())
                asking.close()
                del waiting[pid]
            elif asking in ready:  # its end: who asked says nothing more
                os.kill(pid, signal.SIGKILL)
        if sys.stdin in ready:
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)  # there is nothing to close
        if listener in ready:
            asking, _ = listener.accept()
            _, files, *_ = socket.recv_fds(asking, 1, 3)
            with asking.makefile("rb") as stream:
                asked = json.loads(stream.readline())
            pid = os.fork()
            if pid == 0:
                for opened in (listener, asking, *waiting.values()):
                    opened.close()
                for target, file in enumerate(files):
                    os.dup2(file, target)
                    os.close(file)
                return asked
            for file in files:
                os.close(file)
            waiting[pid] = asking


def main() -> None:
    before = {**os.environ}
    os.environ["MPLBACKEND"] = BACKEND
    for name in IMPORTED:
        if find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    del os.environ["MPLBACKEND"]
    set_by_imports = {name: os.environ[name] for name in os.environ.keys() - before.keys()}
    gc.freeze()  # a fork need not look through what all of them hold, nor copy it for that
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        print("ready", flush=True)
        asked = serve(listener)
    os.setsid()
    # The same packages, but for those on PYTHONPATH.
    own = before.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in sys.path[1:] if path not in own]
    os.environ.clear()
    os.environ.update(set_by_imports | asked["env"])
    os.chdir(asked["cwd"])
    sys.path[:] = [asked["cwd"], *os.environ["PYTHONPATH"].split(os.pathsep), *others]
    sys.argv = [asked["module"], *asked["argv"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
