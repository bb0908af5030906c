"""LangGraph's own arguments of a call, under their own names and with their own meanings.

What breaks without the checks: LangGraph ignores nodes that a graph does not have, so a run does
not stop where it should; with one string, ``interrupt_before="approve_all"``, it stops at a node
``approve`` too, whose name is a part of it; a misspelled durability is taken for the default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from rxlanggraph.bridge.graphs.configs import layers_of
from rxlanggraph.bridge.time_limits import Timeout
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.messages import StreamMessage
from rxlanggraph.validation import check_plain

__all__ = ["Durability", "Nodes", "PerMessage", "check_arguments", "given"]

Durability: TypeAlias = Literal["sync", "async", "exit"]
Nodes: TypeAlias = "Literal['*'] | list[str] | tuple[str, ...]"

_NOT_NODES = frozenset({"__start__", "__end__"})


@dataclass(frozen=True, slots=True)
class PerMessage:
    """The options of a run that are functions of its message. None: the option is the same for all.

    They are called in the submitter's thread, before the run is registered.
    """

    config: Callable[[StreamMessage], Mapping[str, Any] | None] | None = None
    context: Callable[[StreamMessage], Any] | None = None
    timeout: Callable[[StreamMessage], Timeout | None] | None = None

    @classmethod
    def among(cls, **options: Any) -> PerMessage | None:
        """Return those of ``options`` that are functions, if any. Any thread; never blocks."""
        functions = {name: value for name, value in options.items() if callable(value)}
        return cls(**functions) if functions else None

    def value_of(self, name: str, message: StreamMessage) -> Any:
        """Call the function for ``name``. In the submitter's thread.

        Raises:
            InvalidTypeError: It is an async function.
        """
        value = getattr(self, name)(message)
        check_plain(name, value)
        return value


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``arguments`` that are not None. Any thread; never blocks."""
    return {name: value for name, value in arguments.items() if value is not None}


def check_arguments(graph: Any, arguments: Mapping[str, Any]) -> None:
    """Check what a graph is to be called with. Any thread; never blocks.

    Args:
        graph: What has ``ainvoke``.
        arguments: By name; those that are not given are left out.

    Raises:
        InvalidArgumentError: The graph is not one of LangGraph's, has no node of that name, or the
            durability is unknown.
        InvalidTypeError: Nodes or keys are not strings.
    """
    if not arguments:
        return
    layers = [layer for layer in layers_of(graph) if hasattr(layer, "aget_state")]
    if not layers:
        raise InvalidArgumentError(
            f"{' and '.join(arguments)} can only be passed with a compiled LangGraph graph, and "
            f"{graph!r} is not one; leave it out"
        )
    durability = arguments.get("durability")
    if durability is not None and durability not in get_args(Durability):
        raise InvalidArgumentError(
            f"durability must be 'sync', 'async' or 'exit', not {durability!r}"
        )
    for argument in ("interrupt_before", "interrupt_after"):
        if argument in arguments:
            _check_nodes(argument, arguments[argument], layers[-1])
    if "output_keys" in arguments and not isinstance(arguments["output_keys"], str):
        list(_strings("output_keys", arguments["output_keys"]))


def _check_nodes(argument: str, value: object, graph: Any) -> None:
    if value == "*":
        return
    if isinstance(value, str):
        raise InvalidTypeError(f"{argument} must be '*' or a list of nodes; pass [{value!r}]")
    nodes = getattr(graph, "nodes", None)
    for name in _strings(argument, value):
        if isinstance(nodes, Mapping) and name not in nodes:
            known = ", ".join(sorted(set(nodes) - _NOT_NODES))
            raise InvalidArgumentError(
                f"{argument} names {name!r}, which is not a node of the graph; it has {known}"
            )


def _strings(argument: str, value: object) -> Iterator[str]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidTypeError(f"{argument} must be a list of strings, not {value!r}")
    for each in value:
        if not isinstance(each, str):
            raise InvalidTypeError(f"{argument} must be a list of strings, and has {each!r}")
        yield each
