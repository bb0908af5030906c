from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.formats.readers import InputLine
from rxlanggraph.cli.journal.location import parse_location
from rxlanggraph.cli.journal.model import INGEST, QUEUE, RUN, task_of
from rxlanggraph.state import State, Task, open_state
from rxlanggraph.state.backend import DeadTask, Page
from rxlanggraph.state.backends.sql.backend import SqlBackend
from support.cli import command
from support.concurrency.patching import patch

# Seconds: over before the first look.
SHORT = 0.001


def in_journal(context: Context, name: str, do: Callable[[State], Awaitable[None]]) -> None:
    async def open_and_do() -> None:
        location = parse_location(str(context.folder / name))
        async with open_state(location.url, namespace=location.namespace) as state:
            await do(state)

    asyncio.run(open_and_do())


def record_of(line: int) -> str:
    error = {"type": "ValueError", "message": "no"}
    return json.dumps({"line": line, "thread_id": None, "status": "error", "error": error})


@given('{failed:d} more lines of "{name}" have failed, and {dead:d} have killed their workers')
def lines_have_failed(context: Context, failed: int, name: str, dead: int) -> None:
    async def fail(state: State) -> None:
        lines = (InputLine(number, "1", 0, 1, None) for number in range(3, failed + dead + 3))
        tasks = [task_of(line, "jsonl") for line in lines]
        await state.add_tasks(QUEUE, tasks, max_attempts=1)
        await asyncio.gather(*[fail_next(state) for _ in range(failed)])
        for _ in range(dead):
            assert await state.backend.task_claim(QUEUE, "killed", SHORT) is not None

    async def fail_next(state: State) -> None:
        claim = await state.claim_task(QUEUE, lease=60.0)
        assert claim is not None
        await claim.fail(record_of(claim.item["line"]), final=True)

    in_journal(context, name, fail)


@given('another version has written the {part} of "{name}"')
def another_version_has_written(context: Context, part: str, name: str) -> None:
    async def write(state: State) -> None:
        if part == "lines":
            await state.add_tasks(QUEUE, [Task({"number": 3, "text": "{}"})])
            return
        key = {"run": RUN, "ingest progress": INGEST}[part]
        (value, _) = await state.get(key)
        del value["version"]
        await state.set(key, {**value, "shards": 7})

    in_journal(context, name, write)


@when('I run "{line}", and it is noted how many dead letters are read')
def step_i_run_line_and_it_is_noted_how_many_dead_letters_are_read(
    context: Context, line: str
) -> None:
    context.read = 0
    read_page = SqlBackend.tasks_dead_page

    async def note(*arguments: Any) -> Page[DeadTask]:
        page = await read_page(*arguments)
        context.read += len(page.items)
        return page

    patch(context, SqlBackend, "tasks_dead_page", note)
    context.ended = command.run_here(line, context.folder, context.stdin)


@then("no more than {most:d} dead letters were read")
def no_more_were_read(context: Context, most: int) -> None:
    assert 0 < context.read <= most, context.read


@then("the data has {failed:d} failed lines and {dead:d} dead letters")
def step_the_data_has_failed_failed_lines_and_dead_dead_letters(
    context: Context, failed: int, dead: int
) -> None:
    found = json.loads(context.ended.out)
    told = len(found["failed_lines"]), len(found["dead_letters"]), found["failed"], found["dead"]
    assert told == (failed, dead, failed, dead), told


@then('standard output says "{text}"')
def standard_output_says(context: Context, text: str) -> None:
    assert text in context.ended.out, context.ended.out
