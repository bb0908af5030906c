"""Requests: what a request adds to the memory, and what the responder is asked in a step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.agent.conversation.messages import is_message, new_id, requested
from rxlanggraph.agent.responders.contract import Question, Responder
from rxlanggraph.agent.run import AgentRun
from rxlanggraph.bridge.chunks import StreamMode
from rxlanggraph.bridge.graphs.configs import without_run_id
from rxlanggraph.bridge.graphs.interrupts import resume_of
from rxlanggraph.messages import StreamMessage, chunk_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = ["adds_to_memory", "question_of", "remember"]


def adds_to_memory(request: Any, responder: Responder | None) -> bool:
    """Whether ``request`` consists of messages for the memory. Any thread; never blocks."""
    if request is None or (not isinstance(request, str) and _is_answer(request, responder)):
        return False
    if responder is None:
        return is_message(request)  # an overridden step may take any request
    return responder.of_messages


def _is_answer(request: Any, responder: Responder | None) -> bool:
    takes_answers = responder is None or responder.takes_answers
    return takes_answers and resume_of(request) is not None


def remember(memory: Memory, request: Any) -> None:
    """Add the messages of the request that are not in the memory yet. In the run.

    If its last message is there already, it is asked again, under a new id.
    """
    messages = requested(request)
    if not isinstance(request, str):  # a string has no id
        known = {message.id for message in memory.get_messages()}
        again = messages[-1:] if messages and messages[-1].id in known else ()
        new = tuple(message for message in messages if message.id not in known)
        messages = (*new, *(replace(message, id=new_id()) for message in again))
    memory.add_all(messages)


def _config_of(run: AgentRun) -> RunnableConfig:
    """LangGraph's config of a run that has begun, with its thread. In the run."""
    config: RunnableConfig = {**run.config} if run.config else {}
    config["configurable"] = {**(config.get("configurable") or {}), "thread_id": run.thread_id}
    return config


def question_of(
    run: AgentRun,
    memory: Memory,
    put_chunk: Callable[[StreamMessage], Coroutine[Any, Any, None]],
) -> Question:
    """The question of the next step. In the run.

    Args:
        run: The run, which has begun.
        memory: The agent's memory.
        put_chunk: Puts a chunk into the output.
    """
    beginning, messages = memory.beginning, memory.get_messages()
    config = _config_of(run)
    if run.config is not None:
        run.config = without_run_id(run.config)  # type: ignore[assignment]
    chunks = _Chunks(run, put_chunk) if run.modes else None
    arguments = {} if run.context is None else {"context": run.context}
    return Question(
        run.request, messages, beginning, config, run.on_failure, run.modes, chunks, arguments
    )


class _Chunks:
    """The chunks of a run, on their way to its output. Confined to the loop of the run."""

    def __init__(
        self,
        run: AgentRun,
        put: Callable[[StreamMessage], Coroutine[Any, Any, None]],
    ) -> None:
        self._run = run
        self._source = StreamMessage(run.request, run.thread_id)
        self._put = put

    def put(
        self, content: Any, mode: StreamMode | None, namespace: tuple[str, ...]
    ) -> Awaitable[None]:
        chunk = chunk_of(self._source, content, mode, namespace, self._run.chunks)
        self._run.chunks += 1
        return self._put(chunk)
