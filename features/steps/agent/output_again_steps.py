from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import BaseAgent, OutputQueue
from support.agent.output_crowds import after_turns, consume, left, listed, read, waiting
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

BROADCAST = {"a competing stream": False, "a broadcast": True}


class Answering(BaseAgent):
    """Puts its answer out; at one request it does something else, and puts nothing out."""

    def __init__(self, does: str = "", at: str = "") -> None:
        super().__init__("answering", timeout=LIMIT)
        self._does = does
        self._at = at

    async def step(self) -> str:
        await asyncio.sleep(0)
        if self.request == self._at and self._does == "fails":
            raise LookupError(self.request)
        if self.request != self._at:
            await self.output_queue.put(f"to {self.request}")
        return "answered"


@given('an agent that answers "1" with "to 1", and so on')
def step_an_agent_that_answers_1_with_to_1_and_so_on(context: Context) -> None:
    context.agent = Answering()


@given('an agent that answers "1" with "to 1", and so on, and {does} at "{at}"')
def step_an_agent_that_answers_1_with_to_1_and_so_on_and_does_at_at(
    context: Context, does: str, at: str
) -> None:
    context.agent = Answering(does, at)


Ask = Callable[[], Coroutine[Any, Any, object]]
Open = Callable[[], Any]


async def while_a_task_runs_it(ask: Ask, open_: Open) -> list[Any]:
    task = asyncio.create_task(ask())
    got = [item async for item in open_()]
    await task
    return got


async def while_another_thread_runs_it(ask: Ask, open_: Open) -> list[Any]:
    stream = open_()  # or the run might be over before
    thread = asyncio.to_thread(asyncio.run, ask())
    _, got = await asyncio.gather(thread, listed(stream))
    return got


async def when_it_has_run(ask: Ask, open_: Open) -> list[Any]:
    await ask()
    return await listed(open_())


async def opened_before(ask: Ask, open_: Open) -> list[Any]:
    stream = open_()
    await ask()
    return await listed(stream)


WHEN: dict[str, Callable[[Ask, Open], Awaitable[list[Any]]]] = {
    "while a task runs it": while_a_task_runs_it,
    "while another thread runs it": while_another_thread_runs_it,
    "when it has run": when_it_has_run,
    "when it has run, but opened before": opened_before,
}


@when(
    'it is asked "1", "2" and "3" with on_busy={policy:w}, and each time {stream} is read {when_}'
)
def step_it_is_asked_1_2_and_3_with_on_busy_policy_and_each_time(
    context: Context, policy: Any, stream: str, when_: str
) -> None:
    agent = context.agent

    async def main() -> list[list[Any]]:
        return [await one(request) for request in "123"]

    async def one(request: str) -> list[Any]:
        async def ask() -> None:
            with suppress(LookupError):
                await agent.run(request, on_busy=policy)

        return await WHEN[when_](
            ask, lambda: agent.stream(timeout=LIMIT, broadcast=BROADCAST[stream])
        )

    context.read = run(main())


@when('it is asked "1", "2" and "3" at once, and read by {stream} each')
def step_it_is_asked_1_2_and_3_at_once_and_read_by_stream_each(
    context: Context, stream: str
) -> None:
    agent = context.agent

    async def main() -> list[list[Any]]:
        asked = [asyncio.create_task(agent.run(each, on_busy="enqueue")) for each in "123"]
        got = [
            await listed(agent.stream(timeout=LIMIT, broadcast=BROADCAST[stream])) for _ in asked
        ]
        await asyncio.gather(*asked)
        return got

    context.read = run(main())


@then("each time what was read is the answer alone, and ended")
def step_each_time_what_was_read_is_the_answer_alone_and_ended(context: Context) -> None:
    assert context.read == [["to 1"], ["to 2"], ["to 3"]], context.read


@then("the first and the third were read, and of the second the end")
def step_the_first_and_the_third_were_read_and_of_the_second_the(context: Context) -> None:
    assert context.read == [["to 1"], [], ["to 3"]], context.read


# -- between two runs ------------------------------------------------------------------------------


@given("an output queue between two runs, {state}")
def step_an_output_queue_between_two_runs_state(context: Context, state: str) -> None:
    context.queue = queue = OutputQueue()
    run(STATES[state](queue))


async def one_left(queue: OutputQueue[Any]) -> None:
    queue.begin()
    queue.put_nowait("left")
    queue.end()


async def one_left_another_got(queue: OutputQueue[Any]) -> None:
    queue.begin()
    queue.put_nowait("got")
    queue.put_nowait("left")
    await queue.get()
    queue.end()


async def nobody(queue: OutputQueue[Any]) -> None:
    queue.begin()
    queue.put_nowait("got")
    await queue.get()
    queue.end()


async def a_closed_stream(queue: OutputQueue[Any]) -> None:
    queue.begin()
    stream = queue.stream()
    reading = await waiting(read(stream, []))
    await stream.aclose()
    await reading
    queue.end()


async def a_broadcast(queue: OutputQueue[Any]) -> None:
    queue.begin()
    stream = queue.stream(broadcast=True)
    queue.end()
    await read(stream, [])


async def a_getter(queue: OutputQueue[Any]) -> None:
    await nobody(queue)
    await consume(queue, [])


async def a_stream(queue: OutputQueue[Any]) -> None:
    await nobody(queue)
    await read(queue.stream(), [])


async def an_earlier_end(queue: OutputQueue[Any]) -> None:
    await a_getter(queue)
    await nobody(queue)


STATES: dict[str, Callable[[OutputQueue[Any]], Coroutine[Any, Any, None]]] = {
    "one item left": one_left,
    "one item left, another got": one_left_another_got,
    "nothing left, and no consumer has met the end": nobody,
    "nothing left, and a stream was closed as it waited": a_closed_stream,
    "nothing left, and a broadcast has met the end": a_broadcast,
    "nothing left, and a getter has met the end": a_getter,
    "nothing left, and a stream has met the end": a_stream,
    "nothing left, and a getter has met that of an earlier run": an_earlier_end,
}


@when('{stream} is opened, "{first}" is put, and then "{second}" in the next run')
def step_stream_is_opened_first_is_put_and_then_second_in_the_next(
    context: Context, stream: str, first: str, second: str
) -> None:
    queue = context.queue
    opened = queue.stream(broadcast=BROADCAST[stream.lower()])
    queue.put_nowait(first)
    queue.begin()
    queue.put_nowait(second)
    queue.end()
    context.got = []
    run(read(opened, context.got))


@then("that stream gives {items}, and no more")
def step_that_stream_gives_items_and_no_more(context: Context, items: str) -> None:
    assert context.got == items.split(", "), context.got


def both(queue: OutputQueue[Any]) -> list[Any]:
    return [queue.stream(LIMIT, broadcast=broadcast) for broadcast in (False, True)]


@when(
    "streams of both kinds are opened, the run is ended again, "
    'and the next one puts "{item}" and ends'
)
def step_streams_of_both_kinds_are_opened_the_run_is_ended_again(
    context: Context, item: str
) -> None:
    queue = context.queue
    streams = both(queue)
    queue.end()
    queue.begin()
    queue.put_nowait(item)
    queue.end()
    context.read = [run(listed(stream)) for stream in streams]


@then("each of them gives {item}, and ends")
def step_each_of_them_gives_item_and_ends(context: Context, item: str) -> None:
    assert context.read == [[item], [item]], context.read


@when(
    "streams of both kinds are opened, the run is ended, and streams of both kinds are opened again"
)
def step_streams_of_both_kinds_are_opened_the_run_is_ended_and(context: Context) -> None:
    queue = context.queue

    async def main() -> None:
        first = both(queue)
        queue.end()
        context.read = [await listed(stream) for stream in first]
        context.waiting = [await waiting(read(stream, [])) for stream in both(queue)]
        queue.begin()
        queue.end()
        context.ended = [await after_turns(task) for task in context.waiting]

    run(main())


@then("the first two have ended, and the others wait once the end was met")
def step_the_first_two_have_ended_and_the_others_wait_once_the_end(context: Context) -> None:
    assert context.read == [[], []], context.read
    assert context.ended == [True, True], context.ended


@when('streams of both kinds are opened in a run, and the next one begins and puts "{item}"')
def step_streams_of_both_kinds_are_opened_in_a_run_and_the_next_one(
    context: Context, item: str
) -> None:
    streams = both(context.queue)
    context.queue.begin()
    context.queue.put_nowait(item)
    context.read = [run(listed(stream)) for stream in streams]
    assert left(context.queue) == [item]


@then("each of them has ended, with nothing")
def step_each_of_them_has_ended_with_nothing(context: Context) -> None:
    assert context.read == [[], []], context.read
