"""Runs whose worker process was lost: their graph is called again, in another worker.

As for any further attempt at a message, a graph that keeps checkpoints continues from what the last
one has saved; any other begins again. What breaks without it, where Ray repeats a call by itself:
the message is added to its thread a second time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rxlanggraph.bridge.graphs.adapters import Arguments, GraphAdapter, WrappedAdapter
from rxlanggraph.bridge.graphs.configs import Config
from rxlanggraph.errors import WorkerLostError
from rxlanggraph.messages import StreamMessage

__all__ = ["resending"]


def resending(adapter: GraphAdapter, retries: int) -> GraphAdapter:
    """Return the adapter that repeats what is lost. Any thread; never blocks.

    Args:
        adapter: The adapter that calls the graph in a worker.
        retries: How often each of its attempts is repeated at most.
    """
    if not retries or isinstance(adapter, _Resending):
        return adapter
    return _Resending(adapter, retries)


class _Resending(WrappedAdapter):
    """An adapter whose attempts end with `WorkerLostError` only after so many retries."""

    def __init__(self, adapter: GraphAdapter, retries: int) -> None:
        super().__init__(adapter)
        self._attempts = adapter.attempts
        self._retries = retries

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        return self._insist(self._attempts(message, config, arguments))

    def attempts(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        return partial(self._insist, self._attempts(message, config, arguments))

    async def _insist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        for left in range(self._retries, -1, -1):
            try:
                return await attempt()
            except WorkerLostError:
                if not left:
                    raise
        raise AssertionError("the last attempt returns or raises")
