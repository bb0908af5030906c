from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state.backends.sql import schema
from support.concurrency.raising import raised
from support.concurrency.tasks import run
from support.servers import servers
from support.state import old_stores
from support.state.sql_ways import plain

GRAPH = """
async def divide(n):
    return n * 2
"""


@given("a store of the first version in {backend}")
def step_a_store_of_the_first_version_in_backend(context: Context, backend: str) -> None:
    context.backend = backend
    context.url = servers.fresh_url(context, backend)
    old_stores.load(backend, context.url)


@given("a user there who may use the tables")
def step_a_user_there_who_may_use_the_tables(context: Context) -> None:
    with plain(context.url) as connection:
        connection.execute("DROP ROLE IF EXISTS user_of_tables")
        connection.execute("CREATE ROLE user_of_tables LOGIN")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO user_of_tables")
        connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO user_of_tables")
    context.url = context.url.replace("postgres@", "user_of_tables@")


@given("a journal of the first version, with two failed lines")
def step_a_journal_of_the_first_version_with_two_failed_lines(context: Context) -> None:
    context.folder = Path(tempfile.mkdtemp(prefix="rxlanggraph-"))
    context.add_cleanup(shutil.rmtree, context.folder)
    context.stdin = io.BytesIO()
    shutil.copyfile(old_stores.DATA / "journal-7.db", context.folder / "run.db")
    (context.folder / "graphs.py").write_text(GRAPH)
    (context.folder / "in.jsonl").write_text("1\n2\n3\n4\n5\n")


@when("it is opened by this release")
def step_it_is_opened_by_this_release(context: Context) -> None:
    run(old_stores.open_here(context.url))


@when("it is opened by a release whose migration fails at its end")
def step_it_is_opened_by_a_release_whose_migration_fails_at(context: Context) -> None:
    *before, last = schema._MIGRATIONS
    failing = last._replace(statements=(*last.statements, "SELECT no_such_column"))
    with mock.patch.object(schema, "_MIGRATIONS", (*before, failing)):
        context.error = run(raised(old_stores.open_here(context.url)))


@when("a state is opened at {url} while another transaction reads its tasks")
def step_a_state_is_opened_at_url_while_another_transaction_reads_its(
    context: Context, url: str
) -> None:
    with plain(context.url) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT FROM rxlanggraph_tasks")
        for seconds in (1, 4, 16):  # a busy server may be late to say why
            where = url.format(url=context.url, seconds=seconds)
            context.error = run(raised(old_stores.open_here(where)))
            if "does not answer" not in str(context.error):
                break


@when("two programs find a migration due, and then {who} runs it in each")
def step_two_programs_find_a_migration_due_and_then_who_runs(context: Context, who: str) -> None:
    context.complaints = run(old_stores.complaints_of(who, context.url))


@when("its version is read")
def step_its_version_is_read(context: Context) -> None:
    context.version = run(old_stores.version_of(context.url))


@when("an older program adds a task and claims it")
def step_an_older_program_adds_a_task_and_claims_it(context: Context) -> None:
    run(old_stores.continue_as_older_program(context.url))


@when("the next task is claimed and completed")
def step_the_next_task_is_claimed_and_completed(context: Context) -> None:
    context.task = run(old_stores.complete_next(context.url))


@then("that task tells when it was claimed and completed")
def step_that_task_tells_when_it_was_claimed_and_completed(context: Context) -> None:
    task = context.task
    assert task.added is None and task.ended >= task.claimed > 1e9, task


@then("its {count:d} tasks have no times, and are not older than the migration")
def step_its_count_tasks_have_no_times_and_are_not_older(context: Context, count: int) -> None:
    tasks = run(old_stores.tasks_of(context.url))
    assert len(tasks) == count, tasks
    for task in tasks:
        # The expired one ended when its lease did, which every version has recorded.
        ended = task.state == "dead" and task.ended is not None
        assert (task.added, task.claimed) == (None, None), task
        assert ended or (task.ended is None and task.age < old_stores.LONG / 1000), task


@then("this release completes that task")
def step_this_release_completes_that_task(context: Context) -> None:
    task = run(old_stores.complete_next(context.url))
    assert task.item == "old" and task.added is None, task


@then("its values, fences, locks and tasks are as they were")
def step_its_values_fences_locks_and_tasks_are_as_they_were(context: Context) -> None:
    run(old_stores.check_all(context.url))


@then("its version is that of this release")
def step_its_version_is_that_of_this_release(context: Context) -> None:
    version = run(old_stores.version_of(context.url))
    assert version.stored == version.needed and not version.is_due, version


@then("its version is still the first one")
def step_its_version_is_still_the_first_one(context: Context) -> None:
    version = run(old_stores.version_of(context.url))
    assert version.stored == old_stores.FIRST[context.backend], version


@then("a migration is due")
def step_a_migration_is_due(context: Context) -> None:
    assert context.version.is_due, context.version


@then('an error says "{words}"')
def step_an_error_says_words(context: Context, words: str) -> None:
    assert words in str(context.error), repr(context.error)
