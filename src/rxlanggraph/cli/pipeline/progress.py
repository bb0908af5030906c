"""Reporters of progress on standard error: a bar on a terminal, otherwise a line now and then.

A reporter is confined to the main thread.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from rxlanggraph.cli.pipeline.line_tracker import LineCounts
from rxlanggraph.cli.stdio import print_stderr

__all__ = ["Reporter", "reporter_for"]

LINE_EVERY = 5.0
"""Seconds from one line to the next where standard error is not a terminal."""
_SPEED_SECONDS = 10.0
"""The speed is that of the last so many seconds."""


class Reporter(Protocol):
    """Shows the progress of a job. The main thread; blocks only as writing does."""

    def update(self, counts: LineCounts, running: int) -> None:
        """Show the current progress; called several times a second.

        Args:
            counts: The outcomes of the lines so far.
            running: How many of the open lines are running; the others are queued.
        """

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
    def update(self, counts: LineCounts, running: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Figures(NamedTuple):
    """What a reporter shows, at one moment."""

    read: int
    queued: int
    done: int
    failed: int
    running: int
    speed: float
    total: float | None
    seconds_left: float | None


class _Meter:
    """Makes the figures that a reporter shows.

    The time left follows from the lines that were finished lately and those that are left. Nothing
    is said of it before a line is finished, while none are, or if the number of lines is unknown.

    Args:
        size: Bytes of the input, or None where that is unknown.
    """

    def __init__(self, size: int | None) -> None:
        self._size = size
        # Times, with the lines finished by then. Those finished before the first update do not
        # count: a resumed run begins with many.
        self._points: deque[tuple[float, int]] = deque()

    def figures(self, counts: LineCounts, running: int) -> _Figures:
        speed, total = self._speed(counts.finished), counts.total(self._size)
        left = None if total is None or not speed else max(0.0, total - counts.finished) / speed
        running = min(running, counts.open)
        return _Figures(
            read=counts.read,
            queued=counts.open - running,
            done=counts.finished,
            failed=counts.failures,
            running=running,
            speed=speed,
            total=total,
            seconds_left=left,
        )

    def _speed(self, finished: int) -> float:
        now = time.monotonic()
        self._points.append((now, finished))
        while len(self._points) > 2 and now - self._points[1][0] > _SPEED_SECONDS:
            self._points.popleft()
        since, before = self._points[0]
        return (finished - before) / max(now - since, 1e-9)


def _speed_text(speed: float) -> str:
    return f"{speed:,.0f}/s" if speed >= 10 or not speed else f"{speed:.2g}/s"


def _time_text(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


class _BarReporter:
    def __init__(self, size: int | None) -> None:
        self._meter = _Meter(size)
        known = (TaskProgressColumn(), TextColumn("{task.fields[left]}"))
        self._progress = Progress(
            TextColumn("{task.fields[read]:,} read"),
            TextColumn("{task.fields[queued]:,} queued"),
            TextColumn("{task.fields[running]:,} running"),
            TextColumn("{task.fields[done]:,} done"),
            BarColumn(),
            *(known if size else (TimeElapsedColumn(),)),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[failed]:,} failed"),
            console=Console(stderr=True),
            auto_refresh=False,  # the main thread refreshes it, without another thread
            transient=True,
            # What a graph prints appears above the bar.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        nothing = self._meter.figures(LineCounts(), 0)
        self._task = self._progress.add_task("run", total=None, **_shown(nothing))
        self._progress.start()

    def update(self, counts: LineCounts, running: int) -> None:
        figures = self._meter.figures(counts, running)
        self._progress.update(
            self._task,
            completed=figures.done,
            total=figures.total,
            refresh=True,
            **_shown(figures),
        )

    def close(self) -> None:
        self._progress.stop()


def _shown(figures: _Figures) -> dict[str, Any]:
    """The fields of a bar."""
    left = figures.seconds_left
    return {
        "read": figures.read,
        "queued": figures.queued,
        "running": figures.running,
        "done": figures.done,
        "failed": figures.failed,
        "speed": _speed_text(figures.speed),
        "left": "" if left is None else f"about {_time_text(left)} left",
    }


class _LineReporter:
    def __init__(self, size: int | None) -> None:
        self._meter = _Meter(size)
        self._printed_at = time.monotonic()

    def update(self, counts: LineCounts, running: int) -> None:
        now, figures = time.monotonic(), self._meter.figures(counts, running)
        if now - self._printed_at < LINE_EVERY:
            return
        self._printed_at = now
        text = (
            f"{figures.read:,} read, {figures.queued:,} queued, {figures.running:,} running, "
            f"{figures.done:,} done ({_speed_text(figures.speed)}), {figures.failed:,} failed"
        )
        if figures.total and figures.done:
            text += f"; about {min(figures.done / figures.total, 1.0):.0%} done"
        if figures.seconds_left is not None:
            text += f", {_time_text(figures.seconds_left)} left"
        print_stderr(text)

    def close(self) -> None:
        pass
