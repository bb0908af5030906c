from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState, StateMachine, Transition
from support import agent_naive, naive
from support.agent_states import FILES, KINDS, OPERATIONS, Known
from support.bridges import listen
from support.entering import enter_everywhere
from support.raising import errors_of
from support.streams import Subscriber
from support.tasks import in_thread

IDLE, THINKING, RUNNING, FINISHED, ERROR = AgentState


def changes(transitions: Any) -> list[tuple[AgentState, AgentState]]:
    return [(each.before, each.after) for each in transitions]


# -- given -----------------------------------------------------------------------------------------


@given("{kind:StateKind} with an observer")
def step_impl(context: Context, kind: str) -> None:
    context.machine = KINDS[kind]()
    context.observers = []


@given("{count:d} observers")
def step_impl(context: Context, count: int) -> None:
    context.observers = [Subscriber() for _ in range(count)]
    for observer in context.observers:
        observer.subscribe(context.machine.changes)


@given("a state machine with an observer that resets every ERROR, and another behind it")
def step_impl(context: Context) -> None:
    machine = context.machine = StateMachine("alice")
    context.observers = [Subscriber(), Subscriber()]

    def reset(transition: Transition) -> None:
        context.observers[0].on_next(transition)
        if transition.after is ERROR:
            machine.reset()

    machine.changes.subscribe(reset)
    context.observers[1].subscribe(machine.changes)


@given("a state machine about which everything is known")
def step_impl(context: Context) -> None:
    context.make = Known


# -- observers -------------------------------------------------------------------------------------


@when("another thread changes the state while the observer is told of a change")
def step_impl(context: Context) -> None:
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
def step_impl(context: Context) -> None:
    (told,) = context.observers
    assert not told.overlaps, "entered by two threads at once"
    assert changes(told.items) == [(IDLE, RUNNING), (RUNNING, THINKING)], told.items


@when("another observer, before it, raises")
def step_impl(context: Context) -> None:
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
def step_impl(context: Context) -> None:
    assert not context.errors, context.errors
    assert changes(context.observers[0].items) == [(IDLE, RUNNING), (RUNNING, IDLE)]
    assert context.machine.state is IDLE


@then("the log has its error once, and names the agent")
def step_impl(context: Context) -> None:
    (record,) = context.records
    assert "'alice'" in record.getMessage(), record.getMessage()
    assert isinstance(record.exc_info[1], LookupError), record.exc_info


@then("each observer was told the whole history, in order, one at a time")
def step_impl(context: Context) -> None:
    assert not context.errors, context.errors
    for observer in context.observers:
        assert not observer.overlaps and not observer.ends
        assert observer.items == list(context.machine.history())


@when("it fails")
def step_impl(context: Context) -> None:
    context.machine.fail(ValueError("an error"))


@then("both were told IDLE > ERROR, ERROR > IDLE")
def step_impl(context: Context) -> None:
    for observer in context.observers:
        assert changes(observer.items) == [(IDLE, ERROR), (ERROR, IDLE)], observer.items


@when("an observer subscribes between two changes, and disposes while it is told of the third")
def step_impl(context: Context) -> None:
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
def step_impl(context: Context) -> None:
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
def step_impl(context: Context, who: str) -> None:
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
def step_impl(context: Context) -> None:
    def leave(_: Transition) -> None:
        raise SystemExit(3)

    context.machine.changes.subscribe(leave)
    context.exit = None
    try:
        with context.machine.context(RUNNING):
            raise AssertionError("the block was entered")
    except SystemExit as leaving:
        context.exit = leaving


@then("SystemExit arrives there, and it is as before")
def step_impl(context: Context) -> None:
    assert context.exit is not None
    assert context.machine.state is IDLE
    assert context.machine._open == []


# -- interruptions ---------------------------------------------------------------------------------


@when("a {way} comes in at each place of {inside}, and changes and watches the state")
def step_impl(context: Context, way: Any, inside: str) -> None:
    context.places = enter_everywhere(
        FILES,
        way,
        make=context.make,
        operation=OPERATIONS[inside],
        entry=Known.use_everything,
        check=Known.check,
    )


@then("each time the state was right, and its history without a gap")
def step_impl(context: Context) -> None:
    assert context.places > 5, context.places


@when("a signal handler changes it, at each place of changing it")
def step_impl(context: Context) -> None:
    def change(machine: Any) -> None:
        with machine.context(RUNNING):
            pass

    context.failure = None
    try:
        enter_everywhere(
            {agent_naive.__file__, naive.__file__},
            "signal handler",
            make=type(context.machine),
            operation=change,
            entry=change,
            check=lambda _: None,
        )
    except AssertionError as failure:
        context.failure = failure


@when("a generator is dropped inside a block")
def step_impl(context: Context) -> None:
    def generate() -> Iterator[AgentState]:
        with context.machine.context(RUNNING):
            yield context.machine.state

    assert next(generate()) is RUNNING
    gc.collect()
