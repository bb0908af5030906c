from __future__ import annotations

from behave import given, when
from behave.runner import Context

from support.concurrency.tasks import run
from support.servers import pooled, postgres_server
from support.state.sql_openings import open_at
from support.state.sql_ways import plain


@given("a PostgreSQL server behind a pooler in {mode} mode")
def step_a_postgresql_server_behind_a_pooler_in_mode_mode(context: Context, mode: str) -> None:
    context.url = postgres_server.fresh_url()
    context.mode = mode


@given("a PostgreSQL server with the tables, behind a pooler in {mode} mode")
def step_a_postgresql_server_with_the_tables_behind_a_pooler_in(
    context: Context, mode: str
) -> None:
    step_a_postgresql_server_behind_a_pooler_in_mode_mode(context, mode)
    assert run(open_at(context.url)) is None


@given("a PostgreSQL server behind a pooler in session mode that has one session")
def step_a_postgresql_server_behind_a_pooler_in_session_mode_that(context: Context) -> None:
    context.url = postgres_server.fresh_url()


@given("the transactions there are serializable by default")
def step_the_transactions_there_are_serializable_by_default(context: Context) -> None:
    with plain(context.url) as connection:
        connection.execute(
            f"ALTER DATABASE {connection.info.dbname}"
            " SET default_transaction_isolation = 'serializable'"
        )


@given("a PostgreSQL database that is encoded in {encoding}")
def step_a_postgresql_database_that_is_encoded_in_encoding(context: Context, encoding: str) -> None:
    context.url = postgres_server.fresh_url()
    with plain(context.url) as connection:
        name = f"{connection.info.dbname}_{encoding.lower()}"
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'"
        )
        context.url = context.url.replace(connection.info.dbname, name)


@when("{way} counts {count:d} times, by several tasks at once")
def step_way_counts_count_times_by_several_tasks_at_once(
    context: Context, way: str, count: int
) -> None:
    context.counter = run(pooled.count_behind(context.url, context.mode, way, count))


@when("each method of a state is called there")
def step_each_method_of_a_state_is_called_there(context: Context) -> None:
    context.outcome = run(pooled.use_behind(context.url, context.mode))


@when("a state is opened there with {more}")
def step_a_state_is_opened_there_with_more(context: Context, more: str) -> None:
    context.error = run(pooled.error_of_opening(context.url, context.mode, more))


@when("a state is opened there")
def step_a_state_is_opened_there(context: Context) -> None:
    if hasattr(context, "mode"):
        context.error = run(pooled.error_of_opening(context.url, context.mode))
    else:
        context.error = run(open_at(context.url))


@when("a state is opened there while another client has that session")
def step_a_state_is_opened_there_while_another_client_has_that(context: Context) -> None:
    context.error = run(pooled.error_with_no_session(context.url))
