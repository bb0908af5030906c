"""ProgressMonitor: the progress of a run, in all processes that work on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rxlanggraph.cli.errors import JournalError
from rxlanggraph.cli.journal.model import (
    INGEST,
    QUEUE,
    IngestProgress,
    RunIdentity,
    ingest_progress_from,
)
from rxlanggraph.cli.journal.retry import JournalRetry
from rxlanggraph.cli.pipeline.line_tracker import LineCounts
from rxlanggraph.live.schema import JournalProgress
from rxlanggraph.state import QueueStats, State
from rxlanggraph.state.polling import wait_for_notification

__all__ = ["ProgressMonitor", "RunProgress", "progress_as_json", "read_progress"]

# Seconds between two reads at least; at most if a busy server has delayed a read.
_MIN_PAUSE = 0.1
_MAX_PAUSE = 3.0
# In between, the pause is this many times as long as the read took: counting many tasks is slow.
_PAUSE_PER_READ = 20


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run, as its journal has it at about one moment.

    Attributes:
        ingest: How much of the input was ingested.
        stats: The counts of the queue of messages.
    """

    ingest: IngestProgress = field(default_factory=IngestProgress)
    stats: QueueStats = field(default_factory=QueueStats)

    @property
    def answered(self) -> int:
        """Messages that have an answer: a result or a failure."""
        return self.stats.completed + self.stats.dead

    @property
    def open(self) -> int:
        """Messages that have no answer yet."""
        return self.stats.waiting + self.stats.delayed + self.stats.claimed

    @property
    def known(self) -> int:
        """Messages that the journal has, answered or not: never fewer than before."""
        return self.answered + self.open

    @property
    def finished(self) -> bool:
        """Whether every line of the input has its answer."""
        return self.ingest.complete and not self.open

    def counts(self, size: int | None) -> LineCounts:
        """Return the progress as counts of lines.

        Args:
            size: Bytes of the input, or None where that is unknown. ``bytes_read`` is that, or 0
                until the whole input was ingested.
        """
        return LineCounts(
            read=self.known + self.ingest.invalid,
            ok=self.stats.completed,
            failed=self.stats.dead,
            invalid=self.ingest.invalid,
            open=self.open,
            bytes_read=(size or 0) if self.ingest.complete else 0,
        )


async def read_progress(state: State) -> RunProgress:
    """Return the progress of the run. On the loop of the state."""
    # In this order: once the ingestion is complete, no task is added after the count.
    value = (await state.get(INGEST)).value
    stats = await state.stats(QUEUE)
    return RunProgress(ingest_progress_from(value), stats)


def progress_as_json(name: str, run: RunIdentity, progress: RunProgress) -> JournalProgress:
    """Return the progress of the run of the journal ``name``, as data. Any thread."""
    counts, stats = progress.counts(None), progress.stats
    return {
        "journal": name,
        "graph": run.graph,
        "input": run.input,
        "begun": run.begun,
        "finished": progress.finished,
        "input_complete": progress.ingest.complete,
        "lines": counts.read,
        "answered": counts.finished,
        "ok": counts.ok,
        "failed": stats.dead - stats.expired,
        "dead": stats.expired,
        "invalid": counts.invalid,
        "in_flight": stats.claimed,
        "waiting": stats.waiting + stats.delayed,
        "workers": dict(sorted(stats.by_worker.items())),
    }


class ProgressMonitor:
    """Reads the progress of the run again and again; confined to the loop of the state.

    Args:
        state: The journal.
        retry: Retries reads while the journal does not answer.

    Attributes:
        progress: The progress as last read; replaced as a whole, so any thread may read it.
        has_read: Whether it was read at all. Any thread may read it.
    """

    def __init__(self, state: State, retry: JournalRetry) -> None:
        self._state = state
        self._retry = retry
        self._read_seconds = 0.0
        # Answers of this process since the last read; and set when they may have ended the run.
        self._answered = 0
        self._ended = asyncio.Event()
        self.progress = RunProgress()
        self.has_read = False

    async def wait_finished(self) -> None:
        """Read until every line of the input has its answer.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        while True:
            await self.refresh()
            if self.progress.finished:
                return
            pause = max(_MIN_PAUSE, _PAUSE_PER_READ * self._read_seconds)
            await wait_for_notification(self._ended, min(pause, _MAX_PAUSE))

    def note_answered(self) -> None:
        """Note that this process has answered a message.

        What breaks without it: the end of a run is noticed up to a pause too late.
        """
        self._answered += 1
        if self._answered >= self.progress.open:
            self._ended.set()

    async def refresh(self) -> None:
        """Read once.

        Raises:
            JournalError: The journal has lost what it had before.
            StateUnavailableError: As in `wait_finished`.
        """
        progress = await self._retry.acall(self._timed_read)
        if progress.known < self.progress.known:
            raise JournalError(
                "the journal has lost data that its server had acknowledged; have the server write "
                "to disk, and begin a new journal"
            )
        self.progress = progress
        self.has_read = True

    async def _timed_read(self) -> RunProgress:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._answered = 0
        self._ended.clear()
        ingest = self.progress.ingest
        if ingest.complete:  # it stays so
            progress = RunProgress(ingest, await self._state.stats(QUEUE))
        else:
            progress = await read_progress(self._state)
        self._read_seconds = loop.time() - began  # of this attempt alone
        return progress
