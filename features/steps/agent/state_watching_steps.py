from __future__ import annotations

import gc
from asyncio import CancelledError
from collections.abc import Iterator
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState, StateMachine, Transition
from support.agent.agent_states import KINDS
from support.bridge.bridges import listen
from support.bridge.streams import Subscriber
from support.concurrency.raising import errors_of
from support.concurrency.tasks import in_thread

IDLE, THINKING, RUNNING, FINISHED, ERROR = AgentState


def changes(transitions: Any) -> list[tuple[AgentState, AgentState]]:
    return [(each.before, each.after) for each in transitions]


# -- given -----------------------------------------------------------------------------------------


@given("{kind:StateKind} with an observer")
def step_kind_with_an_observer(context: Context, kind: str) -> None:
    context.machine = KINDS[kind]()
    context.observers = []


@given("{count:d} observers")
def step_count_observers(context: Context, count: int) -> None:
    context.observers = [Subscriber() for _ in range(count)]
    for observer in context.observers:
        observer.subscribe(context.machine.changes)


@given("a state machine with an observer that resets every ERROR, and another behind it")
def step_a_state_machine_with_an_observer_that_resets_every_error(context: Context) -> None:
    machine = context.machine = StateMachine("alice")
    context.observers = [Subscriber(), Subscriber()]

    def reset(transition: Transition) -> None:
        context.observers[0].on_next(transition)
        if transition.after is ERROR:
            machine.reset()

    machine.changes.subscribe(reset)
    context.observers[1].subscribe(machine.changes)


# -- observers -------------------------------------------------------------------------------------


@when("another thread changes the state while the observer is told of a change")
def step_another_thread_changes_the_state_while_the_observer_is(context: Context) -> None:
    machine, told = context.machine, Subscriber()
    context.observers = [told]
    others = iter([lambda: machine.context(THINKING).__enter__()])

    class Observer(Subscriber):
        def on_next(self, value: Any) -> None:
            told._enter(lambda _: [in_thread(other) for other in others], None)
            told.on_next(value)

    Observer().subscribe(machine.changes)
    machine.context(RUNNING).__enter__()


@then("the observer was told of one change after another, in order")
def step_the_observer_was_told_of_one_change_after_another_in_order(context: Context) -> None:
    (told,) = context.observers
    assert not told.overlaps, "entered by two threads at once"
    assert changes(told.items) == [(IDLE, RUNNING), (RUNNING, THINKING)], told.items


@when("another observer, before it, raises")
def step_another_observer_before_it_raises(context: Context) -> None:
    context.records = listen(context, "rxlanggraph")
    context.observers = [Subscriber()]

    def fail(_: Transition) -> None:
        raise LookupError("an observer's own error")

    context.machine.changes.subscribe(fail)
    context.observers[0].subscribe(context.machine.changes)
    context.errors = []
    block = context.machine.context(RUNNING)
    for step in (block.__enter__, lambda: block.__exit__(None, None, None)):
        context.errors += errors_of(step)


@then("a block is entered and left, and the observer is told of both")
def step_a_block_is_entered_and_left_and_the_observer_is_told_of(context: Context) -> None:
    assert not context.errors, context.errors
    assert changes(context.observers[0].items) == [(IDLE, RUNNING), (RUNNING, IDLE)]
    assert context.machine.state is IDLE


@then("the log has its error once, and names the agent")
def step_the_log_has_its_error_once_and_names_the_agent(context: Context) -> None:
    (record,) = context.records
    assert "'alice'" in record.getMessage(), record.getMessage()
    assert isinstance(record.exc_info[1], LookupError), record.exc_info


@then("each observer was told the whole history, in order, one at a time")
def step_each_observer_was_told_the_whole_history_in_order_one_at_a(context: Context) -> None:
    assert not context.errors, context.errors
    for observer in context.observers:
        assert not observer.overlaps and not observer.ends
        assert observer.items == list(context.machine.history())


@when("it fails")
def step_it_fails(context: Context) -> None:
    context.machine.fail(ValueError("an error"))


@then("both were told IDLE > ERROR, ERROR > IDLE")
def step_both_were_told_idle_error_error_idle(context: Context) -> None:
    for observer in context.observers:
        assert changes(observer.items) == [(IDLE, ERROR), (ERROR, IDLE)], observer.items


@when("an observer subscribes between two changes, and disposes while it is told of the third")
def step_an_observer_subscribes_between_two_changes_and_disposes(context: Context) -> None:
    context.told = []

    def tell(transition: Transition) -> None:
        context.told.append(transition)
        if len(context.told) == 2:
            subscription.dispose()

    with context.machine.context(RUNNING):
        subscription = context.machine.changes.subscribe(tell)
        with context.machine.context(THINKING):
            pass


@then("it was told of the second and the third alone")
def step_it_was_told_of_the_second_and_the_third_alone(context: Context) -> None:
    assert len(context.machine.history()) == 4
    assert tuple(context.told) == context.machine.history()[1:3], context.told


class Probe:
    """Called, it has another thread use the machine, once."""

    def __init__(self) -> None:
        self.machine = StateMachine("alice")
        self.called = False

    def __call__(self, *_: object) -> float:
        if not self.called:
            self.called = True
            in_thread(self.use)
        return 1.0

    def use(self) -> None:
        with self.machine.context(THINKING):
            self.machine.history()
            assert self.machine.state in AgentState


class Telling(ValueError):
    """Its text comes of a call."""

    def __str__(self) -> str:
        return str(self.args[0]())


@when("another thread uses it while {who} is called")
def step_another_thread_uses_it_while_who_is_called(context: Context, who: str) -> None:
    probe, error = Probe(), ValueError()
    if who == "the clock":
        probe.machine = StateMachine("alice", clock=probe)
    elif who == "an observer":
        probe.machine.changes.subscribe(probe)
    else:
        error = Telling(probe)

    def change() -> None:
        with probe.machine.context(RUNNING):
            probe.machine.fail(error)
        assert probe.called

    context.errors = errors_of(change)


@when("an observer raises SystemExit as a block is entered")
def step_an_observer_raises_systemexit_as_a_block_is_entered(context: Context) -> None:
    def leave(_: Transition) -> None:
        raise SystemExit(3)

    context.machine.changes.subscribe(leave)
    context.exit = None
    try:
        with context.machine.context(RUNNING):
            raise AssertionError("the block was entered")
    except SystemExit as leaving:
        context.exit = leaving


@when("an observer before it raises {name:w} in {thread}")
def step_an_observer_before_it_raises_name_in_thread(
    context: Context, name: str, thread: str
) -> None:
    context.records = listen(context, "rxlanggraph")
    context.observers = [Subscriber()]

    def fail(_: Transition) -> None:
        raise {"CancelledError": CancelledError, "SystemExit": SystemExit}[name]

    context.machine.changes.subscribe(fail)
    context.observers[0].subscribe(context.machine.changes)

    def enter_and_leave() -> list[BaseException]:
        try:
            with context.machine.context(RUNNING):
                pass
        except BaseException as error:
            return [error]
        return []

    context.errors = (in_thread if thread == "another thread" else lambda fn: fn())(enter_and_leave)


@then(
    "the block is entered and left, the other observer receives both changes, "
    "and the error is logged once"
)
def step_the_block_is_entered_and_left_the_other_observer_receives(context: Context) -> None:
    assert not context.errors, context.errors
    assert changes(context.observers[0].items) == [(IDLE, RUNNING), (RUNNING, IDLE)]
    (record,) = context.records
    assert "'alice'" in record.getMessage(), record.getMessage()


@then("SystemExit arrives there, and it is as before")
def step_systemexit_arrives_there_and_it_is_as_before(context: Context) -> None:
    assert context.exit is not None
    assert context.machine.state is IDLE
    assert context.machine._open == []


# -- interruptions ---------------------------------------------------------------------------------


@when("a generator is dropped inside a block")
def step_a_generator_is_dropped_inside_a_block(context: Context) -> None:
    def generate() -> Iterator[AgentState]:
        with context.machine.context(RUNNING):
            yield context.machine.state

    assert next(generate()) is RUNNING
    gc.collect()
