"""Draining: which graphs can stop between two supersteps and continue later, and from where.

What breaks without it: at shutdown a run is waited for, however long it takes, or its work is lost.
A graph without a checkpointer, or one that does not know LangGraph's ``control``, cannot continue,
and so is not stopped.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rxlanggraph.bridge.chunks import is_graph
from rxlanggraph.bridge.graphs.attempts import saver_of
from rxlanggraph.bridge.graphs.configs import config_for, layers_of
from rxlanggraph.bridge.run import Run
from rxlanggraph.concurrency.signatures import signature_of
from rxlanggraph.errors import RunDrainedError
from rxlanggraph.executors.remote_graph import RemoteGraph

if TYPE_CHECKING:
    from rxlanggraph.bridge.graphs.drain_control import DrainControl

__all__ = ["can_drain", "drained", "new_control", "not_begun"]

# Looking at a signature takes long. Weak, so that no class is kept alive. Each access is one call
# of a built-in dict, in any thread.
_takes_control: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def can_drain(graph: Any) -> bool:
    """Whether ``graph`` saves checkpoints, and stops between supersteps when asked. Any thread."""
    if saver_of(graph) is None or not is_graph(graph):
        return False
    runtime = sys.modules.get("langgraph.runtime")  # compiling a graph imports it
    if not hasattr(runtime, "RunControl"):
        return False
    if isinstance(graph, RemoteGraph):  # it passes on whatever it is given
        graph = graph.local
    layers = list(layers_of(graph))
    if any("control" in (getattr(layer, "kwargs", None) or {}) for layer in layers):
        return False  # it is stopped by its owner
    if any("fallbacks" in getattr(layer, "__dict__", ()) for layer in layers):
        return False  # what it falls back to need not be a graph, and takes no control
    calls = (getattr(layer, name) for layer in layers for name in ("ainvoke", "astream"))
    return all(map(_has_control, calls))


def _has_control(call: Callable[..., Any]) -> bool:
    function = getattr(call, "__func__", call)
    try:
        known = _takes_control.get(function)
        if known is None:
            known = _takes_control[function] = _looked_for(function)
    except TypeError:  # neither hashable nor weakly referenced
        known = _looked_for(function)
    return known


def _looked_for(function: Callable[..., Any]) -> bool:
    try:
        parameters = signature_of(function).parameters
    except (TypeError, ValueError):
        return False
    return "control" in parameters or any(
        each.kind is each.VAR_KEYWORD for each in parameters.values()
    )


def new_control(run: Run) -> DrainControl:
    """Make the control of ``run``, which begins. On the loop."""
    from rxlanggraph.bridge.graphs.drain_control import DrainControl  # noqa: PLC0415 - imports LangGraph

    return DrainControl(run.message.content)


def not_begun(run: Run) -> RunDrainedError:
    """Make the error of ``run``, which will not begin. Any thread."""
    return RunDrainedError(
        f"{run.label} has not begun, because its bridge drains; send the message again, to "
        "another bridge",
        thread_id=run.message.thread_id,
    )


async def drained(run: Run) -> RunDrainedError:
    """Make the error of ``run``, whose graph has stopped: read where it can go on. On the loop."""
    gate, thread_id = run.options.adapter.gate, run.message.thread_id
    config = config_for(run.message, run.options.config)
    checkpoint_id: str | None = None
    failure: Exception | None = None
    try:
        if gate is not None and config is not None:
            found = await gate.saver.aget_tuple(gate.latest(config))
            if found is not None:
                checkpoint_id = found.config["configurable"]["checkpoint_id"]
    except Exception as caught:
        failure = caught
    where = "a checkpoint that could not be read" if checkpoint_id is None else checkpoint_id
    error = RunDrainedError(
        f"{run.label} has stopped between two supersteps, because it was asked to; to continue "
        f"from {where}, send None as content on the thread {thread_id!r}",
        begun=True,
        thread_id=thread_id,
        checkpoint_id=checkpoint_id,
    )
    error.__cause__ = failure
    return error
