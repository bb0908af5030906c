"""Work on a queue of shared state until it is empty, and tell of each step.

Usage: state_worker.py URL PIPE

Several of these run at once. Each may be killed or paused at any moment, and the server may go away
for a while. So an item may be worked on twice; its effect is entered, and it is completed, once.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from telling import Teller
from tenacity import retry, retry_if_exception_type, wait_fixed

from rxlanggraph.state import Claim, LeaseLostError, State, StateUnavailableError, open_state
from rxlanggraph.state.transactions import Transaction

QUEUE = "items"
COUNTER = "claims"
LEASE = 1.0


class Worker:
    """The work of this process: one item at a time. Confined to its loop."""

    def __init__(self, state: State, tell: Teller) -> None:
        self._state = state
        self._tell = tell
        self._begin_tally()

    def _begin_tally(self) -> None:
        """Count from 0 under a new name, which no other process writes."""
        self._name = uuid4().hex
        self._entered = 0

    async def work(self) -> None:
        """Work until there is nothing left, whatever happens meanwhile."""
        goes_on = True
        while goes_on:
            try:
                goes_on = await self._work_on_one()
            except LeaseLostError:
                self._tell("refused")
            except StateUnavailableError:
                self._tell("unanswered")
                self._begin_tally()  # whether the last effect was entered is unknown

    async def _work_on_one(self) -> bool:
        """Claim an item, count the claim, enter the effect, complete; false at the very end."""
        claim = await self._state.claim_task(QUEUE, worker=self._name, lease=LEASE, wait=LEASE)
        if claim is None:
            stats = await self._state.stats(QUEUE)
            return bool(stats.waiting or stats.delayed or stats.claimed)
        async with claim:
            self._tell("counted", await self._state.increment_counter(COUNTER))
            await _take_time(claim)
            await self._enter(claim)
            await _take_time(claim)
            await claim.complete({"token": claim.token, "attempt": claim.attempt})
        self._tell("done", claim.item, claim.token)
        return True

    async def _enter(self, claim: Claim) -> None:
        """Enter the effect in the ledger, fenced by the claim; tally it if it is the first one.

        One transaction: a worker that dies leaves both or none, and one that comes back too late
        is refused both.
        """
        place, tally, entered = f"effect:{claim.item}", f"tally:{self._name}", self._entered

        async def enter(transaction: Transaction) -> bool:
            known, _ = await transaction.get(place)
            if known is None:
                transaction.set(tally, entered + 1)
            by = self._name if known is None else known["by"]
            transaction.set(place, {"by": by, "token": claim.token}, token=claim)
            return known is None

        self._entered += await self._state.transact(enter)


async def _take_time(claim: Claim) -> None:
    """Work for a lease, which heartbeats have to prolong, on what was claimed before.

    So the paused holder comes back while another one has it.
    """
    if claim.attempt > 1:
        await asyncio.sleep(LEASE)


# Worker.work knows what to do without a server, but for opening there has to be one.
@retry(retry=retry_if_exception_type(StateUnavailableError), wait=wait_fixed(0.1))
async def main(url: str, tell: Teller) -> None:
    async with open_state(url) as state:
        await Worker(state, tell).work()


if __name__ == "__main__":
    address, pipe = sys.argv[1:]
    asyncio.run(main(address, Teller(pipe)))
