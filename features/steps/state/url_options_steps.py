from __future__ import annotations

from behave import given, then, when
from behave.runner import Context

from support.concurrency.tasks import run
from support.executors.nodes import free_port
from support.servers import sql_servers
from support.servers.postgres_server import Server


@when('{calls:d} increments are made over "{options}"')
def step_calls_increments_are_made_over_options(context: Context, calls: int, options: str) -> None:
    counted = run(sql_servers.count_with_options(context.url, options, calls))
    context.counter, context.connections, context.limit = counted


@then("the server ends a statement after {limit}")
def server_ends_a_statement_after(context: Context, limit: str) -> None:
    assert context.limit == limit, context.limit


@given("a PostgreSQL server that listens on TCP")
def step_a_postgresql_server_that_listens_on_tcp(context: Context) -> None:
    port = str(free_port())
    server = Server(listen_addresses="127.0.0.1", port=port)
    context.add_cleanup(server.remove)
    server.start()
    context.add_cleanup(server.stop)
    context.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"


@when("a connection to it is made")
def step_a_connection_to_it_is_made(context: Context) -> None:
    context.client, context.server = run(sql_servers.probing_of(context.url))


@then("each end probes the other after {idle:d} seconds, and then {count:d} times in {length:d}")
def step_each_end_probes_the_other(context: Context, idle: int, count: int, length: int) -> None:
    assert context.client == [idle, length // count, count], context.client
    assert context.server[:3] == [str(each) for each in context.client], context.server


@then("the server gives up what is not acknowledged within {limit:d} seconds")
def step_the_server_gives_up_what_is_not_acknowledged(context: Context, limit: int) -> None:
    assert context.server[3] == str(1000 * limit), context.server


@when("the network loses a process that creates the tables, and another one opens the store")
def step_the_network_loses_a_process_that_creates_the_tables(context: Context) -> None:
    context.opened = run(sql_servers.open_beside_lost_opener(context.url))


@then("it was opened")
def step_it_was_opened(context: Context) -> None:
    assert context.opened
