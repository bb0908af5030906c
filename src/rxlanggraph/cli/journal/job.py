"""JournalJob: what ``rxlanggraph run --journal`` does in one of the processes that share a run.

    reader thread    loop of the journal                                      writer thread
    Ingester ─ tasks ─> journal ─ claims ─> WorkerPool ─ answers ─> journal ─ records ─> Output
                                              │  ^
                                              v  │ loop of the bridge
                                             graphs

The parts communicate only through the journal, so that each may die at any moment, and continue in
another process. One hint takes a shorter way: the writer is told which lines are answered here, so
that it reads each answer once. The main thread supervises, as in `Job`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.cli.errors import CommandError, ExitStatus
from rxlanggraph.cli.journal.output_file import Output
from rxlanggraph.cli.journal.progress import ProgressMonitor
from rxlanggraph.cli.journal.reader import Ingester, InputFile
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.journal.workers import WorkerPool
from rxlanggraph.cli.journal.writer import JournalWriter
from rxlanggraph.cli.pipeline.job import CLOSE_SECONDS, JobOptions, close_bridge
from rxlanggraph.cli.pipeline.limits import FailureLimit
from rxlanggraph.cli.pipeline.progress import Reporter
from rxlanggraph.cli.pipeline.summary import JobResult
from rxlanggraph.cli.pipeline.supervisor import Supervisor
from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError

__all__ = ["JournalJob", "JournalOptions"]

_CANCEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How to share a run.

    Args:
        lease: Seconds after which a worker that is silent has lost its messages.
        max_attempts: Worker crashes before a message is dead-lettered.
    """

    lease: float
    max_attempts: int


class _FailureCounter:
    """What ``--halt`` counts in this process. Any thread; its Lock, a leaf, guards the fields."""

    def __init__(self, limit: FailureLimit | None) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self.finished = 0
        self.failures = 0

    def note(self, finished: int, failures: int) -> bool:
        """Count; return whether that is too many failures."""
        with self._lock:
            self.finished += finished
            self.failures += failures
            limit = self._limit
            return limit is not None and limit.reached(self.failures, self.finished)


class JournalJob:
    """One process's part in a run. All methods are for the main thread.

    Args:
        graph: What answers each message.
        journal: What is shared with the other processes.
        source: The input.
        output: Where results go; None: another process writes them, or a later one.
        errors: Where what is not ok goes; None: to ``output``.
        reporter: Shows how far it is.
        options: How to run.
        sharing: How to share the run.
    """

    def __init__(
        self,
        graph: Any,
        journal: OpenJournal,
        source: InputFile,
        *,
        output: Output | None,
        errors: Output | None,
        reporter: Reporter,
        options: JobOptions,
        sharing: JournalOptions,
    ) -> None:
        self._loop = journal.state.loop
        self._reporter = reporter
        self._size = source.size
        self._failures = _FailureCounter(options.halt)
        self._bridge = RxPyLangGraphBridge(max_concurrency=options.max_concurrency, name="run")
        self._supervisor = Supervisor(self._stop, self._cancel, self._in_flight)
        self._monitor = ProgressMonitor(journal.state, journal.retry)
        self._workers = WorkerPool(
            journal,
            bridge=self._bridge,
            graph=graph,
            options=options,
            lease=sharing.lease,
            on_answer=self._note_answer,
        )
        self._ingester = Ingester(
            journal,
            source,
            max_attempts=sharing.max_attempts,
            on_invalid=lambda count: self._count(count, count),
            on_end=partial(self._supervisor.post, self._part_ended, "ingester"),
        )
        self._writer = None
        if output is not None:
            self._writer = JournalWriter(
                journal,
                source,
                output=output,
                errors=errors,
                ordered=options.ordered,
                progress=lambda: self._monitor.progress,
                on_end=partial(self._supervisor.post, self._part_ended, "writer"),
            )
        # Confined to the loop of the journal, and read by the main thread when that has done:
        self._answered = 0
        # Confined to the main thread:
        self._working: Future[None] | None = None
        self._parts = {"ingester", "workers"} | ({"writer"} if self._writer is not None else set())
        self._crash: Exception | None = None

    def run(self) -> JobResult:
        """Run until every line is answered and written, or to the first thing that ends it early.

        The main thread, which handles SIGINT and SIGTERM meanwhile, as `Job.run` does. Blocks.

        Returns:
            How far the run is, in all processes.

        Raises:
            Exception: A defect of this package, never of a graph, a line, a file or a server.
        """
        started = time.monotonic()
        try:
            self._supervisor.run(self._start, self._report)
        finally:
            self._stop()
            close_bridge(self._bridge)
            self._supervisor.release()
            self._reporter.close()
        if self._crash is not None:
            raise self._crash
        counts = self._monitor.progress.counts(self._size)
        status = self._supervisor.status(counts)
        seconds = time.monotonic() - started
        return JobResult(status, counts, "", self._supervisor.reason, seconds, self._answered)

    def _start(self) -> None:
        self._ingester.start()
        if self._writer is not None:
            self._writer.start()
        self._working = asyncio.run_coroutine_threadsafe(self._work(), self._loop)
        self._working.add_done_callback(
            lambda done: self._supervisor.post(self._part_ended, "workers", _error_of(done))
        )

    async def _work(self) -> None:
        """On the loop of the journal."""
        working = asyncio.ensure_future(self._workers.work())
        watching = asyncio.ensure_future(self._monitor.wait_finished())
        try:
            await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
            self._workers.stop()
            await working
            await (watching if watching.done() else self._monitor.refresh())
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.wait([working, watching])

    def _report(self) -> None:
        if self._monitor.has_read:
            self._reporter.update(self._monitor.progress.counts(self._size), self._in_flight())

    def _in_flight(self) -> int:
        return self._bridge.statistics().in_flight

    # -- other threads -----------------------------------------------------------------------

    def _note_answer(self, line: int, ok: bool) -> None:
        """On the loop of the journal."""
        self._answered += 1
        if self._writer is not None:
            self._writer.note_answered(line)
        self._count(1, 0 if ok else 1)

    def _count(self, finished: int, failures: int) -> None:
        """Any thread."""
        if self._failures.note(finished, failures):
            self._on_loop(self._workers.stop)  # at once, before much more is claimed
            self._supervisor.post(self._halt_reached)

    def _on_loop(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(call)

    # -- what the main thread does about it --------------------------------------------------

    def _stop(self) -> None:
        """Claim nothing more. What has been claimed is answered, what is answered is written."""
        self._ingester.end()
        self._on_loop(self._workers.stop)

    def _cancel(self) -> None:
        """Cancel what is in flight: it stays in the journal, unanswered."""
        if self._writer is not None:
            self._writer.stop()
        self._on_loop(self._workers.cancelling)
        self._bridge.cleanup_tasks(_CANCEL_SECONDS)
        if self._working is not None:  # a journal that does not answer is not waited for
            self._on_loop(partial(self._loop.call_later, CLOSE_SECONDS, self._working.cancel))

    def _halt_reached(self) -> None:
        counter = self._failures
        self._supervisor.halt(counter.failures, counter.finished)

    def _part_ended(self, part: str, error: Exception | None) -> None:
        self._parts.discard(part)
        if isinstance(error, StateUnavailableError):
            self._supervisor.stop(
                ExitStatus.JOURNAL_FAILED,
                f"the journal does not answer: {error}; when it is back, continue with --resume",
            )
        elif isinstance(error, InvalidArgumentError):
            self._supervisor.stop(
                ExitStatus.JOURNAL_FAILED,
                f"the journal refuses what it is asked for: {error}; when that is mended, go on "
                "with --resume",
            )
        elif isinstance(error, CommandError):
            self._supervisor.stop(error.status, str(error))
        elif error is not None:
            self._crash = self._crash or error
            self._stop()
        if self._writer is not None and "workers" not in self._parts:
            # What was claimed is answered; nothing more will come from here.
            complete = self._monitor.progress.finished and self._crash is None
            self._writer.end(complete=complete)
        if not self._parts:
            self._supervisor.end()


def _error_of(done: Future[None]) -> Exception | None:
    if done.cancelled():
        return None
    error = done.exception()
    assert error is None or isinstance(error, Exception)
    return error
