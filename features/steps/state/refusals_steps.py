from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import errors
from rxlanggraph.errors import (
    InvalidTypeError,
    StateClosedError,
    StateUnavailableError,
)
from rxlanggraph.state import State, Task
from support.concurrency.patching import patch
from support.concurrency.raising import raised
from support.concurrency.tasks import PATIENCE
from support.state.state_world import Shaky, turns, world

# -- refused ---------------------------------------------------------------------------------------


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def within_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


NO_JSON: dict[str, Callable[[], Any]] = {
    "a set": lambda: {1},
    "a tuple": lambda: [1, (2, 3)],
    "a datetime": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "bytes": lambda: b"bytes",
    "a coroutine function": lambda: turns,
    "not a number": lambda: float("nan"),
    "infinity": lambda: [float("inf")],
    "a mapping with numbers as keys": lambda: {1: "one"},
    "a list that contains itself": within_itself,
    "a list a hundred thousand deep": deep,
    "an integer of 5000 digits": lambda: 10**5000,
    "two halves of one character": lambda: "\ud83d\ude00",
    "an object with a broken repr": BrokenRepr,
}


@when("{what} is to be stored there")
def step_what_is_to_be_stored_there(context: Context, what: str) -> None:
    state, value = context.state, NO_JSON[what]()

    async def in_transaction() -> None:
        async with state.transaction() as transaction:
            transaction.set("k", value)

    async def updated() -> None:
        await state.safe_update("k", lambda _: value)

    calls = {
        "set": lambda: state.set("k", value),
        "compare_and_set": lambda: state.compare_and_set("k", value, 0),
        "set_if_not_exists": lambda: state.set_if_not_exists("k", value),
        "transaction": in_transaction,
        "add_tasks": lambda: state.add_tasks("q", ["good", value]),
    }
    context.raised = {name: world(context).run(raised(call())) for name, call in calls.items()}
    context.asked = world(context).server(state).calls
    context.raised["safe_update"] = world(context).run(raised(updated()))


@then("InvalidTypeError is raised by every method, and the server was not asked")
def step_invalidtypeerror_is_raised_by_every_method_and_the_server(context: Context) -> None:
    assert {type(error) for error in context.raised.values()} == {InvalidTypeError}, context.raised
    assert context.asked == 0
    assert world(context).run(context.state.get("k")).version == 0


@when("a value is changed after it was set, and after it was got")
def step_a_value_is_changed_after_it_was_set_and_after_it_was_got(context: Context) -> None:
    async def change() -> None:
        value: dict[str, Any] = {"list": [1]}
        await context.state.set("k", value)
        value["list"].append(2)
        (await context.state.get("k")).value["list"].append(3)

    world(context).run(change())


@then("what is stored is as it was set")
def step_what_is_stored_is_as_it_was_set(context: Context) -> None:
    assert world(context).run(context.state.get("k")).value == {"list": [1]}


@then("state.{call} raises {error}, and the server is not asked")
def step_state_call_raises_error_and_the_server_is_not_asked(
    context: Context, call: str, error: str
) -> None:
    async def use() -> None:
        result = eval(f"state.{call}", {"state": context.state, "Task": Task})
        if hasattr(result, "__aenter__"):
            async with result:
                pass
        elif hasattr(result, "__await__"):
            await result

    found = world(context).run(raised(use()))
    assert type(found) is getattr(errors, error), repr(found)
    assert world(context).server(context.state).calls == 0


# -- the server, and the end -----------------------------------------------------------------------


@given("a shared state whose server is away for {calls:d} calls, {what}")
def step_a_shared_state_whose_server_is_away_for_calls_calls_what(
    context: Context, calls: int, what: str
) -> None:
    context.state = world(context).open()
    server = world(context).server(context.state)
    server.gone = calls
    server.in_doubt = what != "which have no effect"
    server.effect = what in ("which take effect", "of which the first takes effect")
    server.only_first = "first" in what


@when("state.{call} is called")
def step_state_call_is_called(context: Context, call: str) -> None:
    state: State = context.state
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "increment_counter": lambda: state.increment_counter("n"),
        "get": lambda: state.get("n"),
        "add_tasks": lambda: state.add_tasks("q", ["item"]),
    }
    context.began = world(context).clock.now
    context.error = world(context).run(raised(calls[call]()))
    context.took = world(context).clock.now - context.began
    world(context).server(state).gone = 0


@then("that call {ends}")
def step_that_call_ends(context: Context, ends: str) -> None:
    run, state = world(context).run, context.state
    if ends.startswith("raises"):
        assert isinstance(context.error, StateUnavailableError), context.error
        least, most = (2, 3) if ends == "raises it after 2 to 3 seconds" else (0, 0)
        assert least <= context.took <= most, context.took
        return
    assert context.error is None, context.error
    if ends == "has counted once":
        assert run(state.get("n")).value == 1
    if ends == "has added once":
        assert run(state.stats("q")).waiting == 1


@then("the server was asked more than once")
def step_the_server_was_asked_more_than_once(context: Context) -> None:
    assert world(context).server(context.state).calls > 1


@given("a shared state that was closed")
def step_a_shared_state_that_was_closed(context: Context) -> None:
    context.state = world(context).open()
    world(context).run(context.state.aclose())


@then("every method of it raises StateClosedError")
def step_every_method_of_it_raises_stateclosederror(context: Context) -> None:
    state: State = context.state

    async def lock() -> None:
        async with state.lock("l"):
            pass

    async def transaction() -> None:
        async with state.transaction() as transaction:
            transaction.set("k", 1)

    calls: list[Callable[[], Awaitable[Any]]] = [
        *(lambda: state.get("k"), lambda: state.set("k", 1), lambda: state.delete("k")),
        *(lambda: state.compare_and_set("k", 1, 0), lambda: state.set_if_not_exists("k", 1)),
        *(lambda: state.increment_counter("k"), lambda: state.safe_update("k", abs)),
        *(lambda: state.transact(lambda tx: tx.get("k")), lock, transaction),
        *(lambda: state.add_tasks("q", [1]), lambda: state.claim_task("q")),
        *(lambda: state.dead_letters("q"), lambda: state.requeue("q")),
        *(lambda: state.results("q"), lambda: state.stats("q"), lambda: state.purge("q")),
    ]
    for number, call in enumerate(calls):
        error = world(context).run(raised(call()))
        assert isinstance(error, StateClosedError), (number, error)


@then("closing it again does no harm")
def step_closing_it_again_does_no_harm(context: Context) -> None:
    world(context).run(context.state.aclose())


@given("a shared state with a call on its way")
def step_a_shared_state_with_a_call_on_its_way(context: Context) -> None:
    there = world(context)
    state = context.state = there.open()
    server = there.server(state)

    async def slow(call: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(3)
        assert server.closings == 0, "the server was let go of"
        return await call()

    patch(context, server, "shaken", slow)


@when("the state is closed")
def step_the_state_is_closed(context: Context) -> None:
    async def close() -> None:
        call = asyncio.ensure_future(context.state.increment_counter("n"))
        await asyncio.sleep(1)
        closing = asyncio.ensure_future(context.state.aclose())
        await asyncio.sleep(1)
        context.late = await raised(context.state.get("n"))
        assert not closing.done()
        await closing
        context.counted = await call

    world(context).run(close())


@then("the call has returned before the server was let go of")
def step_the_call_has_returned_before_the_server_was_let_go_of(context: Context) -> None:
    assert context.counted == 1
    assert isinstance(context.state.backend, Shaky)
    assert context.state.backend.closings == 1


@then("a call that came while it was closing was refused with StateClosedError")
def step_a_call_that_came_while_it_was_closing_was_refused_with(context: Context) -> None:
    assert isinstance(context.late, StateClosedError), context.late


@when("its get is awaited on another loop")
def step_its_get_is_awaited_on_another_loop(context: Context) -> None:
    context.error = asyncio.run(raised(context.state.get("k")))


@when("its aclose is awaited on another loop")
def step_its_aclose_is_awaited_on_another_loop(context: Context) -> None:
    async def close() -> BaseException | None:
        async with asyncio.timeout(PATIENCE):
            return await raised(context.state.aclose())

    context.error = asyncio.run(close())


@then("the state is open")
def step_the_state_is_open(context: Context) -> None:
    assert world(context).run(context.state.set("k", "open")) > 0
    assert world(context).server(context.state).closings == 0
