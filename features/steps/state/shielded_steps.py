"""Calls that are shielded from the cancellation of their callers, and undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from behave import then, when
from behave.runner import Context

from rxlanggraph.concurrency import tasks
from support.concurrency.patching import patch
from support.concurrency.tasks import forever, pass_turns, run

CANCELLED = asyncio.CancelledError()


class Call:
    """A call that ends when it is told to, and its undo, which does so too."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.may_end = asyncio.Event()
        self.undoing = asyncio.Event()
        self.may_be_undone = asyncio.Event()

    async def call(self) -> str:
        await self.may_end.wait()
        self.log.append("done")
        return "result"

    async def undo(self, result: str) -> None:
        assert result == "result"
        self.undoing.set()
        await self.may_be_undone.wait()
        self.log.append("undone")

    async def make(self) -> None:
        try:
            await tasks.run_shielded(self.call(), self.undo)
        finally:
            self.log.append("raised")

    async def cancelled(self, caller: asyncio.Task[Any]) -> None:
        """Cancel the caller, and let the call end, but not its undo."""
        await pass_turns()
        caller.cancel()
        await pass_turns()
        self.may_end.set()
        await self.undoing.wait()


async def left_over(*known: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
    await pass_turns()
    return asyncio.all_tasks() - {asyncio.current_task(), *known}


def carry_out(context: Context, main: Callable[[], Awaitable[asyncio.Task[Any]]]) -> None:
    """Run it; it returns the task of the caller."""

    async def with_end() -> None:
        before = await left_over()  # that of `run`
        caller = await main()
        await asyncio.wait([caller])
        context.error = CANCELLED if caller.cancelled() else caller.exception()
        context.left = await left_over(*before)

    run(with_end())


def cancel_again(context: Context, call: Call, *, times: int = 1, also: bool = False) -> None:
    """Cancel a caller, and again when its call is being undone; ``also`` all other tasks then."""

    async def main() -> asyncio.Task[Any]:
        context.call, current = call, asyncio.all_tasks()
        caller = asyncio.create_task(call.make())
        await call.cancelled(caller)
        for _ in range(times):
            for task in asyncio.all_tasks() - current if also else [caller]:
                task.cancel()
            await pass_turns()
        call.may_be_undone.set()
        return caller

    carry_out(context, main)


@when("a shielded call is cancelled, and {times:Times} more during its undo")
def step_a_shielded_call_is_cancelled_and_times_more(context: Context, times: int) -> None:
    cancel_again(context, Call(), times=times)


@when("a shielded call is cancelled twice before it is done")
def step_a_shielded_call_is_cancelled_twice_before_it_is_done(context: Context) -> None:
    async def main() -> asyncio.Task[Any]:
        call = context.call = Call()
        caller = asyncio.create_task(call.make())
        for _ in range(2):
            await pass_turns()
            caller.cancel()
        await pass_turns()
        call.may_end.set()
        call.may_be_undone.set()
        return caller

    carry_out(context, main)


@when("a shielded call is in a scope of anyio that is cancelled before it is done")
def step_a_shielded_call_is_in_a_scope_of_anyio_that_is_cancelled(context: Context) -> None:
    async def main() -> asyncio.Task[Any]:
        call, scope = Call(), anyio.CancelScope()
        context.call = call

        async def in_scope() -> None:
            with scope:
                await call.make()
            call.log.append("left")

        caller = asyncio.create_task(in_scope())
        await pass_turns()
        scope.cancel()
        await pass_turns()
        call.may_end.set()
        await pass_turns()
        call.may_be_undone.set()
        return caller

    carry_out(context, main)


class CleaningUp(Call):
    """A call that cleans up, although it is told to end three times."""

    async def call(self) -> str:
        told = 0
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                told += 1
        self.log.append(f"told {told} times")
        raise asyncio.CancelledError


@when("the caller of a shielded call is cancelled four times while that cleans up")
def step_the_caller_of_a_shielded_call_is_cancelled_four_times(context: Context) -> None:
    patch(context, tasks, "_GRACE_SECONDS", 0.0)

    async def main() -> asyncio.Task[Any]:
        call = context.call = CleaningUp()
        caller = asyncio.create_task(call.make())
        await pass_turns()
        for _ in range(4):
            caller.cancel()
            await pass_turns()
        call.may_end.set()
        return caller

    carry_out(context, main)


class Endless(Call):
    """A call whose undo ends only when it is cancelled."""

    async def undo(self, result: str) -> None:
        self.undoing.set()
        try:
            await forever()
        except asyncio.CancelledError:
            self.log.append("undo cancelled")
            raise


@when("a shielded call is cancelled, and {who} again during an endless undo")
def step_a_shielded_call_is_cancelled_and_who_again(context: Context, who: str) -> None:
    patch(context, tasks, "_GRACE_SECONDS", 0.01 if who == "its caller" else 1000.0)
    cancel_again(context, Endless(), also=who == "all tasks of the loop")


class Failing(Call):
    """A call whose undo fails."""

    async def undo(self, result: str) -> None:
        await super().undo(result)
        raise KeyError(result)


@when("a shielded call is cancelled, and its caller during an undo that fails then")
def step_its_caller_during_an_undo_that_fails_then(context: Context) -> None:
    cancel_again(context, Failing())


@then("in this order: {log}; its caller has {outcome}, and no task is left")
def step_in_this_order_log_its_caller_has_outcome(context: Context, log: str, outcome: str) -> None:
    assert context.call.log == log.split(", "), context.call.log
    assert type(context.error).__name__ == outcome, context.error
    assert not context.left, context.left


# -- who has cancelled -----------------------------------------------------------------------------


async def in_timeout(call: Call) -> None:
    try:
        async with asyncio.timeout(0):
            await call.make()
    finally:
        note_cancelling(call)


def note_cancelling(call: Call) -> None:
    task = asyncio.current_task()
    assert task is not None
    call.log.append(f"cancelling {task.cancelling()}")


async def in_task_group(call: Call) -> None:
    async def fail() -> None:
        await call.undoing.wait()
        raise KeyError

    async with asyncio.TaskGroup() as group:
        group.create_task(in_timeout(call))
        group.create_task(fail())


async def in_two_timeouts(call: Call) -> None:
    async def expire() -> None:
        await call.undoing.wait()
        outer.reschedule(0)

    try:
        async with asyncio.timeout(None) as outer:
            expiring = asyncio.create_task(expire())
            await in_timeout(call)
    finally:
        await expiring
        note_cancelling(call)


@when("a shielded call in a {what}")
def step_a_shielded_call_in_a_what(context: Context, what: str) -> None:
    callers = {
        "timeout is undone": in_timeout,
        "timeout is undone, and a task group cancels it too": in_task_group,
        "timeout is undone, and one around that is over too": in_two_timeouts,
    }

    async def main() -> asyncio.Task[Any]:
        call = context.call = Call()
        caller = asyncio.create_task(callers[what](call))
        await pass_turns()
        call.may_end.set()
        await call.undoing.wait()
        await pass_turns()
        call.may_be_undone.set()
        return caller

    carry_out(context, main)
