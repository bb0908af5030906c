from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import Any

from behave import given, then, when
from behave.runner import Context
from reactivex import Subject

from rxlanggraph import StreamMessage
from rxlanggraph.agent import BaseAgent
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Gate, Log


class First(BaseAgent):
    """Tells its news, and then waits."""

    def __init__(self) -> None:
        super().__init__("first", timeout=LIMIT)
        self.subject: Subject[str] = Subject()
        self.gate = Gate()
        self.fails = False

    async def step(self) -> str:
        if self.request != "go":
            return "told again"
        await self.output_queue.put("news")
        self.subject.on_next("news")
        await self.gate.wait_async()
        if self.fails:
            raise LookupError("after its news")
        return "told"


class Second(BaseAgent):
    """Says what it has heard when its gate opens; or asks another agent at once."""

    def __init__(self) -> None:
        super().__init__("second", timeout=LIMIT)
        self.at_work = Log()
        self.gate = Gate()
        self.asks: BaseAgent | None = None

    async def step(self) -> Any:
        self.at_work.add(self.request)  # the other cannot go on before this has been asked
        if self.asks is not None:
            return await self.asks.run("again", on_busy="enqueue")
        await self.gate.wait_async()
        return f"heard {self.request}"


@given("a first agent whose {outputs} go through the bridge to a second one")
def step_a_first_agent_whose_outputs_go_through_the_bridge_to_a(
    context: Context, outputs: str
) -> None:
    first, second = First(), Second()
    told = first.outputs if outputs == "outputs" else first.subject
    context.first, context.second, context.log = first, second, Log()
    context.add_cleanup(first.gate.open)
    context.add_cleanup(second.gate.open)
    context.told = told.pipe(context.bridge.invoke(second, errors="emit"))


def start(
    context: Context, heard: Callable[[StreamMessage], object] | None = None
) -> Future[StreamMessage]:
    """Run the first agent; returns when the second is at work, whose answer is logged or heard."""
    context.told.subscribe(heard or context.log.add)
    running: Future[StreamMessage] = context.bridge.create_future_task(context.first, "go")
    context.second.at_work.wait_for(1)
    return running


@when("the first fails while the second is at work")
def step_the_first_fails_while_the_second_is_at_work(context: Context) -> None:
    context.first.fails = True
    running = start(context)
    context.first.gate.open()
    assert isinstance(running.exception(LIMIT), LookupError)
    context.second.gate.open()


@then('the second has answered "{answer}"')
def step_the_second_has_answered_answer(context: Context, answer: str) -> None:
    [result] = context.log.wait_for(1)
    assert result.content == answer, result


@when("a subscriber adds the answer to the memory of the first {when_}")
def step_a_subscriber_adds_the_answer_to_the_memory_of_the_first(
    context: Context, when_: str
) -> None:
    first, second = context.first, context.second

    def add(result: StreamMessage) -> None:
        try:
            context.log.add(first.add_message("assistant", result.content))
        except Exception as error:
            context.log.add(error)

    first.fails = when_ == "while that runs"
    running = start(context, add)
    if not first.fails:
        first.gate.open()
        running.result(LIMIT)
    second.gate.open()
    context.log.wait_for(1)
    first.gate.open()
    running.exception(LIMIT)


@then('the memory of the first ends with "{text}"')
def step_the_memory_of_the_first_ends_with_text(context: Context, text: str) -> None:
    contents = [message.content for message in context.first.memory.get_messages()]
    assert contents[-1:] == [text], (contents, *context.log)


@when("the second asks the first, while that runs")
def step_the_second_asks_the_first_while_that_runs(context: Context) -> None:
    context.second.asks = context.first
    running = start(context)
    context.first.gate.open()
    assert running.result(LIMIT).content == "told"


# -- context ---------------------------------------------------------------------------------------

_around: ContextVar[str] = ContextVar("around")


@given("an agent with observers, and a context variable that is set around its run")
def step_an_agent_with_observers_and_a_context_variable_that_is_set(context: Context) -> None:
    async def answer(_: object) -> str:
        await asyncio.sleep(0)
        return "answer"

    context.agent = BaseAgent("observed", llm=answer)
    context.seen = {"outputs": [], "state_changes": []}
    for what, seen in context.seen.items():
        getattr(context.agent, what).subscribe(lambda _, seen=seen: seen.append(copy_context()))


@when("it runs")
def step_it_runs(context: Context) -> None:
    async def main() -> None:
        _around.set("the run")
        await context.agent.run("request")

    run(main())


@then("the observer of {what} was called, in an empty context each time")
def step_the_observer_of_what_was_called_in_an_empty_context_each(
    context: Context, what: str
) -> None:
    seen = context.seen[what]
    assert seen, "it was never called"
    assert not any(map(dict, seen)), seen
