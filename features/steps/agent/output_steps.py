from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Any

from behave import given, register_type, then, when
from behave.runner import Context

from rxlanggraph.agent import OutputQueue
from rxlanggraph.agent.output import reservations
from rxlanggraph.agent.output.fairness import RoundRobin
from rxlanggraph.errors import OutputEndedError, RunTimeoutError
from support.agent.output_crowds import fill, get_one, read, share_out, share_out_on_loops
from support.bridge.bridges import LentLoop
from support.concurrency.patching import patch
from support.concurrency.tasks import pass_turns, run
from support.concurrency.waiting import LIMIT
from support.controls import output_naive
from support.step_types import one_of

# An expected consumer is waited for until it comes, and so is one with a reservation: no verdict
# depends on how busy the machine is.
KINDS: dict[str, Callable[[], Any]] = {
    "an output queue": lambda: OutputQueue(fairness_timeout=LIMIT),
    "a bounded output queue": lambda: OutputQueue(2, fairness_timeout=LIMIT),
    "an asyncio.Queue": output_naive.PlainQueue,
    "a queue that serves the first request": output_naive.FirstComeQueue,
    "a queue that is looked at": output_naive.CheckedQueue,
    "a queue with a flag": output_naive.FlaggedQueue,
    "a queue that hands items over": output_naive.HandingQueue,
}


register_type(OutputKind=one_of(KINDS))


# -- given -----------------------------------------------------------------------------------------


@given("{kind:OutputKind}")
def step_kind(context: Context, kind: str) -> None:
    patch(context, reservations, "_STUCK_SECONDS", LIMIT)
    context.queue = KINDS[kind]()
    context.queue.begin()


@given("an output queue before its first run")
def step_an_output_queue_before_its_first_run(context: Context) -> None:
    context.queue = OutputQueue()


@given("turns with a fairness timeout of 1 second, by a clock of our own")
def step_turns_with_a_fairness_timeout_of_1_second_by_a_clock_of(context: Context) -> None:
    context.now = 0.0
    context.rounds = RoundRobin(1.0, lambda: context.now)


@given("a reservation is taken back soon from a loop that stands still")
def step_a_reservation_is_taken_back_soon_from_a_loop_that_stands(context: Context) -> None:
    patch(context, reservations, "_STUCK_SECONDS", 0.01)


@given("each reservation is taken back as soon as it is looked at")
def step_each_reservation_is_taken_back_as_soon_as_it_is_looked_at(context: Context) -> None:
    patch(context, reservations, "_STUCK_SECONDS", 0)


# -- fairness --------------------------------------------------------------------------------------


@when("{consumers:d} consumers share out {items:d} items on one loop")
def step_consumers_consumers_share_out_items_items_on_one_loop(
    context: Context, consumers: int, items: int
) -> None:
    context.items = items
    context.shares = share_out(context.queue, consumers, items)


@when("{consumers:d} consumers share out {items:d} items on {loops:d} loops")
def step_consumers_consumers_share_out_items_items_on_loops_loops(
    context: Context, consumers: int, items: int, loops: int
) -> None:
    context.items = items
    context.shares = share_out_on_loops(context.queue, consumers, loops, items)


@then("all items were got, each once")
def step_all_items_were_got_each_once(context: Context) -> None:
    got = sorted(item for share in context.shares for item in share)
    assert got == list(range(context.items)), got


@then("no share is larger than another by more than one")
def step_no_share_is_larger_than_another_by_more_than_one(context: Context) -> None:
    sizes = sorted(map(len, context.shares))
    assert sizes[-1] - sizes[0] <= 1, sizes


@when("two consumers on two loops have had one item each, and one of them asks again")
def step_two_consumers_on_two_loops_have_had_one_item_each_and_one(context: Context) -> None:
    queue = context.queue
    context.one, context.other = _Consumer(queue), _Consumer(queue)
    for consumer in (context.one, context.other):
        context.add_cleanup(consumer.end)
        consumer.ask(LIMIT)
    fill(context.queue, 2)
    assert sorted(each.answer() for each in (context.one, context.other)) == [0, 1]
    fill(context.queue, 2)


@then("it is not served before the other has asked and been served")
def step_it_is_not_served_before_the_other_has_asked_and_been(context: Context) -> None:
    one, other = context.one, context.other
    one.ask(LIMIT)
    one.answer()  # its turn in the second round, in which the other has not come yet
    one.ask(0)
    refused = one.answer()
    assert isinstance(refused, RunTimeoutError), f"it got {refused}, and the other has one"
    one.ask(LIMIT)
    other.ask(LIMIT)
    other.answer()
    fill(context.queue, 1)
    assert one.answer() == 0


class _Consumer:
    """One task on a loop of its own, which gets when it is told to."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._loop = LentLoop()
        self._orders: asyncio.Queue[tuple[float, Future[Any]] | None] = asyncio.Queue()
        self._task = self._loop.run(self._start())
        self._answer: Future[Any] = Future()

    async def _start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while (order := await self._orders.get()) is not None:
            seconds, answer = order
            try:
                answer.set_result(await self._queue.get(seconds))
            except RunTimeoutError as error:
                answer.set_result(error)

    def ask(self, seconds: float) -> None:
        """Has asked when this returns."""
        self._answer = Future()
        self._loop.run(self._order((seconds, self._answer)))

    async def _order(self, order: tuple[float, Future[Any]] | None) -> None:
        self._orders.put_nowait(order)
        await pass_turns()

    def answer(self) -> Any:
        return self._answer.result(LIMIT)

    def end(self) -> None:
        self._loop.run(self._order(None))
        self._loop.end()


@when("a consumer comes while another is taking 1000 items")
def step_a_consumer_comes_while_another_is_taking_1000_items(context: Context) -> None:
    queue = context.queue
    fill(context.queue, 1000)
    queue.end()

    async def main() -> None:
        greedy: list[Any] = []
        context.at_its_turn = None

        async def newcomer() -> None:
            came = len(greedy)
            with suppress(OutputEndedError):
                await queue.get()
                context.at_its_turn = len(greedy) - came

        async def take() -> None:
            with suppress(OutputEndedError):
                for number in count():
                    if number == 10:
                        context.newcomer = asyncio.create_task(newcomer())
                    greedy.append(await queue.get())

        await take()
        await context.newcomer

    run(main())


@then("it was served before the other had 2 more")
def step_it_was_served_before_the_other_had_2_more(context: Context) -> None:
    assert context.at_its_turn is not None, "it was never served"
    assert context.at_its_turn <= 2, context.at_its_turn


@when("{items:d} items are got in a row beside a task that counts its turns")
def step_items_items_are_got_in_a_row_beside_a_task_that_counts_its(
    context: Context, items: int
) -> None:
    fill(context.queue, items)

    async def main() -> None:
        context.turns = 0

        async def ticker() -> None:
            while True:
                context.turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(ticker())
        for _ in range(items):
            await context.queue.get()
        task.cancel()

    run(main())


@then("that task has had {turns:d} turns or more")
def step_that_task_has_had_turns_turns_or_more(context: Context, turns: int) -> None:
    assert context.turns >= turns, context.turns


class _Someone:
    """Who never ends."""

    def done(self) -> bool:
        return False


@given("two who were served, and were quick to ask again")
def step_two_who_were_served_and_were_quick_to_ask_again(context: Context) -> None:
    context.people = [_Someone(), _Someone()]
    context.one, context.other = map(context.rounds.consumer, context.people)
    for _ in range(2):
        for consumer in (context.one, context.other):
            context.rounds.enqueue(consumer, consumer)
        assert {context.rounds.next(), context.rounds.next()} == {context.one, context.other}


@when("one of them asks on, and the other does not")
def step_one_of_them_asks_on_and_the_other_does_not(context: Context) -> None:
    context.rounds.enqueue(context.one, context.one)


@then("it waits until 1 second after the other was served")
def step_it_waits_until_1_second_after_the_other_was_served(context: Context) -> None:
    rounds, one = context.rounds, context.one
    assert rounds.next() is one, "in a new round every consumer has a turn"
    rounds.enqueue(one, one)
    for now in (0.0, 0.5, 0.99):
        context.now = now
        assert rounds.next() is None, now
        assert rounds.delay(one) == 1.0 - now, (now, rounds.delay(one))
    context.now = 1.0
    assert rounds.next() is one


@then("from then on it waits for no consumer")
def step_from_then_on_it_waits_for_no_consumer(context: Context) -> None:
    for _ in range(5):
        context.rounds.enqueue(context.one, context.one)
        assert context.rounds.next() is context.one


@when("one comes back after {first:d} seconds, and then after no time")
def step_one_comes_back_after_first_seconds_and_then_after_no_time(
    context: Context, first: int
) -> None:
    rounds, one, other = context.rounds, context.one, context.other
    context.expected = []
    for seconds in (first, 0):
        context.now += seconds
        rounds.enqueue(one, one)
        rounds.enqueue(other, other)
        assert {rounds.next(), rounds.next()} == {one, other}
        context.expected.append(waits_within(rounds, other, asks=3))


def waits_within(rounds: RoundRobin[Any], consumer: Any, *, asks: int) -> bool:
    """Whether it has to wait for another consumer, if it asks so often."""
    for _ in range(asks):
        rounds.enqueue(consumer, consumer)
        if rounds.next() is None:
            return rounds.leave(consumer, consumer)
    return False


@then("it is not waited for after the first, and is after the second")
def step_it_is_not_waited_for_after_the_first_and_is_after_the(context: Context) -> None:
    assert context.expected == [False, True], context.expected


@when("one asks again and again, and before each of its turns {count_:d} come new")
def step_one_asks_again_and_again_and_before_each_of_its_turns(
    context: Context, count_: int
) -> None:
    rounds = context.rounds
    people = [_Someone()]
    one = rounds.consumer(people[0])
    context.waits = []
    for _ in range(20):
        rounds.enqueue(one, one)
        for _ in range(count_):
            people.append(_Someone())
            new = rounds.consumer(people[-1])
            rounds.enqueue(new, new)
        waited = 0
        while rounds.next() is not one:
            context.now += 1.0  # no consumer comes a second time
            waited += 1
            assert waited <= 2 * count_ + 1, "it starves"
        context.waits.append(waited)


@then("it has its turn after those {count_:d} at the latest, each time")
def step_it_has_its_turn_after_those_count_at_the_latest_each_time(
    context: Context, count_: int
) -> None:
    assert max(context.waits) <= count_, context.waits


@when("two consumers had an item each, and one of them {gone}")
def step_two_consumers_had_an_item_each_and_one_of_them_gone(context: Context, gone: str) -> None:
    queue, kept = context.queue, []

    async def main() -> None:
        fill(context.queue, 4)
        if gone == "has ended":
            await asyncio.create_task(get_one(queue))
        elif gone == "was on a loop that is closed":
            await asyncio.to_thread(asyncio.run, _get_in_a_task_kept(queue, kept))
        else:
            stream = queue.stream()
            await anext(stream)
            if gone.endswith("closed"):
                await stream.aclose()
                kept.append(stream)
            del stream
        await queue.get()
        context.shares = [[await queue.get(0) for _ in range(2)]]

    run(main())


async def _get_in_a_task_kept(queue: Any, kept: list[Any]) -> None:
    await queue.get()
    kept.append(asyncio.current_task())


@then("the other gets the next two without a wait")
def step_the_other_gets_the_next_two_without_a_wait(context: Context) -> None:
    assert context.shares == [[2, 3]], context.shares


@when("{items:d} items are each got by a task of its own, made for it")
def step_items_items_are_each_got_by_a_task_of_its_own_made_for_it(
    context: Context, items: int
) -> None:
    context.items = items
    fill(context.queue, items)

    async def main() -> list[Any]:
        return [await asyncio.create_task(get_one(context.queue)) for _ in range(items)]

    context.shares = [run(main())]


@then("hardly any of those tasks is remembered")
def step_hardly_any_of_those_tasks_is_remembered(context: Context) -> None:
    remembered = len(context.queue._reservations._round_robin._served)
    assert remembered < 200, remembered


@when("two tasks read one stream, and one task another, until {items:d} items are out")
def step_two_tasks_read_one_stream_and_one_task_another_until_items(
    context: Context, items: int
) -> None:
    fill(context.queue, items)
    context.queue.end()
    shares: list[list[Any]] = [[], []]

    async def main() -> None:
        streams = [context.queue.stream(), context.queue.stream()]
        await asyncio.gather(*(read(streams[i], shares[i]) for i in (0, 0, 1)))

    run(main())
    context.shares = shares


@then("each stream has given {share:d}, within one")
def step_each_stream_has_given_share_within_one(context: Context, share: int) -> None:
    sizes = [len(each) for each in context.shares]
    assert all(abs(size - share) <= 1 for size in sizes), sizes
