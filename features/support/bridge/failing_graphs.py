"""Graphs that keep checkpoints and fail on the way, and a saver that fails."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.base import RunnableBinding
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from support.concurrency.waiting import Gate

__all__ = ["GRAPHS", "Asked", "Asking", "FailingSaver", "Steps", "three_steps", "waiting_at_first"]


class FailingSaver(InMemorySaver):
    """Fails once at what it is told to."""

    def __init__(self, fails_at: str) -> None:
        super().__init__()
        self.fails_at = {fails_at}

    def _fail_at(self, what: str) -> None:
        if what in self.fails_at:
            self.fails_at.clear()
            raise ConnectionError(f"{what} failed")

    async def aget_tuple(self, config: Any) -> Any:
        self._fail_at("reading the thread")
        return await super().aget_tuple(config)

    async def aput(self, *arguments: Any) -> Any:
        self._fail_at("saving the message")
        return await super().aput(*arguments)


# -- graphs that fail on the way ---------------------------------------------------------------


class Talk(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


class Steps:
    """Steps that note each time that they run; one of them fails at first."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.ran: Counter[str] = Counter()

    def step(self, name: str) -> Any:
        async def run_step(_: Talk) -> Talk:
            self.ran[name] += 1
            return {"said": [name]}

        return run_step

    async def flaky(self, _: object) -> Talk:
        self.ran["flaky"] += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("try again")
        return {"said": ["flaky"]}


def chain(*steps: tuple[str, Any], saver: Any = None) -> Any:
    builder: Any = StateGraph(Talk)
    for name, step in steps:
        builder.add_node(name, step)
    names = [START, *(name for name, _ in steps), END]
    for edge in pairwise(names):
        builder.add_edge(*edge)
    return builder.compile(saver)


def three_steps(steps: Steps, saver: Any) -> Any:
    return chain(
        ("before", steps.step("before")),
        ("flaky", steps.flaky),
        ("after", steps.step("after")),
        saver=saver,
    )


def with_subgraph(steps: Steps, saver: Any) -> Any:
    inner = chain(("first", steps.step("first")), ("flaky", steps.flaky))
    return chain(("before", steps.step("before")), ("inner", inner), saver=saver)


def fan_out(steps: Steps, saver: Any) -> Any:
    builder: Any = StateGraph(Talk)
    left_is_done = asyncio.Event()

    async def left(state: Talk) -> Talk:
        left_is_done.set()
        result: Talk = await steps.step("left")(state)
        return result

    async def right(state: Talk) -> Talk:
        await left_is_done.wait()
        await asyncio.sleep(0)
        return await steps.flaky(state)

    builder.add_node("before", steps.step("before")).add_node(left).add_node(right)
    builder.add_edge(START, "before").add_edge("before", "left").add_edge("before", "right")
    return builder.compile(saver)


def with_tasks(steps: Steps, saver: Any) -> Any:
    @task
    async def before() -> Talk:
        done: Talk = await steps.step("before")({})
        return done

    @entrypoint(checkpointer=saver)
    async def workflow(_: Talk) -> Talk:
        await before()
        return await steps.flaky(None)

    return workflow


def bound_by_with_config(steps: Steps, saver: Any) -> Any:
    return three_steps(steps, saver).with_config(tags=["bound"])


def bound_by_binding(steps: Steps, saver: Any) -> Any:
    return RunnableBinding(bound=three_steps(steps, saver), config={"tags": ["bound"]})


def beginning_a_sequence(steps: Steps, saver: Any) -> Any:
    return three_steps(steps, saver) | RunnableLambda(lambda state: state["said"][-1])


def bound_in_a_sequence(steps: Steps, saver: Any) -> Any:
    return bound_by_binding(steps, saver) | RunnableLambda(lambda state: state["said"][-1])


GRAPHS: dict[str, Callable[[Steps, Any], Any]] = {
    "a graph with a subgraph": with_subgraph,
    "a fan-out of which one branch fails": fan_out,
    "an entrypoint with tasks": with_tasks,
    "a graph bound by with_config": bound_by_with_config,
    "a RunnableBinding of a graph": bound_by_binding,
    "a sequence that begins with a graph": beginning_a_sequence,
    "a bound graph within a sequence": bound_in_a_sequence,
}


def waiting_at_first(steps: Steps) -> Any:
    """Its 2nd step outlasts its first attempt."""
    gate = Gate()

    async def waits(state: Talk) -> Talk:
        if not steps.ran["flaky"]:
            steps.ran["flaky"] += 1
            await gate.wait_async()
        return await steps.flaky(state)

    return chain(("before", steps.step("before")), ("waits", waits), saver=InMemorySaver())


class Asked(TypedDict, total=False):
    got: Annotated[list[Any], operator.add]
    notes: Annotated[list[str], operator.add]


class Asking:
    """Graphs whose steps ask, and fail once at each place that is in ``fails``."""

    def __init__(self) -> None:
        self.fails: list[str] = []
        self.asked = False

    def _fail(self, place: str) -> None:
        if place in self.fails:
            self.fails.remove(place)
            raise ConnectionError("try again")

    def two_questions(self, saver: Any) -> Any:
        async def ask(_: Asked) -> Asked:
            self._fail("before")
            first = interrupt("first?")
            self._fail("after")
            return {"got": [first, interrupt("second?")]}

        builder = StateGraph(Asked).add_node(ask).add_edge(START, "ask").add_edge("ask", END)
        return builder.compile(saver)

    def two_steps_at_once(self, saver: Any) -> Any:
        never = Gate()

        async def left(_: Asked) -> Asked:
            got = interrupt("left?")
            self._fail("after")
            return {"got": [("left", got, interrupt("left again?"))]}

        async def right(_: Asked) -> Asked:
            if self.fails:
                await never.wait_async()  # cancelled as the other fails, its answer not taken
            return {"got": [("right", interrupt("right?"))]}

        builder: Any = StateGraph(Asked).add_node(left).add_node(right)
        builder.add_edge(START, "left").add_edge(START, "right")
        return builder.compile(saver)
