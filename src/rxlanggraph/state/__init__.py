"""State and work shared between agents: atomic in process, in SQL, in Redis.

    async with open_state("postgresql://...") as state:
        await state.increment_counter("answered")
        async with state.lock("index") as lease:
            await state.set("index", rows, token=lease)
        claim = await state.claim_task("questions", wait=10)

A map of the modules:

    contract                    what callers see, and what a backend must do
    values                      what is a JSON value, a name, a number
    agenda, alarm               what falls due when
    waiting, turns, block       waking up; one after the other; blocks that are entered once
    insistence, settling        calls that are made again; calls that run to their end
    core, paging                calls, background tasks, the end; pages and steps
    heartbeat, watching         leases that are renewed; versions as an Observable
    transactions                optimistic updates
    keys, locks, claims, work   the three parts of a state
    base, crossing, sync        the state, and its view for threads
    opening                     from a URL to a state
    memory_queue, memory_space, the backends: in memory, in SQL, in Redis
    memory, sql, redis
    writer, actor               no shared state at all: one writer, and messages to it
"""

from rxlanggraph.errors import (
    ContentionError,
    LeaseLostError,
    LockTimeoutError,
    MissingExtraError,
    StaleTokenError,
    StateClosedError,
    StateError,
    StateUnavailableError,
)
from rxlanggraph.state.actor import StateActor
from rxlanggraph.state.claims import Claim
from rxlanggraph.state.contract import DeadLetter, QueueStats, Task, Versioned
from rxlanggraph.state.locks import Lease
from rxlanggraph.state.opening import State, open_state, open_state_on
from rxlanggraph.state.sync import SyncState

__all__ = [
    "Claim",
    "ContentionError",
    "DeadLetter",
    "Lease",
    "LeaseLostError",
    "LockTimeoutError",
    "MissingExtraError",
    "QueueStats",
    "StaleTokenError",
    "State",
    "StateActor",
    "StateClosedError",
    "StateError",
    "StateUnavailableError",
    "SyncState",
    "Task",
    "Versioned",
    "open_state",
    "open_state_on",
]
