"""Job: the pipeline behind ``rxlanggraph run``, and what steers it.

    reader thread         loop's thread                  writer thread
    Feed ── messages ──> bridge.invoke ── results ──> Writer ── records ──> Sink
      ^                                                 │
      └──────────── a slot for each record written ─────┘

Bounded by one window: no more lines are read than may be without a record. Steered by the main
thread alone: signal handlers and the other threads put what happened into one queue (a
`SimpleQueue`, whose ``put`` may interrupt itself), and the main thread acts on it.
"""

from __future__ import annotations

import queue
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.cli.errors import ExitStatus, OutputError
from rxlanggraph.cli.feed import Feed
from rxlanggraph.cli.ledger import Account, Ledger, line_ranges
from rxlanggraph.cli.limits import Halt, Rate
from rxlanggraph.cli.lines import Line
from rxlanggraph.cli.progress import Reporter, say
from rxlanggraph.cli.sinks import Sink
from rxlanggraph.cli.sources import Source
from rxlanggraph.cli.summary import Outcome
from rxlanggraph.cli.writer import Writer

__all__ = ["WINDOW_PER_RUN", "Job", "JobOptions"]

WINDOW_PER_RUN = 4
"""Lines taken in for each run that may be under way: enough that a few busy threads do not starve
the others, and few enough that draining is soon done. A guess, like every such number."""
_REFRESH = 0.2
_CANCEL_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_HANDLED = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How to run; the fields are those of the command line. Times in seconds."""

    max_concurrency: int = 32
    thread_key: str | None = None
    timeout: float | None = None
    retries: int = 0
    ordered: bool = False
    halt: Halt | None = None
    rate: Rate | None = None


class Job:
    """One run of a graph over a source. All methods are for the main thread.

    Args:
        graph: What answers each message.
        source: The input.
        output: Where results go.
        errors: Where what is not ok goes; None: to ``output``.
        reporter: Shows how far it is.
        options: How to run.
    """

    def __init__(
        self,
        graph: Any,
        source: Source,
        *,
        output: Sink,
        errors: Sink | None,
        reporter: Reporter,
        options: JobOptions,
    ) -> None:
        self._graph = graph
        self._reporter = reporter
        self._options = options
        self._ledger = Ledger()
        self._bridge = RxPyLangGraphBridge(max_concurrency=options.max_concurrency, name="run")
        self._feed = Feed(
            source,
            self._ledger,
            window=WINDOW_PER_RUN * options.max_concurrency,
            thread_key=options.thread_key,
            rate=options.rate,
            on_broken=self._line_broken,
            on_failure=lambda error: self._tell(self._input_failed, source.name, error),
        )
        self._writer = Writer(
            self._ledger,
            output,
            errors,
            ordered=options.ordered,
            on_record=self._record_written,
            on_failure=self._writing_failed,
            on_end=lambda crash: self._tell(self._writer_ended, crash),
        )
        # Written by any thread, taken by the main thread: what it has to do next.
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Confined to the writer thread:
        self._halted = False
        # Confined to the main thread:
        self._ended = False
        self._signals = 0
        self._cancelled = False
        self._crash: Exception | None = None
        self._cause: ExitStatus | None = None
        self._reason: str | None = None

    def run(self) -> Outcome:
        """Run to the end, or to the first thing that ends it early.

        The main thread, which handles SIGINT and SIGTERM meanwhile: the first drains, the second
        cancels, the third is left to the system. Blocks.

        Returns:
            What became of every line that was read.

        Raises:
            Exception: A defect of this package, never of a graph, a line or a file.
        """
        started = time.monotonic()
        previous = {number: signal.signal(number, self._signalled) for number in _HANDLED}
        try:
            self._writer.start()
            self._subscribe()
            self._supervise()
        finally:
            self._feed.end()
            self._close_bridge()
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._reporter.close()
        if self._crash is not None:
            raise self._crash
        account = self._ledger.account()
        numbers = line_ranges(line.number for line in self._ledger.open_lines())
        seconds = time.monotonic() - started
        return Outcome(self._status(account), account, numbers, self._reason, seconds)

    def _subscribe(self) -> None:
        options = self._options
        results = self._feed.messages().pipe(
            self._bridge.invoke(
                self._graph,
                ordered=options.ordered,
                timeout=options.timeout,
                retry=options.retries or None,
                errors="emit",
            )
        )
        results.subscribe(
            on_next=self._writer.put,
            on_error=lambda error: self._tell(self._crashed, error),
            on_completed=self._writer.end,
        )

    def _close_bridge(self) -> None:
        # Normally nothing is left but sync functions that run on beyond their timeout.
        for run in self._bridge.close(0, cancel_timeout=_CLOSE_SECONDS).stuck:
            say(f"left behind: {run.name}, which has been running for {run.age:.1f} s")

    def _supervise(self) -> None:
        while not self._ended:
            try:
                event = self._events.get(timeout=_REFRESH)
            except queue.Empty:
                pass
            else:
                event()
            self._reporter.update(self._ledger.account(), self._bridge.statistics().in_flight)

    def _status(self, account: Account) -> ExitStatus:
        if self._cause is not None:
            return self._cause
        return ExitStatus.OK if account.ok == account.read else ExitStatus.SOME_FAILED

    # -- other threads, and signal handlers -----------------------------------------------------

    def _tell(self, what: Callable[..., None], *about: Any) -> None:
        self._events.put(partial(what, *about))

    def _signalled(self, number: int, _: FrameType | None) -> None:
        """In the main thread, between any two of its steps."""
        self._signals += 1
        if self._signals > 1:
            self._leave_signals_to_system()  # at once: the third one must not wait in the queue
        self._tell(self._handle_signal, number, self._signals)

    def _line_broken(self, line: Line) -> None:
        """In the reader thread."""
        self._writer.put(line)

    def _record_written(self) -> None:
        """In the writer thread: a line has come to its end."""
        halt = self._options.halt
        if halt is not None and not self._halted:
            account = self._ledger.account()
            if halt.reached(account.failures, account.finished):
                self._halted = True
                self._feed.end()  # at once, before the slot lets another line in
                self._tell(self._halt_reached, account)
        self._feed.give_back_slot()

    def _writing_failed(self, error: OutputError) -> None:
        """In the writer thread: whatever runs from now on would run for nothing."""
        self._feed.end()
        self._tell(self._output_failed, error)

    # -- what the main thread does about it -----------------------------------------------------

    def _stop(self, cause: ExitStatus, reason: str) -> None:
        """Take in nothing more. What has been taken in goes on."""
        self._feed.end()
        # A record that cannot be written is worse news than whatever came before it.
        if self._cause is None or cause is ExitStatus.OUTPUT_FAILED:
            self._cause, self._reason = cause, reason

    def _handle_signal(self, number: int, count: int) -> None:
        if count > 1:
            say("cancelling what is in flight")
            self._cancel()
            return
        open_lines = self._ledger.account().open
        if number == signal.SIGINT:
            say(f"draining: {open_lines:,} still on the way; Ctrl-C again cancels them")
            self._stop(ExitStatus.INTERRUPTED, "interrupted by Ctrl-C")
        else:
            say(f"draining: {open_lines:,} still on the way")
            self._stop(ExitStatus.TERMINATED, "ended by SIGTERM")

    def _halt_reached(self, account: Account) -> None:
        failures = f"{account.failures:,} of {account.finished:,} messages failed"
        self._stop(ExitStatus.HALTED, f"halted: {failures}")

    def _input_failed(self, name: str, error: Exception) -> None:
        text = getattr(error, "strerror", None) or str(error)
        self._stop(ExitStatus.USAGE, f"reading {name} failed: {text}")

    def _output_failed(self, error: OutputError) -> None:
        self._stop(error.status, str(error))
        self._cancel()

    def _crashed(self, error: Exception) -> None:
        self._crash = error
        self._feed.end()
        self._writer.end()

    def _writer_ended(self, crash: Exception | None) -> None:
        self._crash = self._crash or crash
        self._ended = True

    def _leave_signals_to_system(self) -> None:
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)

    def _cancel(self) -> None:
        """Cancel what is in flight; give up what does not end even so."""
        self._leave_signals_to_system()
        if self._cancelled:
            return
        self._cancelled = True
        # Each cancelled run has its result at once, a stuck one too: the stream always ends.
        self._bridge.cleanup_tasks(_CANCEL_SECONDS)
