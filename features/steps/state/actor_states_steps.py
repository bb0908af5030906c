from __future__ import annotations

import asyncio
import copy
import gc
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateClosedError
from rxlanggraph.state import StateActor
from support.concurrency.tasks import PATIENCE, in_thread, run
from support.concurrency.waiting import Gate
from support.state.actors import Logged, Told, an_actor

# -- snapshots -------------------------------------------------------------------------------------


@given("an actor whose state has mappings, lists, sets and tuples within each other")
def step_an_actor_whose_state_has_mappings_lists_sets_and_tuples(context: Context) -> None:
    context.initial = {"a": {"b": 1}, "list": [{"c": 2}], "set": {3}, "tuple": ([4],)}
    an_actor(context, context.initial, lambda state, change: {**state, **change})


ATTEMPTS: dict[str, Callable[[Any], object]] = {
    "set an item": lambda state: state.__setitem__("a", 2),
    "delete an item": lambda state: state.__delitem__("a"),
    "set an item of an inner one": lambda state: state["list"][0].__setitem__("c", 3),
    "append to an inner list": lambda state: state["tuple"][0].append(5),
    "add to an inner set": lambda state: state["set"].add(4),
}


def plain(state: Any) -> Any:
    """A copy that stays as it is, whatever the state does."""
    if isinstance(state, Mapping):
        return {key: plain(value) for key, value in state.items()}
    return [plain(value) for value in state] if isinstance(state, tuple) else copy.copy(state)


@when("a reader tries to {change}")
def step_a_reader_tries_to_change(context: Context, change: str) -> None:
    context.before, context.error = plain(context.actor.state), None
    try:
        ATTEMPTS[change](context.actor.state)
    except (TypeError, AttributeError) as error:
        context.error = error


@then("TypeError or AttributeError is raised, and the state is as it was")
def step_typeerror_or_attributeerror_is_raised_and_the_state_is_as(context: Context) -> None:
    assert context.error is not None, "nothing was raised"
    assert plain(context.actor.state) == context.before, context.actor.state


@when("the initial state is changed, and commands are sent")
def step_the_initial_state_is_changed_and_commands_are_sent(context: Context) -> None:
    context.snapshot = context.actor.state
    context.before = plain(context.snapshot)
    context.initial["a"]["b"] = 99
    context.initial["list"].append(99)
    assert context.actor.ask({"a": 100}).result(PATIENCE)["a"] == 100


@then("the first snapshot is as it was")
def step_the_first_snapshot_is_as_it_was(context: Context) -> None:
    assert context.before == {"a": {"b": 1}, "list": [{"c": 2}], "set": {3}, "tuple": [[4]]}
    assert plain(context.snapshot) == context.before, context.snapshot


@when("a command changes one item")
def step_a_command_changes_one_item(context: Context) -> None:
    context.snapshot = context.actor.state
    context.now = context.actor.ask({"a": {"b": 2}}).result(PATIENCE)


@then("all other items are the very same as before")
def step_all_other_items_are_the_very_same_as_before(context: Context) -> None:
    assert context.now["a"] == {"b": 2} and context.snapshot["a"] == {"b": 1}
    for name in ("list", "set", "tuple"):
        assert context.now[name] is context.snapshot[name], name


class Point(NamedTuple):
    x: int
    tags: Any


@dataclass(frozen=True)
class Frozen:
    point: Point


@given("an actor whose state is a frozen dataclass with a named tuple")
def step_an_actor_whose_state_is_a_frozen_dataclass_with_a_named(context: Context) -> None:
    an_actor(context, Frozen(Point(1, ())), lambda _, point: [Frozen(point), point])


@then("its snapshot is that dataclass, and the named tuple has its type")
def step_its_snapshot_is_that_dataclass_and_the_named_tuple_has_its(context: Context) -> None:
    assert context.actor.state == Frozen(Point(1, ()))
    frozen, point = context.actor.ask(Point(2, ["a"])).result(PATIENCE)
    assert isinstance(frozen, Frozen)
    assert point == Point(2, ("a",)) and isinstance(point, Point), point


# -- states ----------------------------------------------------------------------------------------


@when("one observer subscribes before, and another after 3 commands, and it is closed after 6")
def step_one_observer_subscribes_before_and_another_after_3_commands(context: Context) -> None:
    context.told = [Told(), Told()]
    for told in context.told:
        told.subscribe_to(context.actor)
        for number in range(3):
            context.actor.send(number)
    context.actor.close()


@then("the first was told 7 states, the second 4, in order, and both that it is complete")
def step_the_first_was_told_7_states_the_second_4_in_order_and_both(context: Context) -> None:
    commands = [0, 1, 2, 0, 1, 2]
    every = [tuple(commands[:count]) for count in range(7)]
    first, second = context.told
    assert first.states == every, first.states
    assert second.states == every[3:], second.states
    assert first.complete.is_open and second.complete.is_open


@when("an observer disposes of states {where}")
def step_an_observer_disposes_of_states_where(context: Context, where: str) -> None:
    context.told = Told()
    if where == "in a thread":
        subscription = context.told.subscribe_to(context.actor)
        context.actor.ask("told").result(PATIENCE)
        in_thread(subscription.dispose)
        context.expected = [(), ("told",)]
    else:
        subscribed = Gate()

        def dispose_of_itself(state: Any) -> None:
            subscribed.wait()
            context.told.states.append(state)
            if state:
                subscription.dispose()

        subscription = context.actor.states.subscribe(dispose_of_itself)
        context.actor.send("told")
        context.actor.send("too late")
        subscribed.open()
        context.expected = [(), ("told",)]


@then("nothing was told after that")
def step_nothing_was_told_after_that(context: Context) -> None:
    context.actor.ask("not told").result(PATIENCE)
    context.actor.close()
    assert context.told.states == context.expected, context.told.states
    assert not context.told.complete.is_open


@when("an observer raises at the first state, and another one does not")
def step_an_observer_raises_at_the_first_state_and_another_one_does(context: Context) -> None:
    context.logged, context.told = Logged(context), Told()

    def fail(_: object) -> None:
        raise KeyError("of the observer")

    failing = context.actor.states.subscribe(fail)
    context.told.subscribe_to(context.actor)
    context.actor.ask("first").result(PATIENCE)
    failing.dispose()
    context.actor.ask("later").result(PATIENCE)


@then("the other one was told all states, and the error is in the log")
def step_the_other_one_was_told_all_states_and_the_error_is_in_the(context: Context) -> None:
    assert context.told.states == [(), ("first",), ("first", "later")], context.told.states
    (record,) = context.logged.records
    assert record.exc_info and isinstance(record.exc_info[1], KeyError), record


@when("a done-callback of a command raises SystemExit")
def step_a_done_callback_of_a_command_raises_systemexit(context: Context) -> None:
    context.logged = Logged(context)

    def leave(_: object) -> None:
        raise SystemExit

    busy = Gate()
    context.actor.states.subscribe(lambda _: busy.wait())
    asked = context.actor.ask("first")
    asked.add_done_callback(leave)
    busy.open()
    asked.result(PATIENCE)


@then("later commands are applied")
def step_later_commands_are_applied(context: Context) -> None:
    assert context.actor.ask("second").result(PATIENCE) == ("first", "second")
    assert len(context.logged.records) == 1, context.logged.records


# -- the end ---------------------------------------------------------------------------------------


_CLOSING_OBSERVERS: dict[str, Callable[[StateActor[Any, Any]], None]] = {
    "an observer closes it": lambda actor: actor.close(),
    "a loop of an observer closes it": lambda actor: run(actor.aclose()),
}


async def end_async(actor: StateActor[Any, Any], how: str) -> None:
    if how == "a task awaits its aclose":
        await actor.aclose()
    else:
        async with actor as same:
            assert same is actor


@when("50 commands are sent, and {how}")
def step_50_commands_are_sent_and_how(context: Context, how: str) -> None:
    actor: StateActor[Any, Any] = context.actor
    context.thread = None
    for number in range(50):
        actor.send(number)
    context.thread = actor._actor_thread.thread
    if how == "it is closed":
        actor.close()
    elif how == "its block ends":
        with actor as same:
            assert same is actor
    elif how in _CLOSING_OBSERVERS:
        close = _CLOSING_OBSERVERS[how]
        actor.states.subscribe(lambda state: close(actor) if len(state) == 50 else None)
        context.thread.join(PATIENCE)
    else:
        run(end_async(actor, how))


@then("all 50 were applied, and its thread has ended")
def step_all_50_were_applied_and_its_thread_has_ended(context: Context) -> None:
    assert context.actor.state == tuple(range(50)), context.actor.state
    assert not context.thread.is_alive()
    assert "closed" in repr(context.actor)


@then("send and ask raise StateClosedError, states is complete, and closing again does no harm")
def step_send_and_ask_raise_stateclosederror_states_is_complete_and(context: Context) -> None:
    for method in (context.actor.send, context.actor.ask):
        try:
            method("late")
        except StateClosedError as error:
            assert context.actor.name in str(error), error
        else:
            raise AssertionError("nothing was raised")
    told = Told()
    told.subscribe_to(context.actor).dispose()
    assert told.complete.is_open and told.states == [], told.states
    context.actor.close()
    run(context.actor.aclose())


@then("it has no thread, and closing it does no harm")
def step_it_has_no_thread_and_closing_it_does_no_harm(context: Context) -> None:
    assert context.actor._actor_thread.thread is None and "open" in repr(context.actor)
    context.actor.close()
    run(context.actor.aclose())


@when("a task that awaits its aclose is cancelled")
def step_a_task_that_awaits_its_aclose_is_cancelled(context: Context) -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(context.actor.aclose())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        context.go_on.open()
        await context.actor.aclose()

    run(cancel())


@then("the actor still ends")
def step_the_actor_still_ends(context: Context) -> None:
    assert not context.actor._actor_thread.thread.is_alive()
    assert context.actor.state == ("busy",)


@when("its last command is applied, and all references to it are dropped")
def step_its_last_command_is_applied_and_all_references_to_it_are(context: Context) -> None:
    context.actor.ask("last").result(PATIENCE)
    context.thread, known = context.actor._actor_thread.thread, weakref.ref(context.actor)
    context.actor = None
    gc.collect()
    assert known() is None


@then("its thread ends")
def step_its_thread_ends(context: Context) -> None:
    context.thread.join(PATIENCE)
    assert not context.thread.is_alive()


@when("its thread cannot be started once")
def step_its_thread_cannot_be_started_once(context: Context) -> None:
    context.error = None
    refused = mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no more"))
    with refused:
        try:
            context.actor.send("first")
        except RuntimeError as error:
            context.error = error


@then("the caller is told, and the next command is applied")
def step_the_caller_is_told_and_the_next_command_is_applied(context: Context) -> None:
    assert str(context.error) == "no more", context.error
    assert context.actor.ask("second").result(PATIENCE) == ("second",)
