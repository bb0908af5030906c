from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import errors
from rxlanggraph.state import State, open_state, open_state_threadsafe
from rxlanggraph.state import open as state_open
from rxlanggraph.state.backends.memory import MemoryBackend
from support.concurrency.patching import patch
from support.concurrency.raising import error_of, raised
from support.concurrency.tasks import PATIENCE, run
from support.state.state_world import world


def in_folder(context: Context, url: str) -> str:
    """The URL, with a file of the scenario's own."""
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    return url.replace("FILE", str(Path(folder.name, "state.db")))


async def opened(*args: Any, **options: Any) -> None:
    async with open_state(*args, **options):
        pass


@when("{url} is opened twice at the same time, and written to")
def step_url_is_opened_twice_at_the_same_time_and_written_to(context: Context, url: str) -> None:
    async def write(url: str) -> Any:
        async with open_state(url) as state, open_state(url) as other:
            assert isinstance(state, State)
            await state.set("k", "written")
            return (await other.get("k")).value

    context.read = run(write(in_folder(context, url)))


@then("what the one has written {is_seen} by the other")
def step_what_the_one_has_written_is_seen_by_the_other(context: Context, is_seen: str) -> None:
    assert context.read == ("written" if is_seen == "is seen" else None), context.read


@when("memory:some-name is opened, written to and closed, and opened again")
def step_memory_some_name_is_opened_written_to_and_closed_and(context: Context) -> None:
    async def write() -> Any:
        async with open_state("memory:some-name") as state:
            await state.set("k", "written")
        async with open_state("memory:some-name") as state:
            return await state.get("k")

    context.read = run(write())


@then("nothing is there")
def step_nothing_is_there(context: Context) -> None:
    assert context.read.version == 0, context.read


@when("a state is opened with max_attempts=1, and a task of it fails")
def step_a_state_is_opened_with_max_attempts_1_and_a_task_of_it(context: Context) -> None:
    async def work() -> list[Any]:
        async with open_state("memory:", max_attempts=1) as state:
            await state.add_tasks("q", ["item"])
            claim = await state.claim_task("q")
            assert claim is not None
            await claim.fail("no")
            return await state.dead_letters("q")

    context.dead = run(work())


@then("the task is a dead letter")
def step_the_task_is_a_dead_letter(context: Context) -> None:
    assert [dead.item for dead in context.dead] == ["item"], context.dead


# -- refused ---------------------------------------------------------------------------------------


@then('open_state({arguments}) raises {error}, which says "{reason}"')
def step_open_state_arguments_raises_error_which_says_reason(
    context: Context, arguments: str, error: str, reason: str
) -> None:
    async def call() -> None:
        await eval(f"opened({arguments})", {"opened": opened})

    found = run(raised(call()))
    assert type(found) is getattr(errors, error), repr(found)
    assert reason in str(found), found


@then("{url} cannot be opened, and no error, nor one behind it, shows its password")
def no_error_shows_its_password(context: Context, url: str) -> None:
    found = run(raised(opened(url)))
    assert isinstance(found, errors.RxLangGraphError), repr(found)
    said = "".join(traceback.format_exception(found))
    assert "SEC" not in said and "RET" not in said, said


@given("a Python without {package}")
def step_a_python_without_package(context: Context, package: str) -> None:
    adapters = ("rxlanggraph.state.backends.sql", "rxlanggraph.state.backends.redis", package)
    gone = {name: None for name in sys.modules if name.partition(".")[0] == package}
    kept = {name: module for name, module in sys.modules.items() if not name.startswith(adapters)}
    patched = mock.patch.dict(sys.modules, {**kept, **gone, package: None}, clear=True)
    patched.start()
    context.add_cleanup(patched.stop)


@when("{url} is to be opened")
def step_url_is_to_be_opened(context: Context, url: str) -> None:
    context.error = run(raised(opened(in_folder(context, url))))


# -- cancelled -------------------------------------------------------------------------------------


@when("opening is cancelled {at}")
def step_opening_is_cancelled_at(context: Context, at: str) -> None:
    context.made, context.closed = [], []

    class Made(MemoryBackend):
        async def close(self) -> None:
            context.closed.append(self)
            await super().close()

    async def open_slowly(*_: object) -> MemoryBackend:
        await asyncio.sleep(0.01)
        context.made.append(Made())
        return context.made[-1]

    async def cancel() -> None:
        task = asyncio.ensure_future(opened("memory:"))
        if at == "while the server answers":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    adapter = SimpleNamespace(open_backend=open_slowly)
    patch(context, state_open.importlib, "import_module", lambda _: adapter)
    run(cancel())
    assert bool(context.made) is (at == "while the server answers")


@then("what was opened is closed")
def step_what_was_opened_is_closed(context: Context) -> None:
    assert context.closed == context.made, (context.closed, context.made)


@given("the disk does not answer")
def step_the_disk_does_not_answer(context: Context) -> None:
    context.answers, context.asked = threading.Event(), threading.Event()
    context.threads, context.complaints = [], []

    def slow(*arguments: Any, **options: Any) -> sqlite3.Connection:
        context.threads.append(threading.current_thread())
        context.asked.set()
        assert context.answers.wait(PATIENCE)
        return connect(*arguments, **options)

    connect = sqlite3.connect
    patch(context, sqlite3, "connect", slow)
    patch(context, threading, "excepthook", context.complaints.append)


@when("the opening of an SQLite file is cancelled {how}, and then the disk answers")
def step_the_opening_of_an_sqlite_file_is_cancelled_how_and_then(
    context: Context, how: str
) -> None:
    async def cancel() -> None:
        ours = asyncio.all_tasks()
        task = asyncio.create_task(opened(in_folder(context, "sqlite:///FILE")))
        assert await asyncio.to_thread(context.asked.wait, PATIENCE)
        for _ in range(1 if how == "once" else 2):
            for each in {task} if how == "once" else asyncio.all_tasks() - ours:
                each.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        context.waiting = asyncio.all_tasks() - ours
        context.answers.set()
        await asyncio.wait([task, *context.waiting])
        assert task.cancelled()

    run(cancel())


@then("its end was waited for, and the thread of the file has ended quietly")
def step_its_end_was_waited_for_and_the_thread_of_the_file_has_ended(context: Context) -> None:
    assert context.waiting
    (thread,) = context.threads
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not context.complaints, context.complaints


@when("something of it fails in the background")
def step_something_of_it_fails_in_the_background(context: Context) -> None:
    context.told = []

    async def fail() -> None:
        raise KeyError("in the background")

    async def go_on() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: context.told.append(what["exception"]))
        await asyncio.wait([context.state._client.start_background(fail())])
        await asyncio.sleep(0)

    world(context).run(go_on())


@then("the loop's exception handler is told")
def step_the_loops_exception_handler_is_told(context: Context) -> None:
    assert [type(error) for error in context.told] == [KeyError], context.told


@when("its closing is cancelled")
def step_its_closing_is_cancelled(context: Context) -> None:
    async def close() -> None:
        call = asyncio.ensure_future(context.state.increment_counter("n"))
        await asyncio.sleep(1)
        closing = asyncio.ensure_future(context.state.aclose())
        await asyncio.sleep(1)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        context.closings = world(context).server(context.state).closings
        call.cancel()
        await asyncio.wait([call])

    world(context).run(close())


@then("the server was let go of")
def step_the_server_was_let_go_of(context: Context) -> None:
    assert context.closings == 1, context.closings


@when('the method "{name}" of what {call:w} returns is used without a block')
def step_the_method_of_what_call_returns_is_used_without_a_block(
    context: Context, name: str, call: str
) -> None:
    loop = asyncio.new_event_loop()  # which never runs: nothing is opened
    opened = {
        "open_state": lambda: open_state("memory:"),
        "open_state_threadsafe": lambda: open_state_threadsafe(loop, "memory:"),
    }
    made = opened[call]()
    loop.close()
    context.error = error_of(lambda: getattr(made, name))
