"""Steps for servers as they are deployed."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateUnavailableError
from support.concurrency.raising import raised
from support.concurrency.tasks import run
from support.servers import deployed, postgres_server, redis_servers, valkey_server
from support.servers.sentinel import Watched
from support.servers.valkey_server import LocalValkey
from support.state.sql_ways import plain


def folder_of(context: Context) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="deployed-")
    context.add_cleanup(folder.cleanup)
    return Path(folder.name)


# -- PostgreSQL ------------------------------------------------------------------------------------


@given("a PostgreSQL server that speaks TLS")
def step_a_postgresql_server_that_speaks_tls(context: Context) -> None:
    context.url = postgres_server.fresh_url()


@given("a Valkey server that speaks TLS")
def step_a_valkey_server_that_speaks_tls(context: Context) -> None:
    context.url = valkey_server.fresh_url()


def count_over_tls(context: Context, *, trusted: bool, name: str = "127.0.0.1") -> None:
    context.error, context.counted = None, None
    try:
        context.counted = run(
            deployed.count_over_tls(context.url, folder_of(context), trusted, name)
        )
    except Exception as error:
        context.error = error


@when("a state counts over TLS that is checked by the authority of the certificate")
def step_a_state_counts_over_tls_checked_by_the_authority(context: Context) -> None:
    count_over_tls(context, trusted=True)


@when("a state counts over TLS that is checked by another authority")
def step_a_state_counts_over_tls_checked_by_another_authority(context: Context) -> None:
    count_over_tls(context, trusted=False)


@when("a state counts over TLS that is checked, at a name that the certificate does not have")
def step_a_state_counts_over_tls_that_is_checked_at_a_name(context: Context) -> None:
    count_over_tls(context, trusted=True, name="localhost")


@then("it has counted, encrypted")
def step_it_has_counted_encrypted(context: Context) -> None:
    assert context.error is None, repr(context.error)
    counter, encrypted = context.counted
    assert counter == 3 and encrypted >= 1, context.counted


@given("a PostgreSQL server that asks for a password")
def step_a_postgresql_server_that_asks_for_a_password(context: Context) -> None:
    context.url = postgres_server.fresh_url()
    with plain(context.url) as connection:
        deployed.ask_for_password(connection)


@when("a state counts at a URL without it, and {place} has it")
def step_a_state_counts_at_a_url_without_it(context: Context, place: str) -> None:
    url, environment = deployed.with_password_in(place, context.url, folder_of(context))
    assert deployed.PASSWORD not in url
    with mock.patch.dict(os.environ, environment):
        context.error = run(raised(deployed.count(url)))


@then("it has counted")
def step_it_has_counted(context: Context) -> None:
    assert context.error is None, repr(context.error)


@given("a PostgreSQL server at two addresses, behind one that is dead")
def step_a_postgresql_server_at_two_addresses(context: Context) -> None:
    context.url = postgres_server.fresh_url()


@when("a state counts, and the address that it uses goes in the middle")
def step_a_state_counts_and_the_address_goes(context: Context) -> None:
    context.counting, context.counter = run(deployed.count_through_addresses(context.url))


@then("each increment that was answered was counted once")
def step_each_increment_that_was_answered_was_counted_once(context: Context) -> None:
    answered, in_doubt = context.counting.answered, context.counting.in_doubt
    assert answered <= context.counter <= answered + in_doubt, (answered, context.counter, in_doubt)


# -- Redis and Valkey ------------------------------------------------------------------------------


def server_with_user(context: Context, keys: str) -> None:
    server = LocalValkey()
    context.add_cleanup(server.close)
    server.start()
    documented = Path("docs/state.md").read_text(encoding="utf-8")
    command = documented.partition("ACL SETUSER app ")[2].partition("\n")[0]
    rights = command.replace("{rxlanggraph}:*", keys).replace(">PASSWORD", ">sesame").split()
    assert f"~{keys}" in rights and ">sesame" in rights, command
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", *rights)
    context.url = server.url.replace("redis://", "redis://app:sesame@")


@given("a Valkey server of its own with a user who has the rights that docs/state.md names")
def step_a_valkey_server_of_its_own_with_a_user_who_has_the_rights(context: Context) -> None:
    server_with_user(context, f"{{{redis_servers.NAMESPACE}}}:*")


@given("a Valkey server of its own with a user who has these rights for other keys")
def step_a_valkey_server_with_a_user_for_other_keys(context: Context) -> None:
    server_with_user(context, "{other}:*")


@when("that user makes every write and read of a state")
def step_that_user_makes_every_write_and_read(context: Context) -> None:
    context.error = run(raised(redis_servers.use_everything(context.url)))


@then("nothing was refused")
def step_nothing_was_refused(context: Context) -> None:
    assert context.error is None, repr(context.error)


# -- Sentinels -------------------------------------------------------------------------------------


@given("a primary, its replica, and Sentinels of which the first is dead")
def step_a_primary_its_replica_and_sentinels(context: Context) -> None:
    started = Watched.started()
    context.watched = started.__enter__()
    context.add_cleanup(started.__exit__, None, None, None)


@when("a state with wait_replicas=1 counts, and the primary is killed in the middle")
def step_a_state_counts_and_the_primary_is_killed(context: Context) -> None:
    context.counted = run(
        deployed.count_through_promotion(context.watched, "wait_replicas=1&socket_timeout=4")
    )


@when("a state without it counts while the replica is cut off, and the primary is killed")
def step_a_state_counts_while_the_replica_is_cut_off(context: Context) -> None:
    context.counted = run(deployed.count_in_vain(context.watched))


@then("each increment that was answered is in the counter of the promoted replica")
def step_each_increment_is_in_the_promoted_replica(context: Context) -> None:
    answered, counter = context.counted
    assert answered >= 20 and counter >= answered, context.counted


@when("a state with wait_replicas=1 counts while the replica stands still")
def step_a_state_with_wait_replicas_counts_while_the_replica(context: Context) -> None:
    context.error, context.next = run(deployed.count_unconfirmed(context.watched))


@when("the answer to a request is lost while the replica stands still, and it is sent again")
def step_the_answer_to_a_request_is_lost(context: Context) -> None:
    context.error = run(deployed.count_unconfirmed_again(context.watched))


@then('the call has raised StateUnavailableError, in doubt, which says "{words}"')
def step_the_call_has_raised_in_doubt(context: Context, words: str) -> None:
    assert isinstance(context.error, StateUnavailableError), repr(context.error)
    assert context.error.in_doubt and words in str(context.error), repr(context.error)


@then("it goes on counting when the replica does")
def step_it_goes_on_counting(context: Context) -> None:
    assert context.next == 2, context.next


@when("the code under test opens a state at {url}")
def step_the_code_under_test_opens_a_state_at(context: Context, url: str) -> None:
    context.error = asyncio.run(raised(deployed.count(url)))
