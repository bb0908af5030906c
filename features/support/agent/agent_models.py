"""Small concurrent programs over the state and the memory of an agent, and their controls.

As in models.py: each is run once for every interleaving that a search tries.
"""

from __future__ import annotations

import threading

from reactivex import Observer

from rxlanggraph import errors
from rxlanggraph.agent import AgentState, Memory, Message, StateMachine, Transition
from support.agent.agent_states import check_chain
from support.bridge.models import Model, together
from support.concurrency.explored import aside
from support.controls import agent_naive

__all__ = ["MODELS"]

IDLE, THINKING, RUNNING, FINISHED, ERROR = AgentState


def new_machine() -> StateMachine:
    with aside():
        return StateMachine("explored", clock=lambda: 0.0)


# -- the state -------------------------------------------------------------------------------------


def entering() -> None:
    machine = new_machine()

    def be_in(state: AgentState) -> None:
        with machine.context(state):
            assert machine.state in (RUNNING, THINKING)

    together(lambda: be_in(RUNNING), lambda: be_in(THINKING))
    assert machine.state is IDLE, f"left in {machine.state}"
    check_chain(machine.history())


def saved_entering() -> None:
    machine = agent_naive.SavedState()

    def be_in(state: AgentState) -> None:
        with machine.context(state):
            pass

    together(lambda: be_in(RUNNING), lambda: be_in(THINKING))
    assert machine.state is IDLE, f"left in {machine.state}"


def failing() -> None:
    machine = new_machine()
    with aside():
        block = machine.context(RUNNING)
        block.__enter__()

    def fail_and_reset() -> None:
        machine.fail(ValueError())
        machine.reset()

    together(fail_and_reset, lambda: block.__exit__(None, None, None))
    assert machine.state is IDLE, machine.state
    check_chain(machine.history())


def watching() -> None:
    machine = new_machine()
    told: list[Transition] = []
    inside = threading.Lock()

    def tell(transition: Transition) -> None:
        assert inside.acquire(blocking=False), "told by two at once"
        told.append(transition)
        inside.release()

    with aside():  # not by subscribe(): it asks for the current thread, which is a modelled one
        machine._changes._subscribe(Observer(tell))
    together(lambda: machine.fail(ValueError()), machine.reset)
    assert told == list(machine.history()), (told, machine.history())


# -- the memory ------------------------------------------------------------------------------------


def message(text: str) -> Message:
    return Message("user", text, id=text)


def texts(memory: Memory) -> str:
    return "".join(str(each.content) for each in memory.get_messages())


def committing() -> None:
    with aside():
        memory = Memory()
        turn = memory.turn()
        turn.add_all([message("b"), message("c")])
    seen: list[str] = []

    def look_and_add() -> None:
        seen.append(texts(memory))
        memory.add(message("a"))

    together(turn.commit, look_and_add)
    assert seen[0] in ("", "bc"), seen
    assert texts(memory) in ("abc", "bca"), texts(memory)


def ending() -> None:
    with aside():
        memory = Memory()
        turn = memory.turn()
        turn.add(message("a"))
    refused: list[str] = []

    def commit() -> None:
        try:
            turn.commit()
        except errors.AgentError:
            refused.append("commit")

    together(commit, turn.discard)
    assert texts(memory) == ("" if refused else "a"), (texts(memory), refused)


def trimming() -> None:
    with aside():
        memory = Memory(max_messages=2)
        memory.load([message(text) for text in "abc"])
    together(memory.get_messages, lambda: memory.add_all([message("d"), message("e")]))
    assert texts(memory) == "de", texts(memory)


def trimming_twice() -> None:
    with aside():
        memory = Memory(max_messages=2)
        memory.load([message(text) for text in "abc"])

    def trim_and_add() -> None:
        memory.get_messages()
        memory.add(message("d"))

    together(memory.get_messages, trim_and_add)
    assert texts(memory) == "cd", texts(memory)


def clearing() -> None:
    with aside():
        memory = Memory(max_messages=2)
        memory.load([message(text) for text in "abc"])
    together(memory.get_messages, memory.clear)
    assert texts(memory) == "", f"{texts(memory)} came back"


def cutting() -> None:
    memory = agent_naive.CutMemory("abc")
    together(memory.trim, lambda: memory.add("d"))
    assert memory.messages[-1] == "d", "a message was lost"


STATES = ("agent/state_machine", "rx/serialized_subject", "rx/serialized_observer")
MEMORY = ("agent/conversation/memory",)
# An absolute path, since it is not in the package.
NAIVE = (agent_naive.__file__.removesuffix(".py"),)
MODELS: dict[str, Model] = {
    "entering and leaving a state": (entering, STATES, 1),
    "failing, resetting and leaving a state": (failing, STATES, 1),
    "changing a state and watching it": (watching, STATES, 1),
    "a state that is saved and restored": (saved_entering, NAIVE, 2),
    "committing a turn, looking and adding": (committing, MEMORY, 2),
    "committing and discarding a turn": (ending, MEMORY, 2),
    "trimming and adding": (trimming, MEMORY, 2),
    "trimming in two threads, and adding": (trimming_twice, MEMORY, 2),
    "trimming and clearing": (clearing, MEMORY, 2),
    "a memory that is read, cut and written back": (cutting, NAIVE, 1),
}
