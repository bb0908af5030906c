from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.agent import OutputQueue
from rxlanggraph.errors import OutputEndedError, RunTimeoutError
from support.agent.output_crowds import Storm, after_turns, consume, fill, get_one, waiting
from support.bridge.bridges import LentLoop
from support.concurrency.tasks import pass_turns, run
from support.concurrency.waiting import LIMIT, thread

# -- the end ---------------------------------------------------------------------------------------


@when("the run ends while {consumers:d} consumers wait")
def step_the_run_ends_while_consumers_consumers_wait(context: Context, consumers: int) -> None:
    run(end_while_they_wait(context, consumers, context.queue.end))


@when("the run ends while {consumers:d} consumers wait, and the next one begins before they look")
def step_the_run_ends_while_consumers_consumers_wait_and_the_next(
    context: Context, consumers: int
) -> None:
    def end() -> None:
        context.queue.end()
        context.queue.begin()

    run(end_while_they_wait(context, consumers, end))


async def end_while_they_wait(context: Context, consumers: int, end: Callable[[], object]) -> None:
    tasks = [await waiting(consume(context.queue, [])) for _ in range(consumers)]
    end()
    context.ended = [await after_turns(task) for task in tasks]


@then("each of them has ended")
def step_each_of_them_has_ended(context: Context) -> None:
    assert all(context.ended), context.ended


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass
    raise OutputEndedError("at the end of the stream")


def _second_turn(queue: Any) -> Coroutine[Any, Any, Any]:
    """Waits, as another consumer is expected that has had one item and never comes again."""

    async def wait_for_it() -> None:
        queue.put_nowait("first")
        queue.put_nowait("second")
        other = queue.stream()
        await anext(other)
        await queue.get()
        await queue.get()

    return wait_for_it()


WAYS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "for an item": lambda queue: queue.get(),
    "for an item, with a time limit": lambda queue: queue.get(LIMIT),
    "for its next turn": _second_turn,
    "in a stream": lambda queue: _read(queue.stream()),
    "in a broadcast": lambda queue: _read(queue.stream(broadcast=True)),
    "on a loop in another thread": lambda queue: queue.get(),
}


@when("the run ends while a consumer waits {how}")
def step_the_run_ends_while_a_consumer_waits_how(context: Context, how: str) -> None:
    if how == "in a stream opened before the run":
        context.queue = OutputQueue()
        stream = context.queue.stream()
        context.queue.begin()
        coroutine = _read(stream)
    else:
        coroutine = WAYS[how](context.queue)
    if how == "on a loop in another thread":
        loop = LentLoop()
        context.add_cleanup(loop.end)
        task = loop.run(waiting(coroutine))
        context.queue.end()
        context.ending = loop.run(outcome(task))
        return

    async def main() -> BaseException | None:
        task = await waiting(coroutine)
        context.queue.end()
        return await outcome(task)

    context.ending = run(main())


async def outcome(task: asyncio.Task[Any]) -> BaseException | None:
    with suppress(OutputEndedError):
        await asyncio.wait_for(asyncio.shield(task), LIMIT)
    return task.exception()


@then("that consumer has ended, with OutputEndedError or the end of its loop")
def step_that_consumer_has_ended_with_outputendederror_or_the_end(context: Context) -> None:
    assert isinstance(context.ending, OutputEndedError), context.ending


@when("{items:d} items are put, the run ends, and {asked:d} are asked for")
def step_items_items_are_put_the_run_ends_and_asked_are_asked_for(
    context: Context, items: int, asked: int
) -> None:
    fill(context.queue, items)
    context.queue.end()
    context.answers = run(answers(context.queue, asked, None))


@when("{items:d} items are got with a time limit of {seconds:g} seconds, and one more")
def step_items_items_are_got_with_a_time_limit_of_seconds_seconds(
    context: Context, items: int, seconds: float
) -> None:
    fill(context.queue, items)
    context.answers = run(answers(context.queue, items + 1, seconds))


async def answers(queue: Any, asked: int, seconds: float | None) -> list[Any]:
    all_: list[Any] = []
    for _ in range(asked):
        try:
            all_.append(await queue.get(seconds))
        except RuntimeError as error:
            all_.append(error)
        except TimeoutError as error:
            all_.append(error)
    return all_


@then("3 are got in order, and the fourth is an OutputEndedError, which is a RuntimeError")
def step_3_are_got_in_order_and_the_fourth_is_an_outputendederror(context: Context) -> None:
    assert context.answers[:3] == [0, 1, 2], context.answers
    assert isinstance(context.answers[3], OutputEndedError), context.answers
    assert isinstance(context.answers[3], RuntimeError)


@then("10 are got in order, and the eleventh is a RunTimeoutError, which is a TimeoutError")
def step_10_are_got_in_order_and_the_eleventh_is_a_runtimeouterror(context: Context) -> None:
    assert context.answers[:10] == list(range(10)), context.answers
    assert isinstance(context.answers[10], RunTimeoutError), context.answers
    assert isinstance(context.answers[10], TimeoutError)


@then("a getter waits")
def step_a_getter_waits(context: Context) -> None:
    async def main() -> bool:
        return await after_turns(await waiting(context.queue.get()))

    assert run(main()) is False


@then("a getter is refused at once")
def step_a_getter_is_refused_at_once(context: Context) -> None:
    [error] = run(answers(context.queue, 1, None))
    assert isinstance(error, OutputEndedError), error


@when("the run begins and ends")
def step_the_run_begins_and_ends(context: Context) -> None:
    context.queue.begin()
    context.queue.end()


@when("the run begins")
def step_the_run_begins(context: Context) -> None:
    context.queue.begin()


@when("an item goes to one of two who wait, the run ends, and that one is cancelled")
def step_an_item_goes_to_one_of_two_who_wait_the_run_ends_and_that(context: Context) -> None:
    async def main() -> None:
        got: list[Any] = []
        first = await waiting(context.queue.get())
        second = await waiting(consume(context.queue, got))
        context.queue.put_nowait("item")
        context.queue.end()
        await asyncio.sleep(0)  # the other has looked, and found that it is not its own
        first.cancel()
        context.others_end = await after_turns(second)
        context.others = got

    run(main())


@then("the other has got it")
def step_the_other_has_got_it(context: Context) -> None:
    assert context.others == ["item"], context.others
    assert context.others_end


def stand_still(context: Context, getters: int) -> None:
    """Have so many wait on a loop that does not run any more."""
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(context.queue.get()) for _ in range(getters)]
    loop.run_until_complete(pass_turns())

    def end() -> None:
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    context.add_cleanup(end)


@when("an item goes to one whose loop stands still, and the run ends while another waits")
def step_an_item_goes_to_one_whose_loop_stands_still_and_the_run(context: Context) -> None:
    stand_still(context, 1)

    async def main() -> None:
        got: list[Any] = []
        second = await waiting(consume(context.queue, got))
        context.queue.put_nowait("item")
        context.queue.end()
        await asyncio.wait_for(second, LIMIT)
        context.others, context.others_end = got, second.done()

    run(main())


@when("two items go to two whose loop stands still, as one more waits to get, and one to put")
def step_two_items_go_to_two_whose_loop_stands_still_as_one_more(context: Context) -> None:
    stand_still(context, 2)

    async def main() -> None:
        getting = await waiting(context.queue.get())
        fill(context.queue, 2)
        putting = asyncio.create_task(context.queue.put(2))
        context.done, _ = await asyncio.wait([getting, putting], timeout=LIMIT)
        for task in (getting, putting):
            task.cancel()
        await asyncio.gather(getting, putting, return_exceptions=True)

    run(main())


@then("both have done what they waited for")
def step_both_have_done_what_they_waited_for(context: Context) -> None:
    assert len(context.done) == 2, context.done
    assert context.queue.qsize() == 2


# -- nothing is lost -------------------------------------------------------------------------------


@when("a getter is cancelled {when_}")
def step_a_getter_is_cancelled_when(context: Context, when_: str) -> None:
    queue = context.queue

    async def main() -> None:
        if when_ == "in its first turn, of a filled one":
            queue.put_nowait("item")
        getter = asyncio.create_task(get_one(queue))
        if when_ != "before it has asked":
            await asyncio.sleep(0)
        next_one = asyncio.create_task(get_one(queue))
        if when_.endswith("the item is put"):
            await pass_turns()  # both are asleep
        if when_ == "as the item is put":
            queue.put_nowait("item")
            getter.cancel()
        else:
            getter.cancel()
            if when_ != "in its first turn, of a filled one":
                queue.put_nowait("item")
        context.next_got = await after_turns(next_one) and next_one.result()
        assert getter.cancelled()

    run(main())


@then("the next one gets the item")
def step_the_next_one_gets_the_item(context: Context) -> None:
    assert context.next_got == "item", context.next_got


@when(
    "getters are cancelled after 0 to {most:d} turns each, with an item put in each of those turns"
)
def step_getters_are_cancelled_after_0_to_most_turns_each_with_an(
    context: Context, most: int
) -> None:
    queue, got = context.queue, []
    put = count()
    context.rest = got

    async def main() -> None:
        for before in range(most + 1):
            for turns in range(most + 1):
                task = asyncio.create_task(queue.get())
                for turn in range(turns):
                    if turn == before:
                        queue.put_nowait(next(put))
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    got.append(await task)
        context.items = next(put)

    run(main())


@then("all items were got, each once, or are there")
def step_all_items_were_got_each_once_or_are_there(context: Context) -> None:
    got = list(context.rest)
    assert got, "no consumer got anything: the scenario shows nothing"
    with suppress(asyncio.QueueEmpty):
        while True:
            got.append(context.queue.get_nowait())
    assert sorted(got) == list(range(context.items)), got


@when("an item is put and the run ends in one step of the loop, while a stream waits and works")
def step_an_item_is_put_and_the_run_ends_in_one_step_of_the_loop(context: Context) -> None:
    queue, got = context.queue, []
    context.streamed = got

    async def main() -> None:
        async def read() -> None:
            async for item in queue.stream():
                got.append(item)
                await asyncio.sleep(0)

        reader = await waiting(read())
        queue.put_nowait("first")
        await asyncio.sleep(0)
        queue.put_nowait("second")
        queue.end()
        context.stream_ended = await after_turns(reader)

    run(main())


@then("the stream has given all of it, and has ended")
def step_the_stream_has_given_all_of_it_and_has_ended(context: Context) -> None:
    assert context.streamed == ["first", "second"], context.streamed
    assert context.stream_ended


@when("a getter is closed in a thread that reads a broadcast, while another thread puts")
def step_a_getter_is_closed_in_a_thread_that_reads_a_broadcast(context: Context) -> None:
    putting = threading.Event()
    queue: OutputQueue[str] = OutputQueue(direct=putting.set)  # called under the queue's lock
    queue.begin()
    stream = queue.stream(broadcast=True)
    (branch,) = queue._branches.values()
    loop = asyncio.new_event_loop()
    getter = queue.get()
    task = loop.create_task(getter)
    loop.run_until_complete(pass_turns())
    task._log_destroy_pending = False  # on purpose
    loop.close()

    def close() -> None:
        with branch._lock:
            putter = thread(queue.put_nowait, "item")
            # For as long as it takes the other thread to come to wait for this one's lock; with
            # one lock for both, it never gets so far as to say so.
            putting.wait(0.2)
            getter.close()
        putter.result(LIMIT)

    context.closing, context.left = thread(close), (stream, task)


@then("both go on")
def step_both_go_on(context: Context) -> None:
    context.closing.result(LIMIT)
    context.left = None


@when("a loop is closed on which one waits for an item, and another waits to put")
def step_a_loop_is_closed_on_which_one_waits_for_an_item_and(context: Context) -> None:
    queue = context.queue
    closing = asyncio.new_event_loop()
    tasks = [closing.create_task(queue.get())]
    closing.run_until_complete(pass_turns())
    other = OutputQueue(1)
    other.begin()
    other.put_nowait("in")
    tasks.append(closing.create_task(other.put("never in")))
    closing.run_until_complete(pass_turns())
    context.full, context.left = other, tasks
    for task in tasks:
        task._log_destroy_pending = False  # on purpose
    closing.close()

    def forget() -> None:
        tasks.clear()
        context.left = None

    context.add_cleanup(forget)


@then("another consumer gets the item that is put, and putters have room")
def step_another_consumer_gets_the_item_that_is_put_and_putters_have(context: Context) -> None:
    async def main() -> None:
        somebody = await waiting(context.queue.get())
        context.queue.put_nowait("item")
        assert await after_turns(somebody)
        assert somebody.result() == "item"

    run(main())
    assert context.full.get_nowait() == "in"
    run(context.full.put("mine"))
    assert context.full.get_nowait() == "mine"
    assert context.full.empty()


@when(
    "threads and loops put, get, give up, are cancelled and closed, as chance {seed:d} will have it"
)
def step_threads_and_loops_put_get_give_up_are_cancelled_and_closed(
    context: Context, seed: int
) -> None:
    context.storm = Storm(seed)
    thread(context.storm.run).result(LIMIT)


@then("what was put was got, each once, and nothing is left")
def step_what_was_put_was_got_each_once_and_nothing_is_left(context: Context) -> None:
    storm = context.storm
    assert storm.got == storm.put, (storm.got - storm.put, storm.put - storm.got)
    assert storm.queue.empty(), storm.queue


@then("observers and broadcasts have all of it, in the same order")
def step_observers_and_broadcasts_have_all_of_it_in_the_same_order(context: Context) -> None:
    storm = context.storm
    assert Counter(storm.observed) == storm.put, len(storm.observed)
    for broadcast in storm.broadcasts:
        assert broadcast == storm.observed, (len(broadcast), len(storm.observed))
