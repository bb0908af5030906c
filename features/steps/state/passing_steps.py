from __future__ import annotations

from behave import given, when
from behave.runner import Context

from rxlanggraph.state.backends.sql.postgresql import database as postgresql
from rxlanggraph.state.backends.sql.sqlite import keys as sqlite_keys
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state.sql_openings import rows_left


@given("tokens of keys that are gone are kept for a millisecond")
def keep_tokens_for_a_millisecond(context: Context) -> None:
    patch(context, sqlite_keys, "FENCE_RETENTION", 0.001)
    patch(context, postgresql, "FENCE_RETENTION", 0.001)


@when("{count:d} {what} come and go, one after the other")
def let_come_and_go(context: Context, count: int, what: str) -> None:
    context.rows = run(rows_left(context.url, count, what))
