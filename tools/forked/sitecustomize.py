"""Start of each Python process that finds this folder on its path: `forks.py` forks the slow ones.

Only processes that import much in any case, and only where FORKS_SOCKET names the socket. One whose
arguments are those of FORKS_NOT starts by itself.
"""

import os
import sys

_FORKED = ("ipykernel_launcher", "nkibook.instance.step", "pytest")


def _have_it_forked(path: str, module: str, arguments: list[str]) -> int:
    """Have this process's work done by a fork, on its files; return the exit code."""
    import json
    import signal
    import socket

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a kernel that is to end, as its fork does
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"\n"], [0, 1, 2])
        asked = {"module": module, "argv": arguments, "cwd": os.getcwd(), "env": {**os.environ}}
        server.sendall(json.dumps(asked).encode() + b"\n")
        return int(server.recv(16))  # nothing, a ValueError: the server is gone


if "FORKS_SOCKET" in os.environ and "-m" in sys.orig_argv:
    _module, *_arguments = sys.orig_argv[sys.orig_argv.index("-m") + 1 :]
    if _module in _FORKED and " ".join(_arguments) != os.environ.get("FORKS_NOT"):
        os._exit(_have_it_forked(os.environ["FORKS_SOCKET"], _module, _arguments))
