"""State and work shared between agents: atomic in process, in SQL, in Redis.

    async with open_state("postgresql://...") as state:
        await state.increment_counter("answered")
        async with state.lock("index") as lease:
            await state.set("index", rows, token=lease)
        claim = await state.claim_task("questions", wait=10)

A map; each imports only from those above it.

    backend              the contract: what callers see, and what a backend must do
    backoff              pauses between the attempts of a task
    codec                JSON values: which can be stored, and their encoding
    addresses            URLs of servers: ambiguous ones, and masked passwords
    retry                calls repeated after a failure, or undone
    polling              waiting for changes: by notification, or by polling
    update_queue         updates of one key, one at a time
    single_use           single-use context managers
    backends             in memory, in SQL, in Redis
    client               one opened backend: calls, background tasks, closing
    paging               reading in pages, working in steps
    retention            deleting tasks by their age and number
    leases               leases that are renewed
    watch                the versions of a key as an Observable
    transactions         optimistic transactions
    administration       what is in queues, which keys and locks there are
    keys                 values under keys
    locks                locks with fencing tokens
    claims               one item of work, claimed by one worker
    queues               queues of work
    base                 values, locks and queues as one state
    schedules            periodic tasks and retention, run by one process at a time
    blocking             the same methods, blocking, for threads
    open                 from a URL to a state
"""

from rxlanggraph.actor import StateActor
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
from rxlanggraph.state.backend import (
    DeadLetter,
    HeldLock,
    KeyInfo,
    QueuedTask,
    QueueStats,
    Task,
    Versioned,
)
from rxlanggraph.state.backoff import Backoff
from rxlanggraph.state.blocking import SyncState
from rxlanggraph.state.claims import Claim
from rxlanggraph.state.locks import Lease
from rxlanggraph.state.open import State, open_state, open_state_threadsafe
from rxlanggraph.state.schedules import Retention, Schedule, Scheduler

__all__ = [
    "Backoff",
    "Claim",
    "ContentionError",
    "DeadLetter",
    "HeldLock",
    "KeyInfo",
    "Lease",
    "LeaseLostError",
    "LockTimeoutError",
    "MissingExtraError",
    "QueueStats",
    "QueuedTask",
    "Retention",
    "Schedule",
    "Scheduler",
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
    "open_state_threadsafe",
]
