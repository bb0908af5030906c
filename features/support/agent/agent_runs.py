"""Agents for scenarios, callers from everywhere, and the racy guard beside them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypedDict

from behave.runner import Context
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from rxlanggraph.agent import BaseAgent, Message
from support.concurrency.tasks import forever, run
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads

__all__ = [
    "AGENTS",
    "CALLERS",
    "WITH",
    "FlagGuarded",
    "Responding",
    "Steps",
    "call_from",
    "made_with",
    "note",
]


class Responding(MessagesState):
    """The state of a graph that may give a structured response."""

    structured_response: Any


class Watched(BaseAgent):
    """Knows how many were in it at once."""

    def __init__(self, name: str = "watched", **options: Any) -> None:
        super().__init__(name, **options)
        self.gate = Gate()
        self.log = Log()
        self.tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self._lock = threading.Lock()  # guards the next two
        self._inside = 0
        self.most_inside = 0

    async def step(self) -> Any:
        with self._lock:
            self._inside += 1
            self.most_inside = max(self.most_inside, self._inside)
        try:
            self.log.add(self.request)
            return await self.work()
        finally:
            with self._lock:
                self._inside -= 1

    async def work(self) -> Any:
        raise NotImplementedError


class Gated(Watched):
    async def work(self) -> Any:
        await self.gate.wait_async()
        return "answer"


class Echoing(Watched):
    async def work(self) -> Any:
        await asyncio.sleep(0)
        return self.request


class Demanding(Watched):
    """Does what it is asked to."""

    async def work(self) -> Any:
        self.add_message("assistant", "half a turn")
        self.tasks.append(asyncio.create_task(asyncio.Event().wait()))
        if self.request == "fail":
            raise LookupError("on demand")
        if self.request == "hang":
            await asyncio.Event().wait()
        self.tasks.pop().cancel()
        return self.request


class OutOfTime(Watched):
    error = TimeoutError("of the step's own")

    async def work(self) -> Any:
        raise self.error


class UsingTool(Watched):
    """A turn of three messages, with an await between each two."""

    async def work(self) -> Any:
        call = {"name": "look", "args": {}, "id": "call-1"}
        self.add_message("assistant", "", tool_calls=[call])
        await asyncio.sleep(0)
        self.add_message("tool", "found", tool_call_id="call-1", tool_name="look")
        await asyncio.sleep(0)
        self.add_message("assistant", "answer")
        return "answer"


class Starting(Watched):
    """Starts tasks, which cancelling it must not leave behind."""

    async def work(self) -> Any:
        helping = [asyncio.create_task(self._help(number)) for number in range(3)]
        self.tasks += helping
        await asyncio.gather(*helping)
        return "answer"

    async def _help(self, number: int) -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        self.add_message("assistant", str(number))


class Leaving(Watched):
    """Starts a task that it does not await, and waits."""

    async def work(self) -> Any:
        self.tasks.append(asyncio.create_task(forever()))
        await forever()


class Steps(Watched):
    async def work(self) -> Any:
        self.steps += 1


class LosingOne(Watched):
    async def work(self) -> Any:
        if self.request == "lost":
            await asyncio.Event().wait()
        if self.request == "wait":
            await self.gate.wait_async()
            self.output_queue.put_nowait("still open")
            return self.request
        return "answer"


class Deaf(Watched):
    """Its step is out of time, and a task that it has started hears of no cancelling."""

    async def work(self) -> Any:
        self.tasks.append(asyncio.create_task(self._stay()))
        await asyncio.Event().wait()

    async def _stay(self) -> None:
        while not self.gate.is_open:
            with contextlib.suppress(asyncio.CancelledError):
                await self.gate.wait_async()


class NotAsync(BaseAgent):
    def step(self) -> Any:
        return "at once"


class AskingItself(Watched):
    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    async def work(self) -> Any:
        if self._how == "by another agent":
            other = BaseAgent("other", llm=lambda _: self.run("again", on_busy="enqueue"))
            return await other.run("please ask for me")
        asking = self.run("again", on_busy="enqueue")
        return await (asyncio.create_task(asking) if self._how == "in a task" else asking)


class FlagGuarded(Watched):
    """The racy guard: looked at, and raised only after an await."""

    def __init__(self) -> None:
        super().__init__()
        self._running = False

    async def run(self, request: Any = None, *_: Any, **__: Any) -> Any:
        if self._running:
            raise RuntimeError("busy")
        await asyncio.sleep(0)  # loads its configuration, say
        self._running = True
        try:
            return await self.step()
        finally:
            self._running = False

    async def work(self) -> Any:
        await asyncio.sleep(0)
        return "answer"


class Reversing(GenericFakeChatModel):
    """A chat model: the last message, backwards."""

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=reverse(messages))])


class Counting(Reversing):
    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        reply = AIMessage(str(len(messages)))
        return ChatResult(generations=[ChatGeneration(message=reply)])


def reverse(messages: list[BaseMessage]) -> AIMessage:
    return AIMessage(str(messages[-1].content)[::-1])


async def reverse_text(messages: list[Message]) -> str:
    await asyncio.sleep(0)
    return str(messages[-1].content)[::-1]


def graph_of_messages(**options: Any) -> Any:
    async def model(state: MessagesState) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"messages": [reverse(state["messages"])]}

    return StateGraph(MessagesState).add_node(model).add_edge(START, "model").compile(**options)


class Counter(TypedDict):
    n: Annotated[int, lambda _, new: new]


def graph_of_counter() -> Any:
    def count(state: Counter) -> dict[str, int]:
        return {"n": state["n"] + 1}

    return StateGraph(Counter).add_node(count).add_edge(START, "count").compile()


def chat_model(kind: type[Reversing] = Reversing) -> Any:
    return kind(messages=iter([]))


WITH: dict[str, Callable[[], dict[str, Any]]] = {
    "a chat model": lambda: {"llm": chat_model()},
    "a chat model that says how many messages it was given": lambda: {"llm": chat_model(Counting)},
    "a Runnable": lambda: {"llm": RunnableLambda(reverse)},
    "a chain that ends in text": lambda: {"llm": chat_model() | StrOutputParser()},
    "a chain that ends in a mapping": lambda: {
        "llm": RunnableLambda(reverse)
        | RunnableLambda(lambda m: {"role": "ai", "content": m.content})
    },
    "a chain that ends in a number": lambda: {
        "llm": RunnableLambda(reverse) | RunnableLambda(lambda m: len(m.content))
    },
    "an async function": lambda: {"llm": reverse_text},
    "a graph of messages": lambda: {"graph": graph_of_messages()},
    "a graph with a checkpointer": lambda: {
        "graph": graph_of_messages(checkpointer=InMemorySaver())
    },
    "a graph of a counter": lambda: {"graph": graph_of_counter()},
    "an empty name": lambda: {"name": ""},
    "a list as memory": lambda: {"memory": []},
    "a number as llm": lambda: {"llm": 7},
    "a graph not compiled": lambda: {"graph": StateGraph(MessagesState)},
    "an llm and a graph": lambda: {"llm": reverse_text, "graph": graph_of_counter()},
    "no steps": lambda: {"max_steps": 0},
    "a timeout of zero": lambda: {"timeout": 0},
}


def made_with(what: str) -> BaseAgent:
    return BaseAgent(**{"name": "made", **WITH[what]()})


AGENTS: dict[str, Callable[[], BaseAgent]] = {
    "was given nothing": lambda: BaseAgent("bare"),
    "answers when the gate opens": Gated,
    "answers with the request": Echoing,
    "does as it is told": Demanding,
    "does as it is told, within 0.05 s": lambda: Demanding(timeout=0.05),
    "raises TimeoutError": OutOfTime,
    'never answers "lost"': LosingOne,
    "has a deaf task, and 0.05 s": lambda: Deaf(timeout=0.05),
    "has a step that is not async": lambda: NotAsync("not-async"),
    'never answers "lost", and has a gate': LosingOne,
    "uses a tool": UsingTool,
    "starts tasks": Starting,
    "leaves a task to itself": Leaving,
    "asks itself directly": lambda: AskingItself("directly"),
    "asks itself in a task": lambda: AskingItself("in a task"),
    "asks itself by another agent": lambda: AskingItself("by another agent"),
    "returns None from 4 steps": lambda: Steps(max_steps=4),
}


def note(context: Context, call: Coroutine[Any, Any, Any]) -> None:
    """Keep in the context what it returns, or raises."""
    context.answer = context.error = None
    try:
        context.answer = run(call)
    except Exception as error:
        context.error = error


async def outcome(run: Coroutine[Any, Any, Any]) -> Any:
    """Its answer or its error."""
    try:
        return await run
    except Exception as error:
        return error


def call_from(where: str, count: int, call: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    """What came of ``call(0)`` to ``call(count - 1)``, all at once. Blocks until all have ended."""
    return CALLERS[where](count, call)


def from_tasks(count: int, call: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    async def main() -> list[Any]:
        async with asyncio.timeout(LIMIT):
            return await asyncio.gather(*[outcome(call(i)) for i in range(count)])

    return asyncio.run(main())


def from_loops(count: int, call: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    """Two callers on each of so many loops, each loop in a thread of its own."""
    halves = in_threads(count // 2, lambda i: from_tasks(2, lambda j: call(2 * i + j)))
    return [each for half in halves for each in half]


def from_threads(count: int, call: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
    return in_threads(count, lambda i: asyncio.run(outcome(call(i))))


CALLERS: dict[str, Callable[[int, Callable[[int], Coroutine[Any, Any, Any]]], list[Any]]] = {
    "tasks": from_tasks,
    "loops": from_loops,
    "threads": from_threads,
}
