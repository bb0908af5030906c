from __future__ import annotations

from behave import then, when
from behave.runner import Context

from support.concurrency.tasks import run
from support.servers import sql_servers


@when('{calls:d} increments are made over "{options}"')
def step_calls_increments_are_made_over_options(context: Context, calls: int, options: str) -> None:
    counted = run(sql_servers.count_with_options(context.url, options, calls))
    context.counter, context.connections, context.limit = counted


@then("the server ends a statement after {limit}")
def server_ends_a_statement_after(context: Context, limit: str) -> None:
    assert context.limit == limit, context.limit
