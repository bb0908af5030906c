"""Steps for Rx's flattening operators over graphs, beside those of RxPY."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from reactivex import operators as ops

from rxlanggraph import StreamMessage, operators
from support.bridge.bridges import arguments, on_loop
from support.bridge.graphs import graph_of
from support.bridge.streams import Subscriber
from support.concurrency.waiting import Gate

Cases = Iterator[tuple[str, str | None]]


def _orders(arriving: str, ending: str = "", so_far: str = "") -> Iterator[str]:
    """Every order in which messages arrive, one by one, and end: ``a`` arrives, ``A`` ends."""
    if not arriving and not ending:
        yield so_far
    if arriving:
        yield from _orders(arriving[1:], ending + arriving[0], so_far + arriving[0])
    for each in ending:
        yield from _orders(arriving, ending.replace(each, ""), so_far + each.upper())


def _cases() -> Cases:
    for events in _orders("abc"):
        for failing in (None, "a", "b", "c"):
            yield events, failing


def _seen(subscriber: Subscriber, values: list[Any]) -> tuple[str, str]:
    end = subscriber.ends[0] if subscriber.ends else "goes on"
    return "".join(values), end


def _play(events: str, source: rx.Subject[Any], end: Callable[[str], None]) -> None:
    for event in events:
        source.on_next(event) if event.islower() else end(event.lower())
    source.on_completed()


THEIRS: dict[str, Callable[[Callable[[str], rx.Observable[str]]], Any]] = {
    "flat_map": ops.flat_map,
    "concat_map": ops.concat_map,
    "switch_map": ops.switch_map,
    "exclusive": lambda run: rx.compose(ops.map(run), ops.exclusive()),
    "merge(max_concurrent=1)": lambda run: rx.compose(ops.map(run), ops.merge(max_concurrent=1)),
    "merge(max_concurrent=2)": lambda run: rx.compose(ops.map(run), ops.merge(max_concurrent=2)),
}


def _in_rxpy(name: str, events: str, failing: str | None) -> tuple[str, str]:
    ends = {each: rx.subject.AsyncSubject[str]() for each in "abc"}

    def end(message: str) -> None:
        if message == failing:
            ends[message].on_error(ValueError(message))
        else:
            ends[message].on_next(message)
            ends[message].on_completed()

    subscriber, source = Subscriber(), rx.Subject[Any]()
    subscriber.subscribe(source.pipe(THEIRS[name](lambda message: ends[message])))
    _play(events, source, end)
    return _seen(subscriber, subscriber.items)


class _Ours:
    """One of our operators over a function whose runs end when they are told to."""

    def __init__(self, context: Context, name: str, failing: str | None = None) -> None:
        self._context = context
        self._gates = {each: Gate() for each in "abcd"}

        async def run(message: str) -> str:
            await self._gates[message].wait_async()
            if message == failing:
                raise ValueError(message)
            return message

        function, _, options = name.partition("(")
        chosen = arguments(options.rstrip(")"))
        self.operator = getattr(operators, function)(context.bridge, run, **chosen)

    def settle(self) -> None:
        """Return when all that follows from what has happened has happened, too."""
        for _ in range(12):
            on_loop(self._context)

    def end(self, message: str) -> None:
        self.settle()
        self._gates[message].open()
        self.settle()

    def subscribe(self) -> tuple[Subscriber, rx.Subject[Any]]:
        subscriber, source = Subscriber(), rx.Subject[Any]()
        subscriber.subscribe(source.pipe(self.operator))
        return subscriber, source


def _values(subscriber: Subscriber) -> list[str]:
    return [result.content for result in subscriber.items]


@when("3 messages arrive and end in every order, through {ours} and RxPY's {theirs}")
def step_3_messages_arrive_and_end_in_every_order(context: Context, ours: str, theirs: str) -> None:
    context.compared = []
    for events, failing in _cases():
        operator = _Ours(context, ours, failing)
        subscriber, source = operator.subscribe()
        _play(events, source, operator.end)
        operator.settle()
        found = _seen(subscriber, _values(subscriber))
        context.compared.append((events, failing, found, _in_rxpy(theirs, events, failing)))


@then("both have emitted the same, and ended in the same way, in each of the {count:d} cases")
def step_both_have_emitted_the_same(context: Context, count: int) -> None:
    assert len(context.compared) == count
    different = [case for case in context.compared if case[2] != case[3]]
    assert not different, different


@when('the messages "{arriving}" arrive and end as "{ending}", through concat_map_eager')
def step_the_messages_arrive_and_end_as_through_concat_map_eager(
    context: Context, arriving: str, ending: str
) -> None:
    operator = _Ours(context, "concat_map_eager")
    context.subscriber, source = operator.subscribe()
    for each in arriving:
        source.on_next(each)
    context.after = {}
    for each in ending:
        operator.end(each)
        context.after[each] = "".join(_values(context.subscriber))
    source.on_completed()
    context.subscriber.wait_for_end()


@then('"{emitted}" was emitted, and "{first}" as soon as it had ended')
def step_was_emitted_and_as_soon_as_it_had_ended(
    context: Context, emitted: str, first: str
) -> None:
    assert "".join(_values(context.subscriber)) == emitted
    assert context.after == {"c": "", "a": "a", "b": "abc"}, context.after
    assert first in context.after[first]


@when('the messages "{some}" of one thread and "{others}" of another arrive, through switch_map')
def step_the_messages_of_one_thread_and_of_another_arrive(
    context: Context, some: str, others: str
) -> None:
    operator = _Ours(context, "switch_map")
    context.subscriber, source = operator.subscribe()
    for thread_id, messages in (("t", some), ("u", others)):
        for each in messages:
            source.on_next(StreamMessage(each, thread_id))
    for each in some + others:
        operator.end(each)
    source.on_completed()
    context.emitted = "".join(_values(context.subscriber.wait_for_end()))


@then('"{emitted}" was emitted')
def step_was_emitted(context: Context, emitted: str) -> None:
    assert context.emitted == emitted, context.emitted


@when('the messages "{one}" and "{other}" arrive at two subscriptions of one switch_map')
def step_the_messages_and_arrive_at_two_subscriptions(
    context: Context, one: str, other: str
) -> None:
    operator = _Ours(context, "switch_map")
    subscriptions = [operator.subscribe() for _ in range(2)]
    for (_, source), each in zip(subscriptions, (one, other), strict=True):
        source.on_next(each)
    for (subscriber, source), each in zip(subscriptions, (one, other), strict=True):
        operator.end(each)
        source.on_completed()
        subscriber.wait_for_end()
    context.emitted = "".join(value for each, _ in subscriptions for value in _values(each))


@when('the messages "{arriving}" {of} arrive at exhaust_map with errors="emit", and "a" ends last')
def step_the_messages_arrive_at_exhaust_map(context: Context, arriving: str, of: str) -> None:
    operator = _Ours(context, "exhaust_map(errors='emit')")
    context.subscriber, source = operator.subscribe()
    for each in arriving:
        source.on_next(StreamMessage(each, "t" if of == "of the thread t" else None))
    operator.end("a")
    source.on_completed()
    context.subscriber.wait_for_end()


@then('the error of "{message}" says "{words}"')
def step_the_error_of_says(context: Context, message: str, words: str) -> None:
    results = {result.source.content: result for result in context.subscriber.items}
    assert results[message].status == "rejected", results
    assert words in str(results[message].error), results[message].error


@when("2 messages go to {kind:Kind}, through switch_map")
def step_2_messages_go_to_through_switch_map(context: Context, kind: str) -> None:
    graph = graph_of(context.work, kind)
    context.subscriber, source = Subscriber(), rx.Subject[Any]()
    context.subscriber.subscribe(source.pipe(operators.switch_map(context.bridge, graph)))
    source.on_next({"value": 0})
    context.work.began.wait_for(1)
    source.on_next({"value": 1})
    on_loop(context)
    context.work.release()
    source.on_completed()
    context.subscriber.wait_for_end()


@then("the two runs never overlapped, and the last one was emitted")
def step_the_two_runs_never_overlapped_and_the_last_one(context: Context) -> None:
    assert context.work.peak == 1
    assert [result.content for result in context.subscriber.items] == [{"value": 1}]
