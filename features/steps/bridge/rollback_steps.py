"""Steps for runs that are rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rxlanggraph.errors import RunError, ThreadBusyError
from support.bridge.graphs import one_node
from support.bridge.places import Places
from support.bridge.savers import open_saver, rows_of
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Gate, Log


def _send(context: Context, content: Any, strategy: str = "rollback", **options: Any) -> Any:
    return context.bridge.create_future_task(
        options.pop("graph", None) or context.places.graph,
        content,
        thread_id="t",
        multitask_strategy=strategy,
        errors="emit",
        **options,
    )


async def _rows(context: Context) -> list[Any]:
    return await rows_of(context.saver, "t")


def _look(context: Context) -> Any:
    async def look(_: object) -> Any:
        return await _rows(context)

    return _send(context, None, "enqueue", graph=look).result(LIMIT).content


@given("a thread in an {saver}, on which a graph has run")
def step_a_thread_on_which_a_graph_has_run(context: Context, saver: str) -> None:
    step_a_new_thread(context, saver)
    assert _send(context, {"log": ["before"]}).result(LIMIT).status == "ok"


@given("a new thread in an {saver}")
def step_a_new_thread(context: Context, saver: str) -> None:
    context.saver = open_saver(context, saver)
    context.places = Places(context.saver)
    context.add_cleanup(context.places.gate.open)


def _follow(context: Context, place: str, strategy: str, durability: str | None) -> None:
    content: Any = {"log": ["undone"], "hold": place}
    if place == "a node with its answer":
        assert _send(context, content).result(LIMIT).content["__interrupt__"]
        content = Command(resume="yes")
    context.before = _look(context)
    context.undone = _send(context, content, strategy, durability=durability)
    context.places.held.wait()

    async def look(_: object) -> Any:
        return await _rows(context)

    context.following = _send(context, None, strategy, graph=look)
    if place == "a sync node":
        assert context.undone.result(LIMIT).status == "interrupted"
        assert not context.following.done()
        context.places.gate.open()


@when(
    'a run waits in {place} with durability="{durability}", and a message with '
    'multitask_strategy="rollback" follows'
)
def step_a_run_waits_and_a_message_with_rollback_follows(
    context: Context, place: str, durability: str
) -> None:
    _follow(context, place, "rollback", durability)


@when('a run waits in its last node, and a message with multitask_strategy="interrupt" follows')
def step_a_run_waits_and_a_message_with_interrupt_follows(context: Context) -> None:
    _follow(context, "its last node", "interrupt", None)


@then("that message finds the thread as it was before the run")
def step_that_message_finds_the_thread_as_it_was(context: Context) -> None:
    assert context.undone.result(LIMIT).status == "interrupted"
    found = context.following.result(LIMIT)
    assert found.status == "ok", found
    assert context.before is not None
    kept, expected = ([len(rows) for rows in each] for each in (found.content, context.before))
    assert found.content == context.before, f"{kept} rows and not {expected}, or other ones"


@then("the thread answers as if that run had never been")
def step_the_thread_answers_as_if_that_run_had_never_been(context: Context) -> None:
    state = _look_at_state(context)
    run = ["first", "inner", "after", "left", "right", "sync", "last"]
    if state.interrupts:
        assert [each.value for each in state.interrupts] == ["go on?"]
        context.places.gate.open()
        answer = _send(context, Command(resume="yes")).result(LIMIT)
        logged = ["before", *run, "undone", *run, "yes"]
    else:
        answer = _send(context, {"log": ["next"], "hold": None}).result(LIMIT)
        logged = ["before", *run, "next", *run]
    assert answer.status == "ok", answer
    # A subgraph's log begins with that of its parent, so the order is what counts here.
    assert list(dict.fromkeys(answer.content["log"])) == list(dict.fromkeys(logged)), answer
    assert ("undone" in answer.content["log"]) == ("undone" in logged)


def _look_at_state(context: Context) -> Any:
    async def look(_: object) -> Any:
        return await context.places.graph.aget_state({"configurable": {"thread_id": "t"}})

    return _send(context, None, "enqueue", graph=look).result(LIMIT).content


@when("runs are rolled back after 0 to {steps:d} steps of the loop")
def step_runs_are_rolled_back_after_steps_of_the_loop(context: Context, steps: int) -> None:
    async def look(_: object) -> Any:
        return await _rows(context)

    async def roll_back_after(count: int) -> tuple[str, bool]:
        before = await _rows(context)
        run = _send(context, {"log": [str(count)]})
        for _ in range(count):
            await asyncio.sleep(0)
        found = await _send(context, None, graph=look)
        return (await run).status, found.content == before

    context.outcomes = [context.lent.run(roll_back_after(count)) for count in range(steps)]


@then("each has ended, or the thread was as before it")
def step_each_has_ended_or_the_thread_was_as_before_it(context: Context) -> None:
    expected = {("ok", False), ("interrupted", True)}
    wrong = [(n, each) for n, each in enumerate(context.outcomes) if each not in expected]
    assert not wrong, wrong
    assert ("interrupted", True) in context.outcomes


@when(
    'a run with multitask_strategy="enqueue" waits, and a message with '
    'multitask_strategy="rollback" follows'
)
def step_a_run_with_enqueue_waits_and_a_message_follows(context: Context) -> None:
    context.undone = _send(context, {"hold": "its last node"}, "enqueue")
    context.places.held.wait()
    context.following = _send(context, {"hold": None})
    context.following.result(LIMIT)
    context.places.gate.open()


@then('the message is rejected with the words "{words}", and the run is answered')
def step_the_message_is_rejected_with_the_words(context: Context, words: str) -> None:
    result = context.following.result(LIMIT)
    assert result.status == "rejected", result
    assert isinstance(result.error, ThreadBusyError), result
    assert words in str(result.error), result.error
    assert context.undone.result(LIMIT).status == "ok"


@when(
    'a function waits on a thread, and another message with multitask_strategy="rollback" follows'
)
def step_a_function_waits_on_a_thread_and_another_message(context: Context) -> None:
    inside, never = Gate(), Gate()

    async def wait(content: Any) -> Any:
        inside.open()
        await never.wait_async()

    async def answer(content: Any) -> Any:
        return content

    context.undone = _send(context, 0, graph=wait)
    inside.wait()
    context.following = _send(context, 1, graph=answer)


@then("the function's run is interrupted, and the message is answered")
def step_the_functions_run_is_interrupted_and_the_message_is(context: Context) -> None:
    assert context.undone.result(LIMIT).status == "interrupted"
    assert context.following.result(LIMIT).content == 1


@when(
    "a run waits in a sync node, its saver fails, and 2 messages with "
    'multitask_strategy="rollback" follow'
)
def step_a_run_waits_in_a_sync_node_its_saver_fails(context: Context) -> None:
    context.undone = _send(context, {"hold": "a sync node"})
    context.places.held.wait()
    storage, context.saver.storage = context.saver.storage, None
    context.first = _send(context, {"hold": None})
    context.following = _send(context, {"hold": None})
    context.first.result(LIMIT)  # it has been dropped for the second one
    context.places.gate.open()
    context.following.result(LIMIT)
    context.saver.storage = storage


@then('the second of the 2 has an error that says "{words}", and why')
def step_the_second_of_the_2_has_an_error(context: Context, words: str) -> None:
    assert context.undone.result(LIMIT).status == "interrupted"
    assert context.first.result(LIMIT).status == "interrupted"
    result = context.following.result(LIMIT)
    assert result.status == "error", result
    assert isinstance(result.error, RunError), result
    assert words in str(result.error), result.error
    assert isinstance(result.error.__cause__, AttributeError), result.error.__cause__


class _SlowSaver(InMemorySaver):
    """Says when it begins to save, and saves when it may."""

    def __init__(self, order: Log) -> None:
        super().__init__()
        self.saving, self.gate = Gate(), Gate()
        self._order = order

    async def aput(self, *arguments: Any) -> Any:
        self.saving.open()
        await self.gate.wait_async()
        self._order.add("saved")
        return await super().aput(*arguments)


class _Compiled(Coroutine[Any, Any, None]):
    """A coroutine without a frame, as compiled code makes them."""

    def __init__(self, call: Coroutine[Any, Any, None]) -> None:
        self._call = call

    def __await__(self) -> Any:
        return self._call.__await__()

    def send(self, value: Any) -> Any:
        return self._call.send(value)

    def throw(self, *error: Any) -> Any:
        return self._call.throw(*error)


@when("a run is cancelled whose node has begun a task by itself, of {what}")
def step_a_run_is_cancelled_whose_node_has_begun_a_task_by_itself(
    context: Context, what: str
) -> None:
    context.gate, context.tasks = Gate(), Log()

    async def call() -> None:
        await context.gate.wait_async()

    async def node(_: object) -> None:
        coroutine = call() if what == "a coroutine" else _Compiled(call())
        context.tasks.add(asyncio.get_running_loop().create_task(coroutine))
        await asyncio.Event().wait()

    run = context.bridge.create_future_task(node, 0)
    context.tasks.wait_for(1)
    run.cancel()


@then("the run has left the registry while the task goes on")
def step_the_run_has_left_the_registry_while_the_task_goes_on(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    (task,) = context.tasks
    assert not task.done()
    context.gate.open()


@when("a run is cancelled while LangGraph saves what it did, by {way}")
def step_a_run_is_cancelled_while_langgraph_saves_what_it_did(context: Context, way: str) -> None:
    order = context.order = Log()
    saver = _SlowSaver(order)

    async def answer(state: Any) -> Any:
        return state

    async def passes() -> None:
        for _ in range(100):  # by then there is nothing left to do but to wait
            await asyncio.sleep(0)

    async def main() -> None:
        graph = one_node(answer, checkpointer=saver)
        if way == "its task":
            config = {"configurable": {"thread_id": "t"}}
            run: Any = asyncio.ensure_future(graph.ainvoke({"value": 1}, config))
            ended = asyncio.gather(run, return_exceptions=True)
        else:
            run = _send(context, {"value": 1}, "enqueue", graph=graph)
            ended = asyncio.wrap_future(_send(context, 2, "enqueue", graph=answer))
        ended.add_done_callback(lambda _: order.add("ended"))
        await asyncio.to_thread(saver.saving.wait)
        await passes()
        run.cancel()
        await passes()
        saver.gate.open()
        await ended
        await asyncio.to_thread(order.wait_for, 2)

    context.lent.run(main())


@then("it has ended when that is saved")
def step_it_has_ended_when_that_is_saved(context: Context) -> None:
    *saved, ended = context.order
    assert set(saved) == {"saved"}, [*saved, ended]
    assert ended == "ended", [*saved, ended]


class _Foreign(BaseCheckpointSaver[str]):
    """A saver of somebody else: it keeps its threads in another one."""

    def __init__(self) -> None:
        super().__init__()
        self._saver = InMemorySaver()


@when('a graph with a saver of another class gets a message with multitask_strategy="rollback"')
def step_a_graph_with_a_saver_of_another_class(context: Context) -> None:
    async def answer(state: Any) -> Any:
        return state

    graph = one_node(answer, checkpointer=_Foreign())  # type: ignore[arg-type]
    options = {"thread_id": "t", "multitask_strategy": "rollback"}
    context.error = error_of(lambda: context.bridge.create_future_task(graph, {}, **options))
