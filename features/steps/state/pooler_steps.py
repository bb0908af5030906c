from __future__ import annotations

from behave import given, when
from behave.runner import Context

from support.concurrency.tasks import run
from support.servers import pooled, postgres_server
from support.state.sql_openings import open_at
from support.state.sql_ways import plain


@given("a PostgreSQL server behind a pooler in {mode} mode")
def given_pooler(context: Context, mode: str) -> None:
    context.url = postgres_server.fresh_url()
    context.mode = mode


@given("a PostgreSQL server with the tables, behind a pooler in {mode} mode")
def given_pooler_and_tables(context: Context, mode: str) -> None:
    given_pooler(context, mode)
    assert run(open_at(context.url)) is None


@given("a PostgreSQL server behind a pooler in session mode that has one session")
def given_pooler_of_one_session(context: Context) -> None:
    context.url = postgres_server.fresh_url()


@given("the transactions there are serializable by default")
def given_serializable(context: Context) -> None:
    with plain(context.url) as connection:
        connection.execute(
            f"ALTER DATABASE {connection.info.dbname}"
            " SET default_transaction_isolation = 'serializable'"
        )


@given("a PostgreSQL database that is encoded in {encoding}")
def given_encoding(context: Context, encoding: str) -> None:
    context.url = postgres_server.fresh_url()
    with plain(context.url) as connection:
        name = f"{connection.info.dbname}_{encoding.lower()}"
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'"
        )
        context.url = context.url.replace(connection.info.dbname, name)


@when("{way} counts {count:d} times, by several tasks at once")
def count_behind_pooler(context: Context, way: str, count: int) -> None:
    context.counter = run(pooled.count_behind(context.url, context.mode, way, count))


@when("each method of a state is called there")
def call_behind_pooler(context: Context) -> None:
    context.outcome = run(pooled.use_behind(context.url, context.mode))


@when("a state is opened there with {more}")
def open_with_more(context: Context, more: str) -> None:
    context.error = run(pooled.error_of_opening(context.url, context.mode, more))


@when("a state is opened there")
def open_there(context: Context) -> None:
    if hasattr(context, "mode"):
        context.error = run(pooled.error_of_opening(context.url, context.mode))
    else:
        context.error = run(open_at(context.url))


@when("a state is opened there while another client has that session")
def open_without_session(context: Context) -> None:
    context.error = run(pooled.error_with_no_session(context.url))
