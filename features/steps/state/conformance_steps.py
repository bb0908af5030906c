from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RxLangGraphError
from rxlanggraph.state import open_state
from rxlanggraph.testing.state_conformance import conformance_checks
from support.cli import command
from support.linearizability.faulty_stores import opener
from support.servers import servers
from support.state.still_machine import failures_when_still


async def first_failure(open_store: Any, group: str) -> str | None:
    """The first check of the group that fails, and how."""
    checks = [check for check in conformance_checks() if check.group == group]
    assert checks, f"no check is about {group}"
    failed: list[str] = []
    for check in checks:
        try:
            await check(open_store)
        # Nothing else: an error in a faulty backend of ours would prove nothing.
        except* (AssertionError, RxLangGraphError, TimeoutError) as errors:
            failed.append(f"{check}: {errors.exceptions}")
        if failed:
            return failed[0]
    return None


@given("a store in {backend}")
def step_a_store_in_backend(context: Context, backend: str) -> None:
    context.open_store = partial(open_state, servers.fresh_url(context, backend))


@given("a backend of one's own that {fault}")
def step_a_backend_of_ones_own_that_fault(context: Context, fault: str) -> None:
    context.open_store = opener(fault)


@when("it is checked for {group}")
def step_it_is_checked_for_group(context: Context, group: str) -> None:
    context.failure = asyncio.run(first_failure(context.open_store, group))


@then("it keeps the contract")
def step_it_keeps_the_contract(context: Context) -> None:
    assert context.failure is None, context.failure


@when("each check stands still for 3 seconds before each of its first calls in turn")
def step_each_check_stands_still_before_each_of_its_first_calls_in_turn(context: Context) -> None:
    context.failures = failures_when_still()


@then("all of them are passed")
def step_all_of_them_are_passed(context: Context) -> None:
    assert not context.failures, context.failures


@then("the suite says so")
def step_the_suite_says_so(context: Context) -> None:
    assert context.failure is not None, "every check was passed"


@then("there are outlines for exactly these groups")
def step_there_are_outlines_for_exactly_these_groups(context: Context) -> None:
    groups = list(dict.fromkeys(check.group for check in conformance_checks()))
    assert groups == context.text.split(), groups


@when('"python -m {line}" is run')
def step_python_m_line_is_run(context: Context, line: str) -> None:
    context.ended = command.run_python("-m", *line.split())


@then('its status is {status:d}, its last line "{line}"')
def step_its_status_is_status_its_last_line_line(context: Context, status: int, line: str) -> None:
    ended = context.ended
    assert ended.returncode == status, ended
    assert ended.stdout.splitlines()[-1:] == [line], ended
