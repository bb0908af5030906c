from __future__ import annotations

import asyncio
import types
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import ContentionError, UsageError
from rxlanggraph.state import State, open_state
from rxlanggraph.state.backend import Versioned
from support.concurrency.patching import patch
from support.concurrency.raising import raised
from support.state.state_world import together, world

# -- optimistic ------------------------------------------------------------------------------------


@given("a shared state, in which another writer is faster {times:Times}")
def step_a_shared_state_in_which_another_writer_is_faster_times(
    context: Context, times: int
) -> None:
    """It writes "k" after each of so many reads: 1, 2, 3..."""
    context.state, other = world(context).open(), world(context).open()
    server = world(context).server(context.state)
    read, numbers = server.read, iter(range(1, times + 1))

    async def read_and_then(keys: Any) -> Any:
        entries = await read(keys)
        for number in numbers:
            await other.set("k", number)
            break
        return entries

    patch(context, server, "read", read_and_then)
    context.other, context.calls = other, []


@when("two agents read a value, and both write with compare_and_set")
def step_two_agents_read_a_value_and_both_write_with_compare_and(context: Context) -> None:
    async def both() -> list[bool]:
        await context.state.set("k", "old")
        read = [await context.state.get("k") for _ in range(2)]
        return await together(
            [context.state.compare_and_set("k", "new", version) for _, version in read]
        )

    context.told = world(context).run(both())


@then("one of them was told True, the other False")
def step_one_of_them_was_told_true_the_other_false(context: Context) -> None:
    assert sorted(context.told) == [False, True], context.told


@when("safe_update is called with 5 attempts")
def step_safe_update_is_called_with_5_attempts(context: Context) -> None:
    context.began = world(context).clock.now
    update = context.state.safe_update("k", context.calls.append, 5)
    context.error = world(context).run(raised(update))


@when("transact is called with 4 attempts")
def step_transact_is_called_with_4_attempts(context: Context) -> None:
    async def change(transaction: Any) -> None:
        context.calls.append((await transaction.get("k")).value)
        transaction.set("k", "mine")

    context.error = world(context).run(raised(context.state.transact(change, 4)))


@then("ContentionError is raised, which names {what}")
def step_contentionerror_is_raised_which_names_what(context: Context, what: str) -> None:
    assert isinstance(context.error, ContentionError), context.error
    assert {"the key": "'k'", "the transaction": "transaction"}[what] in str(context.error)


@then("its function was called {count:d} times, and nothing was written")
def step_its_function_was_called_count_times_and_nothing_was(context: Context, count: int) -> None:
    assert context.calls == [None, *range(1, count)], context.calls
    assert world(context).run(context.other.get("k")).value == count


@then("between the attempts it has paused, for 0.3 seconds at most")
def step_between_the_attempts_it_has_paused_for_0_3_seconds_at_most(context: Context) -> None:
    paused = world(context).clock.now - context.began
    assert 0 < paused <= 0.3, paused


@when("safe_update is called with a coroutine function")
def step_safe_update_is_called_with_a_coroutine_function(context: Context) -> None:
    async def append(value: Any) -> list[Any]:
        context.calls.append(value)
        return [value, "mine"]

    context.told = world(context).run(context.state.safe_update("k", append))


@then("it has written what its third call made of the third value")
def step_it_has_written_what_its_third_call_made_of_the_third_value(context: Context) -> None:
    assert context.calls == [None, 1, 2], context.calls
    there = world(context).run(context.state.get("k")).value
    assert context.told == there == [2, "mine"], (context.told, there)


@when("safe_update is called with a function that raises KeyError")
def step_safe_update_is_called_with_a_function_that_raises_keyerror(context: Context) -> None:
    update = context.state.safe_update("k", lambda _: {}["missing"])
    context.error = world(context).run(raised(update))


@then("KeyError is raised, and nothing was written")
def step_keyerror_is_raised_and_nothing_was_written(context: Context) -> None:
    assert isinstance(context.error, KeyError), context.error
    assert world(context).run(context.state.get("k")) == Versioned(None, 0)


# -- transactions ----------------------------------------------------------------------------------


async def change_three(state: State, error: Exception | None = None) -> None:
    await state.set("gone", 1)
    async with state.transaction() as transaction:
        assert (await transaction.get("gone")).value == 1
        assert (await transaction.get("missing")) == Versioned(None, 0)
        assert (await transaction.get("gone")).version > 0, "the same again"
        transaction.set("made", [1])
        assert (await transaction.get("made")) == Versioned([1], 0), "its own write"
        transaction.delete("gone")
        assert (await transaction.get("gone")) == Versioned(None, 0), "its own deletion"
        if error is not None:
            raise error


@when("a transaction reads, writes and deletes, and then fails")
def step_a_transaction_reads_writes_and_deletes_and_then_fails(context: Context) -> None:
    failed = world(context).run(raised(change_three(context.state, KeyError("no"))))
    assert isinstance(failed, KeyError), failed


@then("nothing was written")
def step_nothing_was_written(context: Context) -> None:
    assert world(context).run(context.state.get("made")).version == 0
    assert world(context).run(context.state.get("gone")).value == 1


@when("a transaction reads, writes and deletes")
def step_a_transaction_reads_writes_and_deletes(context: Context) -> None:
    server = world(context).server(context.state)
    before = server.calls
    world(context).run(change_three(context.state))
    context.counted = server.calls - before


@then("everything was written, in one step")
def step_everything_was_written_in_one_step(context: Context) -> None:
    assert world(context).run(context.state.get("made")).value == [1]
    assert world(context).run(context.state.get("gone")).version == 0
    assert context.counted == 4, "a set before, two reads, and the commit"


@when("another writer changes a value that a transaction has read")
def step_another_writer_changes_a_value_that_a_transaction_has_read(context: Context) -> None:
    async def change() -> None:
        async with context.state.transaction() as transaction:
            await transaction.get("k")
            await context.state.set("k", "theirs")
            transaction.set("mine", 1)

    context.error = world(context).run(raised(change()))


@then("the transaction ends with ContentionError, and has written nothing")
def step_the_transaction_ends_with_contentionerror_and_has_written(context: Context) -> None:
    assert isinstance(context.error, ContentionError), context.error
    assert world(context).run(context.state.get("mine")).version == 0


def set_plainly(transaction: Any) -> str:
    transaction.set("k", 1)
    return "returned"


async def set_async(transaction: Any) -> str:
    return set_plainly(transaction)


@types.coroutine
def set_in_steps(transaction: Any) -> Any:
    yield from asyncio.sleep(0).__await__()
    return set_plainly(transaction)


SETTING = {
    "a plain function": set_plainly,
    "an async function": set_async,
    "a generator-based coroutine": set_in_steps,
}


@when("transact is called with {kind} that sets a key")
def step_transact_is_called_with_kind_that_sets_a_key(context: Context, kind: str) -> None:
    context.told = world(context).run(context.state.transact(SETTING[kind]))


@then("the key is set, and what the function has returned was returned")
def step_the_key_is_set_and_what_the_function_has_returned_was(context: Context) -> None:
    assert world(context).run(context.state.get("k")).value == 1
    assert context.told == "returned", context.told


@when("a transaction has ended")
def step_a_transaction_has_ended(context: Context) -> None:
    async def end() -> Any:
        async with context.state.transaction() as transaction:
            transaction.set("k", 1)
        return transaction

    context.transaction = world(context).run(end())


@then("get, set and delete of it raise UsageError")
def step_get_set_and_delete_of_it_raise_usageerror(context: Context) -> None:
    async def use(name: str, *args: Any) -> None:
        ended = getattr(context.transaction, name)(*args)
        if name == "get":
            await ended

    for call in (("get", "k"), ("set", "k", 1), ("delete", "k")):
        error = world(context).run(raised(use(*call)))
        assert type(error) is UsageError, (call, error)


@then("a transaction has no public methods but get, set and delete")
def step_a_transaction_has_no_public_methods_but_get_set_and_delete(context: Context) -> None:
    async def look() -> set[str]:
        async with context.state.transaction() as transaction:
            return {name for name in dir(transaction) if not name.startswith("_")}

    assert world(context).run(look()) == {"get", "set", "delete"}


@when("the block of state.{call} is entered a second time")
def step_the_block_of_state_call_is_entered_a_second_time(context: Context, call: str) -> None:
    async def enter() -> None:
        block = {
            "lock('l')": lambda: context.state.lock("l"),
            "transaction()": context.state.transaction,
        }[call]()
        async with block:
            pass
        async with block:
            raise AssertionError("it was entered")

    context.error = world(context).run(raised(enter()))


@when("the block of open_state is entered a second time")
def step_the_block_of_open_state_is_entered_a_second_time(context: Context) -> None:
    async def enter() -> None:
        block = open_state("memory:")
        for _ in range(2):
            async with block:
                pass

    context.error = world(context).run(raised(enter()))


@when("a transaction does nothing")
def step_a_transaction_does_nothing(context: Context) -> None:
    async def nothing() -> None:
        async with context.state.transaction():
            pass

    world(context).run(nothing())


@then("the server was not asked")
def step_the_server_was_not_asked(context: Context) -> None:
    assert world(context).server(context.state).calls == 0
