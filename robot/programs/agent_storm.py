"""Thousands of runs of agents, asked by several threads; then what is left, as one line of JSON.

Usage: agent_storm.py pool | one | unbounded

The same load comes twice. The first fills what is meant to be filled: bounded memories, a history
of states, the caches of libraries. After the second there must not be more of anything; but for
agents with unbounded memories, which are the control.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import reactivex as rx
from left import tasks_left, threads_left
from reactivex import operators as ops
from workload import THREADS, in_threads

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.agent import AgentPool, BaseAgent, Memory, Message

RUNS = 2000
AGENTS = 20
CONVERSATIONS = 400
FAILS = 7  # one of so many; each conversation has its turn, as it does not divide their number
SLACK = 100  # fewer than there are failing runs, and conversations: what leaves one each is seen


async def model(messages: Sequence[Message]) -> str:
    request = messages[-1].content
    if request == "fail":
        raise LookupError(request)
    return f"re: {request}"


def make(thread_id: str, max_messages: int | None = 4) -> BaseAgent:
    return BaseAgent(thread_id, llm=model, memory=Memory(max_messages=max_messages))


def make_unbounded(thread_id: str) -> BaseAgent:
    return make(thread_id, None)


def load(target: Any) -> Counter[str]:
    """Have ``target`` answer all requests; how they ended."""
    ended: list[Any] = []
    parts = [range(first, RUNS, THREADS) for first in range(THREADS)]

    def feed() -> None:
        requests = rx.from_iterable(map(request, parts.pop()))
        answer = bridge.invoke(target, errors="emit", ordered=True)
        requests.pipe(answer, ops.do_action(ended.append)).run()

    with RxPyLangGraphBridge() as bridge:
        for thread in in_threads(feed):
            thread.join()
    return Counter("answered" if each.error is None else "failed" for each in ended)


def request(number: int) -> StreamMessage:
    text = "fail" if number % FAILS == 0 else f"request {number}"
    return StreamMessage(text, f"conversation {number % CONVERSATIONS}")


def present() -> tuple[Counter[str], int]:
    """How many objects of each type there are, and blocks of memory, of whatever else, too."""
    gc.collect()
    types = Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.get_objects())
    return types, sys.getallocatedblocks()


def storm(target: Any) -> dict[str, Any]:
    load(target)
    before, blocks_before = present()
    ended = load(target)
    after, blocks = present()
    return {
        **ended,
        "grown": {name: n for name, n in (after - before).items() if n >= SLACK},
        "blocks": blocks - blocks_before,
        "tasks": tasks_left(),
        "threads": threads_left(),
    }


def main(which: str) -> dict[str, Any]:
    if which == "one":
        return storm(make("agent"))
    pool = AgentPool(make if which == "pool" else make_unbounded, max_agents=AGENTS)
    return {**storm(pool), "agents": len(pool)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
