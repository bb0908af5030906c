from __future__ import annotations

import asyncio
import enum
import itertools
import sys
from collections.abc import Callable
from typing import Any

from behave import given, register_type, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState, StateMachine, Transition
from rxlanggraph.agent.state_machine import LEGAL_TRANSITIONS
from rxlanggraph.errors import IllegalTransitionError, InvalidTypeError, UsageError
from support.agent.agent_states import KINDS, check_chain, nest, storm, turns
from support.concurrency.raising import error_of, errors_of
from support.concurrency.tasks import run
from support.step_types import one_of

IDLE, THINKING, RUNNING, FINISHED, ERROR = AgentState
EVERYTHING = 1_000_000


register_type(StateKind=one_of(KINDS))


def clock_of(times: str) -> Callable[[], float]:
    """A clock that says each of ``times``, and the last one forever."""
    numbers = [float(time) for time in times.split(",")]
    return itertools.chain(numbers, itertools.repeat(numbers[-1])).__next__


# -- given -----------------------------------------------------------------------------------------


@given("{kind:StateKind}")
def step_kind(context: Context, kind: str) -> None:
    context.machine = KINDS[kind]()


@given("a state machine that remembers everything")
def step_a_state_machine_that_remembers_everything(context: Context) -> None:
    context.machine = StateMachine("alice", history=EVERYTHING)


@given("a state machine in {state}")
def step_a_state_machine_in_state(context: Context, state: str) -> None:
    context.machine = machine_in(AgentState[state])


def machine_in(state: AgentState) -> StateMachine:
    machine = StateMachine("alice")
    if state is FINISHED:
        machine.context(RUNNING).__enter__()
    if state is not IDLE:
        machine.context(state).__enter__()
    assert machine.state is state
    return machine


@given("a state machine with a history of {count:d} and a clock that says {times}")
def step_a_state_machine_with_a_history_of_count_and_a_clock_that(
    context: Context, count: int, times: str
) -> None:
    context.machine = StateMachine("alice", history=count, clock=clock_of(times))


# -- several at once -------------------------------------------------------------------------------


@when("blocks come and go")
def step_blocks_come_and_go(context: Context) -> None:
    machine, blocks = context.machine, {}
    context.seen = []
    for name, does in context.table.rows:
        if does.startswith("enters"):
            blocks[name] = machine.context(AgentState[does.split()[1]])
            blocks[name].__enter__()
        elif does == "reset":
            machine.reset()
        else:
            error = ValueError(f"of {name}") if does == "leaves by error" else None
            blocks[name].__exit__(type(error) if error else None, error, None)
        context.seen.append(machine.state.name)


@then("it was {states} and at last {last}")
def step_it_was_states_and_at_last_last(context: Context, states: str, last: str) -> None:
    assert context.seen == [*states.split(", "), last], context.seen


@when("one task nests RUNNING > THINKING, and another THINKING > RUNNING, and both are inside")
def step_one_task_nests_running_thinking_and_another_thinking(context: Context) -> None:
    context.finished = run(nest_both(context.machine))


async def nest_both(machine: Any) -> list[bool]:
    inside = asyncio.Barrier(2)
    tasks = [
        asyncio.create_task(nest(machine, *order, inside))
        for order in ((RUNNING, THINKING), (THINKING, RUNNING))
    ]
    # Nothing else is on this loop: who has not finished after so many turns waits forever.
    for turn in turns():
        await turn
    finished = [task.done() for task in tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return finished


@then("both finish")
def step_both_finish(context: Context) -> None:
    assert context.finished == [True, True], "each waits for the other"


@then("it is as before")
def step_it_is_as_before(context: Context) -> None:
    assert context.machine.state is IDLE, context.machine.state
    assert context.machine._open == []


@when("{threads:d} threads with {tasks:d} tasks each enter and leave {blocks:d} blocks")
def step_threads_threads_with_tasks_tasks_each_enter_and_leave(
    context: Context, threads: int, tasks: int, blocks: int
) -> None:
    context.errors = errors_of(lambda: storm(context.machine, threads, tasks, blocks))


@then("each transition begins where the one before it ended, at no earlier time")
def step_each_transition_begins_where_the_one_before_it_ended_at_no(context: Context) -> None:
    check_chain(context.machine.history())
    assert len(context.machine.history()) > 100
    assert context.machine.history()[-1].after is IDLE


@when("all interleavings of {what} are searched")
def step_all_interleavings_of_what_are_searched(context: Context, what: str) -> None:
    if sys.version_info < (3, 12):
        context.scenario.skip("interleave-test needs the sys.monitoring of Python 3.12")
        return
    from support.agent.agent_models import MODELS
    from support.concurrency.explored import search

    model, modules, preemptions = MODELS[what]
    context.verdict = search(model, modules, preemptions=preemptions)


# -- errors ----------------------------------------------------------------------------------------


LEAVING: dict[str, type[BaseException]] = {
    "ValueError": ValueError,
    "TimeoutError": TimeoutError,
    "CancelledError": asyncio.CancelledError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
}


@when("{error:w} leaves a block, with and async with")
def step_error_leaves_a_block_with_and_async_with(context: Context, error: str) -> None:
    kind = LEAVING[error]
    machines = context.machines = [context.machine, StateMachine("bob")]
    try:
        with machines[0].context(RUNNING):
            raise kind("the reason")
    except kind:
        pass

    async def block() -> None:
        async with machines[1].context(RUNNING):
            raise kind("the reason")

    # Driven by hand, since a loop has its own way with some of these.
    try:
        block().send(None)
    except kind:
        return
    raise AssertionError("nothing left the block")


@then("each time it is {state} afterwards, and says why if it is ERROR")
def step_each_time_it_is_state_afterwards_and_says_why_if_it_is(
    context: Context, state: str
) -> None:
    for machine in context.machines:
        last = machine.history()[-1]
        assert machine.state is last.after is AgentState[state], last
        assert ("the reason" in (last.cause or "")) == (state == "ERROR"), last


@when("a task is cancelled in a block")
def step_a_task_is_cancelled_in_a_block(context: Context) -> None:
    async def block() -> None:
        async with context.machine.context(RUNNING):
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        assert context.machine.state is RUNNING
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run(main())


@then("the only cause in its history is that of the first error")
def step_the_only_cause_in_its_history_is_that_of_the_first_error(context: Context) -> None:
    causes = [each.cause for each in context.machine.history() if each.cause]
    assert causes == ["ValueError: of two"], causes


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def untellable() -> Exception:
    """One that the traceback module cannot format."""
    error = SyntaxError("wrong")
    error.text = 5  # type: ignore[assignment]
    return error


@when("an exception {that} leaves a block")
def step_an_exception_that_leaves_a_block(context: Context, that: str) -> None:
    errors = {"whose text raises": Unprintable, "that cannot be told": untellable}
    leave_by(context.machine, errors[that]())


def leave_by(machine: StateMachine, error: Exception) -> None:
    def block() -> None:
        with machine.context(RUNNING):
            raise error

    assert error_of(block) is error
    assert machine._open == []


@when("it fails with a text, with a first and with a second exception")
def step_it_fails_with_a_text_with_a_first_and_with_a_second(context: Context) -> None:
    context.error = error_of(lambda: context.machine.fail("text"))
    context.machine.fail(ValueError("first"))
    context.machine.fail(ValueError("second"))


@then("the text is refused, and it is in ERROR because of the first")
def step_the_text_is_refused_and_it_is_in_error_because_of_the(context: Context) -> None:
    assert isinstance(context.error, InvalidTypeError), repr(context.error)
    (failed,) = context.machine.history()
    assert (failed.after, failed.cause) == (ERROR, "ValueError: first"), failed


@then('it is in ERROR, because of "{cause}"')
def step_it_is_in_error_because_of_cause(context: Context, cause: str) -> None:
    assert context.machine.state is ERROR
    assert cause in (context.machine.history()[-1].cause or "")


# -- what is refused -------------------------------------------------------------------------------


@when("a block is to enter {state}")
def step_a_block_is_to_enter_state(context: Context, state: str) -> None:
    context.before = (context.machine.state, context.machine.history())
    try:
        context.machine.context(AgentState[state]).__enter__()
    except IllegalTransitionError as error:
        context.error = error
        return
    raise AssertionError("it was let in")


@then("IllegalTransitionError names the agent, {where}, {state} and what is legal")
def step_illegaltransitionerror_names_the_agent_where_state_and(
    context: Context, where: str, state: str
) -> None:
    text = str(context.error)
    assert f"'alice' cannot go from {where} to {state}" in text, text
    legal = [each.name for each in AgentState if each in LEGAL_TRANSITIONS[AgentState[where]]]
    assert f"may enter {' or '.join(legal)};" in text, text
    assert isinstance(context.error, RuntimeError)


@then("nothing has changed")
def step_nothing_has_changed(context: Context) -> None:
    assert (context.machine.state, context.machine.history()) == context.before


@then("a block enters exactly what LEGAL_TRANSITIONS says, from each state that can be had")
def step_a_block_enters_exactly_what_legal_transitions_says_from(context: Context) -> None:
    assert set(LEGAL_TRANSITIONS) == set(AgentState)
    for before, after in itertools.product((IDLE, THINKING, RUNNING, FINISHED), AgentState):
        machine = machine_in(before)
        try:
            machine.context(after).__enter__()
        except IllegalTransitionError:
            assert after not in LEGAL_TRANSITIONS[before] and machine.state is before, (
                before,
                after,
            )
        else:
            assert after in LEGAL_TRANSITIONS[before] and machine.state is after, (before, after)
    machine = machine_in(RUNNING)
    machine.fail(ValueError())
    for after in LEGAL_TRANSITIONS[RUNNING]:
        with machine.context(after):
            assert machine.state is ERROR and not LEGAL_TRANSITIONS[ERROR]


class Other(enum.Enum):
    RUNNING = "RUNNING"


NO_STATES = {
    "'RUNNING'": "RUNNING",
    "None": None,
    "1": 1,
    "the RUNNING of another enum": Other.RUNNING,
}


@when("a context is made for {thing}")
def step_a_context_is_made_for_thing(context: Context, thing: str) -> None:
    context.error = error_of(lambda: context.machine.context(NO_STATES[thing]))


@when("a state machine is made with a history of {number}")
def step_a_state_machine_is_made_with_a_history_of_number(context: Context, number: str) -> None:
    value = {"-1": -1, "1.5": 1.5, "True": True, "None": None}[number]
    context.error = error_of(lambda: StateMachine("alice", history=value))  # type: ignore[arg-type]


@when("one context is entered twice")
def step_one_context_is_entered_twice(context: Context) -> None:
    context.block = context.machine.context(RUNNING)
    context.block.__enter__()
    context.error = error_of(context.block.__enter__)


@then("the second time is a UsageError, and the first block goes on")
def step_the_second_time_is_a_usageerror_and_the_first_block_goes(context: Context) -> None:
    assert isinstance(context.error, UsageError), repr(context.error)
    assert "'alice'" in str(context.error)
    assert context.machine.state is RUNNING
    context.block.__exit__(None, None, None)
    assert context.machine.state is IDLE


@when("one context is entered, left and entered again")
def step_one_context_is_entered_left_and_entered_again(context: Context) -> None:
    block = context.machine.context(RUNNING)
    context.seen = []
    for _ in range(2):
        with block:
            context.seen.append(context.machine.state)
        context.seen.append(context.machine.state)


@then("it is RUNNING in each block, and IDLE after each")
def step_it_is_running_in_each_block_and_idle_after_each(context: Context) -> None:
    assert context.seen == [RUNNING, IDLE, RUNNING, IDLE], context.seen


# -- history ---------------------------------------------------------------------------------------


@when("two blocks of RUNNING come and go")
def step_two_blocks_of_running_come_and_go(context: Context) -> None:
    for _ in range(2):
        with context.machine.context(RUNNING):
            pass


@then("its history is")
def step_its_history_is(context: Context) -> None:
    expected = [
        Transition(AgentState[row["before"]], AgentState[row["after"]], float(row["at"]))
        for row in context.table
    ]
    assert list(context.machine.history()) == expected, context.machine.history()
