"""Supervisor: what a job's main thread does while the other threads work.

Signal handlers and the other threads put what happened into one queue (a `SimpleQueue`, whose
``put`` may interrupt itself), and the main thread acts on it: so whatever decides how a job ends is
decided in one thread.
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
from rxlanggraph.cli.stderr import print_stderr

__all__ = ["Supervisor"]

_REFRESH = 0.2
_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Supervisor:
    """Handles signals and events, until the job is noted to have ended.

    The first SIGINT or SIGTERM drains, the second cancels, the third is left to the system. All
    methods but `post` are for the main thread.

    Args:
        stop: Accept no more lines; lines accepted earlier continue. May be called again.
        cancel: Cancel what is in flight. Called once at most.
        open_lines: How many lines are on the way, to be said.
    """

    def __init__(
        self, stop: Callable[[], None], cancel: Callable[[], None], open_lines: Callable[[], int]
    ) -> None:
        self._stop = stop
        self._cancel = cancel
        self._open_lines = open_lines
        # Written by any thread, taken by the main thread: what it has to do next.
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Confined to the main thread:
        self._previous: dict[signal.Signals, Any] = {}
        self._ended = False
        self._signals = 0
        self._cancelled = False
        self.cause: ExitStatus | None = None
        self.reason: str | None = None

    def post(self, what: Callable[..., None], *about: Any) -> None:
        """Have the main thread call ``what``. Any thread, also a signal handler; never blocks."""
        self._events.put(partial(what, *about))

    def end(self) -> None:
        """Note that the job has ended."""
        self._ended = True

    def run(self, work: Callable[[], None], update: Callable[[], None]) -> None:
        """Start ``work``, then act on what comes until `end`; ``update`` several times a second.

        Handles the signals from before ``work`` on; `release` ends that.
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
        """Accept no more lines. Lines accepted earlier continue."""
        self._stop()
        # A record that cannot be written is worse news than any earlier cause.
        if self.cause is None or cause is ExitStatus.OUTPUT_FAILED:
            self.cause, self.reason = cause, reason

    def halt(self, failures: int, finished: int) -> None:
        """`stop`, since so many of the messages that have finished are failures."""
        text = f"halted: {failures:,} of {finished:,} messages failed"
        self.stop(ExitStatus.HALTED, text)

    def status(self, counts: LineCounts) -> ExitStatus:
        """Return the exit status of a job whose lines have ended like this."""
        if self.cause is not None:
            return self.cause
        return ExitStatus.OK if counts.ok == counts.read else ExitStatus.SOME_FAILED

    def cancel(self) -> None:
        """Cancel what is in flight; signals are left to the system from now on."""
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
            print_stderr("cancelling what is in flight")
            self.cancel()
            return
        # Stopped before it is said, so that the figure is the last one.
        if number == signal.SIGINT:
            self.stop(ExitStatus.INTERRUPTED, "interrupted by Ctrl-C")
            hint = "; Ctrl-C again cancels them"
        else:
            self.stop(ExitStatus.TERMINATED, "ended by SIGTERM")
            hint = ""
        print_stderr(f"draining: {self._open_lines():,} still on the way{hint}")


def _leave_signals_to_system() -> None:
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
