"""Supervisor: handles signals and events in a job's main thread while other threads work.

Signal handlers and the other threads put events into one queue (a `SimpleQueue`, whose ``put`` is
reentrant), and the main thread handles them. One thread therefore decides how a job ends.
"""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.pipeline.line_tracker import LineCounts
from rxlanggraph.cli.stdio import print_stderr

__all__ = ["Supervisor"]

_REFRESH = 0.2
_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Supervisor:
    """Handles signals and events until `end` is called.

    The first SIGINT or SIGTERM drains, the second cancels, the third is left to the system. All
    methods but `post` are for the main thread.

    Args:
        stop: Makes the job accept no more lines; lines accepted earlier continue. Idempotent.
        drain: Asks the runs that another process can continue to stop. Called at the first signal.
        cancel: Cancels the runs in flight. Called once at most.
        open_lines: Returns the number of lines in progress, for a message.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        drain: Callable[[], None],
        cancel: Callable[[], None],
        open_lines: Callable[[], int],
    ) -> None:
        self._stop = stop
        self._drain = drain
        self._cancel = cancel
        self._open_lines = open_lines
        # Calls for the main thread; put by any thread.
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Confined to the main thread:
        self._previous: dict[signal.Signals, Any] = {}
        self._ended = False
        self._signals = 0
        self._cancelled = False
        self.cause: ExitStatus | None = None
        self.reason: str | None = None

    def post(self, call: Callable[..., None], *args: Any) -> None:
        """Have the main thread call ``call(*args)``.

        Any thread, also a signal handler; never blocks.
        """
        self._events.put(partial(call, *args))

    def end(self) -> None:
        """Make `run` return: the job has ended."""
        self._ended = True

    def run(self, work: Callable[[], None], update: Callable[[], None]) -> None:
        """Call ``work``, then handle events until `end`; call ``update`` several times a second.

        Signals are handled from before ``work`` is called until `release`.
        """
        self._previous = {number: signal.signal(number, self._signalled) for number in _HANDLED}
        work()
        while not self._ended:
            try:
                event = self._events.get(timeout=_REFRESH)
            except queue.Empty:
                pass
            else:
                event()
            update()

    def release(self) -> None:
        """Restore the signal handlers from before `run`."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def stop(self, cause: ExitStatus, reason: str) -> None:
        """Accept no more lines; lines accepted earlier continue.

        Args:
            cause: The exit status of the job. The first one counts, except for OUTPUT_FAILED.
            reason: The reason, for a message.
        """
        self._stop()
        # A record that cannot be written is more severe than any earlier cause.
        if self.cause is None or cause is ExitStatus.OUTPUT_FAILED:
            self.cause, self.reason = cause, reason

    def halt(self, failures: int, finished: int) -> None:
        """Call `stop`, because ``failures`` of the ``finished`` messages have failed."""
        text = f"halted: {failures:,} of {finished:,} messages failed"
        self.stop(ExitStatus.HALTED, text)

    def status(self, counts: LineCounts) -> ExitStatus:
        """Return the exit status of a job that ended with these counts."""
        if self.cause is not None:
            return self.cause
        return ExitStatus.OK if counts.ok == counts.read else ExitStatus.SOME_FAILED

    def cancel(self) -> None:
        """Cancel the runs in flight; signals are left to the system from now on."""
        _leave_signals_to_system()
        if not self._cancelled:
            self._cancelled = True
            self._cancel()

    def _signalled(self, number: int, _: FrameType | None) -> None:
        """In the main thread, between any two of its steps."""
        self._signals += 1
        if self._signals > 1:
            _leave_signals_to_system()  # at once: the third one must not wait in the queue
        self.post(self._handle_signal, number, self._signals)

    def _handle_signal(self, number: int, count: int) -> None:
        if count > 1:
            print_stderr("cancelling the runs in flight")
            self.cancel()
            return
        # Stopped before the number of open lines is read, so that it no longer grows.
        if number == signal.SIGINT:
            self.stop(ExitStatus.INTERRUPTED, "interrupted by Ctrl-C")
            hint = "; Ctrl-C again cancels what is left"
        else:
            self.stop(ExitStatus.TERMINATED, "ended by SIGTERM")
            hint = ""
        open_lines = self._open_lines()
        self._drain()
        lines = "1 line is" if open_lines == 1 else f"{open_lines:,} lines are"
        print_stderr(f"draining: {lines} not answered yet{hint}")


def _leave_signals_to_system() -> None:
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
