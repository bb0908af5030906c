from __future__ import annotations

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state.backends.sql.postgresql import fast_path
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state import sql_claims
from support.state.sql_ways import add, opened


@given("full searches count as slow")
def full_searches_count_as_slow(context: Context) -> None:
    patch(context, fast_path, "_MEASURED", 1)
    patch(context, fast_path, "_SLOW", 0.0)
    patch(context, fast_path, "_TIMES_SLOWER", 0)


@when("{count:d} tasks were claimed while another client's transaction is open")
def tasks_were_claimed(context: Context, count: int) -> None:
    async def fill() -> None:
        async with opened(context.url) as backend:
            await add(backend, *map(str, range(count + 10)))

    run(fill())
    context.pages = sql_claims.pages_of_looks(context.url, count)


@then(
    "a claim from the first task on reads at least {times:d} times as many pages as one behind them"
)
def step_a_claim_from_the_first_task_on_reads_at_least_times_times(
    context: Context, times: int
) -> None:
    from_first, behind = context.pages
    assert from_first >= times * behind, context.pages


@when('"a" was claimed, then one task with a full search, "a" is given back, and claims go on')
def claims_go_on(context: Context) -> None:
    context.claimed = run(sql_claims.claim_between_full_searches(context.url))


@then('what was claimed is "b", "c", after the next full search "a", "d", "e", and nothing')
def what_was_claimed(context: Context) -> None:
    names = [text and text.strip('"') for text in context.claimed]
    assert names == ["b", "c", "a", "d", "e", None], names
