"""The SerializedObserver by itself: many threads on one side, one subscriber on the other."""

from __future__ import annotations

import gc
import threading
import weakref

from behave import then, when
from behave.runner import Context
from reactivex.observer import Observer

from rxlanggraph.rx.serialized_observer import SerializedObserver
from support.bridge.bridges import listen
from support.bridge.streams import Subscriber
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads, thread


@then("{count:d} threads meet inside one plain on_next")
def step_count_threads_meet_inside_one_plain_on_next(context: Context, count: int) -> None:
    inside = threading.Barrier(count)
    observer: Observer[int] = Observer(lambda _: inside.wait(LIMIT) and None)
    in_threads(count, observer.on_next)


@when("{count:d} threads put {items:d} items each through one SerializedObserver")
def step_count_threads_put_items_items_each_through_one(
    context: Context, count: int, items: int
) -> None:
    context.subscriber = Subscriber()
    observer: SerializedObserver[tuple[int, int]] = SerializedObserver(context.subscriber)

    def put(number: int) -> None:
        for item in range(items):
            observer.put_next((number, item))
            observer.flush()

    in_threads(count, put)
    for _ in range(2):
        observer.put_completed()
        observer.flush()


@then(
    "the subscriber was never entered twice, got {count:d} items, each thread's in order,"
    " and one end"
)
def step_the_subscriber_was_never_entered_twice_got_count_items(
    context: Context, count: int
) -> None:
    got = context.subscriber.wait_for_end()
    assert got.overlaps == 0 and len(got.items) == count and got.ends == ["completed"]
    for number in range(8):
        mine = [item for source, item in got.items if source == number]
        assert mine == sorted(mine)


@when("a second and a third thread put an item while the first is inside the subscriber")
def second_and_third_put_an_item(context: Context) -> None:
    inside, may_leave = Gate(), Gate()
    context.log = Log()

    def on_next(item: str) -> None:
        context.log.add((item, threading.get_ident()))
        if item == "first":
            inside.open()
            may_leave.wait()

    observer: SerializedObserver[str] = SerializedObserver(Observer(on_next))

    def put(item: str) -> int:
        observer.put_next(item)
        observer.flush()
        return threading.get_ident()

    context.busy = [observer.is_busy()]
    first = thread(put, "first")
    inside.wait()
    context.busy.append(observer.is_busy())
    for item in ("second", "third"):
        thread(put, item).result(LIMIT)
    context.before = list(context.log)
    may_leave.open()
    context.ident = first.result(LIMIT)
    context.busy.append(observer.is_busy())


@then("they return while the first is still inside, and the first delivers all three")
def they_return_and_the_first_delivers_all(context: Context) -> None:
    assert context.before == [("first", context.ident)]
    assert list(context.log) == [(item, context.ident) for item in ("first", "second", "third")]


@then("it was busy while the first was inside, and not before or afterwards")
def step_it_was_busy_while_the_first_was_inside(context: Context) -> None:
    assert context.busy == [False, True, False], context.busy


@then("a SerializedObserver passes on no item and no second end after completed, error or stop")
def step_a_serializedobserver_passes_on_no_item_and_no_second_end(context: Context) -> None:
    for end, expected in (
        (lambda observer: observer.put_completed(), ["completed"]),
        (lambda observer: observer.put_error(ValueError("end")), ["error end"]),
        (lambda observer: observer.stop(), []),
    ):
        subscriber = Subscriber()
        observer: SerializedObserver[int] = SerializedObserver(subscriber)
        end(observer)
        observer.put_next(1)
        observer.put_error(ValueError("late"))
        observer.put_completed()
        observer.flush()
        assert (subscriber.items, subscriber.ends) == ([], expected), subscriber.ends


class Item:
    """Something that can be seen to be freed."""


@when("a SerializedObserver is stopped by the first of three items that are lined up")
def step_a_serializedobserver_is_stopped_by_the_first_of_three(context: Context) -> None:
    items = [Item(), Item(), Item()]
    context.first, context.kept = items[0], [weakref.ref(item) for item in items[1:]]
    context.got = []

    def stop_at_once(item: Item) -> None:
        context.got.append(item)
        context.observer.stop()

    context.observer = SerializedObserver(Observer(stop_at_once))
    while items:
        context.observer.put_next(items.pop(0))
    context.observer.flush()


@then("the subscriber has got the first alone, and the others are freed")
def the_first_alone_and_the_others_freed(context: Context) -> None:
    assert context.got == [context.first]
    gc.collect()
    assert [kept() for kept in context.kept] == [None, None]


@when("a SerializedObserver's on_next raises a GeneratorExit, and its on_error a LookupError")
def step_a_serializedobservers_on_next_raises_a_generatorexit_and(context: Context) -> None:
    context.logged = listen(context, "rxlanggraph")
    context.first, context.second = GeneratorExit(), LookupError()
    context.error = None

    def on_next(_: object) -> None:
        raise context.first

    def on_error(_: object) -> None:
        raise context.second

    observer: SerializedObserver[int] = SerializedObserver(Observer(on_next, on_error))
    observer.put_next(1)
    try:
        observer.flush()
    except BaseException as error:
        context.error = error
    assert not observer.is_busy()  # nothing follows, and nothing waits for it


@then('the GeneratorExit comes out of the SerializedObserver, and "{text}" is logged')
def step_the_generatorexit_comes_out_of_the_serializedobserver_and(
    context: Context, text: str
) -> None:
    assert context.error is context.first, repr(context.error)
    (record,) = context.logged
    assert record.getMessage() == text and record.exc_info[1] is context.second, record
