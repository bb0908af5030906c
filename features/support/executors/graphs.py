"""What worker processes import, and this process too."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

__all__ = [
    "asking",
    "counting_in",
    "failing",
    "failing_factory",
    "leaving",
    "leaving_factory",
    "meeting",
    "plain",
    "plain_factory",
    "plain_noted_in",
    "reporting",
    "returning",
    "stopping",
    "sync_function",
    "talking",
    "talking_unreadably",
    "tenant",
    "threads_in_postgres",
    "unreadable",
]

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class State(TypedDict, total=False):
    n: int
    pid: int
    port: int
    seen: Any
    path: str


def compiled(node: Any, **options: Any) -> Any:
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile(**options)


async def add_one(state: State) -> State:
    await asyncio.sleep(0)
    return {"n": state["n"] + 1, "pid": os.getpid()}


plain = compiled(add_one)


class OwnError(Exception):
    """Made of two arguments, so pickle cannot make it again. One of its attributes it cannot."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.second, self.lock = second, threading.Lock()

    def __str__(self) -> str:
        return f"{self.args[0]}, the second being {self.second}"


class ComparedError(Exception):
    """Can be compared with its like alone."""

    __hash__ = Exception.__hash__

    def __eq__(self, other: object) -> bool:
        return bool(self.args == other.number)  # type: ignore[attr-defined]


class UnsendableError(Exception):
    """Its methods raise what is no Exception."""

    def __init__(self, text: str, from_str: bool = False) -> None:
        super().__init__(text)
        self.from_str = from_str

    def __reduce__(self) -> Any:
        raise SystemExit("not to be pickled")

    def __str__(self) -> str:
        if self.from_str:
            raise KeyboardInterrupt
        return super().__str__()


async def fail(state: State) -> State:
    if state["n"] == 0:
        raise KeyError("no such key")
    if state["n"] == 1:
        try:
            raise OSError("the first one")
        except OSError as error:
            raise ValueError("the second one") from error
    if state["n"] == 2:
        raise OwnError("one", "two")
    if state["n"] == 4:
        raise ComparedError("not to be compared") from KeyError("its cause")
    if state["n"] == 5:
        raise ExceptionGroup("two of them", [OwnError("one", "two"), KeyError("no such key")])
    if state["n"] in (6, 7):
        raise UnsendableError("kept", from_str=state["n"] == 7)
    raise LookupError("not to be sent", threading.Lock())


failing = compiled(fail)


async def leave(state: State) -> State:
    if state["n"] == 0:
        raise SystemExit("leaving")
    if state["n"] == 1:
        raise KeyboardInterrupt("ctrl-c")
    raise KeyError("an ordinary one")


leaving = compiled(leave)


async def meet(state: State) -> State:
    """Tell the driver that it has begun, and go on when it says so. See `Meeting`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", state["port"])
    try:
        writer.write(f"{state['n']} {os.getpid()}\n".encode())
        try:
            word = await reader.readline()
        except asyncio.CancelledError:
            writer.write(b"cancelled\n")
            with contextlib.suppress(ConnectionError):  # the meeting is over
                await reader.readline()
            raise
        if word == b"fail\n":
            raise RuntimeError("as it was told")
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return {"n": state["n"], "pid": os.getpid()}


meeting = compiled(meet)


async def report(state: State, config: RunnableConfig, runtime: Runtime[Any]) -> State:
    return {
        "seen": {
            "tenant": tenant.get(),
            "context": runtime.context,
            "configurable": config["configurable"].get("colour"),
            "metadata": config["metadata"].get("batch"),
            "thread": threading.current_thread().name,
        },
        "pid": os.getpid(),
    }


reporting = compiled(report)


async def talk(state: State) -> State:
    """Write as many chunks as asked for; announce each behind the first ``n`` to the driver."""
    write = get_stream_writer()
    for number in range(state["n"]):
        write({"number": number, "pid": os.getpid()})
        await asyncio.sleep(0)
    return {"n": state["n"]}


talking = compiled(talk)


async def talk_unreadably(state: State) -> State:
    get_stream_writer()(Unreadable())
    await asyncio.Event().wait()
    return {}


talking_unreadably = compiled(talk_unreadably)


async def return_lock(state: State) -> State:
    return {"seen": state["n"] or threading.Lock()}


returning = compiled(return_lock)


def failing_factory() -> Any:
    return 1 / 0


def leaving_factory() -> Any:
    raise SystemExit("no configuration")


def plain_factory() -> Any:
    return plain


class Unreadable:
    """Pickled in one process, and made again in none."""

    def __init__(self, error: type[BaseException] = ValueError) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        return refuse, (self._error,)


def refuse(error: type[BaseException]) -> None:
    raise error("not in this process")


async def answer_unreadably(state: State) -> State:
    number = state["n"]
    errors = (ValueError, asyncio.CancelledError, SystemExit)
    return {"n": number, "seen": Unreadable(errors[number - 1]) if number else None}


unreadable = compiled(answer_unreadably)


def ask(state: State) -> State:
    return {"n": interrupt("how many?"), "pid": os.getpid()}


asking = compiled(ask, checkpointer=InMemorySaver())


class Counted(TypedDict, total=False):
    count: Annotated[int, operator.add]
    done: Annotated[list[str], operator.add]
    word: str
    port: int


async def count(state: Counted) -> Counted:
    return {"count": 1, "done": [state["word"]]}


def counting(checkpointer: Any) -> Any:
    builder = StateGraph(Counted).add_node("count", count)
    return builder.add_edge(START, "count").add_edge("count", END).compile(checkpointer)


def counting_in(path: str) -> Any:
    """Make a factory of graphs that keep their threads in a SQLite file."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            yield counting(saver)

    return make


def plain_noted_in(folder: str) -> Any:
    """Make a factory of graphs that leave a file in the folder when they are closed."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        try:
            yield compiled(add_one)
        finally:
            await asyncio.to_thread(Path(folder, str(os.getpid())).touch)

    return make


async def die(state: Counted) -> Counted:
    """Meet the driver, by which it is killed the first time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", state["port"])
    writer.write(f"0 {os.getpid()}\n".encode())
    await reader.readline()
    writer.close()
    return {"done": ["died"]}


def threads_in_postgres(url: str) -> Any:
    """Make a factory of graphs that count, then meet the driver, with threads in PostgreSQL."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(url) as saver:
            builder = StateGraph(Counted).add_node("count", count).add_node("die", die)
            builder.add_edge(START, "count").add_edge("count", "die")
            yield builder.compile(saver)

    return make


def stopping(content: State) -> State:
    raise StopIteration("nothing left")


def sync_function(content: dict[str, int], *, message: Any) -> dict[str, Any]:
    return {"twice": content["n"] * 2, "pid": os.getpid(), "thread_id": message.thread_id}
