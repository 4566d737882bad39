"""A function that stops in the middle, and goes on when it is told to."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any


class _Cancelled(BaseException):
    """Ends a function that is not to go on."""


class Coroutine:
    """A function in a thread of its own, which runs only while its caller waits for it.

    A generator would do if only the function itself stopped; here what it calls does (`pause`).

    Args:
        function: without arguments.

    Attributes:
        done: whether it has returned, or raised an error.
        result: what it returned.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.done = False
        self.result: Any = None
        self._function = function
        self._error: BaseException | None = None
        self._cancelled = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._wait()
            self.result = self._function()
        except BaseException as error:  # the caller's thread raises it
            self._error = error
        finally:
            self.done = True
            self._back.release()

    def _wait(self) -> None:
        self._go.acquire()
        if self._cancelled:
            raise _Cancelled

    def resume(self) -> None:
        """Run the function until it pauses or ends. Its exceptions are raised here."""
        if self.done:
            return
        self._go.release()
        self._back.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def pause(self) -> None:
        """Called in the function: give way to the caller, until it resumes the function."""
        self._back.release()
        self._wait()

    def cancel(self) -> None:
        """End the function at the place where it has paused."""
        self._cancelled = True
        self._go.release()
        self._thread.join()
