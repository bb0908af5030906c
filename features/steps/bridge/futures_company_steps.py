from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed
from typing import Any

from behave import when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from support.bridge.bridges import make_bridge
from support.concurrency.tasks import PATIENCE, start, switching_often

Make = Callable[[], Future[Any]]


async def echo(content: int) -> int:
    return content


def wait_in_company(ours: Make, others: Make, rounds: int) -> None:
    """Wait for futures of two makers together, in each of the standard library's ways."""
    for _ in range(rounds):
        futures = [ours(), others(), ours()]
        done = concurrent.futures.wait(futures, PATIENCE, FIRST_COMPLETED).done
        assert done, futures
        assert not concurrent.futures.wait(futures, PATIENCE).not_done, futures
        futures = [others(), ours(), others()]
        assert len(list(as_completed(futures, PATIENCE))) == len(futures), futures


@when("{threads:d} threads wait {rounds:d} times each for runs of two bridges and an executor")
def step_threads_wait_for_runs_of_two_bridges_and_an_executor(
    context: Context, threads: int, rounds: int
) -> None:
    make_bridge(context, home="its own")
    with RxPyLangGraphBridge() as second, ThreadPoolExecutor(2) as pool, switching_often():

        def first_run() -> Future[Any]:
            return context.bridge.create_future_task(echo, 1)

        def second_run() -> Future[Any]:
            return second.create_future_task(echo, 1)

        def job() -> Future[Any]:
            return pool.submit(int)

        pairs = [(first_run, job), (second_run, first_run), (job, second_run)]
        joins = [
            start(lambda pair=pairs[number % 3]: wait_in_company(*pair, rounds))
            for number in range(threads)
        ]
        for join in joins:
            join()
