from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.journal.location import parse_location
from rxlanggraph.cli.journal.model import DROPPED, QUEUE, RUN
from rxlanggraph.state import State, open_state
from support.cli import command
from support.concurrency.tasks import run
from support.state import old_stores

# Seconds: longer than the scenario takes.
LEASE = 600.0


def in_journal(context: Context, name: str) -> AbstractAsyncContextManager[State]:
    location = parse_location(str(context.folder / name))
    return open_state(location.url, namespace=location.namespace)


@given('another process works on a line of "{name}"')
def step_another_process_works_on_a_line_of_name(context: Context, name: str) -> None:
    async def work() -> None:
        async with in_journal(context, name) as state:
            assert await state.requeue(QUEUE) == 1
            assert await state.backend.task_claim(QUEUE, "elsewhere", LEASE)

    run(work())


@given('the dropping of "{name}" has ended in the middle')
def step_the_dropping_of_name_has_ended_in_the_middle(context: Context, name: str) -> None:
    async def begin() -> None:
        async with in_journal(context, name) as state:
            await state.set(RUN, DROPPED)
            await state.purge(QUEUE)

    run(begin())


@given("two journals there, called one and other")
def step_two_journals_there_called_one_and_other(context: Context) -> None:
    for name in ("one", "other"):
        journal = f"{context.url}#{name}"
        line = f"rxlanggraph run graphs.py:double -i in.jsonl -o {name}.jsonl --journal '{journal}'"
        context.ended = command.run_here(line, context.folder, context.stdin)
        assert context.ended.status == 1, context.ended


@when('the task of line {line:d} of "{name}" is cancelled by the command')
def step_the_task_of_line_line_of_name_is_cancelled_by(
    context: Context, line: int, name: str
) -> None:
    def run_here(arguments: str) -> command.Ended:
        text = f"rxlanggraph state --journal {name} {arguments}"
        return command.run_here(text, context.folder, context.stdin)

    tasks = map(json.loads, run_here("tasks lines --json").out.splitlines())
    (task_id,) = [task["id"] for task in tasks if task["key"] == str(line)]
    context.ended = run_here(f"cancel lines {task_id}")
    assert context.ended.status == 0, context.ended


@then('the version of "{name}" is still the first one')
def step_the_version_of_name_is_still_the_first_one(context: Context, name: str) -> None:
    version = run(old_stores.version_of(f"sqlite:///{context.folder / name}"))
    assert version.stored == old_stores.FIRST["SQLite"], version
