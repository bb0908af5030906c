"""Time limits that are constants of the package, shortened for a scenario."""

from __future__ import annotations

from types import ModuleType

from behave import given
from behave.runner import Context

from rxlanggraph.agent import run as agent_run
from rxlanggraph.state import update_queue
from rxlanggraph.state.backends.sql.postgresql import pool as postgresql_pool
from rxlanggraph.state.backends.sql.sqlite import thread as sqlite_thread
from support.concurrency.patching import patch

LIMITS: dict[str, tuple[ModuleType, str]] = {
    "undoing a run": (agent_run, "_UNDO_SECONDS"),
    "tasks of a run that has ended": (agent_run, "_CANCEL_SECONDS"),
    "an update that waits for its turn": (update_queue, "_SLOT_TIMEOUT"),
    "connecting to PostgreSQL": (postgresql_pool, "_CONNECT_TIMEOUT"),
    "a call to PostgreSQL": (postgresql_pool, "_CALL_TIMEOUT"),
    "closing SQLite": (sqlite_thread, "_CLOSE_TIMEOUT"),
}


@given("the time limit of {what} is {seconds:g} seconds")
def step_the_time_limit_of_what_is_seconds_seconds(
    context: Context, what: str, seconds: float
) -> None:
    module, name = LIMITS[what]
    patch(context, module, name, seconds)
