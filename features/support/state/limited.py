"""Workers of a queue that allows few claimed tasks at once, in processes, or in threads.

python -m support.state.limited URL WAY works once a line of input has come. With WAY "hold", "hold
and stop" or "hold a counter" it claims as many tasks as may be, and completes one at a line of
input; at the line "extend" it says what becomes of extending its claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from rxlanggraph.state import Claim, State, Task, open_state, open_state_threadsafe
from support.concurrency.raising import raised
from support.concurrency.tasks import PATIENCE, start
from support.concurrency.waiting import LIMIT
from support.servers.pooler import Pooler
from support.state.arriving import ASLEEP, QUEUE, until, waiting
from support.state.state_threads import LoopThread

__all__ = [
    "MOST",
    "WAYS",
    "Held",
    "claim_after_kill",
    "complete_elsewhere",
    "continue_after_stop",
    "free_places",
    "most_at_once",
    "opened",
    "pass_on",
    "raise_limit",
    "take_turns",
    "work_behind_pooler",
    "work_in_one_state",
    "work_in_processes",
    "work_in_sync_threads",
    "work_in_threads",
]

MOST = 3
WORKERS = 4  # in each process or thread
LEASE = 1.0  # seconds, of a process that is killed
COUNTER = "places"
FEATURES = Path(__file__).parents[2]


class Held(NamedTuple):
    """A claim that a worker had, from its answer to the call that completed it."""

    item: int
    began: float
    ended: float


def most_at_once(held: list[Held]) -> int:
    """How many claims there were at once. The clock is the same in all processes."""
    changes = [(claim.began, 1) for claim in held] + [(claim.ended, -1) for claim in held]
    return max(itertools.accumulate(change for _, change in sorted(changes)))


@contextlib.contextmanager
def opened(url: str, count: int) -> Iterator[None]:
    """Keep a state open, as a store in memory is gone with its last one; with so many tasks."""
    thread = LoopThread()
    try:
        with open_state_threadsafe(thread.loop, url) as state:
            state.sync.add_tasks(QUEUE, range(count))
            yield
    finally:
        thread.close()


# -- working ---------------------------------------------------------------------------------------

Claiming = Callable[[], Awaitable[list[Claim]]]


def _declared(state: State) -> Claiming:
    state.declare_queue(QUEUE, max_claimed=MOST)
    counts = itertools.cycle([1, 2])
    return lambda: state.claim_tasks(QUEUE, next(counts), wait=0.1)


def _counted(state: State) -> Claiming:
    """The naive way: count, and then claim.

    At first, all workers count before one of them claims, and have claimed before one completes.
    """
    barrier = asyncio.Barrier(WORKERS)
    rounds = itertools.count()

    async def claim() -> list[Claim]:
        is_free = (await state.stats(QUEUE)).claimed < MOST
        is_first = next(rounds) < WORKERS
        if is_first:
            await barrier.wait()
        claims = await state.claim_tasks(QUEUE, 1) if is_free else []
        if is_first:
            await barrier.wait()
        return claims

    return claim


WAYS: dict[str, Callable[[State], Claiming]] = {
    "that have declared it": _declared,
    "that count, and then claim": _counted,
}


async def _work(url: str, way: str) -> list[Held]:
    """Work until all tasks are complete."""
    held: list[Held] = []

    async def worker(state: State, claiming: Claiming) -> None:
        while True:
            claims = await claiming()
            began = time.monotonic()
            if not claims:
                stats = await state.stats(QUEUE)
                if not stats.waiting + stats.claimed:
                    return
            await asyncio.sleep(0)
            for claim in claims:
                held.append(Held(claim.item, began, time.monotonic()))
                await claim.complete()

    async with open_state(url) as state, asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        claiming = WAYS[way](state)
        for _ in range(WORKERS):
            group.create_task(worker(state, claiming))
    return held


def work_in_threads(url: str, way: str, threads: int) -> list[Held]:
    """Have so many threads work, each with a state on a loop of its own."""
    ends = [start(lambda: asyncio.run(_work(url, way))) for _ in range(threads)]
    return [claim for end in ends for claim in end()]


async def work_in_sync_threads(url: str, threads: int) -> list[Held]:
    """Have so many threads work by ``state.sync`` of one state."""
    held: list[Held] = []

    def work(state: State) -> None:
        while claim := state.sync.claim_task(QUEUE, wait=1.0):
            began = time.monotonic()
            held.append(Held(claim.item, began, time.monotonic()))
            claim.complete()

    async with open_state(url) as state:
        await asyncio.to_thread(state.sync.declare_queue, QUEUE, max_claimed=MOST)
        await asyncio.gather(*(asyncio.to_thread(work, state) for _ in range(threads)))
    return held


def work_in_processes(url: str, way: str, processes: int) -> list[Held]:
    """Have so many processes work, which begin together."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_process(url, way)) for _ in range(processes)]
        for process in running:
            _read(process, "ready")
        for process in running:
            _tell(process)
        ends = [process.communicate(timeout=PATIENCE)[0] for process in running]
    return [Held(*claim) for end in ends for claim in json.loads(end)]


async def work_behind_pooler(url: str, way: str, processes: int) -> list[Held]:
    """As `work_in_processes`, each transaction in another session of the server."""
    async with Pooler(url, "transaction") as pooler:
        return await asyncio.to_thread(work_in_processes, pooler.url, way, processes)


# -- in one state ----------------------------------------------------------------------------------


async def work_in_one_state(url: str, workers: int) -> list[Held]:
    """Have workers of one state work, one task at once, as long as they wait for less than ever."""
    held: list[Held] = []

    async def work(state: State, count: int) -> None:
        while len(held) < count:
            claim = await state.claim_task(QUEUE, wait=LIMIT)
            assert claim is not None
            began = time.monotonic()
            await asyncio.sleep(0)
            held.append(Held(claim.item, began, time.monotonic()))
            await claim.complete()

    async with open_state(url) as state, asyncio.timeout(PATIENCE):
        state.declare_queue(QUEUE, max_claimed=1)
        count = (await state.stats(QUEUE)).waiting
        tasks = [asyncio.create_task(work(state, count)) for _ in range(workers)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [end for end in ends if isinstance(end, Exception)], ends
    return held


async def take_turns(url: str, workers: int, pauses: list[float]) -> int:
    """Have workers of one state wait for one place, which each frees; return their claim calls."""
    calls = 0

    async def work(state: State) -> None:
        claim = await state.claim_task(QUEUE, wait=LIMIT)
        assert claim is not None
        await asyncio.sleep(0)  # the others see that the place is taken
        await claim.complete()

    async with open_state(url) as state, asyncio.timeout(PATIENCE):
        state.declare_queue(QUEUE, max_claimed=1)
        first = await state.claim_task(QUEUE)
        assert first is not None
        claim_one = state._client.backend.task_claim

        async def counted(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            return await claim_one(*args)

        with mock.patch.object(state._client.backend, "task_claim", counted):
            tasks = [asyncio.create_task(work(state)) for _ in range(workers)]
            await until(lambda: len(pauses) == workers)
            calls = 0
            await first.complete()
            await asyncio.gather(*tasks)
    return calls


async def pass_on(url: str, moments: int, pauses: list[float]) -> list[int]:
    """Cancel a worker that was woken for a place, each time later; return what the next claims."""
    async with open_state(url) as state, asyncio.timeout(PATIENCE):
        state.declare_queue(QUEUE, max_claimed=1)
        claim = await state.claim_task(QUEUE)
        items = []
        for moment in range(moments):
            pauses.clear()
            woken, other = (
                asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT)) for _ in range(2)
            )
            await until(lambda: len(pauses) == 2)
            assert claim is not None
            await claim.complete()
            for _ in range(moment):
                await asyncio.sleep(0)
            woken.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                claim = await woken  # it was there first
                assert claim is not None
                await claim.complete()
            claim = await other
            assert claim is not None
            items.append(claim.item)
    return items


async def raise_limit(url: str) -> list[int]:
    """Return what workers claim that wait while the limit is raised, and then taken back."""
    async with open_state(url) as state, asyncio.timeout(PATIENCE):
        state.declare_queue(QUEUE, max_claimed=1)
        first = await state.claim_task(QUEUE)
        assert first is not None
        items = []
        limits: tuple[int | None, ...] = (2, 3, None)
        for limit in limits:
            task = asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT))
            await asyncio.sleep(0)
            assert not task.done()
            state.declare_queue(QUEUE, max_claimed=limit)
            claim = await task
            assert claim is not None
            items.append(claim.item)
    return items


# -- a process that has all places -----------------------------------------------------------------


async def claim_after_kill(url: str, way: str) -> Claim | None:
    """Return what a worker claims after the process was killed that has claimed all that may be."""
    async with open_state(url) as state, _holding(url, way) as process:
        if way == "hold":
            state.declare_queue(QUEUE, max_claimed=MOST)
            assert await state.claim_task(QUEUE) is None
        process.kill()
        if way == "hold":
            claim = await state.claim_task(QUEUE, wait=LIMIT)
        else:
            claim = await _claim_by_counter(state, ASLEEP)
        if claim is not None:
            await claim.complete()
        return claim


async def continue_after_stop(url: str) -> tuple[str, int]:
    """Stop a process that has all places until others have them, and let it continue.

    Returns:
        What it says of its claims, and how many tasks are claimed then.
    """
    async with open_state(url) as state, _holding(url, "hold and stop") as process:
        state.declare_queue(QUEUE, max_claimed=MOST)
        # Its own tasks stay in the queue, behind these.
        await state.add_tasks(QUEUE, [Task(-1, priority=1)] * MOST)
        claims: list[Claim] = []
        while len(claims) < MOST:
            claims += await state.claim_tasks(QUEUE, MOST - len(claims), wait=LIMIT)
        assert {claim.item for claim in claims} == {-1}, claims
        process.send_signal(signal.SIGCONT)
        _tell(process, "extend")
        said = await asyncio.to_thread(_line, process)
        return said, (await state.stats(QUEUE)).claimed


async def complete_elsewhere(url: str) -> Claim | None:
    """Return what a worker claims that waits while another process completes a task."""
    async with open_state(url) as state, _holding(url, "hold") as process:
        state.declare_queue(QUEUE, max_claimed=MOST)
        async with waiting(state) as worker:
            assert not worker.done()
            _tell(process)
            async with asyncio.timeout(PATIENCE):
                claim = await worker
        if claim is not None:
            await claim.complete()
        return claim


async def _claim_by_counter(state: State, wait: float = PATIENCE) -> Claim | None:
    """The naive way: a counter of free places, which each worker gives back in the end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait):
            while await state.increment_counter(COUNTER) > MOST:
                await state.increment_counter(COUNTER, -1)
            return await state.claim_task(QUEUE)
    return None


@contextlib.asynccontextmanager
async def _holding(url: str, way: str) -> AsyncIterator[subprocess.Popen[str]]:
    with _process(url, way) as process:
        await asyncio.to_thread(_read, process, "ready")
        _tell(process)
        await asyncio.to_thread(_read, process, "claimed")
        yield process


# -- freeing a place -------------------------------------------------------------------------------

FREEING: dict[str, Callable[[State, Claim], Awaitable[object]]] = {
    "complete": lambda _, claim: claim.complete(),
    "complete many": lambda other, claim: other.complete_tasks([(claim, None)]),
    "fail": lambda _, claim: claim.fail("why"),
    "fail for later": lambda _, claim: claim.fail("why", retry_in=600),
    "fail finally": lambda _, claim: claim.fail("why", final=True),
    "release": lambda _, claim: claim.release(),
    "cancel": lambda other, claim: other.cancel_tasks(QUEUE, [claim.id]),
    "purge": lambda other, _: other.purge(QUEUE, ["claimed"]),
    "purge what is old": lambda other, _: other.purge(QUEUE, ["claimed"], older_than=0),
}


async def free_places(url: str) -> list[str]:
    """Return the ways in which another state has woken a worker that waits for a place."""
    woken = []
    for way, free in FREEING.items():
        async with open_state(url) as other, open_state(url) as state:
            for each in (other, state):
                each.declare_queue(QUEUE, max_claimed=1)
            await other.add_tasks(QUEUE, ["a", "b"])
            claim = await other.claim_task(QUEUE)
            assert claim is not None
            async with waiting(state) as worker:
                assert not worker.done()
                await free(other, claim)
                async with asyncio.timeout(PATIENCE):
                    granted = await worker
            assert granted is not None
            await granted.complete()
            woken.append(way)
            await other.purge(QUEUE, ["waiting", "completed", "dead"])
    return woken


# -- such a process --------------------------------------------------------------------------------


@contextlib.contextmanager
def _process(url: str, way: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "support.state.limited", url, way],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _read(process: subprocess.Popen[str], expected: str) -> None:
    line = _line(process)
    assert line == expected, line


def _tell(process: subprocess.Popen[str], what: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()


async def _hold(url: str, way: str) -> None:
    async with open_state(url) as state:
        if way in {"hold", "hold and stop"}:
            state.declare_queue(QUEUE, max_claimed=MOST)
            claims: list[Any] = await state.claim_tasks(QUEUE, 500, lease=LEASE)
        else:
            claims = [await _claim_by_counter(state) for _ in range(MOST)]
        assert len(claims) == MOST, claims
        print("claimed", flush=True)
        if way == "hold and stop":  # not later, when a heartbeat may have locked a file
            os.kill(os.getpid(), signal.SIGSTOP)
        if await asyncio.to_thread(sys.stdin.readline) == "extend\n":
            ends = await asyncio.gather(*[raised(claim.extend()) for claim in claims])
            print(*(type(end).__name__ for end in ends), flush=True)
        else:
            await claims[0].complete()
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    if sys.argv[2].startswith("hold"):
        asyncio.run(_hold(sys.argv[1], sys.argv[2]))
    else:
        print(json.dumps(asyncio.run(_work(sys.argv[1], sys.argv[2]))))
