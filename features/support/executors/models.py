"""A chat model whose calls meet the driver, as `graphs.meeting` does, and graphs that call it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, StateGraph

__all__ = [
    "OverloadedError",
    "asking",
    "asking_in_a_thread",
    "asking_on_the_loop",
    "asking_plainly",
    "asking_twice",
    "asking_with_a_lock",
    "asking_with_a_tool",
    "nested",
]


class OverloadedError(Exception):
    """As the clients of providers have them: pickle cannot make it again."""

    def __init__(self, message: str, *, response: Any) -> None:
        super().__init__(message)
        self.status_code = 429
        self.response = response


class MeetingModel(BaseChatModel):
    """Tells the driver the number that it is asked, and answers when it says so.

    The question has that many tokens, and the answer 10.
    """

    port: int
    model: str = "small"

    @property
    def _llm_type(self) -> str:
        return "meeting"

    def _answer(self, number: int, word: str) -> ChatResult:
        if word == "refuse":
            raise OverloadedError(
                "too many", response=SimpleNamespace(headers={"retry-after": "0"})
            )
        usage = {"input_tokens": number, "output_tokens": 10, "total_tokens": number + 10}
        message = AIMessage("well", usage_metadata=usage, response_metadata={"model": self.model})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        number = int(str(messages[-1].content))
        if not self.port:
            return self._answer(number, "on")
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            stream = connection.makefile("rw")
            stream.write(f"{number} {os.getpid()}\n")
            stream.flush()
            return self._answer(number, stream.readline().strip())

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        number = int(str(messages[-1].content))
        if not self.port:
            return self._answer(number, "on")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{number} {os.getpid()}\n".encode())
            return self._answer(number, (await reader.readline()).decode().strip())
        finally:
            writer.close()


class Asked(TypedDict, total=False):
    n: int
    port: int
    model: str
    pid: int


def model_of(state: Asked) -> MeetingModel:
    return MeetingModel(port=state.get("port", 0), model=state.get("model", "small"))


async def ask(state: Asked) -> Asked:
    await model_of(state).ainvoke(str(state["n"]))
    return {"n": state["n"], "pid": os.getpid()}


async def ask_with_a_tool(state: Asked) -> Asked:
    """A lock cannot be pickled."""
    model = model_of(state).bind(temperature=0.5, tool=threading.Lock())
    await model.ainvoke(str(state["n"]))
    return {"n": state["n"], "pid": os.getpid()}


async def ask_with_a_lock(state: Asked) -> Asked:
    question = HumanMessage(str(state["n"]), additional_kwargs={"lock": threading.Lock()})
    await model_of(state).ainvoke([question])
    return {"n": state["n"], "pid": os.getpid()}


def ask_in_a_thread(state: Asked) -> Asked:
    model_of(state).invoke(str(state["n"]))
    return {"n": state["n"], "pid": os.getpid()}


async def ask_on_the_loop(state: Asked) -> Asked:
    return ask_in_a_thread(state)


async def ask_again(state: Asked) -> Asked:
    """The first answer needs no word of the driver's."""
    await model_of({**state, "port": 0}).ainvoke("1")
    return await ask(state)


asking_twice = StateGraph(Asked).add_node("ask", ask_again).add_edge(START, "ask").compile()
asking = StateGraph(Asked).add_node("ask", ask).add_edge(START, "ask").compile()
asking_with_a_tool = (
    StateGraph(Asked).add_node("ask", ask_with_a_tool).add_edge(START, "ask").compile()
)
asking_with_a_lock = (
    StateGraph(Asked).add_node("ask", ask_with_a_lock).add_edge(START, "ask").compile()
)
asking_on_the_loop = (
    StateGraph(Asked).add_node("ask", ask_on_the_loop).add_edge(START, "ask").compile()
)
asking_in_a_thread = (
    StateGraph(Asked).add_node("ask", ask_in_a_thread).add_edge(START, "ask").compile()
)


def asking_plainly(content: Asked) -> Asked:
    return ask_in_a_thread(content)


async def inner(state: Asked) -> Asked:
    if state["n"] == 1:
        raise KeyError("no such key")
    return {"n": state["n"] + 1}


async def outer(state: Asked) -> Asked:
    return {"n": state["n"] + 1, "pid": os.getpid()}


nested = (
    StateGraph(Asked)
    .add_node("first", outer)
    .add_node("sub", StateGraph(Asked).add_node("inner", inner).add_edge(START, "inner").compile())
    .add_edge(START, "first")
    .add_edge("first", "sub")
    .compile()
)
