"""JournalWorkers: from tasks of the journal to answers in it: claimed, run, completed.

Everything is confined to the loop of the journal's state, except for the ends of runs, which the
loop of the bridge reports. The graphs run on that other loop: a graph that blocks its loop must not
cost the other runs their leases.

A claim or a completion costs a wait for the journal's disk and several threads. So each call takes
as many lines as are waiting for it at that moment: one of a slow graph, hundreds of a quick one.
Lines are claimed ahead of the runs only as far as the rate of answers shows that they begin soon:

    held     claimed, and neither answered nor given back yet: ahead, running, or to be stored
    ahead    claimed, and not begun: no more than were answered in the last tenth of a second

If a process dies, each line that it holds loses an attempt. So no line is ahead while the process
holds a line that was claimed before, as that may have killed its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.internal import submitter
from rxlanggraph.bridge.run import Run
from rxlanggraph.cli.formats.records import Record, result_record, to_line, without_content
from rxlanggraph.cli.journal.model import (
    QUEUE,
    JournalLine,
    drained_key,
    line_from,
    message_id,
    trace_key,
)
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.job import JobOptions
from rxlanggraph.cli.pipeline.model_use import ModelUse
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import InvalidArgumentError, LeaseLostError, RunDrainedError
from rxlanggraph.state import Claim
from rxlanggraph.state.backend import MAX_PER_STEP

if TYPE_CHECKING:
    from rxlanggraph.telemetry import RunTraces

__all__ = ["JournalWorkers"]

# Seconds between two counts of the answers.
_PERIOD = 0.1
# Answers in that time from which on lines are claimed ahead: with fewer, claims one by one cost
# little. And the most lines that are ahead. Guesses.
_BUSY = 16
_MAX_AHEAD = 500
# Seconds after which a line that was to begin soon is given back to the other processes.
_MAX_WAIT = 1.0
# Characters of the answers in one call, so that it is short on every backend.
_BATCH_CHARACTERS = 1_000_000


class _HeldLine(NamedTuple):
    """A line that this process has claimed.

    Attributes:
        claim: The claim.
        line: The line.
        since: When it was claimed, in the loop's time.
    """

    claim: Claim
    line: JournalLine
    since: float


class _Answer(NamedTuple):
    """The answer to a line, to be stored.

    Attributes:
        held: The line.
        record: Its record.
        text: The same, as JSON text.
        continued: Whether its run went on where another one had been drained.
    """

    held: _HeldLine
    record: Record
    text: str
    continued: bool

    @classmethod
    def of(cls, held: _HeldLine, record: Record, *, continued: bool) -> Self:
        """Return the answer with a record, or with what of it can be written as JSON."""
        encoded, record = to_line(record)
        return cls(held, record, encoded.decode().rstrip("\n"), continued)

    def with_record(self, record: Record) -> Self:
        """Return the answer with another record."""
        return self.of(self.held, record, continued=self.continued)

    @property
    def is_ok(self) -> bool:
        """Whether the line is ok."""
        return bool(self.record["status"] == "ok")


class _EndedRuns:
    """Runs that have ended: put by any thread, taken by the loop, which is woken once for many.

    Args:
        loop: The loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived = asyncio.Event()  # confined to the loop
        # Guards the list. Reentrant: a finalizer may resolve a run. A leaf.
        self._lock = fork_safe_rlock()
        self._runs: list[Run] = []

    def put(self, run: Any) -> None:
        """Add a run. Any thread; never blocks."""
        with self._lock:
            is_first = not self._runs
            self._runs.append(run)
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._arrived.set)

    async def take(self) -> list[Run]:
        """Wait for runs, and remove them. On the loop."""
        await self._arrived.wait()
        self._arrived.clear()
        with self._lock:
            runs, self._runs = self._runs, []
        return runs


class JournalWorkers:
    """The workers of this process: as many runs at a time as ``max_concurrency`` allows.

    Args:
        journal: The journal with the tasks.
        bridge: The bridge that runs the graph.
        graph: The graph that answers each message.
        can_continue: Whether its runs may be stopped, and go on later.
        options: The options of the runs.
        run_log: Follows the runs of the bridge.
        models: What its runs may ask of models, and have used.
        lease: Seconds without a sign of life after which a worker loses its message.
        max_attempts: Worker crashes before a message is dead-lettered.
        on_answer: Called on the loop for each message answered here, with the number of its line,
            whether it is ok, and its record as JSON text.
    """

    def __init__(
        self,
        journal: OpenJournal,
        *,
        bridge: RxPyLangGraphBridge,
        graph: Any,
        can_continue: bool,
        options: JobOptions,
        run_log: RunLog,
        models: ModelUse,
        lease: float,
        max_attempts: int,
        on_answer: Callable[[int, bool, str], None],
    ) -> None:
        self._state = journal.state
        self._run = journal.run
        self._options = options
        self._traces = options.traces
        self._run_log = run_log
        self._models = models
        self._submit = submitter(
            bridge,
            graph,
            timeout=options.limits,
            retry=run_log.retry,
            errors="emit",
            config=options.config,
            context=options.context,
        )
        self._can_continue = can_continue
        self._lease = lease
        # A line that was ahead when the process died has lost an attempt: it needs another one.
        # With a rate one at a time.
        self._max_ahead = _MAX_AHEAD if max_attempts > 1 and options.rate is None else 0
        self._retry = journal.retry.acall
        self._on_answer = on_answer
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._claiming: asyncio.Task[list[Claim]] | None = None
        self._stopped = False
        self._cancelling = False
        self._held = 0
        # Of the lines held, those that were claimed before.
        self._suspects = 0
        self._ahead: deque[_HeldLine] = deque()
        # How many may be ahead, and the answers since that was decided.
        self._allowed = 0
        self._recent = 0
        # How many are being run; and the runs that have begun, each with whether it continues one.
        self._running = 0
        self._runs: dict[Run, tuple[_HeldLine, bool]] = {}
        self._answers: deque[_Answer] = deque()
        self._to_store = asyncio.Event()
        # Set when lines are no longer held, more may be ahead, or the pool is stopped.
        self._changed = asyncio.Event()
        # Made by `work`:
        self._ended: _EndedRuns
        self._group: asyncio.TaskGroup

    async def work(self) -> None:
        """Work until `stop`, and until the messages begun before are answered.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        self._ended = _EndedRuns(asyncio.get_running_loop())
        try:
            async with asyncio.TaskGroup() as self._group:
                background = [
                    self._group.create_task(work())
                    for work in (self._collect_ended, self._store_answers, self._watch_rate)
                ]
                await self._claim_all()
                self._release_ahead()
                while self._held:
                    await self._change()
                for task in background:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for run in list(self._runs):
                run.cancel()

    def stop(self) -> None:
        """Claim and begin nothing more. On the loop; idempotent."""
        self._stopped = True
        self._changed.set()
        if self._claiming is not None:
            self._claiming.cancel()

    def begin_cancelling(self) -> None:
        """Stop, and release the messages of runs that are cancelled from now on. On the loop."""
        self._cancelling = True
        self.stop()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # -- claiming ----------------------------------------------------------------------------

    async def _claim_all(self) -> None:
        """Claim until the pool is stopped."""
        while not self._stopped:
            room = self._room()
            # While lines are ahead, no run waits for a claim: wait until it is worth one.
            if room <= 0 or (self._ahead and room < self._allowed // 2):
                await self._change()
            else:
                self._take(await self._next_claims(min(room, MAX_PER_STEP)))

    def _room(self) -> int:
        allowed = 0 if self._suspects else self._allowed
        return self._options.max_concurrency + allowed - self._held

    async def _next_claims(self, count: int) -> list[Claim]:
        """Claim the next messages, one or more; none once the pool is stopped."""
        self._claiming = asyncio.ensure_future(self._claim(count))
        try:
            return await self._claiming
        except asyncio.CancelledError:
            pool = asyncio.current_task()
            if not self._stopped or pool is None or pool.cancelling():
                raise  # the pool itself is cancelled
            return []
        finally:
            self._claiming = None

    async def _claim(self, count: int) -> list[Claim]:
        if self._options.rate is not None:
            await asyncio.sleep(self._options.rate.reserve())
            count = 1
        return await self._retry(
            self._state.claim_tasks,
            QUEUE,
            count,
            worker=self._name,
            lease=self._lease,
            wait=math.inf,
        )

    def _take(self, claims: Sequence[Claim]) -> None:
        now = self._state.loop.time()
        if self._options.metrics is not None:
            self._options.metrics.count_claims(QUEUE, len(claims))
        for claim in claims:
            self._held += 1
            self._suspects += claim.attempt > 1
            self._ahead.append(_HeldLine(claim, line_from(claim.item), now))
        self._begin_runs()
        if self._suspects:
            self._release_ahead()

    def _release_ahead(self) -> None:
        while self._ahead:
            self._group.create_task(self._give_back(self._ahead.popleft()))

    async def _watch_rate(self) -> None:
        """Decide again and again how many lines may be ahead."""
        while True:
            await asyncio.sleep(_PERIOD)
            recent, self._recent = self._recent, 0
            self._allowed = min(recent, self._max_ahead) if recent >= _BUSY else 0
            if self._ahead and self._state.loop.time() - self._ahead[0].since > _MAX_WAIT:
                self._release_ahead()
            self._changed.set()

    # -- running -----------------------------------------------------------------------------

    def _begin_runs(self) -> None:
        while self._ahead and not self._stopped and self._running < self._options.max_concurrency:
            held = self._ahead.popleft()
            self._running += 1
            if self._can_continue or self._traces is not None:
                self._group.create_task(self._look_and_begin(held))
            else:
                self._begin(held, self._message(held), continued=False)

    async def _look_and_begin(self, held: _HeldLine) -> None:
        continued = False
        if self._can_continue:
            stored = await self._retry(self._state.get, drained_key(held.line.line))
            continued = stored.value is not None
        message = self._message(held, continued=continued)
        if self._traces is not None:
            message = await self._traced(message, held.line.line, self._traces)
        if not self._stopped:
            self._begin(held, message, continued=continued)
            return
        if self._traces is not None:
            self._traces.abandon(message)
        self._running -= 1
        await self._give_back(held)

    def _message(self, held: _HeldLine, *, continued: bool = False) -> StreamMessage:
        line = held.line
        return StreamMessage(
            None if continued else json.loads(line.content),
            thread_id=line.thread,
            metadata={"line": line.line, "attempt": held.claim.attempt},
            id=message_id(self._run, line.line),
        )

    async def _traced(self, message: StreamMessage, line: int, traces: RunTraces) -> StreamMessage:
        """Keep the span of a first attempt, before it begins; return what names it to others."""
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

    def _begin(self, held: _HeldLine, message: StreamMessage, *, continued: bool) -> None:
        run = self._submit(message)
        self._runs[run] = held, continued
        run.add_done_callback(self._ended.put)

    async def _collect_ended(self) -> None:
        """Pass the results of runs on, and begin others in their place."""
        while True:
            for run in await self._ended.take():
                self._running -= 1
                held, continued = self._runs.pop(run)
                self._pass_on(held, None if run.cancelled() else run.result(), continued=continued)
            self._begin_runs()

    def _pass_on(self, held: _HeldLine, result: StreamMessage | None, *, continued: bool) -> None:
        """Have the result of a line stored; None: its run was cancelled before it had one."""
        if result is None or (result.status == "cancelled" and self._cancelling):
            self._group.create_task(self._give_back(held))
            return
        if isinstance(result.error, RunDrainedError):
            self._group.create_task(self._put_back(held, result.error))
            return
        record = result_record(
            held.line.line,
            result,
            failed_attempts=self._run_log.take_failed_attempts((result.source or result).id),
            tracebacks=self._options.tracebacks,
            usage=self._models.record_of(result),
        )
        answer = _Answer.of(held, record, continued=continued)
        if answer.is_ok:
            self._answers.append(answer)
            self._to_store.set()
        else:
            self._group.create_task(self._store(answer))

    # -- storing -----------------------------------------------------------------------------

    async def _store_answers(self) -> None:
        """Store the answers that are ok, in each call all that are waiting."""
        while True:
            await self._to_store.wait()
            self._to_store.clear()
            while self._answers:
                await self._complete(self._next_batch())

    def _next_batch(self) -> list[_Answer]:
        batch: list[_Answer] = []
        characters = 0
        while self._answers and len(batch) < MAX_PER_STEP:
            characters += len(self._answers[0].text)
            if batch and characters > _BATCH_CHARACTERS:
                break
            batch.append(self._answers.popleft())
        return batch

    async def _complete(self, batch: Sequence[_Answer]) -> None:
        results = [(answer.held.claim, answer.text) for answer in batch]
        try:
            lost = await self._retry(self._state.complete_tasks, results)
        except InvalidArgumentError:  # one of them is longer than the server accepts
            for answer in batch:
                await self._store(answer)
            return
        lost_ones = {id(claim) for claim in lost}  # other workers have these, or have answered them
        for answer in batch:
            if id(answer.held.claim) in lost_ones:
                self._let_go(answer.held)
            else:
                await self._note(answer)

    async def _store(self, answer: _Answer) -> None:
        """Store one answer, ok or not; without its content if the server does not accept it."""
        try:
            try:
                await self._end_claim(answer)
            except InvalidArgumentError as refusal:
                reason = {"type": "UnstorableResult", "message": str(refusal), "node": None}
                answer = answer.with_record(without_content(answer.record, reason))
                await self._end_claim(answer)
        except LeaseLostError:
            self._let_go(answer.held)
        else:
            await self._note(answer)

    async def _end_claim(self, answer: _Answer) -> None:
        """End the claim of a line with its answer.

        Raises:
            InvalidArgumentError: The journal's server will never accept it.
        """
        claim = answer.held.claim
        if answer.is_ok:
            await self._retry(claim.complete, answer.text)
        else:
            # Final: a failure is an answer, and is not run again without --resume-failed.
            await self._retry(claim.fail, answer.text, final=True)

    async def _note(self, answer: _Answer) -> None:
        """Note that an answer is stored."""
        number = answer.held.line.line
        if answer.continued:
            await self._retry(self._state.delete, drained_key(number))
        if self._traces is not None and answer.is_ok:  # otherwise it may be requeued
            forgetting = self._retry(self._state.delete, trace_key(number))
            self._group.create_task(forgetting)
        self._recent += 1
        self._on_answer(number, answer.is_ok, answer.text)
        self._let_go(answer.held)

    async def _put_back(self, held: _HeldLine, error: RunDrainedError) -> None:
        # In this order: a process that is killed in between leaves a line that goes on, too.
        if error.begun:
            key = drained_key(held.line.line)
            await self._retry(self._state.set, key, error.checkpoint_id or "")
        await self._give_back(held)

    async def _give_back(self, held: _HeldLine) -> None:
        with contextlib.suppress(LeaseLostError):
            await self._retry(held.claim.release)
        self._let_go(held)

    def _let_go(self, held: _HeldLine) -> None:
        self._held -= 1
        self._suspects -= held.claim.attempt > 1
        self._changed.set()
