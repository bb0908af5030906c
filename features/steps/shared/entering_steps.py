"""Code that is entered by a signal handler or a finalizer of its own thread, place by place."""

from __future__ import annotations

from typing import Any

from behave import given, then, when
from behave.runner import Context

from support.agent import agent_memories, agent_states, output_inside
from support.bridge import observer_inside, registry_inside
from support.concurrency.entering import Enterable, Way
from support.controls import plain_locks
from support.live import board_inside
from support.state import actors

ENTERABLES: dict[str, Enterable[Any]] = {
    "a memory": agent_memories.ENTERABLE,
    "a state machine": agent_states.ENTERABLE,
    "an output queue": output_inside.ENTERABLE,
    "a TaskRegistry": registry_inside.ENTERABLE,
    "a serialized observer": observer_inside.ENTERABLE,
    "an actor": actors.ENTERABLE,
    "a live board": board_inside.ENTERABLE,
    "a live board that counts on": board_inside.NAIVE,
    "a set under a plain lock": plain_locks.SET,
    "a state under a plain lock": plain_locks.STATE,
    "a queue under a plain lock": plain_locks.QUEUE,
}


@given("{thing} that its own thread may enter")
def step_thing_that_its_own_thread_may_enter(context: Context, thing: str) -> None:
    context.enterable = ENTERABLES[thing]


@when("a {way} comes in at each place of {inside}, and {does}")
def step_a_way_comes_in_at_each_place_of_inside_and_does(
    context: Context, way: Way, inside: str, does: str
) -> None:
    context.places = context.enterable.enter(way, inside, does)


@then("each time all was as it should be, at more than {count:d} places")
def step_each_time_all_was_as_it_should_be_at_more_than_count_places(
    context: Context, count: int
) -> None:
    assert context.places > count, context.places
