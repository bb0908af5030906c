"""Real compiled LangGraph graphs, and everything else that a bridge can run.

All of them take ``{"value": ...}`` and answer with it, so that one step can send messages to any.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from rxlanggraph import RxPyLangGraphBridge as Bridge
from support.concurrency.waiting import LIMIT, Gate, Log

__all__ = ["Work", "counter", "fan_out", "one_node", "outlasting"]

Content = dict[str, Any]


class State(TypedDict, total=False):
    value: Any
    count: int


def one_node(node: Callable[[Any], Any], *, checkpointer: InMemorySaver | None = None) -> Any:
    """A compiled graph of one node; a sync one is executed by LangGraph in a worker thread."""
    builder = StateGraph(State).add_node("node", node)
    return builder.add_edge(START, "node").add_edge("node", END).compile(checkpointer)


class FanState(TypedDict, total=False):
    count: int
    done: Annotated[list[int], operator.add]


def fan_out(node: Callable[[int], object]) -> Any:
    """A graph that sends every number below ``count`` to a sync node of its own."""

    def work(number: Any) -> FanState:
        node(number)
        return {"done": [number]}

    def send_all(state: FanState) -> list[Send]:
        return [Send("work", number) for number in range(state["count"])]

    builder = StateGraph(FanState).add_node("work", work)
    return builder.add_conditional_edges(START, send_all).compile()


def counter(before_adding: Callable[[], Coroutine[Any, Any, object]] | None = None) -> Any:
    """A graph that adds 1 to the count in its thread's checkpoint."""

    async def add_one(state: State) -> State:
        await (before_adding or functools.partial(asyncio.sleep, 0))()
        return {"count": state.get("count", 0) + 1}

    return one_node(add_one, checkpointer=InMemorySaver())


def count_of(graph: Any, thread_id: str) -> int:
    state = graph.get_state({"configurable": {"thread_id": thread_id}})
    count: int = state.values["count"]
    return count


class Work:
    """What runs do in a scenario, which sees them begin and end, and holds them in between."""

    def __init__(self) -> None:
        self.gate = Gate()  # lets runs end
        self.cleaning = Gate()  # lets runs that were cancelled end their own cleanup
        self.began, self.ended, self.cleaned = Log(), Log(), Log()
        self.peak = 0
        self._now = 0
        self._lock = threading.Lock()

    def release(self) -> None:
        self.gate.open()
        self.cleaning.open()

    @contextlib.contextmanager
    def _on(self, content: Content) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.peak = max(self.peak, self._now)
        self.began.add(content["value"])
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1
            self.ended.add(content["value"])

    async def wait(self, content: Content) -> Content:
        with self._on(content):
            await self.gate.wait_async()
        return content

    def block(self, content: Content) -> Content:
        with self._on(content):
            self.gate.wait()
        return content

    async def clean_up_slowly(self, content: Content) -> Content:
        with self._on(content):
            try:
                await self.gate.wait_async()
            finally:
                await self.cleaning.wait_async()
                self.cleaned.add(content["value"])
        return content

    async def swallow(self, content: Content) -> Content:
        with self._on(content):
            while not self.gate.is_open:
                with contextlib.suppress(asyncio.CancelledError):
                    await self.gate.wait_async()
        return content

    async def block_the_loop(self, content: Content) -> Content:
        with self._on(content):
            self.gate.wait()
        return content

    async def fail(self, content: Content) -> Content:
        with self._on(content):
            raise ValueError(f"no answer to {content['value']}")

    async def answer(self, content: Content) -> Content:
        with self._on(content):
            await asyncio.sleep(0)
        return content

    def answer_in_a_thread(self, content: Content) -> Content:
        with self._on(content):
            return content


def outlasting(work: Work, bridge: Bridge, send: Callable[[float], Future[Any]]) -> Future[Any]:
    """The first run of ``send`` whose sync node begins before the timeout that ``send`` is given.

    On a busy machine it may not, and then never does: so each run gets twice as long.
    """
    timeout = 0.02
    while timeout < LIMIT:
        run = send(timeout)
        assert run.result(LIMIT).status == "timed_out"
        while not bridge.registry.wait_idle(0.01):
            if work.began:
                return run
        timeout *= 2
    raise AssertionError("no node has begun in time")


class _Callable:
    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, content: Content) -> Content:
        return self._work.answer_in_a_thread(content)


class _AsyncCallable(_Callable):
    async def __call__(self, content: Content) -> Content:  # type: ignore[override]
        return await self._work.answer(content)


async def _second(_first: object, content: Content, work: Work) -> Content:
    return await work.answer(content)


def graph_of(work: Work, kind: str) -> Any:
    """The graph that a step calls ``kind``."""
    return KINDS[kind](work)


KINDS: dict[str, Callable[[Work], Any]] = {
    # They answer at once.
    "an async function": lambda work: work.answer,
    "a sync function": lambda work: work.answer_in_a_thread,
    "a graph with an async node": lambda work: one_node(work.answer),
    "a graph with a sync node": lambda work: one_node(work.answer_in_a_thread),
    "a RunnableLambda of an async function": lambda work: RunnableLambda(work.answer),
    "a RunnableLambda of a sync function": lambda work: RunnableLambda(work.answer_in_a_thread),
    "a sequence of a Runnable and a graph": (
        lambda work: RunnableLambda(lambda content: content) | one_node(work.answer)
    ),
    "a lambda that returns a coroutine": lambda work: (
        lambda content: work.answer(content)  # noqa: PLW0108 - no coroutine function itself
    ),
    "a callable object": _Callable,
    "an async callable object": _AsyncCallable,
    "a partial of an async function": (
        lambda work: functools.partial(_second, object(), work=work)
    ),
    "a partial of a sync function": (lambda work: functools.partial(Work.answer_in_a_thread, work)),
    # They fail.
    "a failing async function": lambda work: work.fail,
    "a failing graph": lambda work: one_node(work.fail),
    # They go on until the gate opens, or they are cancelled.
    "a waiting async function": lambda work: work.wait,
    "a waiting graph": lambda work: one_node(work.wait),
    "a graph that cleans up slowly": lambda work: one_node(work.clean_up_slowly),
    "an async function that cleans up slowly": lambda work: work.clean_up_slowly,
    # They go on until the gate opens, also when they are cancelled.
    "a blocking sync function": lambda work: work.block,
    "a graph with a blocking sync node": lambda work: one_node(work.block),
    "a graph that swallows cancelling": lambda work: one_node(work.swallow),
    "an async function that swallows cancelling": lambda work: work.swallow,
    "an async function that blocks the loop": lambda work: work.block_the_loop,
}
