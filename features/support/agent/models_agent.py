"""Small concurrent programs over the parts of an agent, and their controls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from rxlanggraph.agent.agent import BaseAgent
from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.agent.listeners import AgentListeners
from rxlanggraph.agent.output.queue import OutputQueue
from rxlanggraph.agent.run import AgentRun
from rxlanggraph.agent.run_lock import RunLock
from rxlanggraph.agent.state_machine import AgentState, StateMachine
from rxlanggraph.concurrency.waiters import Waiter
from rxlanggraph.errors import AgentBusyError, AgentError, OutputEndedError
from rxlanggraph.hooks import AgentEnded, Hooks
from support.bridge.models import Model, together
from support.concurrency.explored import aside
from support.controls import naive_models

__all__ = ["CONTROLS", "MODELS"]


def on_a_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """``main`` on a loop of its own, in the thread that calls."""

    def run() -> None:
        asyncio.new_event_loop().run_until_complete(main())

    return run


# -- one run at a time -----------------------------------------------------------------------------


def entering() -> None:
    check_entering(RunLock(AgentBusyError))


def naive_entering() -> None:
    check_entering(naive_models.Guard())


def check_entering(guard: Any) -> None:
    inside: list[int] = []
    entered: list[int] = []

    async def enter() -> None:
        with contextlib.suppress(RuntimeError):  # the control is busy
            async with guard.entered("enqueue"):
                inside.append(1)
                entered.append(len(inside))
                await asyncio.sleep(0)
                inside.pop()

    together(on_a_loop(enter), on_a_loop(enter))
    assert set(entered) == {1}, f"{max(entered)} were in at once"


def handing_over() -> None:
    lock = RunLock(AgentBusyError)

    async def take() -> list[Waiter]:
        holder, following = Waiter(), Waiter()
        assert lock._take(holder, wait=False)
        lock._take(following, wait=True)
        return [holder, following]

    with aside():
        holder, _ = asyncio.new_event_loop().run_until_complete(take())
    check_handing_over(lock, lambda: lock._leave(holder))


def naive_handing_over() -> None:
    lock = naive_models.Passed("holder", "following")
    check_handing_over(lock, lock.hand_over)


def check_handing_over(lock: Any, hand_over: Callable[[], object]) -> None:
    seen: list[bool] = []
    together(hand_over, lambda: seen.extend(lock.held for _ in range(3)))
    assert all(seen), "it was free for a moment"


# -- hooks -----------------------------------------------------------------------------------------


class Told(Hooks):
    """Counts the ends that it is told of."""

    count = 0

    def on_agent_ended(self, event: AgentEnded) -> None:
        self.count += 1


def telling_of_the_end() -> None:
    told, listeners = Told(), AgentListeners()
    listeners.add(told)
    observed = listeners.observed("model", None)
    assert observed is not None
    observed.started()
    check_telling(observed, lambda: told.count)


def naive_telling_of_the_end() -> None:
    telling = naive_models.Telling()
    check_telling(telling, lambda: telling.told)


def check_telling(observed: Any, count: Callable[[], int]) -> None:
    """By the run itself, as its loop was closed, and by the run that takes its place."""
    together(*[lambda: observed.ended(None)] * 2)
    assert count() == 1, f"told {count()} times"


class Putting(BaseAgent):
    """An agent that puts out one item in each run."""

    async def step(self) -> str:
        self.output_queue.put_nowait("item")
        return "answer"


def taking_over() -> None:
    """The collector ends a run whose loop was closed, while the next one begins."""
    with aside():
        agent = Putting("model")
        before = AgentRun(agent, None)
        agent._active.append(before)
        before.number = agent.output_queue.begin()
    answers: list[Any] = []

    async def run() -> None:
        answers.append(await agent._run(AgentRun(agent, None), reset=False))

    together(lambda: agent._end_run(before, succeeded=False), on_a_loop(run))
    assert answers == ["answer"], answers
    assert not agent._active
    assert before.over
    assert agent.state is AgentState.IDLE, agent.state
    assert repr(agent.output_queue) == "<OutputQueue: 1 items, run 2 ended>", agent.output_queue
    assert not agent.output_queue._reservations._failed, "the next run was ended"


def naive_taking_over() -> None:
    runs = naive_models.Succeeded("before")
    together(lambda: runs.end("before"), lambda: runs.begin("next"))
    assert runs.active == "next" and not runs.ended, "the next run was ended"


# -- memory ----------------------------------------------------------------------------------------


def remembering() -> None:
    memory = Memory()

    def take_turn() -> None:
        with memory.turn():
            memory.add("call")
            memory.add("result")

    check_remembering(take_turn, memory.add, memory.get_messages)


def naive_remembering() -> None:
    memory = naive_models.Conversation()

    def take_turn() -> None:
        memory.add("call")
        memory.add("result")

    check_remembering(take_turn, memory.add, memory.get_messages)


def check_remembering(
    take_turn: Callable[[], object], add: Callable[[Any], object], messages: Callable[[], Any]
) -> None:
    seen: list[list[Any]] = []

    def interrupt_and_look() -> None:
        add("other")
        seen.append(contents(messages()))

    together(take_turn, interrupt_and_look)
    for each in (*seen, contents(messages())):
        turn = "".join(text[0] for text in each if text != "other")
        assert turn in ("", "cr"), f"half a turn was seen: {each}"
        assert each.index("other") in (0, len(each) - 1), f"the turn was split: {each}"


def contents(messages: Any) -> list[str]:
    return [getattr(each, "content", each) for each in messages]


# -- state -----------------------------------------------------------------------------------------


def overlapping() -> None:
    machine = StateMachine("model")

    def be(state: AgentState) -> Callable[[], None]:
        def run() -> None:
            with machine.context(state):
                assert machine.state is not AgentState.IDLE

        return run

    together(be(AgentState.RUNNING), be(AgentState.THINKING))
    assert machine.state is AgentState.IDLE, machine.state
    history = machine.history()
    pairs = itertools.pairwise(history)
    assert all(one.after is other.before for one, other in pairs), history


def naive_overlapping() -> None:
    agent = naive_models.Stateful()

    def be(state: str) -> Callable[[], None]:
        return lambda: agent.run_in(state)

    together(be("RUNNING"), be("THINKING"))
    assert agent.state == "IDLE", f"no block is open, and it is {agent.state}"


# -- output ----------------------------------------------------------------------------------------


def ending() -> None:
    queue: OutputQueue[int] = OutputQueue(fairness_timeout=0)
    check_ending(queue, OutputEndedError)


def naive_ending() -> None:
    check_ending(naive_models.Output(), RuntimeError)


def check_ending(queue: Any, ended: type[Exception]) -> None:
    got: list[int] = []
    queue.begin()

    async def consume() -> None:
        while True:
            try:
                got.append(await queue.get())
            except ended:
                return

    def produce() -> None:
        queue.put_nowait(1)
        queue.end()

    together(on_a_loop(consume), produce)
    assert got == [1], f"an item was lost: {got}"


# -- what a run has left behind --------------------------------------------------------------------


class Over:
    """A run, of which only that is known."""

    over = False

    def refuse(self) -> None:
        if self.over:
            raise AgentError("the run is over")


def leftover_putting() -> None:
    run = Over()
    queue: OutputQueue[str] = OutputQueue(fairness_timeout=0, direct=run.refuse)
    check_putting(run, queue, lambda: queue.put_nowait("late"))


def naive_leftover_putting() -> None:
    run, queue = Over(), naive_models.Output()

    def put() -> None:
        run.refuse()
        queue.put_nowait("late")

    check_putting(run, queue, put)


def check_putting(run: Over, queue: Any, put: Callable[[], object]) -> None:
    left: list[int] = []

    def put_late() -> None:
        with contextlib.suppress(AgentError):
            put()

    def end_and_begin() -> None:
        run.over = True
        queue.abort()
        queue.begin()
        left.append(queue.qsize())

    queue.begin()
    together(put_late, end_and_begin)
    assert left == [0] and not queue.qsize(), "it is in the next run's output"


def leftover_entering() -> None:
    run, machine = Over(), StateMachine("model")

    def enter() -> None:
        with contextlib.suppress(AgentError):
            machine.context(AgentState.THINKING, run).__enter__()

    def end() -> None:
        run.over = True
        machine.abandon(run)

    together(enter, end)
    assert machine.state is AgentState.IDLE, machine.state


MODELS: dict[str, Model] = {
    "an agent's lock that is handed over": (
        handing_over,
        ("agent/run_lock", "concurrency/waiters"),
        2,
    ),
    "a run of an agent that is ended by the next": (taking_over, ("agent/agent",), 1),
    "the end of an agent's run, in two threads": (
        telling_of_the_end,
        ("agent/listeners", "bridge/hook_calls"),
        2,
    ),
    "two runs of an agent that enqueue": (entering, ("agent/run_lock", "concurrency/waiters"), 2),
    "a turn, a message and a look": (remembering, ("agent/conversation/memory",), 1),
    "two states that overlap": (overlapping, ("agent/state_machine",), 1),
    "putting, getting and the end of a run": (
        ending,
        ("agent/output/queue", "concurrency/waiters"),
        2,
    ),
    "putting late and the end of a run": (
        leftover_putting,
        ("agent/output/queue", "agent/output/reservations"),
        1,
    ),
    "entering a state late and the end of a run": (leftover_entering, ("agent/state_machine",), 1),
}
CONTROLS: dict[str, Model] = {
    "a lock that is freed, then taken": (naive_handing_over, (), 1),
    "a run that is compared, then ended": (naive_taking_over, (), 1),
    "a flag that says that it was told": (naive_telling_of_the_end, (), 1),
    "a guard that is looked at, then taken": (naive_entering, (), 2),
    "a turn that is written as it comes": (naive_remembering, (), 1),
    "a state that is saved and put back": (naive_overlapping, (), 2),
    "an end that is a flag": (naive_ending, (), 1),
    "a look at the end, then a put": (naive_leftover_putting, (), 1),
}
