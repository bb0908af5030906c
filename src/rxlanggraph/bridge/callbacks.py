"""LangChain's callbacks of a run: adding some to its config, and those that report nodes.

What breaks without the first: callbacks of the config's own are lost when others are added. What
breaks without the second: hooks hear of runs, but not of the nodes in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager

from rxlanggraph.bridge.graphs.configs import Config
from rxlanggraph.bridge.reports import report_node
from rxlanggraph.bridge.run import Run, RunScope, run_scope
from rxlanggraph.bridge.run_info import node_path
from rxlanggraph.hooks import NodeStatus

__all__ = ["NodeCallbacks", "NodeEnd", "NodeListener", "RunNodes", "with_callbacks"]


def with_callbacks(config: Config | None, handlers: Sequence[BaseCallbackHandler]) -> Config:
    """Return ``config`` with these callbacks too. Any thread; never blocks."""
    callbacks = None if config is None else config.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        callbacks = callbacks.copy()
        for handler in handlers:
            callbacks.add_handler(handler)
    else:
        callbacks = [*(callbacks or ()), *handlers]
    return {**(config or {}), "callbacks": callbacks}


class NodeEnd(NamedTuple):
    """How a node has ended; it began at ``begun``, by `NodeListener.now`."""

    node: str
    status: NodeStatus
    error: BaseException | None
    begun: float


class NodeListener(Protocol):
    """What listens to the nodes of one run. Its methods are called in the threads of the run."""

    def now(self) -> float | None:
        """The time, in seconds; None where nothing of the run is listened to.

        That is after its end, and in the context of another run.
        """

    def began(self, number: UUID, node: str) -> None:
        """Note that a node has begun."""

    def ended(self, number: UUID, end: NodeEnd) -> None:
        """Note that it has ended."""


class NodeCallbacks(BaseCallbackHandler):
    """What LangChain calls for a run whose nodes are listened to. In the threads of the run.

    Args:
        listener: What is told of them.
    """

    run_inline = True
    ignore_llm = ignore_chat_model = ignore_agent = True
    ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(self, listener: NodeListener) -> None:
        self._listener = listener
        # The nodes at work, each with the time of its start. Single calls of a dict, by any thread.
        self._begun: dict[UUID, tuple[str, float]] = {}

    def on_chain_start(
        self,
        *_: Any,
        run_id: UUID,
        tags: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **__: Any,
    ) -> None:
        """Note the start of a node. Other things, as the choice of the first one, lack its tags."""
        tags = tags or ()
        if not any(tag.startswith("graph:step:") for tag in tags) or "langsmith:hidden" in tags:
            return
        path, now = node_path(metadata), self._listener.now()
        if path is not None and now is not None:
            self._begun[run_id] = path, now
            self._listener.began(run_id, path)

    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Tell of the end of a node."""
        self._end(run_id, "ok", None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Tell of the end of a node that did not succeed."""
        if run_id in self._begun:
            status = _status_by(error)
            self._end(run_id, status, None if status == "ok" else error)

    def _end(self, run_id: UUID, status: NodeStatus, error: BaseException | None) -> None:
        begun = self._begun.pop(run_id, None)
        if begun is not None:
            node, since = begun
            self._listener.ended(run_id, NodeEnd(node, status, error, since))


class RunNodes:
    """Reports the nodes of a run of this process: a `NodeListener`.

    Args:
        run: The run. Only its scope is kept: a config may live for any length of time.
    """

    def __init__(self, run: Run) -> None:
        self._scope: RunScope | None = run.scope

    def now(self) -> float | None:
        """See `NodeListener`."""
        run = self._run()
        if run is None or run_scope.get() is not self._scope:
            return None
        return run.inbox.clock.now()

    def began(self, number: UUID, node: str) -> None:
        """Do nothing: snapshots find the nodes at work by themselves."""

    def ended(self, number: UUID, end: NodeEnd) -> None:
        """Tell the hooks."""
        run = self._run()
        if run is not None:
            duration = run.inbox.clock.now() - end.begun
            report_node(run, end.node, end.status, end.error, duration)

    def _run(self) -> Run | None:
        return None if self._scope is None else self._scope.run


def _status_by(error: BaseException) -> NodeStatus:
    from langgraph.errors import GraphBubbleUp, ParentCommand  # noqa: PLC0415 - has been imported

    if isinstance(error, ParentCommand):  # how a node goes on in the graph above it
        return "ok"
    if isinstance(error, GraphBubbleUp):
        return "interrupted"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "error"
