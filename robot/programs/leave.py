"""Leave the interpreter with a bridge in some state. Prints "leaving" as the last thing it does.

Usage: leave.py SCENARIO, a name of a function below.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any, NoReturn

import reactivex as rx
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler
from workload import build, meter

from rxlanggraph import RxPyLangGraphBridge

ENDLESS = {"n": 1, "endless": True}
graph = build()
kept: list[Any] = []


def new_bridge() -> RxPyLangGraphBridge:
    bridge = RxPyLangGraphBridge(max_concurrency=8)
    kept.append(bridge)
    return bridge


def idle() -> None:
    """Open, and nothing to do any more."""
    new_bridge().create_future_task(graph, {"n": 1, "endless": False}).result(60)


def never_used() -> None:
    """Open, its loop never started."""
    new_bridge()


def endless() -> None:
    """Hundreds of runs in flight or waiting, none of which would ever end."""
    bridge = new_bridge()
    kept.extend(bridge.create_future_task(graph, ENDLESS) for _ in range(500))
    meter.wait_begun(8)


def stuck() -> None:
    """A sync function sits in blocking code."""
    begun = threading.Event()

    def sits(_: object) -> None:
        begun.set()
        threading.Event().wait()

    new_bridge().create_future_task(sits, 1)
    begun.wait(60)


def swallowing() -> None:
    """A run swallows every cancellation."""
    begun = threading.Event()

    async def swallows(_: object) -> NoReturn:
        begun.set()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    new_bridge().create_future_task(swallows, 1)
    begun.wait(60)


def busy() -> None:
    """A run never gives the loop back."""
    begun = threading.Event()

    async def blocks(_: object) -> None:
        begun.set()
        threading.Event().wait()

    new_bridge().create_future_task(blocks, 1)
    begun.wait(60)


def stuck_closed() -> None:
    """Closed, with a stuck sync function left behind and reported."""
    stuck()
    report = kept[0].close(0, cancel_timeout=0.1)
    assert [run.name for run in report.stuck] == ["sits"], report


def own_cleanup() -> None:
    """A run whose own cleanup matters: it must be done before the process is gone."""
    begun = threading.Event()

    async def careful(_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _round in range(20):
                await asyncio.sleep(0)
            print("cleaned up", flush=True)

    new_bridge().create_future_task(careful, 1)
    begun.wait(60)


def dropped() -> None:
    """The bridge is forgotten, not closed, with runs in flight."""
    endless()
    kept.clear()


def streaming() -> None:
    """A subscription is open, its source in a pool of threads."""
    pool = ThreadPoolScheduler(2)
    messages = rx.from_iterable([ENDLESS] * 100).pipe(ops.subscribe_on(pool))
    results = messages.pipe(new_bridge().invoke(graph))
    kept.append(results.subscribe(on_error=lambda error: print(type(error).__name__, flush=True)))
    meter.wait_begun(8)


def adopted() -> None:
    """The loop was lent, and is gone."""

    async def main() -> None:
        bridge = RxPyLangGraphBridge(asyncio.get_running_loop())
        kept.append(bridge)
        kept.extend(bridge.create_future_task(graph, ENDLESS) for _ in range(50))
        await asyncio.to_thread(meter.wait_begun, 8)

    asyncio.run(main())


def outliving() -> None:
    """A thread, no daemon, goes on using the bridge after the main thread has ended."""
    idle()  # its loop runs: from Python 3.12 on, no thread can be started after the main one's end
    (bridge,) = kept

    def ask() -> None:
        threading.main_thread().join()
        result = bridge.create_future_task(graph, {"n": 1, "endless": False}).result()
        print(f"answered {result.content['n']}", flush=True)

    threading.Thread(target=ask).start()


def exits() -> None:
    """``sys.exit`` with a status, in the middle of it all."""
    endless()
    leave()
    sys.exit(7)


def raises() -> None:
    """An exception of the program's own ends it, out of the bridge's block."""
    with new_bridge() as bridge:
        bridge.create_future_task(graph, ENDLESS)
        meter.wait_begun(1)
        leave()
        raise LookupError("the program's own")


def interrupted() -> None:
    """Ctrl-C ends it, out of the bridge's block."""
    with new_bridge() as bridge:
        future = bridge.create_future_task(graph, ENDLESS)
        meter.wait_begun(1)
        leave()
        future.result()


def leave() -> None:
    print("leaving", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    leave()
