"""Job: the pipeline behind ``rxlanggraph run``, and its supervisor.

    reader thread               loop's thread                writer thread
    InputReader ── messages ──> bridge.invoke ── results ──> Writer ── records ──> Sink
         ^                                                     │
         └──────────── a slot for each record written ─────────┘

The window limits how many lines are without a record: reading a line takes a slot, and writing its
record gives it back. The main thread alone decides when the job ends (`Supervisor`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from rxlanggraph import RxPyLangGraphBridge, TimeLimits
from rxlanggraph.bridge.internal import count_active, request_drain
from rxlanggraph.cli.errors import ExitStatus, OutputError
from rxlanggraph.cli.factories import MadeGraph
from rxlanggraph.cli.formats.readers import Format, InputLine, Source
from rxlanggraph.cli.formats.sinks import Sink
from rxlanggraph.cli.loading import can_continue
from rxlanggraph.cli.pipeline.limits import FailureLimit, RateLimiter
from rxlanggraph.cli.pipeline.line_tracker import LineCounts, LineTracker, line_ranges
from rxlanggraph.cli.pipeline.model_use import ModelOptions, ModelUse
from rxlanggraph.cli.pipeline.progress import Reporter
from rxlanggraph.cli.pipeline.reader import InputReader
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.cli.pipeline.summary import JobResult
from rxlanggraph.cli.pipeline.supervisor import Supervisor
from rxlanggraph.cli.pipeline.writer import Writer
from rxlanggraph.cli.stdio import print_stderr
from rxlanggraph.errors import RunDrainedError

if TYPE_CHECKING:
    from rxlanggraph.cli.live_page import LivePage
    from rxlanggraph.executors import Executor
    from rxlanggraph.telemetry import RunTraces
    from rxlanggraph.telemetry.prometheus import PrometheusMetrics

__all__ = [
    "CLOSE_SECONDS",
    "WINDOW_PER_RUN",
    "IOPaths",
    "Job",
    "JobOptions",
    "close_bridge",
    "make_bridge",
]

WINDOW_PER_RUN = 4
"""Slots of the window per concurrent run. A guess: with more, a few busy threads starve the others
less; with fewer, draining is shorter."""
CLOSE_SECONDS = 1.0
"""Seconds for runs to end that are cancelled when a job closes its bridge."""
_CANCEL_SECONDS = 5.0
# Seconds after which a loop whose lag is measured counts as blocked, which is logged.
_BLOCKED_AFTER = 0.5


class IOPaths(NamedTuple):
    """The input and the outputs of a job, as given on the command line.

    Attributes:
        input: The input's path, or ``-``.
        form: The format of the input; None goes by the suffix.
        output: The output's path, or ``-``; None: this process writes none.
        errors: The path for records that are not ok; None: they go to the output.
        stdout: Standard output.
    """

    input: str
    form: Format | None
    output: str | None
    errors: str | None
    stdout: TextIO

    @property
    def input_name(self) -> str:
        """The name of the input, for messages."""
        return "standard input" if self.input == "-" else self.input

    @property
    def on_terminal(self) -> bool:
        """Whether records go to a terminal, where they would break up a progress bar."""
        return "-" in (self.output, self.errors) and self.stdout.isatty()


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of the runs, named as on the command line. Times in seconds."""

    max_concurrency: int = 32
    thread_key: str | None = None
    timeout: float | None = None
    deadline: float | None = None
    retries: int = 0
    ordered: bool = False
    halt: FailureLimit | None = None
    rate: RateLimiter | None = None
    config: Mapping[str, Any] | None = None
    context: Mapping[str, Any] | None = None
    tracebacks: bool = False
    models: ModelOptions = field(default_factory=ModelOptions)
    metrics: PrometheusMetrics | None = None
    """The hooks whose metrics are served."""
    live: LivePage | None = None
    """The page that shows the runs."""
    traces: RunTraces | None = None
    """The hooks whose traces are exported."""
    executor: Executor | None = None
    """Where the graph is called; None in this process."""

    @property
    def limits(self) -> TimeLimits | None:
        """The limits of time for the bridge's ``timeout=``; None for no limit.

        The deadline counts from the beginning of a run: that many lines were read ahead, or wait
        for their thread, must not cost a message its time.
        """
        if self.timeout is None and self.deadline is None:
            return None
        return TimeLimits(attempt=self.timeout, run=self.deadline)


def make_bridge(made: MadeGraph, options: JobOptions, models: ModelUse) -> RxPyLangGraphBridge:
    """Make the bridge of a job, with its hooks."""
    metrics = options.metrics
    bridge = RxPyLangGraphBridge(
        made.loop,
        max_concurrency=options.max_concurrency,
        limits=models.limits,
        usage=models.usage,
        blocked_after=None if metrics is None else _BLOCKED_AFTER,
        executor=options.executor,
        name="run",
    )
    if options.traces is not None:
        bridge.add_hooks(options.traces)
    if metrics is not None:
        bridge.add_hooks(metrics)
        metrics.observe_loop(bridge)
    return bridge


def close_bridge(bridge: RxPyLangGraphBridge) -> None:
    """Close the bridge at the end of a job, and print the runs that do not end. Blocks.

    Normally these are only sync functions that exceed their timeout.
    """
    for run in bridge.close(0, cancel_timeout=CLOSE_SECONDS).stuck:
        print_stderr(f"left behind: {run.name}, which has been running for {run.age:.1f} s")


class Job:
    """One run of a graph over a source. All methods are for the main thread.

    Args:
        made: The graph that answers each message, and its loop.
        source: The input.
        output: Where results go.
        errors: Where records that are not ok go; None: to ``output``.
        reporter: Shows the progress.
        options: The options of the runs.
    """

    def __init__(
        self,
        made: MadeGraph,
        source: Source,
        *,
        output: Sink,
        errors: Sink | None,
        reporter: Reporter,
        options: JobOptions,
    ) -> None:
        self._graph = made.graph
        self._reporter = reporter
        self._options = options
        self._tracker = LineTracker()
        self._models = ModelUse(options.models)
        self._bridge = make_bridge(made, options, self._models)
        if options.live is not None:
            options.live.show(self._bridge)
        self._run_log = RunLog(
            self._bridge, options.retries, self._models, tracebacks=options.tracebacks
        )
        self._reader = InputReader(
            source,
            self._tracker,
            window=WINDOW_PER_RUN * options.max_concurrency,
            rate=options.rate,
            on_invalid=self._line_invalid,
            on_failure=lambda error: self._post(self._input_failed, source.name, error),
        )
        self._writer = Writer(
            self._tracker,
            output,
            errors,
            ordered=options.ordered,
            record_of=self._run_log.record_of,
            on_record=self._record_written,
            on_failure=self._writing_failed,
            on_end=lambda crash: self._post(self._writer_ended, crash),
        )
        # Confined to the writer thread:
        self._halted = False
        # Confined to the main thread:
        self._crash: Exception | None = None
        self._supervisor = Supervisor(
            self._reader.end, self._drain, self._cancel, lambda: self._tracker.counts().open
        )

    def run(self) -> JobResult:
        """Run until the input is processed, or something ends the job early.

        The main thread, which handles SIGINT and SIGTERM meanwhile: the first drains, and asks
        graphs that keep their threads in a database to stop between supersteps; the second cancels,
        the third is left to the system. Blocks.

        Returns:
            The outcomes of the lines that were read.

        Raises:
            Exception: A defect of this package, never of a graph, a line or a file.
        """
        started = time.monotonic()
        try:
            self._supervisor.run(self._start, self._report)
        finally:
            self._reader.end()
            close_bridge(self._bridge)
            self._supervisor.release()
            self._reporter.close()
        if self._crash is not None:
            raise self._crash
        counts = self._tracker.counts()
        numbers = line_ranges(line.number for line in self._tracker.open_lines())
        seconds = time.monotonic() - started
        status = self._supervisor.status(counts)
        reason, spent = self._supervisor.reason, self._models.spent()
        return JobResult(status, counts, numbers, reason, seconds, spent=spent)

    def _start(self) -> None:
        self._writer.start()
        self._subscribe()

    def _subscribe(self) -> None:
        options = self._options
        results = self._reader.messages().pipe(
            self._bridge.invoke(
                self._graph,
                ordered=options.ordered,
                timeout=options.limits,
                retry=self._run_log.retry,
                errors="emit",
                config=options.config,
                context=options.context,
            )
        )
        results.subscribe(
            on_next=self._writer.put,
            on_error=self._stream_failed,
            on_completed=self._writer.end,
        )

    def _report(self) -> None:
        self._reporter.update(self._tracker.counts(), count_active(self._bridge))

    # -- other threads ---------------------------------------------------------------------------

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        self._supervisor.post(call, *args)

    def _stream_failed(self, error: Exception) -> None:
        """In the thread of the loop, or of the reader."""
        if isinstance(error, RunDrainedError):  # its record says so
            self._writer.end()
        else:
            self._post(self._crashed, error)

    def _line_invalid(self, line: InputLine) -> None:
        """In the reader thread."""
        self._writer.put(line)

    def _record_written(self) -> None:
        """In the writer thread: check ``--halt``, and let the reader read another line."""
        limit = self._options.halt
        if limit is not None and not self._halted:
            counts = self._tracker.counts()
            if limit.reached(counts.failures, counts.finished):
                self._halted = True
                self._reader.end()  # at once, before the slot lets another line in
                self._post(self._halt_reached, counts)
        self._reader.give_back_slot()

    def _writing_failed(self, error: OutputError) -> None:
        """In the writer thread: end the job, since further results could not be written."""
        self._reader.end()
        self._post(self._output_failed, error)

    # -- the main thread --------------------------------------------------------------------------

    def _halt_reached(self, counts: LineCounts) -> None:
        self._supervisor.halt(counts.failures, counts.finished)

    def _input_failed(self, name: str, error: Exception) -> None:
        text = getattr(error, "strerror", None) or str(error)
        self._supervisor.stop(ExitStatus.USAGE, f"reading {name} failed: {text}")

    def _output_failed(self, error: OutputError) -> None:
        self._supervisor.stop(error.status, str(error))
        self._supervisor.cancel()

    def _crashed(self, error: Exception) -> None:
        self._crash = error
        self._reader.end()
        self._writer.end()

    def _writer_ended(self, crash: Exception | None) -> None:
        self._crash = self._crash or crash
        self._supervisor.end()

    def _drain(self) -> None:
        if can_continue(self._graph):
            request_drain(self._bridge)

    def _cancel(self) -> None:
        """Cancel the runs in flight; leave behind those that do not end."""
        # The stream ends in any case: even a stuck run has its result as soon as it is cancelled.
        self._bridge.cleanup_tasks(_CANCEL_SECONDS)
