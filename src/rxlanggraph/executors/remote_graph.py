"""RemoteGraph: a graph whose calls go to worker processes, and which is here in all other respects.

A bridge recognizes graphs by their shape, so this has the shape of the graph that it stands for:
its name, nodes, channels, checkpointer. What reads a thread, such as the look for an open question,
uses the checkpointer of the driver's own graph, which has to reach the same threads. Only one that
keeps its threads in memory is asked where they are: in the one worker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from rxlanggraph.concurrency.signatures import signature_of
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.executors.targets import in_memory_parts

__all__ = ["Caller", "RemoteFunction", "RemoteGraph", "remote"]


class Caller(Protocol):
    """What makes calls in worker processes. On the loop of the calls."""

    async def call(
        self, path: tuple[str, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Call what is at ``path`` of the graph; cancelling it cancels the call, and waits."""

    def stream(
        self, path: tuple[str, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """As `call`, for what returns an async iterator."""


class RemoteGraph:
    """Stands for a graph of the driver; ``ainvoke`` and ``astream`` are called in a worker.

    Args:
        local: The driver's own graph.
        caller: Makes the calls.
        here: Whether they are made in this process, on another loop: nothing else is elsewhere.
    """

    steps: list[Any]
    """Of a sequence whose calls are made here, with what stands for its graphs."""

    def __init__(self, local: Any, caller: Caller, *, here: bool = False) -> None:
        self.local = local
        name = getattr(local, "name", None)
        self.name = name if isinstance(name, str) else type(local).__name__
        self._caller = caller
        self._here = here
        saver = getattr(local, "checkpointer", None)
        if not here and any(name == type(saver).__name__ for name in in_memory_parts(local)):
            self.checkpointer: Any = _RemoteSaver(saver, caller)

    def __getattr__(self, name: str) -> Any:
        """Return what the driver's graph has under ``name``."""
        if name == "steps" and not self._here:  # a sequence is called as a whole
            raise AttributeError(name)
        return getattr(self.local, name)

    def __repr__(self) -> str:
        """Return that of the driver's graph."""
        return f"<{self.local!r} {'on other loops' if self._here else 'in worker processes'}>"

    async def ainvoke(self, content: Any, config: Any = None, **options: Any) -> Any:
        """Call the graph in a worker. On the loop."""
        return await self._caller.call(("ainvoke",), (content, config), options)

    def astream(self, content: Any, config: Any = None, **options: Any) -> AsyncIterator[Any]:
        """Stream the graph from a worker. On the loop."""
        return self._caller.stream(("astream",), (content, config), options)


class RemoteFunction:
    """Stands for a function of the content, which is called in a worker.

    Args:
        local: The driver's own function.
        caller: Makes the calls.
    """

    def __init__(self, local: Callable[..., Any], caller: Caller) -> None:
        self.local = local
        self.__name__ = getattr(local, "__name__", type(local).__name__)
        self.__signature__ = signature_of(local)  # by which a bridge knows what it asks for
        self._caller = caller

    def __repr__(self) -> str:
        """Return that of the driver's function."""
        return repr(self.local)

    async def __call__(self, content: Any, **given: Any) -> Any:
        """Call the function in a worker. On the loop."""
        return await self._caller.call((), (content,), given)


class _RemoteSaver:
    """A saver in the memory of the one worker."""

    _CALLED = frozenset({"aget_tuple", "aput", "aput_writes", "adelete_thread"})

    def __init__(self, local: Any, caller: Caller) -> None:
        self._local = local
        self._caller = caller

    def __getattr__(self, name: str) -> Any:
        """Return a method of the worker's saver, or what does not depend on its contents."""
        if name in self._CALLED:
            return partial(self._call, name)
        return getattr(self._local, name)

    async def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return await self._caller.call(("checkpointer", name), arguments, options)

    def alist(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        """List the checkpoints of the worker's saver. On the loop."""
        return self._caller.stream(("checkpointer", "alist"), arguments, options)


def remote(local: Any, caller: Caller, *, here: bool = False) -> RemoteGraph | RemoteFunction:
    """Return what stands for ``local``, a graph or function of the driver. Any thread.

    The arguments are those of `RemoteGraph`.

    Raises:
        InvalidArgumentError: It is a sequence with a graph among its steps.
    """
    if not hasattr(local, "ainvoke"):
        return RemoteFunction(local, caller)
    steps = None if here else getattr(local, "steps", None)
    if isinstance(steps, list) and any(hasattr(step, "aget_state") for step in steps):
        raise InvalidArgumentError(
            f"{local!r} is a sequence of graphs, which an executor cannot run; make one graph of "
            "it, with its steps as nodes"
        )
    return RemoteGraph(local, caller, here=here)
