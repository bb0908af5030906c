from __future__ import annotations

import asyncio
import logging
import math
import tempfile
import threading
from collections import Counter
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateClosedError, StateUnavailableError
from rxlanggraph.state import open_state
from rxlanggraph.state.backends.sql.postgresql import pool
from rxlanggraph.state.backends.sql.schema import VERSION
from rxlanggraph.state.backends.sql.sqlite import thread as sqlite_thread
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.servers import postgres_server, sql_servers
from support.state import sql_files, sql_threads, sql_ways
from support.state.sql_claims import (
    claim_beside_late,
    claim_from_tables_made_anew,
    claim_together_beside_late,
    claim_without_second_search,
    complete_by_hand,
    grow_at_once,
    pages_of_claim,
)
from support.state.sql_openings import (
    abandon,
    open_at,
    open_without,
    pile_up,
    prepare_as_of_tomorrow,
)
from support.state.sql_processes import COUNTER, count_in_processes

RESTARTS = {
    "is stopped and started again": postgres_server.restart,
    "crashes and is started again": lambda: postgres_server.restart(crash=True),
}


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


# -- given -----------------------------------------------------------------------------------------


@given("the tables in it are of a version to come")
def step_the_tables_in_it_are_of_a_version_to_come(context: Context) -> None:
    run(prepare_as_of_tomorrow(context.url))


@then("the error names the version of the tables, and that of this release")
def step_the_error_names_the_version_of_the_tables_and_that(context: Context) -> None:
    assert f"has version {VERSION + 1}, " in str(context.error), context.error
    assert f"needs version {VERSION}: " in str(context.error), context.error


@given("a user there who may not make tables")
def step_a_user_there_who_may_not_make_tables(context: Context) -> None:
    with sql_ways.plain(context.url) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    context.url = context.url.replace("postgres@", "guest@")


@given("tables there, and a user who may only read them")
def step_tables_there_and_a_user_who_may_only_read_them(context: Context) -> None:
    assert run(open_at(context.url)) is None
    with sql_ways.plain(context.url) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN IN ROLE pg_read_all_data")
    context.url = context.url.replace("postgres@", "reader@")


@given("a file that is not a database")
def step_a_file_that_is_not_a_database(context: Context) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    path = Path(folder.name, "letter.txt")
    path.write_text("Dear reader, " * 1000)
    context.url = f"sqlite:///{path}"


# -- when: opening ---------------------------------------------------------------------------------


@when("{processes:d} processes open it at the same moment, and count to {each:d} each")
def step_processes_processes_open_it_at_the_same_moment_and_count(
    context: Context, processes: int, each: int
) -> None:
    context.complaints = count_in_processes(context.url, processes, each)


@when("a state is opened at {url}")
def step_a_state_is_opened_at_url(context: Context, url: str) -> None:
    given_url = getattr(context, "url", "")
    context.error = run(open_at(url.replace("{url}", given_url)))


@when("a state writes to it that may only read it")
def step_a_state_writes_to_it_that_may_only_read_it(context: Context) -> None:
    context.error = run(sql_files.write_read_only(context.url))


@when("{package} is not installed, and a state is opened at {url}")
def step_package_is_not_installed_and_a_state_is_opened_at_url(
    context: Context, package: str, url: str
) -> None:
    context.said = open_without(package, url)


# -- when: SQLite ----------------------------------------------------------------------------------


@when("another connection writes for a while, and a write and {reads:d} reads are made")
def step_another_connection_writes_for_a_while_and_a_write_and_reads(
    context: Context, reads: int
) -> None:
    context.read, context.waited, context.counter = run(
        sql_files.read_while_locked(context.url, reads)
    )


@when("another connection has the file for good, and a write is made")
def step_another_connection_has_the_file_for_good_and_a_write_is(context: Context) -> None:
    context.error, context.counter = run(sql_files.write_while_locked(context.url))


@when("another connection writes for a while, and a write is cancelled that waits for it")
def step_another_connection_writes_for_a_while_and_a_write_is(context: Context) -> None:
    context.cancelled, context.counter = run(sql_files.cancel_while_locked(context.url))


@when("the file is replaced by another while it is open, and {call} is made")
def step_the_file_is_replaced_by_another_while_it_is_open_and_call(
    context: Context, call: str
) -> None:
    context.error, context.counter = run(sql_files.replace(context.url, path_of(context.url), call))


@when("the {ending} of the file is deleted while it is open, and {call} is made")
def step_the_ending_of_the_file_is_deleted_while_it_is_open_and_call(
    context: Context, ending: str, call: str
) -> None:
    context.error, context.counter = run(
        sql_files.delete_beside(context.url, path_of(context.url), ending, call)
    )


@when("all of the file but its first page becomes rubbish, and a write is made")
def step_all_of_the_file_but_its_first_page_becomes_rubbish_and_a(context: Context) -> None:
    context.error = run(sql_files.damage(context.url, path_of(context.url)))


@when("a large value becomes rubbish on the disk, and 3 keys around it are read and counted")
def step_a_large_value_becomes_rubbish_on_the_disk_and_3_keys(context: Context) -> None:
    context.damaged, context.counts = run(
        sql_files.count_beside_damage(context.url, path_of(context.url))
    )


@when("a process counts to 1, and leaves the state open on a loop that it closes")
def step_a_process_counts_to_1_and_leaves_the_state_open_on_a_loop(context: Context) -> None:
    context.said = abandon(context.url)


@when("{calls:d} increments are made at the same time, and the database is closed {how} meanwhile")
def step_increments_are_made_and_the_database_is_closed_meanwhile(
    context: Context, calls: int, how: str
) -> None:
    context.outcomes = run(sql_threads.close_beside_calls(context.url, calls, how))


@then("each was answered, cancelled with the closing, or told that the state was closed")
def step_each_was_answered_cancelled_with_the_closing_or_told_that(context: Context) -> None:
    for outcome in context.outcomes:
        assert isinstance(outcome, int | StateClosedError | asyncio.CancelledError), outcome


@then("those that were answered are counted, and at most those cancelled besides")
def step_those_that_were_answered_are_counted(context: Context) -> None:
    kinds = Counter(map(type, context.outcomes))
    counted = run(sql_threads.count_again(context.url)) - 1
    assert kinds[int] <= counted <= kinds[int] + kinds[asyncio.CancelledError], (kinds, counted)
    assert kinds[int] + kinds[asyncio.CancelledError] > 0, kinds


@when("SQLite is closed while the disk does not answer to a write, and then it answers")
def step_sqlite_is_closed_while_the_disk_does_not_answer(context: Context) -> None:
    records: list[logging.LogRecord] = []
    patch(context, sqlite_thread._log, "handle", records.append)
    context.has_waited, context.counter = run(sql_threads.close_while_held(context.url))
    context.logged = [record.getMessage() for record in records]


@then("closing has ended before the disk answered, and that is logged")
def step_closing_has_ended_before_the_disk_answered(context: Context) -> None:
    assert not context.has_waited
    assert len(context.logged) == 1 and "still not closed" in context.logged[0], context.logged


@then("the write was answered, and no thread of the file is left")
def step_the_write_was_answered_and_no_thread_is_left(context: Context) -> None:
    assert context.counter == 1, context.counter
    sql_threads.join_threads()


@when("a loop is closed while the disk does not answer to a write, and then it answers")
def step_a_loop_is_closed_while_the_disk_does_not_answer(context: Context) -> None:
    context.complaints = []
    patch(context, threading, "excepthook", context.complaints.append)
    sql_threads.close_loop_in_call(context.url)


@when("a database is left open on a loop that is closed, and dropped")
def step_a_database_is_left_open_on_a_loop_that_is_closed(context: Context) -> None:
    context.complaints = []
    patch(context, threading, "excepthook", context.complaints.append)
    context.warnings = sql_threads.drop(context.url)


@then("no thread of the file is left, and none has complained")
def step_no_thread_of_the_file_is_left(context: Context) -> None:
    sql_threads.join_threads()
    assert not getattr(context, "complaints", []), context.complaints


@then("the next increment has come to {count:d}")
def step_the_next_increment_has_come_to(context: Context, count: int) -> None:
    assert run(sql_threads.count_again(context.url)) == count


@then("Python has warned of it with a ResourceWarning: {what}")
def step_python_has_warned_of_it_with_a_resourcewarning(context: Context, what: str) -> None:
    told = [each for each in context.warnings if what in each]
    assert len(told) == 1 and told[0].startswith("ResourceWarning"), context.warnings


# -- when: both ------------------------------------------------------------------------------------


@when("{way} increments a counter twice at the same moment, over two connections")
def step_way_increments_a_counter_twice_at_the_same_moment_over_two(
    context: Context, way: str
) -> None:
    context.counter = run(sql_ways.COUNTS[way](context.url))


@when("{keys:d} keys are set one after the other, each for a millisecond")
def step_keys_keys_are_set_one_after_the_other_each_for_a(context: Context, keys: int) -> None:
    context.rows = run(pile_up(context.url, keys))


# -- when: PostgreSQL ------------------------------------------------------------------------------


@when("{tasks:d} tasks count while the server {event}")
def step_tasks_tasks_count_while_the_server_event(context: Context, tasks: int, event: str) -> None:
    context.counting, context.counter = run(
        sql_servers.count_through(context.url, RESTARTS[event], tasks)
    )


@when("the server says nothing while an increment is made")
def step_the_server_says_nothing_while_an_increment_is_made(context: Context) -> None:
    context.error, context.counter = run(sql_servers.pause_and_count(context.url))


@when("a task is claimed while others have all the connections")
def step_a_task_is_claimed_while_others_have_all_the_connections(context: Context) -> None:
    context.error = run(sql_servers.claim_without_connection(context.url))


@when("{calls:d} increments are made at once")
def step_calls_increments_are_made_at_once(context: Context, calls: int) -> None:
    context.counter, context.connections = run(sql_servers.count_at_once(context.url, calls))


@when("{calls:d} increments are cancelled that wait for another client's lock")
def step_calls_increments_are_cancelled_that_wait_for_another(context: Context, calls: int) -> None:
    context.cancelled, context.waiting, context.counter = run(
        sql_servers.cancel_in_line(context.url, calls)
    )


@when("another client holds the first of two tasks, and {way} claims one")
def step_another_client_holds_the_first_of_two_tasks_and_way_claims(
    context: Context, way: str
) -> None:
    context.claimed = run(sql_servers.claim_beside(context.url, way))


@when("{way} and another client write two keys in opposite orders, each holding one")
def step_way_and_another_client_write_two_keys_in_opposite_orders(
    context: Context, way: str
) -> None:
    context.value = run(sql_servers.meet_in_deadlock(context.url, way))


# -- then ------------------------------------------------------------------------------------------


@then("none of them complained")
def step_none_of_them_complained(context: Context) -> None:
    assert not context.complaints, context.complaints


@then("the state has counted {count:d}")
def step_the_state_has_counted_count(context: Context, count: int) -> None:
    async def counted() -> int:
        async with open_state(context.url) as state:
            return (await state.get(COUNTER)).value

    assert run(counted()) == count


@then("the error says {what}")
def step_the_error_says_what(context: Context, what: str) -> None:
    assert what in context.said, context.said


@then("the reads were answered while the write waited")
def step_the_reads_were_answered_while_the_write_waited(context: Context) -> None:
    assert set(context.read) == {"1"}, context.read
    assert context.waited


@then("it was cancelled, and the next one has come to 1 or 2")
def step_it_was_cancelled_and_the_next_one_has_come_to_1_or_2(context: Context) -> None:
    assert context.cancelled
    assert context.counter in (1, 2), context.counter


@then("all of them were cancelled, and nothing of them is left on the server")
def step_all_of_them_were_cancelled_and_nothing_of_them_is_left_on(context: Context) -> None:
    assert context.cancelled
    assert context.waiting == 0, context.waiting


@then("at most {rows:d} rows are left")
def step_at_most_rows_rows_are_left(context: Context, rows: int) -> None:
    assert context.rows <= rows, context.rows


@then("every increment was answered, and counted once")
def step_every_increment_was_answered_and_counted_once(context: Context) -> None:
    counting = context.counting
    assert counting.in_doubt == 0, counting.in_doubt
    assert context.counter == counting.answered, (context.counter, counting.answered)


@then("each increment that was answered is counted, and of the others those in doubt at most")
def step_each_increment_that_was_answered_is_counted_and_of_the(context: Context) -> None:
    counting = context.counting
    most = counting.answered + counting.in_doubt
    assert counting.answered <= context.counter <= most, (context.counter, vars(counting))


@then("it has the {which} one")
def step_it_has_the_which_one(context: Context, which: str) -> None:
    assert context.claimed == which, context.claimed


@then("the process has ended, and has said {what}")
def step_the_process_has_ended_and_has_said_what(context: Context, what: str) -> None:
    assert context.said is not None, "it does not end"
    assert context.said.strip() == what, context.said


@then("each of them has come to {count:d}")
def step_each_of_them_has_come_to_count(context: Context, count: int) -> None:
    assert context.damaged > 200, context.damaged
    assert context.counts == [count] * 3, context.counts


@then("both have written, ours the second")
def step_both_have_written_ours_the_second(context: Context) -> None:
    assert context.value == "2", context.value


# -- claims in PostgreSQL --------------------------------------------------------------------------


@when("{count:d} tasks were completed, and their leases are long over")
def step_count_tasks_were_completed_and_their_leases_are_long_over(
    context: Context, count: int
) -> None:
    run(complete_by_hand(context.url, count))


@then(
    "a claim that looks for what fell due reads at least {times:d} times as many pages if it looks "
    "at all of them"
)
def step_a_claim_that_looks_for_what_fell_due_reads_at_least_times(
    context: Context, times: int
) -> None:
    recent, all_of_it = pages_of_claim(context.url, 0.5), pages_of_claim(context.url, 1e12)
    assert 0 < recent * times <= all_of_it, (recent, all_of_it)


@given("a state whose plans there are made again if it is slow")
def step_a_state_whose_plans_there_are_made_again_if_it_is_slow(context: Context) -> None:
    patch(context, pool, "_SLOW", -1.0)  # on any machine
    patch(context, pool, "_REPLAN_FIRST", 0.0)


@given("a state whose plans there are kept")
def step_a_state_whose_plans_there_are_kept(context: Context) -> None:
    patch(context, pool, "_SLOW", math.inf)


@when(
    "it works on a few tasks, then adds {added:d} at once, and {done:d} are claimed and completed "
    "{how}"
)
def step_it_works_on_a_few_tasks_then_adds_added_at_once(
    context: Context, added: int, done: int, how: str
) -> None:
    context.read = run(grow_at_once(context.url, added, done, in_one_step=how == "in one step"))


@then("fewer than {limit:d} entries of indexes were read for each of the {added:d}")
def step_fewer_than_entries_of_indexes_were_read_for_each(
    context: Context, limit: int, added: int
) -> None:
    assert 0 < context.read < limit * added, context.read / added


@when("a task turns up that fell due an hour ago, before all others, right after a full search")
def step_a_task_turns_up_that_fell_due_an_hour_ago_before_all(context: Context) -> None:
    context.claimed = run(claim_beside_late(context.url))


@then("claims return another one at first, and this one after a quarter of a second")
def step_claims_return_another_one_at_first_and_this_one_after_a(context: Context) -> None:
    assert context.claimed == ["a", "late"], context.claimed


@when(
    "4 workers claim 2 tasks and one that fell due an hour ago, and was not seen by the last full "
    "search"
)
def step_4_workers_claim_2_tasks_and_one_that_fell_due_an_hour_ago(context: Context) -> None:
    context.claimed = run(claim_together_beside_late(context.url))


@then("each of the 3 was claimed once")
def step_each_of_the_3_was_claimed_once(context: Context) -> None:
    assert sorted(map(str, context.claimed)) == ["None", "a", "b", "late"], context.claimed


@when(
    "4 workers claim 2 tasks at the same time, and the server does not answer to the search for "
    "more"
)
def step_4_workers_claim_2_tasks_at_the_same_time_and_the_server(context: Context) -> None:
    context.claimed = run(claim_without_second_search(context.url))


@then("2 have a task each, and 2 are told that the server is away")
def step_2_have_a_task_each_and_2_are_told_that_the_server_is_away(context: Context) -> None:
    away = [claim for claim in context.claimed if isinstance(claim, StateUnavailableError)]
    others = [claim for claim in context.claimed if claim not in away]
    assert (len(away), sorted(map(str, others))) == (2, ["a", "b"]), context.claimed


@when("a queue is used, its tables are {made_anew}, and another namespace is the first to use them")
def step_a_queue_is_used_its_tables_are_made_anew_and_another(
    context: Context, made_anew: str
) -> None:
    context.claimed, context.known = run(claim_from_tables_made_anew(context.url, made_anew))


@then("nothing can be claimed from the queue until something is added, and then that")
def step_nothing_can_be_claimed_from_the_queue_until_something_is(context: Context) -> None:
    assert context.claimed == [None, "after"], context.claimed


@then("after some claims its new number is known")
def step_after_some_claims_its_new_number_is_known(context: Context) -> None:
    assert context.known
