from __future__ import annotations

import asyncio
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import Task, open_state
from rxlanggraph.state.backends.redis import backend
from rxlanggraph.state.backends.redis import connections as redis_connection
from support.concurrency.listening import listening
from support.concurrency.patching import patch
from support.concurrency.raising import raised
from support.concurrency.tasks import run
from support.servers import redis_connections, redis_servers, valkey_server
from support.servers.redis_connections import Seen
from support.servers.redis_servers import Outlived
from support.servers.valkey_cluster import Cluster
from support.servers.valkey_server import LocalValkey

PASSWORDS = ("abracadabra", "sesame")
RIGHTS = {
    "do nothing dangerous": ["+@all", "-@dangerous"],
    "run no scripts": ["+@all", "-@scripting"],
}


def start(context: Context, **options: Any) -> LocalValkey:
    server = LocalValkey(**options)
    context.add_cleanup(server.close)
    server.start()
    context.server = server
    return server


# -- given -----------------------------------------------------------------------------------------


@given("a Valkey server")
def step_a_valkey_server(context: Context) -> None:
    context.url = valkey_server.fresh_url()


@given("a Valkey server of its own")
def step_a_valkey_server_of_its_own(context: Context) -> None:
    context.url = start(context).url


@given("a Valkey server of its own that writes everything to its disk")
def step_a_valkey_server_of_its_own_that_writes_everything_to_its(context: Context) -> None:
    context.url = start(context, durable=True).url


@given('a Valkey server of its own whose password is "{password}"')
def step_a_valkey_server_of_its_own_whose_password_is_password(
    context: Context, password: str
) -> None:
    server = start(context, unixsocket="valkey.sock")  # in its folder
    with server.client() as client:
        client.config_set("requirepass", password)


@given("a Valkey server of its own whose maxmemory-policy is {policy}")
def step_a_valkey_server_of_its_own_whose_maxmemory_policy_is(
    context: Context, policy: str
) -> None:
    context.url = start(context, maxmemory_policy=policy).url


@given("a Valkey server of its own that knows no {command}")
def step_a_valkey_server_of_its_own_that_knows_no_command(context: Context, command: str) -> None:
    context.url = start(context, rename_command=f'{command} ""').url


@given("a Valkey server of its own that takes values of 1 MB")
def step_a_valkey_server_of_its_own_that_takes_values_of_1_mb(context: Context) -> None:
    context.url = start(context, proto_max_bulk_len="1mb").url


@given("a Valkey server of its own with a user who may {rights}")
def step_a_valkey_server_of_its_own_with_a_user_who_may_rights(
    context: Context, rights: str
) -> None:
    with start(context).client() as client:
        client.execute_command("ACL", "SETUSER", "guest", "on", ">sesame", "~*", *RIGHTS[rights])


@given("a namespace there is of a version to come")
def step_a_namespace_there_is_of_a_version_to_come(context: Context) -> None:
    run(redis_servers.age_by_a_version(context.url))


@given("a cluster of two Valkey servers")
def step_a_cluster_of_two_valkey_servers(context: Context) -> None:
    started = Cluster.started()
    context.cluster = started.__enter__()
    context.add_cleanup(started.__exit__, None, None, None)


@given("fences are kept for {seconds:g} seconds")
def step_fences_are_kept_for_seconds_seconds(context: Context, seconds: float) -> None:
    patch(context, backend, "_FENCE_RETENTION_MS", int(seconds * 1000))


# -- when: connections -----------------------------------------------------------------------------


@when("{write} is made of which {trouble}")
def step_write_is_made_of_which_trouble(context: Context, write: str, trouble: str) -> None:
    context.untroubled = run(redis_connections.write(context.url, write))
    context.troubled = run(redis_connections.write(context.url, write, trouble))


@when(
    "{count:d} tasks with keys are added in one call, and claimed and completed {batch:d} at a time"
)
def step_count_tasks_with_keys_are_added_in_one_call(
    context: Context, count: int, batch: int
) -> None:
    async def add_and_complete() -> list[Any]:
        completed: list[Any] = []
        async with open_state(context.url) as state:
            await state.add_tasks("q", [Task(number, key=str(number)) for number in range(count)])
            while claims := await state.claim_tasks("q", batch):
                lost = await state.complete_tasks([(claim, None) for claim in claims])
                assert not lost
                completed += [claim.item for claim in claims]
        return completed

    context.completed = run(add_and_complete())


@then("each of the {count:d} was completed once")
def step_each_of_the_count_was_completed_once(context: Context, count: int) -> None:
    assert context.completed == list(range(count)), len(context.completed)


@when("{way} increments a counter, and {trouble}")
def step_way_increments_a_counter_and_trouble(context: Context, way: str, trouble: str) -> None:
    context.counter = run(redis_connections.count_once(context.url, way, trouble))


@when("{way} sets a value, its answer is lost, and another client sets it before it is sent again")
def step_way_sets_a_value_its_answer_is_lost_and_another_client_sets(
    context: Context, way: str
) -> None:
    context.value = run(redis_connections.set_meanwhile(context.url, way))


@when("{way} cancels an increment by 100 while {it_waits}, and makes {others:d} others at once")
def step_way_cancels_an_increment_by_100_while_it_waits_and_makes(
    context: Context, way: str, it_waits: str, others: int
) -> None:
    context.answers, context.next = run(
        redis_connections.cancel_and_count(context.url, way, it_waits, others)
    )


@when("{calls:d} increments are made at once over {connections:d} connections")
def step_calls_increments_are_made_at_once_over_connections(
    context: Context, calls: int, connections: int
) -> None:
    context.counter, context.connections = run(
        redis_connections.count_at_once(context.url, calls, connections)
    )


@when("{way} increments a counter twice at the same moment")
def step_way_increments_a_counter_twice_at_the_same_moment(context: Context, way: str) -> None:
    context.counter = run(redis_connections.count_together(context.url, way))


@when("a worker claims a task from {way}, and is gone")
def step_a_worker_claims_a_task_from_way_and_is_gone(context: Context, way: str) -> None:
    context.claim = run(redis_connections.claim_and_go(context.url, way))


@when("{tasks:d} tasks are purged, and another client reads them meanwhile")
def step_tasks_tasks_are_purged_and_another_client_reads_them(context: Context, tasks: int) -> None:
    context.left, context.purged = run(redis_connections.purge_in_steps(context.url, tasks))


@when("{tasks:d} tasks are purged, which is cancelled meanwhile")
def step_tasks_tasks_are_purged_which_is_cancelled_meanwhile(context: Context, tasks: int) -> None:
    context.left, context.purged = run(redis_connections.cancel_purge(context.url, tasks))


@when("{tasks:d} tasks are purged, and the server refuses all writes from then on")
def step_tasks_tasks_are_purged_and_the_server_refuses_all_writes(
    context: Context, tasks: int
) -> None:
    patch(context, redis_connection, "_REPEAT_TIMEOUTS", 0)
    (context.error,) = run(redis_servers.purge_and_demote(context.server, tasks))


@when(
    "keys are written under tokens and are deleted or expire, locks and queues are used, and time"
    " passes"
)
def step_keys_are_written_under_tokens_and_are_deleted_or_expire(context: Context) -> None:
    context.keys = run(redis_connections.use_and_let_end(context.url))


@when("a key is written under a token, and {then}, and more time passes than that")
def step_a_key_is_written_under_a_token_and_then_and_more_time(context: Context, then: str) -> None:
    context.is_refused = run(redis_connections.is_fenced_after(context.url, then))


@when("a backend is closed, which is cancelled after each of its steps in turn")
def step_a_backend_is_closed_which_is_cancelled_after_each_of_its(context: Context) -> None:
    context.cancelled = run(redis_connections.cancel_closing(context.url))


# -- when: servers ---------------------------------------------------------------------------------


@when("{tasks:d} tasks count to {each:d} each, and each flushes the script cache now and then")
def step_tasks_tasks_count_to_each_each_and_each_flushes_the_script(
    context: Context, tasks: int, each: int
) -> None:
    context.counter, context.sent = run(redis_servers.count_and_flush(context.url, tasks, each))


@when("{tasks:d} tasks count while the server is killed and started again")
def step_tasks_tasks_count_while_the_server_is_killed_and_started(
    context: Context, tasks: int
) -> None:
    def event() -> None:
        context.server.kill()
        context.server.start()

    context.counts = run(redis_servers.count_through(context.url, tasks, event))


@when("a task is claimed and a lock taken, and the server is killed and started again")
def step_a_task_is_claimed_and_a_lock_taken_and_the_server_is(context: Context) -> None:
    context.outlived = run(redis_servers.outlive(context.server))


@when("a lock is taken from {way}, the server loses everything, and it is taken again")
def step_a_lock_is_taken_from_way_the_server_loses_everything_and(
    context: Context, way: str
) -> None:
    context.tokens = run(redis_servers.lock_twice(context.server, way))


@when("the server is paused, and {calls:d} increments are made over {connections:d} connections")
def step_the_server_is_paused_and_calls_increments_are_made_over(
    context: Context, calls: int, connections: int
) -> None:
    context.ended, context.next = run(
        redis_servers.pause_and_count(context.server, calls, connections)
    )


@when("an increment is put off by an endless script, and the script is killed")
def step_an_increment_is_put_off_by_an_endless_script_and_the(context: Context) -> None:
    context.counter = run(redis_servers.count_when_busy(context.server))


@when("the server ends, and {calls:d} increments are made one after the other")
def step_the_server_ends_and_calls_increments_are_made_one_after(
    context: Context, calls: int
) -> None:
    event = context.server.stop
    context.ended = run(redis_servers.count_without(context.server, event, calls))


@when("the server has no memory left, and an increment is made")
def step_the_server_has_no_memory_left_and_an_increment_is_made(context: Context) -> None:
    def event() -> None:
        with context.server.client() as client:
            client.config_set("maxmemory", 1)

    (context.error,) = run(redis_servers.count_without(context.server, event, 1))


@when("the state at {url} is opened")
def step_the_state_at_url_is_opened(context: Context, url: str) -> None:
    server = context.server
    context.error = None
    where = url.format(port=server.port, socket=server.folder / "valkey.sock")
    with listening("rxlanggraph") as context.warnings:
        try:
            context.counter = run(redis_servers.use(where))
        except Exception as error:
            context.error = error


@when("a state is opened at the node that does not have it, and counts while it moves there")
def step_a_state_is_opened_at_the_node_that_does_not_have_it_and(context: Context) -> None:
    context.counts, context.source, context.target = redis_servers.count_through_a_move(
        context.cluster
    )


@when("a client counts to 1 there, and fills its memory with other keys")
def step_a_client_counts_to_1_there_and_fills_its_memory_with(context: Context) -> None:
    with context.server.client() as client:
        client.incr("counter")
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 200_000)
        for number in range(100):
            client.set(f"other {number}", "x" * 10_000)
        context.counter = int(client.get("counter") or 0)


@when("a state is opened in that namespace")
def step_a_state_is_opened_in_that_namespace(context: Context) -> None:
    context.error = run(raised(redis_servers.use(context.url)))


@when("{what} is sent to it that is larger than that")
def step_what_is_sent_to_it_that_is_larger_than_that(context: Context, what: str) -> None:
    context.error, context.counter = run(redis_servers.send_too_much(context.url, what))


# -- then ------------------------------------------------------------------------------------------


@then("it was answered as it is without trouble")
def step_it_was_answered_as_it_is_without_trouble(context: Context) -> None:
    troubled: Seen = context.troubled
    assert troubled.answer == context.untroubled.answer, (context.untroubled, troubled)


@then("everything is as it is without trouble")
def step_everything_is_as_it_is_without_trouble(context: Context) -> None:
    troubled: Seen = context.troubled
    assert troubled.afterwards == context.untroubled.afterwards, (context.untroubled, troubled)


@then("the counter is {expected:d}")
def step_the_counter_is_expected(context: Context, expected: int) -> None:
    assert context.counter == expected, context.counter


@then("the value is that of the other client")
def step_the_value_is_that_of_the_other_client(context: Context) -> None:
    assert context.value == "2", context.value


@then("each of the others was answered with a number of its own, up to what the counter is")
def step_each_of_the_others_was_answered_with_a_number_of_its_own(context: Context) -> None:
    answers: list[int] = context.answers
    assert answers == list(range(context.next - len(answers), context.next)), (
        answers,
        context.next,
    )


@then("100 was added once, or not at all")
def step_100_was_added_once_or_not_at_all(context: Context) -> None:
    assert context.next - len(context.answers) in (1, 101), context.next


@then("there were never more than {most:d} connections")
def step_there_were_never_more_than_most_connections(context: Context, most: int) -> None:
    assert 1 <= context.connections <= most, context.connections


@then("closing was cancelled, and no connection was ever left open")
def step_closing_was_cancelled_and_no_connection_was_ever_left_open(context: Context) -> None:
    assert context.cancelled > 1, context.cancelled  # had one been left open, it would have raised


@then("another worker can claim it")
def step_another_worker_can_claim_it(context: Context) -> None:
    assert context.claim is not None


@then("the server has nothing but the counter, the version and sequences")
def step_the_server_has_nothing_but_the_counter_the_version_and(context: Context) -> None:
    assert context.keys == {"clock", "schema", "sequence"}, context.keys


@then("a write under an older token is refused")
def older_token_is_refused(context: Context) -> None:
    assert context.is_refused


@then("a write under an older token is not refused")
def older_token_is_not_refused(context: Context) -> None:
    assert not context.is_refused


@then("a script was sent as a whole more than once")
def step_a_script_was_sent_as_a_whole_more_than_once(context: Context) -> None:
    assert context.sent > 1, context.sent


@then("each increment that was answered is in the counter, and no other")
def step_each_increment_that_was_answered_is_in_the_counter_and_no(context: Context) -> None:
    answered, counter = context.counts
    assert answered == counter, (answered, counter)


@then("the lock is still held, and the task is completed under its token")
def step_the_lock_is_still_held_and_the_task_is_completed_under_its(context: Context) -> None:
    outlived: Outlived = context.outlived
    assert outlived.held
    assert outlived.completed
    assert list(outlived.results.values()) == ['"late"'], outlived


@then("whatever is drawn from the counter now is larger than before")
def step_whatever_is_drawn_from_the_counter_now_is_larger_than(context: Context) -> None:
    outlived: Outlived = context.outlived
    assert min(outlived.after) > max(outlived.before), outlived


@then("the second token is larger")
def step_the_second_token_is_larger(context: Context) -> None:
    first, second = context.tokens
    assert second > first, context.tokens


@then("each of them ended with a StateUnavailableError, {count:d} of them in doubt")
def step_each_of_them_ended_with_a_stateunavailableerror_count_of(
    context: Context, count: int
) -> None:
    assert all(isinstance(error, StateUnavailableError) for error in context.ended), context.ended
    assert sum(error.in_doubt for error in context.ended) == count, context.ended


@then("those in doubt say that no answer came within {seconds:g} seconds")
def step_those_in_doubt_say_that_no_answer_came_within_seconds(
    context: Context, seconds: float
) -> None:
    said = [str(error) for error in context.ended if error.in_doubt]
    assert all(f"within {seconds:g} seconds" in text for text in said), said


@then("the next increment counts, and none of those in doubt has counted twice")
def step_the_next_increment_counts_and_none_of_those_in_doubt_has(context: Context) -> None:
    doubted = sum(error.in_doubt for error in context.ended)
    assert 1 <= context.next <= 1 + doubted, context.next


@then("the first may have, but from the second on none has had an effect, as they say themselves")
def step_the_first_may_have_but_from_the_second_on_none_has_had_an(context: Context) -> None:
    assert all(isinstance(error, StateUnavailableError) for error in context.ended), context.ended
    assert not any(error.in_doubt for error in context.ended[1:]), context.ended


@then("some were left then, and {purged:d} are forgotten in the end")
def some_were_left(context: Context, purged: int) -> None:
    assert 0 < context.left < context.purged == purged, (context.left, context.purged)


@then("some were left then, and the next one has forgotten those")
def step_some_were_left_then_and_the_next_one_has_forgotten_those(context: Context) -> None:
    # Cancelled, the step that is on its way is carried out, or not.
    assert 0 < context.purged <= context.left, (context.left, context.purged)


@then("the server has no key")
def step_the_server_has_no_key(context: Context) -> None:
    with context.server.client() as client:
        assert client.dbsize() == 0, client.keys()


@then('a warning has said "{text}"')
def warning_has_said(context: Context, text: str) -> None:
    assert any(text in warning for warning in context.warnings), context.warnings


@then("the server has no key but that of the version")
def step_the_server_has_no_key_but_that_of_the_version(context: Context) -> None:
    with context.server.client() as client:
        assert client.keys() == ["{test}:schema"], client.keys()


@when("a state is opened at the Redis URL {url}")
def step_a_state_is_opened_at_the_redis_url_url(context: Context, url: str) -> None:
    context.error = run(raised(redis_servers.use(url)))


@then("it works")
def step_it_works(context: Context) -> None:
    assert context.error is None, repr(context.error)
    assert context.counter == 1, context.counter


@then("all keys of the state are in one slot, at the other node")
def step_all_keys_of_the_state_are_in_one_slot_at_the_other_node(context: Context) -> None:
    source, target = context.source, context.target
    asyncio.run(redis_servers.use_everything(source.server.url))
    slot = context.cluster.slot_of(redis_servers.NAMESPACE)
    keys = target.say("DBSIZE")
    assert keys > 10, keys
    assert target.say("CLUSTER COUNTKEYSINSLOT", slot) == keys
    assert source.say("DBSIZE") == 0
