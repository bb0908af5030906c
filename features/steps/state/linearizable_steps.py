from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import combinations
from typing import Any

from behave import given, then, when
from behave.runner import Context

from support.linearizability import history_runs, linear_trials
from support.linearizability.linear_models import count, model_of
from support.linearizability.linearizability import Operation, keys_not_linearizable, linearization
from support.servers.postgres_server import Server as PostgresServer
from support.servers.valkey_server import KEPT, LocalValkey

KEYS = {"register": "register 1", "counter": "counter 1"}
ACTS: dict[str, tuple[Any, ...]] = {
    "increment a counter": ("counter 1", "increment_counter", 1),
    "compare and set a value": ("register 1", "compare_and_set", "mine", 0),
}


def overlap(one: Operation, other: Operation) -> bool:
    return one.called < other.answered and other.called < one.answered


# -- the checker -----------------------------------------------------------------------------------


@given("the history of a {kind}, {which}")
def step_the_history_of_a_kind_which(context: Context, kind: str, which: str) -> None:
    context.history = linear_trials.written(KEYS[kind], context.text)


@then("it is linearizable")
def step_it_is_linearizable(context: Context) -> None:
    assert not keys_not_linearizable(context.history, model_of)


@then("it is not linearizable")
def step_it_is_not_linearizable(context: Context) -> None:
    assert keys_not_linearizable(context.history, model_of)


@when("{number:d} short histories are made up by chance, and looked at in both ways")
def step_number_short_histories_are_made_up_by_chance_and_looked_at(
    context: Context, number: int
) -> None:
    context.verdicts = [
        (
            linearization(history, 0, count) is not None,
            linear_trials.by_trying_all_orders(history, 0, count),
            history,
        )
        for history in linear_trials.made_up(number, seed=1993)
    ]


@then("both ways say the same of each")
def step_both_ways_say_the_same_of_each(context: Context) -> None:
    differing = [history for one, other, history in context.verdicts if one != other]
    assert not differing, differing[0]


@then("there are more than {number:d} of either kind")
def step_there_are_more_than_number_of_either_kind(context: Context, number: int) -> None:
    accepted = sum(verdict for verdict, _, _ in context.verdicts)
    assert number < accepted < len(context.verdicts) - number, accepted


# -- the stores ------------------------------------------------------------------------------------


@given("a Valkey server that can be killed")
def step_a_valkey_server_that_can_be_killed(context: Context) -> None:
    server = LocalValkey(**KEPT)
    context.add_cleanup(server.close)
    server.start()
    context.url, context.kill, context.start = server.url, server.kill, server.start
    context.server = server


@given("a PostgreSQL server that can be killed")
def step_a_postgresql_server_that_can_be_killed(context: Context) -> None:
    server = PostgresServer()
    context.add_cleanup(server.remove)
    context.add_cleanup(server.stop)
    server.start()
    context.url, context.kill, context.start = server.fresh_url(), server.crash, server.start


@when("{clients:d} clients in threads make 2 times {operations:d} operations each")
def step_clients_clients_in_threads_make_2_times_operations(
    context: Context, clients: int, operations: int
) -> None:
    context.history = history_runs.by_threads(context.url, clients, operations)


@when("{clients:d} clients in processes make 2 times {operations:d} operations each")
def step_clients_clients_in_processes_make_2_times_operations(
    context: Context, clients: int, operations: int
) -> None:
    context.history = history_runs.by_processes(context.url, clients, operations)


@when(
    "{clients:d} clients in processes make 2 times {operations:d} operations each, and in between "
    "the server is killed and started again"
)
def step_clients_clients_in_processes_make_2_times_operations_operations(
    context: Context, clients: int, operations: int
) -> None:
    def event(_: object) -> None:
        context.kill()
        context.start()

    context.history = history_runs.by_processes(context.url, clients, operations, event)


@when(
    "{clients:d} clients in processes make 2 times {operations:d} operations each, and in between "
    "the server says nothing until each of them has given up"
)
def step_clients_clients_in_processes_make_2_times_operations_operations_each(
    context: Context, clients: int, operations: int
) -> None:
    def event(hear: Callable[[str], None]) -> None:
        context.server.pause()
        hear("unanswered")
        context.server.resume()

    url = f"{context.url}?socket_timeout=0.2"
    context.history = history_runs.by_processes(url, clients, operations, event)


@when("{clients:d} clients of {way}, at the same moment, {act}")
def step_clients_clients_of_way_at_the_same_moment_act(
    context: Context, clients: int, way: str, act: str
) -> None:
    context.history = asyncio.run(
        history_runs.at_the_same_moment(context.url, way, clients, *ACTS[act])
    )


@then("the history of each key is linearizable")
def step_the_history_of_each_key_is_linearizable(context: Context) -> None:
    wrong = keys_not_linearizable(context.history, model_of)
    assert not wrong, wrong


@then("it has operations at the same time, and some in doubt")
def step_it_has_operations_at_the_same_time_and_some_in_doubt(context: Context) -> None:
    history: list[Operation] = context.history
    assert any(operation.in_doubt for operation in history)
    together = sum(
        overlap(one, other)
        for one, other in combinations(history, 2)
        if one.key == other.key and not one.in_doubt and not other.in_doubt
    )
    assert together > 20, together
