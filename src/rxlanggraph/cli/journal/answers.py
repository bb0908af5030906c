"""AnswerStore: from the results of runs to answers in the journal.

Storing waits for the journal's disk, and crosses several threads. So each call takes all answers
that are waiting at that moment: one of a slow graph, hundreds of a quick one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Self

from rxlanggraph import StreamMessage
from rxlanggraph.cli.formats.records import Record, to_line, without_content
from rxlanggraph.cli.journal.line_runs import HeldLine
from rxlanggraph.cli.journal.model import drained_key, trace_key
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.errors import InvalidArgumentError, LeaseLostError
from rxlanggraph.state.backend import MAX_PER_STEP

__all__ = ["Answer", "AnswerStore"]

# Characters of the answers in one call, so that it is short on every backend.
_BATCH_CHARACTERS = 1_000_000


class Answer(NamedTuple):
    """The answer to a line.

    Attributes:
        held: The line.
        record: Its record.
        text: The same, as JSON text.
    """

    held: HeldLine
    record: Record
    text: str

    @classmethod
    def of(cls, held: HeldLine, record: Record) -> Self:
        """Return the answer with a record, or with what of it can be written as JSON."""
        encoded, record = to_line(record)
        return cls(held, record, encoded.decode().rstrip("\n"))

    @property
    def is_ok(self) -> bool:
        """Whether the line is ok."""
        return bool(self.record["status"] == "ok")


class AnswerStore:
    """Stores answers in the journal. Confined to its loop.

    Args:
        journal: The journal.
        run_log: Makes the records of the runs.
        is_traced: Whether the journal has the traces of lines.
        start: Starts a task whose failure ends the workers.
        on_end: Called for each line when its claim has ended, with the answer if it was stored;
            None: other workers have the line, or have answered it.
    """

    def __init__(
        self,
        journal: OpenJournal,
        *,
        run_log: RunLog,
        is_traced: bool,
        start: Callable[[Coroutine[Any, Any, None]], object],
        on_end: Callable[[HeldLine, Answer | None], None],
    ) -> None:
        self._state = journal.state
        self._retry = journal.retry.acall
        self._run_log = run_log
        self._is_traced = is_traced
        self._start = start
        self._on_end = on_end
        self._waiting: deque[Answer] = deque()
        self._arrived = asyncio.Event()

    def put(self, held: HeldLine, result: StreamMessage) -> None:
        """Have the answer to a line stored: the record of the result of its run."""
        answer = Answer.of(held, self._run_log.record_of(held.line.line, result))
        if answer.is_ok:
            self._waiting.append(answer)
            self._arrived.set()
        else:
            self._start(self._store(answer))

    async def work(self) -> None:
        """Store the answers that are ok, in each call all that are waiting, until cancelled.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                await self._complete(self._next_batch())

    def _next_batch(self) -> list[Answer]:
        batch: list[Answer] = []
        characters = 0
        while self._waiting and len(batch) < MAX_PER_STEP:
            characters += len(self._waiting[0].text)
            if batch and characters > _BATCH_CHARACTERS:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _complete(self, batch: Sequence[Answer]) -> None:
        results = [(answer.held.claim, answer.text) for answer in batch]
        try:
            lost = await self._retry(self._state.complete_tasks, results)
        except InvalidArgumentError:  # one of them is longer than the server accepts
            for answer in batch:
                await self._store(answer)
            return
        lost_ones = {id(claim) for claim in lost}
        for answer in batch:
            if id(answer.held.claim) in lost_ones:
                self._on_end(answer.held, None)
            else:
                await self._stored(answer)

    async def _store(self, answer: Answer) -> None:
        """Store one answer, ok or not; without its content if the server does not accept it."""
        try:
            try:
                await self._end_claim(answer)
            except InvalidArgumentError as refusal:
                reason = {"type": "UnstorableResult", "message": str(refusal), "node": None}
                answer = Answer.of(answer.held, without_content(answer.record, reason))
                await self._end_claim(answer)
        except LeaseLostError:
            self._on_end(answer.held, None)
        else:
            await self._stored(answer)

    async def _end_claim(self, answer: Answer) -> None:
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

    async def _stored(self, answer: Answer) -> None:
        """Delete what the journal knows of a line that is answered."""
        number = answer.held.line.line
        if answer.held.noted:
            await self._retry(self._state.delete, drained_key(number))
        if self._is_traced and answer.is_ok:  # otherwise it may be requeued
            self._start(self._forget_trace(number))
        self._on_end(answer.held, answer)

    async def _forget_trace(self, number: int) -> None:
        await self._retry(self._state.delete, trace_key(number))
