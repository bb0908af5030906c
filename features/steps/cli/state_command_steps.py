from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import redis
from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.journal.location import NAMESPACE
from rxlanggraph.cli.journal.model import RUN
from rxlanggraph.state import QueueStats, open_state
from support.cli import command
from support.concurrency.tasks import run
from support.servers import servers
from support.state import old_stores


def in_folder(context: Context) -> None:
    context.folder = Path(tempfile.mkdtemp(prefix="rxlanggraph-"))
    context.add_cleanup(shutil.rmtree, context.folder)
    context.stdin = io.BytesIO()
    context.found: dict[str, bytes] = {}


async def fill_many(url: str, count: int) -> None:
    async with open_state(url) as state:
        await state.add_tasks("many", range(count))


async def fill_strangely(url: str) -> None:
    async with open_state(url) as state:
        await state.add_tasks("\x1b[2Jqueue", [1])


async def fill(url: str) -> None:
    async with open_state(url) as state:
        await old_stores.fill(state)


async def first_by_state(url: str) -> dict[str, str]:
    """The id of one task in each state, by what stands for it in a command line; none delayed."""
    async with open_state(url) as state:
        return {
            task.state.upper(): task.id
            async for task in state.iter_tasks("lines")
            if not (task.state == "waiting" and task.due_in)
        }


async def stats_of(url: str) -> QueueStats:
    async with open_state(url) as state:
        return await state.stats("lines")


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of a table, by the heads of its columns, which are as wide as the widest cell."""
    head, *lines = text.rsplit("\n\n", maxsplit=1)[-1].splitlines()
    starts = [match.start() for match in re.finditer(r"(?<=  )\S|^\S", head)]
    ends = [*starts[1:], None]
    places = list(zip(starts, ends, strict=True))
    heads = [head[start:end].strip() for start, end in places]
    cells = ([line[start:end].strip() for start, end in places] for line in lines)
    return [dict(zip(heads, row, strict=True)) for row in cells]


# -- given -----------------------------------------------------------------------------------------


@given("a store with tasks in every state in {backend}")
def step_a_store_with_tasks_in_every_state_in_backend(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)
    run(fill(context.url))
    context.ids = run(first_by_state(context.url))
    context.stats = run(stats_of(context.url))


@given("a store with {count:d} tasks that wait")
def step_a_store_with_count_tasks_that_wait(context: Context, count: int) -> None:
    context.url = servers.fresh_url(context, "SQLite")
    run(fill_many(context.url, count))


@given("a store whose queue and worker have names with control characters")
def step_a_store_whose_queue_and_worker_have_names_with_control_characters(
    context: Context,
) -> None:
    context.url = servers.fresh_url(context, "SQLite")
    run(fill_strangely(context.url))


@given("a state there, whose password is in {variable}")
def step_a_state_there_whose_password_is_in_variable(context: Context, variable: str) -> None:
    run(fill(context.whole))
    context.url = context.journal
    in_folder(context)
    file = context.folder / "password"
    file.write_text(f"{context.password}\n")
    told = str(file) if variable.endswith("_FILE") else context.password
    patched = mock.patch.dict(os.environ, {variable: told})
    patched.start()
    context.add_cleanup(patched.stop)


@given("a store whose queue has the name {name}")
def step_a_store_whose_queue_has_the_name(context: Context, name: str) -> None:
    context.url = servers.fresh_url(context, "SQLite")

    async def fill_it() -> None:
        async with open_state(context.url) as state:
            await state.add_tasks(name, [1])

    run(fill_it())


@given('a store with a task in the file "{name}" there')
def step_a_store_with_a_task_in_the_file_name_there(context: Context, name: str) -> None:
    async def fill_it() -> None:
        async with open_state(f"sqlite:///{context.folder / name}") as state:
            await state.add_tasks("q", [1])

    run(fill_it())


@given("a store in {backend} that has nothing but a journal")
def step_a_store_in_backend_that_has_nothing_but_a_journal(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)

    async def begin() -> None:
        async with open_state(context.url, namespace=NAMESPACE) as state:
            await state.set(RUN, {})

    run(begin())


@given("another program has set the time at which all were added to {seconds:g}")
def step_another_program_has_set_the_time_at_which_all(context: Context, seconds: float) -> None:
    with writing(context.url) as database:
        database.execute("UPDATE rxlanggraph_tasks SET added = ?", (seconds,))


@given("another program has written {text} as every item and value")
def step_another_program_has_written_text_as_every_item_and(context: Context, text: str) -> None:
    stored = {"a BLOB": b"[]", "[[[[...": "[" * 100_000}.get(text, text)
    what = "CAST(x'22ff22' AS text)" if text == "not UTF-8" else ":text"
    with writing(context.url) as database:
        for table in ("entries", "tasks"):
            database.execute(f"UPDATE rxlanggraph_{table} SET item = {what}", {"text": stored})


@given("another program has written the bytes {octets} as every item and value there")
def step_another_program_has_written_the_bytes_octets_as_every(
    context: Context, octets: str
) -> None:
    stored = bytes.fromhex(octets)
    with redis.Redis.from_url(context.url) as server:
        for key in server.scan_iter():
            if server.type(key) == b"hash":
                is_value = server.hexists(key, "text")
                names = [b"text"] if is_value else server.hkeys(key) if b"text" in key else []
                for name in names:
                    server.hset(key, name, stored)


@contextlib.contextmanager
def writing(url: str) -> Iterator[sqlite3.Connection]:
    """The file of a store, open to another program for the length of a block."""
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        yield database
        database.commit()


@given("an empty folder")
def step_an_empty_folder(context: Context) -> None:
    in_folder(context)


# -- when ------------------------------------------------------------------------------------------


@when('"{line}" is run there')
def step_line_is_run_there(context: Context, line: str) -> None:
    context.ended = command.run_here(in_place(context, line), context.folder, context.stdin)


@when('"{line}" is run there, and its output is in {encoding}')
def step_line_is_run_there_and_its_output_is_in_encoding(
    context: Context, line: str, encoding: str
) -> None:
    context.ended = command.run_here(
        in_place(context, line), context.folder, context.stdin, encoding=encoding
    )


@when('"{line}" is run there where the disk is full')
def step_line_is_run_there_where_the_disk_is_full(context: Context, line: str) -> None:
    context.ended = command.run_without_room(in_place(context, line), context.folder)


@when('"{line}" is run there, and its output closed after a line')
def step_line_is_run_there_and_its_output_closed_after_a(context: Context, line: str) -> None:
    context.ended = command.run_into_closed_pipe(in_place(context, line), context.folder)


def in_place(context: Context, line: str) -> str:
    """The command line with the URL of the store, and the ids of its tasks."""
    if not hasattr(context, "folder"):
        in_folder(context)
    line = re.sub(r"URL(#\w+)?", lambda url: shlex.quote(f"{context.url}{url[1] or ''}"), line)
    for name, task_id in getattr(context, "ids", {}).items():
        line = re.sub(rf"\b{name}\b", task_id, line)
    return line


# -- then ------------------------------------------------------------------------------------------


@then("these columns are shown")
def step_these_columns_are_shown(context: Context) -> None:
    assert context.ended.status == 0, context.ended
    expected = [row.as_dict() for row in context.table]
    found = [{name: row[name] for name in expected[0]} for row in rows_of(context.ended.out)]
    key = sorted(expected[0])
    assert sorted(found, key=lambda row: [row[name] for name in key]) == sorted(
        expected, key=lambda row: [row[name] for name in key]
    ), context.ended.out


@then("its JSON has the state completed, the result {result}, and times in their order")
def step_its_json_has_the_state_completed_the_result_result_and(
    context: Context, result: str
) -> None:
    (told,) = context.ended.records
    assert (told["state"], told["result"]) == ("completed", json.loads(result)), told
    assert told["added"] <= told["claimed"] <= told["ended"], told
    assert told["added"].endswith("+00:00"), told


@then("it shows lines for {names}")
def step_it_shows_lines_for_names(context: Context, names: str) -> None:
    told = [line.split()[0] for line in context.ended.out.splitlines()]
    assert told == names.split(", "), told


@then("it shows {count:d} tasks")
def step_it_shows_count_tasks(context: Context, count: int) -> None:
    assert len(context.ended.out.splitlines()) == count + 1, context.ended.out


@then("it shows {count:d} tasks, and that there are more")
def step_it_shows_count_tasks_and_that_there_are_more(context: Context, count: int) -> None:
    *tasks, blank, more = context.ended.out.splitlines()
    assert (len(tasks), blank) == (count + 1, ""), context.ended.out
    assert more.startswith("and more"), more


@then("its JSON has {count:d} lines")
def step_its_json_has_count_lines(context: Context, count: int) -> None:
    assert context.ended.status == 0, context.ended
    assert len(context.ended.records) == count, context.ended.out


@then("the tasks are as they were")
def step_the_tasks_are_as_they_were(context: Context) -> None:
    assert run(stats_of(context.url)) == context.stats


@then(
    "of the tasks, {waiting:d} wait, {claimed:d} are claimed, {completed:d} completed and {dead:d}"
    " dead"
)
def step_of_the_tasks_waiting_wait_claimed_are_claimed_completed(
    context: Context, waiting: int, claimed: int, completed: int, dead: int
) -> None:
    stats = run(stats_of(context.url))
    found = (stats.waiting + stats.delayed, stats.claimed, stats.completed, stats.dead)
    assert found == (waiting, claimed, completed, dead), stats


@then("neither standard output nor standard error shows its password")
def step_neither_standard_output_nor_standard_error_shows_its_password(context: Context) -> None:
    told = context.ended.out + context.ended.err
    assert told, "nothing was told"
    assert not re.search("SEC|RET", told), told


@then("no control character is shown")
def step_no_control_character_is_shown(context: Context) -> None:
    assert context.ended.out.replace("\n", "").isprintable(), context.ended.out


@then('standard error is the line "{text}"')
def step_standard_error_is_the_line_text(context: Context, text: str) -> None:
    assert context.ended.err.splitlines() == [text], context.ended.err
