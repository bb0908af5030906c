"""Reporters of progress on standard error: a bar on a terminal, otherwise a line now and then.

A reporter is confined to the main thread.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rxlanggraph.cli.pipeline.line_tracker import LineCounts
from rxlanggraph.cli.stderr import print_stderr

__all__ = ["Reporter", "reporter_for"]

LINE_EVERY = 5.0
"""Seconds from one line to the next where standard error is not a terminal."""
_SPEED_SECONDS = 10.0
"""The speed is that of the last so many seconds."""


class Reporter(Protocol):
    """Shows the progress of a job. The main thread; blocks only as writing does."""

    def update(self, counts: LineCounts, in_flight: int) -> None:
        """Show the current progress; called several times a second."""

    def close(self) -> None:
        """Clear what must not stay on the screen."""


def reporter_for(size: int | None, *, quiet: bool, output_on_terminal: bool) -> Reporter:
    """Return the reporter that suits standard error.

    Args:
        size: Bytes of the input, or None where that is unknown.
        quiet: Whether to show nothing.
        output_on_terminal: Whether results go to a terminal, where they would break up a bar.
    """
    if quiet:
        return _QuietReporter()
    if sys.stderr is None:  # closed by the parent process
        return _QuietReporter()
    if sys.stderr.isatty() and not output_on_terminal:
        return _BarReporter(size)
    return _LineReporter(size)


class _QuietReporter:
    def update(self, counts: LineCounts, in_flight: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Speed:
    """Messages per second, over the last `_SPEED_SECONDS`.

    Messages finished before the first update do not count: a resumed run begins with many.
    """

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def at(self, finished: int) -> float:
        now = time.monotonic()
        self._points.append((now, finished))
        while len(self._points) > 2 and now - self._points[1][0] > _SPEED_SECONDS:
            self._points.popleft()
        since, before = self._points[0]
        return (finished - before) / max(now - since, 1e-9)


class _BarReporter:
    def __init__(self, size: int | None) -> None:
        self._speed = _Speed()
        known = (TaskProgressColumn(), TimeRemainingColumn()) if size else (TimeElapsedColumn(),)
        self._progress = Progress(
            TextColumn("{task.fields[finished]:,} done"),
            BarColumn(),
            *known,
            TextColumn("{task.fields[speed]:,.0f}/s"),
            TextColumn("{task.fields[in_flight]} in flight"),
            TextColumn("{task.fields[failed]:,} failed"),
            console=Console(stderr=True),
            auto_refresh=False,  # the main thread refreshes it, without another thread
            transient=True,
            # What a graph prints appears above the bar.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._task = self._progress.add_task(
            "run", total=size or None, finished=0, speed=0.0, in_flight=0, failed=0
        )
        self._progress.start()

    def update(self, counts: LineCounts, in_flight: int) -> None:
        self._progress.update(
            self._task,
            completed=counts.bytes_read,
            finished=counts.finished,
            speed=self._speed.at(counts.finished),
            in_flight=in_flight,
            failed=counts.failures,
            refresh=True,
        )

    def close(self) -> None:
        self._progress.stop()


class _LineReporter:
    def __init__(self, size: int | None) -> None:
        self._size = size
        self._speed = _Speed()
        self._started = self._printed_at = time.monotonic()

    def update(self, counts: LineCounts, in_flight: int) -> None:
        now, speed = time.monotonic(), self._speed.at(counts.finished)
        if now - self._printed_at < LINE_EVERY:
            return
        self._printed_at = now
        print_stderr(
            f"{counts.finished:,} done ({speed:,.0f}/s), "
            f"{in_flight} in flight, {counts.failures:,} failed"
            + self._time_left(counts.bytes_read, now - self._started)
        )

    def _time_left(self, bytes_read: int, elapsed: float) -> str:
        if not self._size or not bytes_read:
            return ""
        share = min(bytes_read / self._size, 1.0)
        return f", {share:.0%} read, about {elapsed * (1 / share - 1):,.0f} s left"

    def close(self) -> None:
        pass
