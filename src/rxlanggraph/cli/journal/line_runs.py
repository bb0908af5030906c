"""LineRuns: from claimed lines to the results of their runs.

A line is handed to the bridge as soon as it is claimed. One that is claimed ahead waits in the
queue of the bridge, and begins there when another run ends. What breaks otherwise: a place for a
run stays empty until the journal's loop, which may be busy with claims and answers, fills it.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.graphs.attempts import saver_of
from rxlanggraph.bridge.internal import cancel_unstarted, loop_of, submitter
from rxlanggraph.bridge.run import Run
from rxlanggraph.cli.factories import MadeGraph
from rxlanggraph.cli.journal.model import (
    CUT_OFF,
    JournalLine,
    drained_key,
    message_id,
    trace_key,
)
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.job import JobOptions
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.run_on_loop import await_on_loop
from rxlanggraph.state import Claim
from rxlanggraph.state.codec import loads

if TYPE_CHECKING:
    from rxlanggraph.telemetry import RunTraces

__all__ = ["HeldLine", "LineRuns"]


_READ_SECONDS = 10.0  # for the latest checkpoint of a thread; a guess


class HeldLine(NamedTuple):
    """A line that this process has claimed.

    Attributes:
        claim: The claim.
        line: The line.
        since: When it was claimed, in the loop's time.
        continued: Whether its run continues where an earlier one was drained, cancelled or killed.
        noted: Whether the journal has a note of an earlier run of it: the value "drained:N".
        cut_off: Whether its run was cancelled, and may have begun.
    """

    claim: Claim
    line: JournalLine
    since: float
    continued: bool = False
    noted: bool = False
    cut_off: bool = False


class LineRuns:
    """The runs of lines. Confined to the loop of the journal, except for their ends.

    A line is *ahead* if as many others as may run at a time were handed over before it, and have
    not ended.

    Args:
        journal: The journal with the lines.
        bridge: The bridge that runs the graph.
        made: The graph that answers each message, and its loop.
        can_continue: Whether its runs may be stopped, and go on later.
        options: The options of the runs.
        run_log: Follows the runs of the bridge.

    Attributes:
        prepares: Whether a line is looked up in the journal before it begins: use `prepared`
            instead of `message`.
    """

    def __init__(
        self,
        journal: OpenJournal,
        bridge: RxPyLangGraphBridge,
        made: MadeGraph,
        *,
        can_continue: bool,
        options: JobOptions,
        run_log: RunLog,
    ) -> None:
        self.prepares = can_continue or options.traces is not None
        self._state = journal.state
        self._retry = journal.retry.acall
        self._run = journal.run
        self._can_continue = can_continue
        self._made = made
        self._traces = options.traces
        self._max_concurrency = options.max_concurrency
        self._bridge = bridge
        self._submit = submitter(
            bridge,
            made.graph,
            timeout=options.limits,
            retry=run_log.retry,
            errors="emit",
            config=options.config,
            context=options.context,
        )
        # Handed over, and not returned by `ended` yet; in the order in which they were handed over.
        self._lines: dict[Run, HeldLine] = {}
        # Those of them that were not to begin any more.
        self._taken_back: set[Run] = set()
        self._arrived = asyncio.Event()
        # Guards the list. Reentrant: a finalizer may resolve a run. A leaf.
        self._lock = fork_safe_rlock()
        self._ended: list[Run] = []

    # -- before its run ----------------------------------------------------------------------

    def message(self, held: HeldLine) -> StreamMessage:
        """Return the message of a line."""
        line, its_id = held.line, message_id(self._run, held.line.line)
        return StreamMessage(
            None if held.continued else loads(line.content),
            thread_id=line.thread,
            metadata={
                "line": line.line,
                "attempt": held.claim.attempt,
                "message_id": its_id,
            },
            id=its_id,
        )

    async def prepared(self, held: HeldLine) -> tuple[HeldLine, StreamMessage]:
        """Return a line and its message as the journal knows them: continued, or traced before.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        if self._can_continue:
            note = (await self._retry(self._state.get, drained_key(held.line.line))).value
            may_be_cut_off = held.claim.attempt > 1 or note == CUT_OFF
            continued = isinstance(note, str) or (may_be_cut_off and await self._was_cut_off(held))
            held = held._replace(continued=continued, noted=note is not None)
        message = self.message(held)
        if self._traces is not None:
            message = await self._traced(message, held.line.line, self._traces)
        return held, message

    async def _was_cut_off(self, held: HeldLine) -> bool:
        """Whether the thread of a line ends in its own run, which was killed or cancelled.

        What breaks otherwise: the thread gets the line, and what its first steps wrote, twice.
        """
        saver = saver_of(self._made.graph)
        if held.line.thread is None or saver is None:
            return False
        thread = {"configurable": {"thread_id": held.line.thread, "checkpoint_ns": ""}}
        try:
            # Where runs use it: an asyncio saver serves one loop.
            loop = loop_of(self._bridge)
            async with asyncio.timeout(_READ_SECONDS):
                found = await await_on_loop(loop, saver.aget_tuple(thread))
        except Exception:  # a saver that fails, or does not answer, fails the run, too
            return False
        return found is not None and found.metadata.get("message_id") == message_id(
            self._run, held.line.line
        )

    async def _traced(self, message: StreamMessage, line: int, traces: RunTraces) -> StreamMessage:
        """Store the span of a first attempt before it begins; add it to the message of another."""
        own, key = traces.begin(message), trace_key(line)
        if own is None:
            return message
        try:
            if await self._retry(self._state.set_if_not_exists, key, own, None):
                return message
            first = (await self._retry(self._state.get, key)).value
        except BaseException:
            traces.abandon(message)
            raise
        if first in {None, own}:  # answered elsewhere meanwhile; kept by a call that was repeated
            return message
        return message.replace(metadata={**message.metadata, "traceparent": first})

    def note_of(self, held: HeldLine) -> str | bool | None:
        """Return what the journal is to know of a line whose run was cancelled; None: nothing."""
        if not self._can_continue or held.line.thread is None:
            return None
        return "" if held.continued else CUT_OFF

    def abandon(self, message: StreamMessage) -> None:
        """Drop a message that was `prepared`, and is not begun after all."""
        if self._traces is not None:
            self._traces.abandon(message)

    # -- its run -----------------------------------------------------------------------------

    def begin(self, held: HeldLine, message: StreamMessage) -> None:
        """Hand a line over to the bridge, with its message."""
        run = self._submit(message)
        self._lines[run] = held
        run.add_done_callback(self._put_ended)

    @property
    def places(self) -> int:
        """How many more lines can be handed over without being ahead."""
        return max(0, self._max_concurrency - len(self._lines))

    @property
    def first_ahead(self) -> HeldLine | None:
        """The first line that is ahead; None if there is none."""
        return next(islice(self._lines.values(), self._max_concurrency, None), None)

    def take_back_ahead(self) -> None:
        """Cancel the runs of the lines that are ahead, unless they have begun meanwhile."""
        ahead = [*islice(self._lines, self._max_concurrency, None)]
        self._taken_back.update(ahead)
        cancel_unstarted(self._bridge, ahead)

    def cancel(self) -> None:
        """Cancel all runs."""
        for run in list(self._lines):
            run.cancel()

    async def ended(self) -> list[tuple[HeldLine, StreamMessage | None]]:
        """Wait for lines whose runs have ended, and return them with their results.

        A run that was cancelled before it had a result has None.
        """
        await self._arrived.wait()
        self._arrived.clear()
        with self._lock:
            runs, self._ended = self._ended, []
        return [self._result_of(run) for run in runs]

    def _result_of(self, run: Run) -> tuple[HeldLine, StreamMessage | None]:
        held, was_taken_back = self._lines.pop(run), run in self._taken_back
        self._taken_back.discard(run)
        if run.cancelled():
            return held._replace(cut_off=not was_taken_back), None
        return held, run.result()

    def _put_ended(self, run: Any) -> None:
        """Any thread; never blocks. Wakes the loop once for many runs."""
        with self._lock:
            is_first = not self._ended
            self._ended.append(run)
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self._state.loop.call_soon_threadsafe(self._arrived.set)
