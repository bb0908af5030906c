"""The control of storm.py: flat_map, run_coroutine_threadsafe and a plain set of futures.

The same threads, messages and graph, cleaned up in the middle the way people do it; then what is
left, as one line of JSON. Where cleanup and submitters race, barriers bring about the order in
which it goes wrong: luck would bring it about only now and then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from concurrent.futures import Future, wait
from typing import Any

import reactivex as rx
from left import tasks_left
from reactivex import operators as ops
from workload import MESSAGES, THREADS, build, in_threads, meter

ENOUGH = 16

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()
graph = build()
tasks: set[Future[Any]] = set()
taken = threading.Barrier(THREADS + 1, timeout=60)
arrived = threading.Barrier(THREADS + 1, timeout=60)
errors: list[str] = []


def submit(number: int) -> Future[Any]:
    content = {"n": number, "endless": True}
    future = asyncio.run_coroutine_threadsafe(graph.ainvoke(content), loop)
    tasks.add(future)
    future.add_done_callback(tasks.discard)
    return future


def feed() -> None:
    def stream() -> None:
        messages = rx.from_iterable(range(MESSAGES)).pipe(ops.flat_map(submit))
        messages.subscribe(on_error=lambda _: None)

    stream()
    taken.wait()
    stream()
    arrived.wait()


def clean_up() -> None:
    """Take the tasks, cancel them, wait for them, subtract them: the old code."""
    pending = list(tasks)
    taken.wait()  # meanwhile other messages arrive
    arrived.wait()
    for task in pending:
        task.cancel()
    wait(pending)
    tasks.difference_update(pending)


def clean_up_again() -> None:
    """Without the copy: each cancelled future takes itself out of the set."""
    for task in tasks:
        task.cancel()


threads = in_threads(feed)
meter.wait_begun(ENOUGH)
clean_up()
for thread in threads:
    thread.join()
missed = len(tasks)
running = meter.running
try:
    clean_up_again()
except RuntimeError as error:
    errors.append(str(error))
json.dump(
    {"missed": missed, "running": running, "tasks": tasks_left(), "errors": errors}, sys.stdout
)
sys.stdout.flush()
os._exit(0)  # an ordinary end would only add complaints about what was left behind
