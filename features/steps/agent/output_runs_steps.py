from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import BaseAgent
from support.agent.output_crowds import after_turns, left, read, waiting
from support.bridge.bridges import LentLoop, listen
from support.bridge.streams import Subscriber
from support.concurrency.tasks import pass_turns, run
from support.concurrency.waiting import LIMIT, in_threads, thread

# -- unread output ---------------------------------------------------------------------------------


@when("{runs:d} runs put an item each")
def step_runs_runs_put_an_item_each(context: Context, runs: int) -> None:
    for number in range(runs):
        context.queue.begin()
        context.queue.put_nowait(number)
        context.queue.end()


@then("one item is there, that of the last run")
def step_one_item_is_there_that_of_the_last_run(context: Context) -> None:
    assert left(context.queue) == [99]


def got_in_a_task(*, lives: bool) -> Callable[[Context], object]:
    def get(context: Context) -> object:
        loop = LentLoop()
        context.add_cleanup(loop.end)

        async def main() -> None:
            await context.queue.get()
            if lives:
                await asyncio.get_running_loop().create_future()

        async def start() -> asyncio.Task[None]:
            context.queue.put_nowait("another")
            task = asyncio.create_task(main())
            await pass_turns()
            return task

        return loop.run(start())

    return get


def closed_stream(context: Context) -> object:
    stream = context.queue.stream()
    run(stream.aclose())
    return stream


def dropped_stream(context: Context) -> None:
    context.queue.stream()


def poll(context: Context) -> None:
    with suppress(asyncio.QueueEmpty):
        thread(context.queue.get_nowait).result(LIMIT)


CONDITIONS: dict[str, Callable[[Context], object]] = {
    "a task has got one and lives": got_in_a_task(lives=True),
    "a task has got one and has ended": got_in_a_task(lives=False),
    "a stream is open, and not yet read": lambda context: context.queue.stream(),
    "a thread has asked without waiting": poll,
    "a stream was opened and is closed": closed_stream,
    "a stream was opened and is dropped": dropped_stream,
    "a broadcast is open": lambda context: context.queue.stream(broadcast=True),
    "an observer is subscribed": lambda context: context.queue.observable.subscribe(print),
}


@when("a run puts 3 items while {condition}, and the next one begins")
def step_a_run_puts_3_items_while_condition_and_the_next_one_begins(
    context: Context, condition: str
) -> None:
    queue = context.queue
    context.condition = CONDITIONS[condition](context)
    for item in range(3):
        queue.put_nowait(item)
    queue.end()
    queue.begin()
    context.left = left(queue)


@then("the 3 items are {what}")
def step_the_3_items_are_what(context: Context, what: str) -> None:
    assert context.left == ([0, 1, 2] if what == "kept" else []), context.left


@when("it is filled in a run, a task waits to put, and the next run begins")
def step_it_is_filled_in_a_run_a_task_waits_to_put_and_the_next_run(context: Context) -> None:
    queue = context.queue

    async def main() -> None:
        queue.put_nowait(0)
        queue.put_nowait(1)
        queue.end()
        task = await waiting(queue.put(2))
        queue.begin()
        assert await after_turns(task)

    run(main())


# -- an agent --------------------------------------------------------------------------------------


@given("an agent with room for {size:d} output")
def step_an_agent_with_room_for_size_output(context: Context, size: int) -> None:
    async def answer(messages: Any) -> str:
        return f"to {messages[-1].content}"

    context.agent = BaseAgent("alice", answer, output_size=size)


@when("it answers {count:d} requests")
def step_it_answers_count_requests(context: Context, count: int) -> None:
    context.answers = [context.agent.run_sync(f"request {i}", LIMIT) for i in range(count)]


@then("it has given 5 answers, and holds the last one")
def step_it_has_given_5_answers_and_holds_the_last_one(context: Context) -> None:
    assert context.answers == [f"to request {i}" for i in range(5)], context.answers
    assert left(context.agent.output_queue) == ["to request 4"]


class _Speaker(BaseAgent):
    """Puts out 1, 2, 3, one in each step, and then meets its end."""

    def __init__(self, meets: str) -> None:
        super().__init__("speaker", timeout=LIMIT)
        self.meets = meets
        self.spoken = asyncio.Event()
        self._next = 1

    async def step(self) -> str | None:
        await self.output_queue.put(self._next)
        self._next += 1
        if self._next <= 3:
            return None
        self.spoken.set()
        if self.meets == "an error":
            raise ValueError("met")
        if self.meets == "its time limit":
            raise TimeoutError
        if self.meets == "being cancelled":
            await asyncio.get_running_loop().create_future()
        return "said"


@given("an agent whose steps put out 1, 2, 3")
def step_an_agent_whose_steps_put_out_1_2_3(context: Context) -> None:
    context.agent = _Speaker("nothing")


@given("an agent whose steps put out 1, 2, 3 and then meet {what}")
def step_an_agent_whose_steps_put_out_1_2_3_and_then_meet_what(context: Context, what: str) -> None:
    context.agent = _Speaker(what)


@when("it runs while a stream, a broadcast and an observer listen")
def step_it_runs_while_a_stream_a_broadcast_and_an_observer_listen(context: Context) -> None:
    agent = context.agent
    context.heard = [[], [], []]
    agent.outputs.subscribe(context.heard[2].append)
    streams = [agent.stream(timeout=LIMIT), agent.stream(timeout=LIMIT, broadcast=True)]

    async def main() -> None:
        readers = [
            asyncio.create_task(read(stream, got))
            for stream, got in zip(streams, context.heard[:2], strict=True)
        ]
        running = asyncio.create_task(agent.run())
        await agent.spoken.wait()
        if agent.meets == "being cancelled":
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        context.heard_the_end = [await after_turns(reader) for reader in readers]

    run(main())


@then("each of them has 1, 2, 3, and the streams have ended")
def step_each_of_them_has_1_2_3_and_the_streams_have_ended(context: Context) -> None:
    assert context.heard == [[1, 2, 3]] * 3, context.heard
    assert all(context.heard_the_end), context.heard_the_end


# -- observers -------------------------------------------------------------------------------------


@given("{count:d} observers of the output")
def step_count_observers_of_the_output(context: Context, count: int) -> None:
    context.observers = [Subscriber() for _ in range(count)]
    for observer in context.observers:
        observer.subscribe(context.queue.observable)


@when("{threads:d} threads put {items:d} items each")
def step_threads_threads_put_items_items_each(context: Context, threads: int, items: int) -> None:
    def put(number: int) -> None:
        for item in range(items):
            context.queue.put_nowait((number, item))

    in_threads(threads, put)


@then("each observer was told of all of them in the order in which they are got, one at a time")
def step_each_observer_was_told_of_all_of_them_in_the_order_in(context: Context) -> None:
    items = left(context.queue)
    assert len(items) == 800
    for observer in context.observers:
        assert observer.items == items
        assert observer.overlaps == 0


@given(
    "an observer of the output that raises, one that answers each item below 3 with the next, "
    "and another"
)
def step_an_observer_of_the_output_that_raises_one_that_answers(context: Context) -> None:
    queue = context.queue
    context.log = listen(context, "rxlanggraph")
    context.told = []

    def raise_(item: Any) -> None:
        raise ValueError(f"no {item}")

    def answer(item: Any) -> None:
        if item < 3:
            queue.put_nowait(item + 1)

    for observer in (raise_, answer, context.told.append):
        queue.observable.subscribe(observer)


@when("item 0 is put")
def step_item_0_is_put(context: Context) -> None:
    context.queue.put_nowait(0)


@then("the last one was told 0, 1, 2, 3, and so much is there")
def step_the_last_one_was_told_0_1_2_3_and_so_much_is_there(context: Context) -> None:
    assert context.told == [0, 1, 2, 3], context.told
    assert left(context.queue) == [0, 1, 2, 3]
    assert len(context.log) == 1 and "output" in context.log[0].getMessage(), context.log
