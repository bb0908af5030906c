"""WorkerPool: from tasks of the journal to answers in it: claimed, run, completed.

Everything is confined to the loop of the journal's state. The graphs run on another loop: a graph
that blocks its loop must not cost the other runs their leases.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
from collections.abc import Callable
from typing import Any

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.bridge import submitter
from rxlanggraph.cli.formats.records import Record, result_record, to_line, without_content
from rxlanggraph.cli.journal.model import (
    QUEUE,
    JournalLine,
    drained_key,
    line_from,
    message_id,
)
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.job import JobOptions
from rxlanggraph.errors import InvalidArgumentError, LeaseLostError, RunDrainedError
from rxlanggraph.state import Claim

__all__ = ["WorkerPool"]

# Claims in progress at a time: more than one, since a server may be far away.
_MAX_CLAIMING = 4


class WorkerPool:
    """The workers of this process, one for each run that ``max_concurrency`` allows.

    Args:
        journal: The journal with the tasks.
        bridge: The bridge that runs the graph.
        graph: The graph that answers each message.
        can_continue: Whether its runs may be stopped, and go on later.
        options: The options of the runs.
        lease: Seconds without a sign of life after which a worker loses its message.
        on_answer: Called on the loop for each message answered here, with the number of its line,
            and whether it is ok.
    """

    def __init__(
        self,
        journal: OpenJournal,
        *,
        bridge: RxPyLangGraphBridge,
        graph: Any,
        can_continue: bool,
        options: JobOptions,
        lease: float,
        on_answer: Callable[[int, bool], None],
    ) -> None:
        self._state = journal.state
        self._run = journal.run
        self._options = options
        self._submit = submitter(
            bridge,
            graph,
            timeout=options.timeout,
            retry=options.retries or None,
            errors="emit",
        )
        self._can_continue = can_continue
        self._lease = lease
        self._retry = journal.retry.acall
        self._on_answer = on_answer
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        # With a rate one at a time: a `RateLimiter` is confined to one caller.
        self._claim_slots = asyncio.Semaphore(1 if options.rate else _MAX_CLAIMING)
        self._claims_in_progress: set[asyncio.Task[Claim | None]] = set()
        self._stopped = asyncio.Event()
        self._cancelling = False

    async def work(self) -> None:
        """Work until `stop`, and until the messages claimed before are answered.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._options.max_concurrency):
                    group.create_task(self._work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def stop(self) -> None:
        """Claim nothing more. On the loop; idempotent."""
        self._stopped.set()
        for task in self._claims_in_progress:
            task.cancel()

    def begin_cancelling(self) -> None:
        """Stop, and release the messages of runs that are cancelled from now on. On the loop."""
        self._cancelling = True
        self.stop()

    # -- one worker --------------------------------------------------------------------------

    async def _work(self) -> None:
        while (claim := await self._next_claim()) is not None:
            await self._answer(claim)

    async def _next_claim(self) -> Claim | None:
        """Claim the next message; None once the pool is stopped."""
        async with self._claim_slots:
            if self._stopped.is_set():
                return None
            claiming = asyncio.ensure_future(self._claim())
            self._claims_in_progress.add(claiming)
            try:
                return await claiming
            except asyncio.CancelledError:
                if not self._stopped.is_set():
                    raise
                return None
            finally:
                self._claims_in_progress.discard(claiming)

    async def _claim(self) -> Claim | None:
        if self._options.rate is not None:
            await asyncio.sleep(self._options.rate.reserve())
        return await self._retry(
            self._state.claim_task, QUEUE, worker=self._name, lease=self._lease, wait=math.inf
        )

    async def _answer(self, claim: Claim) -> None:
        """Run the graph on a message, and store the answer."""
        line = line_from(claim.item)
        try:
            continued = await self._was_drained(line)
            result = await self._result(claim, line, continued=continued)
            if result is None or (result.status == "cancelled" and self._cancelling):
                await self._retry(claim.release)
                return
            if isinstance(result.error, RunDrainedError):
                await self._put_back(claim, line, result.error)
                return
            record = result_record(line.line, result)
            try:
                is_ok = await self._store(claim, record)
            except InvalidArgumentError as refusal:  # longer than the server accepts
                reason = {"type": "UnstorableResult", "message": str(refusal)}
                is_ok = await self._store(claim, without_content(record, reason))
            if continued:
                await self._retry(self._state.delete, drained_key(line.line))
        except LeaseLostError:
            return  # another worker has it, or has answered it
        self._on_answer(line.line, is_ok)

    async def _was_drained(self, line: JournalLine) -> bool:
        if not self._can_continue:
            return False
        stored = await self._retry(self._state.get, drained_key(line.line))
        return stored.value is not None

    async def _put_back(self, claim: Claim, line: JournalLine, error: RunDrainedError) -> None:
        # In this order: a process that is killed in between leaves a line that goes on, too.
        if error.begun:
            await self._retry(self._state.set, drained_key(line.line), error.checkpoint_id or "")
        await self._retry(claim.release)

    async def _store(self, claim: Claim, record: Record) -> bool:
        """Store the answer to a line; return whether it is ok.

        Raises:
            InvalidArgumentError: The journal's server will never accept it.
        """
        encoded, record = to_line(record)
        text = encoded.decode().rstrip("\n")
        if record["status"] == "ok":
            await self._retry(claim.complete, text)
            return True
        # Final: a failure is an answer, and is not run again without --resume-failed.
        await self._retry(claim.fail, text, final=True)
        return False

    async def _result(
        self, claim: Claim, line: JournalLine, *, continued: bool
    ) -> StreamMessage | None:
        """Return the result of the graph; None if the run was cancelled before it had one."""
        message = StreamMessage(
            None if continued else json.loads(line.content),
            thread_id=line.thread,
            metadata={"line": line.line, "attempt": claim.attempt},
            id=message_id(self._run, line.line),
        )
        run = self._submit(message)
        try:
            return await asyncio.wrap_future(run)
        except asyncio.CancelledError:
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise  # the worker itself is cancelled
            return None
