"""The progress of a run, in all processes that work on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rxlanggraph.cli.errors import JournalError
from rxlanggraph.cli.journal.model import INGEST, QUEUE, IngestProgress, ingest_progress_from
from rxlanggraph.cli.journal.retry import JournalRetry
from rxlanggraph.cli.pipeline.line_tracker import LineCounts
from rxlanggraph.state import QueueStats, State

__all__ = ["ProgressMonitor", "RunProgress", "read_progress"]

# Seconds from one reading to the next, and how many times as long as a reading takes: counting a
# million tasks takes a while, and is not needed to the second. But a reading that a busy server has
# held up does not keep the next one waiting for long.
_READ_INTERVAL = 0.1
_TIMES_AS_LONG = 20
_LONGEST_PAUSE = 3.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a journal says of its run, at about one moment.

    Attributes:
        ingest: How far the input was taken over.
        stats: What became of the messages.
    """

    ingest: IngestProgress = field(default_factory=IngestProgress)
    stats: QueueStats = field(default_factory=QueueStats)

    @property
    def answered(self) -> int:
        """Messages that have their answer, good or bad."""
        return self.stats.completed + self.stats.dead

    @property
    def open(self) -> int:
        """Messages that have none yet."""
        return self.stats.waiting + self.stats.delayed + self.stats.claimed

    @property
    def finished(self) -> bool:
        """Whether every line of the input has its answer."""
        return self.ingest.complete and not self.open

    def counts(self, size: int | None) -> LineCounts:
        """Return it as counts of lines; of ``size`` bytes as many count as read as are answered."""
        read = self.answered + self.open + self.ingest.invalid
        share = (read - self.open) / read if read and self.ingest.complete else 0
        return LineCounts(
            read=read,
            ok=self.stats.completed,
            failed=self.stats.dead,
            invalid=self.ingest.invalid,
            open=self.open,
            bytes_read=int((size or 0) * share),
        )


async def read_progress(state: State) -> RunProgress:
    """Return how far the run is. On the loop of the state."""
    # In this order: when the ingestion is complete, no task comes after the count.
    value = (await state.get(INGEST)).value
    stats = await state.stats(QUEUE)
    return RunProgress(ingest_progress_from(value), stats)


class ProgressMonitor:
    """Reads again and again how far the run is; confined to the loop of the state.

    Args:
        state: The journal.
        retry: With a journal that does not answer.

    Attributes:
        progress: As last read. Any thread may read it: one reference.
        has_read: Whether it was read. Any thread may read it.
    """

    def __init__(self, state: State, retry: JournalRetry) -> None:
        self._state = state
        self._retry = retry
        self._took = 0.0
        self.progress = RunProgress()
        self.has_read = False

    async def wait_finished(self) -> None:
        """Read until every line of the input has its answer.

        Raises:
            StateUnavailableError: The journal does not answer, for longer than it is asked again.
        """
        while True:
            await self.refresh()
            if self.progress.finished:
                return
            pause = max(_READ_INTERVAL, _TIMES_AS_LONG * self._took)
            await asyncio.sleep(min(pause, _LONGEST_PAUSE))

    async def refresh(self) -> None:
        """Read once.

        Raises:
            JournalError: The journal has lost what it had before.
            StateUnavailableError: As in `wait_finished`.
        """
        progress = await self._retry.acall(self._timed_read)
        if self.progress.ingest.complete and not progress.ingest.complete:
            raise JournalError(
                "the journal has lost what it kept; its server must keep on disk what it "
                "acknowledges. Begin a new journal"
            )
        self.progress = progress
        self.has_read = True

    async def _timed_read(self) -> RunProgress:
        loop = asyncio.get_running_loop()
        began = loop.time()
        progress = await read_progress(self._state)
        self._took = loop.time() - began  # without the attempts that failed
        return progress
