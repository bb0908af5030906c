"""The nodes of a run in a worker process: told to hooks in the driver, in their order.

Snapshots show them too, if a hook listens to nodes. A snapshot does not ask the workers: it is
taken in any thread, and would have to wait for all of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rxlanggraph.bridge.reports import report_node
from rxlanggraph.bridge.run import RunScope
from rxlanggraph.executors.companions import Link
from rxlanggraph.executors.payloads import dump_error, load_error

if TYPE_CHECKING:
    from rxlanggraph.bridge.callbacks import NodeEnd

__all__ = ["NodesHere", "NodesThere"]


class NodesHere:
    """Reports what a worker tells of nodes. On the loop: see `Companion`.

    Args:
        scope: That of the run.
    """

    def __init__(self, scope: RunScope, *_: object) -> None:
        assert scope.run is not None
        self._run = scope.run
        self._at_work: dict[int, str] = {}
        self._run.nodes_elsewhere = self._at_work
        self.counterpart = NodesThere()

    def hear(self, what: Any) -> None:
        """Note that a node has begun, or report its end."""
        number, node, *end = what
        if not end:
            self._at_work[number] = node
            return
        self._at_work.pop(number, None)
        status, error, duration = end
        report_node(self._run, node, status, error and load_error(error), duration)

    def end(self) -> None:
        """Forget the nodes at work: they may be those of a worker that was lost."""
        self._at_work.clear()


class NodesThere:
    """Tells of the nodes of a call: see `Counterpart`, and `NodeListener`."""

    _link: Link

    def enter(self, link: Link, graph: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add the callbacks to the config of a graph; a function has no nodes."""
        if len(arguments) != 2:
            return arguments
        from rxlanggraph.bridge.callbacks import (  # noqa: PLC0415 - imports LangChain
            NodeCallbacks,
            with_callbacks,
        )

        self._link = link
        content, config = arguments
        return content, with_callbacks(config, [NodeCallbacks(self)])

    def hear(self, what: Any) -> None:
        """Nothing is told."""

    def cancel(self) -> None:
        """Nothing is kept."""

    def leave(self) -> None:
        """Nothing is kept."""

    # -- in the threads of the call ----------------------------------------------------------------

    def now(self) -> float | None:
        """See `NodeListener`."""
        return time.monotonic() if self._link.is_inside() else None

    def began(self, number: UUID, node: str) -> None:
        """See `NodeListener`."""
        self._link.tell((number.int, node))

    def ended(self, number: UUID, end: NodeEnd) -> None:
        """See `NodeListener`."""
        error = None if end.error is None else dump_error(end.error, self._link.dumps)
        self._link.tell((number.int, end.node, end.status, error, time.monotonic() - end.begun))
