from __future__ import annotations

import asyncio
import logging
import sys
import threading
from fnmatch import fnmatchcase
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import UsageError
from rxlanggraph.testing import LeakCheck, LeakError, child_processes
from support.concurrency import leftovers


def start(context: Context, *, timeout: float = 10.0, ignore: tuple[str, ...] = ()) -> None:
    context.hooks = borrowed_hooks()
    context.check = LeakCheck(timeout=timeout, ignore=(leftovers.LOOP, *ignore)).start()
    context.leaks = None
    context.add_cleanup(lambda: leaks_of(context))


def leaks_of(context: Context) -> tuple[str, ...]:
    if context.leaks is None:
        context.leaks = context.check.find()
    return context.leaks


def borrowed_hooks() -> tuple[object, ...]:
    return sys.unraisablehook, threading.excepthook, *logging.getLogger("asyncio").handlers


@given("a started leak check")
def step_a_started_leak_check(context: Context) -> None:
    start(context)


@given("a system without /proc")
def step_a_system_without_proc(context: Context) -> None:
    proc, child_processes._PROC = child_processes._PROC, Path("no-such-directory")
    context.add_cleanup(lambda: setattr(child_processes, "_PROC", proc))


@given("a leak check that gives no time to end")
def step_a_leak_check_that_gives_no_time_to_end(context: Context) -> None:
    start(context, timeout=0)


@given('a started leak check that ignores "{pattern}"')
def step_a_started_leak_check_that_ignores_pattern(context: Context, pattern: str) -> None:
    start(context, ignore=(pattern,))


@given("a thread, a process, a task, a coroutine and an entry of a registry")
def step_a_thread_a_process_a_task_a_coroutine_and_an_entry_of_a(context: Context) -> None:
    for leave in (
        leftovers.thread,
        leftovers.process,
        leftovers.task,
        leftovers.coroutine,
        leftovers.entry,
    ):
        leave(context.add_cleanup)


@given("an event loop")
def step_an_event_loop(context: Context) -> None:
    context.home = leftovers.LoopThread()
    context.add_cleanup(context.home.stop)


@when("the code under test leaves {what} behind")
def step_the_code_under_test_leaves_what_behind(context: Context, what: str) -> None:
    leftovers.LEFT[what](context.add_cleanup)


@when("the code under test has {what}")
def step_the_code_under_test_has_what(context: Context, what: str) -> None:
    leftovers.HARMLESS[what](context.add_cleanup)


@when("a check on that loop's own thread is left with a task and an entry of a registry")
def step_a_check_on_that_loops_own_thread_is_left_with_a_task_and(context: Context) -> None:
    async def check_itself() -> None:
        check = LeakCheck().start()
        released = asyncio.Event()
        left = asyncio.create_task(leftovers.wait_for(released))
        leftovers.entry(context.add_cleanup)
        context.leaks = check.find()
        released.set()
        await left

    context.home.run(check_itself())


@when("a checked block leaves a thread behind")
def step_a_checked_block_leaves_a_thread_behind(context: Context) -> None:
    check_block(context, leave=True)


@when("a checked block leaves a thread behind and raises an error")
def step_a_checked_block_leaves_a_thread_behind_and_raises_an_error(context: Context) -> None:
    check_block(context, leave=True, error=ZeroDivisionError("its own"))


@when("a checked block raises an error")
def step_a_checked_block_raises_an_error(context: Context) -> None:
    check_block(context, error=ZeroDivisionError("its own"))


def check_block(context: Context, *, leave: bool = False, error: Exception | None = None) -> None:
    try:
        with LeakCheck(timeout=0):
            if leave:
                leftovers.thread(context.add_cleanup)
            if error:
                raise error
    except (LeakError, ZeroDivisionError) as raised:
        context.raised = raised


@when("the check is verified")
def step_the_check_is_verified(context: Context) -> None:
    context.check.verify()
    context.leaks = ()


@then('the check reports one leak, a {kind} called "{name}", with "{detail}"')
def step_the_check_reports_one_leak_a_kind_called_name_with_detail(
    context: Context, kind: str, name: str, detail: str
) -> None:
    (leak,) = leaks_of(context)
    assert leak.kind == kind, leak
    assert fnmatchcase(leak.name, name), leak
    assert detail in leak.detail, leak


@then('the check reports one leak, a process called "{name}"')
def step_the_check_reports_one_leak_a_process_called_name(context: Context, name: str) -> None:
    (leak,) = leaks_of(context)
    assert (leak.kind, leak.detail) == ("process", ""), leak
    assert fnmatchcase(leak.name, name), leak


@then("the check reports nothing")
def step_the_check_reports_nothing(context: Context) -> None:
    assert leaks_of(context) == (), "\n".join(map(str, leaks_of(context)))


@then("the check reports a task and a registry entry")
def step_the_check_reports_a_task_and_a_registry_entry(context: Context) -> None:
    assert [leak.kind for leak in context.leaks] == ["task", "registry entry"], context.leaks


@then("that error arrives, with a note that names the thread")
def step_that_error_arrives_with_a_note_that_names_the_thread(context: Context) -> None:
    assert isinstance(context.raised, ZeroDivisionError)
    (note,) = context.raised.__notes__
    assert f"thread: {leftovers.NAME}" in note, note


@then("that error arrives, without a note")
def step_that_error_arrives_without_a_note(context: Context) -> None:
    assert isinstance(context.raised, ZeroDivisionError)
    assert not hasattr(context.raised, "__notes__")


@then("a LeakError arrives that names the thread and the remedy")
def step_a_leakerror_arrives_that_names_the_thread_and_the_remedy(context: Context) -> None:
    assert isinstance(context.raised, LeakError)
    assert [leak.name for leak in context.raised.leaks] == [leftovers.NAME]
    text = str(context.raised)
    assert f"thread: {leftovers.NAME}" in text, text
    assert "close, join or await" in text, text


@then("a leak check with one pattern, or with a text as its timeout, is refused")
def step_a_leak_check_with_one_pattern_or_with_a_text_is_refused(context: Context) -> None:
    for options, name in (({"ignore": "worker-*"}, "ignore"), ({"timeout": "5"}, "timeout")):
        try:
            LeakCheck(**options)
        except UsageError as error:
            assert f"{name} must be" in str(error), error
        else:
            raise AssertionError(f"{options} was accepted")


@then("starting it again is refused")
def step_starting_it_again_is_refused(context: Context) -> None:
    check_refused(context.check.start)


@then("verifying it again is refused")
def step_verifying_it_again_is_refused(context: Context) -> None:
    check_refused(context.check.verify)


@then("the hooks it borrowed are as they were")
def step_the_hooks_it_borrowed_are_as_they_were(context: Context) -> None:
    assert borrowed_hooks() == context.hooks


def check_refused(call: object) -> None:
    try:
        call()
    except UsageError as error:
        assert "start" in str(error), error
    else:
        raise AssertionError(f"{call} was not refused")
