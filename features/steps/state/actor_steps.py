from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import BlockingCallError, InvalidTypeError
from rxlanggraph.state import StateActor
from support.concurrency.tasks import PATIENCE, in_thread, run
from support.concurrency.waiting import Gate, in_threads, thread
from support.state.actors import Logged, an_actor

# -- one writer ------------------------------------------------------------------------------------


@given("the state of an actor")
def step_the_state_of_an_actor(context: Context) -> None:
    an_actor(context, 0, lambda state, change: change(state))

    def add(meanwhile: Callable[[], object] | None = None) -> None:
        def change(state: int) -> int:
            if meanwhile is not None:
                meanwhile()
            return state + 1

        if meanwhile is None:
            context.actor.send(change)
        else:
            context.actor.ask(change).result(PATIENCE)

    context.add, context.read = add, lambda: context.actor.ask(lambda state: state).result(PATIENCE)


@given("an attribute")
def step_an_attribute(context: Context) -> None:
    def add(meanwhile: Callable[[], object] = int) -> None:
        value = context.state
        meanwhile()
        context.state = value + 1

    context.state = 0
    context.add, context.read = add, lambda: context.state


@when("two threads each add one, the second while the first is between reading and writing")
def step_two_threads_each_add_one_the_second_while_the_first_is(context: Context) -> None:
    in_thread(lambda: context.add(lambda: in_thread(context.add)))


@then("both were added")
def step_both_were_added(context: Context) -> None:
    assert context.read() == 2, context.read()


@given("an actor that counts")
def step_an_actor_that_counts(context: Context) -> None:
    context.inside = context.most = 0

    def count(state: int, by: int) -> int:
        context.inside += 1
        context.most = max(context.most, context.inside)
        context.inside -= 1
        return state + by

    an_actor(context, 0, count)


@when("8 threads and 8 tasks send and ask 200 commands each, all at once")
def step_8_threads_and_8_tasks_send_and_ask_200_commands_each_all(context: Context) -> None:
    actor: StateActor[int, int] = context.actor

    def work(_: int) -> None:
        for _ in range(100):
            actor.send(1)
            assert actor.ask(1).result(PATIENCE) >= 1

    async def task() -> None:
        for _ in range(100):
            actor.send(1)
            assert await actor.ask(1) >= 1

    async def tasks() -> None:
        await asyncio.gather(*(task() for _ in range(8)))

    loop = thread(run, tasks())
    in_threads(8, work)
    loop.result(PATIENCE)


@then("3200 were counted, and never two at a time")
def step_3200_were_counted_and_never_two_at_a_time(context: Context) -> None:
    assert context.actor.ask(0).result(PATIENCE) == 3200
    assert context.most == 1


# -- asking ----------------------------------------------------------------------------------------


@given("an actor that keeps a list")
def step_an_actor_that_keeps_a_list(context: Context) -> None:
    def append(state: tuple[Any, ...], command: Any) -> Any:
        if isinstance(command, BaseException):
            raise command
        return [*state, command]

    an_actor(context, [], append)


@when("a thread sends 0 to 99, by send and ask in turn")
def step_a_thread_sends_0_to_99_by_send_and_ask_in_turn(context: Context) -> None:
    def work() -> None:
        for number in range(100):
            (context.actor.ask if number % 2 else context.actor.send)(number)

    in_thread(work)


@then("the list has 0 to 99 in this order")
def step_the_list_has_0_to_99_in_this_order(context: Context) -> None:
    assert context.actor.ask("end").result(PATIENCE) == (*range(100), "end")


@when("a thread asks, and a task asks")
def step_a_thread_asks_and_a_task_asks(context: Context) -> None:
    async def ask() -> Any:
        return await context.actor.ask("task")

    context.told = [in_thread(lambda: context.actor.ask("thread").result(PATIENCE)), run(ask())]


@then("each got the state of its own command")
def step_each_got_the_state_of_its_own_command(context: Context) -> None:
    assert context.told == [("thread",), ("thread", "task")], context.told


@when("a command is asked, and another one is sent, at which the reducer raises")
def step_a_command_is_asked_and_another_one_is_sent_at_which_the(context: Context) -> None:
    context.logged = Logged(context)
    context.actor.send("first")
    context.asked = context.actor.ask(KeyError("asked"))
    context.actor.send(KeyError("sent"))


@then("who asked got the error, the other one is in the log, and the state is as it was")
def step_who_asked_got_the_error_the_other_one_is_in_the_log_and(context: Context) -> None:
    assert isinstance(context.asked.exception(PATIENCE), KeyError)
    assert context.actor.ask("last").result(PATIENCE) == ("first", "last")
    (record,) = context.logged.records
    assert "sent" in record.getMessage(), record


@when("a task asks a command at which the reducer raises StopIteration")
def step_a_task_asks_a_command_at_which_the_reducer_raises(context: Context) -> None:
    async def ask() -> Any:
        return await context.actor.ask(StopIteration())

    with contextlib.suppress(RuntimeError):
        run(ask())
    context.asked = context.actor.ask(StopIteration())


@then("the task gets RuntimeError, in which StopIteration is named")
def step_the_task_gets_runtimeerror_in_which_stopiteration_is_named(context: Context) -> None:
    error = context.asked.exception(PATIENCE)
    assert isinstance(error, RuntimeError) and "StopIteration" in str(error), error


@given("an actor whose reducer asks itself, and calls {method}")
def step_an_actor_whose_reducer_asks_itself_and_calls_method(context: Context, method: str) -> None:
    def wait_for_itself(state: int, command: str) -> int:
        if command == "again":
            return state
        asked = context.actor.ask("again")
        if method == "await":
            asyncio.run(awaiting(asked))
        else:
            getattr(asked, method)()
        return state + 1

    async def awaiting(asked: Any) -> None:
        # Without the guard it would wait forever, and the scenario with it.
        async with asyncio.timeout(PATIENCE):
            await asked

    an_actor(context, 0, wait_for_itself)


def within_itself(container: Any) -> Any:
    container.update(self=container) if isinstance(container, dict) else container.append(container)
    return container


async def async_generator(state: Any = 0, _: Any = None) -> Any:
    yield state


NO_STATE: dict[str, Callable[[], Any]] = {
    "a coroutine": lambda: asyncio.sleep(0),
    "a generator": lambda: (number for number in range(3)),
    "an async generator": async_generator,
    "a list in itself": lambda: within_itself([]),
    "a mapping in itself": lambda: within_itself({}),
}


@given("an actor whose reducer is a lambda that returns {no_state}")
def step_an_actor_whose_reducer_is_a_lambda_that_returns_no_state(
    context: Context, no_state: str
) -> None:
    an_actor(context, 0, lambda _, __: NO_STATE[no_state]())


@when("a command is asked")
def step_a_command_is_asked(context: Context) -> None:
    context.asked = context.actor.ask("command")


@then("the command fails with {error}")
def step_the_command_fails_with_error(context: Context, error: str) -> None:
    expected = {"BlockingCallError": BlockingCallError, "InvalidTypeError": InvalidTypeError}[error]
    failed = context.asked.exception(PATIENCE)
    assert type(failed) is expected, failed
    assert context.actor.state == 0


@given("an actor that keeps a list, and is busy")
def step_an_actor_that_keeps_a_list_and_is_busy(context: Context) -> None:
    context.busy, context.go_on = Gate(), Gate()

    def append(state: tuple[Any, ...], command: Any) -> Any:
        if command == "busy":
            context.busy.open()
            context.go_on.wait()
        return [*state, command]

    an_actor(context, [], append)
    context.add_cleanup(context.go_on.open)
    context.asked = context.actor.ask("busy")
    context.busy.wait()


@when("a command is asked and cancelled, and another one asked by a task that is cancelled")
def step_a_command_is_asked_and_cancelled_and_another_one_asked_by(context: Context) -> None:
    async def ask() -> None:
        await context.actor.ask("task")

    async def cancel() -> None:
        task = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    assert context.actor.ask("thread").cancel()
    run(cancel())
    context.go_on.open()


@then("neither of them was applied")
def step_neither_of_them_was_applied(context: Context) -> None:
    assert context.actor.ask("last").result(PATIENCE) == ("busy", "last")


@when("what it is busy with is cancelled")
def step_what_it_is_busy_with_is_cancelled(context: Context) -> None:
    context.cancelled = context.asked.cancel()
    context.go_on.open()


@then("that does nothing")
def step_that_does_nothing(context: Context) -> None:
    assert context.cancelled is False
    assert context.asked.result(PATIENCE) == ("busy",)


def a_generator(state: Any, _: Any) -> Any:
    yield state


class AsyncObject:
    async def __call__(self, state: Any, _: Any) -> Any:
        return state


@then("making an actor with {what} as its state raises InvalidTypeError")
def step_making_an_actor_with_what_as_its_state_raises(_: Context, what: str) -> None:
    try:
        StateActor(NO_STATE[what](), lambda state, _: state)
    except InvalidTypeError as error:
        assert "itself" in str(error), error
    else:
        raise AssertionError("nothing was raised")


@then("making an actor with {what} as its reducer raises InvalidTypeError")
def step_making_an_actor_with_what_as_its_reducer_raises(context: Context, what: str) -> None:
    reducers: dict[str, Any] = {
        "a coroutine function": asyncio.sleep,
        "a part of one": partial(asyncio.sleep, 1),
        "a generator function": a_generator,
        "an async generator": async_generator,
        "an async object": AsyncObject(),
        "a number": 7,
    }
    try:
        StateActor(0, reducers[what])
    except InvalidTypeError as error:
        assert "reducer" in str(error), error
    else:
        raise AssertionError("nothing was raised")
