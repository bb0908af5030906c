"""From tasks of the journal to answers in it: claimed, run, completed.

All of it is confined to the loop of the journal's state, which is not the loop on which the graphs
run: one that blocks its loop must not cost the leases of all others.
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
    line_from,
    message_id,
)
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.job import JobOptions
from rxlanggraph.errors import InvalidArgumentError, LeaseLostError
from rxlanggraph.state import Claim

__all__ = ["WorkerPool"]

# How many may ask the journal for work at a time: more than one, since a server may be far away.
_ASKING = 4


class WorkerPool:
    """Workers on one journal, as many as may run at a time.

    Args:
        journal: Where the tasks are.
        bridge: Where the graph runs.
        graph: What answers each message.
        options: How to run.
        lease: Seconds after which a worker that is silent has lost its message.
        on_answer: Told, on the loop, of the line of each message that was answered here, and
            whether well.
    """

    def __init__(
        self,
        journal: OpenJournal,
        *,
        bridge: RxPyLangGraphBridge,
        graph: Any,
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
        self._lease = lease
        self._retrying = journal.retry.acall
        self._on_answer = on_answer
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        # With a rate one after another, or the rate would be that of each.
        self._turns = asyncio.Semaphore(1 if options.rate else _ASKING)
        self._asking: set[asyncio.Task[Claim | None]] = set()
        self._stopped = asyncio.Event()
        self._cancelling = False

    async def work(self) -> None:
        """Work until `stop`, and until what was claimed before has been answered.

        Raises:
            StateUnavailableError: The journal does not answer, for longer than it is asked again.
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
        for task in self._asking:
            task.cancel()

    def cancelling(self) -> None:
        """Note that runs are about to be cancelled: they stay unanswered. On the loop."""
        self._cancelling = True
        self.stop()

    # -- one worker --------------------------------------------------------------------------

    async def _work(self) -> None:
        while (claim := await self._next()) is not None:
            await self._answer(claim)

    async def _next(self) -> Claim | None:
        async with self._turns:
            if self._stopped.is_set():
                return None
            asking = asyncio.ensure_future(self._ask())
            self._asking.add(asking)
            try:
                return await asking
            except asyncio.CancelledError:
                if not self._stopped.is_set():
                    raise
                return None
            finally:
                self._asking.discard(asking)

    async def _ask(self) -> Claim | None:
        if self._options.rate is not None:
            await asyncio.sleep(self._options.rate.reserve())
        return await self._retrying(
            self._state.claim_task, QUEUE, worker=self._name, lease=self._lease, wait=math.inf
        )

    async def _answer(self, claim: Claim) -> None:
        line = line_from(claim.item)
        try:
            result = await self._result(claim, line)
            if result is None or (result.status == "cancelled" and self._cancelling):
                await self._retrying(claim.release)
                return
            record = result_record(line.line, result)
            try:
                is_ok = await self._keep(claim, record)
            except InvalidArgumentError as refusal:  # it is longer than the server takes
                reason = {"type": "UnstorableResult", "message": str(refusal)}
                is_ok = await self._keep(claim, without_content(record, reason))
        except LeaseLostError:
            return  # another worker has it, or has answered it
        self._on_answer(line.line, is_ok)

    async def _keep(self, claim: Claim, record: Record) -> bool:
        """Keep the answer to a line; return whether it is a good one.

        Raises:
            InvalidArgumentError: The journal's server will never take it.
        """
        encoded, record = to_line(record)
        text = encoded.decode().rstrip("\n")
        if record["status"] == "ok":
            await self._retrying(claim.complete, text)
            return True
        # An answer, if no good one: the same line again would most likely fail again.
        await self._retrying(claim.fail, text, final=True)
        return False

    async def _result(self, claim: Claim, line: JournalLine) -> StreamMessage | None:
        """Run the graph; None if that was cancelled from outside: there is no answer yet."""
        message = StreamMessage(
            json.loads(line.content),
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
                raise  # it is the worker that is to end
            return None
