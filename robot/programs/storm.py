"""Many threads, one bridge, real graphs; then what is left, as one line of JSON.

Usage: storm.py drained | cleaned_up | disposed | loop_ended | half_begun | sync_nodes
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from concurrent.futures import Future, wait
from typing import Any

import reactivex as rx
from left import tasks_left, threads_left
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler
from workload import MESSAGES, THREADS, State, build, in_threads, meter

from rxlanggraph import LoopUnavailableError, RxPyLangGraphBridge

QUICK: State = {"n": 1, "endless": False}
ENDLESS: State = {"n": 1, "endless": True}
ENOUGH = 16


def drained() -> dict[str, Any]:
    """Half of the messages come as futures, half through Rx; all end by themselves."""
    graph = build()
    futures: list[Future[Any]] = []
    answers: list[Any] = []
    with RxPyLangGraphBridge(max_concurrency=ENOUGH) as bridge:

        def feed() -> None:
            futures.extend([bridge.create_future_task(graph, QUICK) for _ in range(MESSAGES)])
            messages = rx.from_iterable([QUICK] * MESSAGES)
            messages.pipe(bridge.invoke(graph), ops.do_action(answers.append)).run()

        for thread in in_threads(feed):
            thread.join()
        wait(futures, timeout=120)
    return account(bridge, futures, answers=len(answers))


def cleaned_up() -> dict[str, Any]:
    """The cleanup comes while all threads go on submitting."""
    graph = build()
    futures: list[Future[Any]] = []
    before: list[Future[Any]] = []
    middle = threading.Barrier(THREADS + 1, lambda: before.extend(futures), timeout=60)
    bridge = RxPyLangGraphBridge(max_concurrency=ENOUGH)

    def feed() -> None:
        futures.extend([bridge.create_future_task(graph, ENDLESS) for _ in range(MESSAGES)])
        middle.wait()
        futures.extend([bridge.create_future_task(graph, QUICK) for _ in range(MESSAGES)])

    threads = in_threads(feed)
    meter.wait_begun(ENOUGH)
    middle.wait()
    report = bridge.cleanup_tasks(60)
    unresolved_before = sum(not future.done() for future in before)
    still_endless = sum(info.state == "cancelling" for info in bridge.registry.snapshot())
    for thread in threads:
        thread.join()
    again = bridge.create_future_task(graph, QUICK)
    usable = again.result(60).content["n"] == 4
    bridge.close()
    return account(
        bridge,
        [*futures, again],
        reported=report.cancelled + report.completed + report.failed,
        stuck=len(report.stuck),
        handed_in_before=len(before),
        unresolved_of_those=unresolved_before,
        asked_and_still_running=still_endless,
        usable_after=usable,
    )


def disposed() -> dict[str, Any]:
    """Every subscriber leaves in the middle of its stream."""
    graph = build()
    pool = ThreadPoolScheduler(THREADS)
    with RxPyLangGraphBridge(max_concurrency=ENOUGH) as bridge:
        subscriptions = [
            rx.from_iterable([ENDLESS] * MESSAGES)
            .pipe(ops.subscribe_on(pool), bridge.invoke(graph, errors="emit"))
            .subscribe()
            for _ in range(THREADS)
        ]
        meter.wait_begun(ENOUGH)
        for subscription in subscriptions:
            subscription.dispose()
        idle = bridge.registry.wait_idle(60)
    pool.executor.shutdown()
    return account(bridge, [], idle_after_dispose=idle)


def loop_ended() -> dict[str, Any]:
    """The loop belongs to an ``asyncio.run`` that returns in the middle, without closing us."""
    graph = build()
    futures: list[Future[Any]] = []
    refused: list[Exception] = []
    bridges: list[RxPyLangGraphBridge] = []
    middle = threading.Barrier(THREADS, timeout=60)

    def feed() -> None:
        submit = bridges[0].create_future_task
        futures.extend([submit(graph, ENDLESS) for _ in range(MESSAGES)])
        if middle.wait() == 0:
            loop.call_soon_threadsafe(ends.set)
        for _ in range(MESSAGES):
            try:
                futures.append(submit(graph, QUICK))
            except LoopUnavailableError as error:
                refused.append(error)

    async def main() -> None:
        nonlocal loop, ends
        loop, ends = asyncio.get_running_loop(), asyncio.Event()
        bridges.append(RxPyLangGraphBridge(loop, max_concurrency=ENOUGH))
        threads.extend(in_threads(feed))
        await ends.wait()

    loop: asyncio.AbstractEventLoop
    ends: asyncio.Event
    threads: list[threading.Thread] = []
    asyncio.run(main())
    for thread in threads:
        thread.join()
    answered_or_refused = len(futures) + len(refused)
    resolved = not wait(futures, timeout=60).not_done
    bridges[0].close()
    return account(bridges[0], futures, answered=answered_or_refused, resolved=resolved)


def half_begun() -> dict[str, Any]:
    """A loop ends, as above, with some runs begun and many still waiting for their turn."""
    begun: list[int] = []
    ended: list[int] = []

    async def endless(number: int) -> None:
        begun.append(number)
        enough.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    async def main() -> None:
        nonlocal bridge, enough
        enough = asyncio.Semaphore(0)
        bridge = RxPyLangGraphBridge(asyncio.get_running_loop(), max_concurrency=ENOUGH)
        futures.extend([bridge.create_future_task(endless, n) for n in range(MESSAGES)])
        for _ in range(ENOUGH):
            await enough.acquire()

    bridge: RxPyLangGraphBridge
    enough: asyncio.Semaphore
    futures: list[Future[Any]] = []
    asyncio.run(main())
    done_their_clean_up = sorted(ended)  # now: the garbage collector's help comes too late
    wait(futures, timeout=60)
    bridge.close()
    return account(bridge, futures, begun=sorted(begun), ended=done_their_clean_up)


def sync_nodes() -> dict[str, Any]:
    """Sync nodes and sync functions run in threads, which the bridge gives back."""

    def blocking(state: State) -> dict[str, int]:
        with meter:
            return {"n": state["n"] * 2}

    graph = build(blocking)
    futures: list[Future[Any]] = []
    with RxPyLangGraphBridge(max_concurrency=ENOUGH) as bridge:

        def feed() -> None:
            for target in (graph, blocking):
                futures.extend([bridge.create_future_task(target, QUICK) for _ in range(MESSAGES)])

        for thread in in_threads(feed):
            thread.join()
        wait(futures, timeout=120)
    return account(bridge, futures)


def account(bridge: RxPyLangGraphBridge, futures: list[Future[Any]], **more: Any) -> dict[str, Any]:
    counted = bridge.statistics()
    return {
        "futures": len(futures),
        "unresolved": sum(not future.done() for future in futures),
        "registry": len(bridge.registry),
        "tasks": tasks_left(),
        "threads": threads_left(),
        "nodes": meter.running,
        "submitted": counted.submitted,
        "succeeded": counted.succeeded,
        "accounted": counted.succeeded + counted.failed + counted.cancelled,
        **more,
    }


SCENARIOS = [drained, cleaned_up, disposed, loop_ended, half_begun, sync_nodes]

if __name__ == "__main__":
    (scenario,) = (each for each in SCENARIOS if each.__name__ == sys.argv[1])
    print(json.dumps(scenario()))
