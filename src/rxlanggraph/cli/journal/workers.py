"""JournalWorkers: claims tasks of the journal, and has them run and their answers stored.

Everything is confined to the loop of the journal's state. The graphs run on the loop of the bridge:
a graph that blocks its loop must not cost the other runs their leases.

A claim waits for the journal's disk, and crosses several threads. So each call takes as many lines
as there is room for at that moment: one for a slow graph, hundreds for a quick one. Lines are
claimed ahead of the runs only as far as the rate of answers shows that they will begin soon:

    held     claimed, and neither answered nor given back yet: ahead, running, or to be stored
    ahead    claimed, and not begun: no more than were answered lately in a tenth of a second

If a process dies, each line that it holds loses an attempt. So no line is ahead while the process
holds a line that was claimed before, as that may have killed its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from rxlanggraph import StreamMessage
from rxlanggraph.cli.journal.answers import Answer, AnswerStore
from rxlanggraph.cli.journal.line_runs import HeldLine, LineRuns
from rxlanggraph.cli.journal.model import QUEUE, drained_key, line_from
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.job import JobOptions
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.errors import LeaseLostError, RunDrainedError
from rxlanggraph.state import Claim
from rxlanggraph.state.backend import MAX_PER_STEP

__all__ = ["JournalWorkers"]

# Seconds between two counts of the answers.
_PERIOD = 0.1
# Answers in that time from which on lines are claimed ahead: with fewer, claims one by one cost
# little. And the most lines that are ahead. Guesses.
_BUSY = 16
_MAX_AHEAD = 500
# Seconds for which results are left to gather while lines are ahead, which begin meanwhile. To
# collect results, the journal's loop has to interrupt that of the runs. A guess.
_GATHERING = 0.02
# Seconds after which a line that was to begin soon is given back to the other processes.
_MAX_WAIT = 1.0


class _Claims:
    """The claims of this process: how many there are, and how many more there may be.

    Args:
        journal: The journal with the tasks.
        options: The options of the runs.
        lease: Seconds without a sign of life after which a worker loses its message.
        max_attempts: Worker crashes before a message is dead-lettered.

    Attributes:
        held: How many lines are held.
        suspects: How many of them were claimed before.
        stopped: Whether `stop` was called.
    """

    def __init__(
        self, journal: OpenJournal, options: JobOptions, lease: float, max_attempts: int
    ) -> None:
        self.held = 0
        self.suspects = 0
        self.stopped = False
        self._state = journal.state
        self._retry = journal.retry.acall
        self._options = options
        self._lease = lease
        self._worker = f"{socket.gethostname()}:{os.getpid()}"
        # If the process dies, a line that is ahead loses an attempt: it needs another one. With a
        # rate, lines are claimed one at a time.
        self._max_ahead = _MAX_AHEAD if max_attempts > 1 and options.rate is None else 0
        # How many may be ahead, and the answers since that was decided.
        self._allowed = 0
        self._answered = 0
        self._claiming: asyncio.Task[list[Claim]] | None = None
        # Set when lines are no longer held, more may be ahead, or the workers are stopped.
        self._changed = asyncio.Event()

    async def next(self, is_any_ahead: Callable[[], bool]) -> list[HeldLine]:
        """Wait for room, and claim the next lines, one or more; none once they are stopped.

        Args:
            is_any_ahead: Whether lines are ahead. While they are, no run waits for a claim, so it
                waits until one is worth it.
        """
        while not self.stopped:
            room = self._options.max_concurrency - self.held
            if not self.suspects:
                room += self._allowed
            if room <= 0 or (room < self._allowed // 2 and is_any_ahead()):
                await self.changed()
            else:
                claims = await self._claim_unless_stopped(min(room, MAX_PER_STEP))
                now = asyncio.get_running_loop().time()
                self.held += len(claims)
                self.suspects += sum(claim.attempt > 1 for claim in claims)
                return [HeldLine(claim, line_from(claim.item), now) for claim in claims]
        return []

    async def _claim_unless_stopped(self, count: int) -> list[Claim]:
        self._claiming = asyncio.ensure_future(self._claim(count))
        try:
            return await self._claiming
        except asyncio.CancelledError:
            workers = asyncio.current_task()
            if not self.stopped or workers is None or workers.cancelling():
                raise  # the workers themselves are cancelled
            return []
        finally:
            self._claiming = None

    async def _claim(self, count: int) -> list[Claim]:
        if self._options.rate is not None:
            await asyncio.sleep(self._options.rate.reserve())
            count = 1
        claims = await self._retry(
            self._state.claim_tasks,
            QUEUE,
            count,
            worker=self._worker,
            lease=self._lease,
            wait=math.inf,
        )
        if self._options.metrics is not None:
            self._options.metrics.count_claims(QUEUE, len(claims))
        return claims

    def let_go(self, held: HeldLine, *, answered: bool) -> None:
        """Note that the claim of a line has ended."""
        self.held -= 1
        self.suspects -= held.claim.attempt > 1
        self._answered += answered
        self._changed.set()

    def adapt(self) -> None:
        """Decide how many lines may be ahead; called once in each period."""
        # By half at most: a disk, or a busy machine, may hold the answers of a moment up.
        answered, self._answered = max(self._answered, self._allowed // 2), 0
        self._allowed = min(answered, self._max_ahead) if answered >= _BUSY else 0
        self._changed.set()

    async def changed(self) -> None:
        """Wait until lines are no longer held, more may be ahead, or they are stopped."""
        self._changed.clear()
        await self._changed.wait()

    def stop(self) -> None:
        """Claim nothing more. Idempotent."""
        self.stopped = True
        self._changed.set()
        if self._claiming is not None:
            self._claiming.cancel()


class JournalWorkers:
    """The workers of this process: as many runs at a time as ``max_concurrency`` allows.

    Args:
        journal: The journal with the tasks.
        runs: The runs of its lines.
        options: The options of the runs.
        run_log: Makes the records of the runs.
        lease: Seconds without a sign of life after which a worker loses its message.
        max_attempts: Worker crashes before a message is dead-lettered.
        on_answer: Called on the loop for each message answered here, with the number of its line,
            whether it is ok, and its record as JSON text.
    """

    def __init__(
        self,
        journal: OpenJournal,
        runs: LineRuns,
        *,
        options: JobOptions,
        run_log: RunLog,
        lease: float,
        max_attempts: int,
        on_answer: Callable[[int, bool, str], None],
    ) -> None:
        self._state = journal.state
        self._retry = journal.retry.acall
        self._on_answer = on_answer
        self._claims = _Claims(journal, options, lease, max_attempts)
        self._runs = runs
        self._answers = AnswerStore(
            journal,
            run_log=run_log,
            is_traced=options.traces is not None,
            start=self._start,
            on_end=self._claim_ended,
        )
        self._cancelling = False
        self._group: asyncio.TaskGroup  # made by `work`

    async def work(self) -> None:
        """Work until `stop`, and until the messages begun before are answered.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        try:
            async with asyncio.TaskGroup() as self._group:
                background = [
                    self._group.create_task(work())
                    for work in (self._collect_ended, self._answers.work, self._watch)
                ]
                while not self._claims.stopped:
                    await self._claim_and_begin()
                self._runs.take_back_ahead()
                while self._claims.held:
                    await self._claims.changed()
                for task in background:
                    task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._runs.cancel()

    def stop(self) -> None:
        """Claim and begin nothing more. On the loop; idempotent."""
        self._claims.stop()

    def begin_cancelling(self) -> None:
        """Stop, and release the messages of runs that are cancelled from now on. On the loop."""
        self._cancelling = True
        self.stop()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._group.create_task(coroutine)

    # -- running -----------------------------------------------------------------------------

    async def _claim_and_begin(self) -> None:
        lines = await self._claims.next(self._is_any_ahead)
        if self._claims.suspects:
            self._runs.take_back_ahead()
            places = self._runs.places
            lines, surplus = lines[:places], lines[places:]
            if surplus:  # before any line begins, as that may end this process at once
                await asyncio.wait([self._start(self._give_back(held)) for held in surplus])
        for held in lines:
            if self._runs.prepares:
                self._start(self._prepare_and_begin(held))
            else:
                self._begin(held, self._runs.message(held))

    async def _prepare_and_begin(self, held: HeldLine) -> None:
        self._begin(*await self._runs.prepared(held))

    def _begin(self, held: HeldLine, message: StreamMessage) -> None:
        if self._claims.stopped or (self._claims.suspects and not self._runs.places):
            self._runs.abandon(message)
            self._start(self._give_back(held))
        else:
            self._runs.begin(held, message)

    def _is_any_ahead(self) -> bool:
        return self._runs.first_ahead is not None

    async def _watch(self) -> None:
        """Decide again and again how many lines may be ahead; give back those that do not begin."""
        while True:
            await asyncio.sleep(_PERIOD)
            self._claims.adapt()
            first = self._runs.first_ahead
            now = asyncio.get_running_loop().time()
            if first is not None and now - first.since > _MAX_WAIT:
                self._runs.take_back_ahead()

    async def _collect_ended(self) -> None:
        """Have the results of runs stored."""
        while True:
            if self._is_any_ahead():
                await asyncio.sleep(_GATHERING)
            for held, result in await self._runs.ended():
                if result is None or (result.status == "cancelled" and self._cancelling):
                    is_cut_off = held.cut_off or self._cancelling
                    note = self._runs.note_of(held) if is_cut_off else None
                    self._start(self._put_back(held, note))
                elif isinstance(error := result.error, RunDrainedError):
                    note = (error.checkpoint_id or "") if error.begun else None
                    self._start(self._put_back(held, note))
                else:
                    self._answers.put(held, result)

    # -- ending claims -----------------------------------------------------------------------

    def _claim_ended(self, held: HeldLine, answer: Answer | None) -> None:
        if answer is not None:
            self._on_answer(held.line.line, answer.is_ok, answer.text)
        self._claims.let_go(held, answered=answer is not None)

    async def _put_back(self, held: HeldLine, note: str | bool | None) -> None:
        # In this order: a process that is killed in between leaves a line that goes on, too.
        if note is not None:
            await self._retry(self._state.set, drained_key(held.line.line), note)
        await self._give_back(held)

    async def _give_back(self, held: HeldLine) -> None:
        with contextlib.suppress(LeaseLostError):
            await self._retry(held.claim.release)
        self._claims.let_go(held, answered=False)
