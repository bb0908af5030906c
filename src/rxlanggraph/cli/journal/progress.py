"""How far a run is: in all of the processes that work on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rxlanggraph.cli.errors import JournalError
from rxlanggraph.cli.journal.model import INTAKE, QUEUE, Intake, intake_from
from rxlanggraph.cli.journal.retry import Patience
from rxlanggraph.cli.pipeline.line_tracker import Account
from rxlanggraph.state import QueueStats, State

__all__ = ["Progress", "Watch", "look"]

# Seconds from one look to the next, and how many times as long as a look takes: counting a
# million tasks takes a while, and nobody needs it to the second. But nobody waits for long behind
# a look that a busy server has held up.
_LOOK_EVERY = 0.1
_TIMES_AS_LONG = 20
_LONGEST_PAUSE = 3.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a journal says of its run, at about one moment.

    Attributes:
        intake: How far the input was taken over.
        stats: What became of the messages.
    """

    intake: Intake = field(default_factory=Intake)
    stats: QueueStats = field(default_factory=QueueStats)

    @property
    def answered(self) -> int:
        """Messages that have their answer, good or bad."""
        return self.stats.completed + self.stats.dead

    @property
    def open(self) -> int:
        """Messages that have none yet."""
        return self.stats.waiting + self.stats.delayed + self.stats.claimed

    @property
    def finished(self) -> bool:
        """Whether every line of the input has its answer."""
        return self.intake.complete and not self.open

    def account(self, size: int | None) -> Account:
        """Return it as an account; of ``size`` bytes as many count as read as are answered."""
        read = self.answered + self.open + self.intake.broken
        share = (read - self.open) / read if read and self.intake.complete else 0
        return Account(
            read=read,
            ok=self.stats.completed,
            failed=self.stats.dead,
            broken=self.intake.broken,
            open=self.open,
            bytes_read=int((size or 0) * share),
        )


async def look(state: State) -> Progress:
    """Return how far the run is. On the loop of the state."""
    # In this order: when the intake is complete, no task comes after the count.
    value = (await state.get(INTAKE)).value
    stats = await state.stats(QUEUE)
    return Progress(intake_from(value), stats)


class Watch:
    """Looks again and again how far the run is; confined to the loop of the state.

    Args:
        state: The journal.
        patience: With a journal that gives no answer.

    Attributes:
        progress: As of the last look. Any thread may read it: one reference.
        looked: Whether there was one. Any thread may read it.
    """

    def __init__(self, state: State, patience: Patience) -> None:
        self._state = state
        self._patience = patience
        self._took = 0.0
        self.progress = Progress()
        self.looked = False

    async def wait_finished(self) -> None:
        """Look until every line of the input has its answer.

        Raises:
            StateUnavailableError: The journal gives no answer, for longer than is bearable.
        """
        while True:
            await self.look()
            if self.progress.finished:
                return
            pause = max(_LOOK_EVERY, _TIMES_AS_LONG * self._took)
            await asyncio.sleep(min(pause, _LONGEST_PAUSE))

    async def look(self) -> None:
        """Look once.

        Raises:
            JournalError: The journal has lost what it had before.
            StateUnavailableError: As in `wait_finished`.
        """
        progress = await self._patience.acall(self._timed_look)
        if self.progress.intake.complete and not progress.intake.complete:
            raise JournalError(
                "the journal has lost what it kept; its server must keep on disk what it "
                "acknowledges. Begin a new journal"
            )
        self.progress = progress
        self.looked = True

    async def _timed_look(self) -> Progress:
        loop = asyncio.get_running_loop()
        began = loop.time()
        progress = await look(self._state)
        self._took = loop.time() - began  # without the attempts that failed
        return progress
