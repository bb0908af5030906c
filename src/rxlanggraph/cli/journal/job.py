"""JournalJob: one process's part in ``rxlanggraph run --journal``.

    reader thread    loop of the journal                                      writer thread
    Ingester ─ tasks ─> journal ─ claims ─> JournalWorkers ─ answers ─> journal ─ records ─> Output
                                              │  ^
                                              v  │ loop of the bridge
                                             graphs

The parts communicate only through the journal, so that each may die at any moment, and continue in
another process. The exception is a hint: the workers report to the writer which lines they have
answered, and with what, so that it reads only the answers of others. The main thread supervises, as
in `Job`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from rxlanggraph.bridge.internal import count_active, request_drain
from rxlanggraph.cli.errors import CommandError, ExitStatus
from rxlanggraph.cli.factories import MadeGraph
from rxlanggraph.cli.journal.line_runs import LineRuns
from rxlanggraph.cli.journal.output_file import Output
from rxlanggraph.cli.journal.progress import ProgressMonitor, progress_as_json
from rxlanggraph.cli.journal.reader import Ingester, InputFile
from rxlanggraph.cli.journal.results import LineResult
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.journal.workers import JournalWorkers
from rxlanggraph.cli.journal.writer import JournalWriter
from rxlanggraph.cli.loading import can_continue
from rxlanggraph.cli.pipeline.job import CLOSE_SECONDS, JobOptions, close_bridge, make_bridge
from rxlanggraph.cli.pipeline.limits import FailureLimit
from rxlanggraph.cli.pipeline.model_use import ModelUse
from rxlanggraph.cli.pipeline.progress import Reporter
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.cli.pipeline.summary import JobResult
from rxlanggraph.cli.pipeline.supervisor import Supervisor
from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError, UndecodableError
from rxlanggraph.live.schema import JournalProgress

__all__ = ["JournalJob", "JournalOptions"]

_CANCEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How processes share a run.

    Args:
        lease: Seconds without a sign of life after which a worker loses its messages.
        max_attempts: Worker crashes before a message is dead-lettered.
    """

    lease: float
    max_attempts: int


class _FailureCounter:
    """Counts for ``--halt`` the lines that were finished in this process. Any thread."""

    def __init__(self, limit: FailureLimit | None) -> None:
        self._limit = limit
        # A leaf; a plain Lock, since neither signal handlers nor finalizers come here. Guards the
        # two after it.
        self._lock = threading.Lock()
        self._finished = 0
        self._failures = 0

    def add(self, finished: int, failures: int) -> tuple[int, int] | None:
        """Add to the counts of finished lines and, among them, of failures.

        Returns:
            Both counts, failures first, if there are too many failures; otherwise None.
        """
        with self._lock:
            self._finished += finished
            self._failures += failures
            limit = self._limit
            if limit is None or not limit.reached(self._failures, self._finished):
                return None
            return self._failures, self._finished


class JournalJob:
    """One process's part in a run. All methods are for the main thread.

    Args:
        made: The graph that answers each message, and its loop.
        journal: The journal that all processes of the run share.
        source: The input.
        output: Where results go; None: another process writes them, or a later one.
        errors: Where records that are not ok go; None: to ``output``.
        reporter: Shows the progress.
        options: The options of the runs.
        sharing: How processes share the run.
    """

    def __init__(
        self,
        made: MadeGraph,
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
        self._journal = journal
        self._size = source.size
        self._failures = _FailureCounter(options.halt)
        self._models = ModelUse(options.models, journal.state)
        self._bridge = make_bridge(made, options, self._models)
        run_log = RunLog(self._bridge, options.retries, self._models, tracebacks=options.tracebacks)
        self._supervisor = Supervisor(self._stop, self._drain, self._cancel, self._in_flight)
        self._monitor = ProgressMonitor(journal.state, journal.retry)
        if options.live is not None:
            options.live.show(self._bridge, journal=self._progress)
        self._can_continue = can_continue(made.graph)
        runs = LineRuns(
            journal,
            self._bridge,
            made,
            can_continue=self._can_continue,
            options=options,
            run_log=run_log,
        )
        self._workers = JournalWorkers(
            journal,
            runs,
            options=options,
            run_log=run_log,
            lease=sharing.lease,
            max_attempts=sharing.max_attempts,
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
                monitor=self._monitor,
                on_end=partial(self._supervisor.post, self._part_ended, "writer"),
            )
        # Confined to the loop of the journal until the workers have ended; then the main thread's:
        self._answered = 0
        # Confined to the main thread:
        self._working: Future[None] | None = None
        self._parts = {"ingester", "workers"} | ({"writer"} if self._writer is not None else set())
        self._crash: Exception | None = None

    def run(self) -> JobResult:
        """Run until every line is answered and written, or something ends the run early.

        The main thread, which handles SIGINT and SIGTERM meanwhile, as `Job.run` does. Blocks.

        Returns:
            The progress of the run, in all processes.

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
        reason, spent = self._supervisor.reason, self._models.spent()
        return JobResult(status, counts, "", reason, seconds, self._answered, spent)

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
            progress = self._monitor.progress
            self._reporter.update(progress.counts(self._size), progress.stats.claimed)

    def _progress(self) -> JournalProgress | None:
        """Any thread."""
        if not self._monitor.has_read:
            return None
        return progress_as_json(self._journal.name, self._journal.run, self._monitor.progress)

    def _in_flight(self) -> int:
        return count_active(self._bridge)

    # -- other threads -----------------------------------------------------------------------

    def _note_answer(self, line: int, ok: bool, text: str) -> None:
        """On the loop of the journal."""
        self._answered += 1
        self._monitor.note_answered()
        if self._writer is not None:
            self._writer.note_answered(line, LineResult(ok, text))
        self._count(1, 0 if ok else 1)

    def _count(self, finished: int, failures: int) -> None:
        """Any thread."""
        too_many = self._failures.add(finished, failures)
        if too_many is not None:
            self._on_loop(self._workers.stop)  # at once, before much more is claimed
            self._supervisor.post(self._supervisor.halt, *too_many)

    def _on_loop(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(call)

    # -- the main thread ---------------------------------------------------------------------

    def _stop(self) -> None:
        """Claim nothing more. Claimed messages are still answered, and answers written."""
        self._ingester.end()
        self._on_loop(self._workers.stop)

    def _drain(self) -> None:
        """Stop runs between supersteps; their messages go on from there when they are resumed."""
        if self._can_continue:
            request_drain(self._bridge)

    def _cancel(self) -> None:
        """Cancel the runs in flight; their messages stay in the journal, unanswered."""
        if self._writer is not None:
            self._writer.stop()
        self._on_loop(self._workers.begin_cancelling)
        self._bridge.cleanup_tasks(_CANCEL_SECONDS)
        if self._working is not None:  # a journal that does not answer is not waited for
            self._on_loop(partial(self._loop.call_later, CLOSE_SECONDS, self._working.cancel))

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
                f"the journal refuses a request: {error}; when that is solved, continue with "
                "--resume",
            )
        elif isinstance(error, UndecodableError):
            self._supervisor.stop(ExitStatus.JOURNAL_FAILED, f"the journal cannot be read: {error}")
        elif isinstance(error, CommandError):
            self._supervisor.stop(error.status, str(error))
        elif error is not None:
            self._crash = self._crash or error
            self._stop()
        if self._writer is not None and "workers" not in self._parts:
            # The workers have ended: this process answers nothing more.
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
