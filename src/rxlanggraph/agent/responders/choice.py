"""Which responder answers for an agent."""

from __future__ import annotations

from typing import Any

from langgraph.pregel import Pregel

from rxlanggraph.agent.responders.contract import Responder
from rxlanggraph.agent.responders.graph import GraphResponder
from rxlanggraph.agent.responders.models import FunctionResponder, ModelResponder
from rxlanggraph.errors import InvalidTypeError

__all__ = ["make_responder"]


def make_responder(llm: Any, graph: Any) -> Responder | None:
    """Determine how to call ``llm`` or ``graph``; None if there is neither. Any thread.

    Raises:
        InvalidTypeError: Both were given, or one that cannot answer.
    """
    if llm is not None and graph is not None:
        raise InvalidTypeError("an agent has an llm or a graph, not both; put the llm in a node")
    if graph is not None:
        if not hasattr(graph, "ainvoke"):
            remedy = "pass graph.compile()" if hasattr(graph, "compile") else "compile a StateGraph"
            raise InvalidTypeError(
                f"graph must be a compiled LangGraph graph, not {graph!r}; {remedy}"
            )
        return GraphResponder(graph)
    if llm is None:
        return None
    if isinstance(llm, Pregel):
        raise InvalidTypeError(f"llm must not be a graph, as {llm!r} is; pass it as graph=")
    if hasattr(llm, "ainvoke"):
        return ModelResponder(llm)
    if callable(llm):
        return FunctionResponder(llm)
    raise InvalidTypeError(
        f"llm must be a chat model, a Runnable or an async function of the messages, not {llm!r}"
    )
