from __future__ import annotations

import asyncio
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state import State, Versioned
from rxlanggraph.state.backends.memory import MemoryBackend
from support.concurrency.tasks import in_thread
from support.state.state_world import Shaky, turns, world


class Seen:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.values: list[Versioned] = []
        self.end: object = None

    def on_next(self, value: Versioned) -> None:
        self.values.append(value)

    def on_error(self, error: Exception) -> None:
        assert self.end is None
        self.end = error

    def on_completed(self) -> None:
        assert self.end is None
        self.end = "completed"


def watch(state: State, seen: Seen, interval: float = 0.2) -> Any:
    watched = state.watch("k", interval)
    return watched.subscribe(seen.on_next, seen.on_error, seen.on_completed)


@when("an observer watches a key that is 1, and it is set to 2, deleted, and set to 3")
def step_an_observer_watches_a_key_that_is_1_and_it_is_set_to_2(context: Context) -> None:
    context.seen = Seen()

    async def go_on() -> None:
        await context.state.set("k", 1)
        context.began = world(context).clock.now
        subscription = watch(context.state, context.seen)
        await turns()
        await context.state.set("k", 2)
        await turns()
        await context.state.delete("k")
        await turns()
        await context.state.set("k", 3)
        await turns()
        subscription.dispose()

    world(context).run(go_on())


@then("the values 1, 2, 3 were seen, with growing versions, in no time")
def step_the_values_1_2_3_were_seen_with_growing_versions_in_no(context: Context) -> None:
    assert [value for value, _ in context.seen.values] == [1, 2, 3], context.seen.values
    versions = [version for _, version in context.seen.values]
    assert versions == sorted(set(versions)), versions
    assert world(context).clock.now == context.began


@when("an observer watches a key every 0.5 seconds that another process sets")
def step_an_observer_watches_a_key_every_0_5_seconds_that_another(context: Context) -> None:
    context.seen = Seen()
    other = world(context).open()

    async def go_on() -> None:
        subscription = watch(context.state, context.seen, 0.5)
        await asyncio.sleep(0.7)
        await other.set("k", "new")
        await asyncio.sleep(0.5)
        context.in_time = list(context.seen.values)
        await asyncio.sleep(5)
        subscription.dispose()

    world(context).run(go_on())


@then("it was seen within 0.5 seconds, and never twice")
def step_it_was_seen_within_0_5_seconds_and_never_twice(context: Context) -> None:
    assert [value for value, _ in context.in_time] == ["new"], context.in_time
    assert context.seen.values == context.in_time


async def as_the_server_fails(server: Shaky, subscription: Any) -> None:
    shaken = server.shaken

    async def fail(_: object) -> None:
        server.shaken = shaken
        subscription.dispose()
        raise KeyError("of the server")

    server.shaken = fail
    await asyncio.sleep(1)


@when("a watched key is disposed of {how}")
def step_a_watched_key_is_disposed_of_how(context: Context, how: str) -> None:
    context.seen, loop_task = Seen(), asyncio.all_tasks
    there = world(context)

    async def go_on() -> None:
        await context.state.set("k", 0)
        if how == "before it has begun":
            in_thread(lambda: watch(context.state, context.seen).dispose())
        else:
            subscription = watch(context.state, context.seen)
            if how == "by the observer itself":
                keep = context.seen.on_next
                context.seen.on_next = lambda value: (keep(value), subscription.dispose())
                subscription.dispose()
                subscription = watch(context.state, context.seen)
            await turns()
            if how == "by a task of the loop":
                subscription.dispose()
            elif how == "as the server fails":
                await as_the_server_fails(there.server(context.state), subscription)
            elif how == "by another thread":
                in_thread(subscription.dispose)
        context.counted = len(context.seen.values)
        await context.state.set("k", 1)
        await asyncio.sleep(1)
        context.left = [task for task in loop_task() if task is not asyncio.current_task()]

    there.run(go_on())


@then("nothing was seen after that, and no observer is left")
def step_nothing_was_seen_after_that_and_no_observer_is_left(context: Context) -> None:
    assert len(context.seen.values) == context.counted <= 1, context.seen.values
    assert context.left == [], context.left


@when("a key is watched while {what}")
def step_a_key_is_watched_while_what(context: Context, what: str) -> None:
    context.seen = Seen()
    there = world(context)
    if what == "the loop is stopped":
        watch(context.state, context.seen)
        return

    async def go_on() -> None:
        if what == "it was closed already":
            await context.state.aclose()
        watch(context.state, context.seen)
        await turns()
        if what == "the state is closed":
            await context.state.aclose()
        elif what == "the server goes":
            there.server(context.state).gone = 1000
            await asyncio.sleep(10)
        await turns()

    there.run(go_on())


@then("the observer is told {notification}, and nothing after it")
def step_the_observer_is_told_notification_and_nothing_after_it(
    context: Context, notification: str
) -> None:
    end = context.seen.end
    assert (end if isinstance(end, str) else type(end).__name__) == notification, end


@when("a key is watched by an observer that raises")
def step_a_key_is_watched_by_an_observer_that_raises(context: Context) -> None:
    context.told = []

    def fail(_: object) -> None:
        raise KeyError("of the observer")

    async def go_on() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: context.told.append(what))
        await context.state.set("k", 1)
        context.state.watch("k").subscribe(fail)
        await asyncio.sleep(1)
        await context.state.set("k", 2)

    world(context).run(go_on())


@then("the loop's handler was told, and the state goes on")
def step_the_loops_handler_was_told_and_the_state_goes_on(context: Context) -> None:
    (told,) = context.told
    assert isinstance(told["exception"], KeyError), told
    assert world(context).run(context.state.get("k")).value == 2


@given("a shared state on a loop of its own")
def step_a_shared_state_on_a_loop_of_its_own(context: Context) -> None:
    context.runner = asyncio.Runner()
    context.add_cleanup(context.runner.close)


@when("a key is watched, the loop is closed, and the watching disposed of")
def step_a_key_is_watched_the_loop_is_closed_and_the_watching(context: Context) -> None:
    context.seen = Seen()

    async def begin() -> Any:
        state = State(MemoryBackend())
        await state.set("k", 1)
        subscription = watch(state, context.seen)
        await turns()
        return subscription

    subscription = context.runner.run(begin())
    context.runner.close()
    subscription.dispose()


@then("nothing is raised, and nothing was seen after that")
def step_nothing_is_raised_and_nothing_was_seen_after_that(context: Context) -> None:
    assert [value for value, _ in context.seen.values] == [1], context.seen.values
    assert context.seen.end is None
