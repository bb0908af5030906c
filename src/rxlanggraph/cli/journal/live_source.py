"""JournalSource: what the live page shows of a journal's run, read from outside.

It only reads. The workers are other processes: their runs are on their own pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from rxlanggraph.cli.errors import CommandError
from rxlanggraph.cli.journal.location import JournalLocation, parse_location, warn_of_password
from rxlanggraph.cli.journal.model import QUEUE, RUN, RunIdentity, run_from
from rxlanggraph.cli.journal.progress import RunProgress, progress_as_json, read_progress
from rxlanggraph.cli.journal.retry import journal_errors
from rxlanggraph.cli.journal.run import open_journal
from rxlanggraph.cli.journal.status_report import check_journal, failed_line, not_a_journal
from rxlanggraph.errors import StateUnavailableError, encodable
from rxlanggraph.live.history import Minutes
from rxlanggraph.live.questions import as_text
from rxlanggraph.live.schema import VERSION, Counts, Failure, Snapshot
from rxlanggraph.live.source import Answered
from rxlanggraph.state import State

__all__ = ["JournalSource", "journal_source"]

# Seconds between two looks at all failed lines, if there are new ones; and how many are looked at.
_FAILURES_EVERY = 5.0
_MOST_FAILURES = 2000
_MOST_KINDS = 50
_LONGEST_MESSAGE = 2000


@contextlib.contextmanager
def journal_source(where: str, *, show_content: bool) -> Iterator[JournalSource]:
    """Open a journal for the length of a block, to be looked at. Blocks; the main thread.

    Args:
        where: The path or URL of the journal.
        show_content: Whether the texts of errors are shown.

    Raises:
        CommandError: There is none, or it cannot be opened.
        JournalError: Its server does not answer.
    """
    location = parse_location(where)
    warn_of_password(exposes_password=location.exposes_password)
    with journal_errors(location, "try again"):
        check_journal(location, may_be_due=False)
    if location.path is not None and not os.access(location.path.parent, os.W_OK):
        raise CommandError(
            f"the journal {location.name} is in a directory without write access, which SQLite "
            "needs to follow it; use 'rxlanggraph status', which reads a copy"
        )
    with open_journal(location) as state:
        with journal_errors(location, "try again"):
            value = state.sync.get(RUN).value
        if value is None:
            raise not_a_journal(location.name)
        yield JournalSource(location, state, run_from(value), show_content=show_content)


class JournalSource:
    """What the page shows of a journal. Any loop.

    Args:
        location: Where it is.
        state: Its state.
        run: The run that it belongs to.
        show_content: Whether the texts of errors are shown.
    """

    def __init__(
        self, location: JournalLocation, state: State, run: RunIdentity, *, show_content: bool
    ) -> None:
        self._location = location
        self._state = state
        self._run = run
        self._show_content = show_content
        self._since = time.time()
        # Confined to the loop of the state:
        self._minutes = Minutes()
        self._progress: RunProgress | None = None
        self._failures: list[Failure] = []
        self._failures_at = 0.0
        self._failures_of = -1  # how many failed lines there were
        self._failures_left_out = 0
        # One reference, replaced as a whole on that loop; read by any thread.
        self._state_name = "open"

    @property
    def closed(self) -> bool:
        """Whether all lines have their answers. Any thread; never blocks."""
        return self._state_name == "closed"

    def close(self) -> None:
        """Do nothing: who has opened the journal closes it."""

    async def snapshot(self) -> Snapshot:
        """Read the progress of the run; if its server does not answer, show the last one."""
        reading = asyncio.run_coroutine_threadsafe(self._snapshot(), self._state.loop)
        return await asyncio.wrap_future(reading)

    async def stack(self, run_id: int) -> str | None:  # runs are elsewhere
        """Return None: no run is in this process."""
        return None

    async def cancel(self, run_id: int) -> bool:
        """Return False, likewise."""
        return False

    async def answer(self, question_id: str, value: Any) -> Answered:
        """Refuse it, likewise."""
        return Answered("stale", None, "a journal asks nothing")

    async def _snapshot(self) -> Snapshot:
        now = time.time()
        try:
            progress = await read_progress(self._state)
            await self._read_failures(progress, now)
        except StateUnavailableError:
            progress, self._state_name = self._progress or RunProgress(), "unreachable"
        else:
            self._note(progress, now)
            self._state_name = "closed" if progress.finished else "open"
        stats = progress.stats
        return {
            "version": VERSION,
            "kind": "journal",
            "name": as_text(self._location.name),
            "state": self._state_name,
            "time": now,
            "since": self._since,
            "shows_content": self._show_content,
            "actions": [],
            "nodes": "sampled",
            "counts": _counts(progress),
            "history": self._minutes.shown(now),
            "loop": {"lag": None, "blocked": []},
            "runs": [],
            "recent": [],
            "slowest": [],
            "failures": self._failures,
            "interrupts": [],
            "journal": progress_as_json(self._location.name, self._run, progress),
            "left_out": {
                "runs": stats.claimed,
                "recent": 0,
                "failures": self._failures_left_out,
                "interrupts": 0,
            },
        }

    def _note(self, progress: RunProgress, now: float) -> None:
        before, stats = self._progress, progress.stats
        self._progress = progress
        self._minutes.note_load(now, stats.claimed, stats.waiting + stats.delayed)
        if before is None:
            return
        # Fewer, if failed lines were requeued.
        self._minutes.count("ok", now, max(0, stats.completed - before.stats.completed))
        self._minutes.count("error", now, max(0, stats.dead - before.stats.dead))

    async def _read_failures(self, progress: RunProgress, now: float) -> None:
        dead = progress.stats.dead
        is_last = progress.finished
        if dead == self._failures_of or not (
            is_last or abs(now - self._failures_at) >= _FAILURES_EVERY
        ):
            return
        kinds: dict[tuple[str, str, str | None], Failure] = {}
        count = 0
        async for letter in self._state.iter_dead_letters(QUEUE):
            _add(kinds, self._run, failed_line(self._run, letter), self._show_content)
            count += 1
            if count == _MOST_FAILURES:
                break
        shown = sorted(kinds.values(), key=lambda kind: -kind["count"])[:_MOST_KINDS]
        self._failures = shown
        self._failures_left_out = max(0, dead - sum(kind["count"] for kind in shown))
        self._failures_of, self._failures_at = dead, now


def _counts(progress: RunProgress) -> Counts:
    stats = progress.stats
    in_flight = progress.open
    return {
        "submitted": stats.completed + stats.dead + in_flight,
        "succeeded": stats.completed,
        "failed": stats.dead,
        "cancelled": 0,
        "dropped": 0,
        "in_flight": in_flight,
        "peak_in_flight": in_flight,
        "active": stats.claimed,
        "queued": stats.waiting + stats.delayed,
        "max_concurrency": None,
    }


def _add(
    kinds: dict[tuple[str, str, str | None], Failure],
    run: RunIdentity,
    line: dict[str, Any],
    show_content: bool,
) -> None:
    error = line["error"] or {}
    type_, node = as_text(str(error.get("type", ""))), error.get("node")
    kind = kinds.setdefault(
        (line["status"], type_, node),
        {
            "name": as_text(run.graph),
            "status": line["status"],
            "type": type_,
            "node": None if node is None else as_text(node),
            "count": 0,
            "first": None,
            "last": None,
            "thread_id": None,
            "message_id": None,
            "message": None,
        },
    )
    kind["count"] += 1
    thread_id = line["thread_id"]
    kind["thread_id"] = None if thread_id is None else as_text(str(thread_id))
    if show_content:
        kind["message"] = encodable(str(error.get("message", ""))[:_LONGEST_MESSAGE])
