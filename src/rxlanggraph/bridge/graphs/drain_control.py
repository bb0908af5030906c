"""DrainControl: how LangGraph is asked to stop a run between two supersteps.

LangGraph asks a run's `RunControl` before each superstep, of subgraphs too, and raises
`GraphDrained` if it is to stop. What breaks with a plain one: a subgraph that saves nothing is
stopped half-way, and begins again; an answer (``Command``) is lost if the graph stops before a node
has taken it.

Imports LangGraph, so it is imported with the first run that can be drained.
"""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from rxlanggraph.bridge.graphs.interrupts import is_command

__all__ = ["DrainControl"]


class DrainControl(RunControl):
    """LangGraph's `RunControl` of one run, which says when the run may stop without a loss.

    Written on the loop's thread, but for LangGraph's own field, which any thread may write. Read in
    worker threads too, by sync subgraphs and nodes.

    Args:
        content: The content of the run's message.
    """

    __slots__ = ("_begun", "_whole_steps")

    def __init__(self, content: Any) -> None:
        super().__init__()
        # How many supersteps of the graph itself end before it may stop. LangGraph saves an answer
        # when a node takes it.
        self._whole_steps = 1 if is_command(content) else 0
        self._begun = 0

    @property
    def drain_requested(self) -> bool:
        """Whether to stop here: before a superstep, or in a node that asks."""
        within = var_child_runnable_config.get() is not None  # a node around it has set it
        if not within:
            self._begun += 1
        if self._drain_reason is None or self._begun <= self._whole_steps:
            return False
        return not within or _would_go_on(sys._getframe(1).f_locals.get("self"))

    @property
    def asked(self) -> bool:
        """Whether the run was asked to stop: by the bridge, or by a node. Any thread."""
        return self._drain_reason is not None

    @staticmethod
    def has_stopped(error: BaseException) -> bool:
        """Whether ``error`` says that the graph has stopped. Any thread."""
        return isinstance(error, GraphDrained)


def _would_go_on(asks: object) -> bool:
    """Whether a subgraph can go on where it is stopped.

    LangGraph does not tell its control which graph it asks for. With durability ``"exit"``, it
    saves nothing of a subgraph that has not ended. Within a subgraph that saves nothing, another
    one that does is stopped all the same, and begins again with that.

    Args:
        asks: LangGraph's loop over the subgraph; anything else that asks does not stop by itself.
    """
    saver, durability = getattr(asks, "checkpointer", asks), getattr(asks, "durability", None)
    return saver is not None and durability != "exit"
