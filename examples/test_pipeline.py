"""Tests of a pipeline that waits: for a typist, for models, for the next try. None of them sleeps.

    pytest test_pipeline.py

In virtual time an hour passes at once, and the test scheduler of RxPY says when what comes: marble
tests, at exact times, in the same order every time.
"""

from __future__ import annotations

import asyncio
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from reactivex import Observable
from reactivex import operators as ops
from reactivex.testing import ReactiveTest

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.testing import LeakCheck, VirtualBridge

on_next, on_completed = ReactiveTest.on_next, ReactiveTest.on_completed


class Search(TypedDict, total=False):
    """A query, and what was found."""

    query: str
    found: str


async def look(search: Search) -> Search:
    """Take as many seconds as the query has letters: a slow service."""
    await asyncio.sleep(len(search["query"]))
    return {"found": search["query"].upper()}


graph = StateGraph(Search).add_node(look).add_edge(START, "look").add_edge("look", END).compile()


def suggestions(bridge: RxPyLangGraphBridge, typed: Observable[str]) -> Observable[str]:
    """Search for what was typed, half a minute after the last letter; give up after a minute."""
    search = bridge.invoke(
        graph, multitask_strategy="interrupt", thread_id="search", timeout=60, errors="emit"
    )
    return typed.pipe(
        ops.debounce(30), ops.map(lambda query: {"query": query}), search, ops.map(suggestion)
    )


def suggestion(result: StreamMessage) -> str:
    """Say what became of a search."""
    return result.content["found"] if result.status == "ok" else result.status


def test_only_what_is_typed_last_is_searched_for() -> None:
    """Debounced: "te" is never searched for, and "tea" is answered 30 + 3 seconds later."""
    with LeakCheck(), VirtualBridge() as bridge:
        typed = bridge.scheduler.create_hot_observable(
            on_next(210, "te"), on_next(220, "tea"), on_completed(900)
        )
        shown = bridge.scheduler.start(lambda: suggestions(bridge, typed))
        assert shown.messages == [on_next(253, "TEA"), on_completed(900)]


def test_a_search_that_takes_too_long_is_given_up() -> None:
    """A minute after its beginning, which takes no time to test."""
    with LeakCheck(), VirtualBridge() as bridge:
        typed = bridge.scheduler.create_hot_observable(on_next(210, "a" * 3600))
        shown = bridge.scheduler.start(lambda: suggestions(bridge, typed))
        assert shown.messages == [on_next(300, "timed_out")]


def test_a_coroutine_in_virtual_time() -> None:
    """What is awaited in ``bridge.run`` is in virtual time too."""

    async def search_twice() -> float:
        for _ in range(2):
            await bridge.create_future_task(graph, {"query": "an hour"})
        return bridge.time()

    with LeakCheck(), VirtualBridge() as bridge:
        assert bridge.run(search_twice()) == 14


def main() -> None:
    """Run the tests without pytest."""
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed")


if __name__ == "__main__":
    main()
