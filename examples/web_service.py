"""A bridge in a web application: answers, tokens as server-sent events, questions, back-pressure.

    python web_service.py    # or: uvicorn web_service:make_app --factory

    curl localhost:8000/chat/ada -H 'content-type: application/json' -d '{"text": "Hello"}'

Each path of `/chat` is a conversation, LangGraph's thread. All state is in `app.state`: one bridge
for the application, which adopts the server's loop, and one graph. `docs/web.md` explains the
choices. A fake model stands in for a real one, so that the example runs offline.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import APIRouter, Body, Depends, FastAPI, Header, HTTPException, Path, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rxlanggraph import ChunkReader, RxPyLangGraphBridge, StreamMessage, TaskInfo, errors

DRAIN = 10.0  # seconds that runs may take to end when the server is stopped
KEPT = 1024  # tokens of a run that can be sent again
PING = 15.0  # seconds without a token after which proxies are told that the stream goes on
LIMITS: dict[str, Any] = {
    "max_concurrency": 16,
    "max_pending": 64,
    "overflow": "error",
    "timeout": 120.0,
}
STATUS: dict[type[Exception], int] = {
    errors.BacklogFullError: 429,
    errors.ThreadBusyError: 409,
    errors.PendingInterruptError: 409,
    errors.StaleResumeError: 409,
    errors.RunInterruptedError: 409,  # another request has taken its thread over
    errors.ChunksLostError: 410,
    errors.BridgeClosedError: 503,
    errors.RunDrainedError: 503,
    errors.RunCancelledError: 503,
    errors.RunTimeoutError: 504,
}
TRY_AGAIN = {429: {"Retry-After": "1"}, 503: {"Retry-After": "5"}}


# -- the graph -------------------------------------------------------------------------------------


ModelFor = Callable[[str], BaseChatModel]


def fake_model(text: str) -> BaseChatModel:
    """Return a model that says ``text`` back, letter by letter."""
    return FakeListChatModel(responses=[f"You said: {text}"], sleep=0.02)


def build(saver: BaseCheckpointSaver[Any], model_for: ModelFor = fake_model) -> Any:
    """Return the compiled graph; ``/refund`` asks a person, everything else is for the model."""

    async def answer(state: MessagesState) -> dict[str, Any]:
        text = str(state["messages"][-1].content)
        return {"messages": [await model_for(text).ainvoke(state["messages"])]}

    async def refund(state: MessagesState) -> dict[str, Any]:
        granted = interrupt({"allow": state["messages"][-1].content})
        return {"messages": [("ai", "It is refunded." if granted is True else "It is refused.")]}

    async def kind(state: MessagesState) -> str:
        return "refund" if str(state["messages"][-1].content).startswith("/refund") else "answer"

    builder = StateGraph(MessagesState).add_node(answer).add_node(refund)
    builder.add_conditional_edges(START, kind, ["answer", "refund"])
    return builder.compile(checkpointer=saver)


@asynccontextmanager
async def open_graph() -> AsyncIterator[Any]:
    """Yield the graph. A saver with connections is opened here: on the loop that it is used on."""
    yield build(InMemorySaver())


# -- what goes over the wire -----------------------------------------------------------------------


class Options(BaseModel):
    """What a request may choose, under LangGraph's own names."""

    model_config = ConfigDict(extra="forbid")
    multitask_strategy: Literal["enqueue", "reject", "interrupt"] = "enqueue"
    on_disconnect: Literal["cancel", "continue"] = "cancel"


class Prompt(Options):
    """Something new on a thread."""

    text: Annotated[str, Field(min_length=1, max_length=4000)]

    def content(self) -> Any:
        """Return the input of the graph."""
        return {"messages": [("user", self.text)]}


class Reply(Options):
    """The answer to a question of the graph."""

    interrupt_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    value: JsonValue

    def content(self) -> Any:
        """Return the input of the graph."""
        return Command(resume={self.interrupt_id: self.value})


class Question(BaseModel):
    """A question of the graph, which waits for a reply."""

    interrupt_id: str
    value: Any


class Answer(BaseModel):
    """How a run has ended."""

    message_id: str
    status: str
    text: str | None = None
    questions: list[Question] = []
    error: str | None = None


class Thread(BaseModel):
    """A conversation: what was said, what the graph asks, what is in flight."""

    messages: list[tuple[str, str]]
    questions: list[Question]
    runs: list[TaskInfo]


ThreadId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$")]
EventId = Annotated[str, Header(alias="Last-Event-ID", pattern="^[0-9a-f-]{36}(:[0-9]{1,9})?$")]
"""The id of the run's message, and the number of the last chunk that the client has."""


def questions(interrupts: Any) -> list[Question]:
    """Return LangGraph's questions as they are sent."""
    return [Question(interrupt_id=each.id, value=each.value) for each in interrupts]


def answer_of(result: StreamMessage) -> Answer:
    """Return a result as it is sent. Of an error its type alone: the rest is for the log."""
    return Answer(
        message_id=result.source.id if result.source else result.id,
        status=result.status,
        text=str(result.content["messages"][-1].content) if result.status == "ok" else None,
        questions=questions(result.interrupts),
        error=type(result.error).__name__ if result.error else None,
    )


def event(**fields: str) -> str:
    """Return a server-sent event. Its ``data`` is JSON, and so one line."""
    return "".join(f"{name}: {value}\n" for name, value in fields.items()) + "\n"


# -- runs of requests ------------------------------------------------------------------------------


async def started(
    request: Request, thread_id: ThreadId, body: Annotated[Prompt | Reply, Body()]
) -> AsyncIterator[ChunkReader]:
    """Start the run of a request, and end it or leave it to itself when the client leaves."""
    reader = request.app.state.bridge.astream(
        request.app.state.graph,
        StreamMessage(body.content(), thread_id),
        stream_mode="messages",
        multitask_strategy=body.multitask_strategy,
        errors="emit",
        resumable=KEPT,
    )

    async def leave() -> None:  # changes nothing if the run has ended
        if body.on_disconnect == "continue":
            reader.detach()
        await reader.aclose()  # which ends what waits for the next item

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        await leave()

    watching = asyncio.create_task(watch())
    try:
        yield reader
    finally:
        watching.cancel()
        await leave()


Started = Annotated[ChunkReader, Depends(started)]


async def next_item(reader: ChunkReader) -> StreamMessage:
    """Return the next item; raise what has a status of its own, which is still to be sent."""
    item = await anext(reader, None)
    if item is None:
        raise HTTPException(499, "the client has left")
    return item if item.sequence is not None else item.raise_for_status()


async def events(reader: ChunkReader, item: StreamMessage | None = None) -> AsyncIterator[str]:
    """Yield an event for each token, from that of ``item`` on, and one for the result."""
    while item is None or item.sequence is not None:
        if item is not None and item.source is not None:
            token, _metadata = item.content
            number = f"{item.source.id}:{item.sequence}"
            yield event(event="token", data=json.dumps(token.content), id=number)
            await asyncio.sleep(0)  # tokens that are there already leave a turn to others
        item = None
        try:
            async with asyncio.timeout(PING):  # a step that is cancelled has taken nothing
                item = await anext(reader)
        except TimeoutError:
            yield ": ping\n\n"
        except errors.ChunksLostError:  # the client is slower than the run that it has joined
            yield event(event="lost", data="null")
            return
        except StopAsyncIteration:  # the reader was closed: the client has left
            return
    yield event(event="end", data=answer_of(item).model_dump_json())


def event_stream(reader: ChunkReader, first: StreamMessage | None = None) -> StreamingResponse:
    """Return the response that sends `events`; no proxy is to hold them back."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(reader, first), 200, headers, "text/event-stream")


async def joined(request: Request, thread_id: ThreadId, last_event_id: EventId) -> ChunkReader:
    """Join a run in flight behind the event that the client has got last."""
    message_id, _, sequence = last_event_id.partition(":")
    reader: ChunkReader = request.app.state.bridge.join_stream(
        message_id, last_sequence=int(sequence) if sequence else None, errors="emit"
    )
    if reader.run.thread_id != thread_id:
        raise errors.ChunksLostError(f"no run on message {message_id} is in flight here")
    return reader


# -- routes ----------------------------------------------------------------------------------------

router = APIRouter()


@router.post("/chat/{thread_id}")
async def answer(reader: Started) -> Answer:
    """Answer with the result of the run."""
    while (item := await next_item(reader)).sequence is not None:
        pass
    return answer_of(item)


@router.post("/chat/{thread_id}/stream")
async def stream(reader: Started) -> StreamingResponse:
    """Send each token of the run as it comes, and then its result."""
    first = await next_item(reader)  # once the response has begun, no status can be sent
    return event_stream(reader, first)


@router.get("/chat/{thread_id}/stream")
async def resume(reader: Annotated[ChunkReader, Depends(joined)]) -> StreamingResponse:
    """Send what has come since ``Last-Event-ID``, and what comes. 410 if that is not kept."""
    return event_stream(reader)


@router.get("/chat/{thread_id}")
async def conversation(request: Request, thread_id: ThreadId) -> Thread:
    """Return what is known of a thread, also after a run whose stream is gone."""
    state = request.app.state
    found = await state.graph.aget_state({"configurable": {"thread_id": thread_id}})
    return Thread(
        messages=[(each.type, str(each.content)) for each in found.values.get("messages", ())],
        questions=questions(found.interrupts),
        runs=[each for each in state.bridge.registry.snapshot() if each.thread_id == thread_id],
    )


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Return that the server answers, with the counters of the bridge."""
    statistics = request.app.state.bridge.statistics()
    return {"status": "ok", "in_flight": statistics.in_flight, "submitted": statistics.submitted}


@router.get("/runs")
async def runs(request: Request) -> tuple[TaskInfo, ...]:
    """Return everything in flight. For operators: not to be open to clients."""
    snapshot: tuple[TaskInfo, ...] = request.app.state.bridge.registry.snapshot()
    return snapshot


# -- the application -------------------------------------------------------------------------------


async def refuse(_request: Request, error: Exception) -> JSONResponse:
    """Answer with the status of an error of the bridge."""
    status = next(STATUS[each] for each in type(error).__mro__ if each in STATUS)
    asked = questions(getattr(error, "interrupts", ()))
    content = jsonable_encoder({"error": type(error).__name__, "questions": asked})
    return JSONResponse(content, status, TRY_AGAIN.get(status))


async def invalid(_request: Request, error: Any) -> Response:
    """Say what is wrong with a request, without repeating it: not all JSON can be sent back."""
    found = [{"loc": each["loc"], "msg": each["msg"]} for each in error.errors()]
    return Response(json.dumps({"detail": found}), 422, media_type="application/json")


def make_app(
    open_graph: Callable[[], AbstractAsyncContextManager[Any]] = open_graph, **options: Any
) -> FastAPI:
    """Return the application.

    Args:
        open_graph: Opens the graph that answers the requests.
        options: Those of the bridge, instead of `LIMITS`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Adopted: handlers, graph, saver and the clients of models share one loop, and no token
        # changes threads on its way out. Nothing may block that loop: so overflow="error".
        bridge = RxPyLangGraphBridge(asyncio.get_running_loop(), **{**LIMITS, **options})
        async with open_graph() as graph:
            app.state.bridge, app.state.graph = bridge, graph
            try:
                yield
            finally:  # the requests have ended; what is left are runs without a client
                await bridge.aclose(DRAIN, drain_after=DRAIN / 2)

    handlers: dict[Any, Any] = {**dict.fromkeys(STATUS, refuse), RequestValidationError: invalid}
    app = FastAPI(lifespan=lifespan, exception_handlers=handlers)
    app.include_router(router)
    return app


def main() -> None:
    """Serve until Ctrl-C or SIGTERM; streams get five seconds to end by themselves."""
    uvicorn.run(make_app(), port=8000, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
