from __future__ import annotations

from behave import given, when
from behave.runner import Context

from rxlanggraph.state.backends.sql.postgresql import database as postgresql
from rxlanggraph.state.backends.sql.sqlite import keys as sqlite_keys
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state.sql_openings import rows_left


@given("tokens of keys that are gone are kept for a millisecond")
def step_tokens_of_keys_that_are_gone_are_kept_for_a_millisecond(context: Context) -> None:
    patch(context, sqlite_keys, "FENCE_RETENTION", 0.001)
    patch(context, postgresql, "FENCE_RETENTION", 0.001)


@when("{count:d} {what} come and go, one after the other")
def step_count_what_come_and_go_one_after_the_other(
    context: Context, count: int, what: str
) -> None:
    context.rows = run(rows_left(context.url, count, what))
